//! Tests of guest pages, to which the host writes data for the guest: they are used where they are available,
//! with the same results as without them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use vgpu_device::{DeviceConfig, SimBus};
use vgpu_transport::{ReturnPath, Session, Why};
use vgpu_transport_bed::{allocate, attach_in, echo, eventually, folder, functions, pattern, soft};
use vgpu_wire::{area, pci};

/// Length in bytes of a session's guest pages.
const PAGES: u64 = 4 << 20;

/// A device that accepts pages of a guest with this much memory.
struct Machine {
    dir: tempfile::TempDir,
    bus: SimBus,
}

impl Machine {
    fn new(ram: u64) -> Self {
        let dir = folder();
        let config = DeviceConfig::new("0000:00:05.0".parse().unwrap(), soft("pages"));
        let bus = SimBus::serve_with_memory(dir.path(), ram, vec![config]).unwrap();
        Self { dir, bus }
    }

    fn attach(&self) -> Session {
        attach_in(self.dir.path())
    }

    fn config(&self) -> PathBuf {
        functions(self.dir.path())[0].dir.join("config")
    }

    fn page_bytes(&self) -> Vec<u64> {
        let status = self.bus.status();
        status.devices[0].sessions.iter().map(|session| session.page_bytes).collect()
    }
}

fn reading(session: &Session) -> ReturnPath {
    session.reading().unwrap()
}

fn there_and_back(session: &Session, address: u64, source: &[u8]) -> bool {
    // SAFETY: a slice is readable.
    unsafe { session.copy_in(0, address, source.as_ptr(), source.len()) }.unwrap();
    let mut back = vec![0xcc; source.len()];
    // SAFETY: the vector has that many bytes and is used by nobody else.
    unsafe { session.copy_out(0, address, back.as_mut_ptr(), back.len()) }.unwrap();
    back == source
}

#[test]
fn every_size_comes_back_through_pages() {
    let machine = Machine::new(1 << 30);
    let session = machine.attach();
    let reading = reading(&session);
    assert_eq!((reading.why, reading.page_bytes), (Why::AsFast, PAGES));
    assert!(reading.pages_mb_s.unwrap() > 0.0 && reading.window_mb_s.unwrap() > 0.0);
    // The pages are those of the return area and of the segment behind it.
    assert_eq!(machine.page_bytes(), [PAGES - 0x2_0000 + area::RETURN_BYTES]);
    let room = 32 << 20;
    let address = allocate(&session, room as u64);
    for edge in [1, 64 << 10, 256 << 10, 512 << 10, 2 << 20, 7 << 19, 32 << 20] {
        for bytes in [edge - 1, edge, (edge + 1).min(room)] {
            assert!(there_and_back(&session, address, &pattern(bytes as u64, bytes)), "{bytes} bytes");
        }
    }
    let mut runner = TestRunner::new(ProptestConfig::with_cases(40));
    let sizes = (any::<u64>(), 0u32..25).prop_map(|(seed, power)| (seed, seed as usize % (1 << power)));
    runner
        .run(&sizes, |(seed, bytes)| {
            prop_assert!(there_and_back(&session, address, &pattern(seed, bytes)), "{} bytes", bytes);
            Ok(())
        })
        .unwrap();
    assert!(machine.bus.status().devices[0].sessions[0].window_bytes > 0, "to the device it is the window");
}

#[test]
fn threads_and_sessions_share_no_page() {
    let machine = Machine::new(1 << 30);
    let sessions: Vec<Session> = (0..3).map(|_| machine.attach()).collect();
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let session = &sessions[thread as usize % sessions.len()];
            scope.spawn(move || {
                let address = allocate(session, 4 << 20);
                for count in 0..25 {
                    let bytes = (thread * 1_234_567 + count * 777_777) as usize % (4 << 20);
                    assert!(there_and_back(session, address, &pattern(thread << 8 | count, bytes)));
                }
            });
        }
    });
    assert_eq!(machine.page_bytes().len(), 3);
}

#[test]
fn the_next_on_a_channel_has_its_pages() {
    let machine = Machine::new(1 << 30);
    for round in 0..5 {
        let session = machine.attach();
        assert_eq!((session.channel(), reading(&session).why), (0, Why::AsFast));
        echo(&session, round);
        let address = allocate(&session, 1 << 20);
        assert!(there_and_back(&session, address, &pattern(round, 1 << 20)));
        if round % 2 == 0 {
            session.close();
        }
        drop(session);
        // A device that is slow is not waited for.
        eventually("the session has ended", || machine.page_bytes().is_empty());
    }
}

/// Tests each obstacle to guest pages and how it is reported. The session continues through the window.
#[test]
fn without_pages_the_window_does() {
    let without = |machine: &Machine, why: Why| {
        let session = machine.attach();
        assert_eq!((reading(&session).why, reading(&session).page_bytes), (why, 0));
        let address = allocate(&session, 1 << 20);
        assert!(there_and_back(&session, address, &pattern(1, 1 << 20)));
        assert_eq!(machine.page_bytes(), [0]);
    };
    // The memory is too small for a part that is not at address 0.
    without(&Machine::new(2 << 20), Why::NoPages);

    // The host refuses another key than the device's, and the guest does not offer the pages again.
    let machine = Machine::new(1 << 30);
    let file = File::options().read(true).write(true).open(machine.config()).unwrap();
    let mut key = [0; 8];
    file.read_exact_at(&mut key, pci::PAGES_KEY).unwrap();
    file.write_all_at(&(u64::from_le_bytes(key) ^ 2).to_le_bytes(), pci::PAGES_KEY).unwrap();
    without(&machine, Why::Refused);
    // The kernel shows only so much of configuration space to users other than root.
    file.set_len(64).unwrap();
    without(&machine, Why::NotAllowed);
    std::fs::remove_file(machine.config()).unwrap();
    without(&machine, Why::NotAllowed);
}
