//! Tests of special registers in grids and blocks of unusual shapes.

use std::fmt::Write as _;

use crate::case::Case;
use crate::device::{Device, Params, Shape, same};

/// Special registers of 32 bits whose value follows from the launch and the thread.
const EXACT: &[&str] = &[
    "tid.x",
    "tid.y",
    "tid.z",
    "ntid.x",
    "ntid.y",
    "ntid.z",
    "ctaid.x",
    "ctaid.y",
    "ctaid.z",
    "nctaid.x",
    "nctaid.y",
    "nctaid.z",
    "laneid",
    "warpid",
    "lanemask_eq",
    "lanemask_le",
    "lanemask_lt",
    "lanemask_ge",
    "lanemask_gt",
    "dynamic_smem_size",
    "total_smem_size",
];

const SHARED: u32 = 48;
const DYNAMIC: u32 = 128;

/// Returns the expected value of a special register in a thread.
fn value(name: &str, shape: Shape, block: [u32; 3], thread: [u32; 3]) -> u32 {
    let axis = |values: [u32; 3]| match name.as_bytes()[name.len() - 1] {
        b'x' => values[0],
        b'y' => values[1],
        _ => values[2],
    };
    let [nx, ny, _] = shape.block;
    let linear = thread[0] + nx * (thread[1] + ny * thread[2]);
    let (lane, bit) = (linear % 32, 1_u32 << (linear % 32));
    match name.split('.').next().unwrap_or_default() {
        "tid" => axis(thread),
        "ntid" => axis(shape.block),
        "ctaid" => axis(block),
        "nctaid" => axis(shape.grid),
        "laneid" => lane,
        "warpid" => linear / 32,
        "lanemask_eq" => bit,
        "lanemask_le" => bit | (bit - 1),
        "lanemask_lt" => bit - 1,
        "lanemask_ge" => !(bit - 1),
        "lanemask_gt" => !(bit | (bit - 1)),
        "dynamic_smem_size" => DYNAMIC,
        _ => SHARED + DYNAMIC,
    }
}

/// Iterates over the coordinates of a shape, the first axis varying fastest.
fn points(size: [u32; 3]) -> impl Iterator<Item = [u32; 3]> {
    let [x, y, z] = size;
    (0..z).flat_map(move |z| (0..y).flat_map(move |y| (0..x).map(move |x| [x, y, z])))
}

fn registers() -> Case {
    let mut code = String::new();
    for (index, name) in EXACT.iter().enumerate() {
        let _ = writeln!(code, "mov.u32 %x, %{name};\nst.global.u32 [%a+{}], %x;", 4 * index);
    }
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %a, %o;\n.reg .b32 %x, %y, %z, %b, %n;\n.shared .align 16 .b8 static[{SHARED}];\n\
         mov.u32 %x, %ctaid.z;\nmov.u32 %y, %nctaid.y;\nmov.u32 %z, %ctaid.y;\nmad.lo.u32 %b, %x, %y, %z;\nmov.u32 %y, %nctaid.x;\nmov.u32 %z, %ctaid.x;\nmad.lo.u32 %b, %b, %y, %z;\n\
         mov.u32 %n, %ntid.x;\nmov.u32 %y, %ntid.y;\nmul.lo.u32 %n, %n, %y;\nmov.u32 %y, %ntid.z;\nmul.lo.u32 %n, %n, %y;\nmul.lo.u32 %b, %b, %n;\n\
         mov.u32 %x, %tid.z;\nmov.u32 %y, %ntid.y;\nmov.u32 %z, %tid.y;\nmad.lo.u32 %x, %x, %y, %z;\nmov.u32 %y, %ntid.x;\nmov.u32 %z, %tid.x;\nmad.lo.u32 %x, %x, %y, %z;\nadd.u32 %b, %b, %x;\n\
         ld.param.u64 %a, [out];\nmul.wide.u32 %o, %b, {};\nadd.s64 %a, %a, %o;\nst.shared.u32 [static], %b;\n{code}ret;\n}}\n",
        4 * EXACT.len()
    );
    let shapes = [
        ([3, 2, 2], [5, 3, 2]),
        ([1, 1, 1], [1, 1, 1]),
        ([2, 1, 1], [32, 4, 1]),
        ([1, 3, 1], [64, 2, 3]),
        ([7, 1, 1], [33, 1, 1]),
        ([1, 1, 5], [8, 8, 2]),
        ([2, 2, 1], [1, 70, 1]),
        ([1, 1, 1], [1024, 1, 1]),
    ];
    Case::new("registers of shapes", "", &text, move |device| {
        for (grid, block) in shapes {
            let shape = Shape::new(grid, block).with_shared(DYNAMIC);
            let wanted: Vec<u32> = points(grid)
                .flat_map(|ctaid| points(block).map(move |tid| (ctaid, tid)))
                .flat_map(|(ctaid, tid)| EXACT.iter().map(move |name| value(name, shape, ctaid, tid)))
                .collect();
            device.expect_words(&format!("{shape:?}"), shape, Params::new(), &wanted)?;
        }
        Ok(())
    })
}

