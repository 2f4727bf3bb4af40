//! Tests of `call` of `vprintf`, and of the parameters of calls.

use crate::case::Case;
use crate::device::{Params, Shape};

/// Returns a kernel with format strings. Its code calls `vprintf` with the arguments in local memory at
/// `%args`.
fn kernel(formats: &[&str], code: &str) -> String {
    let mut text = String::from(
        ".extern .func  (.param .b32 func_retval0) vprintf\n(\n.param .b64 vprintf_param_0,\n.param .b64 vprintf_param_1\n)\n;\n",
    );
    for (index, format) in formats.iter().enumerate() {
        let bytes: Vec<String> = format.bytes().chain([0]).map(|byte| byte.to_string()).collect();
        text += &format!(".global .align 1 .b8 $str${index}[{}] = {{{}}};\n", bytes.len(), bytes.join(", "));
    }
    text + &format!(
        ".visible .entry k(.param .u64 out)\n{{\n.local .align 8 .b8 __local_depot0[64];\n.reg .b64 %SP, %SPL, %args, %d, %out;\n.reg .b32 %r<9>;\n.reg .f64 %fd<3>;\n.reg .pred %p;\n\
         mov.u64 %SPL, __local_depot0;\ncvta.local.u64 %SP, %SPL;\nadd.u64 %args, %SP, 0;\nld.param.u64 %out, [out];\nmov.u32 %r0, %tid.x;\n{code}ret;\n}}\n"
    )
}

/// Returns a call of `vprintf` as nvcc writes it.
fn call(format: usize) -> String {
    format!(
        "mov.u64 %d, $str${format};\ncvta.global.u64 %d, %d;\n{{ // callseq {format}, 0\n.reg .b32 temp_param_reg;\n.param .b64 param0;\nst.param.b64 [param0+0], %d;\n.param .b64 param1;\nst.param.b64 [param1+0], %args;\n\
         .param .b32 retval0;\ncall.uni (retval0), \nvprintf, \n(\nparam0, \nparam1\n);\nld.param.b32 %r8, [retval0+0];\n}} // callseq {format}\n"
    )
}

const COVERS: &str = "call.uni st.param.b64 ld.param.b32";

/// Returns the printed lines in sorted order, because the order of threads is not defined.
fn lines(printed: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    lines
}

pub fn cases(cases: &mut Vec<Case>) {
    let code = "st.local.u32 [%SPL], %r0;\nmul.lo.u32 %r1, %r0, -3;\nst.local.u32 [%SPL+4], %r1;\nmov.f64 %fd0, 0d3FF8000000000000;\nst.local.f64 [%SPL+8], %fd0;\nmov.u64 %d, 0xfedcba9876543210;\nst.local.u64 [%SPL+16], %d;\n"
        .to_owned()
        + &call(0)
        + "st.global.u32 [%out], %r8;\n";
    let text = kernel(&["%02u %d %f %llx 100%%\n"], &code);
    cases.push(Case::new("vprintf of numbers", COVERS, &text, |device| {
        let results = device.allocate(4);
        device.launch("k", Shape::line(1, 3), &Params::new().u64(results))?;
        let wanted: Vec<String> =
            (0..3).map(|t| format!("{t:02} {} 1.500000 fedcba9876543210 100%", -3 * t)).collect();
        let printed = device.printed();
        if lines(&printed) == wanted { Ok(()) } else { Err(format!("printed {printed:?}")) }
    }));
    // Only some threads call. A string is passed by its address, and a text without arguments gets a null
    // address for them.
    let code = "setp.ne.u32 %p, %r0, 2;\n@%p bra OUT;\nmov.u64 %d, $str$1;\ncvta.global.u64 %d, %d;\nst.local.u64 [%SPL], %d;\nmov.u32 %r1, 65;\nst.local.u32 [%SPL+8], %r1;\nmov.u32 %r1, -7;\nst.local.u32 [%SPL+12], %r1;\nst.local.u32 [%SPL+16], %r1;\n"
        .to_owned()
        + &call(0)
        + "mov.u64 %args, 0;\n"
        + &call(2)
        + "OUT:\n";
    let text = kernel(&["<%s> %c %5d|%x\n", "a string", "nothing\n"], &code);
    cases.push(Case::new("vprintf of strings", COVERS, &text, |device| {
        let results = device.allocate(4);
        device.launch("k", Shape::line(1, 64), &Params::new().u64(results))?;
        let printed = device.printed();
        if lines(&printed) == ["<a string> A    -7|fffffff9", "nothing"] {
            Ok(())
        } else {
            Err(format!("printed {printed:?}"))
        }
    }));
    // GGML's kernels call `vprintf` and `trap` if they have no code for the device's architecture.
    let code = "mov.u32 %r1, 610;\nst.local.u32 [%SPL], %r1;\n".to_owned() + &call(0) + "trap;\n";
    let text = kernel(&["ERROR: no device code for arch %d\n"], &code);
    cases.push(Case::new("vprintf and trap", &format!("{COVERS} trap"), &text, |device| {
        let results = device.allocate(4);
        device.expect_fault("k", Shape::line(1, 1), &Params::new().u64(results), 719)?;
        let printed = device.printed();
        let wanted = "ERROR: no device code for arch 610\n";
        if printed == wanted { Ok(()) } else { Err(format!("printed {printed:?}")) }
    }));
}
