//! Epilogues: the operations on the result that the descriptor of a product requests before it is stored, and
//! their vectors and matrices.
//!
//! Refusals and their statuses are those that cuBLASLt 13.0 returned on an RTX 3060, or where these are not
//! known those of the manual.

use std::ffi::c_int;

use vgpu_abi::blas::{BlasStatus, OP_N, data};
use vgpu_abi::log;
use vgpu_wire::body::matmul::{BiasGradient, Epilogue};

use crate::Result;
use crate::kinds::{Desc, NO_TYPE, desc};
use crate::matrix::Matrix;
use crate::record::Record;

/// Number of bits that the leading dimension and the stride of ReLU's mask are multiples of.
const MASK_BITS: u64 = 128;

/// The epilogue of a product.
#[derive(Clone, Copy, Debug)]
pub struct Finish {
    /// Number of the epilogue, a `cublasLtEpilogue_t`.
    pub number: u32,
    /// The parts of that number.
    pub epilogue: Epilogue,
    /// The bias, or where its gradient is stored.
    pub bias: Vector,
    /// The auxiliary matrix.
    pub aux: Vector,
    /// Leading dimension of the auxiliary matrix in elements; for ReLU's mask in bits.
    pub aux_leading: u64,
}

/// An operand of an epilogue.
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    /// Device address of the operand.
    pub address: u64,
    /// `cudaDataType` of the elements.
    pub kind: c_int,
    /// Elements from one product's operand to the next product's.
    pub stride: i64,
}

/// Returns whether the library has epilogues for products of `input` elements into `output` elements.
const fn is_known(input: c_int, output: c_int) -> bool {
    use data::{R_16BF, R_16F, R_32F, R_64F};
    matches!(
        (input, output),
        (R_16F, R_16F | R_32F) | (R_16BF, R_16BF | R_32F) | (R_32F, R_32F) | (R_64F, R_64F)
    )
}

impl Finish {
    /// Reads and checks the epilogue in a product's descriptor. `a` and `d` are matrices of the product,
    /// `operations` those on A and B.
    pub fn read(record: Record<Desc>, operations: [c_int; 2], a: &Matrix, d: &Matrix) -> Result<Self> {
        let number = record.number(desc::EPILOGUE)? as u32;
        let refused = |why: &str| {
            log::info(format_args!("cuBLASLt: no epilogue {number} {why}"));
            BlasStatus::NOT_SUPPORTED
        };
        let epilogue = Epilogue::from_number(number).ok_or_else(|| refused("of this number"))?;
        let number_of = |id| record.number_or_initial(id);
        let kind_of = |id| -> Result<c_int> {
            let kind = number_of(id)?;
            Ok(if kind == NO_TYPE { d.kind } else { (kind as u32).cast_signed() })
        };
        let finish = Self {
            number,
            epilogue,
            bias: Vector {
                address: number_of(desc::BIAS_POINTER)?,
                kind: kind_of(desc::BIAS_DATA_TYPE)?,
                stride: number_of(desc::BIAS_BATCH_STRIDE)?.cast_signed(),
            },
            aux: Vector {
                address: number_of(desc::EPILOGUE_AUX_POINTER)?,
                kind: kind_of(desc::EPILOGUE_AUX_DATA_TYPE)?,
                stride: number_of(desc::EPILOGUE_AUX_BATCH_STRIDE)?.cast_signed(),
            },
            aux_leading: number_of(desc::EPILOGUE_AUX_LD)?,
        };
        if finish.is_none() {
            return Ok(finish);
        }
        if !is_known(a.kind, d.kind) {
            return Err(refused("for these element types"));
        }
        if d.by_rows {
            return Err(refused("where D is stored by rows"));
        }
        if epilogue.uses_bias() && finish.bias.kind != d.kind {
            return Err(refused("with a bias of another type than D's"));
        }
        finish.check_auxiliary(d)?;
        let [on_a, on_b] = operations;
        match epilogue.gradient {
            Some(BiasGradient::A) if on_a != OP_N => Err(refused("where A is transposed")),
            Some(BiasGradient::B) if on_b == OP_N => Err(refused("where B is not transposed")),
            _ => Ok(finish),
        }
    }

    /// Returns whether the epilogue stores the result as it is.
    pub const fn is_none(&self) -> bool {
        self.number == desc::EPILOGUE_DEFAULT as u32
    }

    fn check_auxiliary(&self, d: &Matrix) -> Result {
        if !self.epilogue.auxiliary {
            return Ok(());
        }
        let good = if self.epilogue.masks() {
            self.aux_leading.is_multiple_of(MASK_BITS)
                && self.aux.stride.cast_unsigned().is_multiple_of(MASK_BITS)
        } else {
            self.aux.kind == d.kind
        };
        let leading = self.aux_leading >= d.rows.max(1) && i64::try_from(self.aux_leading).is_ok();
        if good && leading { Ok(()) } else { Err(BlasStatus::INVALID_VALUE) }
    }

    /// Refuses an operand without an address. A search for algorithms does not look at them.
    pub fn check_addresses(&self) -> Result {
        if self.epilogue.auxiliary && self.aux.address == 0 {
            let forward = !self.epilogue.reads_auxiliary();
            return Err(if forward { BlasStatus::NOT_SUPPORTED } else { BlasStatus::INVALID_VALUE });
        }
        if self.epilogue.uses_bias() && self.bias.address == 0 {
            return Err(BlasStatus::INVALID_VALUE);
        }
        Ok(())
    }
}
