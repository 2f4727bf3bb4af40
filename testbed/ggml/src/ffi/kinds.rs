//! Element types.

use std::ffi::c_int;

/// `enum ggml_type`, the types that models and their caches have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs, non_camel_case_types, reason = "GGML's names")]
pub enum Type {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I32 = 26,
    I64 = 27,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
    NVFP4 = 40,
    Q1_0 = 41,
    Q2_0 = 42,
}

impl Type {
    /// All of them.
    pub const ALL: [Self; 30] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::I32,
        Self::I64,
        Self::Q1_0,
        Self::Q2_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::IQ1_S,
        Self::IQ1_M,
        Self::IQ2_XXS,
        Self::IQ2_XS,
        Self::IQ2_S,
        Self::IQ3_XXS,
        Self::IQ3_S,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::TQ1_0,
        Self::TQ2_0,
        Self::MXFP4,
        Self::NVFP4,
    ];

    /// The types of weights: floats, and every quantisation.
    pub fn weights() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| !kind.is_integer())
    }

    /// All quantised types.
    pub fn quantized() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| kind.is_quantized())
    }

    /// Whether it is `I32` or `I64`.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::I32 | Self::I64)
    }

    /// Whether its elements come in blocks that share a scale.
    pub const fn is_quantized(self) -> bool {
        self.block() > 1
    }

    /// The value of this type in `enum ggml_type`.
    pub const fn raw(self) -> c_int {
        self as c_int
    }

    /// By the number that GGML uses.
    pub fn from_raw(raw: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.raw() == raw)
    }

    /// How many elements a block has; a row is a whole number of blocks.
    pub const fn block(self) -> i64 {
        match self {
            Self::F32 | Self::F16 | Self::BF16 | Self::I32 | Self::I64 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 | Self::IQ4_NL | Self::MXFP4 => 32,
            Self::NVFP4 | Self::Q2_0 => 64,
            Self::Q1_0 => 128,
            Self::Q2_K
            | Self::Q3_K
            | Self::Q4_K
            | Self::Q5_K
            | Self::Q6_K
            | Self::IQ1_S
            | Self::IQ1_M
            | Self::IQ2_XXS
            | Self::IQ2_XS
            | Self::IQ2_S
            | Self::IQ3_XXS
            | Self::IQ3_S
            | Self::IQ4_XS
            | Self::TQ1_0
            | Self::TQ2_0 => 256,
        }
    }

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::Q1_0 => "q1_0",
            Self::Q2_0 => "q2_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q8_0 => "q8_0",
            Self::Q2_K => "q2_k",
            Self::Q3_K => "q3_k",
            Self::Q4_K => "q4_k",
            Self::Q5_K => "q5_k",
            Self::Q6_K => "q6_k",
            Self::IQ1_S => "iq1_s",
            Self::IQ1_M => "iq1_m",
            Self::IQ2_XXS => "iq2_xxs",
            Self::IQ2_XS => "iq2_xs",
            Self::IQ2_S => "iq2_s",
            Self::IQ3_XXS => "iq3_xxs",
            Self::IQ3_S => "iq3_s",
            Self::IQ4_NL => "iq4_nl",
            Self::IQ4_XS => "iq4_xs",
            Self::TQ1_0 => "tq1_0",
            Self::TQ2_0 => "tq2_0",
            Self::MXFP4 => "mxfp4",
            Self::NVFP4 => "nvfp4",
        }
    }
}
