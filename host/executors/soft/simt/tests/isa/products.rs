//! Tests of matrix products with eight columns: `mma.sync` of m16n8 and m8n8, except m8n8k4 of halves.

use crate::case::{Case, vector};
use crate::device::{Params, Shape};
use crate::values::Random;

/// Type of a matrix element, named as in the ISA.
#[derive(Clone, Copy, PartialEq)]
enum ElementType {
    F16,
    Bf16,
    Tf32,
    S8,
    U8,
    F64,
    F32,
    S32,
}

impl ElementType {
    const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Tf32 => "tf32",
            Self::S8 => "s8",
            Self::U8 => "u8",
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::S32 => "s32",
        }
    }

    /// Returns the size of an element in bits.
    const fn bits(self) -> usize {
        match self {
            Self::S8 | Self::U8 => 8,
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 | Self::F32 | Self::S32 => 32,
            Self::F64 => 64,
        }
    }

    /// Returns the number of elements in a register, which has 64 bits for doubles and otherwise 32 bits.
    const fn each(self) -> usize {
        if self.bits() == 64 { 1 } else { 32 / self.bits() }
    }

    /// Returns the bits of the element that represents a small whole number.
    fn encode(self, value: i64) -> u64 {
        let single = u64::from((value as f32).to_bits());
        match self {
            Self::S8 | Self::U8 => value as u64 & 0xff,
            Self::S32 => value as u64 & 0xffff_ffff,
            Self::F16 => crate::matrix::to_half(value as f64).into(),
            Self::Bf16 => single >> 16,
            // The bits below the 10 bits of fraction must be ignored.
            Self::Tf32 => single | 0x1fff,
            Self::F32 => single,
            Self::F64 => (value as f64).to_bits(),
        }
    }
}

/// A matrix product: its sizes, the types of A, B, C and D, and whether it saturates.
#[derive(Clone, Copy)]
struct MmaProduct {
    rows: usize,
    depth: usize,
    a: ElementType,
    b: ElementType,
    c: ElementType,
    saturates: bool,
}

impl MmaProduct {
    fn spelling(self) -> String {
        let Self { rows, depth, a, b, c, saturates } = self;
        let saturates = if saturates { ".satfinite" } else { "" };
        let [a, b, c] = [a, b, c].map(ElementType::name);
        format!("mma.sync.aligned.m{rows}n8k{depth}.row.col{saturates}.{c}.{a}.{b}.{c}")
    }

    /// Returns the numbers of elements of A, B and C in a lane.
    const fn counts(self) -> [usize; 3] {
        [self.rows * self.depth / 32, self.depth * 8 / 32, self.rows * 8 / 32]
    }

    /// Returns row and column of element `i` of A in a lane, as the ISA defines them for each shape. `group`
    /// is `%laneid >> 2`, and `t` is `%laneid % 4`.
    fn place_of_a(self, lane: usize, i: usize) -> (usize, usize) {
        let (group, t) = (lane >> 2, lane % 4);
        let lower = |lower: bool| if lower { group + 8 } else { group };
        match (self.rows, self.depth, self.a.bits()) {
            (16, 8, 16) => (lower(i >= 2), 2 * t + (i & 1)),
            (16, 16, 16) => (lower(!matches!(i, 0..2 | 4..6)), 2 * t + (i & 1) + if i >= 4 { 8 } else { 0 }),
            (16, 4, _) => (lower(i == 1), t),
            (16, 8, 32) => (lower(i == 1 || i == 3), if i < 2 { t } else { t + 4 }),
            (16, 8 | 16, 64) => (lower(i % 2 == 1), i / 2 * 4 + t),
            (8, 4, _) => (group, t),
            (8, 16, _) => (group, 4 * t + i),
            (16, 16, _) => (lower(i >= 4), 4 * t + (i & 3)),
            _ => (lower(!matches!(i, 0..4 | 8..12)), 4 * t + (i & 3) + if i >= 8 { 16 } else { 0 }),
        }
    }

