//! Tests of epilogues, of a C that is not D, and of matrices by rows.

use std::collections::HashMap;

use proptest::prelude::*;
use vgpu_abi::fake;
use vgpu_wire::body::gemm::Gemm;

use super::*;

const BIAS: I = 8;
const AUX: I = 11;
const AUX_LD: I = 12;

/// Creates the descriptors for a product of an 8 by 6 and a 6 by 5 matrix with this epilogue and its
/// operands.
fn scene(epilogue: u32, bias: u64, aux: u64, aux_leading: i64) -> Scene {
    let layouts = [layout(0, 8, 6, 8), layout(0, 6, 5, 7), layout(0, 8, 5, 8), layout(0, 8, 5, 9)];
    let scene = Scene { handle: lt(), desc: desc(compute::F32, data::R_32F), layouts };
    for (id, value) in [(BIAS, bias), (AUX, aux), (AUX_LD, aux_leading.cast_unsigned())] {
        assert_eq!(set!(cublasLtMatmulDescSetAttribute, scene.desc, id, value), 0);
    }
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, scene.desc, 7, epilogue), 0);
    scene
}

/// Statuses of the search for an algorithm and of the product.
fn asked(scene: &Scene) -> (Status, Status) {
    let preference = preference();
    let (status, found, _) = scene.search(preference, 1);
    assert_eq!(found == 1, status == 0);
    assert_eq!(drop_preference(preference), 0);
    (status, scene.multiply(1.0, 0.0, 0, 0x3000))
}

#[test]
fn an_epilogue_travels_with_what_it_needs() {
    let scene = scene(164, 0x5000, 0x6000, 16);
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, scene.desc, 2, 1i32), 0);
    assert_eq!(scene.multiply(2.0, 3.0, 0x4000, 0x3000), 0);
    let sent = fake::matmuls();
    let [(stream, product)] = sent[..] else { panic!("{sent:?}") };
    assert_eq!((stream, product.flags, product.epilogue), (2, GEMM_DEVICE_SCALARS, 164));
    assert_eq!((product.types, product.compute, product.scale), ([0; 4], 68, 0));
    assert_eq!((product.size, product.leading), ([8, 5, 6], [8, 7, 8, 9]));
    assert_eq!((product.batch, product.matrix), (1, [0x1000, 0x2000, 0x4000, 0x3000]));
    assert_eq!((product.bias, product.bias_type, product.bias_stride), (0x5000, 0, 0));
    assert_eq!((product.aux, product.aux_type, product.aux_leading), (0x6000, 0, 16));
    assert_eq!((product.workspace, product.workspace_bytes, product.reserved), (0x9000, 512, [0; 2]));
    assert!(fake::products().is_empty());
}

