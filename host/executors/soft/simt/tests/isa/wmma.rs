//! Tests of `wmma`: matrices are loaded, multiplied and stored. The distribution of elements over the lanes
//! is unspecified.

#![allow(clippy::cast_sign_loss, reason = "elements are taken as bits")]

use crate::case::{Case, vector};
use crate::device::{Params, Shape};
use crate::matrix::to_half;
use crate::values::Random;

/// A product, and the layout of its matrices in memory.
#[derive(Clone, Copy)]
struct WmmaProduct {
    /// Sizes m, n and k of the product.
    shape: [usize; 3],
    /// Whether A, B, C and D are stored by columns.
    by_columns: [bool; 4],
    /// Type of the elements of A and B.
    input: &'static str,
    /// Types of the elements of C and D.
    types: [&'static str; 2],
    /// Whether sums of integers saturate.
    saturates: bool,
    /// Number of elements between the end of a matrix line and the start of the next. `None` omits the
    /// stride.
    gap: Option<usize>,
    /// Whether B is in shared memory.
    shared: bool,
}

impl WmmaProduct {
    /// Returns the numbers of rows and columns of A, B, C and D.
    const fn sizes(self) -> [(usize, usize); 4] {
        let [m, n, k] = self.shape;
        [(m, k), (k, n), (m, n), (m, n)]
    }

    /// Returns the number of elements from one line of a matrix to the next.
    fn stride(self, matrix: usize) -> usize {
        let (rows, columns) = self.sizes()[matrix];
        (if self.by_columns[matrix] { rows } else { columns }) + self.gap.unwrap_or(0)
    }

    /// Returns the position of an element in memory, as a number of elements.
    fn place(self, matrix: usize, row: usize, column: usize) -> usize {
        let (line, within) = if self.by_columns[matrix] { (column, row) } else { (row, column) };
        line * self.stride(matrix) + within
    }

    /// Returns the type of the elements of A, B, C or D.
    fn ty(self, matrix: usize) -> &'static str {
        if matrix < 2 { self.input } else { self.types[matrix - 2] }
    }

    /// Returns the number of registers of a lane's fragment of A, B, C or D (PTX ISA, "Matrix Fragments for
    /// WMMA").
    fn registers(self, matrix: usize) -> usize {
        if matrix < 2 && self.input == "f16" {
            return 8;
        }
        let (rows, columns) = self.sizes()[matrix];
        (rows * columns * bits(self.ty(matrix)) / 32).div_ceil(bits(self.ty(matrix)).max(32))
    }

    /// Draws an element of A, B or C.
    fn draw(self, matrix: usize, random: &mut Random) -> i64 {
        match self.ty(matrix) {
            "s8" => random.below(256) as i64 - 128,
            "u8" => random.below(256) as i64,
            "s4" => random.below(16) as i64 - 8,
            "u4" => random.below(16) as i64,
            // Sums beyond both ends, if they saturate.
            "s32" if self.saturates => {
                let near = random.below(1000) as i64;
                if random.below(2) == 0 { i64::from(i32::MAX) - near } else { i64::from(i32::MIN) + near }
            }
            _ => random.below(17) as i64 - 8,
        }
    }
}

/// Returns the size of an element in bits.
fn bits(ty: &str) -> usize {
    match ty {
        "s4" | "u4" => 4,
        "s8" | "u8" => 8,
        "f16" | "bf16" => 16,
        "f64" => 64,
        _ => 32,
    }
}

/// Returns the bits of a whole number as an element.
fn encode(ty: &str, value: i64) -> u64 {
    match ty {
        "f16" => to_half(value as f64).into(),
        "bf16" => u64::from((value as f32).to_bits() >> 16),
        "f32" | "tf32" => (value as f32).to_bits().into(),
        "f64" => (value as f64).to_bits(),
        ty => value as u64 & (u64::MAX >> (64 - bits(ty))),
    }
}

