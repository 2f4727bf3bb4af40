//! Integer arithmetic. Values of 16 bits are in lanes of 32 bits whose upper half is zero.

use super::ops;

/// Sign-extends the low 16 bits to 32.
#[inline(always)]
pub(crate) const fn s16(bits: u32) -> i32 {
    bits as i16 as i32
}

/// Truncates a result to 16 bits, with zeros above.
#[inline(always)]
pub(crate) const fn low16(value: i32) -> u32 {
    value as u16 as u32
}

ops! {
    Mov32: u32 => u32 = |a| a;
    Mov64: u64 => u64 = |a| a;

    Add16: u32, u32 => u32 = |a, b| a.wrapping_add(b) & 0xffff;
    Add32: u32, u32 => u32 = |a, b| a.wrapping_add(b);
    Add64: u64, u64 => u64 = |a, b| a.wrapping_add(b);
    AddSat32: i32, i32 => i32 = |a, b| a.saturating_add(b);
    Sub16: u32, u32 => u32 = |a, b| a.wrapping_sub(b) & 0xffff;
    Sub32: u32, u32 => u32 = |a, b| a.wrapping_sub(b);
    Sub64: u64, u64 => u64 = |a, b| a.wrapping_sub(b);
    SubSat32: i32, i32 => i32 = |a, b| a.saturating_sub(b);

    MulLo16: u32, u32 => u32 = |a, b| a.wrapping_mul(b) & 0xffff;
    MulLo32: u32, u32 => u32 = |a, b| a.wrapping_mul(b);
    MulLo64: u64, u64 => u64 = |a, b| a.wrapping_mul(b);
    MulHiU16: u32, u32 => u32 = |a, b| a.wrapping_mul(b) >> 16;
    MulHiS16: u32, u32 => u32 = |a, b| low16((s16(a) * s16(b)) >> 16);
    MulHiU32: u32, u32 => u32 = |a, b| ((a as u64 * b as u64) >> 32) as u32;
    MulHiS32: i32, i32 => i32 = |a, b| ((a as i64 * b as i64) >> 32) as i32;
    MulHiU64: u64, u64 => u64 = |a, b| ((a as u128 * b as u128) >> 64) as u64;
    MulHiS64: i64, i64 => i64 = |a, b| ((a as i128 * b as i128) >> 64) as i64;
    MulWideU16: u32, u32 => u32 = |a, b| a.wrapping_mul(b);
    MulWideS16: u32, u32 => i32 = |a, b| s16(a) * s16(b);
    MulWideU32: u32, u32 => u64 = |a, b| a as u64 * b as u64;
    MulWideS32: i32, i32 => i64 = |a, b| a as i64 * b as i64;

    MadLo16: u32, u32, u32 => u32 = |a, b, c| a.wrapping_mul(b).wrapping_add(c) & 0xffff;
    MadLo32: u32, u32, u32 => u32 = |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    MadLo64: u64, u64, u64 => u64 = |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    MadWideU16: u32, u32, u32 => u32 = |a, b, c| a.wrapping_mul(b).wrapping_add(c);
    MadWideS16: u32, u32, i32 => i32 = |a, b, c| (s16(a) * s16(b)).wrapping_add(c);
    MadWideU32: u32, u32, u64 => u64 = |a, b, c| (a as u64 * b as u64).wrapping_add(c);
    MadWideS32: i32, i32, i64 => i64 = |a, b, c| (a as i64 * b as i64).wrapping_add(c);
    MadHiU32: u32, u32, u32 => u32 = |a, b, c| (((a as u64 * b as u64) >> 32) as u32).wrapping_add(c);
    MadHiS32: i32, i32, i32 => i32 = |a, b, c| (((a as i64 * b as i64) >> 32) as i32).wrapping_add(c);

    /// Divides unsigned numbers. A division by zero gives all ones, as on a GPU.
    DivU32: u32, u32 => u32 = |a, b| a.checked_div(b).unwrap_or(u32::MAX);
    DivS32: i32, i32 => i32 = |a, b| if b == 0 { -1 } else { a.wrapping_div(b) };
    DivU64: u64, u64 => u64 = |a, b| a.checked_div(b).unwrap_or(u64::MAX);
    DivS64: i64, i64 => i64 = |a, b| if b == 0 { -1 } else { a.wrapping_div(b) };
    DivU16: u32, u32 => u32 = |a, b| a.checked_div(b).unwrap_or(0xffff);
    DivS16: u32, u32 => u32 = |a, b| if b == 0 { 0xffff } else { low16(s16(a) / s16(b)) };
    /// Returns the remainder of unsigned numbers. The remainder of a division by zero is the dividend.
    RemU32: u32, u32 => u32 = |a, b| a.checked_rem(b).unwrap_or(a);
    RemS32: i32, i32 => i32 = |a, b| if b == 0 { a } else { a.wrapping_rem(b) };
    RemU64: u64, u64 => u64 = |a, b| a.checked_rem(b).unwrap_or(a);
    RemS64: i64, i64 => i64 = |a, b| if b == 0 { a } else { a.wrapping_rem(b) };
    RemS16: u32, u32 => u32 = |a, b| if b == 0 { a } else { low16(s16(a) % s16(b)) };

    MinS16: u32, u32 => u32 = |a, b| low16(s16(a).min(s16(b)));
    MaxS16: u32, u32 => u32 = |a, b| low16(s16(a).max(s16(b)));
    MinU32: u32, u32 => u32 = |a, b| a.min(b);
    MaxU32: u32, u32 => u32 = |a, b| a.max(b);
    MinS32: i32, i32 => i32 = |a, b| a.min(b);
    MaxS32: i32, i32 => i32 = |a, b| a.max(b);
    MinU64: u64, u64 => u64 = |a, b| a.min(b);
    MaxU64: u64, u64 => u64 = |a, b| a.max(b);
    MinS64: i64, i64 => i64 = |a, b| a.min(b);
    MaxS64: i64, i64 => i64 = |a, b| a.max(b);

    Neg16: u32 => u32 = |a| a.wrapping_neg() & 0xffff;
    Neg32: u32 => u32 = |a| a.wrapping_neg();
    Neg64: u64 => u64 = |a| a.wrapping_neg();
    Abs16: u32 => u32 = |a| low16(s16(a).wrapping_abs());
    Abs32: i32 => i32 = |a| a.wrapping_abs();
    Abs64: i64 => i64 = |a| a.wrapping_abs();
}
