//! `vgpu-device status`: the VMs of a GPU, for whose figures no device is asked, and devices that hang.
//! Guests see their own share.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vgpu_host_testing::commands::{allocate, synchronize};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_wire::body::copy::CopyDevice;
use vgpu_wire::registers as reg;
use vgpu_wire::share::VmShare;

use crate::serve::Served;
use crate::shares::{CONTEXT, GIB, Gpu, PART};

/// Returns the share that a guest reads.
fn share(guest: &Guest) -> VmShare {
    VmShare::from_words(VmShare::REGISTERS.map(|offset| guest.function.read(offset)))
}

/// Copies device memory again and again, until `over`.
fn work(guest: &mut Guest, over: &AtomicBool) {
    let memory = allocate(guest, 2 * PART);
    while !over.load(Ordering::Acquire) {
        let body =
            CopyDevice { stream: 0, reserved: 0, destination: memory, source: memory + PART, bytes: PART };
        guest.send(&body, &[]);
        synchronize(guest);
    }
}

fn vms(status: &Value) -> [&Value; 2] {
    let vms = status["gpus"][0]["vms"].as_array().unwrap();
    [&vms[0], &vms[1]]
}

#[test]
fn shares_and_waits_are_shown_to_the_host_and_to_each_guest() {
    let gpu = Gpu::start();
    let _served = [gpu.serve("vm1", Some("1G")), gpu.serve_with("vm2", Some("2G"), &["--weight=3"])];
    let mut guests = [gpu.attach("vm1", 0), gpu.attach("vm2", 0)];
    let expected = reg::CAP_BASIC | reg::CAP_V2 | reg::CAP_USAGE | reg::CAP_SHARE;
    for (guest, ppm) in guests.iter().zip([250_000, 750_000]) {
        assert_eq!(guest.function.read(reg::CAPABILITIES), expected);
        until("the guest sees its share", || share(guest) == VmShare { ppm, ..VmShare::default() });
    }
    let status = gpu.status("vm1");
    assert_eq!(status["gpus"][0]["node"], "none", "{status}");
    let [one, two] = vms(&status);
    assert_eq!((&one["name"], &one["weight"], &one["share"]), (&"vm1".into(), &1.into(), &0.25.into()));
    assert_eq!((&two["name"], &two["weight"], &two["share"]), (&"vm2".into(), &3.into(), &0.75.into()));
    let shown = (&one["sessions"], &one["connected"], &one["runs"], &one["waited_us"], &one["used"]);
    assert_eq!(shown, (&1.into(), &true.into(), &true.into(), &0.into(), &0.into()), "{one}");

    let shares = gpu.shares();
    let node = Served::run_as("node", &mut gpu.command(), &["--shares", shares.to_str().unwrap()]);
    let over = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        // Guests that work end also where an assertion fails.
        let _end = Over(&over);
        for guest in &mut guests {
            scope.spawn(|| work(guest, &over));
        }
        // The other channel's guests only look.
        let eyes = [gpu.attach("vm1", 1), gpu.attach("vm2", 1)];
        let both = |status: &Value, key: &str| {
            vms(status).iter().all(|vm| vm["last_second"][key].as_f64().is_some_and(|part| part > 0.0))
        };
        until("both have the GPU, and wait", || {
            let status = gpu.status("vm1");
            let vm = vms(&status)[0];
            status["gpus"][0]["node"] == "runs"
                && both(&status, "gpu")
                && both(&status, "waits")
                && vm["used"] == CONTEXT + 2 * PART
                && vm["charged_us"].as_u64().unwrap() > 0
                && vm["gpu_time_us"].as_u64() >= vm["charged_us"].as_u64()
        });
        for (guest, ppm) in eyes.iter().zip([250_000, 750_000]) {
            until("the guest sees that it waits", || {
                let share = share(guest);
                share.enforced && share.ppm == ppm && share.charged_us > 0 && share.waited_us > 0
            });
        }
        let mut text = String::new();
        until("both devices answer, and the node process is alive", || {
            let (good, said) = gpu.status_text("vm1", &[]);
            text = said;
            good && text.contains("; the node process shares its time\n")
        });
        assert!(text.contains("2 VMs promised 3 GiB"), "{text}");
        let row = text.lines().find(|line| line.starts_with("  vm2 ")).unwrap();
        let cells: Vec<_> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!((cells[1], cells[2], cells[4], cells[7]), ("3", "75 %", "2 GiB", "yes"), "{text}");
        // A guest's times do not decrease when the node process ends.
        let before = eyes.each_ref().map(share);
        node.end();
        until("the shares are not enforced", || eyes.iter().all(|guest| !share(guest).enforced));
        over.store(true, Ordering::Release);
        for (guest, before) in eyes.iter().zip(before) {
            let now = share(guest);
            assert!(now.waited_us >= before.waited_us && now.charged_us >= before.charged_us, "{now:?}");
            guest.detach();
        }
        before
    });
    assert!(seen.iter().all(|share| share.waited_us > 0));
    assert_eq!(gpu.status("vm1")["gpus"][0]["node"], "none");
}

