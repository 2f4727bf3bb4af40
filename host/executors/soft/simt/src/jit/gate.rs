//! The entry and the exit of machine code, which save and restore the caller's registers.

use iced_x86::code_asm::{CodeAssembler, qword_ptr, r12, r13, r14, r15, rbp, rbx, rdi, rsi};

use super::value::Emit;
use crate::machine::Context;

/// Emits the entry code. It saves the callee-saved registers, loads pointers from the context, the first
/// argument, and jumps to the second argument. `begin` emits the translator's own preparation, which may
/// change only `rbp`, `rcx` and `rdx`.
pub(super) fn enter(asm: &mut CodeAssembler, begin: fn(&mut CodeAssembler) -> Emit) -> Emit {
    for register in [rbx, rbp, r12, r13, r14, r15] {
        asm.push(register)?;
    }
    asm.mov(r12, rdi)?;
    asm.mov(rbx, qword_ptr(r12 + Context::FRAME))?;
    asm.mov(r13, qword_ptr(r12 + Context::ZERO))?;
    asm.mov(r14, qword_ptr(r12 + Context::WINDOWS))?;
    asm.mov(r15, qword_ptr(r12 + Context::SHARED))?;
    begin(asm)?;
    asm.jmp(rsi)
}

/// Emits the return to the caller.
pub(super) fn leave(asm: &mut CodeAssembler) -> Emit {
    asm.vzeroupper()?;
    for register in [r15, r14, r13, r12, rbp, rbx] {
        asm.pop(register)?;
    }
    asm.ret()
}
