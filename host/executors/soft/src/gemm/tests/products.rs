//! Tests of matrix products.

use std::sync::atomic::{AtomicU32, Ordering};

use num_complex::Complex64;
use proptest::prelude::*;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm};
use zerocopy::FromZeros;

use super::super::element::Element;
use super::super::{Workers, multiply};
use super::{
    BASE, Expected, Stored, TestMemory, count, decode, encode, on, rounding, scalar, stop_if, value,
};

/// All combinations that cuBLAS supports: the types of A and B and of C, the compute and scale types, and the
/// type of the computation.
const KINDS: &[(u32, u32, u32, u32, Element)] = &[
    (0, 0, 68, 0, Element::F32),
    (0, 0, 69, 0, Element::F32),
    (0, 0, 74, 0, Element::F32),
    (0, 0, 75, 0, Element::F32),
    (0, 0, 77, 0, Element::F32),
    (0, 0, 78, 0, Element::F32),
    (2, 0, 68, 0, Element::F32),
    (2, 2, 68, 0, Element::F32),
    (2, 2, 64, 2, Element::F32),
    (2, 2, 65, 2, Element::F32),
    (14, 0, 68, 0, Element::F32),
    (14, 14, 68, 0, Element::F32),
    (3, 0, 68, 0, Element::F32),
    (1, 1, 70, 1, Element::F64),
    (1, 1, 71, 1, Element::F64),
    (1, 1, 79, 1, Element::F64),
    (4, 4, 68, 4, Element::C32),
    (7, 4, 68, 4, Element::C32),
    (5, 5, 70, 5, Element::C64),
    (3, 10, 72, 10, Element::I32),
    (3, 10, 73, 10, Element::I32),
];

fn element(kind: u32) -> Element {
    Element::from_wire(kind).expect("a type")
}

/// A product and the memory that it is computed in.
#[derive(Clone, Debug)]
pub(super) struct ProductCase {
    pub(super) kind: (u32, u32, u32, u32, Element),
    pub(super) operation: [u32; 2],
    pub(super) size: [u64; 3],
    /// Number of elements by which each leading dimension exceeds the rows.
    pub(super) gaps: [u64; 3],
    pub(super) batch: u32,
    /// Whether the matrices of a batch are stored in reverse order.
    pub(super) backwards: bool,
    pub(super) pointers: bool,
    pub(super) device_scalars: bool,
    /// Alpha and beta: 0, 1, or any number.
    pub(super) factors: [Option<bool>; 2],
    pub(super) threads: usize,
}

/// A test case with its matrices in memory.
pub(super) struct ProductLayout {
    pub(super) memory: TestMemory,
    pub(super) body: Gemm,
    /// Matrices A, B and C of each product.
    pub(super) matrices: Vec<[Stored; 3]>,
    pub(super) factors: [Complex64; 2],
}

impl ProductCase {
    fn factor(&self, at: usize) -> Complex64 {
        match self.factors[at] {
            Some(one) => Complex64::new(one.into(), 0.0),
            None => value(at as u64 + 77, element(self.kind.3)),
        }
    }

    /// Returns the rows and columns of each matrix as it is stored.
    fn stored(&self) -> [[u64; 2]; 3] {
        let [m, n, k] = self.size;
        let turn = |operation: u32, [rows, columns]: [u64; 2]| {
            if operation == 0 { [rows, columns] } else { [columns, rows] }
        };
        [turn(self.operation[0], [m, k]), turn(self.operation[1], [k, n]), [m, n]]
    }

