//! A device is reloaded while programs use it through a VMM: they notice nothing, or nothing happens at all.

use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::Value;
use vgpu_serve::Facts;
use vgpu_testbed::bed::{StandIn, random_facts};
use vgpu_testbed::copies::{Copies, is_right};
use vgpu_testbed::programs;
use vgpu_testbed::unit::Instance;
use vgpu_testbed::vmm::Vmm;
use vgpu_wire::registers as reg;

use crate::support::{report_of, testbed};

/// Number of reloads.
const RELOADS: usize = 20;
/// Guests that use the device meanwhile, each on a channel from 1 on. Guests that attach meanwhile have
/// channel 0.
const GUESTS: u32 = 3;

/// A device whose sessions have worker processes, with a soft device in place of a GPU.
struct Reloaded {
    instance: Instance,
    vmm: Vmm,
    _gpu: StandIn,
}

impl Reloaded {
    fn start(program: &Path) -> Self {
        let facts = Facts { memory_mib: 4096, ..random_facts(&["6.1"]) };
        let gpu = StandIn::start(&facts, &[], false).unwrap();
        let instance = Instance::start_on_gpu(program, "vm1", &gpu, "").unwrap();
        let vmm = Vmm::connect(&instance.socket().unwrap()).unwrap();
        Self { instance, vmm, _gpu: gpu }
    }

    /// Tries to reload the device, which goes on, and returns why it does.
    fn refused(&self) -> String {
        let output = self.instance.reload().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn status(&self) -> Value {
        self.instance.status().unwrap()["instances"][0].take()
    }
}

/// Returns what the descriptors of a process refer to, by kind.
fn descriptors(pid: u32) -> Vec<String> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = folder.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let kind = |link: PathBuf| {
        let link = link.to_string_lossy().into_owned();
        // The numbers of sockets and pipes differ.
        link.split_once(":[").map_or(link.clone(), |(kind, _)| kind.to_owned())
    };
    let mut kinds: Vec<String> = links.map(kind).collect();
    kinds.sort();
    kinds
}

/// Waits until no program is attached and no question of an operator open, and returns the descriptors.
fn idle(reloaded: &Reloaded) -> Vec<String> {
    let end = Instant::now() + vgpu_testbed::bed::PATIENCE;
    let mut before = Vec::new();
    loop {
        let now = descriptors(reloaded.instance.pid());
        let sessions = reloaded.status()["devices"][0]["sessions"].as_array().unwrap().len();
        if sessions == 0 && now == before {
            return now;
        }
        assert!(Instant::now() < end, "{now:#?}");
        before = now;
    }
}

#[test]
fn guests_notice_no_reload() {
    let reloaded = Reloaded::start(&programs::device().unwrap());
    let sysfs = reloaded.vmm.sysfs();
    let (pid, generation) = (reloaded.instance.pid(), reloaded.vmm.register(reg::V2_GENERATION).unwrap());
    is_right(sysfs, 1);
    reloaded.instance.reload_well().unwrap();
    let first = idle(&reloaded);
    let (over, mut pauses) = (AtomicBool::new(false), Vec::new());
    let going = || !over.load(Ordering::Relaxed);
    let (rounds, attached, longest) = std::thread::scope(|scope| {
        let guests: Vec<_> = (1..=GUESTS)
            .map(|channel| {
                scope.spawn(move || {
                    let mut copies = Copies::attach(sysfs, channel, channel.into());
                    let mut rounds = 0;
                    while going() {
                        assert!(copies.round(), "the session is lost after {rounds} rounds");
                        rounds += 1;
                    }
                    copies.detach();
                    rounds
                })
            })
            .collect();
        let reading = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while going() {
                let start = Instant::now();
                assert_eq!(reloaded.vmm.register(reg::V2_GENERATION).unwrap(), generation);
                longest = longest.max(start.elapsed());
            }
            longest
        });
        let attaching = scope.spawn(|| {
            let mut guests = 0;
            while going() {
                is_right(sysfs, guests);
                guests += 1;
            }
            guests
        });
        for _ in 0..RELOADS {
            pauses.push(reloaded.instance.reload_well().unwrap());
        }
        over.store(true, Ordering::Relaxed);
        let rounds: u64 = guests.into_iter().map(|guest| guest.join().unwrap()).sum();
        (rounds, attaching.join().unwrap(), reading.join().unwrap())
    });
    let status = reloaded.status();
    assert_eq!(status["reloads"], RELOADS as u64 + 1, "{status}");
    assert_eq!((reloaded.instance.pid(), &status["process"]), (pid, &pid.into()));
    assert_eq!(reloaded.vmm.register(reg::V2_GENERATION).unwrap(), generation);
    let [_, refused, stale] = reloaded.vmm.counts().unwrap();
    assert_eq!((refused, stale), (0, 0));
    // What guests had is free, and no descriptor is left over.
    assert_eq!(idle(&reloaded), first);
    assert_eq!(reloaded.status()["devices"][0]["workers_running"], 0);
    pauses.sort_by(f64::total_cmp);
    eprintln!(
        "{RELOADS} reloads: paused for p50 {} ms, max {} ms, longest access {longest:?}; {rounds} rounds of {GUESTS} guests, \
         {attached} others attached meanwhile",
        pauses[pauses.len() / 2],
        pauses[pauses.len() - 1],
    );
}

