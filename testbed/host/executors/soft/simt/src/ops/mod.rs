//! What steps do, by chapters of the ISA, and the shapes that most of them have: a function of one to three
//! sources, applied to a scalar or to 32 lanes.

use std::marker::PhantomData;

use crate::env::Env;
use crate::machine::{Frame, Isa, LANES, Lane, Run, Slot, Step};
use crate::warp::Warp;

pub(crate) mod atomic;
pub(crate) mod bits;
pub(crate) mod compare;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod double;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod memory;
pub(crate) mod mma;
pub(crate) mod rare;
pub(crate) mod rounding;
pub(crate) mod special;
pub(crate) mod warps;

/// A function of one value.
pub(crate) trait Op1 {
    type A: Lane;
    type R: Lane;
    fn f(a: Self::A) -> Self::R;
}

/// A function of two values.
pub(crate) trait Op2 {
    type A: Lane;
    type B: Lane;
    type R: Lane;
    fn f(a: Self::A, b: Self::B) -> Self::R;
}

/// A function of three values.
pub(crate) trait Op3 {
    type A: Lane;
    type B: Lane;
    type C: Lane;
    type R: Lane;
    fn f(a: Self::A, b: Self::B, c: Self::C) -> Self::R;
}

/// A comparison.
pub(crate) trait Test {
    type T: Lane;
    fn f(a: Self::T, b: Self::T) -> bool;
}

/// Defines functions as types: `Name: A => R = |a| ...;`, `Name: A, B => R = |a, b| ...;` and so on.
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
    ($(#[$doc:meta])* $name:ident: $a:ty, $b:ty, $c:ty => $r:ty = |$x:ident, $y:ident, $z:ident| $e:expr; $($rest:tt)*) => {
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

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// All lanes share it.
    Scalar(Slot),
    /// Each lane has its own.
    Vector(Slot),
}

impl Place {
    pub(crate) const fn slot(self) -> Slot {
        match self {
            Self::Scalar(slot) | Self::Vector(slot) => slot,
        }
    }

    pub(crate) const fn is_scalar(self) -> bool {
        matches!(self, Self::Scalar(_))
    }
}

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

/// Writes a result; inactive lanes keep theirs if the step says so.
#[inline(always)]
pub(crate) fn put<I: Isa, T: Lane>(warp: &mut Warp, step: &Step, out: &[T; LANES]) {
    if step.blend && warp.mask != u32::MAX {
        put_active::<I, T>(warp, step.d, out);
    } else {
        *warp.frame.vector_mut(step.d) = *out;
    }
}

/// Writes the active lanes.
#[inline(always)]
pub(crate) fn put_active<I: Isa, T: Lane>(warp: &mut Warp, at: Slot, out: &[T; LANES]) {
    let active = I::spread(warp.mask);
    let target = warp.frame.vector_mut::<T>(at);
    for lane in 0..LANES {
        target[lane] = out[lane].or(target[lane], active[lane]);
    }
}

/// Writes a predicate's active lanes.
#[inline(always)]
pub(crate) fn put_predicate(warp: &mut Warp, at: Slot, bits: u32) {
    let old: u32 = warp.frame.get(at);
    warp.frame.set(at, old & !warp.mask | bits & warp.mask);
}

/// One source, all lanes.
pub(crate) struct Vector1<O>(PhantomData<O>);

/// Two sources, all lanes.
pub(crate) struct Vector2<O, const A: bool, const B: bool>(PhantomData<O>);

/// Three sources, all lanes.
pub(crate) struct Vector3<O, const A: bool, const B: bool, const C: bool>(PhantomData<O>);

/// One scalar source.
pub(crate) struct Scalar1<O>(PhantomData<O>);
/// Two scalar sources.
pub(crate) struct Scalar2<O>(PhantomData<O>);
/// Three scalar sources.
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
