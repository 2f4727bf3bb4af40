//! Functions that interpret the forms of an opcode. Each function of this module chooses one for the rows of
//! the instruction table that name it.

use super::matrix::{LoadMatrices, StoreMatrices};
use super::memory::{Extend, Generic, Load, LoadScalar, Local, Shared, Space, Store, Truncate};
use super::{
    Op1, Op2, Op3, Scalar1, Scalar2, Scalar3, Test, Vector1, Vector2, Vector3, compare, convert, float, warps,
};
use crate::machine::{
    Features, Form, InstFn, LaneType, Operation, Subnormals, baseline_fn, inst_fn, set, vector_fn,
};

/// Returns the function of an operation that is compiled for each instruction set.
#[allow(clippy::unnecessary_wraps, reason = "the functions of all rows have one type")]
pub(super) fn isa<R: Operation>(_: Form, features: Features) -> Option<InstFn> {
    Some(inst_fn::<R>(features))
}

/// Returns the function of an operation that is compiled once for all CPUs.
#[allow(clippy::unnecessary_wraps, reason = "the functions of all rows have one type")]
pub(super) fn base<R: Operation>(_: Form, _: Features) -> Option<InstFn> {
    Some(baseline_fn::<R>())
}

/// Sets of all operands of a function of one, two or three sources, which is computed for a scalar.
const ALL1: u8 = set::A | set::D;
const ALL2: u8 = ALL1 | set::B;
const ALL3: u8 = ALL2 | set::C;

pub(super) fn lanes1<O: Op1<A = A, R = R>, A, R>(form: Form, features: Features) -> Option<InstFn> {
    match form.shared {
        ALL1 => Some(baseline_fn::<Scalar1<O>>()),
        0 => Some(inst_fn::<Vector1<O>>(features)),
        _ => None,
    }
}

pub(super) fn lanes2<O: Op2<A = A, B = B, R = R>, A, B, R, const MIXED: bool>(
    form: Form,
    features: Features,
) -> Option<InstFn> {
    match form.shared {
        ALL2 => Some(baseline_fn::<Scalar2<O>>()),
        0 => Some(inst_fn::<Vector2<O, false, false>>(features)),
        set::A if MIXED => vector_fn::<Vector2<O, true, false>>(features),
        set::B if MIXED => vector_fn::<Vector2<O, false, true>>(features),
        _ => None,
    }
}

pub(super) fn lanes3<O: Op3<A = A, B = B, C = C, R = R>, A, B, C, R, const MIXED: bool>(
    form: Form,
    features: Features,
) -> Option<InstFn> {
    const AB: u8 = set::A | set::B;
    const AC: u8 = set::A | set::C;
    const BC: u8 = set::B | set::C;
    match form.shared {
        // A fused product and sum needs the CPU's instruction for scalars, too.
        ALL3 => Some(inst_fn::<Scalar3<O>>(features)),
        0 => Some(inst_fn::<Vector3<O, false, false, false>>(features)),
        _ if !MIXED => None,
        AB => vector_fn::<Vector3<O, true, true, false>>(features),
        AC => vector_fn::<Vector3<O, true, false, true>>(features),
        set::A => vector_fn::<Vector3<O, true, false, false>>(features),
        BC => vector_fn::<Vector3<O, false, true, true>>(features),
        set::B => vector_fn::<Vector3<O, false, true, false>>(features),
        set::C => vector_fn::<Vector3<O, false, false, true>>(features),
        _ => None,
    }
}

/// Defines the choice of the interpretation of floating-point arithmetic. With `NORMAL`, there is a function
/// of its own for operands that are known not to be subnormal.
macro_rules! floats {
    ($($name:ident: $op:ident, $lanes:ident, ($($t:ident),*), ($($f32:ty),*);)*) => { $(
        pub(super) fn $name<O: $op<$($t = f32,)* R = f32>, const NORMAL: bool>(
            form: Form,
            features: Features,
        ) -> Option<InstFn> {
            match form.subnormals {
                Subnormals::Keep => {
                    $lanes::<float::Float<O, false, false>, $($f32,)* f32, true>(form, features)
                }
                Subnormals::FlushResult if NORMAL => {
                    $lanes::<float::Float<O, false, true>, $($f32,)* f32, true>(form, features)
                }
                _ => $lanes::<float::Float<O, true, true>, $($f32,)* f32, true>(form, features),
            }
        }
    )* };
}
floats! {
    floats2: Op2, lanes2, (A, B), (f32, f32);
    floats3: Op3, lanes3, (A, B, C), (f32, f32, f32);
}

