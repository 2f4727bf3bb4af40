//! The library's options: a JSON file beside the library, read before the first call.
//!
//! Such a file reaches worker processes, whose environment is empty, and lets each test of a process have a
//! library of its own: a copy in another directory is loaded a second time, with a state of its own.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Name of the options file, which lies beside the library.
pub const FILE: &str = "recording.json";
/// Name of the record in the same directory.
pub const RECORD: &str = "calls.jsonl";

/// Name of the file that holds all work while it exists.
pub const HOLD: &str = "hold";

/// Prefix of the name of a file that holds calls of one function, for example `hold-cuModuleLoadDataEx`.
/// While the file exists, such calls block and others continue, as with a driver that compiles.
pub const HOLD_CALL: &str = "hold-";
/// Prefix of the name of a file that shows that such a call blocks.
pub const HELD_CALL: &str = "held-";

/// A failure that the options inject into a correct call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectedFailure {
    /// Name of the function, such as `cuMemCreate`.
    pub call: String,
    /// Number of the call among those of the function, from 1.
    pub nth: u64,
    /// `CUresult` that the call returns.
    pub status: u32,
}

/// A fault of the device. The context is lost when a launch completes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectedFault {
    /// Number of the launch in the order of completion, from 1.
    pub launch: u64,
    /// `CUresult` that all later calls in the context return.
    pub status: u32,
}

/// Order in which pieces of work complete that do not depend on each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompletionOrder {
    /// The oldest work completes first.
    #[default]
    Oldest,
    /// The newest work completes first, as far as the order of streams permits.
    Newest,
}

/// An answer to reservations of addresses.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReservationAnswer {
    /// Least size in bytes of a reservation that gets the answer.
    pub least_bytes: u64,
    /// Wished address of a reservation that gets the answer, or `None` for any.
    pub wish: Option<u64>,
    /// `CUresult` of the reservation.
    pub status: u32,
    /// Address from which on free addresses are looked for, in place of the wished one.
    pub from: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordingOptions {
    /// File of the record, relative to the options' directory. `None` if there are no options.
    pub record: Option<PathBuf>,
    /// Version that `cuDriverGetVersion` returns.
    pub driver_version: i32,
    /// Whether the device has stream memory operations of 64 bits.
    pub memory_operations: bool,
    /// Whether `cuMemHostRegister` works.
    pub host_register: bool,
    /// Whether the device uses the host addresses of registered memory. Otherwise it has other addresses for
    /// it.
    pub host_pointers: bool,
    /// Largest number of threads in a block of any function.
    pub function_threads: i32,
    /// Local memory of each thread of any function in bytes.
    pub local_bytes: i32,
    pub order: CompletionOrder,
    /// Path of the file [`HOLD`]. While it exists, no work completes.
    #[serde(skip)]
    pub hold: Option<PathBuf>,
    pub failures: Vec<InjectedFailure>,
    pub fault: Option<InjectedFault>,
    /// Answers to reservations, of which the first that matches is given. Without one, free addresses are
    /// looked for from the wished address on.
    pub reservations: Vec<ReservationAnswer>,
    /// Functions that return only when all work is complete. Meanwhile calls of other threads that submit
    /// work do not return either ([`crate::call`]).
    pub blocking: Vec<String>,
    /// Number of pieces of work that a channel takes, or 0 for any number. Streams share 8 channels. A call
    /// that submits more returns when there is room, and the calls of other threads wait as with `blocking`.
    pub queue: usize,
    /// Newest version of PTX that is compiled: 10 × major + minor.
    pub ptx_version: u32,
    /// Milliseconds that the compilation of PTX takes, unless CUDA's cache is on and has the code.
    pub compile_ms: u64,
    /// Milliseconds that the end of a context takes.
    pub teardown_ms: u64,
    /// Whether `cuInit` makes the system calls that NVIDIA's makes, and fails where they fail.
    pub system_calls: bool,
}

impl Default for RecordingOptions {
    fn default() -> Self {
        Self {
            record: None,
            driver_version: 13_000,
            memory_operations: true,
            host_register: true,
            host_pointers: true,
            function_threads: 1024,
            local_bytes: 0,
            order: CompletionOrder::Oldest,
            hold: None,
            failures: Vec::new(),
            fault: None,
            reservations: Vec::new(),
            blocking: Vec::new(),
            queue: 0,
            ptx_version: 90,
            compile_ms: 0,
            teardown_ms: 0,
            system_calls: false,
        }
    }
}

impl RecordingOptions {
    /// Reads the options beside the library, or returns the defaults if there are none. The error is a
    /// message.
    pub fn find(library: Option<&Path>) -> Result<Self, String> {
        let Some(folder) = library.and_then(Path::parent) else { return Ok(Self::default()) };
        let file = folder.join(FILE);
        if !file.exists() {
            return Ok(Self::default());
        }
        let text =
            std::fs::read_to_string(&file).map_err(|error| format!("read {}: {error}", file.display()))?;
        let mut options: Self =
            serde_json::from_str(&text).map_err(|error| format!("understand {}: {error}", file.display()))?;
        options.hold = Some(folder.join(HOLD));
        options.record = Some(folder.join(options.record.unwrap_or_else(|| RECORD.into())));
        Ok(options)
    }

    /// Returns whether calls of a function are held. If so, creates the file that shows it.
    pub fn holds(&self, call: &str) -> bool {
        let Some(hold) = &self.hold else { return false };
        let held = hold.with_file_name(format!("{HOLD_CALL}{call}")).exists();
        if held {
            self.show_held(call);
        }
        held
    }

    /// Creates the file that shows that a call of a function does not return.
    pub fn show_held(&self, call: &str) {
        if let Some(hold) = &self.hold {
            // A test that waits for the file fails without it.
            let _ = std::fs::write(hold.with_file_name(format!("{HELD_CALL}{call}")), []);
        }
    }
}
