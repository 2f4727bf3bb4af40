//! Tests of the exports as a C program calls them, on a [`vgpu_abi::fake`] libcuda.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use proptest::prelude::*;
use vgpu_abi::blas::{BlasStatus, MatmulAlgo, MatmulHeuristicResult, compute, data};
use vgpu_abi::{CUresult, call, fake};
use vgpu_wire::body::gemm::GEMM_DEVICE_SCALARS;

use crate::{CUDA13, descriptors, handle, matmul, version};

type Status = c_uint;
type P = *const c_void;
type I = c_int;
type U = usize;

fn desc(compute: I, scale: I) -> P {
    let mut made: P = ptr::null();
    let status =
        call!(descriptors::cublasLtMatmulDescCreate as fn(*mut P, I, I), &raw mut made, compute, scale);
    assert_eq!(status, 0);
    made
}

fn layout(kind: I, rows: u64, columns: u64, leading: i64) -> P {
    let mut made: P = ptr::null();
    let place = &raw mut made;
    let create = descriptors::cublasLtMatrixLayoutCreate;
    assert_eq!(call!(create as fn(*mut P, I, u64, u64, i64), place, kind, rows, columns, leading), 0);
    made
}

fn preference() -> P {
    let mut made: P = ptr::null();
    assert_eq!(call!(descriptors::cublasLtMatmulPreferenceCreate as fn(*mut P), &raw mut made), 0);
    made
}

fn drop_desc(record: P) -> Status {
    call!(descriptors::cublasLtMatmulDescDestroy as fn(P), record)
}

fn drop_layout(record: P) -> Status {
    call!(descriptors::cublasLtMatrixLayoutDestroy as fn(P), record)
}

fn drop_preference(record: P) -> Status {
    call!(descriptors::cublasLtMatmulPreferenceDestroy as fn(P), record)
}

/// Calls an export that sets an attribute.
macro_rules! set {
    ($function:ident, $record:expr, $id:expr, $value:expr) => {{
        let value = $value;
        let bytes = size_of_val(&value);
        call!(descriptors::$function as fn(P, I, P, U), $record, $id, (&raw const value).cast(), bytes)
    }};
}

/// Calls an export that reads an attribute, and returns its status, the value's length and the value.
macro_rules! get {
    ($function:ident, $record:expr, $id:expr) => {{
        let mut bytes = usize::MAX;
        let get = descriptors::$function;
        let status = call!(get as fn(P, I, P, U, *mut U), $record, $id, ptr::null(), 0, &raw mut bytes);
        let mut value = 0u64;
        if status == 0 {
            let (place, again) = ((&raw mut value).cast_const().cast(), &raw mut bytes);
            assert_eq!(call!(get as fn(P, I, P, U, *mut U), $record, $id, place, bytes, again), 0);
            assert_eq!(call!(get as fn(P, I, P, U, *mut U), $record, $id, place, bytes, ptr::null_mut()), 0);
            let wrong = bytes + 1;
            assert_eq!(call!(get as fn(P, I, P, U, *mut U), $record, $id, place, wrong, again), 7);
            assert_eq!(call!(get as fn(P, I, P, U, *mut U), $record, $id, ptr::null(), bytes, again), 7);
            assert_eq!(
                call!(get as fn(P, I, P, U, *mut U), $record, $id, ptr::null(), 0, ptr::null_mut()),
                7
            );
        }
        (status, bytes, value)
    }};
}

// This module comes after the macros that it uses.
mod epilogues;

/// Returns length and value of attributes 0 and up that NVIDIA's libraries returned for new descriptors.
/// Length 0 means that there is no such attribute.
fn known_desc() -> Vec<(usize, u64)> {
    const NONE: (usize, u64) = (0, 0);
    const P: (usize, u64) = (8, 0);
    const W: (usize, u64) = (4, 0);
    let mut known = vec![(4, 68), W, W, W, W, W, (4, 2), (4, 1), P, NONE, P, P, P, P, P, W, W, P, P, P, P, P];
    known.extend([(4, 0xffff_ffff), P, P, (1, 0), (4, 0xffff_ffff)]);
    known.extend(if CUDA13 { [NONE; 4] } else { [W, W, P, P] });
    known.extend([W, W, W, W, W, P, W]);
    known.extend(if CUDA13 { [P, P, P, (4, 0x8000)] } else { [W, NONE, NONE, NONE] });
    known.extend([NONE; 4]);
    known
}