pub(super) fn floats1<O: Op1<A = f32, R = f32>>(form: Form, features: Features) -> Option<InstFn> {
    match form.subnormals {
        Subnormals::Keep => lanes1::<float::Float<O, false, false>, f32, f32>(form, features),
        _ => lanes1::<float::Float<O, true, true>, f32, f32>(form, features),
    }
}

pub(super) fn flushed<O: Op1<A = f32, R = R>, R: LaneType>(form: Form, features: Features) -> Option<InstFn> {
    match form.subnormals {
        Subnormals::Keep => lanes1::<O, f32, R>(form, features),
        _ => lanes1::<convert::Flushed<O>, f32, R>(form, features),
    }
}

pub(super) fn test<O: Test<T = T>, T>(form: Form, features: Features) -> Option<InstFn> {
    match form.shared {
        ALL2 => Some(baseline_fn::<compare::CompareScalar<O>>()),
        set::A => vector_fn::<compare::Compare<O, true, false>>(features),
        set::B => vector_fn::<compare::Compare<O, false, true>>(features),
        0 => Some(inst_fn::<compare::Compare<O, false, false>>(features)),
        _ => None,
    }
}

pub(super) fn float_test<O: Test<T = f32>>(form: Form, features: Features) -> Option<InstFn> {
    match form.subnormals {
        Subnormals::Keep => test::<O, f32>(form, features),
        _ => test::<compare::Flushed<O>, f32>(form, features),
    }
}

pub(super) fn select<T: LaneType>(form: Form, features: Features) -> Option<InstFn> {
    const AB: u8 = set::A | set::B;
    Some(match form.shared {
        ALL2 => baseline_fn::<compare::SelectScalar<T>>(),
        AB => inst_fn::<compare::Select<T, true, true>>(features),
        set::A => inst_fn::<compare::Select<T, true, false>>(features),
        set::B => inst_fn::<compare::Select<T, false, true>>(features),
        0 => inst_fn::<compare::Select<T, false, false>>(features),
        _ => return None,
    })
}

pub(super) fn logic<const OP: u32>(form: Form, _: Features) -> Option<InstFn> {
    match form.shared {
        set::D => Some(baseline_fn::<compare::Logic<OP, true>>()),
        0 => Some(baseline_fn::<compare::Logic<OP, false>>()),
        _ => None,
    }
}

pub(super) fn vote<const KIND: u32>(form: Form, _: Features) -> Option<InstFn> {
    match form.shared {
        set::D => Some(baseline_fn::<warps::Vote<KIND, true>>()),
        0 => Some(baseline_fn::<warps::Vote<KIND, false>>()),
        _ => None,
    }
}

pub(super) fn shuffle<const MODE: u8>(form: Form, features: Features) -> Option<InstFn> {
    const BC: u8 = set::B | set::C;
    Some(match (form.shared, form.count) {
        (BC, 2) => inst_fn::<warps::Shuffle<MODE, true, true>>(features),
        (BC, 1) => inst_fn::<warps::Shuffle<MODE, true, false>>(features),
        (0, 2) => inst_fn::<warps::Shuffle<MODE, false, true>>(features),
        (0, 1) => inst_fn::<warps::Shuffle<MODE, false, false>>(features),
        _ => return None,
    })
}

pub(super) fn butterfly(form: Form, features: Features) -> Option<InstFn> {
    Some(match form.count {
        1 => inst_fn::<warps::Butterfly<1>>(features),
        2 => inst_fn::<warps::Butterfly<2>>(features),
        4 => inst_fn::<warps::Butterfly<4>>(features),
        8 => inst_fn::<warps::Butterfly<8>>(features),
        16 => inst_fn::<warps::Butterfly<16>>(features),
        _ => return None,
    })
}

fn butterfly_of<O: Op2<A = f32, B = f32, R = f32>>(form: Form, features: Features) -> Option<InstFn> {
    Some(match form.count {
        1 => inst_fn::<warps::ButterflyThen<O, 1>>(features),
        2 => inst_fn::<warps::ButterflyThen<O, 2>>(features),
        4 => inst_fn::<warps::ButterflyThen<O, 4>>(features),
        8 => inst_fn::<warps::ButterflyThen<O, 8>>(features),
        16 => inst_fn::<warps::ButterflyThen<O, 16>>(features),
        _ => return None,
    })
}

