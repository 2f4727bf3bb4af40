//! Tests of sessions on the real model of a version 1 device, with and without a shared window.

use std::path::Path;
use std::sync::Arc;

use vgpu_device::{BusStatus, Executor, SimBus};
use vgpu_device_v1::{
    BusDeviceConfig, BusTestHooks, Mediator, MediatorPlace, MediatorRules, Properties, Watch, serve_on_bus,
};
use vgpu_transport::{Device, GoneReason, Session, SessionError};
use vgpu_transport_bed::{
    Role, allocate, attach_with, copy_in, copy_out, echo, fill, folder, functions, pattern, say, signal, soft,
};
use vgpu_wire::Span;
use vgpu_wire::body::copy::{CopyDevice, CopyIn, CopyRows, Fill};
use vgpu_wire::body::memory::{Address, MemAlloc, MemCreate, MemFree, MemInfo, MemInfoReply};
use zerocopy::{FromZeros, IntoBytes};

/// A device of version 1 in this process.
pub struct Bed {
    bus: SimBus,
    dir: tempfile::TempDir,
}

impl Bed {
    fn new(executor: Arc<dyn Executor>, ram: u64, rules: MediatorRules) -> Self {
        Self::with(MediatorPlace::Local(Mediator::new(executor, rules).unwrap()), ram, None)
    }

    /// Creates a device whose accesses `watch` observes.
    pub fn watched(executor: Arc<dyn Executor>, ram: u64, watch: Arc<dyn Watch>) -> Self {
        let mediator = Mediator::new(executor, MediatorRules::default()).unwrap();
        Self::with(MediatorPlace::Local(mediator), ram, Some(watch))
    }

    pub fn with(mediator: MediatorPlace, ram: u64, watch: Option<Arc<dyn Watch>>) -> Self {
        let dir = folder();
        let config = BusDeviceConfig {
            address: "0000:00:05.0".parse().unwrap(),
            properties: Properties::default(),
            mediator,
        };
        let hooks = BusTestHooks { watch, ..BusTestHooks::default() };
        let bus = serve_on_bus(dir.path(), ram, vec![config], &hooks).unwrap();
        Self { bus, dir }
    }

    /// Creates a device of a machine with room for the windows of some processes, or none.
    fn of(ram: u64) -> Self {
        Self::new(soft("version 1"), ram, MediatorRules::default())
    }

