//! Tests of PTX instructions that the engine fuses. Their results and faults must be those of the separate
//! instructions.

use std::fmt::Write as _;

use vgpu_simt::Fault;

use crate::case::Case;
use crate::device::{Device, Params, Shape};
use crate::values::Random;

/// Number of threads in the block. The second warp is not full.
const THREADS: u32 = 38;
/// Number of words that a thread reads, and also of results that it stores.
const WORDS: u32 = 4;

/// Returns a kernel whose threads have the address of their words in `%a` and that of their results in `%o`.
fn kernel(code: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %a, %o, %d;\n.reg .b32 %t, %r<200>;\n\
         .reg .b16 %h<20>;\n.reg .f32 %f<20>;\n.reg .pred %p;\n\
         ld.param.u64 %a, [in];\nld.param.u64 %o, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %d, %t, {};\n\
         add.s64 %a, %a, %d;\nadd.s64 %o, %o, %d;\n{code}ret;\n}}\n",
        4 * WORDS
    )
}

/// Launches the kernel and returns the words of all threads, and their results.
fn results(device: &mut Device) -> Result<(Vec<u32>, Vec<u32>), String> {
    let mut random = Random::new(7);
    let words: Vec<u32> = (0..THREADS * WORDS).map(|_| random.bits() as u32).collect();
    let from = device.upload_words(&words);
    let to = device.allocate(u64::from(4 * THREADS * WORDS));
    device.launch("k", Shape::line(1, THREADS), &Params::new().u64(from).u64(to))?;
    Ok((words, device.read_words(to, u64::from(THREADS * WORDS))))
}

/// Compares the results of each thread with those that a function computes from its words.
fn agree(device: &mut Device, of: impl Fn(&[u32]) -> Vec<u32>) -> Result<(), String> {
    let (words, results) = results(device)?;
    let chunks = words.chunks(WORDS as usize).zip(results.chunks(WORDS as usize));
    for (thread, (words, results)) in chunks.enumerate() {
        let expected = of(words);
        if results[..expected.len()] != expected {
            return Err(format!("thread {thread}: {results:x?} of {words:x?}, should be {expected:x?}"));
        }
    }
    Ok(())
}

/// An instruction of a random chain. `b` is a constant or the index of another source.
#[derive(Clone, Copy)]
struct Link {
    dst: usize,
    op: &'static str,
    a: usize,
    b: u32,
}

/// Draws a random chain of instructions. Registers 0 to 3 are the thread's words. Most instructions read
/// results that no other has read.
fn chain(seed: u64) -> Vec<Link> {
    let mut random = Random::new(seed);
    let (mut links, mut unread) = (Vec::new(), Vec::new());
    for dst in WORDS as usize..WORDS as usize + 24 {
        let source = |random: &mut Random, unread: &mut Vec<usize>| {
            if unread.is_empty() || random.below(3) == 0 {
                return random.below(WORDS.into()) as usize;
            }
            let index = random.below(unread.len() as u64) as usize;
            // Some results are read more than once.
            if random.below(8) == 0 { unread[index] } else { unread.swap_remove(index) }
        };
        let a = source(&mut random, &mut unread);
        let (op, b) = match random.below(7) {
            0 | 1 => ("and.b32", random.bits() as u32 | 1 << random.below(32)),
            2 => ("shl.b32", random.below(34) as u32),
            3 => ("shr.u32", random.below(34) as u32),
            4 if random.below(4) == 0 => ("shr.s32", random.below(34) as u32),
            5 if random.below(4) == 0 => ("xor.b32", random.bits() as u32),
            _ => ("or.b32", source(&mut random, &mut unread) as u32),
        };
        // Some registers are written twice.
        let dst = if random.below(12) == 0 && dst > 6 { dst - 1 } else { dst };
        links.push(Link { dst, op, a, b });
        unread.push(dst);
    }
    links
}

fn compute(links: &[Link], words: &[u32]) -> Vec<u32> {
    let mut values = vec![0; 64];
    values[..words.len()].copy_from_slice(words);
    for &Link { dst, op, a, b } in links {
        let a = values[a];
        values[dst] = match op {
            "and.b32" => a & b,
            "xor.b32" => a ^ b,
            "shl.b32" => a.checked_shl(b).unwrap_or(0),
            "shr.u32" => a.checked_shr(b).unwrap_or(0),
            "shr.s32" => (a as i32 >> b.min(31)) as u32,
            _ => a | values[b as usize],
        };
    }
    // The results are the last one, and a mixture of all.
    let all = values[WORDS as usize..].iter().fold(0, |all: u32, value| all.rotate_left(5) ^ value);
    let last = links.last().map_or(0, |link| values[link.dst]);
    vec![last, all]
}

