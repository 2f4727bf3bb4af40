//! Tests of where a payload is read from, against the tables of section 7, with a device that has different
//! bytes in each location.

use vgpu_device_v1::{Delivery, Preferences, Properties};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::registers as reg;

use crate::driver::{RAM, pattern};
use crate::link::Bench;

const GPA: u64 = 0x10_0000;
const WINDOW: u32 = 256 << 10;
const HALF: usize = WINDOW as usize / 2;
const HTOD: u32 = Op::MemcpyHtoD as u32;
const ASYNC: u32 = Op::MemcpyHtoDAsync as u32;
const MODULE: u32 = Op::ModuleLoadData as u32;
const FATBIN: u32 = Op::ModuleLoadFatBinary as u32;
const LIBRARY: u32 = Op::LibraryLoadData as u32;
const LAUNCH: u32 = Op::LaunchKernel as u32;

/// Makes a device with a window. Returns it with the bytes of the window and of BAR1, which are both a valid
/// payload for any call.
fn places(preferences: Preferences) -> (Bench, Vec<u8>, Vec<u8>) {
    let bench = Bench::new(Properties { preferences, ..Properties::default() });
    assert_eq!(bench.guest.register(GPA, WINDOW), reg::DONE);
    assert_eq!(bench.guest.read(reg::SHMEM_CTRL), 1);
    let (window, bar1) = (pattern(1, HALF), pattern(2, 8 << 20));
    bench.guest.put_ram(GPA, &window);
    bench.guest.put_bar1(0, &bar1);
    (bench, window, bar1)
}

#[test]
fn requests_come_from_where_their_row_says() {
    let (mut bench, window, bar1) = places(Preferences::default());
    assert!(bench.submitted(HTOD, 0).is_empty(), "row 1");
    let inline = pattern(3, 1024);
    bench.guest.put_inline(&inline);
    for op in [HTOD, LAUNCH] {
        assert_eq!(bench.submitted(op, 1024), inline, "row 2");
        assert_eq!(bench.submitted(op, 1), inline[..1], "row 2");
    }
    for op in [HTOD, ASYNC, MODULE, 0x41, FATBIN, LIBRARY] {
        assert_eq!(bench.submitted(op, 1025), window[..1025], "row 3: {op:#x}");
        assert_eq!(bench.submitted(op, HALF), window, "row 3: {op:#x}");
        assert_eq!(bench.submitted(op, HALF + 1), bar1[..=HALF], "row 4: {op:#x}");
        assert_eq!(bench.submitted(op, 8 << 20), bar1, "row 4: {op:#x}");
    }
    assert_eq!(bench.submitted(LAUNCH, 2000), window[..2000], "row 5");
    assert_eq!(bench.submitted(LAUNCH, HALF + 1), window, "row 5, cut off");
    assert_eq!(bench.last().call.data_len.get() as usize, HALF + 1, "and said in full (Q7)");
    assert_eq!(bench.submitted(HTOD, (8 << 20) + 1), window, "row 5: no bulk call any more");
    bench.guest.write(reg::SHMEM_CTRL, reg::SHMEM_RELEASE);
    assert_eq!(bench.submitted(HTOD, 2000), bar1[..2000], "row 4 without a window");
    assert_eq!(bench.submitted(LAUNCH, 2000), bar1[..2000], "row 6");
    assert_eq!(bench.submitted(LAUNCH, (8 << 20) + 1), bar1, "row 6, cut off");
}

#[test]
fn prefixes_decide_where_bulk_calls_read() {
    let zero = vec![0; 512];
    let (mut bench, window, bar1) = places(Preferences::default());
    bench.guest.put_ram(GPA, &zero);
    for op in [HTOD, ASYNC, LIBRARY] {
        assert_eq!(bench.submitted(op, 4096), bar1[..4096], "Q6: {op:#x}");
    }
    for op in [MODULE, 0x41, FATBIN] {
        assert_eq!(bench.submitted(op, 4096)[512..], window[512..4096], "{op:#x} ends in the window");
    }
    bench.guest.put_bar1(0, &zero);
    for op in [HTOD, ASYNC, LIBRARY, MODULE] {
        assert_eq!(bench.submitted(op, 4096)[512..], window[512..4096], "{op:#x}: both prefixes are zero");
    }
    // A single byte within the prefix counts as data, and one after it does not.
    bench.guest.put_bar1(512, &[1]);
    assert_eq!(bench.submitted(HTOD, 4096)[513..], window[513..4096]);
    bench.guest.put_bar1(511, &[1]);
    assert_eq!(bench.submitted(HTOD, 4096)[513..], bar1[513..4096]);
    bench.guest.put_ram(GPA + 511, &[1]);
    assert_eq!(bench.submitted(HTOD, 4096)[513..], window[513..4096]);
}

