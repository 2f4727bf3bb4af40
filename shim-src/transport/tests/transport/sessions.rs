//! Tests of opening and closing sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_transport::{AttachError, Device, OpenError, Progress, Session, SessionError};
use vgpu_transport_bed::{Bed, allocate, attach_in, echo, eventually, folder, functions, null, signal, soft};
use vgpu_wire::body::session::Echo;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::{Mark, TABLE_DIGEST, WIRE_VERSION};

fn name(facts: &DeviceFacts) -> &str {
    std::str::from_utf8(&facts.name).unwrap().trim_end_matches('\0')
}

#[test]
fn a_session_learns_what_the_device_is_and_leaves_nothing_behind() {
    let bed = Bed::of(soft("A soft GPU"));
    let device = Device::open(&functions(bed.dir())[0], None).unwrap();
    let probe = device.probe().unwrap();
    assert_eq!((probe.wire_version, probe.digest), (WIRE_VERSION, TABLE_DIGEST));
    assert!(probe.executor_ready && probe.wake_futex && probe.generation != 0);
    assert_eq!((probe.window_mib, probe.channels, probe.attached), (256, 64, 0));
    let session = Session::attach(device).unwrap();
    assert_eq!(name(session.facts()), "A soft GPU");
    assert_eq!(session.facts().total_bytes, 1 << 30);
    assert_eq!(session.function().address.to_string(), "0000:00:05.0");
    echo(&session, 42);
    allocate(&session, 1 << 20);

    let status = bed.status();
    assert_eq!(status.sessions.len(), 1);
    assert_eq!(status.sessions[0].session, session.number());
    assert_eq!(status.sessions[0].process, std::process::id());
    assert_eq!(status.allocated, 1 << 20);
    drop(session);
    eventually("detached", || bed.status().sessions.is_empty() && bed.status().allocated == 0);
}

#[test]
fn who_only_looks_opens_no_window() {
    let bed = Bed::of(soft("A soft GPU"));
    let function = &functions(bed.dir())[0];
    let (window, away) = (function.dir.join("resource2"), function.dir.join("resource2.away"));
    std::fs::rename(&window, &away).unwrap();
    let look = || Session::open(Device::identify(function, None).unwrap()).unwrap();
    let (session, hopeless) = (look(), look());
    assert_eq!(name(session.facts()), "A soft GPU");
    assert_eq!(session.free_memory().unwrap(), Some(1 << 30));
    assert!(matches!(Device::open(function, None), Err(OpenError::Open { .. })));
    // The first message reports why the attach failed, and later ones repeat it.
    let lost = hopeless.call(Echo { reply: 0, reserved: 0, cookie: 1 }, &[], &mut []).unwrap_err();
    assert!(matches!(lost, SessionError::NotAttached { .. }), "{lost}");
    std::fs::rename(&away, &window).unwrap();
    assert_eq!(session.free_memory().unwrap(), Some(1 << 30));
    echo(&session, 7);
    assert_eq!(session.free_memory().unwrap(), None, "attached: the device is asked by message");
    assert_eq!(bed.status().sessions.len(), 1);
}

#[test]
fn two_devices_are_two() {
    let bed = Bed::new(vec![soft("first"), soft("second")], |_| {});
    let found = functions(bed.dir());
    let sessions: Vec<Session> = found
        .iter()
        .map(|function| Session::attach(Device::open(function, None).unwrap()).unwrap())
        .collect();
    assert_eq!(sessions.iter().map(|session| name(session.facts())).collect::<Vec<_>>(), ["first", "second"]);
    // The channels have the same index in different files, and their locks are independent.
    assert_eq!((sessions[0].channel(), sessions[1].channel()), (0, 0));
    for session in &sessions {
        echo(session, 5);
        allocate(session, 4096);
    }
}

#[test]
fn sessions_of_one_process_have_channels_of_their_own() {
    let bed = Bed::new(vec![null()], |config| config.channels = 3);
    let sessions: Vec<Session> = (0..3).map(|_| bed.attach()).collect();
    let mut channels: Vec<u32> = sessions.iter().map(Session::channel).collect();
    channels.sort_unstable();
    assert_eq!(channels, [0, 1, 2]);
    let full = Session::attach(Device::open(&functions(bed.dir())[0], None).unwrap()).unwrap_err();
    assert!(matches!(full, AttachError::NoChannel { channels: 3 }), "{full}");
    sessions[1].close();
    let another = bed.attach();
    assert_eq!(another.channel(), channels[1]);
    for session in [&sessions[0], &sessions[2], &another] {
        echo(session, 1);
    }
    // No process was mistaken for dead.
    assert_eq!(sessions[0].reclaim(), Ok(0));
}

