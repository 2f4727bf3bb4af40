//! Floating-point numbers of 16 bits, alone or in pairs. They are computed in 32 bits. Rounding the result a
//! second time gives the same number as rounding once, because 24 bits of precision are at least twice 11,
//! plus 2.

use std::marker::PhantomData;

use crate::machine::{Env, Inst, Isa, Operation, Warp, from_half};

use super::float::flush;
use super::{Op1, Op2, Op3, ops, put};

/// Canonical NaN of results.
const NAN: u32 = 0x7fff;

/// Rounds to the nearest half.
#[inline(always)]
pub(crate) const fn to_half(x: f32) -> u32 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let sign = bits >> 16 & 0x8000;
    // Rounds at bit 13 and subtracts the difference of the biases. Beyond the largest number is infinity.
    let rounded = magnitude.wrapping_add(0xfff + (magnitude >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
    let normal = if rounded > 0x7c00 { 0x7c00 } else { rounded };
    // The last bit of numbers from 0.5 on is 2^-24, as that of subnormal halves: adding 0.5 rounds there.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let value = if magnitude < 0x3880_0000 { small } else { normal };
    if magnitude > 0x7f80_0000 { NAN } else { sign | value }
}

/// Rounds to the nearest `.bf16`.
#[inline(always)]
pub(crate) const fn to_bfloat(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if x.is_nan() { NAN } else { rounded }
}

/// Returns the product and sum, rounded to odd in 32 bits, so that the conversion to a half rounds only once.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    let product = a * b;
    let sum = product + c;
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    let bits = sum.to_bits();
    let away = (error > 0.0) == (sum > 0.0);
    let odd = if away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    // A NaN is no error either: sums that are no numbers stay as they are.
    let inexact = (error.abs() > 0.0) & sum.is_finite();
    let exact = !inexact || bits & 1 != 0;
    f32::from_bits(if exact { bits } else { odd })
}

ops! {
    /// Computes a fused product and sum, which only [`Halves`] uses.
    Fused: f32, f32, f32 => f32 = |a, b, c| fused(a, b, c);
    FromHalf: u32 => f32 = |a| from_half(a);
    FromUpperHalf: u32 => f32 = |a| from_half(a >> 16);
    FromBfloat: u32 => u32 = |a| a << 16;
    ToHalf: f32 => u32 = |a| to_half(a);
    ToHalfFtz: f32 => u32 = |a| to_half(flush(a));
    ToBfloat: f32 => u32 = |a| to_bfloat(a);
    /// Rounds to 10 bits of fraction, with ties away from zero.
    ToTf32: u32 => u32 = |a| if a & 0x7fff_ffff > 0x7f80_0000 { 0x7fff_ffff } else { a.wrapping_add(0x1000) & 0xffff_e000 };
    /// Packs two halves. The first source is the upper half.
    PackHalves: f32, f32 => u32 = |a, b| to_half(a) << 16 | to_half(b);
    PackBfloats: f32, f32 => u32 = |a, b| to_bfloat(a) << 16 | to_bfloat(b);
    Neg: u32 => u32 = |a| a ^ 0x8000;
    Neg2: u32 => u32 = |a| a ^ 0x8000_8000;
    Abs: u32 => u32 = |a| a & 0x7fff;
    Abs2: u32 => u32 = |a| a & 0x7fff_7fff;
    Upper: u32 => u32 = |a| a >> 16;
    /// Replaces a negative number by zero for `.relu`, and keeps NaN.
    Relu: f32 => f32 = |a| if a < 0.0 { 0.0 } else { a };
}

/// Executes `cvt.f32.f16` of vectors: converts the lower halves of words, or the upper ones with `UPPER`.
pub(crate) struct FromHalves<const UPPER: bool>;

impl<const UPPER: bool> Operation for FromHalves<UPPER> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let out = I::from_halves::<UPPER>(warp.frame.vector(inst.a));
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}

/// Applies an operation to halves. Each lane holds two of them with `PAIR`, otherwise one.
pub(crate) struct Halves<O, const PAIR: bool>(PhantomData<O>);

macro_rules! halves {
    ($op:ident, $($x:ident: $side:ident),*) => {
        impl<O: $op<$($side = f32,)* R = f32>, const PAIR: bool> $op for Halves<O, PAIR> {
            $(type $side = u32;)*
            type R = u32;
            #[inline(always)]
            fn f($($x: u32),*) -> u32 {
                let low = to_half(O::f($(from_half($x)),*));
                if PAIR { to_half(O::f($(from_half($x >> 16)),*)) << 16 | low } else { low }
            }
        }
    };
}

halves!(Op1, a: A);
halves!(Op2, a: A, b: B);
halves!(Op3, a: A, b: B, c: C);

#[cfg(test)]
mod tests {
    use vgpu_ptx::ir::Round;

    use super::super::rounding::F16;
    use super::*;

    #[test]
    fn every_half_is_decoded_and_encoded() {
        for bits in 0..0x1_0000 {
            let exact = F16.decode(bits);
            let value = from_half(bits);
            assert!(f64::from(value) == exact || value.is_nan() && exact.is_nan(), "{bits:#x}");
            let expected = if value.is_nan() { NAN } else { bits };
            assert_eq!(to_half(value), expected, "{bits:#x}");
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_even() {
        for bits in (0..u32::MAX - 1021).step_by(1021) {
            let value = f32::from_bits(bits);
            assert_eq!(to_half(value), F16.encode(f64::from(value), Round::Nearest), "{bits:#x}");
        }
    }

    #[test]
    fn fused_products_are_rounded_once() {
        let mut state = 7u32;
        for _ in 0..1_000_000 {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 16
            };
            let (a, b, c) = (next(), next(), next());
            let got = <Halves<Fused, false> as Op3>::f(a, b, c);
            let product = F16.decode(a) * F16.decode(b);
            let expected =
                F16.encode(super::super::rounding::add(product, F16.decode(c), false), Round::Nearest);
            assert_eq!(got, expected, "{a:#x} {b:#x} {c:#x}");
        }
    }
}
