//! Loads and stores of single elements through a general register.

use iced_x86::code_asm::{
    AsmMemoryOperand, CodeAssembler, byte_ptr, di, dil, dword_ptr, eax, edi, qword_ptr, rax, rdi, word_ptr,
};

use super::value::Emit;

/// Loads an element of 1, 2, 4 or 8 bytes, zero-extended, to a slot of the frame. Overwrites `rax`.
pub(super) fn load(
    asm: &mut CodeAssembler,
    bytes: u32,
    from: AsmMemoryOperand,
    to: AsmMemoryOperand,
) -> Emit {
    match bytes {
        1 => asm.movzx(eax, byte_ptr(from))?,
        2 => asm.movzx(eax, word_ptr(from))?,
        4 => asm.mov(eax, dword_ptr(from))?,
        _ => {
            asm.mov(rax, qword_ptr(from))?;
            return asm.mov(qword_ptr(to), rax);
        }
    }
    asm.mov(dword_ptr(to), eax)
}

/// Stores an element of 1, 2, 4 or 8 bytes from a slot of the frame to memory. Overwrites `rdi`.
pub(super) fn store(
    asm: &mut CodeAssembler,
    bytes: u32,
    from: AsmMemoryOperand,
    to: AsmMemoryOperand,
) -> Emit {
    if bytes == 8 {
        asm.mov(rdi, qword_ptr(from))?;
        return asm.mov(qword_ptr(to), rdi);
    }
    asm.mov(edi, dword_ptr(from))?;
    match bytes {
        1 => asm.mov(byte_ptr(to), dil),
        2 => asm.mov(word_ptr(to), di),
        _ => asm.mov(dword_ptr(to), edi),
    }
}
