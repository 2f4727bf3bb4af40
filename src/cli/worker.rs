//! Tasks of the hidden command `__worker`, which `check` starts as a separate process.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;

/// A task of `__worker`. Each task reports its steps as JSON objects, one a line: see `check::messages`.
#[derive(Clone, Debug, Subcommand)]
pub enum WorkerTask {
    /// Opens files for reading and writing and reports the results
    Access {
        /// Paths of the files to open
        files: Vec<PathBuf>,
    },
    /// Makes system calls that have no effect, and reports their answers
    Calls {
        /// Index of the first call
        from: usize,
    },
    /// Opens a device, exchanges messages with its host, and measures its speed
    Device {
        /// PCI address of the function
        address: String,
    },
    /// Delivers the libraries to a program as vgpu-run does, and reports which of its processes received them
    Follow {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Delivers these libraries and the probe, and keeps them available until standard input ends
    Hold {
        /// Use only the method given by `--via`, without falling back to another
        #[arg(long)]
        fixed: bool,
        /// SONAMEs of the libraries to deliver
        objects: Vec<String>,
    },
    /// Lists the processes that have sessions of a device, without opening one
    Sessions {
        /// PCI address of the function
        address: String,
    },
    /// Reports for each file whether it can be read and executed
    Rights {
        /// Paths of the files to examine
        files: Vec<PathBuf>,
    },
    /// Starts a program as another user
    Run {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Starts a server with a home directory of its own, until it has reported its compute devices or until
    /// standard input ends
    Serve {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Walks the chain for a `check` with these arguments, whose process is connected to stdin
    Walk {
        /// Whether the report may contain characters outside ASCII
        #[arg(long)]
        unicode: bool,
        /// Whether the report is printed in colour
        #[arg(long)]
        colour: bool,
        /// Maximum width of the report in columns
        #[arg(long)]
        width: Option<usize>,
        /// Arguments of the vgpu-run that started this process
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Delivers the libraries and starts the program
    Handover {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
}