/// Returns a test of special registers as operands of instructions other than `mov.u32`.
fn operands() -> Case {
    let text = ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %a;\n.reg .b32 %x;\n\
        ld.param.u64 %a, [out];\nmov.b32 %x, %tid.x;\nshl.b32 %x, %x, 2;\n\
        {\n.reg .b64 %o;\ncvt.u64.u32 %o, %x;\nadd.s64 %a, %a, %o;\n}\nmov.s32 %x, %ctaid.x;\nmov.s32 %x, %ntid.x;\nst.global.u32 [%a], %x;\nret;\n}\n";
    Case::new("registers as mov.b32 and mov.s32", "mov.b32 mov.s32", text, |device: &mut Device| {
        device.expect_words("words", Shape::line(1, 32), Params::new(), &[32; 32])
    })
}

/// Returns a test of registers for which the ISA only specifies relations.
fn relations() -> Case {
    let text = ".visible .entry k(.param .u64 out)\n{\n.reg .b64 %a, %c, %d;\n.reg .b32 %x, %y;\n.reg .pred %p, %q;\n\
        ld.param.u64 %a, [out];\n\
        mov.u32 %x, %smid;\nmov.u32 %y, %nsmid;\nsetp.lt.u32 %p, %x, %y;\nselp.u32 %x, 1, 0, %p;\nst.global.u32 [%a], %x;\n\
        mov.u32 %x, %nwarpid;\nsetp.ge.u32 %p, %x, 2;\nselp.u32 %x, 1, 0, %p;\nst.global.u32 [%a+4], %x;\n\
        mov.u64 %c, %clock64;\nmov.u64 %d, %clock64;\nsetp.le.u64 %p, %c, %d;\nselp.u32 %x, 1, 0, %p;\nst.global.u32 [%a+8], %x;\n\
        mov.u64 %c, %globaltimer;\nmov.u64 %d, %globaltimer;\nsetp.le.u64 %p, %c, %d;\nsetp.ne.and.u64 %p, %c, 0, %p;\nselp.u32 %x, 1, 0, %p;\nst.global.u32 [%a+12], %x;\n\
        mov.u32 %x, %clock;\nmov.u32 %y, %clock;\nsub.u32 %x, %y, %x;\nsetp.lt.u32 %p, %x, 0x7fffffff;\nselp.u32 %x, 1, 0, %p;\nst.global.u32 [%a+16], %x;\n\
        mov.u64 %c, %gridid;\nmov.u32 %x, 1;\nst.global.u32 [%a+20], %x;\n\
        mov.u32 %x, %envreg0;\nst.global.u32 [%a+24], %x;\nmov.u32 %x, %envreg1;\nst.global.u32 [%a+28], %x;\nmov.u32 %x, %envreg2;\nst.global.u32 [%a+32], %x;\nret;\n}\n";
    Case::new("registers that are related", "", text, |device| {
        let results = device.allocate(36);
        device.launch("k", Shape::line(1, 64), &Params::new().u64(results))?;
        same("relations", &device.read_words(results, 9), &[1, 1, 1, 1, 1, 1, 0, 0, 0])?;
        // In a cooperative grid, two environment registers hold the address of the workspace, the upper half
        // first.
        let shape = Shape { cooperative: true, workspace: 0x1234_5678_9abc_def0, ..Shape::line(1, 64) };
        device.launch("k", shape, &Params::new().u64(results))?;
        same("workspace", &device.read_words(results + 28, 2), &[0x1234_5678, 0x9abc_def0])
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.extend([registers(), operands(), relations()]);
}
