//! Tests of the exports as a C program calls them, on a [`vgpu_abi::fake`] libcuda. Statuses are those of
//! NVIDIA's libraries of CUDA 12.9 and 13.5 for the same arguments, where those could be measured without a
//! device.

mod args;
mod reduces;
mod vectors;

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use args::{Args, GOOD, Handle, SOLVE, STRIDE, Status, Triangle, gemm_with};
use proptest::prelude::*;
use vgpu_abi::blas::{compute, data};
use vgpu_abi::driver::CUcontext;
use vgpu_abi::{CUresult, call, fake};
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS};

use crate::{CUDA13, settings, version};

/// Serializes the tests: the next handle gets the context that another test has destroyed.
fn turn() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn create() -> Handle {
    fake::answer(CUresult::SUCCESS);
    let mut handle = ptr::null();
    assert_eq!(call!(settings::cublasCreate_v2 as fn(*mut Handle), &raw mut handle), 0);
    handle
}

fn destroy(handle: Handle) -> Status {
    call!(settings::cublasDestroy_v2 as fn(Handle), handle)
}

/// Calls a setter of one integer.
macro_rules! set {
    ($function:path, $handle:expr, $value:expr) => {
        call!($function as fn(Handle, c_int), $handle, $value)
    };
}

/// Calls a getter of one integer, and returns its status and the value.
macro_rules! get {
    ($function:path, $handle:expr) => {{
        let mut value: c_int = -7;
        (call!($function as fn(Handle, *mut c_int), $handle, &raw mut value), value)
    }};
}

#[test]
fn a_handle_lives_from_create_to_destroy() {
    let _turn = turn();
    assert_eq!(call!(settings::cublasCreate_v2 as fn(*mut Handle), ptr::null_mut()), 7);
    assert_eq!(destroy(ptr::null()), 1);
    let handle = create();
    assert_eq!(fake::context(), CUcontext(0x1000));
    assert_eq!(GOOD.sgemm(handle), 0);
    assert_eq!(destroy(handle), 0);
    assert_eq!(destroy(handle), 1);
    assert_eq!(GOOD.sgemm(handle), 1);
    assert_eq!(set!(settings::cublasSetMathMode, handle, 3), 1);
    assert_eq!(get!(settings::cublasGetMathMode, handle), (1, -7));
    assert_eq!(fake::products().len(), 1);
}

#[test]
fn without_a_device_there_is_no_handle() {
    let _turn = turn();
    let mut handle: Handle = ptr::null();
    for (cuda, status) in [(100, 1), (3, 1), (4, 1), (802, 1), (46, 1), (2, 3)] {
        fake::answer(CUresult(cuda));
        assert_eq!(
            call!(settings::cublasCreate_v2 as fn(*mut Handle), &raw mut handle),
            status,
            "CUresult {cuda}"
        );
        assert!(handle.is_null());
    }
}

#[test]
fn settings_begin_as_the_manual_says_and_are_kept() {
    let _turn = turn();
    let handle = create();
    assert_eq!(get!(settings::cublasGetPointerMode_v2, handle), (0, 0));
    assert_eq!(get!(settings::cublasGetAtomicsMode, handle), (0, 0));
    assert_eq!(get!(settings::cublasGetMathMode, handle), (0, 0));
    assert_eq!(set!(settings::cublasSetPointerMode_v2, handle, 1), 0);
    assert_eq!(set!(settings::cublasSetAtomicsMode, handle, 1), 0);
    assert_eq!(set!(settings::cublasSetMathMode, handle, 3), 0);
    for wrong in [-1, 2, 3] {
        assert_eq!(set!(settings::cublasSetPointerMode_v2, handle, wrong), 7);
        assert_eq!(set!(settings::cublasSetAtomicsMode, handle, wrong), 7);
    }
    assert_eq!(set!(settings::cublasSetMathMode, handle, 32), 7);
    assert_eq!(set!(settings::cublasSetMathMode, handle, 8), if CUDA13 { 0 } else { 7 });
    assert_eq!(set!(settings::cublasSetMathMode, handle, 3), 0);
    assert_eq!(get!(settings::cublasGetPointerMode_v2, handle), (0, 1));
    assert_eq!(get!(settings::cublasGetAtomicsMode, handle), (0, 1));
    assert_eq!(get!(settings::cublasGetMathMode, handle), (0, 3));
    let null: *mut c_int = ptr::null_mut();
    assert_eq!(call!(settings::cublasGetPointerMode_v2 as fn(Handle, *mut c_int), handle, null), 7);
    assert_eq!(call!(settings::cublasGetPointerMode_v2 as fn(Handle, *mut c_int), ptr::null(), null), 7);
    assert_eq!(call!(settings::cublasGetAtomicsMode as fn(Handle, *mut c_int), handle, null), 7);
    assert_eq!(call!(settings::cublasGetMathMode as fn(Handle, *mut c_int), handle, null), 7);
    // The next handle does not inherit these settings.
    assert_eq!(destroy(handle), 0);
    let next = create();
    assert_eq!(get!(settings::cublasGetMathMode, next), (0, 0));
    assert_eq!(get!(settings::cublasGetPointerMode_v2, next), (0, 0));
    assert_eq!(destroy(next), 0);
}

