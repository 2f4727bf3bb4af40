//! Tests that the message of a product with a vector expresses the arguments of the call.

#![allow(clippy::many_single_char_names, reason = "the names of BLAS")]

use std::ffi::c_int;
use std::ptr;

use proptest::prelude::*;
use vgpu_abi::{call, fake};
use vgpu_wire::body::gemm::{GEMM_POINTERS, Gemm};

use super::args::Handle;
use super::{create, destroy, turn};
use crate::{settings, vector};

type I = c_int;
type U = usize;
type F = *const f32;

static ONE: f32 = 1.0;
static TWO: f32 = 2.0;
static ONE_DOUBLE: f64 = 1.0;

/// Arguments of a product with a vector; addresses are places in an array of numbers.
#[derive(Clone, Copy, Debug)]
struct Args {
    op: I,
    size: [I; 2],
    lda: I,
    step: [I; 2],
    place: [U; 3],
}

#[rustfmt::skip]
impl Args {
    fn sgemv(&self, handle: Handle) -> u32 {
        let Self { op, size: [m, n], lda, step: [incx, incy], place: [a, x, y] } = *self;
        call!(
            vector::cublasSgemv_v2 as fn(Handle, I, I, I, F, U, I, U, I, F, U, I),
            handle, op, m, n, &raw const TWO, a, lda, x, incx, &raw const ONE, y, incy,
        )
    }

    fn zgemv(&self, handle: Handle) -> u32 {
        let Self { op, size: [m, n], lda, step: [incx, incy], place: [a, x, y] } = *self;
        let one = [1f64, 0.0];
        call!(
            vector::cublasZgemv_v2 as fn(Handle, I, I, I, *const [f64; 2], U, I, U, I, *const [f64; 2], U, I),
            handle, op, m, n, &raw const one, a, lda, x, incx, &raw const one, y, incy,
        )
    }

    fn strided(&self, handle: Handle, batch: I) -> u32 {
        let Self { op, size: [m, n], lda, step: [incx, incy], place: [a, x, y] } = *self;
        call!(
            vector::cublasHSSgemvStridedBatched
                as fn(Handle, I, I, I, F, U, I, i64, U, I, i64, F, U, I, i64, I),
            handle, op, m, n, &raw const TWO, a, lda, 1000, x, incx, -50, &raw const ONE, y, incy, 70, batch,
        )
    }

    fn batched(&self, handle: Handle, batch: i64) -> u32 {
        let Self { op, size, lda, step, place: [a, x, y] } = *self;
        let ([m, n], lda, [incx, incy]) = (size.map(i64::from), i64::from(lda), step.map(i64::from));
        call!(
            vector::cublasDgemvBatched_64
                as fn(Handle, I, i64, i64, *const f64, U, i64, U, i64, *const f64, U, i64, i64),
            handle, op, m, n, &raw const ONE_DOUBLE, a, lda, x, incx, &raw const ONE_DOUBLE, y, incy, batch,
        )
    }
}

/// Carries out a message on whole numbers, with an alpha of 2 and a beta of 1.
fn carry_out(product: &Gemm, numbers: &mut [i64]) {
    let [m, n, k] = product.size;
    let at = |which: usize, row: u64, column: u64| {
        (product.matrix[which] + row + column * product.leading[which]) as usize
    };
    for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
        let sum: i64 = (0..k)
            .map(|depth| {
                let left = if product.operation[0] == 0 { at(0, row, depth) } else { at(0, depth, row) };
                let right =
                    if product.operation[1] == 0 { at(1, depth, column) } else { at(1, column, depth) };
                numbers[left] * numbers[right]
            })
            .sum();
        numbers[at(2, row, column)] += 2 * sum;
    }
}

/// Computes `y = 2 * op(A) * x + y` as BLAS defines it.
fn expected(args: &Args, numbers: &mut [i64]) {
    let [m, n] = args.size.map(|size| size as usize);
    let [a, x, y] = args.place;
    let [incx, incy] = args.step.map(|step| step as usize);
    for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
        let (from, to) = if args.op == 0 { (column, row) } else { (row, column) };
        numbers[y + to * incy] +=
            2 * numbers[a + row + column * args.lda as usize] * numbers[x + from * incx];
    }
}

proptest! {
    #[test]
    fn a_product_with_a_vector_is_that_product(
        op in 0..3, size in [1..7, 1..7], gap in 0..3, step in [1..4, 1..4],
    ) {
        let _turn = turn();
        let handle = create();
        let args = Args { op, size, lda: size[0] + gap, step, place: [1, 200, 300] };
        prop_assert_eq!(args.sgemv(handle), 0);
        let sent = fake::products();
        prop_assert_eq!(sent.len(), 1);
        let product = sent[0].1;
        prop_assert_eq!((product.types, product.compute, product.batch, product.flags), ([0; 3], 68, 1, 0));
        let mut found: Vec<i64> = (0..400).map(|at| (at * at + 3 * at) % 17 - 8).collect();
        let mut right = found.clone();
        carry_out(&product, &mut found);
        expected(&args, &mut right);
        prop_assert_eq!(found, right);
        prop_assert_eq!(destroy(handle), 0);
    }
}

