//! Tests of operations on vectors.

use num_complex::Complex64;
use proptest::prelude::*;
use vgpu_wire::body::gemm::GEMM_DEVICE_SCALARS;
use vgpu_wire::body::vector::{
    VECTOR_ASUM, VECTOR_AXPY, VECTOR_DOT, VECTOR_DOT_CONJUGATE, VECTOR_NORM, VectorOp,
};
use zerocopy::FromZeros;

use super::super::element::Element;
use super::super::{GemmError, vector};
use super::{BASE, Expected, TestMemory, count, decode, encode, on, rounding, scalar, stop_if, value};

/// Combinations that cuBLAS supports for dot products: the types of x and y, of the sum or alpha, and of the
/// computation.
const KINDS: &[(u32, u32, u32)] = &[(0, 0, 0), (1, 1, 1), (2, 2, 0), (14, 14, 0), (4, 4, 4), (5, 5, 5)];
/// Addresses of the first elements of x and y. The longest vectors fit between them, and so does what
/// precedes a first element.
const X: u64 = BASE + 0x40_0000;
const Y: u64 = BASE + 0xc0_0000;
const SUM: u64 = BASE + 64;
const ALPHA: u64 = BASE + 128;

#[derive(Clone, Debug)]
struct VectorCase {
    kind: (u32, u32, u32),
    operation: u32,
    elements: u64,
    step: [i64; 2],
    alpha_on_device: bool,
}

fn element(kind: u32) -> Element {
    Element::from_wire(kind).expect("a type")
}

/// Returns the real type in which the sums of a complex type are computed.
const fn real(kind: u32) -> u32 {
    match kind {
        4 => 0,
        5 => 1,
        other => other,
    }
}

fn body(operation: u32, kind: (u32, u32, u32), elements: u64, step: [i64; 2]) -> VectorOp {
    let sums = matches!(operation, VECTOR_NORM | VECTOR_ASUM);
    VectorOp {
        operation,
        x_type: kind.0,
        y_type: kind.0,
        scalar_type: if sums { real(kind.1) } else { kind.1 },
        compute: if sums { real(kind.2) } else { kind.2 },
        elements,
        step,
        vector: [X, Y],
        result: if operation == VECTOR_AXPY { 0 } else { SUM },
        ..VectorOp::new_zeroed()
    }
}

impl VectorCase {
    fn check(&self) -> Result<(), TestCaseError> {
        let memory = TestMemory::new(0x100_0000);
        let of = element(self.kind.0);
        let mut body = body(self.operation, self.kind, self.elements, self.step);
        let place = |start: u64, step: i64, at: u64| {
            start.wrapping_add_signed(step * at as i64 * of.bytes().cast_signed())
        };
        let read = |start, step, at| decode(&memory.get(place(start, step, at), of.bytes() as usize), of);
        for at in 0..self.elements {
            for (start, step, seed) in [(X, self.step[0], 1), (Y, self.step[1], 2)] {
                memory.put(place(start, step, at), &encode(value(seed << 40 | at, of), of));
            }
        }
        let of_scalar = element(body.scalar_type);
        let alpha = encode(value(9, of_scalar), of_scalar);
        if self.operation == VECTOR_AXPY {
            memory.put(ALPHA, &alpha);
            body.alpha = if self.alpha_on_device { scalar(&ALPHA.to_le_bytes()) } else { scalar(&alpha) };
            body.flags = if self.alpha_on_device { GEMM_DEVICE_SCALARS } else { 0 };
        }
        let alpha = decode(&alpha, of_scalar);
        let pairs: Vec<(Complex64, Complex64)> =
            (0..self.elements).map(|at| (read(X, self.step[0], at), read(Y, self.step[1], at))).collect();
        let mut expected = Vec::new();
        let sum = |terms: Vec<Complex64>| {
            let size: f64 = terms.iter().map(|term| term.norm()).sum();
            (terms.iter().sum::<Complex64>(), 4.0 * count(self.elements) * rounding(Element::F64) * size)
        };
        let (exact, error) = match self.operation {
            VECTOR_DOT => sum(pairs.iter().map(|(x, y)| x * y).collect()),
            VECTOR_DOT_CONJUGATE => sum(pairs.iter().map(|(x, y)| x.conj() * y).collect()),
            VECTOR_ASUM => sum(pairs.iter().map(|(x, _)| (x.re.abs() + x.im.abs()).into()).collect()),
            VECTOR_NORM => {
                let (squares, error) = sum(pairs.iter().map(|(x, _)| x.norm_sqr().into()).collect());
                (squares.re.sqrt().into(), error + 8.0 * rounding(Element::F64) * squares.re.sqrt())
            }
            _ => {
                for (at, (x, y)) in (0..).zip(&pairs) {
                    let exact = alpha * x + y;
                    let error = 8.0 * rounding(Element::F64) * ((alpha * x).norm() + y.norm());
                    expected.push(Expected::stored(place(Y, self.step[1], at), of, exact, error));
                }
                (Complex64::ZERO, 0.0)
            }
        };
        if self.operation != VECTOR_AXPY {
            expected.push(Expected::stored(SUM, of_scalar, exact, error));
        }
        let [before, after] = memory.check(|view| vector(view, &body, &on(1)), &expected)?;
        prop_assert!(after == before, "nothing else is written");
        Ok(())
    }
}

