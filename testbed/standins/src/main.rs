//! `vgpu-standin`: one program that stands in for the programs that `vgpu-run` starts. It contains nothing
//! specific to VGPU-STUB: it uses CUDA and GGML by their public names through the loader, as any program
//! does. The one exception is the hostile program that sends messages of its own (`siege/messages.rs`).

mod access;
mod calls;
mod copies;
mod driver;
mod facts;
mod ggml;
mod load;
mod machine;
mod maps;
mod mix;
mod parent;
mod percentiles;
mod rates;
mod sandbox;
mod share;
mod siege;
mod soak;
mod states;
mod transport;
mod vmm;
mod wait;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct StandinArguments {
    #[command(subcommand)]
    play: Play,
}

#[derive(Subcommand)]
enum Play {
    /// Load a libggml-cuda.so as llama.cpp does and print its devices as one line of JSON.
    Ggml {
        /// Path of the backend; its directory, or `--base`, holds libggml-base.so and libggml.
        backend: PathBuf,
        /// Directory of libggml-base.so and libggml, if it is not the backend's.
        #[arg(long)]
        base: Option<PathBuf>,
    },
    /// Query the driver and its devices, create a context, allocate memory, and print the results as one line
    /// of JSON.
    Facts,
    /// Start a program as a child that calls close_range(3, ~0) before exec, and return its exit code.
    CloseAll {
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Execute a program under a filter that refuses certain system calls, or ends the process at them.
    Sandbox {
        /// Refuse the system call memfd_create.
        #[arg(long)]
        memfd: bool,
        /// Refuse to map exactly this number of bytes for execution.
        #[arg(long)]
        exec_bytes: Option<u32>,
        /// End the process at the system call with this number.
        #[arg(long, value_name = "NUMBER")]
        kill: Option<u32>,
        /// Refuse the system call with this number. Can be given several times.
        #[arg(long, value_name = "NUMBER")]
        refuse: Vec<u32>,
        /// Error number of refused calls.
        #[arg(long, value_name = "NUMBER", default_value_t = libc::EPERM as u16)]
        errno: u16,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Launch kernels and synchronize through CUDA's runtime API, and print the times.
    Calls {
        /// Number of launches in a round.
        #[arg(long, default_value_t = 1_000_000)]
        launches: usize,
        /// Number of rounds of launches.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Number of synchronizes.
        #[arg(long, default_value_t = 20_000)]
        synchronizes: usize,
    },
    /// Copy pageable memory to the device as GGML loads a model, and print the times and those of memcpy.
    Copies {
        /// MiB copied in a round.
        #[arg(long, default_value_t = 1024)]
        mib: usize,
        /// Number of rounds.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// KiB of each copy; by default the sizes of a model's tensors.
        #[arg(long)]
        kib: Option<usize>,
    },
    /// Load modules of PTX and launch a kernel of each, and print the times.
    Load {
        /// KiB of a module.
        #[arg(long, default_value_t = 2048)]
        kib: usize,
        /// Number of modules.
        #[arg(long, default_value_t = 50)]
        rounds: usize,
    },
    /// Make single calls and copies through CUDA's driver API, and print the times.
    Transport {
        /// Number of calls of each kind.
        #[arg(long, default_value_t = 2000)]
        calls: usize,
        /// Size of a copy in KiB.
        #[arg(long, default_value_t = 64 << 10)]
        kib: usize,
    },
    /// Launch, wait and copy through CUDA's driver API, and print the rates as one line of JSON.
    Rates {
        /// Number of launches.
        #[arg(long, default_value_t = 100_000)]
        launches: usize,
        /// Size of each copy in MiB.
        #[arg(long, default_value_t = 256)]
        mib: usize,
    },
    /// Launch and wait for bytes after it, over and over, and print the times.
    Wait {
        /// Duration in seconds.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Launches take time, and a copy of 16 bytes tells when they started and ended.
        #[arg(long)]
        timed: bool,
        /// Number of threads of this process that first hand on words in a ring, to compare the waits with.
        #[arg(long, value_name = "THREADS")]
        ring: Option<usize>,
        /// After the figures, stay until stdin closes.
        #[arg(long)]
        stay: bool,
    },
    /// Read a word of a mapped file, such as a register of a PCI function, until stdin closes, and print the
    /// times of the longest accesses.
    Access {
        /// The file.
        file: PathBuf,
        /// Offset of the word in the file's first page.
        #[arg(long, default_value_t = 0)]
        offset: usize,
        /// Number of times to print.
        #[arg(long, default_value_t = 100)]
        longest: usize,
    },
    /// Keep a processor busy until stdin closes.
    Busy,
    /// Perform random operations and compare all data; print the counts as one line of JSON.
    Soak {
        /// Seed of the operations and their data.
        #[arg(long)]
        seed: u64,
        /// Number of operations.
        #[arg(long)]
        operations: Option<u64>,
        /// Duration in seconds.
        #[arg(long, required_unless_present = "operations")]
        seconds: Option<u64>,
    },
    /// Use a GPU that others use too. Prints `ready`, waits for a line on stdin, and then works.
    Share {
        /// What to do with the GPU.
        #[arg(value_enum)]
        load: share::Load,
        /// Duration in seconds.
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Steps of each kernel.
        #[arg(long, default_value_t = 5000)]
        steps: u32,
        /// Kernels of a token.
        #[arg(long, default_value_t = 40)]
        kernels: u32,
        /// Blocks of the kernel that never ends.
        #[arg(long, default_value_t = 1)]
        endless_blocks: u32,
        /// Milliseconds between two tokens.
        #[arg(long, default_value_t = 20)]
        pause_ms: u64,
    },
    /// Run a program of a siege: a hostile one, a good one, or a round of both side by side.
    Siege {
        /// Role of this program.
        #[command(subcommand)]
        part: siege::SiegeCommand,
    },
    /// Enter a state, print that on stdout, and stay there.
    State {
        /// The state to get into.
        state: states::ProgramState,
    },
    /// Simulate a VMM that violates the vfio-user protocol, and wait until its connection ends.
    Vmm {
        /// Path of the vfio-user socket.
        socket: PathBuf,
    },
}

fn main() -> ExitCode {
    let outcome = match StandinArguments::parse().play {
        Play::Ggml { backend, base } => ggml::print_devices(&backend, base.as_deref()),
        Play::Facts => facts::print(),
        Play::CloseAll { command } => parent::close_all(&command),
        Play::Sandbox { memfd, exec_bytes, kill, refuse, errno, command } => {
            let refused = sandbox::Refused { calls: refuse, errno };
            sandbox::enter(memfd, exec_bytes, kill, &refused, &command)
        }
        Play::Calls { launches, rounds, synchronizes } => calls::measure(launches, rounds, synchronizes),
        Play::Copies { mib, rounds, kib } => copies::measure(mib, rounds, kib),
        Play::Load { kib, rounds } => load::measure(kib, rounds),
        Play::Transport { calls, kib } => transport::measure(calls, kib),
        Play::Rates { launches, mib } => rates::measure(launches, mib),
        Play::Wait { seconds, timed, ring, stay } => wait::measure(seconds, timed, ring, stay),
        Play::Access { file, offset, longest } => access::measure(&file, offset, longest),
        Play::Busy => Ok(wait::keep_busy()),
        Play::Soak { seed, operations, seconds } => soak::soak_device(seed, operations, seconds),
        Play::Share { load, seconds, steps, kernels, endless_blocks, pause_ms } => {
            share::play(&share::Settings {
                load,
                time: Duration::from_secs_f64(seconds),
                steps,
                kernels,
                endless_blocks,
                pause: Duration::from_millis(pause_ms),
            })
        }
        Play::Siege { part } => siege::play(&part),
        Play::State { state } => states::enter(state),
        Play::Vmm { socket } => vmm::break_protocol(&socket),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("vgpu-standin: {error:#}");
            ExitCode::FAILURE
        }
    }
}
