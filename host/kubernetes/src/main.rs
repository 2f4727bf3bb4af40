//! `vgpu-device-plugin`: gives the pods of a Kubernetes node devices of `vgpu-device`.

use std::process::ExitCode;

use clap::Parser;
use tracing::Level;
use vgpu_kubernetes::Arguments;

/// Gives the pods of this Kubernetes node devices of vgpu-device, for VMs that they run.
#[derive(Debug, Parser)]
#[command(name = "vgpu-device-plugin", version)]
struct CommandLine {
    #[command(flatten)]
    arguments: Arguments,
    /// Least severe level that is logged on stderr: error, warn, info, debug.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: Level,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let CommandLine { arguments, log } = CommandLine::parse();
    // A container's log has a time for each line, and no terminal.
    tracing_subscriber::fmt()
        .with_max_level(log)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .init();
    match vgpu_kubernetes::run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vgpu-device-plugin: {error:#}");
            ExitCode::FAILURE
        }
    }
}
