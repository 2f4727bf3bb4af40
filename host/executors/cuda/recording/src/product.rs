//! A product of cuBLASLt as its descriptors define it, and its checks.
//!
//! It is written from the section "Using the cuBLASLt API" of cuBLAS's manual. Unsupported types are an
//! expected status, whereas contradictory sizes break a rule.

use vgpu_abi::CUresult;
use vgpu_abi::blas::{arithmetic, data};

use crate::description::{LtDescription, NO_TYPE, layout, product};
use crate::matrix::BlasMatrix;
use crate::raw::DeviceAddress;
use crate::rule::{CallRefusal, CallResult, Rule};

/// The `cublasLtPointerMode_t` for scalars in device memory.
pub const DEVICE_SCALARS: i32 = 1;
/// The `cublasLtOrder_t` for matrices that are stored by columns.
const BY_COLUMNS: i32 = 0;
const BY_ROWS: i32 = 1;

/// Returns the expected status of a product that the library does not support.
pub const fn unsupported() -> CallRefusal {
    CallRefusal::Expected(CUresult::NOT_SUPPORTED)
}

/// A matrix as its layout descriptor defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LtMatrix {
    kind: i32,
    order: i32,
    /// Number of rows and columns.
    size: [u64; 2],
    leading: u64,
    /// Number of matrices in the batch.
    pub batch: u64,
    stride: i64,
}

impl LtMatrix {
    fn read(record: &LtDescription) -> CallResult<Self> {
        Ok(Self {
            kind: record.word(layout::TYPE)?,
            order: record.word(layout::ORDER)?,
            size: [record.get(layout::ROWS)?, record.get(layout::COLUMNS)?],
            leading: record.get(layout::LD)?,
            batch: record.get(layout::BATCH_COUNT)?,
            stride: record.get(layout::STRIDED_BATCH_OFFSET)?.cast_signed(),
        })
    }

    /// Returns the length and number of the contiguous lines: columns, or rows.
    const fn lines(&self) -> [u64; 2] {
        let [rows, columns] = self.size;
        if self.order == BY_ROWS { [columns, rows] } else { [rows, columns] }
    }

    /// Returns the rows and columns of the matrix after an operation.
    const fn after(&self, operation: i32) -> [u64; 2] {
        let [rows, columns] = self.size;
        if operation == 0 { [rows, columns] } else { [columns, rows] }
    }

    /// Checks order and leading dimension. With `repeats`, which C permits, a leading dimension of 0 repeats
    /// one line.
    fn check(&self, repeats: bool) -> CallResult {
        if !matches!(self.order, BY_COLUMNS | BY_ROWS) {
            return Err(unsupported());
        }
        let right = self.leading >= self.lines()[0].max(1) || repeats && self.leading == 0;
        if right && i64::try_from(self.leading).is_ok() { Ok(()) } else { Err(Rule::LtLeading.into()) }
    }

    pub fn at(&self, address: DeviceAddress) -> BlasMatrix {
        let [line, lines] = self.lines().map(u64::cast_signed);
        let (size, leading) = match self.leading {
            0 => ([line, lines.min(1)], line.max(1)),
            leading => ([line, lines], leading.cast_signed()),
        };
        BlasMatrix { address, size, leading, stride: self.stride, kind: self.kind }
    }
}

/// A product, without its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LtProduct {
    compute: i32,
    pub scale: i32,
    /// Value of `cublasLtPointerMode_t` that selects the memory of the scalars.
    pub pointer_mode: i32,
    operation: [i32; 2],
    /// Epilogue of the product, a `cublasLtEpilogue_t`.
    pub epilogue: u32,
    /// Attributes of A, B, C and D.
    pub shapes: [LtMatrix; 4],
}

impl LtProduct {
    /// Reads a product from its descriptor, and the layouts of A, B, C and D.
    pub fn read(record: &LtDescription, layouts: [&LtDescription; 4]) -> CallResult<Self> {
        let [a, b, c, d] = layouts;
        let shape = LtMatrix::read;
        Ok(Self {
            compute: record.word(product::COMPUTE_TYPE)?,
            scale: record.word(product::SCALE_TYPE)?,
            pointer_mode: record.word(product::POINTER_MODE)?,
            operation: [record.word(product::TRANSA)?, record.word(product::TRANSB)?],
            epilogue: record.get(product::EPILOGUE)? as u32,
            shapes: [shape(a)?, shape(b)?, shape(c)?, shape(d)?],
        })
    }

