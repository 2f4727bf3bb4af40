//! Tests of moves of 8x8 matrices of 16-bit elements between shared memory and lanes, and of copies to shared
//! memory.

use crate::case::{Case, vector};
use crate::device::{Params, Shape};

/// Distance in bytes between rows in shared memory. It differs from the size of a row, so that wrong
/// addresses are detected.
const PITCH: u32 = 48;

/// Returns the word of matrix `index` that a lane holds, by rows or by columns. Element `(row, column)` of a
/// matrix is `256 * index + 16 * row + column`.
fn word(index: u32, lane: u32, columns: bool) -> u32 {
    let element = |i: u32| {
        let (row, column) = (lane / 4, 2 * (lane % 4) + i);
        let (row, column) = if columns { (column, row) } else { (row, column) };
        256 * index + 16 * row + column
    };
    element(0) | element(1) << 16
}

/// Returns the PTX with which every kernel in this file starts. `%t` is the lane, `%row` the address of its
/// row in shared memory, and `%g` the generic address of that row. `%i` and `%o` are the addresses of its 16
/// bytes of input and of output.
fn prologue() -> String {
    format!(
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %i, %o, %x, %g;\n.reg .b32 %t, %row, %v<4>, %z;\n\
         .shared .align 16 .b8 tile[{}];\n\
         ld.param.u64 %i, [in];\nld.param.u64 %o, [out];\nmov.u32 %t, %tid.x;\nmul.lo.u32 %row, %t, {PITCH};\n\
         mov.u32 %z, tile;\nadd.u32 %row, %row, %z;\ncvt.u64.u32 %g, %row;\ncvta.shared.u64 %g, %g;\n\
         mul.wide.u32 %x, %t, 16;\nadd.s64 %i, %i, %x;\nadd.s64 %o, %o, %x;\n",
        32 * PITCH
    )
}

/// Iterates over all forms of the instructions: the number of matrices, whether they are by columns, and the
/// state space in the spelling.
fn forms() -> impl Iterator<Item = (u32, bool, &'static str)> {
    [1, 2, 4].into_iter().flat_map(|count| {
        [false, true].into_iter().flat_map(move |trans| ["", ".shared"].map(|space| (count, trans, space)))
    })
}

fn load(count: u32, trans: bool, space: &str) -> Case {
    let spelling =
        format!("ldmatrix.sync.aligned.m8n8.x{count}{}{space}.b16", if trans { ".trans" } else { "" });
    let address = if space.is_empty() { "%g" } else { "%row" };
    let stores: String = (0..count).map(|i| format!("st.global.b32 [%o+{}], %v{i};\n", 4 * i)).collect();
    // Each lane fills the row that it names, which has 16 bytes.
    let text = format!(
        "{}ld.global.v4.b32 {}, [%i];\nst.shared.v4.b32 [%row], {};\nbar.sync 0;\n{spelling} {}, [{address}];\n{stores}ret;\n}}\n",
        prologue(),
        vector("v", 4),
        vector("v", 4),
        vector("v", count as usize)
    );
    Case::new(&spelling, &spelling, &text, move |device| {
        // Row `r` of matrix `i` is what lane `8 i + r` writes.
        let rows: Vec<u32> =
            (0..32).flat_map(|lane| (0..4).map(move |i| word(lane / 8, lane % 8 * 4 + i, false))).collect();
        let input = device.upload_words(&rows);
        let out = device.allocate(32 * 16);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(input).u64(out))?;
        let got = device.read_words(out, 32 * 4);
        for (lane, words) in (0..).zip(got.chunks(4)) {
            let expected: Vec<u32> = (0..count).map(|index| word(index, lane, trans)).collect();
            if words[..count as usize] != expected {
                return Err(format!("lane {lane}: {words:x?}, should be {expected:x?}"));
            }
        }
        Ok(())
    })
}

