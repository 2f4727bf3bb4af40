//! The machine that executes instructions, with all of the engine's unsafe code except the jump into machine
//! code.
//!
//! From the bottom: slots and operands; frames and instruction sets; the state of a warp, the memory of a
//! block and their environment; instructions and the loop that interprets them; and the variant of a program,
//! which holds all of these together. What an instruction does is defined in `ops`.
//!
//! Frames, instruction sets and the call of an instruction are unsafe code. They rely on two invariants that
//! only this module can break:
//! * Only [`FrameLayout`] makes a [`Slot`], and the slot lies within every [`Frame`] made for that layout.
//!   [`Code`] keeps the layout of its slots, and [`Code::run_warp`] runs on frames of that layout only.
//! * The function of an instruction needs the CPU features of its [`Features`]. [`inst_fn`] and [`vector_fn`]
//!   return such a function only if this CPU has them.

mod env;
#[allow(unsafe_code, reason = "sets a register of the processor; the module says to what")]
mod float_mode;
#[allow(
    unsafe_code,
    reason = "registers are accessed without bounds checks; the module above says on what it rests"
)]
mod frame;
#[allow(
    unsafe_code,
    reason = "calls functions that need CPU features; the module above says on what it rests"
)]
mod inst;
#[allow(unsafe_code, reason = "vector instructions; the module above says on what it rests")]
mod isa;
mod memory;
mod native;
mod opcode;
mod operand;
mod range_cache;
mod reconvergence;
mod scalar;
mod slot;
mod split;
mod variant;
mod warp;

pub(crate) use env::{Env, GridShape, MOST_TEXT, coordinates};
pub(crate) use float_mode::keep_subnormals;
pub(crate) use frame::{Frame, LaneType};
pub(crate) use inst::{Code, Inst, InstFn, Native, Operation, baseline_fn, inst_fn, vector_fn};
pub use isa::Features;
pub(crate) use isa::{Baseline, Isa};
pub(crate) use memory::{LocalMemory, SHARED_BYTES, SHARED_WORDS, SharedMemory, Words};
pub(crate) use native::{Context, NO_BARRIER, PLACES, SUMS};
pub(crate) use opcode::{Form, Opcode, OperandClass, OperandPlace, OperandRow, SlotKind, Subnormals, set};
pub(crate) use operand::{
    AtomicFn, AtomicOperands, BARRIERS, BarrierKind, BarrierOperands, Field, PrintOperands, ProductOperands,
    QuadsOperands, RareOperand, RareOperands, SlotList, Tables,
};
pub(crate) use range_cache::{RANGE_ENTRIES, RANGE_WORDS, RangeCache};
pub(crate) use reconvergence::{Point, ReconvergenceRecorder};
pub(crate) use scalar::{dot4, from_half};
pub(crate) use slot::{FrameLayout, LANES, Slot, ValueLoc};
pub(crate) use split::{DONE_STAGE, FIRST_STAGE, SplitState, WarpSplit};
pub(crate) use variant::{Initial, InitialValue, LaneRegisters, Variant, inst_bytes};
pub(crate) use warp::{Exit, LEAVE, Warp};