    pub(super) fn lay_out(&self, fence: u64) -> ProductLayout {
        let elements = [element(self.kind.0), element(self.kind.0), element(self.kind.1)];
        let scale = element(self.kind.3);
        let shapes = self.stored();
        let leading: [u64; 3] = std::array::from_fn(|at| shapes[at][0].max(1) + self.gaps[at]);
        // Distance between matrices in elements: the matrix and the fence after it.
        let stride: [u64; 3] = std::array::from_fn(|at| leading[at] * shapes[at][1] + fence);
        let room: [u64; 3] =
            std::array::from_fn(|at| (stride[at] * elements[at].bytes()).next_multiple_of(16));
        let batch = u64::from(self.batch);
        let lists = BASE + 64 + room.iter().sum::<u64>() * batch;
        let memory = TestMemory::new(lists - BASE + 3 * 8 * batch + 64);
        let mut body = Gemm {
            operation: self.operation,
            types: [self.kind.0, self.kind.0, self.kind.1],
            compute: self.kind.2,
            scale: self.kind.3,
            algorithm: -1,
            batch: self.batch,
            size: self.size,
            leading,
            ..Gemm::new_zeroed()
        };
        let mut start = BASE + 64;
        let mut matrices =
            vec![[Stored { element: Element::I8, address: 0, leading: 0 }; 3]; self.batch as usize];
        for at in 0..3 {
            let step = if self.pointers { room[at] } else { stride[at] * elements[at].bytes() };
            for (index, of) in (0..).zip(&mut matrices) {
                let place = if self.backwards { batch - 1 - index } else { index };
                let address = start + place * step;
                of[at] = Stored { element: elements[at], address, leading: leading[at] };
                of[at].fill(&memory, shapes[at][0], shapes[at][1], (at as u64) << 40 | index << 32);
                memory.put(lists + (at as u64 * batch + index) * 8, &address.to_le_bytes());
            }
            let first = matrices.first().map_or(start, |of| of[at].address);
            body.matrix[at] = if self.pointers { lists + at as u64 * batch * 8 } else { first };
            body.stride[at] = if self.backwards { -(stride[at] as i64) } else { stride[at] as i64 };
            start += room[at] * batch;
        }
        let factors = [0, 1].map(|at| {
            let bytes = encode(self.factor(at), scale);
            memory.put(BASE + 16 * at as u64, &bytes);
            decode(&bytes, scale)
        });
        let scalars = [0, 1].map(|at| {
            if self.device_scalars {
                scalar(&(BASE + 16 * at).to_le_bytes())
            } else {
                scalar(&memory.get(BASE + 16 * at, scale.bytes() as usize))
            }
        });
        [body.alpha, body.beta] = scalars;
        body.flags = if self.pointers { GEMM_POINTERS } else { 0 }
            | if self.device_scalars { GEMM_DEVICE_SCALARS } else { 0 };
        ProductLayout { memory, body, matrices, factors }
    }

    /// Carries out the product and checks every byte of the memory.
    fn check(&self) -> Result<(), TestCaseError> {
        let ProductLayout { memory, body, matrices, factors: [alpha, beta] } = self.lay_out(3);
        let [m, n, k] = self.size;
        let computed = self.kind.4;
        let mut expected = Vec::new();
        for [a, b, c] in &matrices {
            for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
                let (mut sum, mut size) = (Complex64::ZERO, 0.0);
                if alpha != Complex64::ZERO {
                    for depth in 0..k {
                        let product = a.turned(&memory, self.operation[0], row, depth)
                            * b.turned(&memory, self.operation[1], depth, column);
                        sum += product;
                        size += product.norm();
                    }
                }
                let (mut exact, mut size) = (alpha * sum, alpha.norm() * size);
                let old = if beta == Complex64::ZERO { beta } else { c.get(&memory, row, column) };
                (exact, size) = (exact + beta * old, size + (beta * old).norm());
                if computed == Element::I32 {
                    let whole = |factor: Complex64, number: Complex64| factor.re as i128 * number.re as i128;
                    exact = Complex64::new(((whole(alpha, sum) + whole(beta, old)) as i32).into(), 0.0);
                }
                // Each of the k products and sums, the two factors and their sum round once; complex products
                // are sums of two. f64 itself is computed in the same type here, hence the factor 2. Then C's
                // type rounds.
                let summing = 2.0 * count(k + 4) * 2.0 * rounding(computed) * size;
                expected.push(Expected::stored(c.place(row, column), c.element, exact, summing));
            }
        }
        let [before, after] = memory.check(|view| multiply(view, &body, &on(self.threads)), &expected)?;
        prop_assert!(after == before, "nothing but C is written");
        Ok(())
    }
}