    /// Returns row and column of element `i` of B in a lane, according to the ISA.
    fn place_of_b(self, lane: usize, i: usize) -> (usize, usize) {
        let (group, t) = (lane >> 2, lane % 4);
        let row = match (self.depth, self.b.bits()) {
            (8, 16) => 2 * t + i,
            (16, 16) => 2 * t + (i & 1) + if i >= 2 { 8 } else { 0 },
            (4, _) => t,
            (8 | 16, 32 | 64) => t + 4 * i,
            (16, _) => 4 * t + i,
            _ => 4 * t + (i & 3) + if i >= 4 { 16 } else { 0 },
        };
        (row, group)
    }

    /// Returns row and column of element `i` of C or D in a lane, according to the ISA.
    fn place_of_c(lane: usize, i: usize) -> (usize, usize) {
        let (group, t) = (lane >> 2, lane % 4);
        (if i < 2 { group } else { group + 8 }, 2 * t + (i & 1))
    }
}

/// Packs elements into registers, each in a slot of 64 bits.
fn registers(kind: ElementType, elements: &[u64]) -> Vec<u32> {
    let pack = |chunk: &[u64]| {
        let bits = kind.bits();
        let word = chunk.iter().enumerate().fold(0, |word, (i, element)| word | element << (i * bits));
        [word as u32, (word >> 32) as u32]
    };
    elements.chunks(kind.each()).flat_map(pack).collect()
}

/// Matrices A, B and C in row order.
struct Matrices {
    a: Vec<Vec<i64>>,
    b: Vec<Vec<i64>>,
    c: Vec<Vec<i64>>,
}

impl Matrices {
    /// Draws small whole numbers, whose sums are exact. With `at`, only that element of A is nonzero, and the
    /// numbers in B identify its elements.
    fn new(product: MmaProduct, at: Option<usize>, random: &mut Random) -> Self {
        let mut fill = |rows: usize, columns: usize, value: &mut dyn FnMut(usize, &mut Random) -> i64| {
            let row = |row: usize, random: &mut Random, value: &mut dyn FnMut(usize, &mut Random) -> i64| {
                (0..columns).map(|column| value(row * columns + column, random)).collect::<Vec<_>>()
            };
            (0..rows).map(|index| row(index, random, value)).collect::<Vec<_>>()
        };
        let low = |kind: ElementType| if kind == ElementType::U8 { 0 } else { 4 };
        let (low_a, low_b) = (low(product.a), low(product.b));
        let a = fill(product.rows, product.depth, &mut |index, random| match at {
            Some(at) => i64::from(index == at),
            None => random.below(9) as i64 - low_a,
        });
        let b = fill(product.depth, 8, &mut |index, random| match at {
            Some(_) => index as i64 % 120,
            None => random.below(9) as i64 - low_b,
        });
        let end = if product.saturates { i64::from(i32::MAX) - 20 } else { 0 };
        let c = fill(product.rows, 8, &mut |_, random| end + random.below(9) as i64 - 4);
        Self { a, b, c }
    }

    fn of_lane(&self, product: MmaProduct, lane: usize) -> Vec<u32> {
        let [a, b, c] = product.counts();
        let at = |matrix: &[Vec<i64>], (row, column): (usize, usize), kind: ElementType| {
            kind.encode(matrix[row][column])
        };
        let a: Vec<u64> = (0..a).map(|i| at(&self.a, product.place_of_a(lane, i), product.a)).collect();
        let b: Vec<u64> = (0..b).map(|i| at(&self.b, product.place_of_b(lane, i), product.b)).collect();
        let c: Vec<u64> = (0..c).map(|i| at(&self.c, MmaProduct::place_of_c(lane, i), product.c)).collect();
        [registers(product.a, &a), registers(product.b, &b), registers(product.c, &c)].concat()
    }

    fn result(&self, product: MmaProduct, row: usize, column: usize) -> i64 {
        let sum =
            self.c[row][column] + (0..product.depth).map(|k| self.a[row][k] * self.b[k][column]).sum::<i64>();
        if product.saturates { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum }
    }
}

