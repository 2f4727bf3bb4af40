//! Tests of products with epilogues, and with a C that differs from D.

use proptest::prelude::*;
use vgpu_wire::body::matmul::{Activation, BiasGradient, Epilogue, MatmulLt};
use zerocopy::FromZeros;

use super::super::element::Element;
use super::super::{GemmError, matmul};
use super::{BASE, Expected, Stored, TestMemory, count, encode, on, rounding, scalar, stop_if, value};

/// Supported combinations: the types of A and B, of C and D, the compute and scale types, and the type of the
/// computation.
const KINDS: &[(u32, u32, u32, u32, Element)] = &[
    (0, 0, 68, 0, Element::F32),
    (0, 0, 77, 0, Element::F32),
    (2, 2, 68, 0, Element::F32),
    (2, 0, 68, 0, Element::F32),
    (2, 2, 64, 2, Element::F32),
    (14, 14, 68, 0, Element::F32),
    (1, 1, 70, 1, Element::F64),
];
/// All values of `cublasLtEpilogue_t`.
const EPILOGUES: &[u32] = &[1, 2, 4, 6, 32, 36, 130, 134, 136, 152, 160, 164, 192, 208, 256, 512];
/// Number of elements between matrices that must keep their values.
const FENCE: u64 = 3;

fn element(kind: u32) -> Element {
    Element::from_wire(kind).expect("a type")
}

/// Returns GELU and its derivative by the manual's formula.
fn gelu(x: f64) -> [f64; 2] {
    let scale = (2.0 / std::f64::consts::PI).sqrt();
    let tanh = (scale * (x + 0.044_715 * x.powi(3))).tanh();
    let slope = 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * scale * (1.0 + 3.0 * 0.044_715 * x * x);
    [0.5 * x * (1.0 + tanh), slope]
}

#[derive(Clone, Debug)]
struct MatmulCase {
    kind: (u32, u32, u32, u32, Element),
    operation: [u32; 2],
    size: [u64; 3],
    gaps: [u64; 4],
    batch: u64,
    epilogue: u32,
    /// Whether C is D, a single column for all columns of D, or another matrix.
    c: CPlacement,
    beta: f64,
    threads: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CPlacement {
    Own,
    OfD,
    OneColumn,
}

/// Allocates the matrices of a test in memory.
struct Room<'a> {
    memory: &'a TestMemory,
    next: u64,
}

impl Room<'_> {
    /// Reserves room for `batch` matrices and fills it. Returns the first matrix and the distance to the
    /// next, in elements.
    fn place(
        &mut self,
        element: Element,
        [rows, columns, leading]: [u64; 3],
        batch: u64,
        seed: u64,
    ) -> (Stored, i64) {
        let stride = leading.max(rows) * columns + FENCE;
        let first = Stored { element, address: self.next, leading };
        for index in 0..batch {
            let one = Stored { address: self.next + index * stride * element.bytes(), ..first };
            one.fill(self.memory, rows, columns, seed << 40 | index << 32);
        }
        self.next += (stride * batch * element.bytes()).next_multiple_of(16);
        (first, stride as i64)
    }
}

fn nth((stored, stride): (Stored, i64), index: u64) -> Stored {
    Stored { address: stored.address + index * stride as u64 * stored.element.bytes(), ..stored }
}

