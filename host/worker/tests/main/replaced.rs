//! A device's process that replaces itself by executing its program: the process stays the same, its workers
//! stay its children, and nothing else is left of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use vgpu_device::{Device, DeviceConfig, DeviceState, GpuConfig, KeptDescriptors, PausedDevice, Window};
use vgpu_host_testing::bench::{self, WINDOW, gpu};
use vgpu_host_testing::commands::allocate;
use vgpu_host_testing::guest::{Function, Guest, PATIENCE, READ, until};
use vgpu_wire::body::copy::{CopyIn, CopyOut};
use vgpu_wire::registers::WAKE_FUTEX;
use vgpu_wire::{Mark, Span, area};
use vgpu_worker::WorkerExecutor;

use crate::bench::worker_config_of;

/// First arguments of the program when it is that process, before and after it executes itself.
pub const BEFORE: &str = "before-replacement";
pub const AFTER: &str = "after-replacement";

const CHANNEL: u32 = 1;
const BYTES: u64 = 0x8000;
/// Names of the descriptors that are the process's own.
const STATE: &str = "state";
const FILE: &str = "window";

/// What the process knows beside its device.
#[derive(Serialize, Deserialize)]
struct Inherited {
    process: u32,
    worker: u32,
    gpu: GpuConfig,
    descriptors: BTreeMap<String, RawFd>,
    /// What the process had open before it served a device.
    open: Vec<String>,
    /// What the guest of the test has written, and where its data is.
    tail: u64,
    number: u64,
    memory: u64,
}

fn config(gpu: &GpuConfig) -> DeviceConfig {
    bench::config(WorkerExecutor::new(worker_config_of("soft", gpu)).expect("an executor of workers"))
}

fn function(device: &Arc<Device>, window: &File) -> Function {
    let device = Arc::clone(device);
    let access = move |operation, offset, value| {
        if operation == READ {
            return device.read(offset);
        }
        device.write(offset, value);
        0
    };
    Function::direct(window.try_clone().expect("the window's file"), WINDOW, Arc::new(access))
}

fn pattern(round: u64) -> Vec<u8> {
    (0..BYTES).map(|at| (at * 13 + round) as u8).collect()
}

/// Has data copied to the device and back.
fn work(guest: &mut Guest, memory: u64, round: u64) {
    for (part, bytes) in pattern(round).chunks(0x1000).enumerate() {
        let destination = memory + (part * 0x1000) as u64;
        let source = Span::inline(0x1000);
        guest.send(&CopyIn { stream: 0, reserved: 0, destination, source, read: Mark::NONE }, bytes);
    }
    let destination = Span::bar(guest.area + area::STAGING, BYTES);
    let written = Mark::new(1, round);
    guest.send(&CopyOut { stream: 0, reserved: 0, source: memory, destination, written }, &[]);
}

fn check(guest: &Guest, round: u64) {
    guest.wait_word(1, round);
    assert_eq!(guest.function.get(guest.area + area::STAGING, BYTES), pattern(round));
}

