//! Products that are refused or interrupted: their errors, and that nothing is written.

use std::sync::atomic::{AtomicU32, Ordering};

use vgpu_arena::AccessRights;
use vgpu_ptx::Halt;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm};

use super::super::{GemmError, Workers, multiply};
use super::products::{PLAIN, ProductCase, ProductLayout};
use super::{BASE, on, scalar, stop_if};

#[test]
fn memory_that_is_not_there_is_found_before_anything_is_written() {
    let good = ProductCase { factors: [Some(true), Some(true)], ..PLAIN };
    let code = |result: Result<(), GemmError>| result.expect_err("an error").code();
    for pointers in [false, true] {
        for at in 0..3 {
            let layout = ProductCase { pointers, ..good }.lay_out(0);
            let before = layout.memory.all();
            let end = BASE + before.len() as u64;
            // The second matrix ends one element beyond the memory.
            let mut body = layout.body;
            if pointers {
                layout.memory.put(body.matrix[at] + 8, &(end - 63 * 4).to_le_bytes());
            } else {
                body.stride[at] = (end - 63 * 4 - body.matrix[at]) as i64 / 4;
            }
            let before = layout.memory.all();
            let error = multiply(&layout.memory.view, &body, &on(1)).expect_err("an error");
            assert_eq!((error.code(), error.sticky()), (Some(700), true));
            let name = ["A", "B", "C"][at];
            let expected = GemmError::Illegal { name, index: 1, address: end - 63 * 4, bytes: 256 };
            assert_eq!(error, expected);
            assert!(layout.memory.all() == before, "nothing is written");
            // With one element less, the second matrix is within the memory.
            if pointers {
                layout.memory.put(body.matrix[at] + 8, &(end - 64 * 4).to_le_bytes());
            } else {
                body.stride[at] -= 1;
            }
            assert_eq!(multiply(&layout.memory.view, &body, &on(1)), Ok(()), "{name}");
        }
    }
    let layout = good.lay_out(0);
    let ProductLayout { memory, body, .. } = &layout;
    // Addresses before the memory and across address 0, and sizes that overflow.
    for stride in [-1 << 40, i64::MIN, i64::MAX] {
        let body = Gemm { stride: [0, stride, 0], ..*body };
        assert_eq!(code(multiply(&memory.view, &body, &on(1))), Some(700));
    }
    for leading in [1 << 40, u64::MAX] {
        let body = Gemm { leading: [8, 8, leading], ..*body };
        assert_eq!(code(multiply(&memory.view, &body, &on(1))), Some(700));
    }
    for size in [[8, 8, u64::MAX], [8, u64::MAX, 8], [8, 1 << 62, 8]] {
        let body = Gemm { size, leading: [8, u64::MAX, 8], ..*body };
        assert_eq!(code(multiply(&memory.view, &body, &on(1))), Some(700));
    }
    // Arrays of addresses and scalars.
    let body = Gemm { flags: GEMM_POINTERS, matrix: [body.matrix[0], 0x1000, body.matrix[2]], ..*body };
    assert_eq!(code(multiply(&memory.view, &body, &on(1))), Some(700));
    let body = Gemm { flags: GEMM_DEVICE_SCALARS, alpha: scalar(&BASE.to_le_bytes()), ..layout.body };
    assert_eq!(code(multiply(&memory.view, &body, &on(1))), Some(700), "beta");
    // Memory that is not writable, or not readable.
    for (access, name) in [(AccessRights::Read, "C"), (AccessRights::None, "A")] {
        let view = layout.memory.with(access);
        let error = multiply(&view, &layout.body, &on(1)).expect_err("an error");
        assert!(
            matches!(error, GemmError::Illegal { name: found, index: 0, .. } if found == name),
            "{error}"
        );
    }
}