impl MatmulCase {
    #[allow(clippy::too_many_lines, reason = "one case from its memory to its last byte")]
    #[allow(clippy::many_single_char_names, reason = "the names of BLAS")]
    fn check(&self) -> Result<(), TestCaseError> {
        let [m, n, k] = self.size;
        let (of_a, of_d) = (element(self.kind.0), element(self.kind.1));
        let epilogue = Epilogue::from_number(self.epilogue).expect("an epilogue");
        let turn = |operation: u32, [rows, columns]: [u64; 2]| {
            if operation == 0 { [rows, columns] } else { [columns, rows] }
        };
        let memory = TestMemory::new(1 << 20);
        let mut room = Room { memory: &memory, next: BASE + 64 };
        let leading = |rows: u64, gap: u64| rows.max(1) + gap;
        let [rows, columns] = turn(self.operation[0], [m, k]);
        let a = room.place(of_a, [rows, columns, leading(rows, self.gaps[0])], self.batch, 1);
        let [rows, columns] = turn(self.operation[1], [k, n]);
        let b = room.place(of_a, [rows, columns, leading(rows, self.gaps[1])], self.batch, 2);
        let d = room.place(of_d, [m, n, leading(m, self.gaps[3])], self.batch, 3);
        let c = match self.c {
            CPlacement::OfD => d,
            CPlacement::Own => room.place(of_d, [m, n, leading(m, self.gaps[2])], self.batch, 4),
            CPlacement::OneColumn => {
                let (one, stride) = room.place(of_d, [m, 1, m], self.batch, 4);
                (Stored { leading: 0, ..one }, stride)
            }
        };
        let length = if epilogue.gradient == Some(BiasGradient::B) { n } else { m };
        let bias = room.place(of_d, [length, 1, length], self.batch, 5);
        let mask_leading = m.next_multiple_of(128);
        let aux = if epilogue.masks() {
            room.place(Element::I8, [mask_leading / 8, n, mask_leading / 8], self.batch, 6)
        } else {
            room.place(of_d, [m, n, leading(m, 2)], self.batch, 6)
        };
        let scale = element(self.kind.3);
        let alpha = value(77, scale).re;
        let body = MatmulLt {
            operation: self.operation,
            types: [self.kind.0, self.kind.0, self.kind.1, self.kind.1],
            compute: self.kind.2,
            scale: self.kind.3,
            epilogue: self.epilogue,
            bias_type: self.kind.1,
            aux_type: self.kind.1,
            batch: self.batch as u32,
            size: self.size,
            leading: [a, b, c, d].map(|(stored, _)| stored.leading),
            stride: [a, b, c, d].map(|(_, stride)| stride),
            matrix: [a, b, c, d].map(|(stored, _)| stored.address),
            alpha: scalar(&encode(alpha.into(), scale)),
            beta: scalar(&encode(self.beta.into(), scale)),
            bias: bias.0.address,
            bias_stride: bias.1,
            aux: aux.0.address,
            aux_leading: if epilogue.masks() { mask_leading } else { aux.0.leading },
            aux_stride: if epilogue.masks() { aux.1 * 8 } else { aux.1 },
            ..MatmulLt::new_zeroed()
        };

        let mut expected = Vec::new();
        let mut masks: Vec<(u64, u32, f64, f64)> = Vec::new();
        let computed = rounding(self.kind.4);
        let stored = |matrix: Stored, row: u64, column: u64, exact: f64, error: f64| {
            Expected::stored(matrix.place(row, column), of_d, exact.into(), error)
        };
        for index in 0..self.batch {
            let [a, b, c, d, bias, aux] = [a, b, c, d, bias, aux].map(|matrix| nth(matrix, index));
            let mask_at =
                |row: u64, column: u64| (aux.address + column * mask_leading / 8 + row / 8, row % 8);
            for row in 0..m {
                let (mut total, mut total_error) = (0.0, 0.0);
                for column in 0..n {
                    let (mut sum, mut size) = (0.0, 0.0);
                    for depth in 0..k {
                        let product = a.turned(&memory, self.operation[0], row, depth).re
                            * b.turned(&memory, self.operation[1], depth, column).re;
                        sum += product;
                        size += product.abs();
                    }
                    let old = if self.beta == 0.0 { 0.0 } else { c.get(&memory, row, column).re };
                    let added = if epilogue.bias { bias.get(&memory, row, 0).re } else { 0.0 };
                    let mut exact = alpha * sum + self.beta * old + added;
                    let size = alpha.abs() * size + (self.beta * old).abs() + added.abs();
                    let mut error = 2.0 * count(k + 6) * computed * size;
                    if epilogue.auxiliary && !epilogue.reads_auxiliary() {
                        if epilogue.masks() {
                            let (byte, bit) = mask_at(row, column);
                            masks.push((byte, bit as u32, exact, error));
                        } else {
                            expected.push(stored(aux, row, column, exact, error));
                        }
                    }
                    match epilogue.activation {
                        Activation::None => {}
                        Activation::Relu => exact = exact.max(0.0),
                        Activation::Gelu => {
                            exact = gelu(exact)[0];
                            error = 1.2 * error + 4.0 * computed * exact.abs();
                        }
                        Activation::ReluGradient => {
                            let (byte, bit) = mask_at(row, column);
                            if memory.get(byte, 1)[0] >> bit & 1 == 0 {
                                (exact, error) = (0.0, 0.0);
                            }
                        }
                        Activation::GeluGradient => {
                            exact *= gelu(aux.get(&memory, row, column).re)[1];
                            error = 1.2 * error + 4.0 * computed * exact.abs();
                        }
                    }
                    total += exact;
                    total_error += error + count(n) * computed * exact.abs();
                    expected.push(stored(d, row, column, exact, error));
                }
                if epilogue.gradient == Some(BiasGradient::Result) {
                    expected.push(stored(bias, row, 0, total, total_error));
                }
            }
            for at in 0..length {
                let term = |depth| match epilogue.gradient {
                    Some(BiasGradient::A) => Some(a.turned(&memory, self.operation[0], at, depth).re),
                    Some(BiasGradient::B) => Some(b.turned(&memory, self.operation[1], depth, at).re),
                    _ => None,
                };
                if matches!(epilogue.gradient, Some(BiasGradient::A | BiasGradient::B)) {
                    let terms: Vec<f64> = (0..k).filter_map(term).collect();
                    let size: f64 = terms.iter().map(|term| term.abs()).sum();
                    let exact = terms.iter().sum();
                    expected.push(stored(bias, at, 0, exact, count(k) * computed * size));
                }
            }
        }

        let [before, mut after] = memory.check(|view| matmul(view, &body, &on(self.threads)), &expected)?;
        for (byte, bit, exact, bound) in masks {
            let at = (byte - BASE) as usize;
            if exact.abs() > bound {
                prop_assert_eq!(after[at] >> bit & 1 == 1, exact >= 0.0, "the mask's bit for {}", exact);
            }
            after[at] = after[at] & !(1 << bit) | before[at] & 1 << bit;
        }
        prop_assert!(after == before, "nothing else is written");
        Ok(())
    }
}