/// Serves a device, and executes this program while its guest's messages are carried out.
pub fn before() -> ExitCode {
    let open = open();
    let gpu = gpu();
    let window = Window::anonymous(WINDOW).expect("a window");
    let file = File::from(window.file().try_clone_to_owned().expect("its file"));
    let device = Device::new(&config(&gpu), Arc::new(window), WAKE_FUTEX).expect("a device");
    let device = Arc::new(device);
    let mut guest = Guest::attach_silently(function(&device, &file), CHANNEL);
    guest.hello();
    let memory = allocate(&mut guest, BYTES);
    let worker = device.status().sessions[0].worker.expect("a worker");
    for round in 1..=8 {
        work(&mut guest, memory, round);
    }
    let paused = device.pause(Instant::now() + PATIENCE).expect("a state");
    let PausedDevice { state, descriptors: mut kept } = paused;
    let mut text = File::from(memfd_create(STATE, MemfdFlags::CLOEXEC).expect("a file in memory"));
    text.write_all(state.to_json().expect("text").as_bytes()).expect("room");
    kept.insert(STATE.to_owned(), text.into()).expect("one state");
    kept.keep(FILE.to_owned(), &file).expect("one window");
    let descriptors: BTreeMap<String, RawFd> =
        kept.iter().map(|(name, file)| (name.to_owned(), file.as_raw_fd())).collect();
    let (process, tail, number) = (std::process::id(), guest.tail, guest.number);
    let inherited = Inherited { process, worker, gpu, descriptors, open, tail, number, memory };
    let inherited = serde_json::to_string(&inherited).expect("text");
    for (_, file) in kept.iter() {
        fcntl_setfd(file, FdFlags::empty()).expect("a descriptor that stays open");
    }
    let error = Command::new("/proc/self/exe").args([AFTER, &inherited]).exec();
    panic!("execute this program: {error}");
}

/// Continues what the same process did before it executed this program.
pub fn after(inherited: &str) -> ExitCode {
    let inherited: Inherited = serde_json::from_str(inherited).expect("what was inherited");
    assert_eq!(std::process::id(), inherited.process);
    let mut kept = KeptDescriptors::default();
    for (name, &number) in &inherited.descriptors {
        // SAFETY: the process has left this descriptor open for this program, and nobody else knows it.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        fcntl_setfd(&file, FdFlags::CLOEXEC).expect("an open descriptor");
        kept.insert(name.clone(), file).expect("different names");
    }
    let mut text = String::new();
    let mut state = File::from(kept.take(STATE).expect("the state"));
    state.rewind().and_then(|()| state.read_to_string(&mut text)).expect("text");
    drop(state);
    let file = File::from(kept.take(FILE).expect("the window"));
    let state = DeviceState::parse(text.as_bytes()).expect("a state");
    let mapped = Window::from_file_range(file.try_clone().expect("a copy"), 0, WINDOW).expect("the window");
    let config = config(&inherited.gpu);
    state.check(&config).expect("a state of this device");
    let device = Device::restore(&config, &state, &mut kept, Arc::new(mapped), WAKE_FUTEX);
    let device = Arc::new(device.expect("a device"));
    assert_eq!(kept.iter().count(), 0);

    let (tail, number) = (inherited.tail, inherited.number);
    let mut guest = Guest::continued(function(&device, &file), CHANNEL, tail, number);
    check(&guest, 8);
    work(&mut guest, inherited.memory, 9);
    check(&guest, 9);
    guest.echo();
    until("all is done", || guest.done() == guest.number);
    let session = device.status().sessions.remove(0);
    assert_eq!((session.worker, session.messages), (Some(inherited.worker), guest.number));
    // A new session has a worker of its own.
    let mut next = Guest::attach_silently(function(&device, &file), CHANNEL + 1);
    next.hello();
    allocate(&mut next, BYTES);
    assert_eq!(device.status().workers_running, Some(2));
    next.detach();
    guest.detach();
    let status = device.status();
    assert_eq!((status.workers_started, status.workers_running), (Some(2), Some(0)));
    assert_eq!((status.allocated, status.charged_bytes), (0, 0));
    drop((guest, next, device, config));
    drop(file);
    let start = Instant::now();
    while open() != inherited.open {
        assert!(start.elapsed() < PATIENCE, "these are open: {:?}, not {:?}", open(), inherited.open);
        std::thread::yield_now();
    }
    println!("continued");
    ExitCode::SUCCESS
}

/// Returns what this process has open.
fn open() -> Vec<String> {
    let files = std::fs::read_dir("/proc/self/fd").expect("descriptors").filter_map(Result::ok);
    let names = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with("/fd")).collect();
    names.sort();
    names
}

pub fn a_process_that_executes_itself_keeps_its_sessions() {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).arg(BEFORE).output().expect("a process");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said == "continued\n", "{said}{error}");
}
