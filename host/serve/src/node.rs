//! The command `node`: shares the time of each GPU among the VMs of this host.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use vgpu_device::threads;
use vgpu_share::arbiter::{Node, NodeError, NodeOptions};
use vgpu_share::{GpuUuid, Gpus};

use crate::lifetime::{Lifetime, log, ready};
use crate::metrics::{Endpoint, MeasuredGpus, MetricsOption};
use crate::notify;
use crate::share;
use crate::values::{Group, Level, Uuid, WARN};

/// Interval at which the directory is looked at for GPUs that have come.
const LOOK: Duration = Duration::from_secs(1);

/// Where metrics are served by default: at a port of this host alone.
const METRICS: &str = "127.0.0.1:19400";

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
    /// UUID of a GPU whose time is shared, as `nvidia-smi -L` prints it; can be given several times. By
    /// default that of each GPU is.
    #[arg(long, value_name = "UUID")]
    gpu: Vec<Uuid>,
    /// Where metrics are served in the formats of OpenMetrics and Prometheus: IP:PORT, `unix:PATH` for a UNIX
    /// socket, or `off`. Whoever can connect can read them.
    #[arg(long, value_name = "ADDR", default_value = METRICS)]
    metrics: MetricsOption,
    /// Group, by name or number, whose users may connect to the UNIX socket of the metrics, too.
    #[arg(long, value_name = "GROUP")]
    metrics_group: Option<Group>,
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

/// The arbiter of one GPU, and the thread that runs it.
#[derive(Debug)]
struct Running {
    node: Arc<Node>,
    thread: JoinHandle<()>,
    /// Why the arbiter has ended.
    failure: Arc<OnceLock<NodeError>>,
}

/// The arbiters of this process, one for each GPU. They end, and open the gates of their devices, when this
/// is dropped.
#[derive(Debug)]
pub(crate) struct Arbiters {
    gpus: Gpus,
    wanted: Vec<GpuUuid>,
    options: NodeOptions,
    running: BTreeMap<GpuUuid, Running>,
    measured: MeasuredGpus,
    /// What was logged last about GPUs that could not be arbitrated.
    failures: BTreeMap<GpuUuid, String>,
}

impl Arbiters {
    /// Returns the arbiters of the GPUs in a directory, of which none runs yet.
    fn new(gpus: Gpus, wanted: Vec<GpuUuid>, options: NodeOptions) -> Self {
        let (running, measured, failures) = (BTreeMap::new(), MeasuredGpus::default(), BTreeMap::new());
        Self { gpus, wanted, options, running, measured, failures }
    }

    /// Starts an arbiter for each GPU that has none. A GPU whose file cannot be used leaves the others
    /// theirs, and is tried again by the next call.
    ///
    /// # Errors
    /// The directory cannot be read.
    fn look(&mut self, lifetime: &Lifetime) -> Result<()> {
        for (uuid, ended) in self.running.extract_if(.., |_, gpu| gpu.thread.is_finished()) {
            if let Some(error) = ended.failure.get() {
                log_failure(&mut self.failures, uuid, error);
            }
        }
        for uuid in self.gpus.all()? {
            let wanted = self.wanted.is_empty() || self.wanted.contains(&uuid);
            if !wanted || self.running.contains_key(&uuid) {
                continue;
            }
            match self.start(uuid, lifetime) {
                Ok(started) => drop(self.running.insert(uuid, started)),
                Err(error) => log_failure(&mut self.failures, uuid, &format_args!("{error:#}")),
            }
        }
        Ok(())
    }

    /// Starts the arbiter of a GPU.
    fn start(&self, uuid: GpuUuid, lifetime: &Lifetime) -> Result<Running> {
        let node = Node::new(self.gpus.gpu(uuid)?, self.options);
        self.measured.add(node.gpu().clone());
        let failure = Arc::<OnceLock<NodeError>>::default();
        let (arbiter, failed, end) = (Arc::clone(&node), Arc::clone(&failure), lifetime.failer());
        let thread = threads::spawn("arbiter", move || match arbiter.run() {
            Ok(()) => {}
            // Two node processes are the operator's error, and not the file's.
            Err(error @ NodeError::Taken(_)) => end(error.into()),
            Err(error) => drop(failed.set(error)),
        });
        Ok(Running { node, thread: thread?, failure })
    }
}