    pub fn bus(&self) -> &SimBus {
        &self.bus
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn status(&self) -> BusStatus {
        self.bus.status()
    }

    /// Returns the number of bytes of device memory that owners have allocated.
    pub fn allocated(&self) -> u64 {
        self.status().devices[0].sessions.iter().map(|session| session.allocated).sum()
    }

    /// Returns the number of owners with objects. A process that only reads facts uses the machine's own
    /// owner, which has none.
    pub fn owners(&self) -> usize {
        let device = &self.status().devices[0];
        device.sessions.iter().filter(|session| session.state == "attached").count()
    }

    /// Returns the number of stores, loads and doorbells since the device started.
    pub fn accesses(&self) -> [u64; 3] {
        let accesses = self.status().devices[0].accesses.unwrap();
        let (registers, data) = (accesses.bar0, accesses.bar1);
        [registers.writes + data.writes, registers.reads + data.reads, accesses.doorbells]
    }
}

pub const WINDOWED: u64 = 256 << 20;
pub const NO_MEMORY: u64 = 1 << 20;

/// Attaches to the first function.
pub fn attach_in(dir: &Path) -> Session {
    attach_with(dir, Some(vgpu_transport_v1::open))
}

fn late(session: &Session) -> Option<u32> {
    session.late_error().map(|error| error.code)
}

#[test]
fn its_facts_are_the_hosts() {
    let bed = Bed::of(NO_MEMORY);
    let device = Device::identify(&functions(bed.dir.path())[0], Some(vgpu_transport_v1::open)).unwrap();
    let facts = device.facts().unwrap();
    assert_eq!(&facts.name[..10], b"version 1\0");
    assert_eq!((facts.cc_major, facts.cc_minor, facts.total_bytes), (6, 1, 1 << 30));
    assert_eq!(facts.driver_version, 13_000);
    assert_eq!(facts.attributes[102], 0, "no virtual memory");
    let probe = device.probe().unwrap();
    assert_eq!((probe.protocol, probe.attached), (0x1_0000, 0));
    // A process that only reads facts leaves nothing behind.
    let session = Session::open(device).unwrap();
    assert_eq!(session.free_memory().unwrap(), Some(1 << 30));
    assert_eq!(bed.owners(), 0);
}

#[test]
fn every_size_comes_back_as_it_went() {
    for ram in [WINDOWED, NO_MEMORY] {
        let bed = Bed::of(ram);
        let session = attach_in(bed.dir.path());
        let room = 20 << 20;
        let address = allocate(&session, room as u64);
        for edge in [0, 1, 512, 1024, 1028, 64 << 10, 8 << 20, 16 << 20] {
            for bytes in [edge - usize::from(edge > 0), edge, edge + 1] {
                let source = pattern(bytes as u64, bytes);
                copy_in(&session, address + 3, &source);
                assert!(copy_out(&session, address + 3, bytes) == source, "{bytes} bytes, memory {ram}");
            }
        }
        // At the end of the allocation, a short download cannot be widened beyond it.
        let end = address + room as u64 - 9;
        copy_in(&session, end, b"the end !");
        assert_eq!(copy_out(&session, end, 9), b"the end !");
        // Q6: a payload of zeros follows another payload that went through BAR1.
        copy_in(&session, address, &vec![0; 70_000]);
        assert!(copy_out(&session, address, 70_000).iter().all(|&byte| byte == 0));
        assert_eq!(late(&session), None);
    }
}

#[test]
fn pinned_memory_fills_and_copies_within() {
    let bed = Bed::of(WINDOWED);
    let session = attach_in(bed.dir.path());
    let address = allocate(&session, 1 << 20);
    let pinned = session.window_alloc(100_000).unwrap().unwrap();
    let data = pattern(9, 100_000);
    // SAFETY: the pinned memory has that many bytes, and nothing refers to it.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), pinned.ptr(), data.len()) };
    let word = session.word().unwrap();
    let read = word.mark();
    let source = Span::bar(pinned.offset(), data.len() as u64);
    session.send(&CopyIn { stream: 1, reserved: 0, destination: address, source, read }, &[]).unwrap();
    session.wait(read.word, read.value).unwrap();
    session
        .send(
            &CopyDevice {
                stream: 1,
                reserved: 0,
                destination: address + 200_000,
                source: address,
                bytes: 100_000,
            },
            &[],
        )
        .unwrap();
    assert!(copy_out(&session, address + 200_000, 100_000) == data);

    // The fills have every element size, odd addresses and counts, and rows.
    for (element, value, at, count) in [
        (1, 0xab, 1, 5),
        (2, 0xabab, 2, 7),
        (2, 0x1234, 4, 6),
        (2, 0x1234, 2, 70_001),
        (4, 0xdead_beef, 8, 3),
    ] {
        copy_in(&session, address, &vec![7; 300_000]);
        fill(&session, address + at, element, value, count);
        let mut expected = vec![7_u8; 300_000];
        for index in 0..count {
            let start = (at + index * u64::from(element)) as usize;
            expected[start..][..element as usize].copy_from_slice(&value.to_le_bytes()[..element as usize]);
        }
        assert!(copy_out(&session, address, 300_000) == expected, "element {element}, count {count}");
    }
    copy_in(&session, address, &[0; 64]);
    let rows = Fill {
        stream: 0,
        value: 1,
        element: 1,
        reserved: 0,
        destination: address,
        pitch: 8,
        width: 3,
        height: 4,
    };
    session.send(&rows, &[]).unwrap();
    let row = [1, 1, 1, 0, 0, 0, 0, 0];
    assert_eq!(copy_out(&session, address, 40), [&row.repeat(4)[..], &[0; 8]].concat());
    let rows = CopyRows {
        stream: 0,
        reserved: 0,
        destination: address + 64,
        destination_pitch: 3,
        destination_slice: 12,
        source: address,
        source_pitch: 8,
        source_slice: 32,
        width: 3,
        height: 4,
        depth: 1,
    };
    session.send(&rows, &[]).unwrap();
    assert_eq!(copy_out(&session, address + 64, 12), [1; 12]);
    assert_eq!(late(&session), None);
}

#[test]
fn what_it_cannot_say_is_refused() {
    let bed = Bed::of(NO_MEMORY);
    let session = attach_in(bed.dir.path());
    let created = session.call(MemCreate { reply: 0, handle: 1, bytes: 2 << 20 }, &[], &mut []).unwrap();
    assert_eq!(created.status, 801);
    let managed = session.call(MemAlloc { reply: 0, flags: 1, bytes: 64 }, &[], &mut [0; 8]).unwrap();
    assert_eq!(managed.status, 801);
    let mut address = Address::new_zeroed();
    let large = MemAlloc { reply: 0, flags: 0, bytes: 1 << 40 };
    assert_eq!(session.call(large, &[], address.as_mut_bytes()).unwrap().status, 2, "out of memory");
    session.send(&MemFree { address: 0x1234 }, &[]).unwrap();
    assert_eq!(late(&session), Some(1), "an address that is no allocation's");
    assert_eq!(late(&session), None, "once");
    // A copy that takes no message reports its error late, like all others.
    let address = allocate(&session, 4096);
    copy_in(&session, address + 4000, &[1; 4096]);
    assert!(late(&session).is_some());
    echo(&session, 5);
    let mut info = MemInfoReply::new_zeroed();
    let answer = session.call(MemInfo { reply: 0, reserved: 0 }, &[], info.as_mut_bytes()).unwrap();
    assert_eq!((answer.status, info.total), (0, 1 << 30));
}

/// Tests that a call which repeats the previous one reads the last holder, rings the doorbell, and reads the
/// status. An old guest makes 17 to 19 accesses.
#[test]
fn a_call_takes_few_accesses() {
    let bed = Bed::of(WINDOWED);
    let session = attach_in(bed.dir.path());
    let address = allocate(&session, 4 << 20);
    fill(&session, address, 1, 1, 8);
    let before = bed.accesses();
    for _ in 0..100 {
        fill(&session, address, 1, 1, 8);
    }
    let after = bed.accesses();
    assert_eq!((after[0] - before[0], after[2] - before[2]), (100, 100), "a store each, the doorbell");
    // The status of a call that is still in progress is read again.
    assert!(after[1] - before[1] >= 200);

    let data = pattern(1, 4 << 20);
    copy_in(&session, address, &data);
    let before = bed.accesses();
    copy_in(&session, address, &data);
    let after = bed.accesses();
    assert_eq!(
        (after[0] - before[0], after[2] - before[2]),
        (3, 1),
        "4 MiB are one call, and have a window for it"
    );
    let counters = session.counters();
    assert_eq!(counters.bytes_in, 8 << 20);
    let mark = session.word().unwrap().mark();
    session.send(&signal(mark), &[]).unwrap();
    session.wait(mark.word, mark.value).unwrap();
    let again = bed.accesses();
    // More reads may come from an examination of the device, which is due by time.
    assert_eq!((again[0], again[2]), (after[0], after[2]), "a synchronize takes none: everything is done");
}

#[test]
fn sessions_of_one_process_and_its_threads_do_not_mix() {
    let bed = Bed::of(WINDOWED);
    let sessions = [attach_in(bed.dir.path()), attach_in(bed.dir.path())];
    assert_ne!(sessions[0].channel(), sessions[1].channel());
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let session = &sessions[thread as usize % 2];
            scope.spawn(move || {
                let address = allocate(session, 1 << 20);
                for count in 0..20 {
                    let bytes = (thread * 123_457 + count * 77_777) as usize % (1 << 20);
                    let source = pattern(thread << 8 | count, bytes);
                    copy_in(session, address, &source);
                    assert!(copy_out(session, address, bytes) == source);
                }
            });
        }
    });
    assert_eq!(bed.owners(), 2);
    for session in sessions {
        session.close();
    }
    assert_eq!(bed.owners(), 0, "what they had is freed");
}

