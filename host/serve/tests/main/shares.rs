//! Several devices of one GPU: its memory is promised once, and no VM has more than it was promised, contexts
//! and code included. The GPU is a soft device that charges contexts as a driver does, behind this project's
//! own libcuda.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use vgpu_device::{DeviceConfig, GpuConfig, SimBus};
use vgpu_executor_soft::{Soft, SoftOptions, TestHooks};
use vgpu_host_testing::bench::{address, folder};
use vgpu_host_testing::commands::{
    LAUNCH, allocate, function, launch, load, params, product, synchronize, try_load,
};
use vgpu_host_testing::guest::{Guest, until};
use vgpu_recording_cuda::Recording;
use vgpu_wire::Span;
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{MemAlloc, MemInfo, MemInfoReply};
use vgpu_wire::body::module::{GlobalGet, IMAGE_CUBIN, ModuleData, ModuleLoad, ModuleOpen};
use zerocopy::FromBytes;

use crate::program::program;
use crate::serve::Served;

const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
/// Memory of a context of the stand-in for a GPU.
pub(crate) const CONTEXT: u64 = 300 * MIB;
/// Memory of an allocation of the tests.
pub(crate) const PART: u64 = 32 * MIB;
/// `CUDA_ERROR_OUT_OF_MEMORY` and `CUDA_ERROR_INVALID_IMAGE`.
pub(crate) const OUT_OF_MEMORY: u32 = 2;
const INVALID_IMAGE: u32 = 200;

/// A GPU of 6 GiB, with the directory in which its devices find each other.
pub(crate) struct Gpu {
    bus: SimBus,
    folder: tempfile::TempDir,
    libraries: PathBuf,
    /// Options by which devices have the addresses that this GPU gives.
    addresses: [String; 2],
}

impl Gpu {
    pub(crate) fn start() -> Self {
        let gpu = GpuConfig { memory_bytes: 6 * GIB, ..GpuConfig::new("GPU of several VMs").unwrap() };
        let hooks = TestHooks { context_bytes: CONTEXT, ..TestHooks::default() };
        let soft = Soft::with_hooks(&gpu, SoftOptions::default(), hooks).unwrap();
        let range = Soft::reservable(&gpu);
        let offset = range.start - gpu.addresses.range().base;
        let addresses = [
            format!("--address-range={}", gpu.addresses.index()),
            format!("--address-part={offset}+{}", range.end - range.start),
        ];
        let folder = folder();
        let bus =
            SimBus::serve(&folder.path().join("gpu"), vec![DeviceConfig::new(address(), Arc::new(soft))]);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let options = xtask::shims::Options {
            only: ["libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13"].map(str::to_owned).to_vec(),
            ..xtask::shims::Options::embedded(&root)
        };
        let report = xtask::shims::update(&options).unwrap();
        assert!(report.failed.is_empty(), "{:?}", report.failed);
        Self { bus: bus.unwrap(), folder, libraries: options.out, addresses }
    }

    /// Returns a command by which a VM's device is served or asked.
    pub(crate) fn command(&self) -> std::process::Command {
        let mut command = program();
        command.env("VGPU_SYSFS", self.folder.path().join("gpu")).env("VGPU_LOG", "off");
        command.env_remove("CUDA_VISIBLE_DEVICES");
        command
    }