#[test]
fn addresses_are_multiples_of_the_element() {
    let layout = ProductCase { batch: 1, ..PLAIN }.lay_out(8);
    for at in 0..3 {
        let mut body = layout.body;
        body.matrix[at] += 2;
        let name = ["A", "B", "C"][at];
        let address = body.matrix[at];
        let expected = GemmError::Misaligned { name, index: 0, address, alignment: 4 };
        assert_eq!(multiply(&layout.memory.view, &body, &on(1)), Err(expected));
        assert_eq!(expected.code(), Some(716));
    }
    let body = Gemm { flags: GEMM_DEVICE_SCALARS, alpha: scalar(&(BASE + 1).to_le_bytes()), ..layout.body };
    let error = multiply(&layout.memory.view, &body, &on(1)).expect_err("an error");
    assert_eq!(error, GemmError::Misaligned { name: "alpha", index: 0, address: BASE + 1, alignment: 4 });
}

#[test]
fn what_there_is_no_product_for_is_named() {
    let layout = PLAIN.lay_out(0);
    let base = layout.body;
    for (types, compute, scale) in [
        ([28, 28, 0], 68, 0),  // eight-bit floating point
        ([1, 1, 1], 68, 1),    // double computed in single
        ([0, 0, 0], 70, 1),    // and the other way round
        ([0, 0, 0], 68, 1),    // with scalars of another type
        ([3, 3, 10], 68, 0),   // whole results of a single computation
        ([0, 0, 0], 66, 0),    // no compute type
        ([4, 4, 4], 72, 4),    // complex whole numbers
        ([99, 99, 99], 68, 0), // no type
    ] {
        let body = Gemm { types, compute, scale, ..base };
        let error = multiply(&layout.memory.view, &body, &on(1)).expect_err("an error");
        assert_eq!(error, GemmError::Unsupported { types, compute, scale });
        assert_eq!((error.code(), error.sticky()), (Some(801), false));
        assert!(error.to_string().contains(&format!("compute type {compute}")), "{error}");
    }
    for body in [
        Gemm { operation: [3, 0], ..base },
        Gemm { operation: [0, 9], ..base },
        Gemm { leading: [7, 8, 8], ..base },
        Gemm { leading: [8, 7, 8], ..base },
        Gemm { leading: [8, 8, 7], ..base },
        Gemm { size: [0, 8, 8], leading: [0, 8, 8], ..base },
    ] {
        let error = multiply(&layout.memory.view, &body, &on(1)).expect_err("an error");
        assert_eq!((error.code(), error.sticky()), (Some(1), false), "{error}");
    }
}

#[test]
fn it_stops_where_it_is_told_to() {
    let case = ProductCase { size: [1000, 900, 100], batch: 1, factors: [Some(true), Some(true)], ..PLAIN };
    for threads in [1, 3] {
        let layout = case.lay_out(0);
        let asked = AtomicU32::new(0);
        // A tile checks for interruption twice here.
        let check = || stop_if(asked.fetch_add(1, Ordering::Relaxed) >= 10);
        let run = Workers { check: &check, ..on(threads) };
        assert_eq!(multiply(&layout.memory.view, &layout.body, &run), Err(GemmError::Halted(Halt::Stopped)));
        assert!(asked.load(Ordering::Relaxed) < 20, "every thread heard it at once");
        assert_eq!(GemmError::Halted(Halt::Stopped).code(), None);
        assert_eq!(GemmError::Halted(Halt::TimedOut).code(), Some(702));
    }
    // A batch is checked completely before it is computed.
    let layout = ProductCase { size: [1, 1, 1], ..PLAIN }.lay_out(0);
    let body = Gemm { batch: u32::MAX, stride: [0; 3], ..layout.body };
    let asked = AtomicU32::new(0);
    let check = || stop_if(asked.fetch_add(1, Ordering::Relaxed) >= 3);
    assert_eq!(
        multiply(&layout.memory.view, &body, &Workers { check: &check, ..on(2) }),
        Err(GemmError::Halted(Halt::Stopped))
    );
}