pub(super) fn butterfly_then<O: Op2<A = f32, B = f32, R = f32>, const NORMAL: bool>(
    form: Form,
    features: Features,
) -> Option<InstFn> {
    match form.subnormals {
        Subnormals::Keep => butterfly_of::<float::Float<O, false, false>>(form, features),
        Subnormals::FlushResult if NORMAL => butterfly_of::<float::Float<O, false, true>>(form, features),
        _ => butterfly_of::<float::Float<O, true, true>>(form, features),
    }
}

fn load<S: Space, E: Extend, const SCALAR: bool>(form: Form, features: Features) -> Option<InstFn> {
    Some(match form.count {
        1 => inst_fn::<Load<S, E, SCALAR, 1>>(features),
        2 => inst_fn::<Load<S, E, SCALAR, 2>>(features),
        4 => inst_fn::<Load<S, E, SCALAR, 4>>(features),
        _ => return None,
    })
}

/// Loads scalars from one address, or vectors.
pub(super) fn load_either<S: Space, E: Extend>(form: Form, features: Features) -> Option<InstFn> {
    Some(match (form.shared, form.count) {
        (0, _) => return load::<S, E, false>(form, features),
        (ALL1, 1) => baseline_fn::<LoadScalar<S, E, 1>>(),
        (ALL1, 2) => baseline_fn::<LoadScalar<S, E, 2>>(),
        (ALL1, 4) => baseline_fn::<LoadScalar<S, E, 4>>(),
        _ => return None,
    })
}

pub(super) fn load_local<E: Extend>(form: Form, features: Features) -> Option<InstFn> {
    match form.shared {
        set::A => load::<Local, E, true>(form, features),
        _ => load::<Local, E, false>(form, features),
    }
}

/// Loads through generic addresses. All instruction sets share one function, because that function is large.
pub(super) fn load_generic<E: Extend>(form: Form, _: Features) -> Option<InstFn> {
    Some(match form.count {
        1 => baseline_fn::<Load<Generic, E, false, 1>>(),
        2 => baseline_fn::<Load<Generic, E, false, 2>>(),
        4 => baseline_fn::<Load<Generic, E, false, 4>>(),
        _ => return None,
    })
}

/// Stores vectors. All instruction sets share one function, because kernels have few stores.
fn store_by<S: Space, T: Truncate, const SCALAR: bool>(form: Form) -> Option<InstFn> {
    Some(match form.count {
        1 => baseline_fn::<Store<S, T, SCALAR, 1>>(),
        2 => baseline_fn::<Store<S, T, SCALAR, 2>>(),
        4 => baseline_fn::<Store<S, T, SCALAR, 4>>(),
        _ => return None,
    })
}

pub(super) fn store<S: Space, T: Truncate>(form: Form, _: Features) -> Option<InstFn> {
    store_by::<S, T, false>(form)
}

pub(super) fn store_local<T: Truncate>(form: Form, _: Features) -> Option<InstFn> {
    if form.shares(set::A) { store_by::<Local, T, true>(form) } else { store_by::<Local, T, false>(form) }
}

/// Stores words to shared memory, which is frequent.
pub(super) fn store_words(form: Form, features: Features) -> Option<InstFn> {
    Some(match form.count {
        1 => inst_fn::<Store<Shared, u32, false, 1>>(features),
        2 => inst_fn::<Store<Shared, u32, false, 2>>(features),
        4 => inst_fn::<Store<Shared, u32, false, 4>>(features),
        _ => return None,
    })
}

pub(super) fn load_matrices<const GENERIC: bool, const TRANS: bool>(
    form: Form,
    features: Features,
) -> Option<InstFn> {
    Some(match form.count {
        1 => inst_fn::<LoadMatrices<GENERIC, TRANS, 1>>(features),
        2 => inst_fn::<LoadMatrices<GENERIC, TRANS, 2>>(features),
        4 => inst_fn::<LoadMatrices<GENERIC, TRANS, 4>>(features),
        _ => return None,
    })
}

pub(super) fn store_matrices<const GENERIC: bool, const TRANS: bool>(
    form: Form,
    _: Features,
) -> Option<InstFn> {
    Some(match form.count {
        1 => baseline_fn::<StoreMatrices<GENERIC, TRANS, 1>>(),
        2 => baseline_fn::<StoreMatrices<GENERIC, TRANS, 2>>(),
        4 => baseline_fn::<StoreMatrices<GENERIC, TRANS, 4>>(),
        _ => return None,
    })
}