const GOOD: Args = Args { op: 0, size: [4, 6], lda: 4, step: [1, 1], place: [0x100, 0x200, 0x300] };

#[test]
fn bad_vectors_are_refused_without_a_message() {
    let _turn = turn();
    let handle = create();
    for args in [
        Args { op: 3, ..GOOD },
        Args { size: [-1, 6], ..GOOD },
        Args { size: [4, -1], ..GOOD },
        Args { lda: 3, ..GOOD },
        Args { step: [0, 1], ..GOOD },
        Args { step: [1, 0], ..GOOD },
    ] {
        let answers =
            [args.sgemv(handle), args.zgemv(handle), args.strided(handle, 2), args.batched(handle, 2)];
        assert_eq!(answers, [7; 4], "{args:?}");
    }
    assert_eq!([GOOD.strided(handle, -1), GOOD.batched(handle, -1)], [7; 2]);
    for args in [Args { step: [-1, 1], ..GOOD }, Args { step: [1, -2], ..GOOD }] {
        assert_eq!([args.sgemv(handle), args.zgemv(handle), args.strided(handle, 2)], [15; 3], "{args:?}");
    }
    // No message can express A conjugated but not transposed. With a y without gaps none has to.
    assert_eq!(Args { op: 2, step: [1, 2], ..GOOD }.zgemv(handle), 15);
    assert!(fake::products().is_empty());
    assert_eq!(Args { op: 2, step: [3, 1], ..GOOD }.zgemv(handle), 0);
    let product = fake::products()[0].1;
    assert_eq!((product.operation, product.size, product.types), ([2, 1], [6, 1, 4], [5; 3]));
    // An A without rows or columns leaves y as it is.
    for args in [Args { size: [0, 6], ..GOOD }, Args { size: [4, 0], ..GOOD }] {
        assert_eq!([args.sgemv(handle), args.strided(handle, 2), args.batched(handle, 2)], [0; 3]);
    }
    assert_eq!([GOOD.strided(handle, 0), GOOD.batched(handle, 0)], [0; 2]);
    assert_eq!([GOOD.sgemv(ptr::null()), GOOD.batched(ptr::null(), 2)], [1; 2]);
    assert!(fake::products().is_empty());
    assert_eq!(destroy(handle), 0);
}

#[test]
fn batches_keep_their_operands_apart() {
    let _turn = turn();
    let handle = create();
    assert_eq!(GOOD.strided(handle, 5), 0);
    assert_eq!(Args { op: 1, step: [2, 3], ..GOOD }.strided(handle, 5), 0);
    assert_eq!(GOOD.batched(handle, 3), 0);
    let sent = fake::products();
    let [(_, column), (_, row), (_, lists)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((column.matrix, column.stride), ([0x100, 0x200, 0x300], [1000, -50, 70]));
    assert_eq!((column.types, column.scale, column.batch), ([2, 2, 0], 0, 5));
    assert_eq!((row.matrix, row.stride), ([0x200, 0x100, 0x300], [-50, 1000, 70]));
    assert_eq!((row.size, row.leading, row.operation), ([1, 6, 4], [2, 4, 3], [0, 0]));
    assert_eq!((lists.flags, lists.types, lists.compute, lists.batch), (GEMM_POINTERS, [1; 3], 70, 3));
    assert_eq!(destroy(handle), 0);
}

#[test]
fn scaling_is_a_product_of_nothing() {
    let _turn = turn();
    let handle = create();
    let scal = |factor: &f32, n, x: U, step| {
        call!(vector::cublasSscal_v2 as fn(Handle, I, F, U, I), handle, n, ptr::from_ref(factor), x, step)
    };
    assert_eq!(scal(&TWO, 7, 0x500, 3), 0);
    let sent = fake::products();
    let [(_, product)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((product.size, product.matrix[2], product.leading[2]), ([1, 7, 0], 0x500, 3));
    assert_eq!(product.beta[..4], TWO.to_le_bytes());
    // A factor of one, no elements, and a negative increment leave x as it is.
    assert_eq!([scal(&ONE, 7, 0x500, 3), scal(&TWO, 0, 0x500, 3), scal(&TWO, 7, 0x500, -1)], [0; 3]);
    assert_eq!(scal(&TWO, 7, 0, 1), 7);
    assert!(fake::products().is_empty());
    let set = settings::cublasSetPointerMode_v2;
    assert_eq!(call!(set as fn(Handle, I), handle, 1), 0);
    assert_eq!(scal(&ONE, 7, 0x500, 3), 0);
    assert_eq!(fake::products()[0].1.alpha, fake_address(&ONE));
    assert_eq!(destroy(handle), 0);
}

/// Returns the device address of a scalar, as a message carries it.
fn fake_address(factor: &f32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(ptr::from_ref(factor).addr() as u64).to_le_bytes());
    bytes
}