#[test]
fn descriptors_begin_as_nvidias() {
    let record = desc(compute::F32, data::R_32F);
    for (id, (bytes, value)) in (0..).zip(known_desc()) {
        let found = get!(cublasLtMatmulDescGetAttribute, record, id);
        assert_eq!(found, if bytes == 0 { (7, usize::MAX, 0) } else { (0, bytes, value) }, "attribute {id}");
    }
    assert_eq!(get!(cublasLtMatmulDescGetAttribute, record, -1).0, 7);
    assert_eq!(drop_desc(record), 0);
    assert_eq!(drop_desc(ptr::null()), 0);

    let record = layout(14, 5, 6, 7);
    let mut known = vec![(4, 14), (4, 0), (8, 5), (8, 6), (8, 7), (4, 1), (8, 0), (8, 0), (4, 0)];
    known.extend(if CUDA13 { [(8, 0), (8, 0), (8, 0), (4, 0), (4, 0)] } else { [(0, 0); 5] });
    known.push((0, 0));
    for (id, (bytes, value)) in (0..).zip(known) {
        let found = get!(cublasLtMatrixLayoutGetAttribute, record, id);
        assert_eq!(found, if bytes == 0 { (7, usize::MAX, 0) } else { (0, bytes, value) }, "attribute {id}");
    }
    assert_eq!(drop_layout(record), 0);

    let record = preference();
    let mut known =
        vec![(4, 0), (8, 0), (0, 0), (4, 7), (0, 0), (4, 256), (4, 256), (4, 256), (4, 256), (4, 0)];
    known.extend([(0, 0), (0, 0), (8, u64::MAX)]);
    known.extend(if CUDA13 { [(8, 0); 3] } else { [(0, 0); 3] });
    for (id, (bytes, value)) in (0..).zip(known) {
        let found = get!(cublasLtMatmulPreferenceGetAttribute, record, id);
        assert_eq!(found, if bytes == 0 { (7, usize::MAX, 0) } else { (0, bytes, value) }, "attribute {id}");
    }
    assert_eq!(drop_preference(record), 0);
}

#[test]
fn attributes_are_kept_unread() {
    let record = desc(compute::F32, data::R_32F);
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, record, 3, 9i32), 0);
    assert_eq!(get!(cublasLtMatmulDescGetAttribute, record, 3), (0, 4, 9));
    assert_eq!(get!(cublasLtMatmulDescGetAttribute, record, 4), (0, 4, 0));
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, record, 8, 0x1234_5678_9abc_u64), 0);
    assert_eq!(get!(cublasLtMatmulDescGetAttribute, record, 8), (0, 8, 0x1234_5678_9abc));
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, record, 25, 1u8), 0);
    assert_eq!(get!(cublasLtMatmulDescGetAttribute, record, 25), (0, 1, 1));
    for wrong in [
        set!(cublasLtMatmulDescSetAttribute, record, 3, 1i64),
        set!(cublasLtMatmulDescSetAttribute, record, 3, 1i16),
    ] {
        assert_eq!(wrong, 7);
    }
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, record, 9, 1i32), 7);
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, ptr::null(), 3, 1i32), 7);
    let null: P = ptr::null();
    assert_eq!(call!(descriptors::cublasLtMatmulDescSetAttribute as fn(P, I, P, U), record, 3, null, 4), 7);
    // A descriptor of another kind is refused.
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, record, 2, 1u64), 7);
    assert_eq!(drop_layout(record), 7);
    assert_eq!(drop_desc(record), 0);
    assert_eq!(call!(descriptors::cublasLtMatmulDescCreate as fn(*mut P, I, I), ptr::null_mut(), 68, 0), 7);
    assert_eq!(call!(descriptors::cublasLtMatmulPreferenceCreate as fn(*mut P), ptr::null_mut()), 7);
}

