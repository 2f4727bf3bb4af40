//! Registers the instructions that access memory, for both translators.

use super::template::{Action, Elements, MemSpace, Templates};
use crate::machine::Opcode;

pub(super) fn register<B: Copy>(table: &mut Templates<B>) {
    let (global, shared) = (MemSpace::Global, MemSpace::Shared);
    for (opcodes, memory) in [
        ([Opcode::LdGlobalU8, Opcode::LdGlobalU16, Opcode::LdGlobal32, Opcode::LdGlobal64], global),
        ([Opcode::LdSharedU8, Opcode::LdSharedU16, Opcode::LdShared32, Opcode::LdShared64], shared),
    ] {
        let [byte, half, word, wide] = opcodes;
        table.access(byte, memory, 1, &[1], &[]);
        table.access(half, memory, 2, &[1], &[1]);
        table.access(word, memory, 4, &[1, 2, 4], &[1, 2, 4]);
        table.access(wide, memory, 8, &[1], &[1]);
    }
    for (opcodes, memory) in [
        ([Opcode::StGlobal8, Opcode::StGlobal16, Opcode::StGlobal32, Opcode::StGlobal64], global),
        ([Opcode::StShared8, Opcode::StShared16, Opcode::StShared32, Opcode::StShared64], shared),
    ] {
        let [byte, half, word, wide] = opcodes;
        table.access(byte, memory, 1, &[1], &[]);
        table.access(half, memory, 2, &[1, 2], &[]);
        table.access(word, memory, 4, &[1, 2, 4], &[]);
        table.access(wide, memory, 8, &[1], &[]);
    }
    let words = |count, align| Elements { memory: MemSpace::Global, bytes: 4, count, align };
    table.add(Opcode::LdPair, Action::Load(words(1, 2)));
    table.add(Opcode::LdTwo, Action::LoadTwo(words(2, 4)));
    table.add(Opcode::LdTwoPairs, Action::LoadTwo(words(2, 2)));
    let local = MemSpace::Local { generic: false };
    table.access(Opcode::LdLocal32, local, 4, &[1], &[]);
    table.access(Opcode::LdGeneric32, MemSpace::Local { generic: true }, 4, &[1], &[]);
    table.access(Opcode::StLocal32, local, 4, &[1], &[]);
    table.access(Opcode::StLocal16, local, 2, &[2], &[]);
}
