//! The command `gpus`: prints the GPUs that the driver shows, with their memory, for programs that place VMs.
//! It asks the driver in its own process, and makes no context.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;
use vgpu_executor_cuda::GpuIdentity;
use vgpu_share::GpuUuid;

/// Options of the command `gpus`.
#[derive(Debug, clap::Args)]
pub struct GpusArguments {
    /// Library of the driver, by path or name [default: libcuda.so.1].
    #[arg(long, value_name = "LIBRARY")]
    libcuda: Option<PathBuf>,
}

/// Prints a JSON array with the UUID of each GPU and the bytes of its memory, in the driver's order.
pub fn print_gpus(arguments: &GpusArguments) -> Result<()> {
    let gpus = GpuIdentity::all(arguments.libcuda.as_deref())?;
    let gpus: Vec<_> = gpus
        .iter()
        .map(|gpu| json!({ "uuid": GpuUuid(gpu.uuid).to_string(), "memory": gpu.total_bytes }))
        .collect();
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&gpus)?).map_err(Into::into)
}
