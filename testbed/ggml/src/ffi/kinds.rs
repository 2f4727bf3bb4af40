//! Element types.

use std::ffi::c_int;

/// Generates [`Type`] from rows of name, number in `enum ggml_type`, elements in a block, and name in lower
/// case.
macro_rules! types {
    ($($kind:ident = $raw:literal, $block:literal, $name:literal;)*) => {
        /// Values of `enum ggml_type` that models and their caches use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[allow(missing_docs, non_camel_case_types, reason = "GGML's names")]
        pub enum Type { $($kind = $raw,)* }

        impl Type {
            /// All types of this enum.
            pub const ALL: [Self; [$($raw),*].len()] = [$(Self::$kind),*];

            /// Returns the number of elements in a block. A row is a whole number of blocks.
            #[allow(clippy::match_same_arms, reason = "an arm for each row")]
            pub const fn block(self) -> i64 {
                match self { $(Self::$kind => $block,)* }
            }

            /// Returns the type's name in lower case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

types! {
    F32 = 0, 1, "f32";
    F16 = 1, 1, "f16";
    BF16 = 30, 1, "bf16";
    I32 = 26, 1, "i32";
    I64 = 27, 1, "i64";
    Q1_0 = 41, 128, "q1_0";
    Q2_0 = 42, 64, "q2_0";
    Q4_0 = 2, 32, "q4_0";
    Q4_1 = 3, 32, "q4_1";
    Q5_0 = 6, 32, "q5_0";
    Q5_1 = 7, 32, "q5_1";
    Q8_0 = 8, 32, "q8_0";
    Q2_K = 10, 256, "q2_k";
    Q3_K = 11, 256, "q3_k";
    Q4_K = 12, 256, "q4_k";
    Q5_K = 13, 256, "q5_k";
    Q6_K = 14, 256, "q6_k";
    IQ1_S = 19, 256, "iq1_s";
    IQ1_M = 29, 256, "iq1_m";
    IQ2_XXS = 16, 256, "iq2_xxs";
    IQ2_XS = 17, 256, "iq2_xs";
    IQ2_S = 22, 256, "iq2_s";
    IQ3_XXS = 18, 256, "iq3_xxs";
    IQ3_S = 21, 256, "iq3_s";
    IQ4_NL = 20, 32, "iq4_nl";
    IQ4_XS = 23, 256, "iq4_xs";
    TQ1_0 = 34, 256, "tq1_0";
    TQ2_0 = 35, 256, "tq2_0";
    MXFP4 = 39, 32, "mxfp4";
    NVFP4 = 40, 64, "nvfp4";
}

impl Type {
    /// Returns the types that weights can have: floats and every quantisation.
    pub fn weights() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| !kind.is_integer())
    }

    /// Returns all quantised types.
    pub fn quantized() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| kind.is_quantized())
    }

    /// Returns whether the type is `I32` or `I64`.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::I32 | Self::I64)
    }

    /// Returns whether the elements are grouped in blocks that share a scale.
    pub const fn is_quantized(self) -> bool {
        self.block() > 1
    }

    /// Returns the value of this type in `enum ggml_type`.
    pub const fn raw(self) -> c_int {
        self as c_int
    }

    /// Returns the type with this number in `enum ggml_type`.
    pub fn from_raw(raw: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.raw() == raw)
    }
}
