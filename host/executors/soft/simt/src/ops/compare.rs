//! Instructions `setp`, `selp` and logic of predicates. A predicate has 32 bits, one for each lane. If lanes
//! share it, it is all ones or all zeros.

use std::marker::PhantomData;

use crate::machine::{Env, Inst, Isa, LANES, LaneType, Operation, Warp, set};

use super::float::flush;
use super::integer::s16;
use super::{LaneSource, Test, put, put_predicate};

macro_rules! tests {
    ($($name:ident: $t:ty = |$a:ident, $b:ident| $e:expr;)*) => { $(
        pub(crate) struct $name;
        impl Test for $name {
            type T = $t;
            #[inline(always)]
            fn f($a: $t, $b: $t) -> bool { $e }
        }
    )* };
}

tests! {
    Eq32: u32 = |a, b| a == b;
    LtU32: u32 = |a, b| a < b;
    LeU32: u32 = |a, b| a <= b;
    LtS32: i32 = |a, b| a < b;
    LeS32: i32 = |a, b| a <= b;
    Eq64: u64 = |a, b| a == b;
    LtU64: u64 = |a, b| a < b;
    LeU64: u64 = |a, b| a <= b;
    LtS64: i64 = |a, b| a < b;
    LeS64: i64 = |a, b| a <= b;
    LtS16: u32 = |a, b| s16(a) < s16(b);
    LeS16: u32 = |a, b| s16(a) <= s16(b);
    EqF32: f32 = |a, b| a == b;
    LtF32: f32 = |a, b| a < b;
    LeF32: f32 = |a, b| a <= b;
    NanF32: f32 = |a, b| a.is_nan() | b.is_nan();
    EquF32: f32 = |a, b| (a == b) | a.is_nan() | b.is_nan();
    EqF64: f64 = |a, b| a == b;
    LtF64: f64 = |a, b| a < b;
    LeF64: f64 = |a, b| a <= b;
    EquF64: f64 = |a, b| (a == b) | a.is_nan() | b.is_nan();
    NanF64: f64 = |a, b| a.is_nan() | b.is_nan();
}

/// A comparison that treats subnormal operands as zero.
pub(crate) struct Flushed<O>(PhantomData<O>);

impl<O: Test<T = f32>> Test for Flushed<O> {
    type T = f32;
    #[inline(always)]
    fn f(a: f32, b: f32) -> bool {
        O::f(flush(a), flush(b))
    }
}

/// Returns the mask of the lanes for which a comparison holds, or its inverse, as the form tells.
#[inline(always)]
pub(crate) fn lanes<I: Isa, O: Test, const A: bool, const B: bool>(warp: &Warp, inst: &Inst) -> u32 {
    let a = LaneSource::<A, O::T>::new(&warp.frame, inst.a);
    let b = LaneSource::<B, O::T>::new(&warp.frame, inst.b);
    let mut signs = [0u32; LANES];
    for lane in 0..LANES {
        signs[lane] = u32::from(O::f(a.at(lane), b.at(lane))).wrapping_neg();
    }
    I::signs(&signs) ^ inst.form.inversion(set::D)
}

/// Compares vectors.
pub(crate) struct Compare<O, const A: bool, const B: bool>(PhantomData<O>);

impl<O: Test, const A: bool, const B: bool> Operation for Compare<O, A, B> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let bits = lanes::<I, O, A, B>(warp, inst);
        put_predicate(warp, inst.d, bits);
        pc + 1
    }
}

/// Compares scalars. The result is a predicate that lanes share.
pub(crate) struct CompareScalar<O>(PhantomData<O>);

impl<O: Test> Operation for CompareScalar<O> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let holds = O::f(warp.frame.get(inst.a), warp.frame.get(inst.b));
        warp.frame.set(inst.d, u32::from(holds).wrapping_neg() ^ inst.form.inversion(set::D));
        pc + 1
    }
}

/// Operations of [`Logic`].
pub(crate) const AND: u32 = 0;
pub(crate) const OR: u32 = 1;
pub(crate) const XOR: u32 = 2;

/// Computes `d = a op b` of predicates, each of which may be inverted. With `SHARED`, all lanes are written,
/// otherwise only the active ones.
pub(crate) struct Logic<const OP: u32, const SHARED: bool>;

impl<const OP: u32, const SHARED: bool> Operation for Logic<OP, SHARED> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let a = warp.frame.get::<u32>(inst.a) ^ inst.form.inversion(set::A);
        let b = warp.frame.get::<u32>(inst.b) ^ inst.form.inversion(set::B);
        let bits = match OP {
            AND => a & b,
            OR => a | b,
            _ => a ^ b,
        };
        if SHARED {
            warp.frame.set(inst.d, bits);
        } else {
            put_predicate(warp, inst.d, bits);
        }
        pc + 1
    }
}

/// Executes `selp`: selects `a` where the predicate `c` holds, and `b` elsewhere.
pub(crate) struct Select<T, const A: bool, const B: bool>(PhantomData<T>);

impl<T: LaneType, const A: bool, const B: bool> Operation for Select<T, A, B> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let holds = I::spread(warp.frame.get::<u32>(inst.c) ^ inst.form.inversion(set::C));
        let a = LaneSource::<A, T>::new(&warp.frame, inst.a);
        let b = LaneSource::<B, T>::new(&warp.frame, inst.b);
        let mut out = [T::default(); LANES];
        for lane in 0..LANES {
            out[lane] = a.at(lane).or(b.at(lane), holds[lane]);
        }
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}

/// Executes `selp` of scalars.
pub(crate) struct SelectScalar<T>(PhantomData<T>);

impl<T: LaneType> Operation for SelectScalar<T> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let bits = warp.frame.get::<u32>(inst.c) ^ inst.form.inversion(set::C);
        let value: T = if bits & warp.mask != 0 { warp.frame.get(inst.a) } else { warp.frame.get(inst.b) };
        warp.frame.set(inst.d, value);
        pc + 1
    }
}
