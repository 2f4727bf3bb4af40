//! Runs PTX kernels on the CPU, a warp of 32 lanes at a time.
//!
//! A [`Program`] is a kernel lowered to steps: each instruction is a pointer to a function that was compiled
//! for it, with the places of its operands. A step does its work for 32 lanes with vector instructions, or
//! once where all lanes share the values. Where the CPU has AVX2, runs of steps become machine code besides. [`run`] runs the blocks of a grid on the threads of a [`Pool`].
//!
//! ```text
//!  launch    a grid's blocks on the threads of the pool          program   a kernel, lowered twice
//!  block     a block's warps in turn, and what they wait for     lower     instructions become steps
//!                     └────────────────────┬──────────────────────────────────┘
//!  jit       machine code for runs of steps, where there is a template for each
//!  ops       what a step does
//!  machine   slots, operands, frames, warps, memory, steps, variants of a program
//!  control, fault, heap, printf
//! ```
//! Each module uses those below it alone.
//!
//! Nothing that a kernel does harms its host. Addresses are compared with what is allocated; a [`Control`] is
//! polled between blocks, in loops and in long straight lines; everything else is checked when a kernel is
//! lowered. What a kernel does wrong is a [`Fault`].

#![deny(unsafe_code)]
#![allow(clippy::inline_always, reason = "bodies of insts, to be compiled with each inst's instruction set")]
#![allow(clippy::needless_range_loop, reason = "loops over lanes of several vectors")]
#![allow(clippy::float_cmp, clippy::cast_precision_loss, reason = "what instructions do")]
#![allow(clippy::many_single_char_names, reason = "operands have the names of the ISA")]

mod block;
mod control;
mod fault;
mod heap;
mod jit;
mod launch;
mod lower;
mod machine;
mod ops;
mod pool;
mod printf;
mod program;

pub use control::{Control, Ledger};
pub use fault::{EngineError, Fault, ProgramError, Site};
pub use heap::Heap;
pub use launch::{GridLaunch, LaunchStats, Output, launch_grid};
pub use machine::Features;
pub use pool::Pool;
pub use program::{Attributes, Program};