    pub(crate) fn bus_of(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).join("bus")
    }

    fn arguments(&self, name: &str, memory: Option<&str>) -> Vec<String> {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let mut words = vec![
            format!("--bus=sim:{}", text(self.bus_of(name))),
            format!("--control={}", text(self.folder.path().join(name).join("control"))),
            format!("--shares={}", text(self.shares())),
            format!("--libcuda={}", text(self.libraries.join("libcuda.so.1"))),
            format!("--libcublas={}", text(self.libraries.join("libcublas.so.13"))),
            "--worker-connects=true".to_owned(),
        ];
        words.extend(self.addresses.clone());
        words.extend(memory.map(|memory| format!("--memory={memory}")));
        words
    }

    /// Serves a device for the VM `name`.
    pub(crate) fn serve(&self, name: &str, memory: Option<&str>) -> Served {
        self.serve_with(name, memory, &[])
    }

    /// Serves a device for the VM `name`, with more options.
    pub(crate) fn serve_with(&self, name: &str, memory: Option<&str>, more: &[&str]) -> Served {
        std::fs::create_dir_all(self.folder.path().join(name)).unwrap();
        let arguments = self.arguments(name, memory);
        let all: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        Served::run(&mut self.command(), &all)
    }

    /// Returns the directory in which the devices find each other.
    pub(crate) fn shares(&self) -> PathBuf {
        self.folder.path().join("shares")
    }

    /// Returns why a device for the VM `name` is not served.
    fn refusal(&self, name: &str, memory: &str) -> String {
        std::fs::create_dir_all(self.folder.path().join(name)).unwrap();
        let mut command = self.command();
        command.arg("serve").args(self.arguments(name, Some(memory))).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{name}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Returns the control socket of the VM `name`.
    pub(crate) fn control(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).join("control")
    }

    /// Returns whether a command succeeds, and what it prints.
    fn said(command: &mut std::process::Command) -> (bool, String) {
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.success(), text)
    }

    /// Ends a session of the VM `name`, and returns what is printed.
    fn end(&self, name: &str, session: &str) -> (bool, String) {
        let mut command = self.command();
        Self::said(command.args(["end", name, session, "--control"]).arg(self.control(name)))
    }

    /// Ends the first session of the VM `name`, as an operator does.
    pub(crate) fn end_session(&self, name: &str) {
        let session = self.answer(name)["devices"][0]["sessions"][0]["session"].to_string();
        let (good, said) = self.end(name, &session);
        assert!(good && said == format!("session {session} of {name} has ended\n"), "{said}");
    }

    /// Returns the command that asks about the VM `name`.
    pub(crate) fn status_command(&self, name: &str, more: &[&str]) -> std::process::Command {
        let mut command = self.command();
        command.arg("status").args(more).arg("--shares").arg(self.shares());
        command.arg("--control").arg(self.control(name));
        command
    }

    /// Asks about the VM `name`. Returns whether it answers, and what is printed.
    pub(crate) fn status_text(&self, name: &str, more: &[&str]) -> (bool, String) {
        Self::said(&mut self.status_command(name, more))
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        // A device that has no processor for two seconds is not heard of.
        for _ in 0..10 {
            if let (true, text) = self.status_text(name, &["--json"]) {
                return serde_json::from_str(&text).unwrap();
            }
        }
        let (good, text) = self.status_text(name, &["--json"]);
        assert!(good, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Returns the answer of the device of the VM `name`, without the second that a report about GPUs takes.
    pub(crate) fn answer(&self, name: &str) -> Value {
        let mut stream = UnixStream::connect(self.control(name)).unwrap();
        writeln!(stream, "{{\"cmd\":\"status\"}}").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the memory that the VM's device has charged.
    pub(crate) fn charged(&self, name: &str) -> u64 {
        self.answer(name)["devices"][0]["allocated"].as_u64().unwrap()
    }

    pub(crate) fn attach(&self, name: &str, channel: u32) -> Guest {
        Guest::attach(&self.bus_of(name), address(), channel)
    }

    /// Returns the memory of the GPU that is in use.
    fn used(&self) -> u64 {
        self.bus.status().devices[0].allocated
    }
}

/// Asks for memory, and returns the status.
pub(crate) fn ask_for(guest: &mut Guest, bytes: u64) -> u32 {
    guest.call(MemAlloc { reply: 0, flags: 0, bytes }, &[]).0
}

fn free(guest: &mut Guest) -> u64 {
    let (status, data) = guest.call(MemInfo { reply: 0, reserved: 0 }, &[]);
    assert_eq!(status, 0);
    MemInfoReply::read_from_bytes(&data).unwrap().free
}

#[test]
fn a_gpus_memory_is_promised_once() {
    let gpu = Gpu::start();
    let first = gpu.serve("vm1", Some("2G"));
    // What a context costs is known from the first device, so that none is made for others, whether they
    // start or are refused.
    let over = AtomicBool::new(false);
    let (second, refusal) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Acquire) {
                most = most.max(gpu.used());
                std::thread::yield_now();
            }
            most
        });
        let started = (gpu.serve("vm2", Some("3G")), gpu.refusal("vm3", "1G"));
        over.store(true, Ordering::Release);
        assert_eq!(watch.join().unwrap(), 0);
        started
    });
    let why = "cannot promise 1024 MiB: of 5632 MiB for VMs 512 MiB are free, because vm1 holds 2048 MiB and vm2 3072 MiB";
    assert!(refusal.trim_end().ends_with(why) && refusal.lines().count() == 1, "{refusal}");

    let status = gpu.status("vm1");
    let report = &status["gpus"][0];
    let sums = ["total", "reserve", "promised", "free"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(sums, [6 * GIB, GIB / 2, 5 * GIB, GIB / 2], "{report}");
    let vms: Vec<_> =
        report["vms"].as_array().unwrap().iter().map(|vm| (&vm["name"], &vm["context_bytes"])).collect();
    assert_eq!(vms, [(&"vm1".into(), &CONTEXT.into()), (&"vm2".into(), &CONTEXT.into())], "{report}");

    // What a killed device was promised is free when its worker has ended too, and without a number a device
    // gets all of it.
    let mut guest = gpu.attach("vm2", 0);
    allocate(&mut guest, PART);
    drop(second);
    let vms = || gpu.status("vm1")["gpus"][0]["vms"].as_array().unwrap().len();
    until("the worker of the killed device has ended", || vms() == 1);
    let third = gpu.serve("vm3", None);
    assert_eq!(gpu.answer("vm3")["devices"][0]["total"], 3 * GIB + GIB / 2);
    third.end();
    first.end();
    let refusal = gpu.refusal("vm1", "200M");
    assert!(refusal.contains("a VM with 200 MiB of GPU-") && refusal.contains("takes 300 MiB"), "{refusal}");
    assert!(gpu.refusal("gpus", "1G").contains("cannot have the name `gpus`"));
    assert_eq!(gpu.used(), 0);
}

