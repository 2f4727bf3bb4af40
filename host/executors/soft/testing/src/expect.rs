//! Results that the ISA permits for one lane.

/// A permitted result, or a set of results if the ISA permits several.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// The result must have exactly these bits.
    Bits(u64),
    /// The result must be one of these bit patterns.
    OneOf(Vec<u64>),
    /// The result must be a NaN. Its sign and payload are not specified by the ISA.
    Nan(Format),
    /// The result must be a single between two bounds, including the bounds. Zero may have either sign.
    Between(f64, f64),
    /// The result consists of two 16-bit results, the lower one first.
    Halves(Box<[Self; 2]>),
    /// The result is unspecified; the engine must only not fail.
    Any,
}

/// A floating-point format of the ISA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Half precision, `.f16`.
    Half,
    /// bfloat16, `.bf16`.
    Bfloat,
    /// Single precision, `.f32`.
    Single,
    /// Double precision, `.f64`.
    Double,
}

impl Format {
    /// Returns whether `bits` are a NaN in this format.
    #[must_use]
    pub fn is_nan(self, bits: u64) -> bool {
        match self {
            Self::Half => bits & 0x7fff > 0x7c00,
            Self::Bfloat => bits & 0x7fff > 0x7f80,
            Self::Single => f32::from_bits(bits as u32).is_nan(),
            Self::Double => f64::from_bits(bits).is_nan(),
        }
    }
}

impl Expect {
    /// Returns whether the result `got`, zero-extended, is permitted.
    #[must_use]
    pub fn allows(&self, got: u64) -> bool {
        match self {
            Self::Bits(bits) => got == *bits,
            Self::OneOf(bits) => bits.contains(&got),
            Self::Nan(format) => format.is_nan(got),
            Self::Between(low, high) => {
                let got = f64::from(f32::from_bits(got as u32));
                // Comparison takes zeros of both signs as equal.
                *low <= got && got <= *high
            }
            Self::Halves(halves) => halves[0].allows(got & 0xffff) && halves[1].allows(got >> 16),
            Self::Any => true,
        }
    }

    /// Combines two 16-bit results into one of 32 bits.
    #[must_use]
    pub fn halves(low: Self, high: Self) -> Self {
        match (low, high) {
            (Self::Bits(low), Self::Bits(high)) => Self::Bits(low | high << 16),
            (low, high) => Self::Halves(Box::new([low, high])),
        }
    }
}

impl From<u64> for Expect {
    fn from(bits: u64) -> Self {
        Self::Bits(bits)
    }
}

impl From<u32> for Expect {
    fn from(bits: u32) -> Self {
        Self::Bits(bits.into())
    }
}

impl From<u16> for Expect {
    fn from(bits: u16) -> Self {
        Self::Bits(bits.into())
    }
}

impl From<bool> for Expect {
    fn from(value: bool) -> Self {
        Self::Bits(value.into())
    }
}
