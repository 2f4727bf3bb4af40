//! The process of a device is killed while guests use it through a VMM. The service manager has kept the
//! descriptors that the next process needs. The VMM goes on with the same connection, guests learn that their
//! sessions are lost, and new ones work.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::process::{Pid, Signal, kill_process};
use vgpu_testbed::announce;
use vgpu_testbed::bed::{PATIENCE, stopped};
use vgpu_testbed::copies::{Copies, is_right};
use vgpu_testbed::unit::Instance;
use vgpu_testbed::vmm::Vmm;
use vgpu_vfio_user::Answering;
use vgpu_vfio_user::record::Record;
use vgpu_wire::registers as reg;

/// Number of deaths.
const DEATHS: usize = 50;
/// Number of deaths that come while the VMM waits for an answer, and while an answer is on its way.
const WAITING: usize = 10;
const ANSWERING: usize = 10;
/// Guests that use the device when it dies, each on a channel from 1 on. The guest that comes afterwards has
/// channel 0.
const GUESTS: u32 = 2;

/// Waits until the device has no session, and returns the number of its process's descriptors and threads,
/// and of the bytes that its window has.
fn left(instance: &Instance) -> [u64; 2] {
    let end = Instant::now() + PATIENCE;
    loop {
        let device = instance.status().unwrap()["instances"][0]["devices"][0].take();
        if device["sessions"].as_array().unwrap().is_empty() && device["allocated"] == 0 {
            break;
        }
        assert!(Instant::now() < end, "{device}");
    }
    let count = |what: &str| {
        let folder = format!("/proc/{}/{what}", instance.pid());
        std::fs::read_dir(folder).unwrap().count() as u64
    };
    let window = File::from(instance.manager().kept("window").unwrap()).metadata().unwrap();
    [count("fd") + count("task"), window.blocks() * 512]
}

/// Returns how far the reply was to the request that is first in the VMM's socket.
fn answering(instance: &Instance) -> Answering {
    Record::open(instance.manager().kept("record").unwrap()).unwrap().1.answering
}

/// When a death comes.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Random(Duration),
    /// While the VMM waits for an answer that the process has not begun to give.
    Waiting,
    /// While an answer may be on its way.
    Answering,
}

/// Waits for the moment. The process of the device is stopped then, so that the moment lasts.
fn wait_for(moment: Moment, instance: &Instance, vmm: &Vmm) {
    let pid = Pid::from_raw(instance.pid().cast_signed()).unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        if let Moment::Random(time) = moment {
            thread::sleep(time);
        }
        kill_process(pid, Signal::STOP).unwrap();
        stopped(instance.pid()).unwrap();
        let reached = match moment {
            Moment::Random(_) => true,
            Moment::Waiting => {
                // An access comes by itself, because programs look at the device.
                thread::sleep(Duration::from_millis(5));
                vmm.is_waiting() && answering(instance) == Answering::Nothing
            }
            Moment::Answering => answering(instance) != Answering::Nothing,
        };
        if reached {
            return;
        }
        kill_process(pid, Signal::CONT).unwrap();
        assert!(Instant::now() < end, "{moment:?} did not come");
    }
}

