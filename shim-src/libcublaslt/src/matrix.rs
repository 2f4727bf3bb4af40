//! Matrices as their layouts describe them, and the orders of their elements. A matrix by rows is the
//! transpose of one by columns, so that only the latter reach the host.

use std::ffi::c_int;

use vgpu_abi::blas::{BlasStatus, OP_C, OP_N, OP_T};
use vgpu_abi::log;

use crate::Result;
use crate::kinds::{Layout, layout};
use crate::record::{Kind, Record};

/// A matrix as its layout describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// `cudaDataType` of the elements.
    pub kind: c_int,
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// Elements from one column to the next; of a matrix by rows from one row.
    pub leading: u64,
    /// Matrices of the batch.
    pub batch: u64,
    /// Elements from one to the next.
    pub stride: i64,
    /// Whether the elements of a row lie side by side, not those of a column.
    pub by_rows: bool,
}

/// Refuses a descriptor that asks for what no message says.
pub fn usual<K: Kind>(record: Record<K>, what: &str) -> Result {
    let Some(id) = record.unusual()? else { return Ok(()) };
    log::info(format_args!("cuBLASLt: no product with attribute {id} of {what} as it is"));
    Err(BlasStatus::NOT_SUPPORTED)
}

/// Whether elements are complex numbers, of which [`OP_C`] is not [`OP_T`].
pub const fn is_complex(kind: c_int) -> bool {
    use vgpu_abi::blas::data::{C_8I, C_8U, C_16BF, C_16F, C_32F, C_32I, C_32U, C_64F};
    matches!(kind, C_8I | C_8U | C_16BF | C_16F | C_32F | C_32I | C_32U | C_64F)
}

impl Matrix {
    /// Reads a layout.
    pub fn read(record: Record<Layout>) -> Result<Self> {
        usual(record, "a matrix")?;
        let order = record.word(layout::ORDER)?;
        if !matches!(order, layout::ORDER_COL | layout::ORDER_ROW) {
            log::info(format_args!("cuBLASLt: no product of matrices in order {order}"));
            return Err(BlasStatus::NOT_SUPPORTED);
        }
        Ok(Self {
            kind: record.word(layout::TYPE)?,
            rows: record.number(layout::ROWS)?,
            columns: record.number(layout::COLS)?,
            leading: record.number(layout::LD)?,
            batch: record.number(layout::BATCH_COUNT)?,
            stride: record.number(layout::STRIDED_BATCH_OFFSET)?.cast_signed(),
            by_rows: order == layout::ORDER_ROW,
        })
    }

    /// Refuses sizes that no matrix has. A negative leading dimension or count is a very large number here.
    pub fn fits(self) -> Result<Self> {
        let least = if self.by_rows { self.columns } else { self.rows }.max(1);
        let sizes = [self.rows, self.columns, self.leading];
        let fits = self.leading >= least
            && sizes.iter().all(|&size| i64::try_from(size).is_ok())
            && i32::try_from(self.batch).is_ok();
        if fits { Ok(self) } else { Err(BlasStatus::INVALID_VALUE) }
    }

    /// The same for C, whose one column or row may stand for all.
    pub fn fits_or_repeats(self) -> Result<Self> {
        if self.leading != 0 {
            return self.fits();
        }
        let one = Self { leading: if self.by_rows { self.columns } else { self.rows }.max(1), ..self };
        one.fits().map(|_| self)
    }

    /// Rows and columns of what an operation makes of it.
    pub const fn turned(&self, operation: c_int) -> [u64; 2] {
        match operation {
            OP_N => [self.rows, self.columns],
            _ => [self.columns, self.rows],
        }
    }
}

/// The operation on a matrix of one order that does what `operation` does to the same elements in the other;
/// `None` where there is none: a complex matrix conjugated and not transposed.
pub const fn in_other_order(operation: c_int, kind: c_int) -> Option<c_int> {
    match operation {
        OP_N => Some(OP_T),
        OP_C if is_complex(kind) => None,
        _ => Some(OP_N),
    }
}
