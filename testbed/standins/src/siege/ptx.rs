//! Hostile kernels: valid PTX texts, each of which is expensive in another respect. All are named `k` and
//! take two words.

use std::fmt::Write;

const HEAD: &str = ".version 7.0\n.target sm_50\n.address_size 64\n";

fn kernel(declarations: &str, code: &str) -> String {
    format!("{HEAD}{declarations}.visible .entry k(.param .u64 a, .param .u64 b)\n{{\n{code}ret;\n}}\n")
}

/// Returns the PTX of a kernel that does nothing.
pub fn empty() -> String {
    kernel("", "")
}

/// Returns a kernel with `count` pauses of a millisecond and no branch.
pub fn pauses(count: usize) -> String {
    kernel("", &"nanosleep.u32 1000000;\n".repeat(count))
}

/// Returns a kernel with an infinite loop.
pub fn endless() -> String {
    kernel("", "AGAIN:\nbra AGAIN;\n")
}

/// Returns a kernel with `registers` values that are live across `barriers` barriers, each of which parts of
/// the block may reach alone.
pub fn live_across_barriers(registers: usize, barriers: usize) -> String {
    let mut code =
        format!(".reg .b32 %r<{}>;\n.reg .b64 %d;\n.reg .pred %p;\nmov.u32 %r0, %tid.x;\n", registers + 1);
    for index in 1..=registers {
        let _ = writeln!(code, "add.u32 %r{index}, %r{}, {index};", index - 1);
    }
    for index in 0..barriers {
        let _ = write!(
            code,
            "setp.eq.u32 %p, %r{}, 0;\n@%p bra B{index};\nbar.sync 0;\nB{index}:\n",
            index % registers
        );
    }
    code.push_str("ld.param.u64 %d, [a];\n");
    for index in 1..=registers {
        let _ = writeln!(code, "st.global.u32 [%d], %r{index};");
    }
    kernel("", &code)
}

/// Returns a kernel in which `count` words are split into halves, converted and overwritten in one block.
pub fn slots(count: usize) -> String {
    let mut code =
        format!(".reg .b16 %h<{}>;\n.reg .b32 %r<{}>;\n.reg .f32 %f<{count}>;\n", 2 * count, count);
    for index in 0..count {
        let _ = write!(
            code,
            "mov.u32 %r{index}, {index};\nmov.b32 {{%h{}, %h{}}}, %r{index};\ncvt.f32.f16 %f{index}, %h{};\n",
            2 * index,
            2 * index + 1,
            2 * index
        );
    }
    kernel("", &code)
}

/// Returns a kernel whose threads write all of their `bytes` bytes of local memory.
pub fn local(bytes: usize) -> String {
    let code = format!(
        ".local .align 8 .b8 mine[{bytes}];\n.reg .b64 %d<4>;\n.reg .b32 %r<3>;\n.reg .pred %p;\nmov.u64 %d0, mine;\nmov.u32 %r0, 0;\nFILL:\n\
         cvt.u64.u32 %d1, %r0;\nadd.u64 %d2, %d0, %d1;\nst.local.u32 [%d2], %r0;\nadd.u32 %r0, %r0, 4096;\nsetp.lt.u32 %p, %r0, {bytes};\n@%p bra FILL;\n"
    );
    kernel("", &code)
}

/// Returns a kernel whose threads print a line each.
pub fn printing() -> String {
    let text: Vec<String> = "a line that nobody asked for\n\0".bytes().map(|byte| byte.to_string()).collect();
    let declarations = format!(
        ".extern .func (.param .b32 func_retval0) vprintf\n(\n.param .b64 vprintf_param_0,\n.param .b64 vprintf_param_1\n)\n;\n\
         .global .align 1 .b8 text[{}] = {{{}}};\n",
        text.len(),
        text.join(", ")
    );
    let code = ".reg .b64 %d, %args;\n.reg .b32 %r;\nmov.u64 %args, 0;\nmov.u64 %d, text;\ncvta.global.u64 %d, %d;\n{ // callseq 0, 0\n\
                .reg .b32 temp_param_reg;\n.param .b64 param0;\nst.param.b64 [param0+0], %d;\n.param .b64 param1;\nst.param.b64 [param1+0], %args;\n\
                .param .b32 retval0;\ncall.uni (retval0), \nvprintf, \n(\nparam0, \nparam1\n);\nld.param.b32 %r, [retval0+0];\n} // callseq 0\n";
    kernel(&declarations, code)
}

/// Returns a module with a kernel and a variable of the value `number`, which makes its text unique.
pub fn numbered(number: u64) -> String {
    kernel(&format!(".global .align 8 .u64 number = {number};\n"), "")
}
