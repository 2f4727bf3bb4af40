//! Instruction `cvt`: the common conversions as functions of lanes, and all conversions as one function of
//! bits.

use vgpu_ptx::ir::{Round, Ty};

use super::float::{canonical, flush};
use super::rounding::{BF16, F16, F32, FloatFormat};
use super::{Op1, ops};

ops! {
    Widen: u32 => u64 = |a| a as u64;
    WidenSigned: i32 => i64 = |a| a as i64;
    Narrow: u64 => u32 = |a| a as u32;
    NarrowAddress: u64 => u32 = |a| narrow_address(a);
    Low8: u32 => u32 = |a| a & 0xff;
    Low16: u32 => u32 = |a| a & 0xffff;
    Sign8: u32 => u32 = |a| a as i8 as i32 as u32;
    Sign16: u32 => u32 = |a| a as i16 as i32 as u32;
    /// Extends 8 bits with their sign to 16.
    Sign8To16: u32 => u32 = |a| a as i8 as u16 as u32;

    Pack16: u32, u32 => u32 = |low, high| high << 16 | low & 0xffff;
    Pack32: u32, u32 => u64 = |low, high| (high as u64) << 32 | low as u64;
    Upper32: u64 => u32 = |a| (a >> 32) as u32;

    FromS32: i32 => f32 = |a| a as f32;
    FromU32: u32 => f32 = |a| a as f32;
    FromS16: u32 => f32 = |a| a as i16 as f32;
    FromS8: u32 => f32 = |a| a as i8 as f32;

    ToS32Zero: f32 => i32 = |a| a as i32;
    ToU32Zero: f32 => u32 = |a| a as u32;
    ToS32Nearest: f32 => i32 = |a| a.round_ties_even() as i32;
    ToS32Down: f32 => i32 = |a| a.floor() as i32;
    ToS32Up: f32 => i32 = |a| a.ceil() as i32;

    Nearest: f32 => f32 = |a| canonical(a.round_ties_even());
    Zero: f32 => f32 = |a| canonical(a.trunc());
    Down: f32 => f32 = |a| canonical(a.floor());
    Up: f32 => f32 = |a| canonical(a.ceil());

    ToDouble: f32 => f64 = |a| if a.is_nan() { f64::from_bits(0x7fff_ffff_ffff_ffff) } else { a as f64 };
    DoubleFromS32: i32 => f64 = |a| a as f64;
    DoubleFromU32: u32 => f64 = |a| a as f64;
}

/// Bits that are set in a narrowed address of more than 4 GiB. The other bits keep its alignment.
pub(crate) const BEYOND: u32 = !15;

/// Narrows an address for a memory of less than 4 GiB. An address above 4 GiB stays outside of the memory,
/// and keeps its alignment.
#[inline(always)]
pub(crate) const fn narrow_address(a: u64) -> u32 {
    a as u32 | if a > u32::MAX as u64 { BEYOND } else { 0 }
}

/// A conversion that treats subnormal operands, and 32-bit results, as zero.
pub(crate) struct Flushed<O>(std::marker::PhantomData<O>);

impl<O: Op1<A = f32>> Op1 for Flushed<O> {
    type A = f32;
    type R = O::R;
    #[inline(always)]
    fn f(a: f32) -> O::R {
        // Integers, and doubles of normal numbers, need no flushing of the result.
        O::f(flush(a))
    }
}

/// A conversion with the fields of `Op::Cvt`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conversion {
    pub(crate) to: Ty,
    pub(crate) from: Ty,
    pub(crate) round: Option<Round>,
    pub(crate) integral: bool,
    pub(crate) ftz: bool,
    pub(crate) sat: bool,
}

/// Returns the floating-point format of a type of at most 32 bits.
pub(crate) const fn format(ty: Ty) -> Option<FloatFormat> {
    match ty {
        Ty::F16 | Ty::F16x2 => Some(F16),
        Ty::Bf16 | Ty::Bf16x2 => Some(BF16),
        Ty::F32 => Some(F32),
        _ => None,
    }
}

