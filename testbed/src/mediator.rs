//! `vgpu-testbed mediator`: carries out the calls of devices of version 1 that live in other processes.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use vgpu_device::v1::{Mediator, Rules, Server};

use crate::device::host;

/// Options.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where devices connect, such as /var/xen/qemu/root-1/tmp/vgpu-mediator.sock; can be given several times.
    #[arg(long, required = true, value_name = "PATH")]
    socket: Vec<PathBuf>,
    #[command(flatten)]
    host: host::HostOptions,
    /// The most calls a second of one machine; more are turned away with BUSY.
    #[arg(long, value_name = "CALLS")]
    rate: Option<u32>,
    /// The number of a machine whose calls are turned away for good; can be given several times.
    #[arg(long, value_name = "VM")]
    quarantine: Vec<u32>,
    /// What is logged on stderr: error, warn, info (what kernels print, too), debug.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log: tracing::Level,
    /// Stop when stdin closes, as well as on SIGTERM or SIGINT. A line `status` is answered on stdout by what owners have, in one
    /// line of JSON.
    #[arg(long)]
    until_stdin_closes: bool,
}

/// Serves, says `ready` on stdout, and waits until it is told to stop.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(arguments.log).init();
    let mut gpu = arguments.host.gpu()?;
    if let Some(uuid) = arguments.host.uuid() {
        gpu.uuid = uuid;
    }
    let rules = Rules::new(arguments.rate, arguments.quarantine.iter().copied());
    let mediator = Mediator::new(arguments.host.executor(&gpu)?, rules)?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("watch for signals")?;
    let servers: Vec<Server> =
        arguments.socket.iter().map(|path| Server::start(path, &mediator)).collect::<Result<_, _>>()?;
    let (exit, asked) = mpsc::channel();
    let by_signal = exit.clone();
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            // Nobody listens any more when it is ending anyway.
            let _ = by_signal.send(());
        }
    });
    if arguments.until_stdin_closes {
        let mediator = Arc::clone(&mediator);
        thread::spawn(move || {
            // An error ends the wait as the end does; any other line is nothing.
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if line == "status" {
                    println!("{}", status(&mediator));
                }
            }
            let _ = exit.send(());
        });
    }
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush()?;
    // The thread that waits for signals holds the other end for good.
    let _ = asked.recv();
    drop(servers);
    Ok(ExitCode::SUCCESS)
}

/// What owners have, by the keys of a device's status.
fn status(mediator: &Mediator) -> Value {
    let (total, allocated) = mediator.memory();
    json!({
        "executor": mediator.executor(),
        "total": total,
        "allocated": allocated,
        "charged_bytes": mediator.charged_bytes(),
        "kept_image_bytes": mediator.kept_image_bytes(),
        "sessions": mediator.owners(),
    })
}
