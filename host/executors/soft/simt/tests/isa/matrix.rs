//! Tests of `mma.sync.m8n8k4`, which computes four matrix products, each by a group of eight lanes.

use rustc_apfloat::ieee::{Half, Single};

use crate::case::{Case, vector};
use crate::device::{Params, Shape};
use crate::expect::Expect;
use crate::floats::{self, Mode};
use crate::values::Random;

/// Returns the index of the product whose matrices a lane holds: lanes 0..4 and 16..20 have the first, and so
/// on.
const fn group(lane: usize) -> usize {
    lane % 16 / 4
}

/// Returns row and column of element `i` of A in a lane, according to the ISA.
const fn place_of_a(lane: usize, i: usize, columns: bool) -> (usize, usize) {
    let half = if lane < 16 { 0 } else { 4 };
    if columns { (i + half, lane % 4) } else { (lane % 4 + half, i) }
}

/// Returns row and column of element `i` of B in a lane, according to the ISA.
const fn place_of_b(lane: usize, i: usize, columns: bool) -> (usize, usize) {
    let half = if lane < 16 { 0 } else { 4 };
    if columns { (i, lane % 4 + half) } else { (lane % 4, i + half) }
}

/// Returns row and column of element `i` of C or D in a lane, according to the ISA.
const fn place_of_c(lane: usize, i: usize, single: bool) -> (usize, usize) {
    let half = if lane < 16 { 0 } else { 4 };
    if single { ((lane & 1) + (i & 2) + half, (i & 4) + (lane & 2) + (i & 1)) } else { (lane % 4 + half, i) }
}

/// Returns the value of a half.
fn half(bits: u16) -> f64 {
    crate::half::value(bits.into())
}

/// Returns the half nearest to a value.
pub fn to_half(value: f64) -> u16 {
    match floats::convert::<rustc_apfloat::ieee::Double, Half>(value.to_bits(), Mode::NEAREST, false) {
        Expect::Bits(bits) => bits as u16,
        _ => 0x7fff,
    }
}

/// Kind of the matrices' contents.
#[derive(Clone, Copy, PartialEq)]
enum Fill {
    /// Small whole numbers, whose sums are exact in any order and precision.
    Whole,
    /// Fractional numbers between -2 and 2.
    Fractions,
    /// A single nonzero element in A and in B, which shows the position of each element.
    One(usize),
}

/// Matrices A, B and C of the four products, as `[product][row][column]`.
struct Matrices {
    a: [[[u16; 4]; 8]; 4],
    b: [[[u16; 8]; 4]; 4],
    c: [[[f64; 8]; 8]; 4],
}

impl Matrices {
    fn new(fill: Fill, random: &mut Random) -> Self {
        let mut value = |index: usize| match fill {
            Fill::Whole => random.below(9) as f64 - 4.0,
            Fill::Fractions => half(to_half(random.below(1 << 20) as f64 / f64::from(1 << 18) - 2.0)),
            Fill::One(at) => f64::from(u8::from(index == at % 32)),
        };
        let mut matrices = Self { a: [[[0; 4]; 8]; 4], b: [[[0; 8]; 4]; 4], c: [[[0.0; 8]; 8]; 4] };
        for product in 0..4 {
            for (index, a) in matrices.a[product].as_flattened_mut().iter_mut().enumerate() {
                *a = to_half(value(index));
            }
            for (index, b) in matrices.b[product].as_flattened_mut().iter_mut().enumerate() {
                // If A has a single element, the row of B that it is multiplied with has a different value in
                // each column.
                *b = match fill {
                    Fill::One(_) => to_half((index + 1) as f64),
                    _ => to_half(value(index)),
                };
            }
            for (index, c) in matrices.c[product].as_flattened_mut().iter_mut().enumerate() {
                *c = match fill {
                    Fill::One(_) => 100.0 * product as f64,
                    _ => value(index),
                };
            }
        }
        matrices
    }

    /// Returns the exact element of D, and the sum of the magnitudes of its terms.
    fn exact(&self, product: usize, row: usize, column: usize) -> (f64, f64) {
        let terms = (0..4).map(|k| half(self.a[product][row][k]) * half(self.b[product][k][column]));
        let c = self.c[product][row][column];
        (c + terms.clone().sum::<f64>(), c.abs() + terms.map(f64::abs).sum::<f64>())
    }
}

