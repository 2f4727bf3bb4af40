//! A device whose executor drives a recording libcuda.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use vgpu_device::{Executor, GpuConfig};
use vgpu_executor_cuda::{Cuda, CudaOptions};
use vgpu_host_testing::bench::{Bench, config};
use vgpu_host_testing::guest::Guest;
use vgpu_recording_cuda::{Recording, sequence};

use crate::locks;

/// Name of the environment variable that makes tests write sequences instead of comparing them.
const WRITE: &str = "VGPU_WRITE_SEQUENCES";
/// Name of the call with which a session's own calls start.
const CONTEXT: &str = "cuCtxCreate_v2";
/// Call that only the end of a session makes.
const AT_THE_END: &str = "cuCtxSynchronize";

/// A bus with one device, and the record of its libcuda.
pub struct RecordedGpu {
    pub bench: Bench,
    pub recording: Recording,
    /// Extensions of the contract that the executor announces.
    pub abilities: u32,
}

impl RecordedGpu {
    /// Creates a device whose libcuda has these options.
    pub fn new(options: &Value) -> Self {
        Self::with_bus(options, |executor| Bench::with(config(executor)))
    }

    /// Creates a device on the bus that `serve` makes of the executor.
    pub fn with_bus(options: &Value, serve: impl FnOnce(Cuda) -> Bench) -> Self {
        let recording = Recording::new(options).expect("a recording libcuda");
        let addresses = GpuConfig::new("any").expect("a range of addresses").addresses;
        let options = CudaOptions {
            libcuda: Some(recording.library()),
            libcublas: Some(recording.cublas()),
            ..CudaOptions::new(addresses)
        };
        locks::watch();
        let executor = Cuda::new(&options).expect("a cuda executor");
        let abilities = executor.facts().abilities;
        Self { bench: serve(executor), recording, abilities }
    }

    /// Returns a device whose libcuda has these options, and a guest on its first channel.
    pub fn with_guest(options: &Value) -> (Self, Guest) {
        let gpu = Self::new(options);
        let guest = gpu.guest();
        (gpu, guest)
    }

    /// Runs a test with a driver whose streams wait for words of memory, and with one whose streams do not.
    pub fn with_either_hold(test: impl Fn(Self, Guest)) {
        for memory_operations in [true, false] {
            let (gpu, guest) = Self::with_guest(&json!({ "memory_operations": memory_operations }));
            test(gpu, guest);
        }
    }

    /// Checks the record, and that the guest received no error.
    pub fn check_all(&self, guest: &Guest) {
        assert_eq!(guest.late(), None);
        self.check();
    }

    /// Returns a guest on the first channel.
    pub fn guest(&self) -> Guest {
        self.bench.guest(0)
    }

    /// Returns the calls that were recorded so far.
    pub fn calls(&self) -> Vec<Value> {
        self.recording.lines().expect("a record")
    }

    /// Holds all work of the GPU from now on.
    pub fn hold(&self) {
        self.recording.hold().expect("a directory that can be written to");
    }

    /// Lets held work continue.
    pub fn release(&self) {
        self.recording.release().expect("a directory that can be written to");
    }

    /// Returns how often a function was called.
    pub fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|line| line["call"] == call).count()
    }

    /// Checks what holds for every record. No call is refused, and no copy names memory that is not pinned.
    /// The thread that reads the ring, which created the context, waits for nothing, except once when a new
    /// context's clock is compared with the host's, and at the session's end for the work that is left.
    pub fn check(&self) {
        self.check_known(&[]);
    }

    /// Checks the record as [`RecordedGpu::check`] does. Calls may be refused for the `known` reasons.
    pub fn check_known(&self, known: &[&str]) {
        let calls = self.calls();
        let bad = |line: &&Value| {
            let refused = line["refused"].as_str();
            refused.is_some_and(|rule| !known.contains(&rule))
                || line["notes"].to_string().contains("pageable")
        };
        assert_eq!(calls.iter().filter(bad).collect::<Vec<_>>(), Vec::<&Value>::new());
        let ring = calls.iter().find(|line| line["call"] == CONTEXT).map(|line| &line["thread"]);
        let waits = |line: &&Value| {
            Some(&line["thread"]) == ring
                && line["notes"].to_string().contains("waited")
                && line["call"] != AT_THE_END
        };
        let waiting: Vec<&Value> = calls.iter().filter(waits).collect();
        let clock =
            |line: &&Value| line["call"] == "cuEventSynchronize" && line["args"]["event"] == "event#1";
        assert!(waiting.len() <= 1 && waiting.iter().all(clock), "{waiting:?}");
    }

    /// Compares the record with a file of `sequences`.
    pub fn compare(&self, name: &str) {
        self.check();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sequences").join(name);
        let calls = self.calls();
        if std::env::var_os(WRITE).is_some() {
            let start = if self.count(CONTEXT) > 0 { CONTEXT } else { "cuInit" };
            fs::write(&path, sequence::written(start, &calls)).expect("a file that can be written");
            return;
        }
        let text = fs::read_to_string(&path).expect("a sequence");
        if let Err(difference) = sequence::compare(&text, &calls) {
            panic!("{name}: {difference}");
        }
    }
}