/// A worker may outlive its device: one that is stopped, or that waits in a call of the driver.
#[test]
fn memory_is_promised_anew_when_the_workers_of_a_killed_device_have_ended() {
    let gpu = Gpu::start();
    let first = gpu.serve("vm1", Some("4G"));
    let mut guest = gpu.attach("vm1", 0);
    allocate(&mut guest, GIB);
    let session = &gpu.answer("vm1")["devices"][0]["sessions"][0];
    let worker = Pid::from_raw(session["worker"].as_i64().unwrap() as i32).unwrap();
    kill_process(worker, Signal::STOP).unwrap();
    drop(first);
    assert!(gpu.used() >= GIB, "the worker has it");
    let refusal = gpu.refusal("vm1", "4G");
    assert!(refusal.contains("workers of vm1's former device still hold its memory"), "{refusal}");
    let refusal = gpu.refusal("vm2", "4G");
    assert!(refusal.contains("because the ended device of vm1 holds 4096 MiB"), "{refusal}");
    // A start that waits for the worker succeeds once it has ended.
    let again = std::thread::scope(|scope| {
        let again = scope.spawn(|| gpu.serve("vm1", Some("4G")));
        kill_process(worker, Signal::KILL).unwrap();
        again.join().unwrap()
    });
    until("what the worker had is free", || gpu.used() == 0);
    again.end();
}

