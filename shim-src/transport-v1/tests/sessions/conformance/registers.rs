//! Tests of the registers that a guest accesses, their order, and who holds the lock meanwhile.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use vgpu_device_v1::{Bar, BarAccess, Watch};
use vgpu_transport_bed::{copy_in, copy_out};
use vgpu_wire::v1::registers::{BAR1_STATUS, BAR1_TO_GUEST};

use super::{Bench, everything, soft};
use crate::version1::{NO_MEMORY, WINDOWED};

/// Returns whether a guest may write a register: `SCRATCH`, the call, its arguments, the inline payload, and
/// the window (section 3), but not the legacy path (Q2).
fn may_write(offset: u32) -> bool {
    matches!(offset, 0x03c | 0x080..=0x08c | 0x0a8 | 0x0b0..=0x0ec | 0x100..=0x4fc | 0x940..=0x94c)
}

/// Returns whether a guest may read a register: the identity of the device, states, results, and the window.
fn may_read(offset: u32) -> bool {
    matches!(
        offset,
        0x004 | 0x010 | 0x014 | 0x020 | 0x024 | 0x03c | 0x0f0 | 0x0f8 | 0x500..=0x8fc | 0x900..=0x93c | 0x940..=0x94c
    )
}

/// Returns whether an access reads the identity of the device, which needs no lock.
fn is_identity(seen: BarAccess) -> bool {
    seen.bar == Bar::Bar0 && !seen.write && matches!(seen.offset, 0x010 | 0x020 | 0x024)
}

/// Records accesses, and checks that each is made while a process holds the lock.
#[derive(Debug, Default)]
struct Log {
    seen: Mutex<Vec<BarAccess>>,
    /// Accesses that were made while no process held the lock.
    stolen: Mutex<Vec<BarAccess>>,
    turn: OnceLock<PathBuf>,
}

impl Watch for Log {
    fn admits(&self, seen: BarAccess) -> bool {
        self.seen.lock().unwrap().push(seen);
        if let Some(turn) = self.turn.get().filter(|_| !is_identity(seen)) {
            let file = File::open(turn).unwrap();
            // SAFETY: the descriptor is the open file's.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                self.stolen.lock().unwrap().push(seen);
            }
        }
        true
    }
}

/// Values that a guest has staged, as the device sees them at the doorbell.
#[derive(Default)]
struct Staged {
    scratch: Option<u32>,
    arguments: u32,
    bytes: u32,
    window: [u32; 3],
    /// Length in bytes of half the window; 0 without a window.
    half: u32,
    doorbells: usize,
    /// Whether a call is in progress, as far as the guest has read the status.
    busy: bool,
}

impl Staged {
    fn take(&mut self, seen: BarAccess) {
        let BarAccess { offset, value, write, .. } = seen;
        if !write {
            assert!(may_read(offset), "{seen:x?}");
            // A guest that reads the results has read the final status.
            self.busy &= offset == 0x004;
            return;
        }
        assert!(may_write(offset), "{seen:x?}");
        match offset {
            0x03c => {
                assert!(
                    value == 0 || value >> 23 == 1,
                    "a token of 24 bits that is no process id: {value:x}"
                );
                self.scratch = Some(value);
            }
            0x088 => self.arguments = value,
            0x08c => self.bytes = value,
            0x940 | 0x944 | 0x948 => self.window[(offset - 0x940) as usize / 4] = value,
            0x94c => {
                let [low, _, bytes] = self.window;
                assert!(value <= 1, "{seen:x?}");
                assert!(value == 0 || bytes >= 32 << 10 && low.is_multiple_of(4096), "{:x?}", self.window);
                self.half = if value == 1 { bytes / 2 } else { 0 };
            }
            0x0a8 => {
                assert_eq!(value, 1);
                assert!(self.scratch.is_some(), "a call says whose it is");
                assert!(self.arguments <= 16, "{} arguments", self.arguments);
                // Of BAR1's last 8 bytes only the status arrives (Q3, Q28), and the mediator hangs up if a
                // payload is truncated (Q7).
                let most = if self.half == 0 { (8 << 20) - 8 } else { self.half.min(8 << 20) };
                assert!(self.bytes <= most, "{} bytes of payload", self.bytes);
                self.doorbells += 1;
            }
            _ => {}
        }
    }
}

fn looked_on(ram: u64) {
    let log = Arc::new(Log::default());
    let bench = Bench::new(soft("version 1"), ram, Some(Arc::clone(&log) as Arc<dyn Watch>));
    log.turn.set(bench.bed.dir().join("vgpu_transport.lock")).unwrap();
    everything(&bench);
    let session = bench.attach();
    let address = vgpu_transport_bed::allocate(&session, 20 << 20);
    let data = vgpu_transport_bed::pattern(5, 20 << 20);
    copy_in(&session, address, &data);
    assert!(copy_out(&session, address, data.len()) == data);
    drop(session);

    let seen = std::mem::take(&mut *log.seen.lock().unwrap());
    let stolen = log.stolen.lock().unwrap();
    assert!(stolen.is_empty(), "accesses out of turn (Q4): {:x?}", &stolen[..stolen.len().min(5)]);
    let mut staged = Staged::default();
    for seen in &seen {
        assert!(seen.offset.is_multiple_of(4), "whole words at their places (Q1): {seen:x?}");
        match seen.bar {
            Bar::Bar0 => staged.take(*seen),
            Bar::Bar1 if seen.write => {
                assert!(seen.offset + seen.value <= BAR1_TO_GUEST, "{seen:x?}");
            }
            // The status is BAR0's: BAR1's copy of it is not always right (Q5), nor payload (Q3).
            Bar::Bar1 => {
                assert!(seen.offset >= BAR1_TO_GUEST && seen.offset + seen.value <= BAR1_STATUS, "{seen:x?}");
            }
        }
    }
    let calls = bench.recorder.got().len();
    assert_eq!(staged.doorbells, calls, "each call once");
    let through_bar1 = seen.iter().any(|seen| seen.bar == Bar::Bar1 && seen.write && seen.value > 512);
    assert_eq!(through_bar1, ram == NO_MEMORY);
}

#[test]
fn registers_are_used_as_they_are_described() {
    looked_on(NO_MEMORY);
    looked_on(WINDOWED);
}

/// A guest waits for its call before it accesses other registers (6.5): after each doorbell it only reads the
/// status, until its first other access.
#[test]
fn one_call_is_under_way_at_a_time() {
    let log = Arc::new(Log::default());
    let bench = Bench::new(soft("version 1"), WINDOWED, Some(Arc::clone(&log) as Arc<dyn Watch>));
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let bench = &bench;
            scope.spawn(move || {
                let session = bench.attach();
                let address = vgpu_transport_bed::allocate(&session, 1 << 20);
                for round in 0..20 {
                    let data = vgpu_transport_bed::pattern(seed << 8 | round, 50_000);
                    copy_in(&session, address, &data);
                    assert!(copy_out(&session, address, data.len()) == data);
                }
            });
        }
    });
    let seen = log.seen.lock().unwrap();
    let mut calls = 0;
    for pair in seen.iter().filter(|seen| !is_identity(**seen)).collect::<Vec<_>>().windows(2) {
        if pair[0].bar == Bar::Bar0 && pair[0].write && pair[0].offset == 0x0a8 {
            calls += 1;
            assert_eq!(
                (pair[1].write, pair[1].offset),
                (false, 0x004),
                "a look at the status, and nothing else"
            );
        }
    }
    assert_eq!(calls, bench.recorder.got().len());
}
