//! Copies and fills.

use vgpu_host_testing::commands::{allocate, copy_in, read, stream, synchronize, window};
use vgpu_host_testing::guest::Guest;
use vgpu_wire::body::copy::{CopyDevice, CopyIn, CopyOut, CopyRows, Fill};
use vgpu_wire::body::session::WindowFree;
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

fn fill(guest: &mut Guest, body: Fill) {
    guest.send(&body, &[]);
}

#[test]
fn data_goes_there_and_comes_back() {
    looped("copies::data_goes_there_and_comes_back", |looped| {
        let mut guest = looped.bench.guest(0);
        let p = allocate(&mut guest, 1 << 20);
        let small = bytes(1000, 1);
        copy_in(&mut guest, 0, p + 24, &small);
        assert_eq!(read(&mut guest, p + 24, 1000), small);
        // From the window, in more pieces than one, and onto a stream.
        let data = bytes(700_000, 2);
        let offset = window(&mut guest, 700_000);
        guest.function.put(offset, &data);
        stream(&mut guest, 3, 1);
        let source = Span::bar(offset, data.len() as u64);
        guest.send(&CopyIn { stream: 3, reserved: 0, destination: p, source, read: Mark::new(WORD, 1) }, &[]);
        guest.wait_word(WORD, 1);
        // The source may be overwritten now.
        guest.function.put(offset, &bytes(700_000, 3));
        assert!(read(&mut guest, p, 700_000) == data);
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn a_copy_reads_its_source_in_the_order_of_the_stream() {
    looped("copies::a_copy_reads_its_source_in_the_order_of_the_stream", |looped| {
        let mut guest = looped.bench.guest(0);
        let (p, q) = (allocate(&mut guest, 600_000), allocate(&mut guest, 600_000));
        let offset = window(&mut guest, 600_000);
        let span = Span::bar(offset, 600_000);
        for round in 1..=3_u64 {
            let data = bytes(600_000, round as u32);
            for (index, chunk) in data.chunks(30_000).enumerate() {
                copy_in(&mut guest, 0, p + 30_000 * index as u64, chunk);
            }
            // Down into the window and up from there, and nobody waits in between.
            let down = CopyOut { stream: 0, reserved: 0, source: p, destination: span, written: Mark::NONE };
            guest.send(&down, &[]);
            let up = CopyIn { stream: 0, reserved: 0, destination: q, source: span, read: Mark::NONE };
            guest.send(&up, &[]);
            assert!(read(&mut guest, q, 600_000) == data, "round {round}");
        }
        guest.send(&WindowFree { offset }, &[]);
        synchronize(&mut guest);
        assert_eq!(guest.late(), None);
    });
}

#[test]
fn rows_and_fills_touch_what_they_name() {
    looped("copies::rows_and_fills_touch_what_they_name", |looped| {
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
        fill(&mut guest, zero);
        // Slices that are whole rows apart, and such that are not.
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
            fill(&mut guest, zero);
        }
        guest.send(&CopyDevice { stream: 0, reserved: 0, destination: q + 100, source: p, bytes: 999 }, &[]);
        assert_eq!(read(&mut guest, q + 100, 999), data[..999]);
        for (element, value, width) in [(1, 0x12, 5), (2, 0x1234, 5), (4, 0x1234_5678, 5)] {
            fill(&mut guest, zero);
            let body = Fill { value, element, destination: q + 64, pitch: 48, width, height: 3, ..zero };
            fill(&mut guest, body);
            let mut expected = vec![0_u8; 4096];
            for y in 0..3 {
                for x in 0..width as usize {
                    let at = 64 + 48 * y + x * element as usize;
                    expected[at..at + element as usize]
                        .copy_from_slice(&u32::to_le_bytes(value)[..element as usize]);
                }
            }
            assert_eq!(read(&mut guest, q, 4096), expected, "elements of {element}");
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
            // The host's own memory, and the range of addresses where nothing is.
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
        // All of both is the session's.
        copy_in(&mut guest, 0, p, &[1; 1000]);
        copy_in(&mut guest, 0, q + (3 << 20) - 8, &[2; 8]);
        assert_eq!(read(&mut guest, q + (3 << 20) - 8, 8), [2; 8]);
    });
}