prop_compose! {
    fn case()(
        kind in proptest::sample::select(KINDS),
        operation in [0..3u32, 0..3u32],
        // A tile has 256 rows and columns.
        size in prop_oneof![
            8 => [1..20u64, 1..20u64, 0..20u64],
            1 => [250..260u64, 1..4u64, 1..4u64],
            1 => [1..4u64, 250..260u64, 1..4u64],
        ],
        gaps in [0..3u64, 0..3u64, 0..3u64, 0..3u64],
        batch in 1..3u64,
        epilogue in proptest::sample::select(EPILOGUES),
        c in prop_oneof![Just(CPlacement::Own), Just(CPlacement::OfD), Just(CPlacement::OneColumn)],
        beta in prop_oneof![Just(0.0), Just(1.0), Just(-0.5)],
        threads in 1..3usize,
    ) -> MatmulCase {
        MatmulCase { kind, operation, size, gaps, batch, epilogue, c, beta, threads }
    }
}

proptest! {
    #[test]
    fn epilogues_are_what_the_manual_says(case in case()) {
        case.check()?;
    }
}

const PLAIN: MatmulCase = MatmulCase {
    kind: KINDS[0],
    operation: [0; 2],
    size: [300, 5, 7],
    gaps: [0; 4],
    batch: 1,
    epilogue: 1,
    c: CPlacement::Own,
    beta: 1.0,
    threads: 2,
};