#[test]
fn a_new_stream_gives_the_workspace_up() {
    let _turn = turn();
    let handle = create();
    let workspace = |address, bytes| {
        call!(settings::cublasSetWorkspace_v2 as fn(Handle, usize, usize), handle, address, bytes)
    };
    let stream = |stream| call!(settings::cublasSetStream_v2 as fn(Handle, usize), handle, stream);
    let mut current = 9;
    let get = settings::cublasGetStream_v2;
    assert_eq!(call!(get as fn(Handle, *mut usize), handle, &raw mut current), 0);
    assert_eq!(current, 0);
    assert_eq!(stream(0x77), 0);
    assert_eq!(call!(get as fn(Handle, *mut usize), handle, &raw mut current), 0);
    assert_eq!(current, 0x77);
    assert_eq!(call!(get as fn(Handle, *mut usize), handle, ptr::null_mut()), 7);
    assert_eq!(workspace(0x5000, 4096), 0);
    assert_eq!(GOOD.sgemm(handle), 0);
    assert_eq!(stream(2), 0);
    assert_eq!(GOOD.sgemm(handle), 0);
    assert_eq!(workspace(0, 4096), 0);
    assert_eq!(GOOD.sgemm(handle), 0);
    let seen: Vec<_> = fake::products()
        .iter()
        .map(|(stream, product)| (*stream, product.workspace, product.workspace_bytes))
        .collect();
    assert_eq!(seen, [(0x77, 0x5000, 4096), (2, 0, 0), (2, 0, 0)]);
    assert_eq!(workspace(0x5001, 1), 0);
    assert_eq!(call!(settings::cublasSetWorkspace_v2 as fn(Handle, usize, usize), ptr::null(), 0, 0), 1);
    assert_eq!(destroy(handle), 0);
}

#[test]
fn versions() {
    let (version, parts, cudart) =
        if CUDA13 { (131_000, [13, 10, 0], 13000) } else { (120_903, [12, 9, 3], 12080) };
    assert_eq!(get!(version::cublasGetVersion_v2, ptr::null()), (0, version));
    assert_eq!(
        call!(version::cublasGetVersion_v2 as fn(Handle, *mut c_int), ptr::null(), ptr::null_mut()),
        7
    );
    for (which, part) in (0..).zip(parts) {
        let mut value = -1;
        assert_eq!(call!(version::cublasGetProperty as fn(c_int, *mut c_int), which, &raw mut value), 0);
        assert_eq!(value, part);
    }
    for which in [-1, 3] {
        let mut value = -1;
        assert_eq!(call!(version::cublasGetProperty as fn(c_int, *mut c_int), which, &raw mut value), 7);
    }
    assert_eq!(call!(version::cublasGetProperty as fn(c_int, *mut c_int), 0, ptr::null_mut()), 7);
    // SAFETY: the function has no arguments.
    assert_eq!(unsafe { version::cublasGetCudartVersion() }, cudart);
    // SAFETY: any number may be asked for.
    let text = unsafe { version::cublasGetStatusString(vgpu_abi::blas::BlasStatus(15)) };
    // SAFETY: the answer is a constant text.
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"the requested functionality is not supported");
    // SAFETY: any number may be asked for.
    let name = unsafe { version::cublasGetStatusName(vgpu_abi::blas::BlasStatus(2)) };
    // SAFETY: the answer is a constant text.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"unrecognized status");
}