/// Logs why a GPU's time is not shared, unless that was said last.
fn log_failure(failures: &mut BTreeMap<GpuUuid, String>, uuid: GpuUuid, error: &dyn Display) {
    let failure = error.to_string();
    if failures.get(&uuid) != Some(&failure) {
        tracing::error!(gpu = %uuid, "the GPU's time is not shared: {failure}");
        failures.insert(uuid, failure);
    }
}

impl Drop for Arbiters {
    fn drop(&mut self) {
        for Running { node, thread, .. } in std::mem::take(&mut self.running).into_values() {
            node.stop();
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

/// Shares the GPUs' time until the process is told to stop. Prints `ready` when it does.
pub fn run_node(arguments: &NodeArguments) -> Result<()> {
    log(arguments.log);
    let lifetime = Lifetime::begin()?;
    lifetime.watch(arguments.until_stdin_closes, Arc::new(|| Value::Null))?;
    let wanted = arguments.gpu.iter().map(|uuid| GpuUuid(uuid.0)).collect();
    let options = NodeOptions { slice: arguments.slice.0 };
    let mut arbiters = Arbiters::new(share::gpus(arguments.shares.as_deref())?, wanted, options);
    arbiters.look(&lifetime)?;
    let group = arguments.metrics_group.map(|group| group.0);
    let start = |address| Endpoint::start(address, group, arbiters.measured.clone());
    let _endpoint = arguments.metrics.0.clone().map(start).transpose()?;
    ready()?;
    notify::ready()?;
    while !lifetime.wait_for(LOOK)? {
        arbiters.look(&lifetime)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vgpu_host_testing::guest::until;

    use super::*;

    const GOOD: &str = "GPU-00112233-4455-6677-8899-aabbccddeeff";
    const BAD: &str = "GPU-00000000-0000-0000-0000-000000000001";

    #[test]
    fn a_bad_file_leaves_other_gpus_their_arbiters() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gpus");
        let (good, bad): (GpuUuid, GpuUuid) = (GOOD.parse().unwrap(), BAD.parse().unwrap());
        let gpus = Gpus::open(&path).unwrap();
        let gpu = gpus.gpu(good).unwrap();
        // The file of one GPU under the name of another, which sorts before it.
        fs::copy(path.join(GOOD), path.join(BAD)).unwrap();
        let lifetime = Lifetime::begin().unwrap();
        let mut arbiters = Arbiters::new(gpus, Vec::new(), NodeOptions::default());
        arbiters.look(&lifetime).unwrap();
        assert_eq!(arbiters.running.keys().collect::<Vec<_>>(), [&good]);
        assert!(arbiters.failures[&bad].contains("another GPU"), "{:?}", arbiters.failures);
        // It is tried again, and the arbiter that runs is left alone.
        let runs = Arc::clone(&arbiters.running[&good].node);
        fs::remove_file(path.join(BAD)).unwrap();
        arbiters.gpus.gpu(bad).unwrap();
        // Now its arbiter starts, and fails.
        let lock = path.join(format!("{BAD}.node"));
        fs::create_dir(&lock).unwrap();
        arbiters.look(&lifetime).unwrap();
        until("an arbiter has failed", || arbiters.running[&bad].thread.is_finished());
        fs::remove_dir(&lock).unwrap();
        arbiters.look(&lifetime).unwrap();
        assert!(arbiters.failures[&bad].contains("lock as the node process"), "{:?}", arbiters.failures);
        assert_eq!(arbiters.running.keys().collect::<Vec<_>>(), [&bad, &good]);
        until("it has its lock", || lock.is_file());
        assert!(Arc::ptr_eq(&runs, &arbiters.running[&good].node));
        // The end of this process's part frees the GPU for another one.
        drop(arbiters);
        let next = Node::new(gpu, NodeOptions::default());
        next.stop();
        next.run().unwrap();
    }
}
