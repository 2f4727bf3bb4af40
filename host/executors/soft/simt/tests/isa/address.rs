//! Tests of generic addresses and `cvta`, variables of modules with their initial values, and dynamic shared
//! memory.

use crate::case::Case;
use crate::device::{Params, Shape, same};

/// Register declarations of all kernels in this file.
const FRAME: &str = ".reg .b64 %out, %a, %b, %c;\n.reg .b32 %t, %x, %y, %o;\n.reg .pred %p, %q;\n";

fn kernel(declarations: &str, code: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 out)\n{{\n{FRAME}{declarations}\
         ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %c, %t, 4;\n{code}ret;\n}}\n"
    )
}

/// Returns PTX that stores `%x` as this thread's word of the output's part `part`.
fn store(part: u32) -> String {
    format!("add.u64 %a, %out, %c;\nst.global.u32 [%a+{}], %x;\n", 256 * part)
}

/// Returns a case that runs a kernel with 64 threads and compares the words that they stored.
fn words(name: &str, covers: &str, text: &str, parts: u32, wanted: fn(u32, u32) -> u32) -> Case {
    Case::new(name, covers, text, move |device| {
        let wanted: Vec<u32> =
            (0..parts).flat_map(|part| (0..64).map(move |thread| wanted(part, thread))).collect();
        device.expect_words("stored", Shape::line(1, 64), Params::new(), &wanted)
    })
}

/// Adds tests in which each thread writes a word through an address of the state space and reads it through a
/// generic one, and the reverse.
fn round_trips(cases: &mut Vec<Case>) {
    for (space, bytes) in [("shared", 512), ("local", 64)] {
        let offset = if space == "shared" { "mul.wide.u32 %b, %t, 4;" } else { "mov.u64 %b, 16;" };
        let code = format!(
            "{offset}\nmov.u64 %a, memory;\nadd.u64 %a, %a, %b;\nadd.u32 %x, %t, 1000;\nst.{space}.u32 [%a], %x;\n\
             bar.sync 0;\ncvta.{space}.u64 %a, %a;\nld.u32 %x, [%a];\n{}\
             {offset}\nmov.u64 %a, memory;\nadd.u64 %a, %a, %b;\ncvta.{space}.u64 %b, %a;\nadd.u32 %x, %t, 2000;\n\
             st.u32 [%b], %x;\ncvta.to.{space}.u64 %a, %b;\nbar.sync 0;\nld.{space}.u32 %x, [%a];\n{}",
            store(0),
            store(1)
        );
        let text = kernel(&format!(".{space} .align 4 .b8 memory[{bytes}];\n"), &code);
        let covers = format!("cvta.{space}.u64 cvta.to.{space}.u64 ld.u32 st.u32");
        cases.push(words(&format!("cvta of {space}"), &covers, &text, 2, |part, thread| {
            1000 * (part + 1) + thread
        }));
    }
    // An address of global memory and its generic address are equal.
    let code = "mul.wide.u32 %c, %t, 4;\nadd.u64 %a, %out, %c;\ncvta.to.global.u64 %b, %a;\nst.global.u32 [%b], 7;\n\
        cvta.global.u64 %a, %b;\nld.u32 %x, [%a];\nadd.u32 %x, %x, %t;\nst.u32 [%a], %x;\n";
    let covers = "cvta.global.u64 cvta.to.global.u64";
    cases.push(words("cvta of global", covers, &kernel("", code), 1, |_, thread| 7 + thread));
}

/// Returns a test with a warp whose lanes access three state spaces in one generic load and store.
fn mixed_spaces() -> Case {
    let code = format!(
        "mov.u64 %a, mine;\ncvta.local.u64 %a, %a;\nmov.u64 %b, ours;\ncvta.shared.u64 %b, %b;\nadd.u64 %b, %b, %c;\n\
         rem.u32 %o, %t, 3;\nsetp.eq.u32 %p, %o, 0;\nsetp.eq.u32 %q, %o, 1;\n\
         selp.b64 %a, %a, %b, %p;\nadd.u64 %b, %out, %c;\nselp.b64 %a, %b, %a, %q;\n\
         add.u32 %x, %t, 50;\nst.u32 [%a], %x;\nld.u32 %x, [%a];\nadd.u32 %x, %x, %o;\n{}",
        store(0)
    );
    let declarations = ".local .align 4 .b8 mine[4];\n.shared .align 4 .b8 ours[256];\n";
    words(
        "generic addresses of three spaces in a warp",
        "ld.u32 st.u32",
        &kernel(declarations, &code),
        1,
        |_, t| 50 + t + t % 3,
    )
}