prop_compose! {
    fn cases()(
        kind in prop::sample::select(KINDS),
        operation in prop::array::uniform2(0u32..3),
        size in prop::array::uniform3(0u64..18),
        gaps in prop::array::uniform3(0u64..4),
        batch in 0u32..4,
        (backwards, pointers, device_scalars) in any::<(bool, bool, bool)>(),
        factors in prop::array::uniform2(any::<Option<bool>>()),
        threads in 1usize..3,
    ) -> ProductCase {
        ProductCase {
            kind, operation, size, gaps, batch, backwards, pointers, device_scalars, factors, threads,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn products_are_right_and_touch_nothing_else(case in cases()) {
        case.check()?;
    }

    /// Any message of a guest gets an answer, without a panic or a hang.
    #[test]
    fn no_message_does_harm(
        numbers in prop::array::uniform14(prop_oneof![0u64..40, any::<u64>(), (0u64..8192).prop_map(|at| BASE + at)]),
        operation in prop::array::uniform2(0u32..4),
        kind in prop::sample::select(KINDS),
        batch in prop_oneof![0u32..5, any::<u32>()],
        flags in 0u32..4,
        scalars in prop::array::uniform2(any::<[u8; 16]>()),
    ) {
        let memory = TestMemory::new(8192);
        let [m, n, k, lead_a, lead_b, lead_c, stride_a, stride_b, stride_c, a, b, c, workspace, workspace_bytes] = numbers;
        let body = Gemm {
            flags,
            operation,
            types: [kind.0, kind.0, kind.1],
            compute: kind.2,
            scale: kind.3,
            batch,
            size: [m, n, k],
            leading: [lead_a, lead_b, lead_c],
            stride: [stride_a, stride_b, stride_c].map(u64::cast_signed),
            matrix: [a, b, c],
            alpha: scalars[0],
            beta: scalars[1],
            workspace,
            workspace_bytes,
            ..Gemm::new_zeroed()
        };
        let asked = AtomicU32::new(0);
        let check = || stop_if(asked.fetch_add(1, Ordering::Relaxed) > 50);
        let _ = multiply(&memory.view, &body, &Workers { check: &check, ..on(2) });
    }
}

/// A product of f32 without gaps, with alpha 1 and beta 0.
pub(super) const PLAIN: ProductCase = ProductCase {
    kind: (0, 0, 68, 0, Element::F32),
    operation: [0, 0],
    size: [8, 8, 8],
    gaps: [0; 3],
    batch: 2,
    backwards: false,
    pointers: false,
    device_scalars: false,
    factors: [Some(true), Some(false)],
    threads: 1,
};

#[test]
fn tiles_and_blocks_join_without_seams() {
    // Sizes around those of tiles and blocks, in all orientations of the operands.
    for operation in [[0, 0], [1, 0], [0, 2], [1, 1]] {
        for size in [[257, 3, 513], [2, 513, 5], [256, 2, 512], [300, 258, 1]] {
            let case =
                ProductCase { operation, size, gaps: [1, 0, 2], batch: 1, factors: [None, None], ..PLAIN };
            case.check().unwrap_or_else(|error| panic!("{case:?}: {error}"));
        }
    }
    // Times any number of 32 bits they do not fit into 32 bits.
    let whole = ProductCase {
        kind: (3, 10, 72, 10, Element::I32),
        size: [3, 3, 2000],
        factors: [None, None],
        ..PLAIN
    };
    whole.check().expect("whole numbers wrap");
}

#[test]
fn threads_change_nothing() {
    let results: Vec<Vec<u8>> = [1, 2, 5]
        .map(|threads| {
            let case =
                ProductCase { kind: (2, 2, 68, 0, Element::F32), size: [600, 520, 530], threads, ..PLAIN };
            let layout = case.lay_out(0);
            multiply(&layout.memory.view, &layout.body, &on(threads)).expect("a product");
            layout.memory.all()
        })
        .into();
    assert!(results[0] == results[1] && results[0] == results[2]);
}

#[test]
fn what_does_not_count_is_not_read() {
    let nan = f32::NAN.to_le_bytes().repeat(64);
    let value_of =
        |layout: &ProductLayout| decode(&layout.memory.get(layout.body.matrix[2], 4), Element::F32).re;
    // If beta is 0, the contents of C have no effect.
    let layout = PLAIN.lay_out(0);
    layout.memory.put(layout.body.matrix[2], &nan);
    assert_eq!(multiply(&layout.memory.view, &layout.body, &on(1)), Ok(()));
    assert!(value_of(&layout).is_finite());
    // If there is no product to compute, A and B need not exist.
    for (size, factors) in [([8, 8, 0], [None, None]), ([8, 8, 8], [Some(false), None])] {
        let layout = ProductCase { size, factors, ..PLAIN }.lay_out(0);
        let old = value_of(&layout);
        let body = Gemm { matrix: [0, 8, layout.body.matrix[2]], ..layout.body };
        assert_eq!(multiply(&layout.memory.view, &body, &on(1)), Ok(()));
        let beta = layout.factors[1].re;
        assert!((value_of(&layout) - beta * old).abs() <= 1e-6, "{size:?}");
    }
    // The operands of an empty product need not exist either, nor C.
    for size in [[0, 8, 8], [8, 0, 8]] {
        let layout = ProductCase { size, ..PLAIN }.lay_out(0);
        let body = Gemm { matrix: [0; 3], ..layout.body };
        assert_eq!(multiply(&layout.memory.view, &body, &on(1)), Ok(()));
    }
    // But NaN in A or B does.
    let layout = PLAIN.lay_out(0);
    layout.memory.put(layout.body.matrix[0], &nan);
    assert_eq!(multiply(&layout.memory.view, &layout.body, &on(1)), Ok(()));
    assert!(value_of(&layout).is_nan());
}
