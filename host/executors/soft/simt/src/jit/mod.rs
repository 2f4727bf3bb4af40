//! The translators: machine code for AVX2 or AVX-512, made from a program's instructions.
//!
//! Machine code shares the frame, the slots and the meaning of instructions with the interpreter, which
//! executes everything else: instructions without a template, lanes that wait for others, accesses outside
//! the last window, and faults. Either can continue after the other at the start of a superblock.
//!
//! ```text
//!  code        machine code in memory, and its call: all unsafe code
//!  avx2        superblocks that are checked first and then executed for eight lanes at a time
//!  avx512      superblocks that execute instruction by instruction, each for all 32 lanes
//!  flow        branches, and the choice of the next block      gate     entry and exit of the code
//!  access      memory accesses          template   kinds of instructions    plain    templates of both
//!  element     single elements          predicate  logic of predicates      value    kinds of operands
//!  effects     reads and writes         live, uses liveness between and within superblocks
//!  side_exit   exits with live values   exits      other exits              paths    check of register use
//!  pool        constants
//! ```
//!
//! Programs are cached for later sessions, so machine code must not contain anything of a session.

mod access;
mod avx2;
mod avx512;
#[allow(unsafe_code, reason = "runs machine code; the module says on what it rests")]
mod code;
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
mod side_exit;
mod template;
mod uses;
mod value;

use std::collections::{HashMap, HashSet};

use crate::machine::{Features, Initial, Inst, Native, Opcode, Slot, Tables};

/// Maximum number of instructions of a program. Longer programs are interpreted.
const MOST_STEPS: usize = 32_768;

/// Translates a program. `blocks` and `prologue` are the instructions at which superblocks must start.
/// Returns `None` if the program has to be interpreted.
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
    let assembled = assemble(insts, tables, &constants, &starts, blocks.len())?;
    Some(Box::new(code::MachineCode::new(assembled, blocks)?))
}

/// Returns whether the translators for AVX2 and for AVX-512 have a template for an opcode.
pub(crate) fn translates(opcode: Opcode) -> [bool; 2] {
    [avx2::translates(opcode), avx512::translates(opcode)]
}
