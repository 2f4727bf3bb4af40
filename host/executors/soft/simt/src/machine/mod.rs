//! The machine that steps run on, and all of the engine's unsafe code.
//!
//! From the bottom: slots and the operands of steps; frames and the instruction sets; the state of a warp,
//! the memory of a block and the environment of both; steps and the loop that runs them; and the variant of a
//! program that holds all of these together. Nothing here knows what a step does: that is for `ops`.
//!
//! Frames, instruction sets and the call of a step are unsafe code. They rest on two invariants that this
//! module alone can break:
//! * Only [`Layout`] makes a [`Slot`], and the slot lies within every [`Frame`] made for that layout.
//!   [`Code`] keeps the layout of its slots, and [`Code::run`] runs on frames of that layout only.
//! * A step's function needs the CPU features of its [`Features`], and [`step_fn`] and its kin return the
//!   function only if this CPU has them.

mod env;
#[allow(
    unsafe_code,
    reason = "registers are accessed without bounds checks; the module above says on what it rests"
)]
mod frame;
#[allow(unsafe_code, reason = "vector instructions; the module above says on what it rests")]
mod isa;
mod memory;
#[allow(unsafe_code, reason = "sets a register of the processor; the module says to what")]
mod mode;
mod native;
mod operand;
mod part;
mod reconvergence;
mod roots;
mod scalar;
mod slot;
#[allow(
    unsafe_code,
    reason = "calls functions that need CPU features; the module above says on what it rests"
)]
mod step;
mod variant;
mod warp;

pub(crate) use env::{Env, MOST_TEXT, Shape, coordinates};
pub(crate) use frame::{Frame, Lane};
pub use isa::Features;
pub(crate) use isa::{Baseline, Isa};
pub(crate) use memory::{LocalMemory, SHARED_BYTES, SHARED_WORDS, SharedMemory, Words};
pub(crate) use native::{Context, NOBODY, PLACES, SUMS};
pub(crate) use operand::{
    AtomicStep, BARRIERS, BarrierKind, BarrierStep, Change, Field, MemoryStep, Operand, PrintStep,
    ProductStep, QuadsStep, RareStep, Tables, WholeStep,
};
pub(crate) use part::{DONE_STAGE, FIRST_STAGE, Part, State};
pub(crate) use reconvergence::{Point, Recorder};
pub(crate) use roots::{ROOT_PLACES, ROOT_WORDS, Roots};
pub(crate) use scalar::{dot4, from_half};
pub(crate) use slot::{LANES, Layout, Place, Slot};
pub(crate) use step::{Code, Native, Run, Step, best_fn, common_fn, step_fn};
pub(crate) use variant::{Initial, Registers, Special, Variant, step_bytes};
pub(crate) use warp::{Exit, LEAVE, Warp};
