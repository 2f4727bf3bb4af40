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
    pub order: CompletionOrder,
    /// Path of the file [`HOLD`]. While it exists, no work completes.
    #[serde(skip)]
    pub hold: Option<PathBuf>,
    pub failures: Vec<InjectedFailure>,
    pub fault: Option<InjectedFault>,
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
            order: CompletionOrder::Oldest,
            hold: None,
            failures: Vec::new(),
            fault: None,
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
            // A test that waits for the file fails without it.
            let _ = std::fs::write(hold.with_file_name(format!("{HELD_CALL}{call}")), []);
        }
        held
    }
}
