//! What the library is told before its first call: a JSON file, named by the environment or lying beside the
//! library.
//!
//! A file beside the library reaches worker processes whose environment is empty, and lets tests of one
//! process each have a library of their own: a copy of the library in a directory of its own is loaded a
//! second time, with its own state.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The environment variable that names the file.
pub const VARIABLE: &str = "VGPU_RECORDING";
/// The file's name beside the library.
pub const FILE: &str = "recording.json";
/// The record's name in the directory of that file.
pub const RECORD: &str = "calls.jsonl";

/// The name of the file that holds all work.
pub const HOLD: &str = "hold";

/// Starts the name of a file that holds calls of one function, `hold-cuModuleLoadDataEx` for example: while
/// it is there they do nothing, and other calls go on, as with a driver that compiles.
pub const HOLD_CALL: &str = "hold-";
/// Starts the name of a file that says that such a call waits.
pub const HELD_CALL: &str = "held-";

/// One call that fails though it is right.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Name of the function, such as `cuMemCreate`.
    pub call: String,
    /// Which of its calls, from 1.
    pub nth: u64,
    /// `CUresult` that it answers.
    pub status: u32,
}

/// A fault of the device: the context is lost when this launch completes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Which launch of a kernel, from 1, in the order of completion.
    pub launch: u64,
    /// `CUresult` that every later call of the context answers.
    pub status: u32,
}

/// In which order independent work completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The oldest first.
    #[default]
    Oldest,
    /// The newest first, as far as the order of streams lets it.
    Newest,
}

/// The options.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Where calls are recorded; relative to the options' directory. Nowhere without options.
    pub record: Option<PathBuf>,
    /// `cuDriverGetVersion`.
    pub driver_version: i32,
    /// How many devices there are.
    pub devices: i32,
    /// Product name of each.
    pub name: String,
    /// UUID of the first, 32 hexadecimal digits; later ones differ in the last byte.
    pub uuid: String,
    /// Compute capability.
    pub compute_capability: (i32, i32),
    /// Device memory of each, bytes.
    pub memory_bytes: u64,
    /// Device memory that a context takes, bytes.
    pub context_bytes: u64,
    /// `CUdevice_attribute` by id, beside or in place of the usual ones.
    pub attributes: HashMap<i32, i32>,
    /// Whether the device has stream memory operations of 64 bits.
    pub memory_operations: bool,
    /// Whether `cuMemHostRegister` works.
    pub host_register: bool,
    /// Whether a device reaches registered memory by its host address. Otherwise the device's address is
    /// another.
    pub host_pointers: bool,
    /// Whether `cuMemAddressReserve` gives the address that is wished for.
    pub honour_hints: bool,
    /// Threads of a block that a function can have.
    pub function_threads: i32,
    /// How many times at least an event is not ready when it is asked for after a record, so that whoever
    /// assumes completion is found out.
    pub not_ready: u32,
    /// Microseconds between two completions.
    pub pace_us: u64,
    /// The order of independent work.
    pub order: Order,
    /// The file [`HOLD`] in the options' directory: while it is there, nothing completes.
    #[serde(skip)]
    pub hold: Option<PathBuf>,
    /// Calls that fail.
    pub failures: Vec<Failure>,
    /// A fault of the device.
    pub fault: Option<Fault>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            record: None,
            driver_version: 13_000,
            devices: 1,
            name: "Recording GPU".to_owned(),
            uuid: "7ec07d1a0000400080000000000000a0".to_owned(),
            compute_capability: (9, 0),
            memory_bytes: 8 << 30,
            context_bytes: 256 << 20,
            attributes: HashMap::new(),
            memory_operations: true,
            host_register: true,
            host_pointers: true,
            honour_hints: true,
            function_threads: 1024,
            not_ready: 1,
            pace_us: 20,
            order: Order::Oldest,
            hold: None,
            failures: Vec::new(),
            fault: None,
        }
    }
}

impl Options {
    /// Reads the options that the environment names, else those beside `library`. The usual ones where there
    /// are none; the reason where they cannot be read.
    pub fn find(library: Option<&Path>) -> Result<Self, String> {
        let named = std::env::var_os(VARIABLE).map(PathBuf::from);
        let beside = || library?.parent().map(|folder| folder.join(FILE)).filter(|file| file.exists());
        match named.or_else(beside) {
            Some(file) => Self::read(&file),
            None => Ok(Self::default()),
        }
    }

    fn read(file: &Path) -> Result<Self, String> {
        let text =
            std::fs::read_to_string(file).map_err(|error| format!("read {}: {error}", file.display()))?;
        let mut options: Self =
            serde_json::from_str(&text).map_err(|error| format!("understand {}: {error}", file.display()))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        options.hold = Some(folder.join(HOLD));
        options.record = Some(folder.join(options.record.unwrap_or_else(|| RECORD.into())));
        Ok(options)
    }

    /// Whether calls of a function are held. Says so in a file of its own.
    pub fn holds(&self, call: &str) -> bool {
        let Some(hold) = &self.hold else { return false };
        let held = hold.with_file_name(format!("{HOLD_CALL}{call}")).exists();
        if held {
            // A test that waits for the file fails without it.
            let _ = std::fs::write(hold.with_file_name(format!("{HELD_CALL}{call}")), []);
        }
        held
    }

    /// UUID of a device.
    pub fn uuid(&self, ordinal: i32) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let pair = self.uuid.get(2 * at..2 * at + 2).unwrap_or("00");
            *byte = u8::from_str_radix(pair, 16).unwrap_or(0);
        }
        bytes[15] = bytes[15].wrapping_add(ordinal as u8);
        bytes
    }
}