#[test]
fn many_attach_at_once() {
    let bed = Bed::of(null());
    let sessions: Vec<Session> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| attach_in(bed.dir()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut channels: Vec<u32> = sessions.iter().map(Session::channel).collect();
    channels.sort_unstable();
    channels.dedup();
    assert_eq!(channels.len(), 16);
    assert_eq!(bed.status().sessions.len(), 16);
    for session in &sessions {
        echo(session, 3);
    }
}

#[test]
fn closing_ends_what_other_threads_do() {
    let bed = Bed::of(soft("closed"));
    let session = Arc::new(bed.attach());
    let pinned = session.window_alloc(1 << 20).unwrap().unwrap();
    let asleep = session.counters().sleeps;
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let session = Arc::clone(&session);
            std::thread::spawn(move || {
                let word = session.word().unwrap();
                session.wait(word.index(), 1)
            })
        })
        .collect();
    eventually("they sleep", || session.counters().sleeps == asleep + 3);
    let word = session.word().unwrap();
    let sent = session.counters().messages;
    let sender = {
        let session = Arc::clone(&session);
        std::thread::spawn(move || {
            loop {
                if let Err(lost) = session.send(&signal(word.mark()), &[]) {
                    return lost;
                }
            }
        })
    };
    eventually("it sends", || session.counters().messages > sent + 1000);
    let start = Instant::now();
    session.close();
    session.close();
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap(), Err(SessionError::Closed));
    }
    assert_eq!(sender.join().unwrap(), SessionError::Closed);
    // The values that the threads wait for are never reached.
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    eventually("detached", || bed.status().sessions.is_empty());

    // The memory is private by now, so that the next owner of channel and window memory is not disturbed.
    let next = bed.attach();
    let theirs = next.window_alloc(1 << 20).unwrap().unwrap();
    assert_eq!(theirs.offset(), pinned.offset());
    // SAFETY: both are mapped for their length and nobody else uses them.
    unsafe { pinned.ptr().write_bytes(0xee, 1 << 20) };
    // SAFETY: as above.
    assert_eq!(unsafe { theirs.ptr().read_volatile() }, 0);
    echo(&next, 8);
    assert_eq!(session.late_error().map(|error| (error.code, error.sticky)), Some((4, true)));
    assert_eq!(session.window_alloc(1).map(drop), Err(SessionError::Closed));
    assert!(session.word().is_none());
}

/// Tests with plain files in place of the BARs that sysfs maps. They have no side effects, so there is no
/// session.
#[test]
fn a_real_bar_is_mapped_and_read() {
    use vgpu_wire::registers as reg;

    let dir = folder();
    let function = dir.path().join("bus/pci/devices/0000:03:00.0");
    std::fs::create_dir_all(&function).unwrap();
    let none = "0x0 0x0 0x0\n";
    let resource = format!("0xf000 0x10fff 0x40200\n{none}0x100000 0x4fffff 0x14220c\n{none}{none}{none}");
    for (name, text) in [
        ("vendor", "0x10de"),
        ("device", "0x2331"),
        ("class", "0x030200"),
        ("subsystem_vendor", "0x10de"),
        ("subsystem_device", "0x16c1"),
        ("enable", "0\n"),
        ("resource", &resource),
    ] {
        std::fs::write(function.join(name), text).unwrap();
    }
    let mut bar = vec![0u8; 0x2000];
    for (register, value) in [
        (reg::PROTOCOL_VER, reg::PROTOCOL_V2),
        (reg::CAPABILITIES, reg::CAP_V2),
        (reg::V2_CHANNELS, 2),
        (reg::V2_AREA_STRIDE, 0x8_0000),
        (reg::V2_WINDOW_MIB, 4),
        (reg::V2_WIRE_VERSION, 0x0002_0009),
        (reg::V2_ATTACHED_HI, 1),
        (reg::VM_ID, 9),
    ] {
        bar[register as usize..][..4].copy_from_slice(&value.to_le_bytes());
    }
    std::fs::write(function.join("resource0"), bar).unwrap();
    for name in ["resource2", "resource2_wc"] {
        std::fs::write(function.join(name), vec![0; 4 << 20]).unwrap();
    }

    let found = functions(dir.path());
    let error = Device::open(&found[0], None).unwrap_err();
    assert!(matches!(error, OpenError::Disabled { .. }), "{error}");
    std::fs::write(function.join("enable"), "1\n").unwrap();
    let device = Device::open(&found[0], None).unwrap();
    let probe = device.probe().unwrap();
    assert_eq!((probe.channels, probe.window_mib, probe.attached, probe.vm_id), (2, 4, 1 << 32, 9));
    assert!(!probe.wake_futex && !probe.executor_ready);
    let error = Session::attach(device).unwrap_err();
    assert_eq!(error.to_string(), "the device speaks wire version 2.9, this program 2.1");

    std::fs::remove_file(function.join("resource2")).unwrap();
    let error = Device::open(&found[0], None).unwrap_err();
    assert!(error.to_string().ends_with("0000:03:00.0/resource2"), "{error}");
}

/// Tests that a device's progress can be read from the window, without a register access and without a
/// session.
#[test]
fn progress_of_other_sessions_is_seen() {
    let bed = Bed::of(null());
    let session = bed.attach();
    let device = Device::open(&functions(bed.dir())[0], None).unwrap();
    let progress = Progress::open(&device).unwrap();
    let number = session.send(&signal(Mark::NONE), &[]).unwrap();
    eventually("what the attach sent is carried out", || session.done() >= number);
    let before = progress.count();
    assert_eq!(progress.count(), before, "nothing is done");
    echo(&session, 7);
    eventually("the device counts what it has done", || progress.count() != before);
}