prop_compose! {
    fn case()(
        kind in proptest::sample::select(KINDS),
        operation in VECTOR_DOT..=VECTOR_AXPY,
        // The vectors are processed in chunks of 4096 elements.
        elements in prop_oneof![8 => 0..40u64, 1 => 4090..4100u64, 1 => 8190..8200u64],
        x_step in -3..4i64,
        y_step in prop_oneof![-3..0i64, 1..4i64],
        alpha_on_device in any::<bool>(),
    ) -> VectorCase {
        VectorCase { kind, operation, elements, step: [x_step, y_step], alpha_on_device }
    }
}

proptest! {
    #[test]
    fn sums_are_right(case in case()) {
        case.check()?;
    }
}

#[test]
fn norms_neither_overflow_nor_vanish() {
    let memory = TestMemory::new(0x100_0000);
    for (numbers, norm) in [
        ([3e200, 4e200, 0.0], 5e200),
        ([3e-200, 0.0, -4e-200], 5e-200),
        ([0.0; 3], 0.0),
        ([f64::INFINITY, 1.0, f64::NEG_INFINITY], f64::INFINITY),
    ] {
        memory.put(X, &numbers.map(f64::to_le_bytes).concat());
        assert_eq!(vector(&memory.view, &body(VECTOR_NORM, (1, 1, 1), 3, [1, 1]), &on(1)), Ok(()));
        let found = decode(&memory.get(SUM, 8), Element::F64).re;
        let same = found.to_bits() == norm.to_bits() || (found / norm - 1.0).abs() < 1e-15;
        assert!(same, "{found} for {norm}");
    }
    memory.put(X, &f64::NAN.to_le_bytes());
    assert_eq!(vector(&memory.view, &body(VECTOR_NORM, (1, 1, 1), 3, [1, 1]), &on(1)), Ok(()));
    assert!(decode(&memory.get(SUM, 8), Element::F64).re.is_nan());
}

#[test]
fn what_is_none_is_refused() {
    let memory = TestMemory::new(4096);
    let before = memory.all();
    let run = |change: fn(&mut VectorOp)| {
        let mut body = body(VECTOR_DOT, (0, 0, 0), 4, [1, 1]);
        body.vector = [BASE + 1024, BASE + 2048];
        change(&mut body);
        vector(&memory.view, &body, &on(1)).map_err(|error| error.code())
    };
    for (code, change) in [
        (1, (|body| body.operation = 6) as fn(&mut VectorOp)),
        (801, |body| body.x_type = 10),
        (801, |body| body.y_type = 4),
        (801, |body| body.scalar_type = 4),
        (801, |body| (body.operation, body.x_type, body.scalar_type) = (VECTOR_NORM, 4, 4)),
        (700, |body| body.vector[0] = BASE + 4096 - 12),
        (700, |body| body.vector[1] = 0),
        (700, |body| (body.vector[0], body.step[0]) = (BASE + 8, -1)),
        (700, |body| body.elements = u64::MAX),
        (700, |body| (body.elements, body.step[0]) = (1 << 62, i64::MIN)),
        (700, |body| body.result = 0),
        (716, |body| body.vector[0] += 2),
    ] {
        assert_eq!(run(change), Err(Some(code)));
    }
    assert!(memory.all() == before);
    let body = body(VECTOR_DOT, (0, 0, 0), 4, [1, 1]);
    let body = VectorOp { vector: [BASE + 1024, BASE + 2048], ..body };
    let stopped = super::super::Workers { check: &|| stop_if(true), ..on(1) };
    assert!(matches!(vector(&memory.view, &body, &stopped), Err(GemmError::Halted(_))));
}