fn chains(cases: &mut Vec<Case>) {
    for seed in 0..60 {
        let links = chain(seed);
        let mut code = "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%a];\n".to_owned();
        for register in WORDS..64 {
            let _ = writeln!(code, "mov.u32 %r{register}, 0;");
        }
        for &Link { dst, op, a, b } in &links {
            let other = if op == "or.b32" { format!("%r{b}") } else { format!("{b}") };
            let _ = writeln!(code, "{op} %r{dst}, %r{a}, {other};");
        }
        let last = links.last().map_or(0, |link| link.dst);
        let _ = writeln!(code, "st.global.u32 [%o], %r{last};");
        if seed % 2 == 0 {
            // In the other programs most results are read once, or never.
            code.push_str("mov.u32 %r100, 0;\n");
            for register in WORDS..64 {
                let _ = writeln!(
                    code,
                    "shf.l.wrap.b32 %r100, %r100, %r100, 5;\nxor.b32 %r100, %r100, %r{register};"
                );
            }
            code.push_str("st.global.u32 [%o+4], %r100;\n");
        }
        cases.push(Case::new(&format!("bit fields {seed}"), "", &kernel(&code), move |device| {
            agree(device, |words| compute(&links, words)[..if seed % 2 == 0 { 2 } else { 1 }].to_vec())
        }));
    }
    // A chain that assembles values of five bits, as kernels do, in a loop that some threads leave early.
    let code = "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%a];\nmov.u32 %r20, 0;\nmov.u32 %r21, 0;\nLOOP:\n\
         and.b32 %r4, %r0, 252645135;\nshl.b32 %r5, %r1, 4;\nand.b32 %r6, %r5, 16;\nor.b32 %r7, %r6, %r4;\n\
         shl.b32 %r8, %r1, 11;\nand.b32 %r9, %r8, 4096;\nor.b32 %r10, %r7, %r9;\nshr.u32 %r11, %r1, 5;\n\
         and.b32 %r12, %r11, 1048576;\nor.b32 %r20, %r10, %r12;\nadd.u32 %r1, %r1, %r20;\nadd.u32 %r21, %r21, 1;\n\
         and.b32 %r22, %t, 3;\nsetp.le.u32 %p, %r21, %r22;\n@%p bra LOOP;\nst.global.u32 [%o], %r20;\nst.global.u32 [%o+4], %r21;\n";
    cases.push(Case::new("bit fields in a loop", "", &kernel(code), |device| {
        let (words, results) = results(device)?;
        for thread in 0..THREADS as usize {
            let (low, mut high) = (words[4 * thread], words[4 * thread + 1]);
            let mut word = 0;
            for _ in 0..=thread & 3 {
                word = low & 0x0f0f_0f0f | high << 4 & 16 | high << 11 & 4096 | high >> 5 & 1 << 20;
                high = high.wrapping_add(word);
            }
            let expected = [word, (thread as u32 & 3) + 1];
            if results[4 * thread..][..2] != expected {
                return Err(format!(
                    "thread {thread}: {:x?}, not {expected:x?}",
                    &results[4 * thread..][..2]
                ));
            }
        }
        Ok(())
    }));
}

