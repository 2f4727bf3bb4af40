//! The shapes that most steps have: a function of one to three sources, applied to scalars or to 32 lanes.

use std::marker::PhantomData;

use crate::machine::{Env, Frame, Isa, LANES, Lane, Run, Slot, Step, Warp};

/// A function of one value.
pub(crate) trait Op1: 'static {
    type A: Lane;
    type R: Lane;
    fn f(a: Self::A) -> Self::R;
}

/// A function of two values.
pub(crate) trait Op2: 'static {
    type A: Lane;
    type B: Lane;
    type R: Lane;
    fn f(a: Self::A, b: Self::B) -> Self::R;
}

/// A function of three values.
pub(crate) trait Op3: 'static {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type R: Lane;
    fn f(a: Self::A, b: Self::B, c: Self::C) -> Self::R;
}

/// A comparison of two lanes' values.
pub(crate) trait Test: 'static {
    type T: Lane;
    fn f(a: Self::T, b: Self::T) -> bool;
}

/// Defines functions as types: `Name: A => R = |a| ...;`, `Name: A, B => R = |a, b| ...;` and the same with
/// three.
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

/// A source: a scalar for all lanes if `S`, else a vector.
pub(crate) struct Source<'a, const S: bool, T: Lane> {
    one: T,
    all: &'a [T; LANES],
}

impl<'a, const S: bool, T: Lane> Source<'a, S, T> {
    #[inline(always)]
    pub(crate) fn new(frame: &'a Frame, at: Slot) -> Self {
        Self { one: if S { frame.get(at) } else { T::default() }, all: frame.vector(at) }
    }

    #[inline(always)]
    pub(crate) fn at(&self, lane: usize) -> T {
        if S { self.one } else { self.all[lane] }
    }
}

/// Writes a result. Inactive lanes keep their values if the step says so.
#[inline(always)]
pub(crate) fn put<I: Isa, T: Lane>(warp: &mut Warp, step: &Step, out: &[T; LANES]) {
    if step.blend && warp.mask != u32::MAX {
        put_active::<I, T>(warp, step.d, out);
    } else {
        *warp.frame.vector_mut(step.d) = *out;
    }
}

/// Writes the active lanes of a vector.
#[inline(always)]
pub(crate) fn put_active<I: Isa, T: Lane>(warp: &mut Warp, at: Slot, out: &[T; LANES]) {
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

/// Applies a function of two sources to all lanes. `A`, `B`: the source is a scalar.
pub(crate) struct Vector2<O, const A: bool, const B: bool>(PhantomData<O>);

/// Applies a function of three sources to all lanes. `A`, `B`, `C`: the source is a scalar.
pub(crate) struct Vector3<O, const A: bool, const B: bool, const C: bool>(PhantomData<O>);

/// Applies a function of one source to a scalar.
pub(crate) struct Scalar1<O>(PhantomData<O>);
/// Applies a function of two sources to scalars.
pub(crate) struct Scalar2<O>(PhantomData<O>);
/// Applies a function of three sources to scalars.
pub(crate) struct Scalar3<O>(PhantomData<O>);

impl<O: Op1> Run for Scalar1<O> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let value = O::f(warp.frame.get(step.a));
        warp.frame.set(step.d, value);
        pc + 1
    }
}

impl<O: Op2> Run for Scalar2<O> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let value = O::f(warp.frame.get(step.a), warp.frame.get(step.b));
        warp.frame.set(step.d, value);
        pc + 1
    }
}

impl<O: Op3> Run for Scalar3<O> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let value = O::f(warp.frame.get(step.a), warp.frame.get(step.b), warp.frame.get(step.c));
        warp.frame.set(step.d, value);
        pc + 1
    }
}

impl<O: Op1> Run for Vector1<O> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let mut out = [O::R::default(); LANES];
        let a = Source::<false, O::A>::new(&warp.frame, step.a);
        for lane in 0..LANES {
            out[lane] = O::f(a.at(lane));
        }
        put::<I, _>(warp, step, &out);
        pc + 1
    }
}

impl<O: Op2, const A: bool, const B: bool> Run for Vector2<O, A, B> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let mut out = [O::R::default(); LANES];
        let a = Source::<A, O::A>::new(&warp.frame, step.a);
        let b = Source::<B, O::B>::new(&warp.frame, step.b);
        for lane in 0..LANES {
            out[lane] = O::f(a.at(lane), b.at(lane));
        }
        put::<I, _>(warp, step, &out);
        pc + 1
    }
}

impl<O: Op3, const A: bool, const B: bool, const C: bool> Run for Vector3<O, A, B, C> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let mut out = [O::R::default(); LANES];
        let a = Source::<A, O::A>::new(&warp.frame, step.a);
        let b = Source::<B, O::B>::new(&warp.frame, step.b);
        let c = Source::<C, O::C>::new(&warp.frame, step.c);
        for lane in 0..LANES {
            out[lane] = O::f(a.at(lane), b.at(lane), c.at(lane));
        }
        put::<I, _>(warp, step, &out);
        pc + 1
    }
}

/// Copies a scalar to all lanes.
pub(crate) struct Splat<T>(PhantomData<T>);

impl<T: Lane> Run for Splat<T> {
    #[inline(always)]
    fn run<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, step: &Step, pc: u32) -> u32 {
        let out = [warp.frame.get::<T>(step.a); LANES];
        put::<I, _>(warp, step, &out);
        pc + 1
    }
}