fn case(product: MmaProduct) -> Case {
    let spelling = product.spelling();
    let [a, b, c] = product.counts();
    let (a, b, c) = (a / product.a.each(), b / product.b.each(), c / product.c.each());
    let size = if product.a == ElementType::F64 { 64 } else { 32 };
    let load = |name: &str, count: usize, first: usize| {
        let one = |i: usize| format!("ld.global.b{size} %{name}{i}, [%i+{}];\n", 8 * (first + i));
        (0..count).map(one).collect::<String>()
    };
    let store: String = (0..c).map(|i| format!("st.global.b{size} [%o+{}], %d{i};\n", 8 * i)).collect();
    let bytes = 8 * (a + b + c);
    let text = format!(
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %i, %o, %x;\n.reg .b32 %t;\n\
         .reg .b{size} %a<8>, %b<4>, %c<4>, %d<4>;\n\
         ld.param.u64 %i, [in];\nld.param.u64 %o, [out];\nmov.u32 %t, %tid.x;\n\
         mul.wide.u32 %x, %t, {bytes};\nadd.s64 %i, %i, %x;\nmul.wide.u32 %x, %t, {};\nadd.s64 %o, %o, %x;\n\
         {}{}{}{spelling} {}, {}, {}, {};\n{store}ret;\n}}\n",
        8 * c,
        load("a", a, 0),
        load("b", b, a),
        load("c", c, a + b),
        vector("d", c),
        vector("a", a),
        vector("b", b),
        vector("c", c),
    );
    Case::new(&spelling, &spelling, &text, move |device| {
        let mut random = Random::new(5);
        let places = (0..product.rows * product.depth).map(Some);
        for at in [None; 4].into_iter().chain(places) {
            let matrices = Matrices::new(product, at, &mut random);
            let input: Vec<u32> = (0..32).flat_map(|lane| matrices.of_lane(product, lane)).collect();
            let input = device.upload_words(&input);
            let out = device.allocate((32 * 8 * c) as u64);
            device.launch("k", Shape::line(1, 32), &Params::new().u64(input).u64(out))?;
            let got = device.read_words(out, (32 * 2 * c) as u64);
            for lane in 0..32 {
                let elements: Vec<u64> = (0..product.counts()[2])
                    .map(|i| {
                        let (row, column) = MmaProduct::place_of_c(lane, i);
                        product.c.encode(matrices.result(product, row, column))
                    })
                    .collect();
                let expected = registers(product.c, &elements);
                let got = &got[2 * c * lane..][..2 * c];
                let same = |i: usize| got[i] == expected[i] || size == 32 && i % 2 == 1;
                if !(0..2 * c).all(same) {
                    return Err(format!("lane {lane}: {got:x?}, should be {expected:x?}"));
                }
            }
        }
        Ok(())
    })
}

pub fn cases(cases: &mut Vec<Case>) {
    let one = |rows, depth, a, b, c| MmaProduct { rows, depth, a, b, c, saturates: false };
    let float = |depth, kind, c| one(16, depth, kind, kind, c);
    let mut products = vec![
        float(8, ElementType::F16, ElementType::F16),
        float(8, ElementType::F16, ElementType::F32),
        float(16, ElementType::F16, ElementType::F16),
        float(16, ElementType::F16, ElementType::F32),
        float(8, ElementType::Bf16, ElementType::F32),
        float(16, ElementType::Bf16, ElementType::F32),
        float(4, ElementType::Tf32, ElementType::F32),
        float(8, ElementType::Tf32, ElementType::F32),
        one(8, 4, ElementType::F64, ElementType::F64, ElementType::F64),
        float(4, ElementType::F64, ElementType::F64),
        float(8, ElementType::F64, ElementType::F64),
        float(16, ElementType::F64, ElementType::F64),
    ];
    for (rows, depth) in [(8, 16), (16, 16), (16, 32)] {
        for a in [ElementType::S8, ElementType::U8] {
            for b in [ElementType::S8, ElementType::U8] {
                let product = one(rows, depth, a, b, ElementType::S32);
                products.extend([product, MmaProduct { saturates: true, ..product }]);
            }
        }
    }
    cases.extend(products.into_iter().map(case));
}