#[test]
fn properties_change_what_prefixes_decide() {
    let plain = Preferences::default();
    let (mut bench, window, bar1) = places(Preferences { prefer_bar1_htod: true, ..plain });
    for op in [HTOD, ASYNC] {
        assert_eq!(bench.submitted(op, 4096), bar1[..4096], "preferred");
        assert_eq!(bench.submitted(op, HALF), bar1[..HALF]);
    }
    assert_eq!(bench.submitted(LIBRARY, 4096), window[..4096], "of copies alone");
    bench.guest.put_bar1(0, &[0; 512]);
    assert_eq!(bench.submitted(HTOD, 4096), window[..4096], "and only if there is something");

    let (mut bench, window, bar1) = places(Preferences { authoritative_library: true, ..plain });
    bench.guest.put_ram(GPA, &[0; 512]);
    assert_eq!(bench.submitted(LIBRARY, 4096)[512..], window[512..4096]);
    assert_eq!(bench.submitted(HTOD, 4096), bar1[..4096]);

    // The guest's pages and the device's view of them are the same memory here, so a fresh read returns the
    // same bytes.
    let (mut bench, _, bar1) = places(Preferences { probe_fresh_library: true, ..plain });
    bench.guest.put_ram(GPA, &[0; 512]);
    assert_eq!(bench.submitted(LIBRARY, 4096), bar1[..4096]);
}

/// Answers a call with this number of bytes and returns them.
fn answered(bench: &mut Bench, bytes: usize) -> Vec<u8> {
    let data = pattern(bytes as u32, bytes);
    bench.guest.submit(Op::MemcpyDtoH as u32, &[], 0);
    bench.answer_last(0, &[], &data);
    assert_eq!(bench.guest.read(reg::RESULT_DATA_LEN) as usize, bytes);
    assert_eq!(bench.guest.read(reg::STATUS), reg::DONE);
    data
}

#[test]
fn answers_go_where_their_row_says() {
    let (mut bench, ..) = places(Preferences::default());
    let cut = answered(&mut bench, HALF + 1);
    assert_eq!(bench.guest.get_ram(GPA + HALF as u64, HALF), cut[..HALF], "cut off");
    assert_eq!(bench.guest.get_ram(GPA + 2 * HALF as u64, 4), [0; 4]);
    let window = answered(&mut bench, 1025);
    assert_eq!(bench.guest.get_ram(GPA + HALF as u64, 1025), window);
    let short = answered(&mut bench, 1024);
    assert_eq!(bench.guest.inline(1024), short);
    assert_eq!(bench.guest.get_ram(GPA + HALF as u64, 1025), window, "inline alone");
    bench.guest.write(reg::SHMEM_CTRL, 0);
    bench.guest.ring();
    assert_eq!(bench.guest.inline(1024), [0; 1024], "the doorbell clears it");
    let whole = answered(&mut bench, 8 << 20);
    let there = bench.guest.bar1(reg::BAR1_TO_GUEST, 8 << 20);
    let (data, last) = there.split_at((8 << 20) - 8);
    assert!(data == &whole[..(8 << 20) - 8]);
    assert_eq!(last, [0, 0, 0, 0, 2, 0, 0, 0], "Q3, Q28: the last word is the status, and zeros before it");
}

#[test]
fn windows_that_cannot_be_are_refused_and_leave_none() {
    let bench = Bench::new(Properties::default());
    let error = |bench: &Bench| (bench.guest.read(reg::ERROR_CODE), bench.guest.read(reg::SHMEM_CTRL));
    assert_eq!(bench.guest.register(GPA, 32 << 10), reg::DONE);
    for (address, bytes, code) in [
        (GPA, (32 << 10) - 1, 9),
        (GPA, 0, 9),
        (RAM, 32 << 10, 1),
        (RAM - (32 << 10) + 1, 32 << 10, 1),
        (u64::MAX, 32 << 10, 1),
        (0, u32::MAX, 1),
    ] {
        assert_eq!(bench.guest.register(GPA, 32 << 10), reg::DONE);
        assert_eq!(error(&bench), (0, 1));
        assert_eq!(bench.guest.register(address, bytes), reg::ERROR, "{address:#x} {bytes:#x}");
        assert_eq!(error(&bench), (code, 0), "Q9: the old one is gone, too");
    }
    bench.guest.write(reg::SHMEM_CTRL, 0);
    assert_eq!((bench.guest.read(reg::STATUS), error(&bench)), (reg::DONE, (1, 0)), "the code stays");
    assert_eq!(bench.guest.register(RAM - (32 << 10), 32 << 10), reg::DONE);
}

#[test]
fn the_window_is_everybodys_unless_it_is_told_otherwise() {
    for isolated in [false, true] {
        let mut bench = Bench::new(Properties { window_of_its_owner: isolated, ..Properties::default() });
        bench.guest.write(reg::SCRATCH, bench.guest.token);
        assert_eq!(bench.guest.register(GPA, WINDOW), reg::DONE);
        let (window, bar1) = (pattern(1, 4096), pattern(2, 4096));
        bench.guest.put_ram(GPA, &window);
        bench.guest.put_bar1(0, &bar1);
        assert_eq!(bench.submitted(LAUNCH, 4096), window);
        let answer = pattern(3, 5000);
        bench.answer_last(0, &[], &answer);
        assert_eq!(bench.guest.get_ram(GPA + HALF as u64, 5000), answer);

        // Another process has registered no window (Q10).
        bench.guest.token += 1;
        let other = bench.submitted(LAUNCH, 4096);
        let secret = pattern(4, 5000);
        bench.answer_last(0, &[], &secret);
        let leaked = bench.guest.get_ram(GPA + HALF as u64, 5000) == secret;
        assert_eq!((other == window, leaked), (!isolated, !isolated));
        assert_eq!(bench.guest.bar1(reg::BAR1_TO_GUEST, 5000) == secret, isolated);
        assert!(bench.inlet.deliver(Delivery::Closed { connection: 1 }));
    }
}