#[test]
fn bad_products_are_refused_without_a_message() {
    let _turn = turn();
    let handle = create();
    let refused = [
        Args { op: [3, 0], ..GOOD },
        Args { op: [0, 4], ..GOOD },
        Args { op: [-1, 0], ..GOOD },
        Args { size: [-1, 8, 8], ..GOOD },
        Args { size: [8, -1, 8], ..GOOD },
        Args { size: [8, 8, -1], ..GOOD },
        Args { lead: [7, 8, 8], ..GOOD },
        Args { lead: [8, 7, 8], ..GOOD },
        Args { lead: [8, 8, 7], ..GOOD },
        Args { lead: [-8, 8, 8], ..GOOD },
        Args { alpha: None, ..GOOD },
        Args { beta: None, ..GOOD },
        Args { c: 0, ..GOOD },
        Args { c: 0, beta: Some(1.0), ..GOOD },
        // A dimension of 0 still needs leading dimensions of 1.
        Args { size: [8, 8, 0], op: [1, 0], lead: [0, 8, 8], ..GOOD },
        Args { size: [8, 8, 0], lead: [8, 0, 8], ..GOOD },
        Args { size: [0, 8, 8], lead: [1, 8, 0], ..GOOD },
        Args { size: [8, 0, 8], op: [0, 1], lead: [8, 0, 8], ..GOOD },
        Args { op: [4, 0], alpha: None, ..GOOD },
    ];
    for args in refused {
        for (name, status) in args.all(handle) {
            assert_eq!(status, 7, "{name} {args:?}");
        }
    }
    let negative = Args { batch: -1, ..GOOD };
    for status in
        [negative.sgemm_batched(handle), negative.sgemm_strided(handle), negative.gemm_batched_ex(handle)]
    {
        assert_eq!(status, 7);
    }
    for (name, status) in GOOD.all(ptr::null()) {
        assert_eq!(status, 1, "{name}");
    }
    assert_eq!(fake::products(), []);
    assert_eq!(destroy(handle), 0);
}

#[test]
fn the_rows_that_a_leading_dimension_must_hold_follow_the_operation() {
    let _turn = turn();
    let handle = create();
    let size = [4, 5, 6];
    for (op, lead) in [([0, 0], [4, 6, 4]), ([1, 0], [6, 6, 4]), ([0, 2], [4, 5, 4]), ([2, 1], [6, 5, 4])] {
        let fits = Args { op, size, lead, ..GOOD };
        for (name, status) in fits.all(handle) {
            assert_eq!(status, 0, "{name} {fits:?}");
        }
        assert_eq!(fake::products().len(), 6);
        for short in 0..3 {
            let mut lead = lead;
            lead[short] -= 1;
            let args = Args { lead, ..fits };
            for (name, status) in args.all(handle) {
                assert_eq!(status, 7, "{name} {args:?}");
            }
        }
    }
    assert_eq!(destroy(handle), 0);
}

#[test]
fn nothing_to_do_sends_nothing() {
    let _turn = turn();
    let handle = create();
    let nothing = [
        Args { size: [0, 8, 8], ..GOOD },
        Args { size: [8, 0, 8], ..GOOD },
        Args { size: [0, 8, 8], alpha: None, beta: None, ..GOOD },
        // Only beta * C remains, which changes nothing.
        Args { size: [8, 8, 0], beta: Some(1.0), ..GOOD },
        Args { alpha: Some(0.0), beta: Some(1.0), ..GOOD },
    ];
    for args in nothing {
        for (name, status) in args.all(handle) {
            assert_eq!(status, 0, "{name} {args:?}");
        }
    }
    let empty = Args { batch: 0, ..GOOD };
    for status in [empty.sgemm_batched(handle), empty.sgemm_strided(handle), empty.gemm_strided_ex(handle)] {
        assert_eq!(status, 0);
    }
    // Arguments are checked even for a batch of none.
    assert_eq!(Args { lead: [7, 8, 8], ..empty }.gemm_strided_ex(handle), 7);
    assert_eq!(Args { types: [1, 0, 0], ..empty }.gemm_strided_ex(handle), 15);
    assert_eq!(fake::products(), []);
    // Even without a product, C becomes beta * C.
    for args in [Args { size: [8, 8, 0], ..GOOD }, Args { alpha: Some(0.0), ..GOOD }] {
        assert_eq!(args.sgemm(handle), 0);
        assert_eq!(fake::products().len(), 1);
    }
    // The values of factors in device memory are not known here.
    assert_eq!(set!(settings::cublasSetPointerMode_v2, handle, 1), 0);
    assert_eq!(Args { size: [8, 8, 0], beta: Some(1.0), ..GOOD }.sgemm(handle), 0);
    assert_eq!(fake::products().len(), 1);
    assert_eq!(destroy(handle), 0);
}