/// Returns a test of local memory, which belongs to each thread although its addresses are the same for all
/// threads. Generic addresses access it at other offsets.
fn local_arrays() -> Case {
    let code = format!(
        "mov.u64 %b, depot;\ncvta.local.u64 %b, %b;\nmov.u32 %o, 0;\nFILL:\nmul.wide.u32 %a, %o, 4;\nadd.u64 %a, %b, %a;\n\
         mad.lo.u32 %x, %t, 100, %o;\nst.u32 [%a], %x;\nadd.u32 %o, %o, 1;\nsetp.lt.u32 %p, %o, 16;\n@%p bra FILL;\n\
         and.b32 %o, %t, 15;\nmul.wide.u32 %a, %o, 4;\nadd.u64 %a, %b, %a;\nld.u32 %x, [%a];\n{}\
         mov.u64 %b, depot;\nxor.b32 %o, %o, 5;\nmul.wide.u32 %a, %o, 4;\nadd.u64 %a, %b, %a;\nld.local.u32 %x, [%a];\n{}",
        store(0),
        store(1)
    );
    let text = kernel(".local .align 16 .b8 depot[64];\n", &code);
    words("local arrays", "ld.local.u32 ld.u32", &text, 2, |part, thread| {
        thread * 100 + ((thread & 15) ^ (5 * part))
    })
}

fn space_tests() -> Case {
    let mut code = String::from(
        "mov.u64 %a, ours;\ncvta.shared.u64 %a, %a;\nmov.u64 %b, mine;\ncvta.local.u64 %b, %b;\n\
         rem.u32 %o, %t, 3;\nsetp.eq.u32 %p, %o, 0;\nselp.b64 %a, %a, %b, %p;\nsetp.eq.u32 %p, %o, 2;\nselp.b64 %a, %out, %a, %p;\n\
         mov.u64 %b, %a;\n",
    );
    for (part, space) in ["shared", "local", "global"].into_iter().enumerate() {
        code += &format!("isspacep.{space} %p, %b;\nselp.u32 %x, 1, 0, %p;\n{}", store(part as u32));
    }
    let declarations = ".local .align 4 .b8 mine[4];\n.shared .align 4 .b8 ours[4];\n";
    let covers = "isspacep.shared isspacep.local isspacep.global";
    words("isspacep", covers, &kernel(declarations, &code), 3, |part, thread| u32::from(thread % 3 == part))
}

/// Returns a test of the module's variables: values of each type, arrays that are longer than their initial
/// values, and addresses of other variables.
fn globals() -> Case {
    let text = ".global .align 4 .u32 number = 305419896;\n\
        .visible .global .align 8 .b8 bytes[8] = {1, 2, 0xff, 4};\n\
        .const .align 4 .f32 floats[3] = {0f3F800000, 0f40000000, 0f40400000};\n\
        .global .align 2 .u16 halves[4] = {1, 65535, 3};\n\
        .global .align 8 .u64 longs[2] = {0x123456789abcdef0, 5};\n\
        .global .align 8 .u64 pointers[3] = {number, generic(bytes), generic(longs)+8};\n\
        .global .align 4 .u32 counter;\n\
        .visible .entry k(.param .u64 out)\n{\n.reg .b64 %out, %a, %b;\n.reg .b32 %x;\n.reg .f32 %f;\n.reg .b16 %h;\n\
        ld.param.u64 %out, [out];\n\
        ld.global.u32 %x, [number];\nst.global.u32 [%out], %x;\n\
        ld.global.u32 %x, [bytes];\nst.global.u32 [%out+4], %x;\nld.global.u32 %x, [bytes+4];\nst.global.u32 [%out+8], %x;\n\
        ld.const.f32 %f, [floats+8];\nst.global.f32 [%out+12], %f;\n\
        ld.global.u16 %h, [halves+2];\ncvt.u32.u16 %x, %h;\nst.global.u32 [%out+16], %x;\n\
        ld.global.u16 %h, [halves+6];\ncvt.u32.u16 %x, %h;\nst.global.u32 [%out+20], %x;\n\
        ld.global.u64 %a, [longs];\nst.global.u64 [%out+24], %a;\n\
        ld.global.u64 %a, [pointers];\nld.global.u32 %x, [%a];\nst.global.u32 [%out+32], %x;\n\
        ld.global.u64 %a, [pointers+8];\nld.u32 %x, [%a];\nst.global.u32 [%out+36], %x;\n\
        mov.u64 %b, pointers;\ncvta.global.u64 %b, %b;\nld.u64 %a, [%b+16];\nld.u32 %x, [%a];\nst.global.u32 [%out+40], %x;\n\
        mov.u64 %b, counter;\nld.global.u32 %x, [%b];\nadd.u32 %x, %x, 9;\nst.global.u32 [%b], %x;\nst.global.u32 [%out+44], %x;\n\
        mov.u64 %b, floats;\ncvta.const.u64 %b, %b;\nld.f32 %f, [%b+4];\nst.global.f32 [%out+48], %f;\n\
        ret;\n}\n";
    Case::new("variables of the module", "ld.const.f32 cvta.const.u64 ld.f32", text, |device| {
        let results = device.allocate(52);
        let params = Params::new().u64(results);
        device.launch("k", Shape::line(1, 1), &params)?;
        // Variables live as long as their module.
        device.launch("k", Shape::line(1, 1), &params)?;
        let wanted = [
            0x1234_5678,
            0x04ff_0201,
            0,
            0x4040_0000,
            0xffff,
            0,
            0x9abc_def0,
            0x1234_5678,
            0x1234_5678,
            0x04ff_0201,
            5,
            18,
            0x4000_0000,
        ];
        same("stored", &device.read_words(results, 13), &wanted)
    })
}