/// Tests refused products. The expected statuses are those of cuBLASLt 13.0 on an RTX 3060 where they are
/// known.
#[test]
fn what_is_refused() {
    let (ok, bad, no) = (0, 7, 15);
    for (epilogue, bias, aux, leading, answers) in [
        (2, 0, 0, 0, (ok, ok)),
        (32, 0, 0, 0, (ok, ok)),
        (4, 0x100, 0, 0, (ok, ok)),
        (4, 0, 0, 0, (ok, bad)),
        (6, 0x100, 0, 0, (ok, ok)),
        (36, 0x100, 0, 0, (ok, ok)),
        (130, 0, 0x100, 128, (ok, ok)),
        (130, 0, 0x100, 64, (bad, bad)),
        (130, 0, 0x100, 0, (bad, bad)),
        (130, 0, 0, 128, (ok, no)),
        (160, 0, 0x100, 8, (ok, ok)),
        (160, 0, 0x100, 11, (ok, ok)),
        (160, 0, 0x100, 7, (bad, bad)),
        (160, 0, 0x100, -8, (bad, bad)),
        (160, 0, 0, 8, (ok, no)),
        (192, 0, 0, 8, (ok, bad)),
        (152, 0, 0x100, 128, (ok, bad)),
        (208, 0x100, 0x100, 8, (ok, ok)),
        (256, 0x100, 0, 0, (ok, ok)),
        (512, 0x100, 0, 0, (no, no)),
        (3, 0x100, 0x100, 128, (no, no)),
        (0, 0, 0, 0, (no, no)),
        (128, 0, 0x100, 128, (no, no)),
    ] {
        let scene = scene(epilogue, bias, aux, leading);
        assert_eq!(asked(&scene), answers, "{epilogue} {bias:#x} {aux:#x} {leading}");
        assert_eq!(fake::matmuls().len(), usize::from(answers.1 == 0), "{epilogue}");
    }
    // A's rows are summed where A is not transposed, B's columns where B is.
    let turned = scene(512, 0x100, 0, 0);
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, turned.desc, 4, 1i32), 0);
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, turned.layouts[1], 2, 5u64), 0);
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, turned.layouts[1], 3, 6u64), 0);
    assert_eq!(asked(&turned), (0, 0));
    // A bias and an auxiliary matrix have the element type of D.
    let other = scene(4, 0x100, 0, 0);
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, other.desc, 26, data::R_16F), 0);
    assert_eq!(asked(&other), (15, 15));
    let other = scene(160, 0, 0x100, 8);
    assert_eq!(set!(cublasLtMatmulDescSetAttribute, other.desc, 22, data::R_16F), 0);
    assert_eq!(asked(&other), (7, 7));
    // Products of integers and of complex numbers have no epilogue.
    for (kinds, result, compute_type, scale) in [
        (data::R_8I, data::R_32I, compute::I32, data::R_32I),
        (data::C_32F, data::C_32F, compute::F32, data::C_32F),
    ] {
        let layouts = [
            layout(kinds, 8, 6, 8),
            layout(kinds, 6, 5, 7),
            layout(result, 8, 5, 8),
            layout(result, 8, 5, 8),
        ];
        let whole = Scene { handle: lt(), desc: desc(compute_type, scale), layouts };
        assert_eq!(set!(cublasLtMatmulDescSetAttribute, whole.desc, 7, 2u32), 0);
        assert_eq!(asked(&whole), (15, 15), "{kinds}");
    }
    drop(fake::matmuls());
}

#[test]
fn c_may_lie_elsewhere_and_be_one_column() {
    let scene = Scene::new();
    assert_eq!(scene.multiply(1.0, 1.0, 0x4000, 0x3000), 0);
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, scene.layouts[2], 4, 0u64), 0);
    assert_eq!(scene.multiply(1.0, 1.0, 0x4000, 0x3000), 0);
    let sent = fake::matmuls();
    assert_eq!((sent[0].1.leading, sent[1].1.leading), ([4, 7, 8, 8], [4, 7, 0, 8]));
    assert_eq!((sent[0].1.matrix, sent[0].1.epilogue), ([0x1000, 0x2000, 0x4000, 0x3000], 1));
    assert_eq!(scene.multiply(1.0, 1.0, 0, 0x3000), 7, "a C that counts is somewhere");
    // Without a layout of its own, C has D's.
    let own = scene.layouts[2];
    let without =
        Scene { layouts: [scene.layouts[0], scene.layouts[1], ptr::null(), scene.layouts[3]], ..scene };
    assert_eq!(without.multiply(1.0, 1.0, 0x3000, 0x3000), 0);
    assert_eq!(fake::products().len(), 1);
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, own, 0, data::R_16F), 0);
    let other =
        Scene { layouts: [without.layouts[0], without.layouts[1], own, without.layouts[3]], ..without };
    assert_eq!(other.multiply(1.0, 0.0, 0, 0x3000), 15);
    std::mem::forget(without);
    std::mem::forget(scene);
}

#[test]
fn an_older_host_does_plain_products() {
    fake::can(0);
    let preference = preference();
    let plain = Scene::new();
    assert_eq!(plain.search(preference, 1).0, 0);
    assert_eq!(plain.multiply(1.0, 1.0, 0x3000, 0x3000), 0);
    assert_eq!(plain.multiply(1.0, 1.0, 0x4000, 0x3000), 15);
    assert_eq!(fake::products().len(), 1);
    let bias = scene(4, 0x100, 0, 0);
    assert_eq!(asked(&bias), (15, 15));
    assert!(fake::matmuls().is_empty());
    assert_eq!(drop_preference(preference), 0);
}

/// Returns a row and column of each element, by the element's offset in memory.
fn stored(rows: u64, columns: u64, leading: u64, by_rows: bool) -> HashMap<u64, (u64, u64)> {
    let place = |row, column| if by_rows { row * leading + column } else { column * leading + row };
    (0..rows).flat_map(|row| (0..columns).map(move |column| (place(row, column), (row, column)))).collect()
}