#[test]
fn types_come_before_everything_else() {
    let _turn = turn();
    let handle = create();
    for (args, status) in [
        (Args { types: [1, 0, 0], ..GOOD }, 15),
        (Args { types: [1, 0, 0], size: [-1, 8, 8], ..GOOD }, 15),
        (Args { types: [1, 0, 0], size: [0, 8, 8], ..GOOD }, 15),
        (Args { types: [1, 0, 0], lead: [7, 8, 8], ..GOOD }, 15),
        (Args { types: [999, 999, 0], ..GOOD }, 15),
        (Args { compute: 6, ..GOOD }, 15),
        (
            Args { compute: compute::F64_EMULATED_FIXEDPOINT, types: [1, 1, 1], ..GOOD },
            if CUDA13 { 0 } else { 15 },
        ),
        (Args { algorithm: 99, ..GOOD }, 0),
        (Args { algorithm: 115, ..GOOD }, 0),
        (Args { algorithm: 23, ..GOOD }, 0),
        (Args { algorithm: 24, ..GOOD }, 7),
        (Args { algorithm: -2, ..GOOD }, 7),
        (Args { algorithm: 116, ..GOOD }, 7),
        (Args { algorithm: 999, ..GOOD }, if CUDA13 { 0 } else { 7 }),
    ] {
        assert_eq!(args.gemm_ex(handle), status, "{args:?}");
    }
    assert_eq!(destroy(handle), 0);
}