/// A program that takes over in the end, after what `first` does.
fn script(path: &Path, first: &str) {
    let real = programs::device().unwrap();
    let text = format!(
        "#!/bin/sh\ncase \" $* \" in *\" --judge \"*) ;; *) {first};; esac\nexec {} \"$@\"\n",
        real.display()
    );
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// Nothing takes a signal between the end of one program and the start of the next. It waits, and the device
/// ends in order.
#[test]
fn a_signal_that_comes_while_a_program_is_executed_is_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("vgpu-device");
    script(&program, "true");
    // The service is a program in the place of the script.
    std::fs::copy(programs::device().unwrap(), &program).unwrap();
    let mut reloaded = Reloaded::start(&program);
    let mut guest = Copies::attach(reloaded.vmm.sysfs(), 1, 1);
    assert!(guest.round());
    let next = folder.path().join("next");
    script(&next, "kill -TERM $$");
    std::fs::rename(&next, &program).unwrap();
    let mut reload = reloaded.instance.reload_command().unwrap().spawn().unwrap();
    reloaded.instance.wait_for_end().unwrap();
    assert!(reloaded.vmm.is_closed_in_order().unwrap());
    // It would wait for the device.
    reload.kill().unwrap();
    reload.wait().unwrap();
    reloaded.instance.manager().catch_up().unwrap();
    assert_eq!(reloaded.instance.manager().names(), [""; 0], "the end was in order");
}

/// Descriptors run out at each step of a reload in turn, the memory file of the state included: the old
/// program goes on and says why, until there are enough.
#[test]
fn without_room_for_the_state_the_device_goes_on() {
    let reloaded = Reloaded::start(&programs::device().unwrap());
    let mut guest = Copies::attach(reloaded.vmm.sysfs(), 1, 1);
    assert!(guest.round());
    let pid = reloaded.instance.pid();
    let limit = |most: Option<u64>| {
        let limits = Rlimit { current: most, ..getrlimit(Resource::Nofile) };
        prlimit(Pid::from_raw(pid.cast_signed()), Resource::Nofile, limits).unwrap()
    };
    // Operators are answered all the time. Some numbers are high, and limit nothing.
    let least = descriptors(pid).len() as u64 + 4;
    let mut reasons = BTreeSet::new();
    let enough = (least..least + 500).find(|most| {
        let usual = limit(Some(*most));
        let output = reloaded.instance.reload().unwrap();
        limit(usual.current);
        assert!(guest.round(), "the session is lost with {most} descriptors");
        if !output.status.success() {
            reasons.insert(String::from_utf8(output.stderr).unwrap());
        }
        output.status.success()
    });
    assert!(enough.is_some_and(|enough| enough > least), "{enough:?} {reasons:#?}");
    for what in ["copy the device's descriptors", "the state", "which is to take over"] {
        assert!(reasons.iter().any(|reason| reason.contains(what)), "{what}: {reasons:#?}");
    }
    assert!(reasons.iter().all(|reason| reason.contains("Too many open files")), "{reasons:#?}");
    assert_eq!(reloaded.status()["reloads"], 1);
    guest.detach();
}

