//! Tests of errors that an engine can make when it keeps values in the processor's registers: values spilled
//! on only one path through an instruction, results that overwrite sources too early, and floats that are
//! flushed later than computed.
//!
//! Machine code uses the windows of memory that the previous launch found, and otherwise exits to the
//! interpreter. Kernels are therefore launched twice.

use crate::case::Case;
use crate::device::{Device, Params, Shape, same};

/// Launches the kernel twice with one warp.
fn twice(device: &Device, params: &Params) -> Result<(), String> {
    (0..2).try_for_each(|_| device.launch("k", Shape::line(1, 32), params))
}

/// Number of values that are live while a thread stores some of them.
const LIVE: u32 = 14;

/// Adds tests of stores by full and incomplete warps while more values are live than the processor has
/// registers. The threads then store all of these values. Their addresses have been accessed before, so that
/// the store needs no registers to check them.
fn stores(cases: &mut Vec<Case>) {
    for (store, wide) in [
        ("st.global.v4.u32 [%o], {%r3, %r9, %r0, %r13};", false),
        ("st.global.v2.u32 [%o], {%r5, %r11};", false),
        ("st.global.v2.u16 [%o], {%h1, %h2};", false),
        ("st.global.u64 [%o], %d2;", true),
        ("st.shared.v4.u32 [%s], {%r3, %r9, %r0, %r13};", false),
        ("st.shared.u64 [%s], %d2;", true),
    ] {
        let each = |format: fn(u32) -> String| (0..LIVE).map(format).collect::<String>();
        let (loads, results) = if wide {
            (
                each(|at| format!("ld.global.u64 %d{at}, [%i+{}];\n", 256 * at)),
                each(|at| {
                    format!("cvt.u32.u64 %r{at}, %d{at};\nst.global.u32 [%o+{}], %r{at};\n", 16 + 4 * at)
                }),
            )
        } else {
            (
                each(|at| format!("ld.global.u32 %r{at}, [%i+{}];\n", 256 * at)),
                each(|at| format!("st.global.u32 [%o+{}], %r{at};\n", 16 + 4 * at)),
            )
        };
        let text = format!(
            ".visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %i, %o, %a, %d<{LIVE}>;\n\
             .reg .b32 %t, %s, %r<{LIVE}>;\n.reg .b16 %h<3>;\n.shared .align 16 .b8 shared[512];\n\
             ld.param.u64 %i, [in];\nld.param.u64 %o, [out];\nmov.u32 %t, %tid.x;\n\
             mul.wide.u32 %a, %t, 8;\nadd.s64 %i, %i, %a;\nmul.wide.u32 %a, %t, 128;\nadd.s64 %o, %o, %a;\n\
             mov.u32 %s, shared;\nmad.lo.u32 %s, %t, 16, %s;\nmov.u16 %h1, 1;\nmov.u16 %h2, 2;\n\
             st.global.u32 [%o+112], %t;\nst.shared.u32 [%s], %t;\n{loads}{store}\n{results}ret;\n}}\n"
        );
        let spelling = store.split(' ').next().unwrap_or_default();
        cases.push(Case::new(&format!("{spelling} while many values live"), spelling, &text, |device| {
            let (input, out) = (device.allocate(256 * u64::from(LIVE)), device.allocate(128 * 32));
            for (launch, threads) in (1..).zip([32, 20, 3, 32, 20, 3]) {
                // Each launch has other values, so that a value that an earlier launch left in memory is
                // detected.
                let words: Vec<u32> =
                    (0..64 * LIVE).map(|at| 0x9e37_79b9_u32.wrapping_mul(launch) ^ at).collect();
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                device.write(input, &bytes);
                device.write(out, &[0; 128 * 32]);
                device.launch("k", Shape::line(1, threads), &Params::new().u64(input).u64(out))?;
                for thread in 0..threads {
                    let at = |value: u32| words[(64 * value + 2 * thread) as usize];
                    let got = device.read_words(out + u64::from(128 * thread + 16), LIVE.into());
                    same(
                        &format!("values of thread {thread} of {threads}"),
                        &got,
                        &(0..LIVE).map(at).collect::<Vec<_>>(),
                    )?;
                }
            }
            Ok(())
        }));
    }
}

