//! Tests that unsupported instructions are refused with their names and lines, before the kernel can run.

use vgpu_simt::{Features, Program};

use crate::case::{Case, HEADER};

/// Instructions that are refused: those of other targets, those that no kernel of GGML contains, and invalid
/// ones.
const UNKNOWN: &[(&str, &str)] = &[
    ("tex.2d.v4.f32.f32", "tex.2d.v4.f32.f32 {%f, %f, %f, %f}, [name, {%f, %f}];"),
    ("suld.b.1d.b32.trap", "suld.b.1d.b32.trap {%r}, [name, {%r}];"),
    (
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r, %r}, [%r];",
    ),
    ("cp.async.bulk.commit_group", "cp.async.bulk.commit_group;"),
    ("wgmma.fence.sync.aligned", "wgmma.fence.sync.aligned;"),
    ("tcgen05.fence::before_thread_sync", "tcgen05.fence::before_thread_sync;"),
    ("vadd2.s32.s32.s32", "vadd2.s32.s32.s32 %r, %r, %r, %r;"),
    ("add.f16x4", "add.f16x4 %r, %r, %r;"),
    ("add.rn.s32", "add.rn.s32 %r, %r, %r;"),
    ("frobnicate.b32", "frobnicate.b32 %r, %r;"),
    ("fma.rn.ftz.u32", "fma.rn.ftz.u32 %r, %r, %r, %r;"),
    ("shfl.sync.sideways.b32", "shfl.sync.sideways.b32 %r, %r, 1, 31, -1;"),
    ("cvt.rn.e4m3x2.f32", "cvt.rn.e4m3x2.f32 %h, %f, %f;"),
    (
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%r, %r, %r, %r}, {%r, %r, %r, %r}, {%r, %r}, {%r, %r, %r, %r};",
    ),
];

fn text(instruction: &str) -> String {
    format!(
        "{HEADER}\n.visible .entry good()\n{{\nret;\n}}\n.visible .entry bad()\n{{\n.reg .b32 %r;\n.reg .b64 %d;\n.reg .f32 %f;\n.reg .b16 %h;\n.reg .pred %p;\n\
         mov.u32 %r, 1;\n@%p bra NEVER;\nret;\nNEVER:\n{instruction}\nret;\n}}\n"
    )
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.extend(UNKNOWN.iter().map(|&(spelling, instruction)| {
        let text = text(instruction);
        let at = text.find(instruction).expect("the text has it");
        let line = 1 + text[..at].matches('\n').count();
        let copy = text.clone();
        Case {
            name: spelling.into(),
            covers: Vec::new(),
            text: format!("{HEADER}.visible .entry none()\n{{\nret;\n}}\n"),
            check: Box::new(move |_| {
                // The other kernels of the module can be used.
                let module = vgpu_ptx::Module::parse(copy.as_bytes().to_vec()).map_err(|e| e.to_string())?;
                module.kernel("good").map_err(|error| error.to_string())?;
                let error = match module.kernel("bad") {
                    Err(error) => error.to_string(),
                    Ok(kernel) => match Program::with_features(&kernel, &[], Features::best()) {
                        Err(error) => error.to_string(),
                        Ok(_) => return Err("it is accepted".into()),
                    },
                };
                if error.contains(&format!("line {line}")) && error.contains(spelling) {
                    Ok(())
                } else {
                    Err(format!("`{error}` should name {spelling} and line {line}"))
                }
            }),
        }
    }));
}
