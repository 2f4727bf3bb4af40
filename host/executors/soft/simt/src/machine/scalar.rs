//! Functions of one lane that some CPUs have as vector instructions. Every implementation of [`super::Isa`]
//! must match these definitions bit for bit.

/// Computes `dp4a`: the sum of `c` and the products of the four bytes of `a` and `b`, each signed or not.
pub(crate) fn dot4(a: u32, b: u32, c: u32, signed: [bool; 2]) -> u32 {
    let byte = |value: u32, index: u32, signed: bool| {
        let byte = (value >> (8 * index)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    };
    (0..4)
        .fold(c.cast_signed(), |sum, index| {
            sum.wrapping_add(byte(a, index, signed[0]) * byte(b, index, signed[1]))
        })
        .cast_unsigned()
}

/// Returns the exact value of the half in the low 16 bits.
#[inline(always)]
pub(crate) const fn from_half(bits: u32) -> f32 {
    let magnitude = (bits & 0x7fff) << 13;
    let sign = (bits & 0x8000) << 16;
    // The exponent's bias differs by 112. A product gives subnormal numbers their exponents, too.
    let finite = (f32::from_bits(magnitude) * f32::from_bits((112 + 127) << 23)).to_bits();
    // NaN becomes quiet, as in hardware.
    let special = 0x7f80_0000 | magnitude | if magnitude > 0x7c00 << 13 { 0x0040_0000 } else { 0 };
    f32::from_bits(sign | if magnitude >= 0x7c00 << 13 { special } else { finite })
}
