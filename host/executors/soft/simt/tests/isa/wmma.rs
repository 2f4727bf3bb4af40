//! Tests of `wmma`: matrices are loaded, multiplied and stored. The distribution of elements over the lanes
//! is unspecified.

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
    /// Whether C and D are of single precision.
    single: [bool; 2],
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

    /// Returns the size of an element of C or D in bytes.
    const fn size(self, d: bool) -> usize {
        if self.single[d as usize] { 4 } else { 2 }
    }
}

/// Size in bytes of each matrix's area in the test's memory.
const ROOM: usize = 8192;

fn case(product: WmmaProduct) -> Case {
    let [m, n, k] = product.shape;
    let shape = format!("m{m}n{n}k{k}");
    let layout = product.by_columns.map(|columns| if columns { "col" } else { "row" });
    let ty = product.single.map(|single| if single { "f32" } else { "f16" });
    let count = product.single.map(|single| if single { 8 } else { 4 });
    let space = if product.shared { "shared" } else { "global" };
    let load_a = format!("wmma.load.a.sync.aligned.{}.{shape}.global.f16", layout[0]);
    let load_b = format!("wmma.load.b.sync.aligned.{}.{shape}.{space}.f16", layout[1]);
    let load_c = format!("wmma.load.c.sync.aligned.{}.{shape}.{}", layout[2], ty[0]);
    let multiply = format!("wmma.mma.sync.aligned.{}.{}.{shape}.{}.{}", layout[0], layout[1], ty[1], ty[0]);
    let store = format!("wmma.store.d.sync.aligned.{}.{shape}.global.{}", layout[3], ty[1]);
    let stride = |matrix| match product.gap {
        // The stride is a constant, or for one matrix a register.
        Some(_) if matrix == 1 => ", %n".to_owned(),
        Some(_) => format!(", {}", product.stride(matrix)),
        None => String::new(),
    };
    let b = if product.shared { "%s" } else { "%p+8192" };
    let text = format!(
        ".visible .entry k(.param .u64 in)\n{{\n.reg .b64 %p, %q, %g;\n.reg .b32 %t, %s, %n, %v;\n.reg .b32 %a<8>, %b<8>, %c<8>, %d<8>;\n.reg .pred %e;\n\
         .shared .align 16 .b8 room[{ROOM}];\n\
         ld.param.u64 %p, [in];\nmov.u32 %t, %tid.x;\nmov.u32 %s, room;\nmov.u32 %n, {};\n\
         mul.lo.u32 %t, %t, 4;\nCOPY:\ncvt.u64.u32 %q, %t;\nadd.s64 %q, %q, %p;\nld.global.b32 %v, [%q+{ROOM}];\n\
         add.u32 %v, %v, 0;\nadd.u32 %s, %s, %t;\nst.shared.b32 [%s], %v;\nsub.u32 %s, %s, %t;\n\
         add.u32 %t, %t, 128;\nsetp.lt.u32 %e, %t, {ROOM};\n@%e bra COPY;\nbar.sync 0;\n\
         {load_a} {}, [%p]{};\n{load_b} {}, [{b}]{};\nadd.s64 %g, %p, {};\n{load_c} {}, [%g]{};\n\
         {multiply} {}, {}, {}, {};\n{store} [%p+{}], {}{};\nret;\n}}\n",
        product.stride(1),
        vector("a", 8),
        stride(0),
        vector("b", 8),
        stride(1),
        2 * ROOM,
        vector("c", count[0]),
        stride(2),
        vector("d", count[1]),
        vector("a", 8),
        vector("b", 8),
        vector("c", count[0]),
        3 * ROOM,
        vector("d", count[1]),
        stride(3),
    );
    let name = format!("{load_a} {load_b} {load_c} {multiply} {store} {:?}", product.gap);
    let covers = format!("{load_a} {load_b} {load_c} {multiply} {store}");
    Case::new(&name, &covers, &text, move |device| {
        let mut random = Random::new(3);
        let matrices = product.sizes().map(|(rows, columns)| {
            (0..rows * columns).map(|_| random.below(17) as i64 - 8).collect::<Vec<_>>()
        });
        let mut bytes = vec![0_u8; 4 * ROOM];
        for (matrix, values) in matrices.iter().enumerate().take(3) {
            let (_, columns) = product.sizes()[matrix];
            for (at, value) in values.iter().enumerate() {
                let place = product.place(matrix, at / columns, at % columns);
                let size = if matrix == 2 { product.size(false) } else { 2 };
                let element =
                    if size == 4 { (*value as f32).to_bits() } else { to_half(*value as f64).into() };
                let to = ROOM * matrix + size * place;
                bytes[to..to + size].copy_from_slice(&element.to_le_bytes()[..size]);
            }
        }
        let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let memory = device.upload_words(&words);
        device.launch("k", Shape::line(1, 32), &Params::new().u64(memory))?;
        let got = device.read_words(memory + 3 * ROOM as u64, ROOM as u64 / 4);
        let got: Vec<u8> = got.into_iter().flat_map(u32::to_le_bytes).collect();
        let mut expected = vec![0_u8; ROOM];
        let size = product.size(true);
        for row in 0..m {
            for column in 0..n {
                let terms = (0..k).map(|at| matrices[0][row * k + at] * matrices[1][at * n + column]);
                let sum = matrices[2][row * n + column] + terms.sum::<i64>();
                let element = if size == 4 { (sum as f32).to_bits() } else { to_half(sum as f64).into() };
                let to = size * product.place(3, row, column);
                expected[to..to + size].copy_from_slice(&element.to_le_bytes()[..size]);
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
            for (single, gap) in
                [([true, true], None), ([false, true], Some(8)), ([true, false], Some(0)), ([false; 2], None)]
            {
                let shared = layouts & 1 == 0;
                cases.push(case(WmmaProduct { shape, by_columns, single, gap, shared }));
            }
        }
    }
}