#[test]
fn every_epilogue_in_every_type() {
    for &epilogue in EPILOGUES {
        for &kind in KINDS {
            MatmulCase { kind, epilogue, ..PLAIN }.check().unwrap();
        }
    }
}

/// Creates a message for two by two matrices at the start of the memory.
fn small(epilogue: u32) -> MatmulLt {
    let at = |index: u64| BASE + 64 * index;
    MatmulLt {
        compute: 68,
        epilogue,
        batch: 1,
        size: [2; 3],
        leading: [2; 4],
        matrix: [at(0), at(1), at(2), at(3)],
        alpha: scalar(&1f32.to_le_bytes()),
        bias: at(4),
        aux: at(5),
        aux_leading: 128,
        ..MatmulLt::new_zeroed()
    }
}

#[test]
fn nan_and_nought_go_through_relu_as_on_a_gpu() {
    let memory = TestMemory::new(4096);
    let floats = |numbers: [f32; 4]| numbers.map(f32::to_le_bytes).concat();
    memory.put(BASE, &floats([1.0, 0.0, 0.0, 1.0]));
    memory.put(BASE + 64, &floats([f32::NAN, -0.0, -3.0, 4.0]));
    memory.put(BASE + 320, &[0xaa; 32]);
    assert_eq!(matmul(&memory.view, &small(130), &on(1)), Ok(()));
    // NaN times 0 is in both rows of the first column.
    assert_eq!(memory.get(BASE + 192, 16), floats([0.0, 0.0, 0.0, 4.0]));
    assert_eq!((memory.get(BASE + 320, 1), memory.get(BASE + 336, 1)), (vec![0xa8], vec![0xaa]));
}

#[test]
fn what_is_none_is_refused_before_anything_is_written() {
    type BodyChange = fn(&mut MatmulLt);
    let memory = TestMemory::new(4096);
    let before = memory.all();
    let wrong: &[(Option<u32>, BodyChange)] = &[
        (Some(1), |body| body.epilogue = 3),
        (Some(1), |body| body.operation[1] = 3),
        (Some(1), |body| body.leading[3] = 1),
        (Some(1), |body| body.leading[2] = 1),
        (Some(1), |body| body.aux_leading = 64),
        (Some(1), |body| body.aux_stride = 4),
        (Some(801), |body| body.types[2] = 2),
        (Some(801), |body| body.bias_type = 10),
        (Some(801), |body| body.types = [3, 3, 10, 10]),
        (Some(801), |body| (body.types, body.compute, body.scale) = ([4; 4], 68, 4)),
        (Some(700), |body| body.bias = 0),
        (Some(700), |body| body.aux = BASE - 16),
        (Some(700), |body| body.matrix[3] = BASE + 4096),
        (Some(716), |body| body.matrix[0] += 2),
    ];
    for (at, (code, change)) in wrong.iter().enumerate() {
        let mut body = small(134);
        change(&mut body);
        let refused = matmul(&memory.view, &body, &on(1));
        assert_eq!(refused.map_err(|error| error.code()), Err(*code), "{at}");
    }
    assert!(memory.all() == before);
    // Whole and complex numbers have no epilogues, and a C that is not D.
    let mut complex = small(1);
    (complex.types, complex.scale) = ([4; 4], 4);
    complex.alpha = scalar(&[1f32.to_le_bytes(), 0f32.to_le_bytes()].concat());
    complex.beta = complex.alpha;
    assert_eq!(matmul(&memory.view, &complex, &on(1)), Ok(()));
}

#[test]
fn a_stop_is_seen() {
    let memory = TestMemory::new(4096);
    for epilogue in [4, 208, 256] {
        let mut body = small(epilogue);
        body.aux_leading = 2;
        let run = super::super::Workers { check: &|| stop_if(true), ..on(1) };
        assert!(matches!(matmul(&memory.view, &body, &run), Err(GemmError::Halted(_))), "{epilogue}");
    }
}
