//! The assembly of the names that a shim does not implement. Each stub hands the address of its
//! record to one of two functions of `vgpu-abi` (`stub.rs` there says what a record is): no signature
//! is needed, for a caller's arguments are left as they are.

use std::fmt::Write as _;

use super::symbols::{Kind, Returns, Symbol};

/// Symbol of the function that returns a status and logs the stub's name once.
pub const STATUS: &str = "vgpu_stub_status";
/// Symbol of the function that returns zero and logs the stub's name once.
pub const ZERO: &str = "vgpu_stub_zero";

/// Code by which a stub reaches the function that answers.
#[derive(Debug)]
pub struct Reach {
    /// Lines of assembly before the jump or call.
    pub first: String,
    /// Symbol that the stub jumps to or calls.
    pub target: &'static str,
}

impl Reach {
    /// Returns the code for a target in the same object.
    pub fn direct(target: &'static str) -> Self {
        Self { first: String::new(), target }
    }
}

/// Returns GNU assembly for x86-64 that defines all of `symbols`. Functions that return a status return
/// `status`; `answers` describes how to reach the code that answers with a status and with zero.
pub fn assembly<'a>(
    symbols: impl IntoIterator<Item = &'a Symbol>,
    status: i32,
    answers: [&Reach; 2],
) -> String {
    let mut text = String::new();
    for (number, symbol) in symbols.into_iter().enumerate() {
        match symbol.kind {
            Kind::Data(bytes) => data(&mut text, &symbol.name, bytes),
            Kind::Function(returns) => {
                function(&mut text, &symbol.name, number, returns, answers);
                record(&mut text, number, status);
            }
        }
    }
    text.push_str("\t.section .note.GNU-stack,\"\",@progbits\n");
    text
}

/// Defines the function `name` with the instructions `body`.
pub fn entry(text: &mut String, name: &str, body: &str) {
    let _ = write!(
        text,
        "\t.text\n\t.p2align 3\n\t.globl {name}\n\t.type {name}, @function\n{name}:\n\tendbr64\n{body}\
         \t.size {name}, .-{name}\n"
    );
}

fn function(text: &mut String, name: &str, number: usize, returns: Returns, answers: [&Reach; 2]) {
    let [status, zero] = answers;
    let load = |reach: &Reach| format!("\tleaq .Lrecord{number}(%rip), %rdi\n{}", reach.first);
    let call = format!("{}\tcall {}\n", load(zero), zero.target);
    // Only stubs with a frame of their own need unwind information: the others are left by a jump, so
    // that none of their addresses is ever on a stack.
    let body = match returns {
        Returns::Status => format!("{}\tjmp {}\n", load(status), status.target),
        Returns::Word => format!("{}\tjmp {}\n", load(zero), zero.target),
        // The vector registers are cleared last: they are the callee's to spoil.
        Returns::Float => framed(&format!("{call}\txorps %xmm0, %xmm0\n\txorps %xmm1, %xmm1\n")),
        // Up to two eightbytes come back in registers, of either class.
        Returns::Struct(..=16) => framed(&format!(
            "{call}\txorl %eax, %eax\n\txorl %edx, %edx\n\txorps %xmm0, %xmm0\n\txorps %xmm1, %xmm1\n"
        )),
        // Larger ones lie where the hidden first argument points; that pointer is the answer.
        Returns::Struct(bytes) => {
            let mut body = String::from("\tmovq %rdi, %rbx\n");
            for offset in (0..bytes - bytes % 8).step_by(8) {
                let _ = writeln!(body, "\tmovq $0, {offset}(%rbx)");
            }
            for offset in bytes - bytes % 8..bytes {
                let _ = writeln!(body, "\tmovb $0, {offset}(%rbx)");
            }
            framed(&format!("{body}{call}\tmovq %rbx, %rax\n"))
        }
    };
    entry(text, name, &format!(".Lstub{number}:\n{body}"));
}

/// Wraps instructions so that %rbx is saved, which also aligns the stack for a call.
fn framed(body: &str) -> String {
    format!(
        "\t.cfi_startproc\n\tpushq %rbx\n\t.cfi_adjust_cfa_offset 8\n\t.cfi_rel_offset %rbx, 0\n{body}\tpopq %rbx\n\
         \t.cfi_adjust_cfa_offset -8\n\t.cfi_restore %rbx\n\tret\n\t.cfi_endproc\n"
    )
}

fn record(text: &mut String, number: usize, status: i32) {
    let _ = write!(
        text,
        "\t.data\n\t.p2align 2\n.Lrecord{number}:\n\t.long 0\n\t.long {status}\n\t.long .Lstub{number} - .Lrecord{number}\n"
    );
}

fn data(text: &mut String, name: &str, bytes: usize) {
    let alignment = bytes.next_power_of_two().min(32);
    let _ = write!(
        text,
        "\t.bss\n\t.balign {alignment}\n\t.globl {name}\n\t.type {name}, @object\n{name}:\n\t.zero {bytes}\n\
         \t.size {name}, {bytes}\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, kind: Kind, status: i32) -> String {
        let symbol = Symbol { name: name.to_owned(), kind };
        assembly(&[symbol], status, [&Reach::direct(STATUS), &Reach::direct(ZERO)])
    }

    #[test]
    fn a_status_stub_jumps_and_carries_its_code() {
        let text = text("cuThing", Kind::Function(Returns::Status), 801);
        for line in ["\t.globl cuThing\n", "\tjmp vgpu_stub_status\n", "\t.long 801\n"] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        assert!(!text.contains("call"));
    }

    #[test]
    fn a_structure_is_cleared_to_its_last_byte() {
        let text = text("make", Kind::Function(Returns::Struct(19)), 0);
        for store in ["movq $0, 0(", "movq $0, 8(", "movb $0, 16(", "movb $0, 18("] {
            assert!(text.contains(store), "{store:?} is not in\n{text}");
        }
        assert!(!text.contains(" 19(%rbx)"));
    }

    #[test]
    fn data_needs_no_record() {
        let text = text("table", Kind::Data(4096), 0);
        assert!(text.contains("\t.zero 4096\n"));
        assert!(!text.contains(".Lrecord"));
    }
}