/// Guard by which guests stop to work.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Guard by which a process goes on.
struct Stopped(Pid);

impl Stopped {
    fn stop(process: u32) -> Self {
        let process = Pid::from_raw(process.cast_signed()).unwrap();
        kill_process(process, Signal::STOP).unwrap();
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn a_device_that_hangs_is_named_and_hides_nothing() {
    let gpu = Gpu::start();
    let (_one, two) = (gpu.serve("vm1", Some("1G")), gpu.serve("vm2", Some("2G")));
    let stopped = Stopped::stop(two.process());
    // The answer to a question about the device that hangs: its share, and why there is no more.
    let (good, text) = gpu.status_text("vm2", &["--json"]);
    assert!(!good, "{text}");
    let (json, said) = text.split_once('\n').unwrap();
    let json: Value = serde_json::from_str(json).unwrap();
    let reason = format!("the device at {} does not answer", gpu.control("vm2").display());
    assert_eq!(json["unanswered"], serde_json::json!([{ "name": "vm2", "reason": reason }]));
    assert_eq!(said, format!("vgpu-device: {reason}\n"));
    assert_eq!(json["instances"].as_array().unwrap().len(), 0);
    assert_eq!((&vms(&json)[1]["name"], &vms(&json)[1]["promised"]), (&"vm2".into(), &(2 * GIB).into()));
    // The other one, and the part about the GPU, are not affected.
    let mut text = String::new();
    until("the other one answers", || {
        let (good, said) = gpu.status_text("vm1", &[]);
        text = said;
        good
    });
    for line in ["  vm1 ", "  vm2 ", "vm1  sim:"] {
        assert!(text.lines().any(|shown| shown.starts_with(line)), "{line}: {text}");
    }
    drop(stopped);
    until("it answers again", || gpu.status_text("vm2", &[]).0);
    // A killed device leaves its socket, at which nobody listens.
    drop(two);
    assert!(gpu.control("vm2").exists());
    let (good, text) = gpu.status_text("vm2", &[]);
    assert!(!good && text.contains("Connection refused"), "{text}");
}

/// Starts `status --watch` with a pipe.
fn watch(gpu: &Gpu, more: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut command = gpu.status_command("vm1", more);
    let mut child = command.arg("--watch").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

#[test]
fn watching_prints_every_second_and_ends_with_the_pipe() {
    let gpu = Gpu::start();
    let vm1 = gpu.serve("vm1", Some("1G"));
    let (mut child, lines) = watch(&gpu, &[]);
    let mut blocks = 0;
    let mut lines = lines.lines().map(Result::unwrap);
    while blocks < 3 {
        let line = lines.next().unwrap();
        assert!(!line.contains('\x1b'), "a pipe is no terminal: {line}");
        blocks += u32::from(line.starts_with("GPU-"));
    }
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let (mut child, mut lines) = watch(&gpu, &["--json"]);
    let mut next = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let first = next();
    assert!(first["gpus"][0]["vms"][0]["last_second"].is_null(), "{first}");
    // A line may come early or late, and a device that has no processor for half a second is not heard of.
    until("there is a last second, and the device answers", || {
        let report = next();
        let waits = &report["gpus"][0]["vms"][0]["last_second"]["waits"];
        assert!(waits.is_null() || *waits == 0.0, "{report}");
        !waits.is_null() && report["instances"][0]["process"] == vm1.process()
    });
    // A device that hangs delays nothing, and its share is shown.
    let stopped = Stopped::stop(vm1.process());
    let mut report = next();
    until("the device is not heard of", || {
        let unheard = report["unanswered"].as_array().is_some_and(|all| all.len() == 1);
        if !unheard {
            report = next();
        }
        unheard
    });
    assert_eq!(report["gpus"][0]["vms"][0]["promised"], GIB, "{report}");
    drop(stopped);
    until("it answers again", || {
        report = next();
        report["instances"][0]["process"] == vm1.process()
    });
    drop(vm1);
    until("it is gone", || next()["gpus"].as_array().unwrap().is_empty());
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