/// Reads registers without a pause until it is dropped, so that answers are on their way.
fn while_reading<T>(vmm: &Vmm, act: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // A read in doubt is refused.
                let _ = vmm.register(reg::PROTOCOL_VER);
            }
        });
        let result = act();
        over.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn a_vm_goes_on_after_its_device_was_killed() {
    let settings = "executor = \"soft\"\nmemory = \"1G\"\nwindow = \"64M\"\nchannels = 16\n";
    let mut instance = Instance::start("vm1", settings, &[]).unwrap();
    let vmm = Vmm::connect(&instance.socket().unwrap()).unwrap();
    let seed = 0x5eed;
    let mut rng = StdRng::seed_from_u64(seed);
    is_right(vmm.sysfs(), seed);
    instance.manager().catch_up().unwrap();
    let (config, names) = (vmm.config().unwrap(), instance.manager().names());
    assert_eq!(names.iter().filter(|name| name.starts_with("ram-")).count(), 2, "{names:?}");
    let mut generation = vmm.register(reg::V2_GENERATION).unwrap();
    let (mut told, mut doubts, mut first) = (Vec::new(), 0, None);
    let mut moments: Vec<_> =
        (0..DEATHS).map(|_| Moment::Random(Duration::from_micros(rng.random_range(0..200_000)))).collect();
    for index in 0..WAITING {
        moments[5 * index + 1] = Moment::Waiting;
    }
    for index in 0..ANSWERING {
        moments[5 * index + 3] = Moment::Answering;
    }
    for (index, moment) in moments.into_iter().enumerate() {
        if index % 10 == 0 {
            announce(&format!("crash: death {index} of {DEATHS} (seed {seed:#x})"));
        }
        let (working, works) = mpsc::channel();
        let loads: Vec<_> = (1..=GUESTS)
            .map(|channel| {
                let (sysfs, working) = (vmm.sysfs().to_owned(), working.clone());
                thread::spawn(move || {
                    let mut copies = Copies::attach(&sysfs, channel, index as u64);
                    working.send(()).unwrap();
                    while copies.round() {}
                    // It is told once the next process answers.
                    Instant::now()
                })
            })
            .collect();
        for _ in 0..GUESTS {
            works.recv().unwrap();
        }
        // The thread that reads may wait for an answer until the next process gives it.
        while_reading(&vmm, || {
            wait_for(moment, &instance, &vmm);
            instance.kill().unwrap();
            doubts += usize::from(answering(&instance) != Answering::Nothing);
            instance.restart().unwrap();
        });
        let ready = Instant::now();
        told.extend(loads.into_iter().map(|load| load.join().unwrap().saturating_duration_since(ready)));
        is_right(vmm.sysfs(), index as u64);

        // It is another device with the same place, and nothing of the old one is left.
        let now = vmm.register(reg::V2_GENERATION).unwrap();
        assert_ne!(std::mem::replace(&mut generation, now), now);
        assert_eq!(vmm.config().unwrap(), config);
        instance.manager().catch_up().unwrap();
        assert_eq!(instance.manager().names(), names);
        let status = instance.status().unwrap();
        let device = &status["instances"][0];
        assert_eq!(device["restart"]["kept"], true, "{status}");
        assert_eq!(device["restart"]["crashes"], index as u64 + 1, "{status}");
        let [then, window_then] = *first.get_or_insert_with(|| left(&instance));
        let end = Instant::now() + PATIENCE;
        // Threads of answered questions may still be ending.
        while left(&instance)[0] != then {
            assert!(Instant::now() < end, "after death {index}: {:?} are held, of {then}", left(&instance));
        }
        let window = left(&instance)[1];
        let most = window_then + (1 << 20);
        assert!(window <= most, "the window has {window} bytes after death {index}, of {window_then}");
    }
    told.sort();
    let [answered, refused, stale] = vmm.counts().unwrap();
    eprintln!(
        "{DEATHS} deaths, {doubts} with an answer in doubt; {answered} accesses answered, {refused} refused, {stale} replies \
         not expected; lost sessions told after p50 {:?}, max {:?}",
        told[told.len() / 2],
        told[told.len() - 1]
    );
    assert!(doubts >= ANSWERING && refused <= doubts as u64, "{doubts} {refused}");

    // An orderly end leaves nothing, and closes the connection.
    instance.stop().unwrap();
    instance.manager().catch_up().unwrap();
    assert_eq!(instance.manager().names(), [""; 0]);
    assert!(vmm.is_closed_in_order().unwrap());
}

/// Where the connection cannot be continued, it is closed in order, and the next VM is served.
#[test]
fn what_cannot_be_continued_is_told() {
    let settings = "executor = \"null\"\nwindow = \"64M\"\nchannels = 16\n";
    let start = || {
        let instance = Instance::start("vm1", settings, &[]).unwrap();
        let vmm = Vmm::connect(&instance.socket().unwrap()).unwrap();
        (instance, vmm)
    };
    let is_new = |instance: &Instance, vmm: &Vmm| {
        assert!(vmm.is_closed_in_order().unwrap());
        let status = instance.status().unwrap();
        assert_eq!(status["instances"][0]["restart"]["kept"], false, "{status}");
        let next = Vmm::connect(&instance.socket().unwrap()).unwrap();
        assert_eq!(next.register(reg::PROTOCOL_VER).unwrap(), reg::PROTOCOL_V2);
        instance.manager().catch_up().unwrap();
        let names = instance.manager().names();
        assert_eq!(names.iter().filter(|name| !name.contains('-')).count(), 3, "{names:?}");
        assert_eq!(names.len(), 6, "{names:?}");
    };
    // Settings that have changed.
    for change in ["window = \"128M\"", "channels = 8"] {
        let (mut instance, vmm) = start();
        instance.kill().unwrap();
        let (name, _) = change.split_once(' ').unwrap();
        instance
            .change_settings(&format!(
                "{}\n",
                settings
                    .lines()
                    .map(|line| if line.starts_with(name) { change } else { line })
                    .collect::<Vec<_>>()
                    .join("\n")
            ))
            .unwrap();
        instance.restart().unwrap();
        is_new(&instance, &vmm);
    }
    // A record that is damaged.
    let (mut instance, vmm) = start();
    instance.kill().unwrap();
    let record = File::from(instance.manager().kept("record").unwrap());
    record.write_all_at(&[0xff; 64], 4096 + 16).unwrap();
    record.write_all_at(&[0xff; 64], 4096 + (32 << 10) + 16).unwrap();
    instance.restart().unwrap();
    is_new(&instance, &vmm);
}

/// Without a store the VM has lost its device, as long as the device does not say otherwise.
#[test]
fn without_a_store_a_crash_costs_the_connection() {
    let none = [("FDSTORE", Path::new("0"))];
    let mut instance = Instance::start("vm1", "executor = \"null\"\n", &none).unwrap();
    let vmm = Vmm::connect(&instance.socket().unwrap()).unwrap();
    assert_eq!(instance.manager().names(), [""; 0]);
    instance.crash().unwrap();
    assert!(vmm.register(reg::PROTOCOL_VER).is_err());
    Vmm::connect(&instance.socket().unwrap()).unwrap();
}