fn neighbours(cases: &mut Vec<Case>) {
    for (name, code) in [
        (
            "words in order",
            "ld.global.u32 %r0, [%a];\nld.global.u32 %r1, [%a+4];\nld.global.u32 %r2, [%a+8];\nld.global.u32 %r3, [%a+12];\n",
        ),
        (
            "words in another order",
            "ld.global.u32 %r3, [%a+12];\nld.global.u32 %r1, [%a+4];\nld.global.u32 %r0, [%a];\nld.global.u32 %r2, [%a+8];\n",
        ),
        (
            "words at an odd multiple of four",
            "add.s64 %d, %a, 4;\nld.global.u32 %r1, [%d];\nld.global.u32 %r2, [%d+4];\nld.global.u32 %r0, [%d+-4];\nld.global.u32 %r3, [%d+8];\n",
        ),
        (
            "halves",
            "ld.global.u32 %r0, [%a];\nld.global.u16 %h0, [%a+4];\nld.global.u16 %h1, [%a+6];\nmov.b32 %r1, {%h0, %h1};\n\
             ld.global.u16 %h2, [%a+8];\nld.global.u16 %h3, [%a+10];\nmov.b32 %r2, {%h2, %h3};\nld.global.u32 %r3, [%a+12];\n",
        ),
        (
            "halves that are not words",
            "ld.global.u16 %h0, [%a+2];\nld.global.u16 %h1, [%a+4];\nmov.b32 %r10, {%h0, %h1};\n\
             ld.global.u16 %h2, [%a+6];\nld.global.u16 %h3, [%a+8];\nmov.b32 %r11, {%h2, %h3};\n\
             ld.global.u32 %r0, [%a];\nld.global.u32 %r3, [%a+12];\nshf.l.wrap.b32 %r1, %r10, %r11, 16;\nshr.u32 %r12, %r11, 16;\n\
             ld.global.u16 %h4, [%a+10];\ncvt.u32.u16 %r13, %h4;\nshl.b32 %r13, %r13, 16;\nor.b32 %r2, %r12, %r13;\n",
        ),
    ] {
        let text = kernel(&format!("{code}st.global.v4.u32 [%o], {{%r0, %r1, %r2, %r3}};\n"));
        cases.push(Case::new(name, "", &text, |device| agree(device, <[u32]>::to_vec)));
    }
    // A load whose address another load returns, and one that overwrites its own address.
    let code = "ld.global.u32 %r0, [%a];\nst.global.u64 [%o+8], %a;\nld.global.u64 %d, [%o+8];\nld.global.u32 %r1, [%d+4];\n\
         ld.global.u32 %r2, [%d];\nst.global.v2.u32 [%o], {%r1, %r2};\n";
    cases.push(Case::new("words at an address that was loaded", "", &kernel(code), |device| {
        agree(device, |words| vec![words[1], words[0]])
    }));
    for (name, first, second, marker) in [
        ("the second word is beyond", "ld.global.u32 %r0, [%a];", "ld.global.u32 %r1, [%a+4];", "%r1, ["),
        (
            "the second pair is beyond",
            "ld.global.u16 %h0, [%a];\nld.global.u16 %h1, [%a+2];\nmov.b32 %r0, {%h0, %h1};",
            "ld.global.u16 %h2, [%a+4];\nld.global.u16 %h3, [%a+6];\nmov.b32 %r1, {%h2, %h3};",
            "%h2, [",
        ),
    ] {
        let text = kernel(&format!("{first}\n{second}\nst.global.v2.u32 [%o], {{%r0, %r1}};\n"));
        let case = Case::new(name, "", &text, |_| Ok(()));
        let at = case.text.find(marker).expect("the text has the marker");
        let line = 1 + case.text[..at].matches('\n').count() as u32;
        let check = move |device: &mut Device| {
            // The last thread has only one word, so that its other accesses are out of bounds.
            let bytes = u64::from(4 * WORDS * (THREADS - 1) + 4);
            let from = device.allocate(bytes);
            let to = device.allocate(u64::from(4 * THREADS * WORDS));
            let params = Params::new().u64(from).u64(to);
            match device.try_launch("k", Shape::line(1, THREADS), &params)? {
                Err(Fault::Illegal { address, write: false, site })
                    if address == from + bytes && site.line == line && site.thread == [THREADS - 1, 0, 0] =>
                {
                    Ok(())
                }
                other => Err(format!("{other:?}, should be a fault at {:#x}, line {line}", from + bytes)),
            }
        };
        cases.push(Case { check: Box::new(check), ..case });
    }
}

fn conversions(cases: &mut Vec<Case>) {
    let convert = |half: u32| half::f16::from_bits(half as u16).to_f32();
    let again = "ld.global.u32 %r0, [%a];\nand.b32 %r0, %r0, 0x7bff7bff;\n\
         { .reg .b16 low, high; mov.b32 {low, high}, %r0; cvt.f32.f16 %f0, low; }\n\
         { .reg .b16 low, high; mov.b32 {low, high}, %r0; cvt.f32.f16 %f1, high; }\n";
    let code = format!(
        "{again}{{ .reg .b16 low, high; mov.b32 {{low, high}}, %r0; mov.b16 %h0, low; }}\ncvt.f32.f16 %f2, %h0;\n\
         {{ .reg .b16 low, high; mov.b32 {{low, high}}, %r0; cvt.f32.f16 %f3, high; }}\n\
         st.global.v4.f32 [%o], {{%f0, %f1, %f2, %f3}};\n"
    );
    cases.push(Case::new("repeated conversions", "", &kernel(&code), move |device| {
        agree(device, |words| {
            let word = words[0] & 0x7bff_7bff;
            let [low, high] = [convert(word & 0xffff), convert(word >> 16)].map(f32::to_bits);
            vec![low, high, low, high]
        })
    }));
    // The word is changed between the instructions, and then the first result.
    let code = format!(
        "{again}xor.b32 %r0, %r0, 0x00010001;\n\
         {{ .reg .b16 low, high; mov.b32 {{low, high}}, %r0; cvt.f32.f16 %f2, low; }}\nmov.f32 %f4, %f2;\nadd.f32 %f2, %f2, %f2;\n\
         {{ .reg .b16 low, high; mov.b32 {{low, high}}, %r0; cvt.f32.f16 %f3, low; }}\n\
         st.global.v4.f32 [%o], {{%f0, %f2, %f3, %f4}};\n"
    );
    cases.push(Case::new("conversions that are no repetitions", "", &kernel(&code), move |device| {
        agree(device, |words| {
            let word = words[0] & 0x7bff_7bff;
            let (before, after) = (convert(word & 0xffff), convert((word ^ 1) & 0xffff));
            [before, after + after, after, after].map(f32::to_bits).to_vec()
        })
    }));
}

pub fn cases(cases: &mut Vec<Case>) {
    chains(cases);
    neighbours(cases);
    conversions(cases);
}
