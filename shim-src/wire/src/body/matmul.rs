//! Matrix products of cuBLASLt that [`Gemm`](super::gemm::Gemm) cannot express: an epilogue on the result,
//! and a C that is not D. Enumerations are CUDA's own numbers (`cublasLtEpilogue_t`, `cudaDataType`,
//! `cublasComputeType_t`). Matrices are column-major; the guest turns row-major ones.

wire_struct! {
    /// `D = epilogue(alpha * op(A) * op(B) + beta * C)`. Only to hosts with
    /// [`exec::EPILOGUES`](crate::facts::exec::EPILOGUES).
    pub struct MatmulLt = 280 {
        /// The stream.
        pub stream: u32 = 0,
        /// [`GEMM_DEVICE_SCALARS`](super::gemm::GEMM_DEVICE_SCALARS).
        pub flags: u32 = 4,
        /// Transposition of A and of B, `cublasOperation_t`.
        pub operation: [u32; 2] = 8,
        /// Element types of A, B, C, D. That of C is that of D.
        pub types: [u32; 4] = 16,
        /// Compute type.
        pub compute: u32 = 32,
        /// Type of alpha and beta.
        pub scale: u32 = 36,
        /// `cublasLtEpilogue_t`, one that [`Epilogue::from_number`] knows.
        pub epilogue: u32 = 40,
        /// Element type of the bias, or of the bias gradient.
        pub bias_type: u32 = 44,
        /// Element type of GELU's auxiliary matrix. The mask of ReLU has bits, whatever is said here.
        pub aux_type: u32 = 48,
        /// How many products.
        pub batch: u32 = 52,
        /// m, n, k.
        pub size: [u64; 3] = 56,
        /// Leading dimensions of A, B, C, D, in elements. That of C may be 0: one column for all columns of
        /// D.
        pub leading: [u64; 4] = 80,
        /// Elements from one product's A, B, C, D to the next's.
        pub stride: [i64; 4] = 112,
        /// Device addresses of A, B, C, D.
        pub matrix: [u64; 4] = 144,
        /// Alpha in the scale type, or its device address.
        pub alpha: [u8; 16] = 176,
        /// Beta in the scale type, or its device address.
        pub beta: [u8; 16] = 192,
        /// Device address of the bias, or of where its gradient goes.
        pub bias: u64 = 208,
        /// Elements from one product's bias to the next's.
        pub bias_stride: i64 = 216,
        /// Device address of the auxiliary matrix.
        pub aux: u64 = 224,
        /// Its leading dimension, in elements; of a mask in bits, a multiple of 128.
        pub aux_leading: u64 = 232,
        /// Elements, or bits, from one product's auxiliary matrix to the next's.
        pub aux_stride: i64 = 240,
        /// Workspace set by the user: address.
        pub workspace: u64 = 248,
        /// Its size.
        pub workspace_bytes: u64 = 256,
        /// Zero.
        pub reserved: [u64; 2] = 264,
    }
}

/// What is done to each element of a product before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// `max(x, 0)`; 0 for NaN.
    Relu,
    /// `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`.
    Gelu,
    /// `x` where the mask that [`Self::Relu`] stored has a 1, else 0.
    ReluGradient,
    /// `x` times the derivative of [`Self::Gelu`] at the element of the auxiliary matrix.
    GeluGradient,
}

/// Sums that an epilogue stores in place of a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BiasGradient {
    /// Of each row of D.
    Result,
    /// Of each row of `op(A)`, as many as D has rows. Alpha does not count.
    A,
    /// Of each column of `op(B)`, as many as D has columns. Alpha does not count.
    B,
}

/// An epilogue, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epilogue {
    /// What is done to each element.
    pub activation: Activation,
    /// Whether a bias is added before that: element i to all of row i.
    pub bias: bool,
    /// Whether there is an auxiliary matrix, of D's shape: forward it receives what the activation was given
    /// (GELU), or a mask of bits that are 1 where that is at least 0 (ReLU); the gradients read it.
    pub auxiliary: bool,
    /// The sums that are stored at the bias's address.
    pub gradient: Option<BiasGradient>,
}

impl Epilogue {
    /// What a `cublasLtEpilogue_t` asks for; `None` for a number that is none.
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

    /// Whether the auxiliary matrix is ReLU's mask of bits.
    #[must_use]
    pub const fn masks(&self) -> bool {
        self.auxiliary && matches!(self.activation, Activation::Relu | Activation::ReluGradient)
    }

    /// Whether something is added to, or stored at, the bias's address.
    #[must_use]
    pub const fn uses_bias(&self) -> bool {
        self.bias || self.gradient.is_some()
    }

    /// Whether the auxiliary matrix is read; where there is one and it is not read, it is written.
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
