//! Matrix products of cuBLASLt that [`Gemm`](super::gemm::Gemm) cannot express: an epilogue on the result,
//! and a C that is not D. Enumerations are CUDA's own numbers (`cublasLtEpilogue_t`, `cudaDataType`,
//! `cublasComputeType_t`). Matrices are column-major; the guest turns row-major ones.

wire_struct! {
    /// `D = epilogue(alpha * op(A) * op(B) + beta * C)`. `op(A)` is m by k, `op(B)` k by n, C and D m by n.
    /// Only for hosts with [`exec::EPILOGUES`](crate::facts::exec::EPILOGUES).
    pub struct MatmulLt = 280 {
        /// Stream that orders the work; 0 is the legacy default stream.
        pub stream: u32 = 0,
        /// [`GEMM_DEVICE_SCALARS`](super::gemm::GEMM_DEVICE_SCALARS) or 0.
        pub flags: u32 = 4,
        /// `cublasOperation_t` for A and for B.
        pub operation: [u32; 2] = 8,
        /// `cudaDataType` of the elements of A, B, C and D. C and D have the same.
        pub types: [u32; 4] = 16,
        /// `cublasComputeType_t` of the product.
        pub compute: u32 = 32,
        /// `cudaDataType` of alpha and beta.
        pub scale: u32 = 36,
        /// A `cublasLtEpilogue_t` that [`Epilogue::from_number`] knows.
        pub epilogue: u32 = 40,
        /// `cudaDataType` of the bias, or of the bias gradient.
        pub bias_type: u32 = 44,
        /// `cudaDataType` of GELU's auxiliary matrix. Without meaning for ReLU, whose mask has one bit an
        /// element.
        pub aux_type: u32 = 48,
        /// Number of products.
        pub batch: u32 = 52,
        /// The sizes m, n and k, in elements.
        pub size: [u64; 3] = 56,
        /// Leading dimensions of A, B, C and D, in elements. 0 for C: its one column stands for all columns.
        pub leading: [u64; 4] = 80,
        /// Elements from one product's A, B, C and D to the next product's.
        pub stride: [i64; 4] = 112,
        /// Device addresses of A, B, C and D.
        pub matrix: [u64; 4] = 144,
        /// Alpha in the type that `scale` names, or its device address.
        pub alpha: [u8; 16] = 176,
        /// Beta in the type that `scale` names, or its device address.
        pub beta: [u8; 16] = 192,
        /// Device address of the bias, or of the vector that receives its gradient.
        pub bias: u64 = 208,
        /// Elements from one product's bias to the next product's.
        pub bias_stride: i64 = 216,
        /// Device address of the auxiliary matrix, if the epilogue has one.
        pub aux: u64 = 224,
        /// Leading dimension of the auxiliary matrix in elements; for ReLU's mask in bits, a multiple of 128.
        pub aux_leading: u64 = 232,
        /// Elements from one product's auxiliary matrix to the next product's; for ReLU's mask bits.
        pub aux_stride: i64 = 240,
        /// Device address of the workspace that the program gave, or 0.
        pub workspace: u64 = 248,
        /// Length of that workspace in bytes.
        pub workspace_bytes: u64 = 256,
        /// Must be zero, or the host ends the session.
        pub reserved: [u64; 2] = 264,
    }
}

/// Function that an epilogue applies to each element of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The activation returns the element itself.
    None,
    /// The activation is `max(x, 0)`, and 0 for NaN.
    Relu,
    /// The activation is `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`.
    Gelu,
    /// The activation is `x` where the mask that [`Self::Relu`] stored has a 1, otherwise 0.
    ReluGradient,
    /// The activation is `x` times the derivative of [`Self::Gelu`] at the element of the auxiliary matrix.
    GeluGradient,
}

/// Sums that an epilogue stores at the address of the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BiasGradient {
    /// The epilogue stores the sum of each row of D.
    Result,
    /// The epilogue stores the sum of each row of `op(A)`, as many as D has rows. Alpha is not applied.
    A,
    /// The epilogue stores the sum of each column of `op(B)`, as many as D has columns. Alpha is not applied.
    B,
}

