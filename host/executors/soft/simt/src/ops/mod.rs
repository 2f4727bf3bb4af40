//! Operations of the engine's instructions, with a module for each section of the ISA. `shape` has the forms
//! that most operations share.

pub(crate) mod atomic;
pub(crate) mod bits;
pub(crate) mod compare;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod double;
pub(crate) mod float;
mod forms;
pub(crate) mod fp8;
pub(crate) mod half;
pub(crate) mod heap;
pub(crate) mod integer;
pub(crate) mod matrix;
pub(crate) mod memory;
mod operands;
pub(crate) mod print;
pub(crate) mod rare;
pub(crate) mod rounding;
mod row;
mod shape;
pub(crate) mod special;
pub(crate) mod warps;

pub(crate) use row::{DenormalMode, Row};
pub(crate) use shape::{
    LaneSource, Op1, Op2, Op3, Scalar1, Scalar2, Scalar3, Splat, Test, Vector1, Vector2, Vector3, ops, put,
    put_active, put_predicate,
};
