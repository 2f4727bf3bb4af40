//! The command `node`: shares the time of each GPU among the VMs of this host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use vgpu_device::threads;
use vgpu_share::arbiter::{Node, NodeOptions};
use vgpu_share::{GpuUuid, Gpus};

use crate::lifetime::{Lifetime, log, ready};
use crate::notify;
use crate::share;
use crate::values::{Level, Uuid, WARN};

/// Interval at which the directory is looked at for GPUs that have come.
const LOOK: Duration = Duration::from_secs(1);

/// Length of a slice: whole milliseconds, 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice(Duration);

impl FromStr for Slice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix("ms").and_then(|number| number.parse::<u64>().ok());
        let number = number.filter(|number| (1..=100).contains(number));
        let number = number.ok_or_else(|| "expected 1ms to 100ms".to_owned())?;
        Ok(Self(Duration::from_millis(number)))
    }
}

/// Options of the command `node`.
#[derive(Debug, clap::Args)]
pub struct NodeArguments {
    /// Time that a VM has the GPU while others wait, 1ms to 100ms. Shorter slices shorten waits, and longer
    /// ones lose less between them.
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    slice: Slice,
    /// UUID of a GPU whose time is shared, as `nvidia-smi -L` prints it; can be given several times. By default
    /// that of each GPU is.
    #[arg(long, value_name = "UUID")]
    gpu: Vec<Uuid>,
    /// Directory in which the devices find each other, if it is not the usual one, as `serve` has it.
    #[arg(long, value_name = "DIR")]
    shares: Option<PathBuf>,
    /// Least severe level that is logged on stderr: error, warn, info, debug.
    #[arg(long, value_name = "LEVEL", default_value_t = WARN)]
    log: Level,
    /// Stop when stdin closes, as well as on SIGTERM or SIGINT.
    #[arg(long)]
    until_stdin_closes: bool,
}

/// An arbiter and its thread.
#[derive(Debug)]
struct Running {
    node: Arc<Node>,
    thread: JoinHandle<()>,
}

/// The arbiters of this process, one for each GPU.
#[derive(Debug)]
pub(crate) struct Arbiters {
    gpus: Gpus,
    wanted: Vec<GpuUuid>,
    options: NodeOptions,
    running: Mutex<BTreeMap<GpuUuid, Running>>,
}

impl Arbiters {
    /// Starts an arbiter for each GPU that has none yet.
    fn look(&self, lifetime: &Lifetime) -> Result<()> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for uuid in self.gpus.all()? {
            let wanted = self.wanted.is_empty() || self.wanted.contains(&uuid);
            if !wanted || running.contains_key(&uuid) {
                continue;
            }
            let node = Node::new(self.gpus.gpu(uuid)?, self.options);
            let (arbiter, end) = (Arc::clone(&node), lifetime.failer());
            let thread = threads::spawn("arbiter", move || {
                if let Err(error) = arbiter.run() {
                    end(error.into());
                }
            });
            running.insert(uuid, Running { node, thread: thread? });
        }
        Ok(())
    }

    /// Ends all arbiters, which open the gates of their devices.
    fn stop(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for Running { node, thread } in std::mem::take(&mut *running).into_values() {
            node.stop();
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

/// Shares the GPUs' time until the process is told to stop. Prints `ready` when it does.
pub fn run_node(arguments: &NodeArguments) -> Result<()> {
    log(arguments.log);
    let lifetime = Lifetime::begin();
    lifetime.watch(arguments.until_stdin_closes, Arc::new(|| Value::Null))?;
    let arbiters = Arc::new(Arbiters {
        gpus: share::gpus(arguments.shares.as_deref())?,
        wanted: arguments.gpu.iter().map(|uuid| GpuUuid(uuid.0)).collect(),
        options: NodeOptions { slice: arguments.slice.0 },
        running: Mutex::default(),
    });
    arbiters.look(&lifetime)?;
    ready()?;
    notify::ready()?;
    let ended = loop {
        match lifetime.wait_for(LOOK) {
            Ok(false) => arbiters.look(&lifetime)?,
            ended => break ended.map(drop),
        }
    };
    arbiters.stop();
    ended
}
