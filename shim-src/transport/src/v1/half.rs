//! 16-bit floats as 32-bit ones: version 1 carries the scalars of a matrix product as f32 alone.

/// The value of an IEEE half.
pub(crate) fn half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let exponent = u32::from(bits >> 10) & 0x1f;
    let fraction = u32::from(bits) & 0x3ff;
    let magnitude = match (exponent, fraction) {
        // Zero and the subnormals: the fraction in steps of 2^-24, exact in f32.
        (0, _) => (f32::from(bits & 0x3ff) * 2.0_f32.powi(-24)).to_bits(),
        (0x1f, fraction) => 0x7f80_0000 | fraction << 13,
        (exponent, fraction) => (exponent + 127 - 15) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// The value of a bfloat16.
pub(crate) fn bfloat(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_have_their_values() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xbc00, -1.0),
            (0x3800, 0.5),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x03ff, 6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(half(bits).to_bits(), f32::to_bits(value), "{bits:#06x}");
        }
        assert_eq!(half(0x8000).to_bits(), (-0.0_f32).to_bits());
        assert!(half(0x7e00).is_nan());
        assert_eq!(bfloat(0x3f80).to_bits(), 1.0_f32.to_bits());
        assert_eq!(bfloat(0xc040).to_bits(), (-3.0_f32).to_bits());
    }
}
