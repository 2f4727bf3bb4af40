//! How machine code is entered and left: the registers of the caller, and the mode of floating-point
//! operations.

use iced_x86::code_asm::{CodeAssembler, dword_ptr, qword_ptr, r12, r13, r14, r15, rbp, rbx, rdi, rsi};

use super::value::Emit;
use crate::machine::Context;

/// Saves what the caller keeps and loads the pointers of the context, which is the first argument; then goes
/// to the second.
pub(super) fn enter(asm: &mut CodeAssembler, flush: bool) -> Emit {
    for register in [rbx, rbp, r12, r13, r14, r15] {
        asm.push(register)?;
    }
    asm.mov(r12, rdi)?;
    asm.mov(rbx, qword_ptr(r12 + Context::FRAME))?;
    asm.mov(r13, qword_ptr(r12 + Context::ZERO))?;
    asm.mov(r14, qword_ptr(r12 + Context::WINDOWS))?;
    asm.mov(r15, qword_ptr(r12 + Context::SHARED))?;
    if flush {
        asm.stmxcsr(dword_ptr(r12 + Context::SAVED))?;
        asm.ldmxcsr(dword_ptr(r12 + Context::MODE))?;
    }
    asm.jmp(rsi)
}

/// Returns to the caller.
pub(super) fn leave(asm: &mut CodeAssembler, flush: bool) -> Emit {
    if flush {
        asm.ldmxcsr(dword_ptr(r12 + Context::SAVED))?;
    }
    asm.vzeroupper()?;
    for register in [r15, r14, r13, r12, rbp, rbx] {
        asm.pop(register)?;
    }
    asm.ret()
}