#[test]
fn no_vm_exceeds_its_promise_by_a_byte() {
    let gpu = Gpu::start();
    let _first = gpu.serve("vm1", Some("2G"));
    let _second = gpu.serve("vm2", Some("3G"));
    let over = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Acquire) {
                most = most.max(gpu.used());
                std::thread::yield_now();
            }
            most
        });
        // Each takes what it can get, in turns that nobody arranges.
        let takers: Vec<_> = (0..4)
            .map(|channel| {
                let gpu = &gpu;
                scope.spawn(move || {
                    let mut guest = gpu.attach("vm1", channel);
                    let mut taken = 0;
                    loop {
                        match ask_for(&mut guest, PART) {
                            0 => taken += PART,
                            status => {
                                assert_eq!(status, OUT_OF_MEMORY);
                                return (guest, taken);
                            }
                        }
                    }
                })
            })
            .collect();
        let taken: Vec<_> = takers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Release);
        let taken: Vec<_> = taken.into_iter().map(Result::unwrap).collect();
        let most = watch.join().unwrap();
        // One of them had no room for a context, or all four had.
        let contexts = taken.iter().filter(|(_, taken)| *taken > 0).count() as u64;
        let sum: u64 = taken.iter().map(|(_, taken)| taken).sum();
        assert!(sum + contexts * CONTEXT > 2 * GIB - PART - CONTEXT, "{sum} in {contexts} contexts");
        assert!(gpu.charged("vm1") <= 2 * GIB && gpu.used() <= gpu.charged("vm1"));
        // The other VM has what it was promised.
        let mut other = gpu.attach("vm2", 0);
        assert_eq!(free(&mut other), 3 * GIB - CONTEXT);
        allocate(&mut other, 3 * GIB - CONTEXT);
        assert_eq!(ask_for(&mut other, 1), OUT_OF_MEMORY);
        assert_eq!((gpu.charged("vm2"), free(&mut other)), (3 * GIB, 0));
        for (guest, _) in &taken {
            guest.detach();
        }
        other.detach();
        most
    });
    assert!((2 * GIB - PART - CONTEXT..=2 * GIB).contains(&most), "{most}");
    until("everything is free", || gpu.used() == 0 && gpu.charged("vm1") + gpu.charged("vm2") == 0);
}

#[test]
fn code_is_charged_and_an_operator_ends_a_session() {
    let gpu = Gpu::start();
    let served = gpu.serve("vm1", Some("1G"));
    let mut guest = gpu.attach("vm1", 0);
    load(&mut guest, 1);
    // The driver loads code when it is first used.
    function(&mut guest, 1, "scale");
    let charged = gpu.charged("vm1");
    assert!(charged > CONTEXT && gpu.used() > CONTEXT && gpu.used() <= charged, "{charged} {}", gpu.used());
    allocate(&mut guest, PART);
    assert_eq!(gpu.charged("vm1"), charged + PART);
    // A module that cannot be loaded holds nothing.
    let open = ModuleOpen { reply: 0, module: 2, image: IMAGE_CUBIN, reserved: 0, bytes: 4, digest: [0; 32] };
    assert_eq!(guest.call(open, &[]).0, 0);
    guest.send(&ModuleData { module: 2, reserved: 0, offset: 0, data: Span::inline(4) }, b"junk");
    assert_eq!(guest.call(ModuleLoad { reply: 0, module: 2 }, &[]).0, INVALID_IMAGE);
    assert_eq!(gpu.charged("vm1"), charged + PART);

    let (good, said) = gpu.end("vm1", "4711");
    assert!(!good && said.contains("vm1 has no session 4711"), "{said}");
    gpu.end_session("vm1");
    assert_eq!((gpu.charged("vm1"), gpu.used()), (0, 0));
    // Its program finds that it has lost the device, and the next one has it.
    assert_eq!(guest.register(vgpu_wire::registers::channel::SESSION), 0);
    let mut next = gpu.attach("vm1", 0);
    allocate(&mut next, PART);
    next.detach();
    served.end();
}