    /// Checks everything that does not depend on addresses.
    #[allow(clippy::many_single_char_names, reason = "the names of BLAS")]
    pub fn check(&self) -> CallResult {
        let [a, b, c, d] = &self.shapes;
        for (shape, repeats) in [(a, false), (b, false), (c, true), (d, false)] {
            shape.check(repeats)?;
        }
        let ([m, k], [inner, n]) = (a.after(self.operation[0]), b.after(self.operation[1]));
        let batch = self.shapes.iter().all(|shape| shape.batch == d.batch);
        let of_d = |shape: &LtMatrix| (shape.kind, shape.order, shape.size);
        if k != inner || d.size != [m, n] || of_d(c) != of_d(d) || !batch {
            return Err(Rule::LtConflict.into());
        }
        let found = arithmetic(self.compute, [a.kind, b.kind, d.kind], true).ok_or(unsupported())?;
        // Programs that have scalars do not use vectors of scalars.
        if found.scale != self.scale || self.pointer_mode > DEVICE_SCALARS {
            return Err(unsupported());
        }
        Ok(())
    }

    fn uses_bias(&self) -> bool {
        self.epilogue & 4 != 0 || self.bias_gradient()
    }

    /// Returns whether the epilogue stores the bias gradient.
    pub fn bias_gradient(&self) -> bool {
        matches!(self.epilogue, 152 | 208 | 256 | 512)
    }

    const fn has_auxiliary(&self) -> bool {
        self.epilogue & 128 != 0
    }

    /// Returns whether the auxiliary matrix is a bit mask of ReLU.
    const fn masks(&self) -> bool {
        self.has_auxiliary() && self.epilogue & (2 | 8) != 0
    }
}

/// Further operands of an epilogue.
#[derive(Clone, Copy, Debug)]
pub struct Extras {
    /// Bias, or destination of its gradient, if the epilogue has one.
    pub bias: Option<BlasMatrix>,
    pub auxiliary: Option<BlasMatrix>,
}

impl Extras {
    /// Reads the operands of a product's epilogue from its descriptor.
    pub fn read(record: &LtDescription, product: &LtProduct) -> CallResult<Self> {
        let d = &product.shapes[3];
        let kind_of = |id| -> CallResult<i32> {
            Ok(if record.get(id)? == NO_TYPE { d.kind } else { record.word(id)? })
        };
        let address_of = |id| record.get(id).map(DeviceAddress);
        let signed = |id| record.get(id).map(u64::cast_signed);
        let [rows, columns] = d.size.map(u64::cast_signed);
        let bias = if product.uses_bias() {
            // B is summed over each column of D, and everything else over each row.
            let length = if product.epilogue == 512 { columns } else { rows };
            Some(BlasMatrix {
                address: address_of(product::BIAS_POINTER)?,
                size: [length, 1],
                leading: length.max(1),
                stride: signed(product::BIAS_BATCH_STRIDE)?,
                kind: kind_of(product::BIAS_DATA_TYPE)?,
            })
        } else {
            None
        };
        let auxiliary = if product.has_auxiliary() {
            let (leading, stride) = (signed(product::AUX_LD)?, signed(product::AUX_BATCH_STRIDE)?);
            let multiple = if product.masks() { 128 } else { 8 };
            if leading < rows.max(1) || leading % multiple != 0 || stride % multiple != 0 {
                return Err(Rule::LtAuxiliary.into());
            }
            let address = address_of(product::AUX_POINTER)?;
            Some(if product.masks() {
                // A byte of the mask holds eight elements.
                let (size, kind) = ([(rows + 7) / 8, columns], data::R_8U);
                BlasMatrix { address, size, leading: leading / 8, stride: stride / 8, kind }
            } else {
                let (size, kind) = ([rows, columns], kind_of(product::AUX_DATA_TYPE)?);
                BlasMatrix { address, size, leading, stride, kind }
            })
        } else {
            None
        };
        Ok(Self { bias, auxiliary })
    }
}

/// An algorithm that was advised.
#[derive(Debug)]
pub struct Advice {
    pub product: LtProduct,
    /// Required alignment of A, B, C and D in bytes.
    pub alignments: [u64; 4],
    /// Required size of the workspace in bytes.
    pub workspace: u64,
}
