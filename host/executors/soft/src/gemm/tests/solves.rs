//! Tests of triangular solves.

use std::sync::atomic::{AtomicU32, Ordering};

use num_complex::Complex64;
use proptest::prelude::*;
use vgpu_ptx::Halt;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, TriangularSolve};

use super::super::element::Element;
use super::super::{GemmError, Workers, solve};
use super::{BASE, Stored, TestMemory, count, decode, encode, on, rounding, scalar, stop_if, value};

/// A solve and the memory that it is computed in.
#[derive(Clone, Debug)]
struct SolveCase {
    element: u32,
    side: u32,
    fill: u32,
    operation: u32,
    diagonal: u32,
    size: [u64; 2],
    gaps: [u64; 2],
    batch: u32,
    pointers: bool,
    device_scalars: bool,
    /// Alpha: 0, 1, or any number.
    alpha: Option<bool>,
    threads: usize,
}

/// A test case with its matrices in memory.
struct SolveLayout {
    memory: TestMemory,
    body: TriangularSolve,
    systems: Vec<[Stored; 2]>,
    alpha: Complex64,
}

impl SolveCase {
    fn order(&self) -> u64 {
        self.size[usize::from(self.side == 1)]
    }

    fn lay_out(&self) -> SolveLayout {
        let element = Element::from_wire(self.element).expect("a type");
        let [m, n] = self.size;
        let order = self.order();
        let leading = [order.max(1) + self.gaps[0], m.max(1) + self.gaps[1]];
        let room = [leading[0] * order, leading[1] * n]
            .map(|all| ((all + 3) * element.bytes()).next_multiple_of(16));
        let batch = u64::from(self.batch);
        let lists = BASE + 64 + (room[0] + room[1]) * batch;
        let memory = TestMemory::new(lists - BASE + 2 * 8 * batch);
        let mut systems = Vec::new();
        for index in 0..batch {
            let address = [0, 1].map(|at| BASE + 64 + room[0] * batch * at + room[at as usize] * index);
            let [a, b] = [0, 1].map(|at| Stored { element, address: address[at], leading: leading[at] });
            // The other triangle may hold anything and keeps it. The same applies to a diagonal that is not
            // used.
            let seed = index << 32;
            for (row, column) in (0..order).flat_map(|row| (0..order).map(move |column| (row, column))) {
                let inside = if self.fill == 0 { row > column } else { row < column };
                let any = value(seed ^ (row << 20) ^ column, element);
                // The matrices are far from singular: each diagonal element outweighs the rest of its row and
                // column.
                let number = if row == column && self.diagonal == 0 {
                    any / 8.0 + Complex64::new(1.5, 0.0)
                } else if inside {
                    any / (2.0 * count(order))
                } else {
                    continue;
                };
                memory.put(a.place(row, column), &encode(number, element));
            }
            b.fill(&memory, m, n, seed | 1 << 40);
            for at in 0..2u64 {
                memory.put(lists + (at * batch + index) * 8, &address[at as usize].to_le_bytes());
            }
            systems.push([a, b]);
        }
        let alpha = match self.alpha {
            Some(one) => Complex64::new(one.into(), 0.0),
            None => value(5, element),
        };
        let bytes = encode(alpha, element);
        memory.put(BASE, &bytes);
        let first = systems.first().map_or([BASE; 2], |system| system.map(|matrix| matrix.address));
        let body = TriangularSolve {
            stream: 0,
            flags: if self.pointers { GEMM_POINTERS } else { 0 }
                | if self.device_scalars { GEMM_DEVICE_SCALARS } else { 0 },
            side: self.side,
            fill: self.fill,
            operation: self.operation,
            diagonal: self.diagonal,
            element: self.element,
            batch: self.batch,
            size: self.size,
            leading,
            matrix: if self.pointers { [lists, lists + 8 * batch] } else { first },
            alpha: if self.device_scalars { scalar(&BASE.to_le_bytes()) } else { scalar(&bytes) },
            reserved: 0,
        };
        SolveLayout { memory, body, systems, alpha: decode(&bytes, element) }
    }