proptest! {
    /// Checks for every order that each element of D is computed from the same elements.
    #[test]
    fn orders_are_turned_into_columns(
        size in [1..5u64, 1..5u64, 1..5u64],
        operation in [0..2i32, 0..2i32],
        by_rows in [any::<bool>(), any::<bool>(), any::<bool>()],
        gap in 0..3u64,
    ) {
        let [m, n, k] = size;
        let turn = |operation, [rows, columns]: [u64; 2]| {
            if operation == 0 { [rows, columns] } else { [columns, rows] }
        };
        let shapes = [turn(operation[0], [m, k]), turn(operation[1], [k, n]), [m, n]];
        let leading = |at: usize| gap + if by_rows[at] { shapes[at][1] } else { shapes[at][0] };
        let make = |at: usize| {
            let made = layout(0, shapes[at][0], shapes[at][1], leading(at) as i64);
            assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, made, 1, i32::from(by_rows[at])), 0);
            made
        };
        let scene = Scene {
            handle: lt(),
            desc: desc(compute::F32, data::R_32F),
            layouts: [make(0), make(1), make(2), make(2)],
        };
        for (id, operation) in (3..).zip(operation) {
            assert_eq!(set!(cublasLtMatmulDescSetAttribute, scene.desc, id, operation), 0);
        }
        prop_assert_eq!(scene.multiply(1.0, 0.0, 0, 0x3000), 0);
        let sent = fake::products();
        let [(_, product)] = sent[..] else { panic!("{sent:?}") };
        let Gemm { operation: on, size: [rows, columns, depth], leading: lead, matrix, .. } = product;
        let names = [0x1000u64, 0x2000, 0x3000].map(|address| {
            let at = (address >> 12) as usize - 1;
            stored(shapes[at][0], shapes[at][1], leading(at), by_rows[at])
        });
        let name = |address: u64, place: u64| names[(address >> 12) as usize - 1].get(&place).copied();
        let turned = |on: u32, lead: u64, row: u64, column: u64| {
            if on == 0 { column * lead + row } else { row * lead + column }
        };
        prop_assert_eq!(depth, k);
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        for (row, column, at) in places.flat_map(|(row, column)| (0..depth).map(move |at| (row, column, at))) {
            let to = name(matrix[2], column * lead[2] + row).expect("an element of D");
            let left = name(matrix[0], turned(on[0], lead[0], row, at)).expect("an element of the left");
            let right = name(matrix[1], turned(on[1], lead[1], at, column)).expect("an element of the right");
            let (a, b) = if matrix[0] == 0x1000 { (left, right) } else { (right, left) };
            let logical = |operation: i32, (row, column)| {
                if operation == 0 { (row, column) } else { (column, row) }
            };
            let (a, b) = (logical(operation[0], a), logical(operation[1], b));
            prop_assert_eq!((a.0, b.1, a.1), (to.0, to.1, b.0));
        }
    }
}

#[test]
fn orders_that_are_none_are_refused() {
    // Tiles; a result by rows with an epilogue; C and D in two orders; conjugates in another order.
    let tiled = Scene::new();
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, tiled.layouts[0], 1, 2i32), 0);
    assert_eq!(tiled.multiply(1.0, 0.0, 0, 0x3000), 15);
    let rows = scene(2, 0, 0, 0);
    for layout in &rows.layouts[2..] {
        assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, *layout, 1, 1i32), 0);
    }
    assert_eq!(asked(&rows), (15, 15));
    assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, rows.layouts[2], 1, 0i32), 0);
    assert_eq!(rows.multiply(1.0, 0.0, 0, 0x3000), 7);
    let complex = |orders: [i32; 4]| {
        let layouts = [4, 4, 4, 4].map(|size| layout(data::C_32F, size, size, size as i64));
        let scene = Scene { handle: lt(), desc: desc(compute::F32, data::C_32F), layouts };
        assert_eq!(set!(cublasLtMatmulDescSetAttribute, scene.desc, 3, 2i32), 0);
        for (layout, order) in layouts.into_iter().zip(orders) {
            assert_eq!(set!(cublasLtMatrixLayoutSetAttribute, layout, 1, order), 0);
        }
        let preference = preference();
        let status = scene.search(preference, 1).0;
        assert_eq!(drop_preference(preference), 0);
        status
    };
    assert_eq!([[0; 4], [1; 4], [1, 0, 0, 0], [0, 1, 0, 0]].map(complex), [0, 0, 15, 0]);
}
