//! How machine code is entered and left: the registers of the caller.

use iced_x86::code_asm::{CodeAssembler, qword_ptr, r12, r13, r14, r15, rbp, rbx, rdi, rsi};

use super::value::Emit;
use crate::machine::Context;

/// Saves what the caller keeps and loads the pointers of the context, which is the first argument; then goes
/// to the second. `begin` emits what a translator wants besides; it changes no register but `rbp`, `rcx` and
/// `rdx`.
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

/// Returns to the caller.
pub(super) fn leave(asm: &mut CodeAssembler) -> Emit {
    asm.vzeroupper()?;
    for register in [r15, r14, r13, r12, rbp, rbx] {
        asm.pop(register)?;
    }
    asm.ret()
}
