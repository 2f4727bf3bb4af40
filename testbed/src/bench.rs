//! `vgpu-testbed bench`: measurements, reported as medians and ratios of a single run. None of them passes or
//! fails.

mod calls;
mod copies;
mod kernels;
mod launcher;
mod load;
mod measure;
mod transport;
mod wait;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};
use vgpu_serve::Engine;
use vgpu_testbed::backends::Backend;

use crate::place::engine_options;
use calls::Amount;
pub use measure::median;

/// Options of `bench`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    /// Measure only this; by default measures the launcher, the time to a device list, and the cost of calls,
    /// copies and tokens.
    #[command(subcommand)]
    what: Option<What>,
    /// Number of starts of each kind, which alternate.
    #[arg(long, default_value_t = 100)]
    runs: usize,
    /// Executor of the device: `null`, which does nothing and shows the cost of the transport, or `soft`.
    #[arg(long, default_value = "null")]
    executor: String,
    /// Engine that runs kernels on a soft device; by default `jit` if the processor has AVX2, else
    /// `interpreter`.
    #[arg(long, value_enum)]
    engine: Option<Engine>,
    /// Number of launches in a round.
    #[arg(long, default_value_t = 1_000_000)]
    launches: usize,
    /// MiB copied in a round.
    #[arg(long, default_value_t = 256)]
    mib: usize,
    /// Number of rounds of launches and copies.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The model whose tokens are counted: a GGUF file, or `smollm2` or `gemma3`, which are fetched.
    #[arg(long, default_value = "smollm2")]
    model: String,
    /// Write a chart of a token's time on a soft device to this SVG file.
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Print the figures as JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum What {
    /// Measure where a decoded token spends its time on a soft device, kernel by kernel, and what the
    /// interpreter ran.
    Kernels(kernels::KernelsArgs),
    /// Measure copies of a model's tensors to the device against memcpy on one core.
    Copies(copies::CopiesArgs),
    /// Measure how long code takes to its first launch.
    Load(load::LoadArgs),
    /// Measure the transport: round trip, submission and bandwidth, by version and by cost of a register
    /// access.
    Transport(transport::TransportArgs),
    /// Measure a launch with bytes back: its time, and the processor time of each process, beside busy ones.
    Wait(wait::WaitArgs),
}

/// Runs the measurements and prints their figures.
pub fn run_bench(arguments: &BenchArgs) -> Result<ExitCode> {
    match &arguments.what {
        Some(What::Kernels(arguments)) => return kernels::run_kernels(arguments),
        Some(What::Copies(arguments)) => return copies::run_copies(arguments),
        Some(What::Load(arguments)) => return load::run_load(arguments),
        Some(What::Transport(arguments)) => return transport::run_transport(arguments),
        Some(What::Wait(arguments)) => return wait::run_wait(arguments),
        None => {}
    }
    let amount = Amount {
        executor: &arguments.executor,
        launches: arguments.launches,
        mib: arguments.mib,
        rounds: arguments.rounds,
        model: &arguments.model,
    };
    let engine = engine_options(arguments.engine);
    let mut figures = calls::figures(amount, &engine)?;
    if arguments.executor == "soft" {
        let wanted = kernels::KernelsArgs::new(&arguments.model, arguments.engine, arguments.chart.clone());
        figures["token"] = serde_json::to_value(kernels::figures(&wanted)?)?;
    }
    let launcher = launcher::overhead(arguments.runs)?;
    figures["executor"] = json!(arguments.executor);
    figures["worker"] = calls::figures(amount, &[&engine[..], &["--worker"]].concat())?;
    figures["launcher_ms"] = launcher["overhead_ms"].clone();
    figures["launcher"] = launcher;
    figures["discovery"] = json!({
        "cuda12": launcher::discovery(arguments.runs, Backend::Cuda12)?,
        "cuda13": launcher::discovery(arguments.runs, Backend::Cuda13)?,
    });
    if arguments.json {
        println!("{figures:#}");
    } else {
        print(&figures);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the figures as text.
fn print(figures: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    for (name, of) in [("without a worker", figures), ("with a worker", &figures["worker"])] {
        println!(
            "{name}: {:.2} M launches/s; synchronize {:.2} us (99 %: {:.2}); memcpy {:.2} GB/s, to the device {:.2}, from it {:.2}",
            number(&of["launches_per_second"]) / 1e6,
            number(&of["sync_rtt_us"]["p50"]),
            number(&of["sync_rtt_us"]["p99"]),
            number(&of["memcpy_gbps"]),
            number(&of["h2d_gbps"]),
            number(&of["d2h_gbps"]),
        );
        for (name, graphs) in [("graphs", "with graphs"), ("no_graphs", "without graphs")] {
            let of = &of["per_token"][name];
            println!("    a token {graphs}: {} messages, {} waits", of["messages"], of["waits"]);
        }
    }
    let launcher = &figures["launcher"];
    println!(
        "launcher: /bin/true bare {:.2} ms, with the libraries preloaded {:.2} ms, launched {:.2} ms, overhead {:.2} ms",
        number(&launcher["bare_ms"]),
        number(&launcher["preloaded_ms"]),
        number(&launcher["launched_ms"]),
        number(&launcher["overhead_ms"])
    );
    for name in ["cuda12", "cuda13"] {
        let of = &figures["discovery"][name];
        println!(
            "discovery, {name}: libraries that do nothing {:.3} ms, shims {:.3} ms, ratio {:.2}",
            number(&of["nothing_ms"]),
            number(&of["shims_ms"]),
            number(&of["ratio"])
        );
    }
}