#[test]
fn a_program_brings_its_own_memory() {
    let init = descriptors::cublasLtMatmulDescInit_internal;
    for bytes in [56, 88, 184, 256, 264] {
        let mut memory = [u64::MAX; 34];
        let place: P = memory.as_mut_ptr().cast();
        assert_eq!(call!(init as fn(P, U, I, I), place, bytes, compute::F16, data::R_16F), 0);
        assert_eq!(memory[bytes / 8..], vec![u64::MAX; 34 - bytes / 8]);
        assert_eq!(get!(cublasLtMatmulDescGetAttribute, place, 0), (0, 4, 64));
        assert_eq!(get!(cublasLtMatmulDescGetAttribute, place, 8), (0, 8, 0));
        // Attributes that an older header did not have are refused.
        assert_eq!(get!(cublasLtMatmulDescGetAttribute, place, 25).0, if bytes >= 184 { 0 } else { 7 });
        assert_eq!(get!(cublasLtMatmulDescGetAttribute, place, 37).0, if bytes >= 256 { 0 } else { 7 });
        assert_eq!(drop_desc(place), 0);
        assert_eq!(get!(cublasLtMatmulDescGetAttribute, place, 0).0, 7);
    }
    let mut memory = [0u64; 32];
    let place: P = memory.as_mut_ptr().cast();
    assert_eq!(call!(init as fn(P, U, I, I), place, 48, compute::F16, data::R_16F), 7);
    assert_eq!(call!(init as fn(P, U, I, I), ptr::null(), 256, compute::F16, data::R_16F), 7);
    let init = descriptors::cublasLtMatrixLayoutInit_internal;
    assert_eq!(call!(init as fn(P, U, I, u64, u64, i64), place, 64, 0, 3, 4, 5), 0);
    assert_eq!(get!(cublasLtMatrixLayoutGetAttribute, place, 4), (0, 8, 5));
    assert_eq!(call!(init as fn(P, U, I, u64, u64, i64), place, 48, 0, 3, 4, 5), 7);
    let init = descriptors::cublasLtMatmulPreferenceInit_internal;
    assert_eq!(call!(init as fn(P, U), place, 64), 0);
    assert_eq!(get!(cublasLtMatmulPreferenceGetAttribute, place, 12), (0, 8, u64::MAX));
    assert_eq!(call!(init as fn(P, U), place, 56), 7);
}

fn lt() -> P {
    fake::answer(CUresult::SUCCESS);
    let mut made: P = ptr::null();
    assert_eq!(call!(handle::cublasLtCreate as fn(*mut P), &raw mut made), 0);
    made
}

#[test]
fn handles() {
    let made = lt();
    assert_eq!(call!(handle::cublasLtDestroy as fn(P), made), 0);
    assert_eq!(call!(handle::cublasLtDestroy as fn(P), ptr::null()), 7);
    assert_eq!(call!(handle::cublasLtCreate as fn(*mut P), ptr::null_mut()), 7);
    fake::answer(CUresult::NO_DEVICE);
    let mut none: P = ptr::null();
    assert_eq!(call!(handle::cublasLtCreate as fn(*mut P), &raw mut none), 1);
    assert!(none.is_null());
    // SAFETY: the function has no arguments.
    assert_eq!(unsafe { version::cublasLtGetVersion() }, if CUDA13 { 131_000 } else { 120_903 });
}

/// Handle and descriptors of one product, destroyed when the scene is dropped.
struct Scene {
    handle: P,
    desc: P,
    layouts: [P; 4],
}

impl Scene {
    /// Creates the descriptors for a product of a 4 by 6 and a 6 by 5 matrix.
    fn new() -> Self {
        let layouts = [layout(0, 4, 6, 4), layout(0, 6, 5, 7), layout(0, 4, 5, 8), layout(0, 4, 5, 8)];
        Self { handle: lt(), desc: desc(compute::F32, data::R_32F), layouts }
    }

    #[rustfmt::skip]
    fn multiply(&self, alpha: f32, beta: f32, c: usize, d: usize) -> Status {
        let ([la, lb, lc, ld], algorithm) = (self.layouts, ptr::null());
        let (alpha, beta): (P, P) = ((&raw const alpha).cast(), (&raw const beta).cast());
        call!(
            matmul::cublasLtMatmul as fn(P, P, P, U, P, U, P, P, U, P, U, P, P, U, U, U),
            self.handle, self.desc, alpha, 0x1000, la, 0x2000, lb, beta, c, lc, d, ld, algorithm, 0x9000, 512,
            2,
        )
    }

