//! Statements between the instructions of a body, and where registers and variables are declared, as NVRTC,
//! numba and inline assembly write them.

#![forbid(unsafe_code)]

use vgpu_ptx::Module;
use vgpu_ptx::ir::{Class, Kernel};

fn kernel(body: &str) -> Kernel {
    let text = format!(
        ".version 8.8\n.target sm_90, debug\n.address_size 64\n.file 1 \"k.cu\"\n.visible .entry k(.param .u64 q)\n.maxntid 64, 1, 1\n{{{body}\n}}\n"
    );
    match Module::parse(text.into_bytes()).and_then(|module| module.kernel("k")) {
        Ok(kernel) => kernel,
        Err(error) => panic!("{body}: {error}"),
    }
}

#[test]
fn declarations_stand_anywhere() {
    for (body, registers) in [
        ("{.reg.b32 f, C; mov.b32 f, 1; mov.b32 C, f;}", 2),
        ("{ .reg .b32 f; mov.b32 f, 1; }{.reg.b64 f;mov.b64 f, 2;}", 2),
        (".reg.b32 %r<3>;mov.b32 %r1, 1;.reg.b32 %s<2>;mov.b32 %s1, %r1;", 2),
        (
            ".loc 1 2 3\n.reg .b32 %r<2>;\n.loc 1 2 3, function_name $L__info0, inlined_at 1 9 2\nmov.b32 %r1, 1;",
            1,
        ),
        (
            "\n\t{ // callseq 0, 0\n\t.reg .b32 temp_param_reg;\n\t.loc 1 2 3\n\tmov.b32 temp_param_reg, 1;\n\t}",
            1,
        ),
        ("{ .loc 1 2 3\n{ .pragma \"nounroll\"; .reg.b32 a;\nmov.b32 a, 1;}}", 1),
        ("$L__func_begin0: .loc 1 2 0\n.reg.b16 h;\n$L__tmp1:\nmov.b16 h, 1;\n$L__func_end0:", 1),
    ] {
        assert_eq!(kernel(body).registers.len(), registers, "{body}");
    }
}

#[test]
fn variables_stand_anywhere() {
    let body = "\n.reg.b64 %SPL, %d;\n.local.align 8 .b8 __local_depot0[24];\nmov.u64 %SPL, __local_depot0;\n\
        {\n.local .align 16 .b8 inner[8];\nmov.u64 %d, inner;\n}\n.shared.align 4 .b8 words[64];\nmov.u64 %d, words;\n.shared .b32 one, two;\nst.shared.b32 [two], 1;";
    let kernel = kernel(body);
    assert_eq!((kernel.local_bytes, kernel.shared_bytes, kernel.calls), (40, 72, false));
    assert_eq!(kernel.registers, [Class::B64; 2]);
}