#[test]
fn a_product_becomes_one_message() {
    let _turn = turn();
    let handle = create();
    assert_eq!(call!(settings::cublasSetStream_v2 as fn(Handle, usize), handle, 0x99), 0);
    assert_eq!(set!(settings::cublasSetMathMode, handle, 3), 0);
    let args = Args {
        op: [1, 2],
        size: [4, 5, 6],
        alpha: Some(2.0),
        beta: Some(-1.0),
        lead: [60, 50, 40],
        batch: 7,
        types: [data::R_16F, data::R_16F, data::R_32F],
        compute: data::R_32F,
        algorithm: 99,
        ..GOOD
    };
    assert_eq!(args.gemm_strided_ex(handle), 0);
    let sent = fake::products();
    let [(stream, product)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((stream, product.flags, product.operation), (0x99, 0, [1, 2]));
    assert_eq!((product.types, product.compute, product.scale), ([2, 2, 0], 68, 0));
    assert_eq!((product.algorithm, product.math, product.batch), (99, 3, 7));
    assert_eq!((product.size, product.leading), ([4, 5, 6], [60, 50, 40]));
    assert_eq!((product.stride, product.matrix), (STRIDE, [0x10000, 0x20000, 0x30000]));
    assert_eq!(
        (product.alpha[..4].to_vec(), product.beta[..4].to_vec()),
        (2f32.to_le_bytes().into(), (-1f32).to_le_bytes().into())
    );
    assert_eq!((&product.alpha[4..], &product.beta[4..]), (&[0; 12][..], &[0; 12][..]));

    assert_eq!(set!(settings::cublasSetPointerMode_v2, handle, 1), 0);
    assert_eq!(GOOD.sgemm_batched(handle), 0);
    let sent = fake::products();
    let [(_, product)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!(product.flags, GEMM_POINTERS | GEMM_DEVICE_SCALARS);
    assert_eq!((product.types, product.compute, product.scale, product.batch), ([0; 3], 68, 0, 2));
    // The message carries the address itself, not the value there.
    assert_ne!(product.alpha[..8], [0; 8]);
    assert_ne!(product.alpha[..4], 1f32.to_le_bytes());
    assert_eq!(destroy(handle), 0);
}

#[test]
fn scalars_have_the_scale_type() {
    let _turn = turn();
    let handle = create();
    let gemm = |types, compute, alpha, beta| gemm_with(handle, types, compute, alpha, beta);
    let half = (0x1234u16, 0x5678u16);
    assert_eq!(gemm([2, 2, 2], compute::F16, (&raw const half.0).cast(), (&raw const half.1).cast()), 0);
    let complex = ([1.5f64, 2.5], [3.5f64, 4.5]);
    assert_eq!(
        gemm([5, 5, 5], compute::F64, (&raw const complex.0).cast(), (&raw const complex.1).cast()),
        0
    );
    let whole = (3i32, 4i32);
    assert_eq!(gemm([3, 3, 10], compute::I32, (&raw const whole.0).cast(), (&raw const whole.1).cast()), 0);
    let sent: Vec<_> = fake::products().into_iter().map(|(_, product)| product).collect();
    assert_eq!(sent.iter().map(|product| product.scale).collect::<Vec<_>>(), [2, 5, 10]);
    assert_eq!(sent[0].alpha[..3], [0x34, 0x12, 0]);
    assert_eq!(sent[1].beta, *[3.5f64.to_le_bytes(), 4.5f64.to_le_bytes()].as_flattened());
    assert_eq!(sent[2].alpha[..5], [3, 0, 0, 0, 0]);
    assert_eq!(destroy(handle), 0);
}

#[test]
fn refusals_of_the_driver_become_cublass() {
    let _turn = turn();
    let handle = create();
    for (cuda, status) in [(801, 15), (2, 3), (3, 1), (4, 1), (46, 13), (700, 13), (900, 13), (400, 13)] {
        fake::answer(CUresult(cuda));
        for (name, found) in GOOD.all(handle) {
            assert_eq!(found, status, "{name} CUresult {cuda}");
        }
    }
    assert_eq!(destroy(handle), 0);
}

#[test]
fn solves_are_checked() {
    let _turn = turn();
    let handle = create();
    for bad in [
        Triangle { side: 2, ..SOLVE },
        Triangle { fill: 2, ..SOLVE },
        Triangle { fill: 3, ..SOLVE },
        Triangle { op: 3, ..SOLVE },
        Triangle { op: 4, ..SOLVE },
        Triangle { diagonal: 2, ..SOLVE },
        Triangle { size: [-1, 4], ..SOLVE },
        Triangle { size: [8, -4], ..SOLVE },
        Triangle { lead: [7, 8], ..SOLVE },
        Triangle { lead: [8, 7], ..SOLVE },
        Triangle { side: 1, size: [4, 8], lead: [7, 8], ..SOLVE },
        Triangle { alpha: None, ..SOLVE },
    ] {
        assert_eq!(bad.batched(handle), 7, "{bad:?}");
        assert_eq!(bad.single(handle), 7, "{bad:?}");
    }
    assert_eq!(Triangle { batch: -1, ..SOLVE }.batched(handle), 7);
    for nothing in [Triangle { size: [0, 4], ..SOLVE }, Triangle { size: [8, 0], alpha: None, ..SOLVE }] {
        assert_eq!(nothing.batched(handle), 0);
        assert_eq!(nothing.single(handle), 0);
    }
    assert_eq!(Triangle { batch: 0, ..SOLVE }.batched(handle), 0);
    assert_eq!(SOLVE.batched(ptr::null()), 1);
    assert!(fake::solves().is_empty());

    assert_eq!(
        Triangle {
            side: 1,
            fill: 1,
            op: 2,
            diagonal: 1,
            size: [8, 4],
            lead: [4, 9],
            alpha: Some(3.0),
            ..SOLVE
        }
        .batched(handle),
        0
    );
    assert_eq!(SOLVE.single(handle), 0);
    let sent = fake::solves();
    let [(_, batched), (_, single)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((batched.flags, batched.batch, batched.element), (GEMM_POINTERS, 2, 0));
    assert_eq!((batched.side, batched.fill, batched.operation, batched.diagonal), (1, 1, 2, 1));
    assert_eq!((batched.size, batched.leading, batched.matrix), ([8, 4], [4, 9], [0x10000, 0x20000]));
    assert_eq!(batched.alpha[..4], 3f32.to_le_bytes());
    assert_eq!((single.flags, single.batch), (0, 1));
    fake::answer(CUresult::NOT_SUPPORTED);
    assert_eq!(SOLVE.batched(handle), 15);
    assert_eq!(destroy(handle), 0);
}

proptest! {
    /// Checks that each matrix has room for its columns, by the condition of the reference BLAS written in
    /// another way.
    #[test]
    fn what_is_sent_is_well_formed(
        op in [-1..4, -1..4],
        size in [-1..6, -1..6, -1..6],
        lead in [-1..6, -1..6, -1..6],
        batch in -1..3,
    ) {
        let _turn = turn();
        let handle = create();
        let args = Args { op, size, lead, batch, ..GOOD };
        let status = args.sgemm_batched(handle);
        let sent = fake::products();
        let [m, n, k] = size;
        let rows = |operation, as_is, turned| if operation == 0 { as_is } else { turned };
        let good = op.iter().all(|op| (0..3).contains(op))
            && size.iter().all(|&size| size >= 0)
            && batch >= 0
            && lead[0] >= rows(op[0], m, k).max(1)
            && lead[1] >= rows(op[1], k, n).max(1)
            && lead[2] >= m.max(1);
        prop_assert_eq!(status, if good { 0 } else { 7 });
        prop_assert_eq!(sent.len(), usize::from(good && m > 0 && n > 0 && batch > 0));
        prop_assert_eq!(destroy(handle), 0);
    }
}