/// Variables of modules and workspaces of products belong to sessions that no message charges for them.
#[test]
fn what_no_message_requests_stays_within_the_promise() {
    const VARIABLES: u64 = 256 * MIB;
    const WORKSPACE: u64 = 4 * MIB;
    let gpu = Gpu::start();
    let served = gpu.serve("vm1", Some("1G"));
    let mut guests = [0, 1].map(|channel| gpu.attach("vm1", channel));
    let memory = [0, 1].map(|index| allocate(&mut guests[index], PART));
    let [one, two] = &mut guests;
    let text = |bytes| {
        format!(".version 8.0\n.target sm_61\n.address_size 64\n.global .align 8 .b8 table[{bytes}];\n")
    };
    let before = gpu.charged("vm1");
    assert_eq!(before, 2 * (CONTEXT + PART));
    assert_eq!(try_load(one, 1, &text(VARIABLES)), Ok(false));
    let charged = gpu.charged("vm1");
    // The driver of this GPU loads code when it is first used.
    let variable = GlobalGet { reply: 0, module: 1, name_bytes: 5, reserved: 0 };
    assert_eq!(one.call(variable, b"table").0, 0);
    // The image takes a granule.
    assert_eq!(charged, before + VARIABLES + 2 * MIB);
    assert!(gpu.used() >= before + VARIABLES && gpu.used() <= charged, "{}", gpu.used());
    assert_eq!(try_load(two, 1, &text(VARIABLES / 2)), Err(OUT_OF_MEMORY));
    assert_eq!(gpu.charged("vm1"), charged);

    // There is room for one of two workspaces. Who has none multiplies in that of cuBLAS itself.
    let left = free(two);
    allocate(two, left - WORKSPACE - 2 * MIB);
    for (guest, memory) in guests.iter_mut().zip(memory) {
        guest.send(&product(16, [memory, memory + 1024, memory + 2048]), &[]);
        synchronize(guest);
        assert_eq!(guest.late(), None);
        assert_eq!(gpu.charged("vm1"), GIB - 2 * MIB);
        assert!(gpu.used() <= GIB);
    }
    for guest in &guests {
        guest.detach();
    }
    until("everything is free", || gpu.used() == 0 && gpu.charged("vm1") == 0);
    served.end();
}

/// The worker of such a session waits in the driver for the kernel's end, and is killed.
#[test]
fn an_operator_ends_a_session_in_an_endless_kernel() {
    let gpu = Gpu::start();
    let served = gpu.serve("vm1", Some("1G"));
    let mut guest = gpu.attach("vm1", 0);
    load(&mut guest, 1);
    function(&mut guest, 1, "endless");
    launch(&mut guest, Launch { function: 1, ..LAUNCH }, &params(0, &[]));
    guest.echo();
    gpu.end_session("vm1");
    assert_eq!(gpu.charged("vm1"), 0);
    // The next session has what it had.
    let mut next = gpu.attach("vm1", 0);
    let all = free(&mut next);
    allocate(&mut next, all);
    next.detach();
    served.end();
}

/// Where cuBLAS makes no handle, the process that measures a context says so, and does not pass the cost of
/// less for what a session's context costs.
#[test]
fn a_measurement_without_a_handle_of_cublas_says_so() {
    let failure = json!({ "call": "cublasCreate_v2", "nth": 1, "status": OUT_OF_MEMORY });
    for (failures, lacks) in [
        (json!([]), Value::Null),
        (json!([failure]), json!("cublasCreate_v2 returned CUBLAS_STATUS_ALLOC_FAILED (3)")),
    ] {
        let recording = Recording::new(&json!({ "failures": failures })).unwrap();
        let gpu = json!({ "libcuda": recording.library(), "libcublas": recording.cublas(), "uuid": null });
        let mut command = program();
        let output = command.args(["__context", &json!([gpu, "Measure"]).to_string()]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
        let measured: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(measured["lacks"], lacks, "{measured}");
        assert!(measured["bytes"].is_u64(), "{measured}");
    }
}
