//! `vgpu-standin`: one program that plays the programs which `vgpu-run` starts. It knows nothing of
//! VGPU-STUB: it uses CUDA and GGML by their public names through the loader, as anybody does. The one
//! exception is the hostile program that sends messages of its own (`siege/messages.rs`).

mod calls;
mod copies;
mod driver;
mod facts;
mod ggml;
mod maps;
mod mix;
mod parent;
mod percentiles;
mod rates;
mod sandbox;
mod siege;
mod soak;
mod states;
mod transport;
mod vmm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
struct StandinArguments {
    #[command(subcommand)]
    play: Play,
}

#[derive(Subcommand)]
enum Play {
    /// Load a libggml-cuda.so as llama.cpp does and print what it found, as one line of JSON.
    Ggml {
        /// The backend; its folder, or `--base`, holds libggml-base.so and libggml.
        backend: PathBuf,
        /// The folder of libggml-base.so and libggml, when not the backend's.
        #[arg(long)]
        base: Option<PathBuf>,
    },
    /// Ask the driver about itself and its devices, get a context and memory, and print that as one line of
    /// JSON.
    Facts,
    /// Start a program as a child that does close_range(3, ~0) before exec, and pass its exit code on.
    CloseAll {
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Become a program under a filter that refuses single system calls, or ends the process at them.
    Sandbox {
        /// Refuse memfd_create.
        #[arg(long)]
        memfd: bool,
        /// Refuse to map exactly so many bytes for execution.
        #[arg(long)]
        exec_bytes: Option<u32>,
        /// End the process at the system call of this number.
        #[arg(long, value_name = "NUMBER")]
        kill: Option<u32>,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Launch kernels and synchronize through CUDA's runtime API, and print what that took.
    Calls {
        /// How many launches a round.
        #[arg(long, default_value_t = 1_000_000)]
        launches: usize,
        /// How many rounds of launches.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// How many synchronizes.
        #[arg(long, default_value_t = 20_000)]
        synchronizes: usize,
    },
    /// Copy ordinary memory to the device as GGML loads a model, and print the times beside memcpy's.
    Copies {
        /// How much to copy, in MiB.
        #[arg(long, default_value_t = 1024)]
        mib: usize,
        /// How often to copy it.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Make single calls and copies through CUDA's driver API, and print what they took.
    Transport {
        /// How many calls of each kind.
        #[arg(long, default_value_t = 2000)]
        calls: usize,
        /// How much is copied, KiB.
        #[arg(long, default_value_t = 64 << 10)]
        kib: usize,
    },
    /// Launch, wait and copy through CUDA's driver API, and print how fast that was as one line of JSON.
    Rates {
        /// How many launches.
        #[arg(long, default_value_t = 100_000)]
        launches: usize,
        /// How much each copy copies, MiB.
        #[arg(long, default_value_t = 256)]
        mib: usize,
    },
    /// Do everything at random, and compare all that comes back; print what was done as one line of JSON.
    Soak {
        /// What is done, and with which bytes.
        #[arg(long)]
        seed: u64,
        /// How many operations.
        #[arg(long)]
        operations: Option<u64>,
        /// For how long.
        #[arg(long, required_unless_present = "operations")]
        seconds: Option<u64>,
    },
    /// Take part in a siege: be hostile, be good, or run both side by side.
    Siege {
        /// The part that this program plays.
        #[command(subcommand)]
        part: siege::SiegeCommand,
    },
    /// Get into a state, say so on stdout, and stay there.
    State {
        /// The state to get into.
        state: states::ProgramState,
    },
    /// Be a VMM that breaks the vfio-user protocol, and wait until its connection ends.
    Vmm {
        /// The vfio-user socket.
        socket: PathBuf,
    },
}

fn main() -> ExitCode {
    let outcome = match StandinArguments::parse().play {
        Play::Ggml { backend, base } => ggml::print_devices(&backend, base.as_deref()),
        Play::Facts => facts::print(),
        Play::CloseAll { command } => parent::close_all(&command),
        Play::Sandbox { memfd, exec_bytes, kill, command } => {
            sandbox::enter(memfd, exec_bytes, kill, &command)
        }
        Play::Calls { launches, rounds, synchronizes } => calls::measure(launches, rounds, synchronizes),
        Play::Copies { mib, rounds } => copies::measure(mib, rounds),
        Play::Transport { calls, kib } => transport::measure(calls, kib),
        Play::Rates { launches, mib } => rates::measure(launches, mib),
        Play::Soak { seed, operations, seconds } => soak::soak_device(seed, operations, seconds),
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
