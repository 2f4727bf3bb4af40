//! Common forms of operations: a function of one to three sources, applied to scalars or to 32 lanes.

use std::marker::PhantomData;

use crate::machine::{Env, Frame, Inst, Isa, LANES, LaneType, Operation, Slot, Warp};

/// A function of one value, as a type.
pub(crate) trait Op1: 'static {
    type A: LaneType;
    type R: LaneType;
    fn f(a: Self::A) -> Self::R;
}

/// A function of two values, as a type.
pub(crate) trait Op2: 'static {
    type A: LaneType;
    type B: LaneType;
    type R: LaneType;
    fn f(a: Self::A, b: Self::B) -> Self::R;
}

/// A function of three values, as a type.
pub(crate) trait Op3: 'static {
    type A: LaneType;
    type B: LaneType;
    type C: LaneType;
    type R: LaneType;
    fn f(a: Self::A, b: Self::B, c: Self::C) -> Self::R;
}

/// A comparison of two values, as a type.
pub(crate) trait Test: 'static {
    type T: LaneType;
    fn f(a: Self::T, b: Self::T) -> bool;
}

/// Defines functions as types, from lines such as `Name: A => R = |a| ...;` or `Name: A, B => R = |a, b|
/// ...;`.
macro_rules! ops {
    () => {};
    ($(#[$doc:meta])* $name:ident: $a:ty => $r:ty = |$x:ident| $e:expr; $($rest:tt)*) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl $crate::ops::Op1 for $name {
            type A = $a;
            type R = $r;
            #[inline(always)]
            fn f($x: $a) -> $r { $e }
        }
        $crate::ops::ops! { $($rest)* }
    };
    ($(#[$doc:meta])* $name:ident: $a:ty, $b:ty => $r:ty = |$x:ident, $y:ident| $e:expr; $($rest:tt)*) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl $crate::ops::Op2 for $name {
            type A = $a;
            type B = $b;
            type R = $r;
            #[inline(always)]
            fn f($x: $a, $y: $b) -> $r { $e }
        }
        $crate::ops::ops! { $($rest)* }
    };
    ($(#[$doc:meta])* $name:ident: $a:ty, $b:ty, $c:ty => $r:ty
        = |$x:ident, $y:ident, $z:ident| $e:expr; $($rest:tt)*) => {
        $(#[$doc])*
        pub(crate) struct $name;
        impl $crate::ops::Op3 for $name {
            type A = $a;
            type B = $b;
            type C = $c;
            type R = $r;
            #[inline(always)]
            fn f($x: $a, $y: $b, $z: $c) -> $r { $e }
        }
        $crate::ops::ops! { $($rest)* }
    };
}
pub(crate) use ops;

/// A source operand: with `S` a scalar for all lanes, otherwise a vector.
pub(crate) struct LaneSource<'a, const S: bool, T: LaneType> {
    one: T,
    all: &'a [T; LANES],
}

impl<'a, const S: bool, T: LaneType> LaneSource<'a, S, T> {
    #[inline(always)]
    pub(crate) fn new(frame: &'a Frame, at: Slot) -> Self {
        Self { one: if S { frame.get(at) } else { T::default() }, all: frame.vector(at) }
    }

    #[inline(always)]
    pub(crate) fn at(&self, lane: usize) -> T {
        if S { self.one } else { self.all[lane] }
    }
}

/// Writes a result. Inactive lanes keep their values if the instruction blends.
#[inline(always)]
pub(crate) fn put<I: Isa, T: LaneType>(warp: &mut Warp, inst: &Inst, out: &[T; LANES]) {
    if inst.blend && warp.mask != u32::MAX {
        put_active::<I, T>(warp, inst.d, out);
    } else {
        *warp.frame.vector_mut(inst.d) = *out;
    }
}

/// Writes the active lanes of a vector.
#[inline(always)]
pub(crate) fn put_active<I: Isa, T: LaneType>(warp: &mut Warp, at: Slot, out: &[T; LANES]) {
    let active = I::spread(warp.mask);
    let target = warp.frame.vector_mut::<T>(at);
    for lane in 0..LANES {
        target[lane] = out[lane].or(target[lane], active[lane]);
    }
}

/// Writes the active lanes of a predicate.
#[inline(always)]
pub(crate) fn put_predicate(warp: &mut Warp, at: Slot, bits: u32) {
    let old: u32 = warp.frame.get(at);
    warp.frame.set(at, old & !warp.mask | bits & warp.mask);
}

/// Applies a function of one source to all lanes.
pub(crate) struct Vector1<O>(PhantomData<O>);

/// Applies a function of two sources to all lanes. `A` and `B` tell which sources are scalars.
pub(crate) struct Vector2<O, const A: bool, const B: bool>(PhantomData<O>);

/// Applies a function of three sources to all lanes. `A`, `B` and `C` tell which sources are scalars.
pub(crate) struct Vector3<O, const A: bool, const B: bool, const C: bool>(PhantomData<O>);

/// Applies a function of one source to a scalar.
pub(crate) struct Scalar1<O>(PhantomData<O>);
/// Applies a function of two sources to scalars.
pub(crate) struct Scalar2<O>(PhantomData<O>);
/// Applies a function of three sources to scalars.
pub(crate) struct Scalar3<O>(PhantomData<O>);

impl<O: Op1> Operation for Scalar1<O> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let value = O::f(warp.frame.get(inst.a));
        warp.frame.set(inst.d, value);
        pc + 1
    }
}

impl<O: Op2> Operation for Scalar2<O> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let value = O::f(warp.frame.get(inst.a), warp.frame.get(inst.b));
        warp.frame.set(inst.d, value);
        pc + 1
    }
}

impl<O: Op3> Operation for Scalar3<O> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let value = O::f(warp.frame.get(inst.a), warp.frame.get(inst.b), warp.frame.get(inst.c));
        warp.frame.set(inst.d, value);
        pc + 1
    }
}

impl<O: Op1> Operation for Vector1<O> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let mut out = [O::R::default(); LANES];
        let a = LaneSource::<false, O::A>::new(&warp.frame, inst.a);
        for lane in 0..LANES {
            out[lane] = O::f(a.at(lane));
        }
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}

impl<O: Op2, const A: bool, const B: bool> Operation for Vector2<O, A, B> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let mut out = [O::R::default(); LANES];
        let a = LaneSource::<A, O::A>::new(&warp.frame, inst.a);
        let b = LaneSource::<B, O::B>::new(&warp.frame, inst.b);
        for lane in 0..LANES {
            out[lane] = O::f(a.at(lane), b.at(lane));
        }
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}

impl<O: Op3, const A: bool, const B: bool, const C: bool> Operation for Vector3<O, A, B, C> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let mut out = [O::R::default(); LANES];
        let a = LaneSource::<A, O::A>::new(&warp.frame, inst.a);
        let b = LaneSource::<B, O::B>::new(&warp.frame, inst.b);
        let c = LaneSource::<C, O::C>::new(&warp.frame, inst.c);
        for lane in 0..LANES {
            out[lane] = O::f(a.at(lane), b.at(lane), c.at(lane));
        }
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}

/// Copies a scalar to all lanes.
pub(crate) struct Splat<T>(PhantomData<T>);

impl<T: LaneType> Operation for Splat<T> {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let out = [warp.frame.get::<T>(inst.a); LANES];
        put::<I, _>(warp, inst, &out);
        pc + 1
    }
}
