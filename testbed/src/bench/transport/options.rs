//! Options of the measurement, and what follows from them.

use clap::ValueEnum;

/// Bus on which the transport is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bus {
    /// The simulated bus, without a virtual machine.
    Sim,
    /// The PCI bus of booted guests.
    Vm,
}

/// Options of `bench transport`.
#[derive(clap::Args)]
pub struct TransportArgs {
    /// Number of calls of each kind.
    #[arg(long, default_value_t = 2000)]
    pub calls: usize,
    /// MiB to copy.
    #[arg(long, default_value_t = 64)]
    pub mib: usize,
    /// Name of the device's executor.
    #[arg(long, default_value = "null")]
    pub executor: String,
    /// Also measure version 2 on the simulated bus with a worker process between device and executor.
    #[arg(long)]
    pub worker: bool,
    /// Measure only this bus; by default both.
    #[arg(long, value_enum)]
    pub only: Option<Bus>,
    /// The model whose tokens are counted: a GGUF file, or `smollm2` or `gemma3`, which are fetched.
    #[arg(long, default_value = "smollm2")]
    pub model: String,
    /// Number of tokens that are counted.
    #[arg(long, default_value_t = 8)]
    pub tokens: usize,
    /// Print the rows as JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Returns the arguments of the stand-in.
pub fn stand_in(calls: usize, kib: usize) -> Vec<String> {
    ["transport", "--calls", &calls.to_string(), "--kib", &kib.to_string()].map(str::to_owned).to_vec()
}