    /// Returns an element of op(A), with the triangle and diagonal as the message defines them.
    fn factor(&self, memory: &TestMemory, a: &Stored, row: u64, column: u64) -> Complex64 {
        let lower = (self.fill == 0) == (self.operation == 0);
        if row == column && self.diagonal == 1 {
            Complex64::ONE
        } else if row != column && (row > column) != lower {
            Complex64::ZERO
        } else {
            a.turned(memory, self.operation, row, column)
        }
    }

    /// Solves, and checks the solution by multiplying it by A.
    fn check(&self) -> Result<(), TestCaseError> {
        let SolveLayout { memory, body, systems, alpha } = self.lay_out();
        let [m, n] = self.size;
        let cells = move || (0..m).flat_map(move |row| (0..n).map(move |column| (row, column)));
        let before = memory.all();
        let right: Vec<Vec<Complex64>> = systems
            .iter()
            .map(|[_, b]| cells().map(|(row, column)| alpha * b.get(&memory, row, column)).collect())
            .collect();
        prop_assert_eq!(solve(&memory.view, &body, &on(self.threads)), Ok(()));
        let mut after = memory.all();
        let order = self.order();
        for ([a, x], right) in systems.iter().zip(&right) {
            for ((row, column), right) in cells().zip(right) {
                let (mut sum, mut size) = (Complex64::ZERO, right.norm());
                for at in 0..order {
                    let product = if self.side == 0 {
                        self.factor(&memory, a, row, at) * x.get(&memory, at, column)
                    } else {
                        x.get(&memory, row, at) * self.factor(&memory, a, at, column)
                    };
                    sum += product;
                    size += product.norm();
                }
                // Substitution solves a system whose A differs from A by as many roundings as there are rows,
                // for any A. The bound is doubled for complex numbers, and again because the sum here rounds,
                // too.
                let bound = 4.0 * count(order + 3) * rounding(x.element) * size;
                prop_assert!(
                    (sum - right).norm() <= bound,
                    "{row} {column}: {sum} for {right}, bound {bound}"
                );
            }
            for (row, column) in cells() {
                let at = (x.place(row, column) - BASE) as usize;
                let bytes = x.element.bytes() as usize;
                after[at..at + bytes].copy_from_slice(&before[at..at + bytes]);
            }
        }
        prop_assert!(after == before, "nothing but B is written");
        Ok(())
    }
}