    #[rustfmt::skip]
    fn search(&self, preference: P, wanted: I) -> (Status, I, MatmulHeuristicResult) {
        let mut found = 99;
        let state = BlasStatus::UNKNOWN;
        let mut result = MatmulHeuristicResult {
            algo: MatmulAlgo { data: [9; 8] }, workspace_bytes: 9, state, waves: 9.0, reserved: [9; 4],
        };
        let (place, count) = (&raw mut result, &raw mut found);
        let [la, lb, lc, ld] = self.layouts;
        let status = call!(
            matmul::cublasLtMatmulAlgoGetHeuristic
                as fn(P, P, P, P, P, P, P, I, *mut MatmulHeuristicResult, *mut I),
            self.handle, self.desc, la, lb, lc, ld, preference, wanted, place, count,
        );
        (status, found, result)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop_desc(self.desc);
        for layout in self.layouts {
            drop_layout(layout);
        }
    }
}

#[test]
fn a_product_becomes_one_message() {
    let scene = Scene::new();
    assert_eq!(scene.multiply(2.0, 0.0, 0, 0x3000), 0);
    assert_eq!(scene.multiply(2.0, 3.0, 0x3000, 0x3000), 0);
    let sent = fake::products();
    let [(stream, product), (_, second)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((stream, product.flags, product.operation), (2, 0, [0, 0]));
    assert_eq!((product.types, product.compute, product.scale), ([0; 3], 68, 0));
    assert_eq!((product.size, product.leading), ([4, 5, 6], [4, 7, 8]));
    assert_eq!((product.batch, product.stride, product.matrix), (1, [0; 3], [0x1000, 0x2000, 0x3000]));
    assert_eq!((product.workspace, product.workspace_bytes), (0x9000, 512));
    assert_eq!((product.algorithm, product.math), (-1, 0));
    assert_eq!(product.alpha[..4], 2f32.to_le_bytes());
    assert_eq!(second.beta[..4], 3f32.to_le_bytes());
    // Only beta * D remains, which changes nothing.
    assert_eq!(scene.multiply(0.0, 1.0, 0x3000, 0x3000), 0);
    assert_eq!(fake::products().len(), 0);
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, scene.desc, 2, 1i32), 0);
    assert_eq!(scene.multiply(0.0, 1.0, 0x3000, 0x3000), 0);
    assert_eq!(fake::products()[0].1.flags, GEMM_DEVICE_SCALARS);
    fake::answer(CUresult::NOT_SUPPORTED);
    assert_eq!(scene.multiply(0.0, 1.0, 0x3000, 0x3000), 15);
}

#[test]
fn batches_and_transposition() {
    let scene = Scene::new();
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, scene.desc, 3, 1i32), 0);
    assert_eq!(scene.multiply(1.0, 0.0, 0, 0x3000), 7);
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, scene.layouts[0], 2, 6u64), 0);
    assert_eq!(scene.multiply(1.0, 0.0, 0, 0x3000), 7);
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, scene.layouts[0], 3, 4u64), 0);
    assert_eq!(scene.multiply(1.0, 0.0, 0, 0x3000), 7);
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, scene.layouts[0], 4, 6u64), 0);
    assert_eq!(scene.multiply(1.0, 0.0, 0, 0x3000), 0);
    for (layout, stride) in scene.layouts.into_iter().zip([24i64, -30, 64, 64]) {
        assert_eq!(scene.multiply(1.0, 0.0, 0, 0x3000), if stride == 24 { 0 } else { 7 });
        assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, layout, 5, 3i32), 0);
        assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, layout, 6, stride), 0);
    }
    assert_eq!(scene.multiply(1.0, 0.0, 0, 0x3000), 0);
    let sent = fake::products();
    let (_, product) = sent[2];
    assert_eq!((product.operation, product.batch, product.stride), ([1, 0], 3, [24, -30, 64]));
    assert_eq!((product.size, product.leading), ([4, 5, 6], [6, 7, 8]));
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, scene.layouts[0], 5, -1i32), 0);
    assert_eq!(scene.multiply(1.0, 0.0, 0, 0x3000), 7);
}

