//! The translators: machine code for AVX2 or for AVX-512, made of a program's steps.
//!
//! It has the frame, the slots and the meaning of steps in common with the interpreter, which does whatever
//! it does not: steps without a template, lanes that wait for others, accesses outside of the last window,
//! and faults. Either may take over from the other where a run of steps begins.
//!
//! ```text
//!  code      machine code in memory, and the call of it: all unsafe code
//!  avx2      runs of steps that are checked first and then done eight lanes at a time
//!  avx512    runs of steps one after the other, each for all 32 lanes
//!  flow      branches, and the choice of the lanes that run     gate   how code is entered and left
//!  access    which steps access memory        template   what is known of a kind of step
//!  element   single elements        plain      templates that both have in the same words
//!  effects   what steps read and write        live, uses   which values somebody reads, and when
//!  predicate what is done with predicates as a whole
//!  departed  where code is left with values in registers      paths   whether all ways through a step agree
//!  exits     where code goes        pool      constants        value   how values lie in the frame
//! ```
//!
//! Programs are kept for other sessions: nothing of a session may be in machine code.

mod access;
mod avx2;
mod avx512;
#[allow(unsafe_code, reason = "runs machine code; the module says on what it rests")]
mod code;
mod departed;
mod effects;
mod element;
mod exits;
mod flow;
mod gate;
mod live;
mod paths;
mod plain;
mod pool;
mod predicate;
mod template;
mod uses;
mod value;

use std::collections::{HashMap, HashSet};

use crate::machine::{Features, Initial, Inst, Native, Slot, Tables};

/// Steps of a program at most. Longer ones are interpreted.
const MOST_STEPS: usize = 32_768;

/// Translates steps. `blocks` and `prologue` are the steps at which runs begin. `None`: they are interpreted.
pub(crate) fn translate(
    features: Features,
    insts: &[Inst],
    tables: &Tables,
    initial: &Initial,
    blocks: &[u32],
    prologue: u32,
) -> Option<Box<dyn Native>> {
    if insts.len() > MOST_STEPS {
        return None;
    }
    let starts: HashSet<u32> = blocks.iter().copied().chain([prologue]).collect();
    let constants: HashMap<Slot, u64> = initial.scalars.iter().copied().collect();
    let assemble = if features == Features::JitAvx512 { avx512::assemble } else { avx2::assemble };
    let assembled = assemble(insts, tables, &constants, &starts)?;
    Some(Box::new(code::MachineCode::new(assembled, blocks)?))
}
