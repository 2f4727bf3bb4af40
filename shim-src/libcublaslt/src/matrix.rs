//! Matrices as their layouts describe them, and the orders of their elements. A matrix by rows is the
//! transpose of one by columns; the host sees only the latter.

use std::ffi::c_int;

use vgpu_abi::blas::{BlasStatus, OP_C, OP_N, OP_T};
use vgpu_abi::log;

use crate::Result;
use crate::kinds::{Layout, layout};
use crate::record::{DescriptorKind, Record};

/// A matrix as its layout describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// `cudaDataType` of the elements.
    pub kind: c_int,
    /// Number of rows.
    pub rows: u64,
    /// Number of columns.
    pub columns: u64,
    /// Elements from one column to the next; for a matrix by rows, from one row to the next.
    pub leading: u64,
    /// Number of matrices of the batch.
    pub batch: u64,
    /// Elements from one matrix of the batch to the next.
    pub stride: i64,
    /// Whether the elements of a row are adjacent, and not those of a column.
    pub by_rows: bool,
}

/// Refuses a descriptor with an attribute whose value no message can carry.
pub fn usual<K: DescriptorKind>(record: Record<K>, what: &str) -> Result {
    let Some(id) = record.unusual()? else { return Ok(()) };
    log::info(format_args!("cuBLASLt: no product with attribute {id} of {what} as it is"));
    Err(BlasStatus::NOT_SUPPORTED)
}

/// Returns whether the elements are complex numbers, for which [`OP_C`] differs from [`OP_T`].
pub const fn is_complex(kind: c_int) -> bool {
    use vgpu_abi::blas::data::{C_8I, C_8U, C_16BF, C_16F, C_32F, C_32I, C_32U, C_64F};
    matches!(kind, C_8I | C_8U | C_16BF | C_16F | C_32F | C_32I | C_32U | C_64F)
}

impl Matrix {
    /// Reads a matrix from its layout. Refuses attributes that no message can carry.
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

    /// Refuses sizes that no matrix has. A negative leading dimension or count is seen here as a very large
    /// number.
    pub fn fits(self) -> Result<Self> {
        let least = if self.by_rows { self.columns } else { self.rows }.max(1);
        let sizes = [self.rows, self.columns, self.leading];
        let fits = self.leading >= least
            && sizes.iter().all(|&size| i64::try_from(size).is_ok())
            && i32::try_from(self.batch).is_ok();
        if fits { Ok(self) } else { Err(BlasStatus::INVALID_VALUE) }
    }

    /// Refuses sizes as [`Self::fits`] does for C, whose leading dimension may be 0: one column or row then
    /// stands for all.
    pub fn fits_or_repeats(self) -> Result<Self> {
        if self.leading != 0 {
            return self.fits();
        }
        let one = Self { leading: if self.by_rows { self.columns } else { self.rows }.max(1), ..self };
        one.fits().map(|_| self)
    }

    /// Returns the number of rows and of columns of the matrix after `operation`.
    pub const fn turned(&self, operation: c_int) -> [u64; 2] {
        match operation {
            OP_N => [self.rows, self.columns],
            _ => [self.columns, self.rows],
        }
    }
}

/// Returns the operation on a matrix in one order that does the same as `operation` in the other order.
/// `None` if there is none: a complex matrix conjugated and not transposed.
pub const fn in_other_order(operation: c_int, kind: c_int) -> Option<c_int> {
    match operation {
        OP_N => Some(OP_T),
        OP_C if is_complex(kind) => None,
        _ => Some(OP_N),
    }
}