fn case(columns: [bool; 2], d_single: bool, c_single: bool) -> Case {
    let layout = |columns| if columns { "col" } else { "row" };
    let ty = |single| if single { "f32" } else { "f16" };
    let spelling = format!(
        "mma.sync.aligned.m8n8k4.{}.{}.{}.f16.f16.{}",
        layout(columns[0]),
        layout(columns[1]),
        ty(d_single),
        ty(c_single)
    );
    let (d_words, c_words) = (if d_single { 8 } else { 4 }, if c_single { 8 } else { 4 });
    let load = |name: &str, count: usize, first: usize| {
        (0..count)
            .map(|i| format!("ld.global.b32 %{name}{i}, [%i+{}];\n", 4 * (first + i)))
            .collect::<String>()
    };
    let stores: String = (0..d_words).map(|i| format!("st.global.b32 [%o+{}], %d{i};\n", 4 * i)).collect();
    // The product is computed twice: into registers of its own, and with C as the destination.
    let mut code = format!(
        "{spelling} {}, {}, {}, {};\n{stores}",
        vector("d", d_words),
        vector("a", 2),
        vector("b", 2),
        vector("c", c_words)
    );
    if d_single == c_single {
        let accumulator = vector("c", c_words);
        code += &format!("{spelling} {accumulator}, {{%a0, %a1}}, {{%b0, %b1}}, {accumulator};\n");
        code += &stores.replace("%d", "%c").replace("[%o+", "[%o2+");
    } else {
        code += &stores.replace("[%o+", "[%o2+");
    }
    let text = format!(
        ".visible .entry k(.param .u64 in, .param .u64 out)\n{{\n.reg .b64 %i, %o, %o2, %x;\n.reg .b32 %t, %a<2>, %b<2>, %c<8>, %d<8>;\n\
         ld.param.u64 %i, [in];\nld.param.u64 %o, [out];\nmov.u32 %t, %tid.x;\nmul.wide.u32 %x, %t, 48;\nadd.s64 %i, %i, %x;\nmul.wide.u32 %x, %t, 64;\nadd.s64 %o, %o, %x;\nadd.s64 %o2, %o, 32;\n\
         {}{}{}{code}ret;\n}}\n",
        load("a", 2, 0),
        load("b", 2, 2),
        load("c", c_words, 4)
    );
    Case::new(&spelling, &spelling, &text, move |device| {
        let mut random = Random::new(9);
        let fills = [Fill::Whole, Fill::Whole, Fill::Fractions, Fill::Fractions];
        for fill in fills.into_iter().chain((0..32).map(Fill::One)) {
            let matrices = Matrices::new(fill, &mut random);
            let input = device.upload_words(&fragments(&matrices, columns, c_single));
            let got = device.words(Shape::line(1, 32), Params::new().u64(input), 16 * 32)?;
            for lane in 0..32 {
                for i in 0..8 {
                    for half_of_results in [0, 8] {
                        let words = &got[16 * lane + half_of_results..];
                        let (row, column) = place_of_c(lane, i, d_single);
                        let (exact, size) = matrices.exact(group(lane), row, column);
                        let value = if d_single {
                            f64::from(f32::from_bits(words[i]))
                        } else {
                            half((words[i / 2] >> (16 * (i % 2))) as u16)
                        };
                        // The error is at most a unit in D's last place for each of five terms. Sums of whole
                        // numbers are exact.
                        let step = if d_single { 2.0_f64.powi(-23) } else { 2.0_f64.powi(-10) };
                        let error = if fill == Fill::Fractions { 5.0 * step * size } else { 0.0 };
                        // A comparison with NaN is false.
                        if (value - exact).abs() <= error {
                            continue;
                        }
                        return Err(format!("lane {lane}, element {i}: {value}, should be {exact}"));
                    }
                }
            }
        }
        Ok(())
    })
}

/// Returns the twelve words of each lane: two of A, two of B, and up to eight of C.
fn fragments(matrices: &Matrices, columns: [bool; 2], c_single: bool) -> Vec<u32> {
    let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
    let mut words = Vec::new();
    for lane in 0..32 {
        let product = group(lane);
        let a = |i| {
            let (row, column) = place_of_a(lane, i, columns[0]);
            matrices.a[product][row][column]
        };
        let b = |i| {
            let (row, column) = place_of_b(lane, i, columns[1]);
            matrices.b[product][row][column]
        };
        let c = |i| {
            let (row, column) = place_of_c(lane, i, c_single);
            matrices.c[product][row][column]
        };
        words.extend([pair(a(0), a(1)), pair(a(2), a(3)), pair(b(0), b(1)), pair(b(2), b(3))]);
        for i in 0..8 {
            words.push(if c_single {
                match floats::convert::<rustc_apfloat::ieee::Double, Single>(
                    c(i).to_bits(),
                    Mode::NEAREST,
                    false,
                ) {
                    Expect::Bits(bits) => bits as u32,
                    _ => 0,
                }
            } else if i < 4 {
                pair(to_half(c(2 * i)), to_half(c(2 * i + 1)))
            } else {
                0
            });
        }
    }
    words
}

pub fn cases(cases: &mut Vec<Case>) {
    for a_columns in [false, true] {
        for b_columns in [false, true] {
            for (d_single, c_single) in [(false, false), (true, true), (true, false)] {
                cases.push(case([a_columns, b_columns], d_single, c_single));
            }
        }
    }
}