/// Returns a test of a scan over the first lanes of a warp by shuffles within one register. The other lanes
/// must keep their values.
fn scan() -> Case {
    const LANES: u32 = 24;
    let rounds: String = [1, 2, 4, 8, 16]
        .iter()
        .map(|by| {
            format!(
                "mov.b32 %y, %x;\nshfl.sync.up.b32 %x, %x, {by}, 0, 0xffffff;\nsetp.lt.u32 %p, %t, {by};\n\
                 selp.b32 %z, 0, %x, %p;\nadd.u32 %x, %y, %z;\n"
            )
        })
        .collect();
    let text = format!(
        ".visible .entry k(.param .u64 out)\n{{\n.reg .b64 %o, %a;\n.reg .b32 %t, %x, %y, %z;\n.reg .pred %p, %q;\n\
         ld.param.u64 %o, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 4;\nadd.s64 %o, %o, %a;\nmad.lo.u32 %x, %t, %t, 7;\n\
         setp.ge.u32 %q, %t, {LANES};\n@%q bra JOIN;\n{rounds}JOIN:\nst.global.u32 [%o], %x;\nret;\n}}\n"
    );
    Case::new("a scan by a part of a warp", "shfl.sync.up.b32", &text, |device| {
        let out = device.allocate(128);
        twice(device, &Params::new().u64(out))?;
        let own = |lane: u32| lane * lane + 7;
        let wanted: Vec<u32> =
            (0..32).map(|lane| if lane < LANES { (0..=lane).map(own).sum() } else { own(lane) }).collect();
        same("sums", &device.read_words(out, 32), &wanted)
    })
}

/// Returns a test that `.sat` keeps subnormal numbers, even in a kernel that flushes them in most
/// instructions.
fn saturated() -> Case {
    let text = ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg .b64 %i, %o, %a;\n.reg .b32 %t;\n.reg .f32 %x, %y, %z, %w;\n\
         ld.param.u64 %i, [in];\nld.param.u64 %o, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 4;\n\
         add.s64 %i, %i, %a;\nadd.s64 %o, %o, %a;\nld.global.f32 %x, [%i];\n\
         add.rn.sat.f32 %y, %x, 0f00000000;\nadd.rn.ftz.f32 %z, %x, %x;\nmul.rn.ftz.f32 %w, %z, %x;\nfma.rn.ftz.f32 %w, %z, %x, %w;\n\
         st.global.f32 [%o], %y;\nst.global.f32 [%o+128], %w;\nret;\n}\n";
    Case::new("clamped subnormal numbers where others are flushed", "add.rn.sat.f32", text, |device| {
        const EDGES: [(u32, u32); 12] = [
            (0x0000_0002, 0x0000_0002),
            (0x8000_0002, 0),
            (0x007f_ffff, 0x007f_ffff),
            (0x0080_0000, 0x0080_0000),
            (0x8000_0000, 0),
            (0x3f00_0000, 0x3f00_0000),
            (0x3f80_0000, 0x3f80_0000),
            (0x3f80_0001, 0x3f80_0000),
            (0x7f80_0000, 0x3f80_0000),
            (0xff80_0000, 0),
            (0x7fc0_0000, 0),
            (0xffff_ffff, 0),
        ];
        let words: Vec<u32> = (0..32).map(|lane| EDGES[lane % EDGES.len()].0).collect();
        let (input, out) = (device.upload_words(&words), device.allocate(256));
        twice(device, &Params::new().u64(input).u64(out))?;
        let wanted: Vec<u32> = (0..32).map(|lane| EDGES[lane % EDGES.len()].1).collect();
        same("clamped", &device.read_words(out, 32), &wanted)
    })
}

/// Returns a test of a matrix product whose input sums were flushed by earlier instructions, although the
/// product itself keeps subnormal sums.
fn flushed_sums() -> Case {
    let each = |format: fn(u32) -> String| (0..8).map(format).collect::<String>();
    let names = |letter: &str| (0..8).map(|at| format!("%{letter}{at}")).collect::<Vec<_>>().join(", ");
    let text = format!(
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %i, %o, %a;\n.reg .b32 %t, %z;\n.reg .f32 %x, %c<8>, %d<8>;\n\
         ld.param.u64 %i, [in];\nld.param.u64 %o, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %a, %t, 4;\n\
         add.s64 %i, %i, %a;\nmul.wide.u32 %a, %t, 32;\nadd.s64 %o, %o, %a;\nld.global.f32 %x, [%i];\nmov.b32 %z, 0;\n\
         {}mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {{{}}}, {{%z, %z}}, {{%z, %z}}, {{{}}};\n{}ret;\n}}\n",
        each(|at| format!("mul.rn.ftz.f32 %c{at}, %x, %x;\n")),
        names("d"),
        names("c"),
        each(|at| format!("st.global.f32 [%o+{}], %d{at};\n", 4 * at)),
    );
    let spelling = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32";
    Case::new("sums that are flushed before a product keeps others", spelling, &text, |device| {
        // 2^-70, whose square is subnormal.
        let input = device.upload_words(&[0x1c80_0000; 32]);
        let out = device.allocate(1024);
        twice(device, &Params::new().u64(input).u64(out))?;
        same("sums", &device.read_words(out, 256), &[0; 256])
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.extend([scan(), saturated(), flushed_sums()]);
    stores(cases);
}