/// The parts of a `cublasLtEpilogue_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epilogue {
    /// Function applied to each element, after the bias.
    pub activation: Activation,
    /// Whether a bias is added before the activation: its element i to all of row i.
    pub bias: bool,
    /// Whether there is an auxiliary matrix of D's shape. Forward epilogues write it: the input of the
    /// activation (GELU), or a mask whose bits are 1 where that input is at least 0 (ReLU). Gradients read
    /// it.
    pub auxiliary: bool,
    /// Sums that are stored at the address of the bias, if any.
    pub gradient: Option<BiasGradient>,
}

impl Epilogue {
    /// Returns the parts of a `cublasLtEpilogue_t`; `None` for a number that cuBLASLt does not define.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        const fn forward(activation: Activation, bias: bool, auxiliary: bool) -> Epilogue {
            Epilogue { activation, bias, auxiliary, gradient: None }
        }
        const fn backward(activation: Activation, gradient: Option<BiasGradient>) -> Epilogue {
            let auxiliary = !matches!(activation, Activation::None);
            Epilogue { activation, bias: false, auxiliary, gradient }
        }
        Some(match number {
            1 => forward(Activation::None, false, false),
            2 => forward(Activation::Relu, false, false),
            4 => forward(Activation::None, true, false),
            6 => forward(Activation::Relu, true, false),
            32 => forward(Activation::Gelu, false, false),
            36 => forward(Activation::Gelu, true, false),
            130 => forward(Activation::Relu, false, true),
            134 => forward(Activation::Relu, true, true),
            160 => forward(Activation::Gelu, false, true),
            164 => forward(Activation::Gelu, true, true),
            136 => backward(Activation::ReluGradient, None),
            152 => backward(Activation::ReluGradient, Some(BiasGradient::Result)),
            192 => backward(Activation::GeluGradient, None),
            208 => backward(Activation::GeluGradient, Some(BiasGradient::Result)),
            256 => backward(Activation::None, Some(BiasGradient::A)),
            512 => backward(Activation::None, Some(BiasGradient::B)),
            _ => return None,
        })
    }

    /// Returns whether the auxiliary matrix is ReLU's mask of bits.
    #[must_use]
    pub const fn masks(&self) -> bool {
        self.auxiliary && matches!(self.activation, Activation::Relu | Activation::ReluGradient)
    }

    /// Returns whether the epilogue reads or writes at the address of the bias.
    #[must_use]
    pub const fn uses_bias(&self) -> bool {
        self.bias || self.gradient.is_some()
    }

    /// Returns whether the auxiliary matrix is an input. If there is one and it is not, the epilogue writes
    /// it.
    #[must_use]
    pub const fn reads_auxiliary(&self) -> bool {
        matches!(self.activation, Activation::ReluGradient | Activation::GeluGradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epilogues_are_combinations_of_their_bits() {
        // Bits of cublasLtEpilogue_t, as cublasLt.h composes them.
        const RELU: u32 = 2;
        const BIAS: u32 = 4;
        const GELU: u32 = 32;
        const BACKWARD: u32 = 8 | 64;
        const GRADIENT: u32 = 16 | 256 | 512;
        const AUXILIARY: u32 = 128;
        let known: [u32; 16] = [1, 2, 4, 6, 32, 36, 130, 134, 136, 152, 160, 164, 192, 208, 256, 512];
        for number in 0..2048 {
            let Some(epilogue) = Epilogue::from_number(number) else {
                assert!(!known.contains(&number), "{number}");
                continue;
            };
            assert!(known.contains(&number), "{number}");
            assert_eq!(epilogue.bias, number & BIAS != 0, "{number}");
            assert_eq!(epilogue.auxiliary, number & AUXILIARY != 0, "{number}");
            assert_eq!(epilogue.gradient.is_some(), number & GRADIENT != 0, "{number}");
            assert_eq!(epilogue.reads_auxiliary(), number & BACKWARD != 0, "{number}");
            assert_eq!(epilogue.activation == Activation::Relu, number & RELU != 0, "{number}");
            assert_eq!(epilogue.activation == Activation::Gelu, number & GELU != 0, "{number}");
        }
    }
}
