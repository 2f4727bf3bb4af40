//! Copies that only a message can ask for: rows whose slices are no whole rows apart, and wrong addresses.

use vgpu_host_testing::commands::{allocate, copy_in, read};
use vgpu_wire::body::copy::{CopyIn, CopyRows, Fill};
use vgpu_wire::{Mark, Span};

use crate::place::looped;

const WORD: u32 = 9;

fn bytes(count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn rows_touch_what_they_name() {
    looped("copies::rows_touch_what_they_name", |looped| {
        let mut guest = looped.bench.guest(0);
        let (p, q) = (allocate(&mut guest, 4096), allocate(&mut guest, 4096));
        let data = bytes(4096, 5);
        copy_in(&mut guest, 0, p, &data);
        let zero = Fill {
            stream: 0,
            value: 0,
            element: 1,
            reserved: 0,
            destination: q,
            pitch: 0,
            width: 4096,
            height: 1,
        };
        guest.send(&zero, &[]);
        // Slices that are whole rows apart, and slices that are not.
        for slice in [160, 150] {
            let rows = CopyRows {
                stream: 0,
                reserved: 0,
                destination: q,
                destination_pitch: 40,
                destination_slice: slice,
                source: p,
                source_pitch: 32,
                source_slice: 128,
                width: 20,
                height: 3,
                depth: 4,
            };
            guest.send(&rows, &[]);
            let mut expected = vec![0_u8; 4096];
            for (z, y) in (0..4).flat_map(|z| (0..3).map(move |y| (z, y))) {
                let (to, from) = (z * slice as usize + y * 40, z * 128 + y * 32);
                expected[to..to + 20].copy_from_slice(&data[from..from + 20]);
            }
            assert_eq!(read(&mut guest, q, 4096), expected, "slices {slice} apart");
            guest.send(&zero, &[]);
        }
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn an_address_that_is_not_the_sessions_is_an_error_and_work_goes_on() {
    looped("copies::an_address_that_is_not_the_sessions_is_an_error_and_work_goes_on", |looped| {
        let mut guest = looped.bench.guest(0);
        let p = allocate(&mut guest, 1000);
        let q = allocate(&mut guest, 3 << 20);
        let mut value = 0;
        for (address, count) in [
            (0, 4),
            (p + 998, 4),
            (p - 1, 4),
            (q + (3 << 20), 1),
            (q + (3 << 20) - 1, 2),
            (u64::MAX - 1, 4),
            // Memory of this process, and device addresses without an allocation.
            (std::ptr::from_ref(&value) as u64, 4),
            (p + (1 << 30), 4),
        ] {
            value += 1;
            let source = Span::inline(count);
            let mark = Mark::new(WORD, value);
            let body = CopyIn { stream: 0, reserved: 0, destination: address, source, read: mark };
            let number = guest.send(&body, &vec![1; count as usize]);
            guest.wait_word(WORD, value);
            assert_eq!(guest.late(), Some((1, 0, number)), "{address:#x}");
        }
        // Both allocations are accessible up to their last byte.
        copy_in(&mut guest, 0, p, &[1; 1000]);
        copy_in(&mut guest, 0, q + (3 << 20) - 8, &[2; 8]);
        assert_eq!(read(&mut guest, q + (3 << 20) - 8, 8), [2; 8]);
    });
}