/// Rounds a number to an integer in the given direction. Ties of [`Round::Nearest`] go to even.
pub(crate) fn integer(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => value.round_ties_even(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}

/// Returns the least and the greatest integer of a type, to which conversions clamp.
fn bounds(ty: Ty) -> (i128, i128) {
    let bits = ty.bytes() * 8;
    if ty.signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// Returns the integer of type `ty` in the low bits of `bits`.
fn integer_of(bits: u64, ty: Ty) -> i128 {
    let unused = 64 - ty.bytes() * 8;
    if ty.signed() {
        i128::from((bits << unused).cast_signed() >> unused)
    } else {
        i128::from(bits << unused >> unused)
    }
}

impl Conversion {
    /// Converts the low bits of `bits`. An integer result is extended to 64 bits by its sign.
    pub(crate) fn apply(self, bits: u64) -> u64 {
        if self.from.float() { self.of_float(bits) } else { self.of_integer(integer_of(bits, self.from)) }
    }

    fn of_integer(self, value: i128) -> u64 {
        if !self.to.float() {
            let (least, most) = bounds(self.to);
            let value = if self.sat { value.clamp(least, most) } else { value };
            return integer_of(value as u64, self.to) as u64;
        }
        let round = self.round.unwrap_or(Round::Nearest);
        let nearest = value as f64;
        // A double of at most 2^65: exact as an integer.
        let error = value - nearest as i128;
        let Some(format) = format(self.to) else {
            // Toward zero is down for positive numbers, and up for negative ones.
            let step = match round {
                Round::Down if error < 0 => -1,
                Round::Up if error > 0 => 1,
                Round::Zero if value > 0 && error < 0 => -1,
                Round::Zero if value < 0 && error > 0 => 1,
                _ => 0,
            };
            let beside = if value > 0 { step } else { -step };
            let result = f64::from_bits(nearest.to_bits().wrapping_add_signed(beside));
            return if self.sat { result.clamp(0.0, 1.0) } else { result }.to_bits();
        };
        let odd = super::rounding::add(nearest, error as f64, false);
        let result = format.encode(odd, round);
        u64::from(if self.sat { format.saturate(result) } else { result })
    }

    fn of_float(self, bits: u64) -> u64 {
        let value = match format(self.from) {
            None => f64::from_bits(bits),
            Some(F32) if self.ftz => f64::from(flush(f32::from_bits(bits as u32))),
            Some(format) => format.decode(bits as u32),
        };
        if !self.to.float() {
            let (least, most) = bounds(self.to);
            if value.is_nan() {
                let wide = self.from == Ty::F64 || self.to.bytes() == 8;
                return if wide { integer_of(1 << (self.to.bytes() * 8 - 1), self.to) as u64 } else { 0 };
            }
            // Infinities become the ends of i128's range.
            let whole = integer(value, self.round.unwrap_or(Round::Zero)) as i128;
            return whole.clamp(least, most) as u64;
        }
        let value = if self.integral { integer(value, self.round.unwrap_or(Round::Nearest)) } else { value };
        let Some(format) = format(self.to) else {
            let value = if value.is_nan() { f64::from_bits(0x7fff_ffff_ffff_ffff) } else { value };
            let saturated = if value > 0.0 { value.min(1.0) } else { 0.0 };
            return if self.sat { saturated } else { value }.to_bits();
        };
        let result = format.encode(value, self.round.unwrap_or(Round::Nearest));
        let result = if self.ftz && self.to == Ty::F32 { format.flush(result) } else { result };
        u64::from(if self.sat { format.saturate(result) } else { result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(to: Ty, from: Ty, round: Option<Round>, bits: u64) -> u64 {
        Conversion { to, from, round, integral: false, ftz: false, sat: false }.apply(bits)
    }

    #[test]
    fn integers_become_floats_in_all_directions() {
        let odd = 0xffff_ffff_ffff_ffff;
        assert_eq!(convert(Ty::F32, Ty::U64, Some(Round::Zero), odd), 0x5f7f_ffff);
        assert_eq!(convert(Ty::F32, Ty::U64, Some(Round::Nearest), odd), 0x5f80_0000);
        assert_eq!(
            f64::from_bits(convert(Ty::F64, Ty::U64, Some(Round::Zero), odd)),
            18_446_744_073_709_549_568.0
        );
        assert_eq!(
            f64::from_bits(convert(Ty::F64, Ty::S64, Some(Round::Down), (-9_007_199_254_740_993i64) as u64)),
            -9_007_199_254_740_994.0
        );
        assert_eq!(
            f64::from_bits(convert(Ty::F64, Ty::S64, Some(Round::Up), (-9_007_199_254_740_993i64) as u64)),
            -9_007_199_254_740_992.0
        );
    }

    #[test]
    fn floats_become_integers_within_bounds() {
        let bits = |x: f32| u64::from(x.to_bits());
        assert_eq!(convert(Ty::U8, Ty::F32, Some(Round::Zero), bits(300.0)), 255);
        assert_eq!(convert(Ty::S8, Ty::F32, Some(Round::Zero), bits(-300.0)), (-128i64) as u64);
        assert_eq!(convert(Ty::S64, Ty::F32, Some(Round::Zero), bits(f32::INFINITY)), i64::MAX as u64);
        assert_eq!(convert(Ty::U64, Ty::F32, Some(Round::Up), bits(-0.5)), 0);
        assert_eq!(convert(Ty::S32, Ty::F32, Some(Round::Zero), bits(f32::NAN)), 0);
        assert_eq!(convert(Ty::S64, Ty::F32, Some(Round::Zero), bits(f32::NAN)), 1 << 63);
        assert_eq!(convert(Ty::S32, Ty::F64, Some(Round::Nearest), 2.5f64.to_bits()), 2);
    }
}
