//! The command `mediator`: carries out the calls of version 1 devices that live in other processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use vgpu_device_v1::{Mediator, MediatorRules, MediatorSettings, Server};

use crate::executor::ExecutorOptions;
use crate::knobs::Knobs;
use crate::lifetime::{Lifetime, Served, Status, log, ready};
use crate::values::{Group, Level, Period, WARN};

/// Default time for which a machine without a connection keeps its owners.
pub(crate) const GRACE: Period = Period(Duration::from_mins(1));

/// Options of the command `mediator`.
#[derive(clap::Args)]
pub struct MediatorArguments {
    /// Socket at which devices connect, such as /var/xen/qemu/root-1/tmp/vgpu-mediator.sock; can be given
    /// several times.
    #[arg(long, required = true, value_name = "PATH")]
    pub(crate) socket: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) host: ExecutorOptions,
    /// Maximum number of calls per second of one machine; further calls are refused with BUSY.
    #[arg(long, value_name = "CALLS")]
    pub(crate) rate: Option<u32>,
    /// Number of a machine whose calls are all refused; can be given several times.
    #[arg(long, value_name = "VM")]
    pub(crate) quarantine: Vec<u32>,
    /// Group, by name or number, whose users may connect, too; without it only this user may. Hypervisors
    /// often run as users of their own.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<Group>,
    /// Time for which a machine whose last connection has ended keeps its owners, such as 30s, 5m.
    #[arg(long, value_name = "TIME", default_value_t = GRACE)]
    pub(crate) grace: Period,
    /// Least severe level that is logged on stderr: error, warn, info (which includes the output of kernels),
    /// debug.
    #[arg(long, value_name = "LEVEL", default_value_t = WARN)]
    pub(crate) log: Level,
    /// Stop when stdin closes, as well as on SIGTERM or SIGINT. A line `status` is answered on stdout by the
    /// state of the owners, in one line of JSON.
    #[arg(long)]
    pub(crate) until_stdin_closes: bool,
}

/// Serves until the process is told to stop. Prints `ready` when devices can connect.
pub fn serve_mediator(arguments: &MediatorArguments, knobs: &Knobs) -> Result<()> {
    log(arguments.log);
    serve(arguments, knobs, |_| ready())
}

/// Serves until the process is told to stop. Calls `announce` when devices can connect.
pub(crate) fn serve<T>(
    arguments: &MediatorArguments,
    knobs: &Knobs,
    announce: impl FnOnce(Served) -> Result<T>,
) -> Result<()> {
    let lifetime = Lifetime::begin()?;
    let mut gpu = arguments.host.gpu(0)?;
    if let Some(uuid) = arguments.host.uuid() {
        gpu.uuid = uuid;
    }
    if arguments.host.has_workers() {
        bail!("--worker is for devices of version 2");
    }
    let rules = MediatorRules::new(arguments.rate, arguments.quarantine.iter().copied());
    let settings = MediatorSettings { rules, grace: arguments.grace.0, ..MediatorSettings::default() };
    let mediator = Mediator::with_settings(arguments.host.executor(&gpu, knobs)?, settings)?;
    let known = Arc::clone(&mediator);
    let status: Status = Arc::new(move || status(&known));
    lifetime.watch(arguments.until_stdin_closes, Arc::clone(&status))?;
    let group = arguments.group.map(|group| group.0);
    let start = |path: &PathBuf| Server::start_for(path, &mediator, group);
    let servers: Vec<Server> = arguments.socket.iter().map(start).collect::<Result<_, _>>()?;
    // Owners of version 1 end with their machine.
    let announced = announce(Served::without_sessions(status, &lifetime))?;
    let ended = lifetime.wait();
    drop(announced);
    Server::end_all(servers);
    ended
}

/// Returns the state of the mediator, with the keys of a device's status.
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
