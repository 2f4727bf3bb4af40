//! Tests of loops over arrays whose last iteration has few active lanes, all of them in the lower half of
//! their warp. Machine code omits the upper half there.

use crate::case::Case;
use crate::device::{Params, Shape, same};

/// PTX of a kernel in which each thread starts at the element whose index differs from its own in the bits of
/// `%k`.
const TEXT: &str = ".visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n, .param .u32 k)\n{\n\
    .reg .b64 %in, %out, %a, %b;\n.reg .b32 %t, %i, %n, %k, %s, %w, %x, %y, %z, %v;\n.reg .b16 %h;\n.reg .pred %p, %q;\n\
    ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nld.param.u32 %n, [n];\nld.param.u32 %k, [k];\n\
    mov.u32 %t, %tid.x;\nmov.u32 %s, %ntid.x;\nxor.b32 %i, %t, %k;\nmov.u32 %x, 0;\n\
    LOOP:\nsetp.ge.u32 %p, %i, %n;\n@%p bra DONE;\n\
    mul.wide.u32 %a, %i, 4;\nadd.s64 %b, %a, %in;\nld.global.u32 %w, [%b];\n\
    add.s64 %b, %b, %a;\nld.global.v2.u32 {%y, %z}, [%b];\n\
    mul.wide.u32 %b, %i, 2;\nadd.s64 %b, %b, %in;\nld.global.u16 %h, [%b];\ncvt.u32.u16 %v, %h;\nadd.u32 %x, %x, %v;\n\
    shr.u32 %v, %w, 8;\nand.b32 %v, %v, 255;\nxor.b32 %v, %v, %y;\nadd.u32 %x, %x, %v;\nmad.lo.u32 %x, %z, 3, %x;\n\
    shl.b32 %v, %x, 5;\nxor.b32 %x, %x, %v;\ndp4a.s32.s32 %x, %w, %y, %x;\n\
    setp.gt.u32 %q, %w, %y;\nselp.b32 %v, %w, %z, %q;\nadd.u32 %x, %x, %v;\n\
    add.s64 %a, %a, %out;\nst.global.u32 [%a], %x;\nadd.u32 %i, %i, %s;\nbra LOOP;\n\
    DONE:\nadd.u32 %v, %t, %n;\nmul.wide.u32 %a, %v, 4;\nadd.s64 %a, %a, %out;\nst.global.u32 [%a], %x;\nret;\n}\n";

/// Returns the result of one iteration for an element, given the sum before it.
fn round(words: &[u32], at: usize, before: u32) -> u32 {
    let (word, [first, second]) = (words[at], [words[2 * at], words[2 * at + 1]]);
    let short = words[at / 2] >> (16 * (at % 2)) & 0xffff;
    let sum = before.wrapping_add(short).wrapping_add(word >> 8 & 255 ^ first);
    let sum = sum.wrapping_add(second.wrapping_mul(3));
    let sum = sum ^ sum << 5;
    let products = word.to_le_bytes().into_iter().zip(first.to_le_bytes());
    let dot: i32 = products.map(|(a, b)| i32::from(a.cast_signed()) * i32::from(b.cast_signed())).sum();
    sum.wrapping_add(dot.cast_unsigned()).wrapping_add(if word > first { word } else { second })
}

fn case(threads: u32, n: u32, k: u32) -> Case {
    let name = format!("{n} elements, {threads} threads from {k}");
    Case::new(&name, "dp4a.s32.s32", TEXT, move |device| {
        let words: Vec<u32> =
            (0..2 * n).map(|at| at.wrapping_mul(0x9e37_79b9).rotate_left(at % 32) ^ 0x5bd1).collect();
        let input = device.upload_words(&words);
        let results = device.allocate(4 * u64::from(n + threads));
        let params = Params::new().u64(input).u64(results).u32(n).u32(k);
        device.launch("k", Shape::line(1, threads), &params)?;
        let mut wanted = vec![0; (n + threads) as usize];
        for thread in 0..threads {
            let mut sum = 0;
            for at in ((thread ^ k)..n).step_by(threads as usize) {
                sum = round(&words, at as usize, sum);
                wanted[at as usize] = sum;
            }
            wanted[(n + thread) as usize] = sum;
        }
        same("words", &device.read_words(results, u64::from(n + threads)), &wanted)
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    for threads in [8, 16, 32, 64] {
        for (left, k) in [(1, 0), (3, 0), (3, 5), (7, 7)] {
            cases.push(case(threads, threads + left, k));
            cases.push(case(threads, 3 * threads + left, k));
        }
    }
    // The upper half of the warp continues alone, or both halves do.
    cases.extend([case(32, 48, 16), case(64, 75, 16), case(32, 59, 0)]);
}