fn store(count: u32, trans: bool, space: &str) -> Case {
    let spelling =
        format!("stmatrix.sync.aligned.m8n8.x{count}{}{space}.b16", if trans { ".trans" } else { "" });
    let address = if space.is_empty() { "%g" } else { "%row" };
    let text = format!(
        "{}ld.global.v4.b32 {}, [%i];\n{spelling} [{address}], {};\nbar.sync 0;\nld.shared.v4.b32 {}, [%row];\nst.global.v4.b32 [%o], {};\nret;\n}}\n",
        prologue(),
        vector("v", 4),
        vector("v", count as usize),
        vector("v", 4),
        vector("v", 4)
    );
    Case::new(&spelling, &spelling, &text, move |device| {
        let words: Vec<u32> =
            (0..32).flat_map(|lane| (0..4).map(move |index| word(index, lane, trans))).collect();
        let input = device.upload_words(&words);
        let out = device.allocate(32 * 16);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(input).u64(out))?;
        let got = device.read_words(out, 32 * 4);
        for (lane, words) in (0..).zip(got.chunks(4)) {
            // Rows that no matrix has stay zero.
            let expected: Vec<u32> = (0..4)
                .map(|i| if lane < 8 * count { word(lane / 8, lane % 8 * 4 + i, false) } else { 0 })
                .collect();
            if words != expected {
                return Err(format!("row {lane}: {words:x?}, should be {expected:x?}"));
            }
        }
        Ok(())
    })
}

fn transpose() -> Case {
    let spelling = "movmatrix.sync.aligned.m8n8.trans.b16";
    let text = format!(
        "{}ld.global.b32 %v0, [%i];\n{spelling} %v0, %v0;\nst.global.b32 [%o], %v0;\nret;\n}}\n",
        prologue()
    );
    Case::new(spelling, spelling, &text, |device| {
        let words: Vec<u32> = (0..32).flat_map(|lane| [word(3, lane, false), 0, 0, 0]).collect();
        let input = device.upload_words(&words);
        let out = device.allocate(32 * 16);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(input).u64(out))?;
        let got = device.read_words(out, 32 * 4);
        for (lane, words) in (0..).zip(got.chunks(4)) {
            if words[0] != word(3, lane, true) {
                return Err(format!("lane {lane}: {:x}, should be {:x}", words[0], word(3, lane, true)));
            }
        }
        Ok(())
    })
}

/// Returns a test of `cp.async`, completed by each method of waiting. `size` is the number of bytes that come
/// from global memory.
fn copy(bytes: u32, spelling: &'static str, size: Option<u32>) -> Case {
    let (name, more) = match size {
        Some(size) => (format!("{spelling} {bytes} of which {size}"), format!(", {size}")),
        None => (format!("{spelling} {bytes}"), String::new()),
    };
    let covers = format!("{spelling} cp.async.commit_group cp.async.wait_group cp.async.wait_all");
    let text = format!(
        "{}mov.b32 %v0, -1;\nst.shared.v4.b32 [%row+16], {{%v0, %v0, %v0, %v0}};\n{spelling} [%row+16], [%i], {bytes}{more};\n\
         cp.async.commit_group ;\ncp.async.wait_group 0;\ncp.async.wait_all ;\nld.shared.v4.b32 {}, [%row+16];\nst.global.v4.b32 [%o], {};\nret;\n}}\n",
        prologue(),
        vector("v", 4),
        vector("v", 4)
    );
    Case::new(&name, &covers, &text, move |device| {
        let words: Vec<u32> = (0..128).map(|i| 0x0101_0101 * (i + 1)).collect();
        let input = device.upload_words(&words);
        let out = device.allocate(32 * 16);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(input).u64(out))?;
        let got = device.read_words(out, 128);
        for (at, got) in got.into_iter().enumerate() {
            let from = 4 * (at as u32 % 4);
            let byte = |i: u32| match from + i {
                i if i >= bytes => 0xff,
                i if i >= size.unwrap_or(bytes) => 0,
                _ => at as u32 + 1,
            };
            let expected = (0..4).fold(0, |word, i| word | byte(i) << (8 * i));
            if got != expected {
                return Err(format!("word {at}: {got:x}, should be {expected:x}"));
            }
        }
        Ok(())
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    cases.extend(forms().map(|(count, trans, space)| load(count, trans, space)));
    cases.extend(forms().map(|(count, trans, space)| store(count, trans, space)));
    cases.extend([
        transpose(),
        copy(4, "cp.async.ca.shared.global", None),
        copy(8, "cp.async.ca.shared.global.L2::128B", None),
        copy(16, "cp.async.ca.shared.global", None),
        copy(16, "cp.async.cg.shared.global", None),
        copy(16, "cp.async.cg.shared.global.L2::256B", None),
        copy(16, "cp.async.cg.shared.global", Some(0)),
        copy(16, "cp.async.cg.shared.global", Some(7)),
        copy(8, "cp.async.ca.shared.global", Some(16)),
    ]);
}
