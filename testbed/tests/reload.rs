//! A device is reloaded while programs use it through a VMM: they notice nothing, or nothing happens at all.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use vgpu_serve::Facts;
use vgpu_testbed::bed::{StandIn, random_facts};
use vgpu_testbed::programs;
use vgpu_testbed::unit::Instance;
use vgpu_testbed::vmm::Vmm;
use vgpu_wire::registers as reg;

use crate::crash::{Copies, is_right};

/// Number of reloads.
const RELOADS: usize = 20;
/// Guests that use the device meanwhile, each on a channel from 1 on. Guests that attach meanwhile have channel 0.
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
        let mut settings = "worker-connects = true\n".to_owned();
        for (name, value) in &gpu.settings {
            let quote = if *name == "address-range" { "" } else { "\"" };
            writeln!(settings, "{name} = {quote}{value}{quote}").unwrap();
        }
        let environment = [("VGPU_SYSFS", gpu.bed.sysfs())];
        let instance = Instance::start_program(program, "vm1", &settings, &environment).unwrap();
        let vmm = Vmm::connect(&instance.socket().unwrap()).unwrap();
        Self { instance, vmm, _gpu: gpu }
    }

    fn reload(&self) -> Output {
        let mut command = Command::new(programs::device().unwrap());
        command.args(["reload", "vm1", "--control"]).arg(self.instance.control().unwrap());
        command.output().unwrap()
    }

    /// Reloads the device, and returns the time in milliseconds for which accesses waited.
    fn reload_well(&self) -> f64 {
        let mut output = self.reload();
        // Other tests may take the processors from the new program while it judges, but not each time.
        for _ in 0..5 {
            if !String::from_utf8_lossy(&output.stderr).contains("within") {
                break;
            }
            output = self.reload();
        }
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let pause = said.trim().rsplit_once("paused for ").unwrap().1;
        pause.strip_suffix(" ms").unwrap().parse().unwrap()
    }

    /// Tries to reload the device, which goes on, and returns why it does.
    fn refused(&self) -> String {
        let output = self.reload();
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
    reloaded.reload_well();
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
            pauses.push(reloaded.reload_well());
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
    reloaded.reload_well();
    assert!(guest.round());
    guest.detach();
    let status = reloaded.status();
    assert_eq!(status["reloads"], 1, "{status}");
}

#[test]
fn a_device_without_workers_says_that_it_cannot_be_reloaded() {
    let instance = Instance::start("vm1", "executor = \"soft\"\n", &[]).unwrap();
    let mut command = Command::new(programs::device().unwrap());
    command.args(["reload", "vm1", "--control"]).arg(instance.control().unwrap());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("only sessions in worker processes"), "{said}");
}
