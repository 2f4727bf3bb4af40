//! `vgpu-testbed bench copies`: how fast ordinary memory gets to the device and back, in pieces of a real
//! model's tensor sizes, against one core's memcpy of the same bytes, and against memcpy to and from memory
//! that guest and host share. The rounds alternate in one process, and the medians are compared. A slow run
//! in which memcpy with shared memory is as slow shows the machine's memory, not this software.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::json;
use vgpu_testbed::bed::Bed;

use super::calls::copies;
use super::measure::facts;

/// Options of `bench copies`.
#[derive(clap::Args)]
pub struct CopiesArgs {
    /// MiB copied in a round.
    #[arg(long, default_value_t = 1024)]
    mib: usize,
    /// Number of rounds.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Name of the device's executor.
    #[arg(long, default_value = "soft")]
    executor: String,
    /// KiB of each copy; by default the sizes of a model's tensors.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    kib: Option<u32>,
    /// Run the session in a worker process.
    #[arg(long)]
    worker: bool,
    /// Print the rates as JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Measures copies and prints their rates.
pub fn run_copies(arguments: &CopiesArgs) -> Result<ExitCode> {
    let options: &[&str] = if arguments.worker { &["--worker"] } else { &[] };
    let bed = Bed::start_with(&arguments.executor, &[facts("6.1")], options)?;
    let answer = copies(&bed, &arguments.executor, arguments.mib, arguments.rounds, arguments.kib)?;
    let rate = |name: &str| answer[name].as_f64().with_context(|| format!("no {name}"));
    let (memcpy, up, down) = (rate("memcpy_gbps")?, rate("h2d_gbps")?, rate("d2h_gbps")?);
    let (shared_in, shared_out) = (rate("memcpy_to_shared_gbps")?, rate("memcpy_from_shared_gbps")?);
    let figures = json!({
        "copies": answer["copies"],
        "worker": arguments.worker,
        "memcpy_gb_s": memcpy,
        "memcpy_to_shared_gb_s": shared_in,
        "memcpy_from_shared_gb_s": shared_out,
        "to_device_gb_s": up,
        "to_device_ratio": up / memcpy,
        "to_device_ratio_to_shared": up / shared_in,
        "from_device_gb_s": down,
        "from_device_ratio": down / memcpy,
        "from_device_ratio_to_shared": down / shared_out,
    });
    if arguments.json {
        println!("{figures:#}");
    } else {
        println!(
            "{} copies, {} MiB: memcpy {memcpy:.2} GB/s, to shared memory {shared_in:.2}, from it {shared_out:.2}; \
             to the device {up:.2} GB/s, ratio {:.2} (shared {:.2}); from it {down:.2} GB/s, ratio {:.2} (shared {:.2})",
            answer["copies"],
            arguments.mib,
            up / memcpy,
            up / shared_in,
            down / memcpy,
            down / shared_out
        );
    }
    Ok(ExitCode::SUCCESS)
}
