//! Results that the ISA allows for one lane.

/// An allowed result, or a set of them where the ISA leaves it open.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// Exactly these bits.
    Bits(u64),
    /// One of these bit patterns.
    OneOf(Vec<u64>),
    /// A NaN of any sign and payload, because the ISA does not specify them.
    Nan(Format),
    /// A single between two bounds, both included. Zero may have either sign.
    Between(f64, f64),
    /// Two results of 16 bits, the lower one first.
    Halves(Box<[Self; 2]>),
    /// An unspecified result. The engine only has to survive it.
    Any,
}

/// A floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Half,
    Bfloat,
    Single,
    Double,
}

impl Format {
    /// Returns whether `bits` are a NaN.
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
    /// Returns whether `got`, zero-extended, is allowed.
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

    /// Combines two results of 16 bits.
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