/// Writes an element at its place, which is counted in elements.
fn put(bytes: &mut [u8], ty: &str, place: usize, value: i64) {
    let element = encode(ty, value).to_le_bytes();
    let size = bits(ty) / 8;
    if size == 0 {
        bytes[place / 2] |= element[0] << (4 * (place % 2));
    } else {
        bytes[size * place..][..size].copy_from_slice(&element[..size]);
    }
}

/// Size in bytes of each matrix's area in the test's memory.
const ROOM: usize = 8192;

fn case(product: WmmaProduct) -> Case {
    let [m, n, k] = product.shape;
    let shape = format!("m{m}n{n}k{k}");
    let layout = product.by_columns.map(|columns| if columns { "col" } else { "row" });
    let (input, ty) = (product.input, product.types);
    let count = [0, 1, 2, 3].map(|matrix| product.registers(matrix));
    let reg = |matrix| if bits(product.ty(matrix)) == 64 { "b64" } else { "b32" };
    let space = if product.shared { "shared" } else { "global" };
    let load_a = format!("wmma.load.a.sync.aligned.{}.{shape}.global.{input}", layout[0]);
    let load_b = format!("wmma.load.b.sync.aligned.{}.{shape}.{space}.{input}", layout[1]);
    let load_c = format!("wmma.load.c.sync.aligned.{}.{shape}.{}", layout[2], ty[0]);
    let inputs = if input == "f16" { String::new() } else { format!(".{input}.{input}") };
    let multiply = format!(
        "wmma.mma.sync.aligned.{}.{}.{shape}.{}{inputs}.{}{}",
        layout[0],
        layout[1],
        ty[1],
        ty[0],
        if product.saturates { ".satfinite" } else { "" },
    );
    let store = format!("wmma.store.d.sync.aligned.{}.{shape}.global.{}", layout[3], ty[1]);
    let stride = |matrix| match product.gap {
        // The stride is a constant, or for one matrix a register.
        Some(_) if matrix == 1 => ", %n".to_owned(),
        Some(_) => format!(", {}", product.stride(matrix)),
        None => String::new(),
    };
    let b = if product.shared { "%s" } else { "%p+8192" };
    let text = format!(
        ".visible .entry k(.param .u64 in)\n{{\n.reg .b64 %p, %q, %g;\n.reg .b32 %t, %s, %n, %v;\n.reg .{} %a<8>, %b<8>;\n.reg .{} %c<8>, %d<8>;\n.reg .pred %e;\n\
         .shared .align 16 .b8 room[{ROOM}];\n\
         ld.param.u64 %p, [in];\nmov.u32 %t, %tid.x;\nmov.u32 %s, room;\nmov.u32 %n, {};\n\
         mul.lo.u32 %t, %t, 4;\nCOPY:\ncvt.u64.u32 %q, %t;\nadd.s64 %q, %q, %p;\nld.global.b32 %v, [%q+{ROOM}];\n\
         add.u32 %v, %v, 0;\nadd.u32 %s, %s, %t;\nst.shared.b32 [%s], %v;\nsub.u32 %s, %s, %t;\n\
         add.u32 %t, %t, 128;\nsetp.lt.u32 %e, %t, {ROOM};\n@%e bra COPY;\nbar.sync 0;\n\
         {load_a} {}, [%p]{};\n{load_b} {}, [{b}]{};\nadd.s64 %g, %p, {};\n{load_c} {}, [%g]{};\n\
         {multiply} {}, {}, {}, {};\n{store} [%p+{}], {}{};\nret;\n}}\n",
        reg(0),
        reg(2),
        product.stride(1),
        vector("a", count[0]),
        stride(0),
        vector("b", count[1]),
        stride(1),
        2 * ROOM,
        vector("c", count[2]),
        stride(2),
        vector("d", count[3]),
        vector("a", count[0]),
        vector("b", count[1]),
        vector("c", count[2]),
        3 * ROOM,
        vector("d", count[3]),
        stride(3),
    );
    let name = format!("{load_a} {load_b} {load_c} {multiply} {store} {:?}", product.gap);
    let covers = format!("{load_a} {load_b} {load_c} {multiply} {store}");
    Case::new(&name, &covers, &text, move |device| {
        let mut random = Random::new(3);
        let matrices = [0, 1, 2].map(|matrix| {
            let (rows, columns) = product.sizes()[matrix];
            (0..rows * columns).map(|_| product.draw(matrix, &mut random)).collect::<Vec<_>>()
        });
        let mut bytes = vec![0_u8; 4 * ROOM];
        for (matrix, values) in matrices.iter().enumerate() {
            let (_, columns) = product.sizes()[matrix];
            for (at, value) in values.iter().enumerate() {
                let place = product.place(matrix, at / columns, at % columns);
                put(&mut bytes[ROOM * matrix..], product.ty(matrix), place, *value);
            }
        }
        let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let memory = device.upload_words(&words);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(memory))?;
        let got = device.read_words(memory + 3 * ROOM as u64, ROOM as u64 / 4);
        let got: Vec<u8> = got.into_iter().flat_map(u32::to_le_bytes).collect();
        let mut expected = vec![0_u8; ROOM];
        for row in 0..m {
            for column in 0..n {
                let terms = (0..k).map(|at| matrices[0][row * k + at] * matrices[1][at * n + column]);
                let mut sum = matrices[2][row * n + column] + terms.sum::<i64>();
                if product.saturates {
                    sum = sum.clamp(i32::MIN.into(), i32::MAX.into());
                }
                put(&mut expected, product.ty(3), product.place(3, row, column), sum);
            }
        }
        match (0..ROOM).find(|&at| got[at] != expected[at]) {
            Some(at) => Err(format!("byte {at} of D is {}, should be {}", got[at], expected[at])),
            None => Ok(()),
        }
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    for shape in [[16, 16, 16], [8, 32, 16], [32, 8, 16]] {
        for layouts in 0..4 {
            let by_columns = [layouts & 1 != 0, layouts & 2 != 0, layouts & 1 == 0, layouts & 2 != 0];
            let shared = layouts & 1 == 0;
            for (types, gap) in [
                (["f32", "f32"], None),
                (["f16", "f32"], Some(8)),
                (["f32", "f16"], Some(0)),
                (["f16", "f16"], None),
            ] {
                let input = "f16";
                cases.push(case(WmmaProduct {
                    shape,
                    by_columns,
                    input,
                    types,
                    saturates: false,
                    gap,
                    shared,
                }));
            }
            for (input, types, saturates, gap) in [
                ("s8", ["s32"; 2], false, None),
                ("s8", ["s32"; 2], true, Some(16)),
                ("u8", ["s32"; 2], false, Some(32)),
                ("u8", ["s32"; 2], true, None),
                ("bf16", ["f32"; 2], false, Some(8)),
            ] {
                cases.push(case(WmmaProduct { shape, by_columns, input, types, saturates, gap, shared }));
            }
        }
    }
    for layouts in 0..4 {
        let by_columns = [layouts & 1 != 0, layouts & 2 != 0, layouts & 1 == 0, layouts & 2 != 0];
        let shared = layouts & 1 == 0;
        for (input, shape, ty, gap) in [
            ("tf32", [16, 16, 8], "f32", Some(8)),
            ("tf32", [16, 16, 8], "f32", None),
            ("f64", [8, 8, 4], "f64", Some(2)),
        ] {
            let types = [ty; 2];
            cases.push(case(WmmaProduct { shape, by_columns, input, types, saturates: false, gap, shared }));
        }
        for (input, saturates, gap) in
            [("s4", false, None), ("s4", true, Some(32)), ("u4", false, Some(64)), ("u4", true, None)]
        {
            let (shape, types) = ([8, 8, 32], ["s32"; 2]);
            let by_columns = [false, true, by_columns[2], by_columns[3]];
            cases.push(case(WmmaProduct { shape, by_columns, input, types, saturates, gap, shared }));
        }
    }
}
