//! Tests that the message of a reduction expresses the arguments of the call.

use std::ffi::c_int;
use std::ptr;

use vgpu_abi::{CUresult, call, fake};
use vgpu_wire::body::gemm::GEMM_DEVICE_SCALARS;
use vgpu_wire::body::vector::{VECTOR_ASUM, VECTOR_AXPY, VECTOR_DOT, VECTOR_DOT_CONJUGATE, VECTOR_NORM};

use super::args::Handle;
use super::{create, destroy, turn};
use crate::{reduce, settings};

type I = c_int;
type L = i64;
type U = usize;
type F = *mut f32;

fn sdot(handle: Handle, n: I, [incx, incy]: [I; 2], result: F) -> u32 {
    call!(
        reduce::cublasSdot_v2 as fn(Handle, I, U, I, U, I, F),
        handle,
        n,
        0x1000,
        incx,
        0x2000,
        incy,
        result
    )
}

fn device_mode(handle: Handle) {
    assert_eq!(call!(settings::cublasSetPointerMode_v2 as fn(Handle, I), handle, 1), 0);
}

#[test]
fn a_dot_product_is_one_message() {
    let _turn = turn();
    let handle = create();
    let mut sum = 7f32;
    assert_eq!(sdot(handle, 10, [1, 2], &raw mut sum), 0);
    // A negative increment: the address is that of the lowest element, and the first element is the highest.
    assert_eq!(sdot(handle, 10, [-1, -3], &raw mut sum), 0);
    let sent = fake::vectors();
    let [(_, first), (_, second)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((first.operation, first.elements, first.step), (VECTOR_DOT, 10, [1, 2]));
    assert_eq!((first.vector, first.flags, first.result, first.reserved), ([0x1000, 0x2000], 0, 0, 0));
    assert_eq!((first.x_type, first.y_type, first.scalar_type, first.compute), (0, 0, 0, 0));
    assert_eq!((second.step, second.vector), ([-1, -3], [0x1000 + 36, 0x2000 + 108]));
    device_mode(handle);
    assert_eq!(sdot(handle, 0, [1, 1], ptr::without_provenance_mut(0x3000)), 0);
    let (_, empty) = fake::vectors()[0];
    assert_eq!((empty.elements, empty.result), (0, 0x3000), "a sum of nothing is stored there, too");
    assert_eq!(sdot(handle, 1, [1, 1], ptr::null_mut()), 7);
    assert_eq!(sdot(ptr::null(), 1, [1, 1], &raw mut sum), 1);
    fake::answer(CUresult::NOT_SUPPORTED);
    assert_eq!(sdot(handle, 1, [1, 1], ptr::without_provenance_mut(0x3000)), 15);
    drop(fake::vectors());
    destroy(handle);
}

#[test]
fn a_sum_of_nothing_needs_no_message() {
    let _turn = turn();
    let handle = create();
    for n in [0, -4] {
        let mut sum = 7f32;
        assert_eq!((sdot(handle, n, [1, 1], &raw mut sum), sum), (0, 0.0));
    }
    let mut sum = 7f64;
    for step in [0, -1] {
        let place = &raw mut sum;
        assert_eq!(
            call!(reduce::cublasDasum_v2 as fn(Handle, I, U, I, *mut f64), handle, 4, 0x1000, step, place),
            0
        );
        assert_eq!(sum.to_bits(), 0);
    }
    assert!(fake::vectors().is_empty());
    destroy(handle);
}

#[test]
fn each_name_has_its_types() {
    let _turn = turn();
    let handle = create();
    device_mode(handle);
    let place: *mut u8 = ptr::without_provenance_mut(0x3000);
    let mut seen = Vec::new();
    macro_rules! dots {
        ($($name:ident)*) => { $(
            let status =
                call!(reduce::$name as fn(Handle, L, U, L, U, L, *mut u8), handle, 3, 16, 1, 32, 1, place);
            assert_eq!(status, 0);
        )* };
    }
    macro_rules! singles {
        ($($name:ident)*) => { $(
            let status = call!(reduce::$name as fn(Handle, I, U, I, *mut u8), handle, 3, 16, 2, place);
            assert_eq!(status, 0);
        )* };
    }
    dots!(cublasSdot_v2_64 cublasDdot_v2_64 cublasCdotu_v2_64 cublasCdotc_v2_64);
    dots!(cublasZdotu_v2_64 cublasZdotc_v2_64);
    singles!(cublasSnrm2_v2 cublasDnrm2_v2 cublasScnrm2_v2 cublasDznrm2_v2);
    singles!(cublasSasum_v2 cublasDasum_v2 cublasScasum_v2 cublasDzasum_v2);
    seen.extend(
        fake::vectors().into_iter().map(|(_, op)| (op.operation, op.x_type, op.scalar_type, op.compute)),
    );
    let expected = [
        (VECTOR_DOT, 0, 0, 0),
        (VECTOR_DOT, 1, 1, 1),
        (VECTOR_DOT, 4, 4, 4),
        (VECTOR_DOT_CONJUGATE, 4, 4, 4),
        (VECTOR_DOT, 5, 5, 5),
        (VECTOR_DOT_CONJUGATE, 5, 5, 5),
        (VECTOR_NORM, 0, 0, 0),
        (VECTOR_NORM, 1, 1, 1),
        (VECTOR_NORM, 4, 0, 0),
        (VECTOR_NORM, 5, 1, 1),
        (VECTOR_ASUM, 0, 0, 0),
        (VECTOR_ASUM, 1, 1, 1),
        (VECTOR_ASUM, 4, 0, 0),
        (VECTOR_ASUM, 5, 1, 1),
    ];
    assert_eq!(seen, expected);
    destroy(handle);
}

#[test]
fn types_that_are_arguments() {
    let _turn = turn();
    let handle = create();
    device_mode(handle);
    let dot = |x: I, y: I, result: I, compute: I| {
        call!(
            reduce::cublasDotEx as fn(Handle, I, U, I, I, U, I, I, U, I, I),
            handle,
            3,
            16,
            x,
            1,
            32,
            y,
            1,
            0x3000,
            result,
            compute,
        )
    };
    // The combinations in the manual's table are accepted, and no others.
    let known = [(2, 2, 2, 0), (14, 14, 14, 0), (0, 0, 0, 0), (1, 1, 1, 1), (4, 4, 4, 4), (5, 5, 5, 5)];
    let kinds = [0, 1, 2, 3, 4, 5, 10, 14];
    for x in kinds {
        for y in kinds {
            for result in kinds {
                for compute in kinds {
                    let status = if known.contains(&(x, y, result, compute)) { 0 } else { 15 };
                    assert_eq!(dot(x, y, result, compute), status, "{x} {y} {result} {compute}");
                }
            }
        }
    }
    assert_eq!(fake::vectors().len(), known.len());
    destroy(handle);
}

#[test]
fn axpy_brings_its_factor() {
    let _turn = turn();
    let handle = create();
    let axpy = |handle, n: I, alpha: *const f32| {
        call!(
            reduce::cublasSaxpy_v2 as fn(Handle, I, *const f32, U, I, U, I),
            handle,
            n,
            alpha,
            0x1000,
            1,
            0x2000,
            -2
        )
    };
    assert_eq!(axpy(handle, 4, &raw const TWO), 0);
    assert_eq!(axpy(handle, 0, &raw const TWO), 0);
    assert_eq!(axpy(handle, 4, &raw const NOUGHT), 0);
    assert_eq!(axpy(handle, 4, ptr::null()), 7);
    let sent = fake::vectors();
    let [(_, sent)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((sent.operation, sent.flags, sent.elements), (VECTOR_AXPY, 0, 4));
    assert_eq!((sent.alpha[..4].to_vec(), sent.vector[1]), (2f32.to_le_bytes().to_vec(), 0x2000 + 24));
    device_mode(handle);
    assert_eq!(axpy(handle, 4, ptr::without_provenance(0x3000)), 0);
    let (_, sent) = fake::vectors()[0];
    assert_eq!(
        (sent.flags, sent.alpha[..8].to_vec()),
        (GEMM_DEVICE_SCALARS, 0x3000u64.to_le_bytes().to_vec())
    );
    destroy(handle);
}

static TWO: f32 = 2.0;
static NOUGHT: f32 = 0.0;