/// Changes a scene so that cuBLAS does not support its product.
type Ask<'a> = &'a dyn Fn(&Scene) -> Status;

#[test]
fn what_a_message_cannot_say_is_not_supported() {
    let scale = |scene: &Scene| set!(cublasLtMatmulDescSetAttribute, scene.desc, 17, 0x100u64);
    let vectors = |scene: &Scene| set!(cublasLtMatmulDescSetAttribute, scene.desc, 2, 2i32);
    let double = |scene: &Scene| set!(cublasLtMatmulDescSetAttribute, scene.desc, 1, data::R_64F);
    let tiles = |scene: &Scene| set!(cublasLtMatrixLayoutSetAttribute, scene.layouts[1], 1, 2i32);
    let bytes = |scene: &Scene| set!(cublasLtMatrixLayoutSetAttribute, scene.layouts[0], 0, data::R_8F_E4M3);
    let asked: [(&str, Ask<'_>); 5] =
        [("scale", &scale), ("vectors", &vectors), ("double", &double), ("tiles", &tiles), ("bytes", &bytes)];
    for (name, ask) in asked {
        let scene = Scene::new();
        assert_eq!(ask(&scene), 0, "{name}");
        assert_eq!(scene.multiply(1.0, 0.0, 0, 0x3000), 15, "{name}");
        let preference = preference();
        assert_eq!(scene.search(preference, 1).0, 15, "{name}");
        assert_eq!(scene.search(preference, 1).1, 0, "{name}");
        assert_eq!(drop_preference(preference), 0);
    }
    let scene = Scene::new();
    assert_eq!(scene.multiply(1.0, 0.0, 0x3000, 0x3000), 0);
    // A hint does not matter, nor does a bias that no epilogue adds.
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, scene.desc, 15, 20i32), 0);
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, scene.desc, 8, 0x100u64), 0);
    assert_eq!(scene.multiply(1.0, 0.0, 0x3000, 0x3000), 0);
    assert_eq!(fake::products().len(), 2);
    assert_eq!(scene.multiply(1.0, 0.0, 0, 0), 7);
}

#[test]
fn there_is_one_algorithm() {
    let scene = Scene::new();
    let preference = preference();
    let (status, found, result) = scene.search(preference, 8);
    assert_eq!((status, found, result.state, result.workspace_bytes), (0, 1, BlasStatus::SUCCESS, 0));
    assert_eq!(scene.search(preference, 0).0, 7);
    assert_eq!(scene.search(ptr::null(), 1).0, 7);
    let gone = Scene { handle: ptr::null(), desc: scene.desc, layouts: scene.layouts };
    assert_eq!(gone.search(preference, 1).0, 1);
    assert_eq!(gone.multiply(1.0, 0.0, 0, 0x3000), 1);
    std::mem::forget(gone);
    assert_eq!(drop_preference(preference), 0);
}

proptest! {
    /// A value that is set is kept, and changes no other attribute.
    #[test]
    fn attributes_do_not_overlap(values in proptest::collection::vec((0..42i32, any::<u64>()), 0..60)) {
        let record = desc(compute::F32, data::R_32F);
        let mut expected = known_desc();
        for (id, value) in values {
            let known = &mut expected[id as usize];
            let status = match known.0 {
                8 => set!(cublasLtMatmulDescSetAttribute, record, id, value),
                4 => set!(cublasLtMatmulDescSetAttribute, record, id, value as u32),
                1 => set!(cublasLtMatmulDescSetAttribute, record, id, value as u8),
                _ => {
                    prop_assert_eq!(set!(cublasLtMatmulDescSetAttribute, record, id, value), 7);
                    continue;
                }
            };
            prop_assert_eq!(status, 0);
            known.1 = value & u64::MAX >> (64 - 8 * known.0);
        }
        for (id, (bytes, value)) in (0..).zip(expected) {
            if bytes > 0 {
                prop_assert_eq!(get!(cublasLtMatmulDescGetAttribute, record, id), (0, bytes, value));
            }
        }
        prop_assert_eq!(drop_desc(record), 0);
    }
}
