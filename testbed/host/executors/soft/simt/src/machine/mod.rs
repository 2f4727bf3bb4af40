//! The machine that steps run on, and all of the engine's unsafe code: frames, the call of a step, vector
//! instructions.
//!
//! It rests on two invariants that this module alone can break:
//! * A [`Slot`] is made by [`Layout`] only, and lies within every [`Frame`] made for that layout. [`Code`] keeps the
//!   layout of its slots, and [`Code::run`] runs on frames of that layout only.
//! * A step's function needs the CPU features of its [`Features`], and [`step_fn`] and its kin give it out only if this
//!   CPU has them.

mod frame;
mod isa;
mod step;

pub(crate) use frame::{Frame, LANES, Lane, Layout, Slot};
pub use isa::Features;
pub(crate) use isa::{Baseline, Isa};
pub(crate) use step::{Code, LEAVE, Run, Step, best_fn, common_fn, step_fn};