/// A device whose VM has lost an earlier one still says so after it was reloaded.
#[test]
fn a_lost_device_is_told_after_a_reload() {
    let mut reloaded = Reloaded::start(&programs::device().unwrap());
    reloaded.instance.kill().unwrap();
    let record = File::from(reloaded.instance.manager().kept("record").unwrap());
    for copy in 0..2 {
        record.write_all_at(&[0xff; 64], 4096 + (copy * (32 << 10)) + 16).unwrap();
    }
    reloaded.instance.restart().unwrap();
    let lost = serde_json::json!({ "kept": false, "crashes": 0 });
    assert_eq!(reloaded.status()["restart"], lost);
    reloaded.instance.reload_well().unwrap();
    assert_eq!(reloaded.status()["restart"], lost);
}

/// The trial of `vgpu-testbed reload` with two VMs, while the node process shares the GPU among them: with
/// fewer tokens and programs, and smaller copies.
#[test]
fn a_stream_of_tokens_is_the_same_with_reloads() {
    let (report, good) = report_of(testbed(&["reload", "--json", "--vms", "2", "--node"]).args([
        "--tokens",
        "12",
        "--reloads",
        "2",
        "--sessions",
        "5",
        "--copy-mib",
        "16",
    ]));
    assert!(good, "{report:#}");
    assert_eq!((&report["different"], &report["reloads"]), (&0.into(), &4.into()), "{report:#}");
    for rounds in report["rounds"].as_array().unwrap() {
        let rounds = rounds.as_object().unwrap();
        assert_eq!(rounds.len(), 4, "{report:#}");
        assert!(rounds.values().all(|count| count.as_u64() > Some(0)), "{report:#}");
    }
}

#[test]
fn what_cannot_take_over_leaves_the_device_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("vgpu-device");
    let install = |what: &dyn Fn(&Path)| {
        let new = folder.path().join("new");
        what(&new);
        std::fs::rename(new, &program).unwrap();
    };
    let good = |new: &Path| {
        std::fs::copy(programs::device().unwrap(), new).unwrap();
    };
    let script = |text: &'static str| {
        move |new: &Path| {
            std::fs::write(new, text).unwrap();
            std::fs::set_permissions(new, Permissions::from_mode(0o755)).unwrap();
        }
    };
    install(&good);
    let reloaded = Reloaded::start(&program);
    let mut guest = Copies::attach(reloaded.vmm.sysfs(), 1, 1);
    assert!(guest.round());
    for (text, why) in [
        ("#!/bin/sh\necho \"error: unexpected argument '--judge'\" >&2\nexit 2\n", "unexpected argument"),
        ("#!/bin/sh\nexit 0\n", "it says nothing"),
        ("#!/bin/sh\nkill -SEGV $$\n", "signal: 11"),
        ("#!/does/not/exist\n", "start"),
        ("not a program", "start"),
    ] {
        install(&script(text));
        let said = reloaded.refused();
        assert!(said.contains(why) && said.contains("vgpu-device"), "{text}: {said}");
        assert!(guest.round(), "{text}");
    }
    install(&good);
    // Settings that a device keeps as long as it lives.
    let settings = reloaded.instance.settings().unwrap();
    reloaded.instance.change_settings(&format!("{settings}channels = 8\n")).unwrap();
    let said = reloaded.refused();
    assert!(said.contains("differ in channels"), "{said}");
    reloaded.instance.change_settings(&settings).unwrap();
    assert!(guest.round());
    reloaded.instance.reload_well().unwrap();
    assert!(guest.round());
    guest.detach();
    let status = reloaded.status();
    assert_eq!(status["reloads"], 1, "{status}");
}

#[test]
fn a_device_without_workers_says_that_it_cannot_be_reloaded() {
    let instance = Instance::start("vm1", "executor = \"soft\"\n", &[]).unwrap();
    let output = instance.reload().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("only sessions in worker processes"), "{said}");
}
