//! A product of cuBLASLt's as its descriptions have it, and what it has to be.
//!
//! Written from the manual of cuBLAS, "Using the cuBLASLt API". Types that no product has are not supported,
//! which a program has to expect; sizes that contradict each other break a rule.

use vgpu_abi::CUresult;
use vgpu_abi::blas::{arithmetic, data};

use crate::description::{NO_TYPE, Record, layout, product};
use crate::matrix::Matrix;
use crate::raw::Address;
use crate::rule::{Answer, Refusal, Rule};

/// `cublasLtPointerMode_t`: the scalars are in device memory.
pub const DEVICE_SCALARS: i32 = 1;
/// `cublasLtOrder_t`
const BY_COLUMNS: i32 = 0;
const BY_ROWS: i32 = 1;

/// What a program has to expect of a product that the library does not have.
pub const fn unsupported() -> Refusal {
    Refusal::Expected(CUresult::NOT_SUPPORTED)
}

/// A matrix as its layout has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    kind: i32,
    order: i32,
    /// Rows and columns.
    size: [u64; 2],
    leading: u64,
    /// How many there are.
    pub batch: u64,
    stride: i64,
}

impl Shape {
    fn read(record: &Record) -> Answer<Self> {
        Ok(Self {
            kind: record.word(layout::TYPE)?,
            order: record.word(layout::ORDER)?,
            size: [record.get(layout::ROWS)?, record.get(layout::COLUMNS)?],
            leading: record.get(layout::LD)?,
            batch: record.get(layout::BATCH_COUNT)?,
            stride: record.get(layout::STRIDED_BATCH_OFFSET)?.cast_signed(),
        })
    }

    /// Elements that are adjacent, and how many such columns, or rows, there are.
    const fn lines(&self) -> [u64; 2] {
        let [rows, columns] = self.size;
        if self.order == BY_ROWS { [columns, rows] } else { [rows, columns] }
    }

    /// The matrix after an operation: rows and columns.
    const fn after(&self, operation: i32) -> [u64; 2] {
        let [rows, columns] = self.size;
        if operation == 0 { [rows, columns] } else { [columns, rows] }
    }

    /// `repeats`: of C, NVIDIA's library lets one line stand for all, by a leading dimension of 0.
    fn check(&self, repeats: bool) -> Answer {
        if !matches!(self.order, BY_COLUMNS | BY_ROWS) {
            return Err(unsupported());
        }
        let right = self.leading >= self.lines()[0].max(1) || repeats && self.leading == 0;
        if right && i64::try_from(self.leading).is_ok() { Ok(()) } else { Err(Rule::LtLeading.into()) }
    }

    /// The matrix at an address.
    pub fn at(&self, address: Address) -> Matrix {
        let [line, lines] = self.lines().map(u64::cast_signed);
        let (size, leading) = match self.leading {
            0 => ([line, lines.min(1)], line.max(1)),
            leading => ([line, lines], leading.cast_signed()),
        };
        Matrix { address, size, leading, stride: self.stride, kind: self.kind }
    }
}

/// A product, without its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    compute: i32,
    /// `cudaDataType` of alpha and beta.
    pub scale: i32,
    /// `cublasLtPointerMode_t`
    pub pointer_mode: i32,
    operation: [i32; 2],
    /// `cublasLtEpilogue_t`
    pub epilogue: u32,
    /// Of A, B, C and D.
    pub shapes: [Shape; 4],
}

impl Product {
    /// Reads a product from its description, and those of A, B, C and D.
    pub fn read(record: &Record, layouts: [&Record; 4]) -> Answer<Self> {
        let [a, b, c, d] = layouts;
        let shape = Shape::read;
        Ok(Self {
            compute: record.word(product::COMPUTE_TYPE)?,
            scale: record.word(product::SCALE_TYPE)?,
            pointer_mode: record.word(product::POINTER_MODE)?,
            operation: [record.word(product::TRANSA)?, record.word(product::TRANSB)?],
            epilogue: record.get(product::EPILOGUE)? as u32,
            shapes: [shape(a)?, shape(b)?, shape(c)?, shape(d)?],
        })
    }

    /// Checks what can be checked without operands.
    #[allow(clippy::many_single_char_names, reason = "the names of BLAS")]
    pub fn check(&self) -> Answer {
        let [a, b, c, d] = &self.shapes;
        for (shape, repeats) in [(a, false), (b, false), (c, true), (d, false)] {
            shape.check(repeats)?;
        }
        let ([m, k], [inner, n]) = (a.after(self.operation[0]), b.after(self.operation[1]));
        let batch = self.shapes.iter().all(|shape| shape.batch == d.batch);
        let of_d = |shape: &Shape| (shape.kind, shape.order, shape.size);
        if k != inner || d.size != [m, n] || of_d(c) != of_d(d) || !batch {
            return Err(Rule::LtConflict.into());
        }
        let found = arithmetic(self.compute, [a.kind, b.kind, d.kind], true).ok_or(unsupported())?;
        // Vectors of scalars are of no use to a program that has scalars.
        if found.scale != self.scale || self.pointer_mode > DEVICE_SCALARS {
            return Err(unsupported());
        }
        Ok(())
    }

    fn uses_bias(&self) -> bool {
        self.epilogue & 4 != 0 || self.bias_gradient()
    }

    /// Whether sums are stored where the bias is.
    pub fn bias_gradient(&self) -> bool {
        matches!(self.epilogue, 152 | 208 | 256 | 512)
    }

    const fn has_auxiliary(&self) -> bool {
        self.epilogue & 128 != 0
    }

    /// Whether the auxiliary matrix is ReLU's mask of bits.
    const fn masks(&self) -> bool {
        self.has_auxiliary() && self.epilogue & (2 | 8) != 0
    }
}

/// What an epilogue reads and writes besides the matrices.
#[derive(Clone, Copy, Debug)]
pub struct Extras {
    /// The bias, or where its gradient goes.
    pub bias: Option<Matrix>,
    /// The auxiliary matrix, or the mask.
    pub auxiliary: Option<Matrix>,
}

impl Extras {
    /// Reads what the epilogue of a product needs from its description.
    pub fn read(record: &Record, product: &Product) -> Answer<Self> {
        let d = &product.shapes[3];
        let kind_of =
            |id| -> Answer<i32> { Ok(if record.get(id)? == NO_TYPE { d.kind } else { record.word(id)? }) };
        let address_of = |id| record.get(id).map(Address);
        let signed = |id| record.get(id).map(u64::cast_signed);
        let [rows, columns] = d.size.map(u64::cast_signed);
        let bias = if product.uses_bias() {
            // Sums of B are as many as D has columns; everything else is one for each row.
            let length = if product.epilogue == 512 { columns } else { rows };
            Some(Matrix {
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
                // Eight elements are a byte.
                let (size, kind) = ([(rows + 7) / 8, columns], data::R_8U);
                Matrix { address, size, leading: leading / 8, stride: stride / 8, kind }
            } else {
                let (size, kind) = ([rows, columns], kind_of(product::AUX_DATA_TYPE)?);
                Matrix { address, size, leading, stride, kind }
            })
        } else {
            None
        };
        Ok(Self { bias, auxiliary })
    }
}

/// An algorithm that was given out.
#[derive(Debug)]
pub struct Advice {
    /// The product that it is for.
    pub product: Product,
    /// To how many bytes A, B, C and D have to be aligned.
    pub alignments: [u64; 4],
    /// Bytes of the workspace that it needs.
    pub workspace: u64,
}
