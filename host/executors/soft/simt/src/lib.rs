//! Runs PTX kernels on the CPU, a warp of 32 lanes at a time.
//!
//! A [`Program`] is a kernel that has been lowered to the engine's own instructions. Each is a pointer to a
//! compiled function, with the slots of its operands. It processes 32 lanes with vector instructions, or one
//! value where all lanes share it. On a CPU with AVX2, instructions are also translated to machine code.
//! [`launch_grid`] runs the blocks of a grid on the threads of a [`Pool`].
//!
//! ```text
//!  launch    a grid's blocks on the threads of the pool          program   a kernel, lowered twice
//!  listing   the instruction table as text
//!  block     a block's warps, their splits and barriers          lower     PTX instructions become the engine's
//!                     └────────────────────┬──────────────────────────────────┘
//!  jit       machine code for superblocks, where each opcode has a template
//!  ops       what an instruction does
//!  machine   slots, operands, frames, warps, memory, instructions, variants of a program
//!  table     the opcodes, with operands, properties and interpretation
//!  control, fault, heap, printf
//! ```
//! Each module uses only those below it.
//!
//! A kernel cannot harm its host. Addresses are compared with what is allocated. A [`Control`] is polled
//! between blocks, in loops and in long straight lines. Everything else is checked when a kernel is lowered.
//! An error of a kernel is reported as a [`Fault`].

#![deny(unsafe_code)]
#![allow(clippy::inline_always, reason = "bodies of operations, compiled for each instruction set")]
#![allow(clippy::needless_range_loop, reason = "loops over lanes of several vectors")]
#![allow(clippy::float_cmp, clippy::cast_precision_loss, reason = "what instructions do")]
#![allow(clippy::many_single_char_names, reason = "operands have the names of the ISA")]

mod block;
mod control;
mod fault;
mod heap;
mod jit;
mod launch;
mod listing;
mod lower;
mod machine;
mod ops;
mod pool;
mod printf;
mod program;
mod table;

pub use control::{Control, Ledger};
pub use fault::{EngineError, Fault, ProgramError, Site};
pub use heap::Heap;
pub use launch::{GridLaunch, LaunchStats, Output, launch_grid};
pub use listing::instruction_table;
pub use machine::Features;
pub use pool::Pool;
pub use program::{Attributes, Program};