#[test]
fn processes_do_not_mix_and_the_dead_leave_nothing() {
    for ram in [WINDOWED, NO_MEMORY] {
        let bed = Bed::of(ram);
        let mut others: Vec<Role> = (0..3).map(|_| Role::start("copying-small", bed.dir.path())).collect();
        let mut holder = Role::start("memory-1", bed.dir.path());
        let session = attach_in(bed.dir.path());
        let address = allocate(&session, 1 << 20);
        for count in 0..20 {
            let source = pattern(count, 100_000);
            copy_in(&session, address, &source);
            assert!(copy_out(&session, address, source.len()) == source, "round {count}, memory {ram}");
        }
        // The channels may be in any state.
        for other in &mut others {
            other.kill();
        }
        holder.kill();
        assert_eq!(session.reclaim().unwrap(), 4);
        assert_eq!(bed.owners(), 1, "{:?}", bed.status());
        let source = pattern(99, 100_000);
        copy_in(&session, address, &source);
        assert!(copy_out(&session, address, source.len()) == source);
    }
}

#[test]
fn a_machine_that_is_turned_away_waits_or_is_told() {
    let limited = Bed::new(soft("limited"), NO_MEMORY, MediatorRules::new(Some(200), []));
    let session = attach_in(limited.dir.path());
    for cookie in 0..300 {
        echo(&session, cookie);
    }
    drop(session);

    let closed = Bed::new(soft("closed"), NO_MEMORY, MediatorRules::new(None, [0]));
    let refused =
        Device::identify(&functions(closed.dir.path())[0], Some(vgpu_transport_v1::open)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "0000:00:05.0 has nothing behind it: its host has quarantined this virtual machine"
    );
}

#[test]
fn a_device_that_goes_away_is_noticed() {
    let bed = Bed::of(NO_MEMORY);
    let session = attach_in(bed.dir.path());
    let dir = bed.dir;
    drop(bed.bus);
    let mut reply = MemInfoReply::new_zeroed();
    let lost = session.call(MemInfo { reply: 0, reserved: 0 }, &[], reply.as_mut_bytes()).unwrap_err();
    assert_eq!(lost, SessionError::Gone { reason: GoneReason::Socket });
    drop(dir);
}

/// Uploads and downloads in a loop until the process is killed.
pub fn copying(dir: &Path) {
    let session = attach_in(dir);
    let address = allocate(&session, 1 << 20);
    for count in 0_u64.. {
        let bytes = (count * 40_503 % 300_000) as usize;
        let source = pattern(count ^ u64::from(std::process::id()), bytes);
        copy_in(&session, address, &source);
        assert!(copy_out(&session, address, bytes) == source, "round {count}");
        if count == 5 {
            say("ready");
        }
    }
}
