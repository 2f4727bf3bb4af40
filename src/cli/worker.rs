//! The tasks of `__worker`, which `check` starts for itself.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;

/// What `__worker` does. Each task reports steps, one JSON object a line: see `check::messages`.
#[derive(Clone, Debug, Subcommand)]
pub enum WorkerTask {
    /// Opens files for reading and writing
    Access {
        /// The files
        files: Vec<PathBuf>,
    },
    /// Opens a device, speaks with its host, and measures
    Device {
        /// The address of the function
        address: String,
    },
    /// Hands the libraries over to a program, as vgpu-run does, and says of each program that comes of it
    /// what it got
    Follow {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Puts these libraries and the probe in place, and keeps them there until its input ends
    Hold {
        /// No other way than `--via` is tried
        #[arg(long)]
        fixed: bool,
        /// Their SONAMEs
        objects: Vec<String>,
    },
    /// Tells which processes have sessions of a device, without opening one
    Sessions {
        /// The address of the function
        address: String,
    },
    /// Says of each file whether it can be read and executed
    Rights {
        /// The files
        files: Vec<PathBuf>,
    },
    /// Starts a program, as another user
    Run {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Starts a server with a home of its own until it has said what it computes on, or its input ends
    Serve {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
    /// Walks the chain, for the check with these arguments, whose process is behind stdin
    Walk {
        /// The report's letters are not only ASCII's
        #[arg(long)]
        unicode: bool,
        /// It is in colour
        #[arg(long)]
        colour: bool,
        /// Columns that it may have
        #[arg(long)]
        width: Option<usize>,
        /// The arguments of vgpu-run
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Hands the libraries over and starts the program
    Handover {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
}