prop_compose! {
    fn cases()(
        element in prop::sample::select(vec![0u32, 1, 4, 5]),
        (side, fill, operation, diagonal) in (0u32..2, 0u32..2, 0u32..3, 0u32..2),
        size in prop::array::uniform2(0u64..20),
        gaps in prop::array::uniform2(0u64..3),
        batch in 0u32..4,
        (pointers, device_scalars, alpha) in any::<(bool, bool, Option<bool>)>(),
        threads in 1usize..3,
    ) -> SolveCase {
        let batch = if pointers { batch } else { batch.min(1) };
        SolveCase {
            element, side, fill, operation, diagonal, size, gaps, batch, pointers, device_scalars, alpha, threads,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn solutions_solve_and_nothing_else_is_touched(case in cases()) {
        case.check()?;
    }

    /// Any message of a guest gets an answer, without a panic or a hang.
    #[test]
    fn no_message_does_harm(
        numbers in prop::array::uniform6(prop_oneof![0u64..40, any::<u64>(), (0u64..8192).prop_map(|at| BASE + at)]),
        small in prop::array::uniform4(0u32..4),
        element in 0u32..8,
        batch in prop_oneof![0u32..5, any::<u32>()],
        flags in 0u32..4,
        alpha: [u8; 16],
    ) {
        let memory = TestMemory::new(8192);
        let [m, n, lead_a, lead_b, a, b] = numbers;
        let [side, fill, operation, diagonal] = small;
        let body = TriangularSolve {
            stream: 0, flags, side, fill, operation, diagonal, element, batch, size: [m, n],
            leading: [lead_a, lead_b], matrix: [a, b], alpha, reserved: 0,
        };
        let asked = AtomicU32::new(0);
        let check = || stop_if(asked.fetch_add(1, Ordering::Relaxed) > 50);
        let _ = solve(&memory.view, &body, &Workers { check: &check, ..on(2) });
    }
}

/// A solve in f32 with a lower triangle to the left of the unknowns.
const PLAIN: SolveCase = SolveCase {
    element: 0,
    side: 0,
    fill: 0,
    operation: 0,
    diagonal: 0,
    size: [8, 4],
    gaps: [0, 0],
    batch: 1,
    pointers: false,
    device_scalars: false,
    alpha: Some(true),
    threads: 1,
};

#[test]
fn blocks_and_strips_join_without_seams() {
    for (side, fill, operation) in
        (0..2).flat_map(|s| (0..2).flat_map(move |f| (0..2).map(move |o| (s, f, o))))
    {
        for size in [[130, 3], [64, 65], [2, 129], [65, 64]] {
            let case = SolveCase { side, fill, operation, size, gaps: [1, 2], ..PLAIN };
            case.check().unwrap_or_else(|error| panic!("{case:?}: {error}"));
        }
    }
}

#[test]
fn threads_change_nothing() {
    let results = [1, 4].map(|threads| {
        let layout = SolveCase { size: [400, 300], threads, ..PLAIN }.lay_out();
        solve(&layout.memory.view, &layout.body, &on(threads)).expect("a solve");
        layout.memory.all()
    });
    assert!(results[0] == results[1]);
}

#[test]
fn alpha_nought_needs_no_a() {
    let layout = SolveCase { alpha: Some(false), ..PLAIN }.lay_out();
    let body = TriangularSolve { matrix: [0, layout.body.matrix[1]], ..layout.body };
    assert_eq!(solve(&layout.memory.view, &body, &on(1)), Ok(()));
    assert_eq!(layout.memory.get(body.matrix[1], 4 * 32), [0; 4 * 32]);
}

#[test]
fn what_is_wrong_is_found_before_anything_is_written() {
    let layout = SolveCase { batch: 2, pointers: true, ..PLAIN }.lay_out();
    let base = layout.body;
    let end = BASE + layout.memory.all().len() as u64;
    for (at, bytes) in [(0, 4 * 64), (1, 4 * 32)] {
        let good = layout.memory.get(base.matrix[at] + 8, 8);
        let address = end - bytes + 4;
        layout.memory.put(base.matrix[at] + 8, &address.to_le_bytes());
        let before = layout.memory.all();
        let expected = GemmError::Illegal { name: ["A", "B"][at], index: 1, address, bytes };
        assert_eq!(solve(&layout.memory.view, &base, &on(1)), Err(expected));
        assert!(layout.memory.all() == before);
        layout.memory.put(base.matrix[at] + 8, &good);
    }
    for (body, code) in [
        (TriangularSolve { side: 2, ..base }, 1),
        (TriangularSolve { fill: 2, ..base }, 1),
        (TriangularSolve { operation: 3, ..base }, 1),
        (TriangularSolve { diagonal: 2, ..base }, 1),
        (TriangularSolve { leading: [7, 8], ..base }, 1),
        (TriangularSolve { leading: [8, 7], ..base }, 1),
        (TriangularSolve { flags: 0, ..base }, 1),
        (TriangularSolve { element: 2, ..base }, 801),
        (TriangularSolve { element: 10, ..base }, 801),
        (TriangularSolve { leading: [u64::MAX, 8], ..base }, 700),
        (TriangularSolve { flags: GEMM_POINTERS | GEMM_DEVICE_SCALARS, alpha: scalar(&[4]), ..base }, 700),
        (TriangularSolve { matrix: [base.matrix[0] + 4, base.matrix[1]], ..base }, 716),
    ] {
        let error = solve(&layout.memory.view, &body, &on(1)).expect_err("an error");
        assert_eq!(error.code(), Some(code), "{body:?}");
    }
    assert_eq!(solve(&layout.memory.view, &base, &on(1)), Ok(()));
}

#[test]
fn it_stops_where_it_is_told_to() {
    let layout = SolveCase { size: [300, 200], ..PLAIN }.lay_out();
    let asked = AtomicU32::new(0);
    let check = || stop_if(asked.fetch_add(1, Ordering::Relaxed) >= 4);
    assert_eq!(
        solve(&layout.memory.view, &layout.body, &Workers { check: &check, ..on(2) }),
        Err(GemmError::Halted(Halt::Stopped))
    );
}