/// Returns a test of indexed variables, as tinygrad writes them. As in ptxas, the index counts elements
/// rather than bytes.
fn elements() -> Case {
    let declarations =
        ".shared .align 8 .b64 before[3];\n.shared .align 4 .b32 ours[64];\n.local .align 2 .b16 mine[8];\n";
    let code = format!(
        "mov.u32 %x, ours[3];\nmov.u32 %o, ours[1];\nsub.u32 %x, %x, %o;\n\
         mov.u64 %a, mine[5];\nmov.u64 %b, mine;\nsub.u64 %a, %a, %b;\n\
         cvt.u32.u64 %o, %a;\nmad.lo.u32 %x, %o, 100, %x;\n{}\
         add.u32 %x, %t, 9;\nst.local.u16 mine[7], %x;\nld.local.u16 %x, [mine+14];\n{}\
         setp.eq.u32 %p, %t, 0;\n@%p st.shared.u32 ours[2], 77;\nbar.sync 0;\nld.shared.u32 %x, [ours+8];\n{}\
         ld.shared.u32 %x, ours[2];\n{}",
        store(0),
        store(1),
        store(2),
        store(3)
    );
    let covers = "ld.shared.u32 st.shared.u32 ld.local.u16 st.local.u16";
    words("elements by index", covers, &kernel(declarations, &code), 4, |part, t| {
        [1008, t + 9, 77, 77][part as usize]
    })
}

/// Returns a test of dynamic shared memory, which follows the static shared memory, has its own alignment,
/// and has the size that the launch requests.
fn dynamic_shared() -> Case {
    let text = ".extern .shared .align 16 .b8 dynamic[];\n.visible .entry k(.param .u64 out)\n{\n\
        .reg .b64 %out, %a;\n.reg .b32 %t, %x, %y, %z;\n.shared .align 4 .b8 fixed[20];\n\
        ld.param.u64 %out, [out];\nmov.u32 %t, %tid.x;\n\
        shl.b32 %x, %t, 2;\nmov.u32 %y, dynamic;\nadd.u32 %y, %y, %x;\nmad.lo.u32 %x, %t, 3, 1;\nst.shared.u32 [%y], %x;\n\
        mov.u32 %z, fixed;\nst.shared.u32 [%z+16], 77;\nbar.sync 0;\n\
        xor.b32 %x, %t, 63;\nshl.b32 %x, %x, 2;\nmov.u32 %y, dynamic;\nadd.u32 %y, %y, %x;\nld.shared.u32 %x, [%y];\n\
        mul.wide.u32 %a, %t, 4;\nadd.u64 %a, %out, %a;\nst.global.u32 [%a], %x;\n\
        mov.u32 %y, dynamic;\nand.b32 %y, %y, 15;\nst.global.u32 [%out+256], %y;\nld.shared.u32 %x, [%z+16];\n\
        st.global.u32 [%out+260], %x;\nmov.u32 %x, %dynamic_smem_size;\nst.global.u32 [%out+264], %x;\nret;\n}\n";
    Case::new("dynamic shared memory", "ld.shared.u32 st.shared.u32", text, |device| {
        let wanted: Vec<u32> = (0..64).map(|thread| (thread ^ 63) * 3 + 1).chain([0, 77, 256]).collect();
        device.expect_words("stored", Shape::line(2, 64).with_shared(256), Params::new(), &wanted)
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.extend([mixed_spaces(), local_arrays(), space_tests(), globals(), elements(), dynamic_shared()]);
    round_trips(cases);
}
