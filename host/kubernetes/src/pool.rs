//! The devices of a node: which are allocated, which are healthy, and how long an instance lives.
//!
//! An instance starts with `Allocate`, is started anew when its container starts again, and ends when the
//! kubelet lists no pod with it and no VM is connected to it for [`Timing::grace`]. The second condition is
//! for a kubelet that has just started: it lists no pod until it has heard of them from the API server, while
//! their VMs go on. For the same reason the time counts only while the kubelet and systemd answer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use vgpu_share::GpuUuid;

use crate::allocation::{Allocation, InstanceStatus, ends, trouble};
use crate::api::{self, ContainerAllocateResponse, DeviceSpec, Mount};
use crate::command::{CommandError, HostCommands};
use crate::config::Config;
use crate::error::{PluginError, sentence};
use crate::instance::Instance;
use crate::ledger::{Ledger, Room};
use crate::pods::{self, Holder};
use crate::units::{UnitState, Units};

/// Time in which the installed program prints QEMU's arguments.
const PRINT_MOST: Duration = Duration::from_secs(10);
/// Variables of a container that has a device.
const SOCKET: &str = "VGPU_DEVICE_SOCKET";
const ARGUMENTS: &str = "VGPU_QEMU_ARGUMENTS";

/// Intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// Interval at which instances, pods and the ledger are looked at.
    pub(crate) tick: Duration,
    /// Time for which a device must have no pod before its instance ends.
    pub(crate) grace: Duration,
}

/// State of a device.
#[derive(Debug, Default)]
struct Device {
    allocation: Option<Allocation>,
    /// Why it is unhealthy, unless it is healthy.
    trouble: Option<String>,
}

/// All devices of a node.
#[derive(Debug)]
pub(crate) struct Pool {
    config: Config,
    commands: HostCommands,
    units: Units,
    ledger: Ledger,
    /// Bytes of each GPU of the node.
    gpus: BTreeMap<GpuUuid, u64>,
    /// The kubelet's socket for pod resources.
    pods: PathBuf,
    timing: Timing,
    instances: BTreeMap<String, Instance>,
    devices: Mutex<BTreeMap<String, Device>>,
    /// Whose turn it is to give orders about an instance: of an end that was decided before an allocation,
    /// nothing may reach the instance that the allocation starts.
    turns: BTreeMap<String, tokio::sync::Mutex<()>>,
    /// The list of each profile, as the kubelet gets it.
    lists: Vec<watch::Sender<Vec<api::Device>>>,
    /// What was logged last, so that it is not logged again and again.
    complaint: Mutex<Option<String>>,
}

/// What a pool is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) commands: HostCommands,
    pub(crate) ledger: Ledger,
    pub(crate) gpus: BTreeMap<GpuUuid, u64>,
    pub(crate) pods: PathBuf,
    pub(crate) timing: Timing,
    pub(crate) instances: Vec<Instance>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { config, commands, ledger, gpus, pods, timing, instances } = parts;
        let lists = config.profiles.iter().map(|_| watch::Sender::new(Vec::new())).collect();
        let instances: BTreeMap<_, _> =
            instances.into_iter().map(|instance| (instance.name.clone(), instance)).collect();
        let devices = instances.keys().map(|name| (name.clone(), Device::default())).collect();
        let turns = instances.keys().map(|name| (name.clone(), tokio::sync::Mutex::default())).collect();
        Self {
            units: Units::new(commands.clone()),
            config,
            commands,
            ledger,
            gpus,
            pods,
            timing,
            instances,
            devices: Mutex::new(devices),
            turns,
            lists,
            complaint: Mutex::new(None),
        }
    }

    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the list of a profile's devices as it changes.
    pub(crate) fn list(&self, profile: usize) -> watch::Receiver<Vec<api::Device>> {
        self.lists[profile].subscribe()
    }

    /// Returns whether a look has made the list of each profile, none of which is empty then.
    pub(crate) fn is_published(&self) -> bool {
        self.lists.iter().all(|list| !list.borrow().is_empty())
    }

    /// Returns a device of a profile.
    fn instance(&self, profile: usize, id: &str) -> Result<&Instance, PluginError> {
        let found = self.instances.get(id).filter(|instance| instance.profile == Some(profile));
        found.ok_or_else(|| PluginError::Unknown { profile: self.profile(profile), device: id.to_owned() })
    }

    fn profile(&self, number: usize) -> String {
        self.config.profiles[number].name.clone()
    }

    /// Gives a container its device: has an instance start, and returns what the container gets. The instance
    /// need not be ready, because the kubelet admits no other pod meanwhile.
    pub(crate) async fn allocate(
        &self,
        profile: usize,
        ids: &[String],
    ) -> Result<ContainerAllocateResponse, PluginError> {
        let [id] = ids else {
            return Err(PluginError::Several { profile: self.profile(profile), count: ids.len() });
        };
        let instance = self.instance(profile, id)?;
        let _turn = self.turns[id].lock().await;
        let allocation = Allocation::new(Instant::now(), false);
        // Before the start, so that the memory is not shown as another device's room.
        locked(&self.devices).entry(id.clone()).or_default().allocation = Some(allocation);
        match self.begin(instance).await {
            Ok(response) => {
                // The kubelet lists the pod as soon as it has the answer.
                self.update(id, |allocation| allocation.seen = Instant::now());
                tracing::info!(device = id, "allocated");
                Ok(response)
            }
            Err(error) => {
                locked(&self.devices).entry(id.clone()).or_default().allocation = None;
                tracing::error!(device = id, "not allocated: {}", sentence(&error));
                Err(error)
            }
        }
    }

    async fn begin(&self, instance: &Instance) -> Result<ContainerAllocateResponse, PluginError> {
        instance.prepare(&self.config)?;
        self.units.renew(&instance.name).await?;
        let configuration = format!("--config={}", instance.configuration().display());
        let words = ["vgpu-device", "serve", &configuration, "--print=qemu"];
        let arguments = self.commands.run(&words, PRINT_MOST).await?;
        let (shown, socket) = (instance.shown().display().to_string(), instance.socket());
        let variables =
            [(SOCKET, socket.display().to_string()), (ARGUMENTS, arguments.trim_end().to_owned())];
        let device = |path: &PathBuf| {
            let path = path.display().to_string();
            DeviceSpec { container_path: path.clone(), host_path: path, permissions: "rw".to_owned() }
        };
        Ok(ContainerAllocateResponse {
            envs: variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            // A socket can be connected to through a read-only mount, and not be replaced.
            mounts: vec![Mount { container_path: shown.clone(), host_path: shown, read_only: true }],
            devices: self.config.devices.iter().map(device).collect(),
        })
    }

    /// Makes a device ready for the start of its container: with a new instance if a container has been
    /// started with this one.
    pub(crate) async fn pre_start(&self, profile: usize, ids: &[String]) -> Result<(), PluginError> {
        for id in ids {
            let instance = self.instance(profile, id)?;
            let _turn = self.turns[id].lock().await;
            let (used, pod) = {
                let mut devices = locked(&self.devices);
                let device = devices.entry(id.clone()).or_default();
                // This process may be younger than the allocation.
                let unknown = || Allocation::new(Instant::now(), true);
                let allocation = device.allocation.get_or_insert_with(unknown);
                let pod =
                    allocation.holder.as_ref().map_or_else(|| "a new pod".to_owned(), Holder::to_string);
                (allocation.used, pod)
            };
            if let Err(error) = self.make_ready(instance, used).await {
                let why = match self.units.reason(id).await {
                    Some(words) => words,
                    None => error,
                };
                // The kubelet tries again every few seconds.
                let mut is_new = true;
                self.update(id, |allocation| {
                    is_new = allocation.failure.replace(why.clone()).as_ref() != Some(&why);
                });
                if is_new {
                    tracing::error!(device = id, pod, "not ready: {why}");
                }
                let (profile, device) = (self.profile(profile), id.clone());
                return Err(PluginError::NotReady { profile, device, pod, why });
            }
            // Whoever starts a container of a pod has the pod, also if it does not list it yet.
            self.update(id, |allocation| {
                (allocation.seen, allocation.used, allocation.failure) = (Instant::now(), true, None);
            });
            tracing::info!(device = id, pod, renewed = used, "ready for its container");
        }
        Ok(())
    }

    fn update(&self, name: &str, change: impl FnOnce(&mut Allocation)) {
        let mut devices = locked(&self.devices);
        if let Some(allocation) = devices.get_mut(name).and_then(|device| device.allocation.as_mut()) {
            change(allocation);
        }
    }

    async fn make_ready(&self, instance: &Instance, renewed: bool) -> Result<(), String> {
        let tried = self.try_ready(instance, renewed).await;
        // The end of the instance before may have removed the directory that had just been made.
        if tried.is_err() && !instance.shown().exists() {
            return self.try_ready(instance, false).await;
        }
        tried
    }

    async fn try_ready(&self, instance: &Instance, renewed: bool) -> Result<(), String> {
        let words = |error: CommandError| sentence(&error);
        instance.prepare(&self.config).map_err(|error| sentence(&error))?;
        if renewed {
            self.units.renew(&instance.name).await.map_err(words)?;
            // Not before: a container must not get the instance of the one before because an order failed.
            self.update(&instance.name, |allocation| allocation.used = false);
        }
        self.units.ready(&instance.name).await.map_err(words)?;
        instance.ask().await.map(drop)
    }

    /// Looks at everything once: ends instances without a pod, and tells the kubelet which devices are
    /// healthy.
    pub(crate) async fn look(&self) {
        let outcome = self.look_once().await;
        let complaint = outcome.err().map(|error| sentence(&error));
        let mut last = locked(&self.complaint);
        if *last != complaint {
            if let Some(error) = &complaint {
                tracing::warn!("{error}; running instances go on");
            } else {
                tracing::info!("the kubelet, systemd and the ledger answer");
            }
            *last = complaint;
        }
    }

    async fn look_once(&self) -> Result<(), PluginError> {
        let asked = Instant::now();
        let looks = self.looks().await.inspect_err(|_| self.count_anew(asked))?;
        let held = pods::list(&self.pods).await.inspect_err(|_| self.count_anew(asked));
        let reconciled = match &held {
            Ok(held) => self.reconcile(held, &looks, asked).await,
            Err(_) => Ok(()),
        };
        let is_own = |name: &str| self.instances.get(name).is_some_and(|own| own.profile.is_some());
        let rooms = self.ledger.rooms(&self.gpus, &is_own)?;
        self.publish(&looks, &rooms, asked);
        held.map(drop).and(reconciled)
    }

    /// Has the grace of all devices start again, because it is not known whether they have pods and VMs.
    fn count_anew(&self, asked: Instant) {
        for allocation in locked(&self.devices).values_mut().filter_map(|device| device.allocation.as_mut()) {
            allocation.seen = allocation.seen.max(asked);
        }
    }

    /// Looks at all instances at the same time.
    async fn looks(&self) -> Result<BTreeMap<String, InstanceStatus>, PluginError> {
        let names: Vec<String> = self.instances.keys().cloned().collect();
        let states = self.units.states(&names).await?;
        let mut asked = JoinSet::new();
        for (name, instance) in &self.instances {
            let state = states.get(name).copied().unwrap_or(UnitState::Inactive);
            let (name, instance) = (name.clone(), instance.clone());
            asked.spawn(async move {
                let answer = match state {
                    UnitState::Active => Some(instance.ask().await),
                    _ => None,
                };
                (name, InstanceStatus { state, answer })
            });
        }
        Ok(asked.join_all().await.into_iter().collect())
    }

    /// Ends the instances that no pod has. `asked` is when the kubelet was asked for `held`: what was
    /// allocated later is not in it. An error with one instance keeps no other from being
    /// looked after; the first is returned.
    async fn reconcile(
        &self,
        held: &BTreeMap<String, Holder>,
        looks: &BTreeMap<String, InstanceStatus>,
        asked: Instant,
    ) -> Result<(), PluginError> {
        let mut outcome = Ok(());
        for (name, look) in looks {
            let done = self.reconcile_one(name, held.get(name), look, asked).await;
            outcome = outcome.and(done);
        }
        outcome
    }

    async fn reconcile_one(
        &self,
        name: &str,
        holder: Option<&Holder>,
        look: &InstanceStatus,
        asked: Instant,
    ) -> Result<(), PluginError> {
        // A device that is being given to a pod now is looked at next time.
        let Some(Ok(_turn)) = self.turns.get(name).map(tokio::sync::Mutex::try_lock) else { return Ok(()) };
        let ends = {
            let mut devices = locked(&self.devices);
            let device = devices.entry(name.to_owned()).or_default();
            ends(&mut device.allocation, holder, look, asked, self.timing.grace)
        };
        if ends {
            tracing::info!(device = name, "no pod has it: its instance ends");
            self.units.stop(name).await?;
        }
        let is_free = locked(&self.devices).get(name).is_none_or(|device| device.allocation.is_none());
        if is_free && look.state == UnitState::Failed {
            // Whoever gets it next learns from a new start whether it works now.
            self.units.forget_failures(name).await;
        }
        let retired = self.instances.get(name).filter(|instance| instance.profile.is_none());
        if let Some(instance) = retired.filter(|_| is_free && look.state == UnitState::Inactive) {
            instance.forget()?;
        }
        Ok(())
    }

    /// Judges the health of all devices, and sends the lists that have changed. `asked` is when the
    /// instances were looked at.
    fn publish(
        &self,
        looks: &BTreeMap<String, InstanceStatus>,
        rooms: &BTreeMap<GpuUuid, Room>,
        asked: Instant,
    ) {
        let mut devices = locked(&self.devices);
        let mut left: BTreeMap<_, _> = rooms.iter().map(|(gpu, room)| (*gpu, room.for_own())).collect();
        let taken =
            |own: &Instance| rooms.get(&own.gpu).map_or(own.memory, |room| room.taken(&own.name, own.memory));
        let is_allocated = |devices: &BTreeMap<String, Device>, name: &str| {
            devices.get(name).is_some_and(|device| device.allocation.is_some())
        };
        // What is allocated has its memory, or is about to claim it; the others share what is left, in order.
        for instance in self.instances.values().filter(|own| is_allocated(&devices, &own.name)) {
            let left = left.entry(instance.gpu).or_default();
            *left = left.saturating_sub(taken(instance));
        }
        for (name, instance) in &self.instances {
            let allocation = devices.get(name).and_then(|device| device.allocation.as_ref());
            let trouble = if let Some(allocation) = allocation {
                // What was allocated meanwhile has not been looked at.
                looks
                    .get(name)
                    .filter(|_| allocation.seen <= asked)
                    .and_then(|look| trouble(look, allocation))
            } else {
                let left = left.entry(instance.gpu).or_default();
                let fits = instance.memory <= *left;
                *left = left.saturating_sub(taken(instance));
                let words =
                    || format!("others have been promised the memory that it needs of {}", instance.gpu);
                (!fits).then(words)
            };
            let device = devices.entry(name.clone()).or_default();
            // Once the instance serves, an earlier failure explains nothing that comes later.
            let serves =
                |look: &InstanceStatus| look.state == UnitState::Active && matches!(look.answer, Some(Ok(_)));
            if let Some(allocation) = &mut device.allocation
                && looks.get(name).is_some_and(serves)
            {
                allocation.failure = None;
            }
            if device.trouble != trouble && instance.profile.is_some() {
                let pod = device.allocation.as_ref().and_then(|allocation| allocation.holder.as_ref());
                let pod = pod.map_or_else(|| "no pod".to_owned(), Holder::to_string);
                if let Some(why) = &trouble {
                    tracing::warn!(device = name, pod, "unhealthy: {why}");
                } else {
                    tracing::info!(device = name, pod, "healthy");
                }
            }
            device.trouble = trouble;
        }
        for (number, list) in self.lists.iter().enumerate() {
            let of_profile = self.instances.values().filter(|own| own.profile == Some(number));
            let shown = of_profile.map(|own| {
                let healthy = devices.get(&own.name).is_some_and(|device| device.trouble.is_none());
                let health = if healthy { api::HEALTHY } else { api::UNHEALTHY };
                api::Device { id: own.name.clone(), health: health.to_owned() }
            });
            let shown: Vec<_> = shown.collect();
            list.send_if_modified(|last| {
                let changed = *last != shown;
                *last = shown;
                changed
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::{Answer, HostFolders};

    /// Returns a pool with two devices, which have been allocated, on a host where each command fails.
    fn pool(folder: &std::path::Path) -> Pool {
        let text = "[[profile]]\nname = \"a\"\nmemory = \"1G\"\ncount = 2\n";
        let config: Config = toml::from_str(text).unwrap();
        let path = folder.to_owned();
        let folders = HostFolders { configurations: path.clone(), runtime: path.clone() };
        let gpu = GpuUuid([1; 16]);
        let instance = |index| Instance::new(&folders, 0, &config.profiles[0], gpu, index);
        let pool = Pool::new(Parts {
            instances: vec![instance(0), instance(1)],
            commands: HostCommands::new(vec!["false".to_owned()]),
            ledger: Ledger::new(Some(path.clone()), 0),
            gpus: [(gpu, 4 << 30)].into(),
            pods: path.join("kubelet.sock"),
            timing: Timing { tick: Duration::ZERO, grace: Duration::from_secs(30) },
            config,
        });
        for device in locked(&pool.devices).values_mut() {
            device.allocation = Some(Allocation::new(Instant::now(), true));
        }
        pool
    }

    #[tokio::test]
    async fn a_stop_that_fails_does_not_keep_other_instances() {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool(folder.path());
        let look = || InstanceStatus {
            state: UnitState::Active,
            answer: Some(Ok(Answer { connected: Some(false) })),
        };
        let looks = pool.instances.keys().map(|name| (name.clone(), look())).collect();
        let later = Instant::now() + Duration::from_secs(30);
        let outcome = pool.reconcile(&BTreeMap::new(), &looks, later).await;
        let first = pool.instances.keys().next().unwrap();
        assert!(outcome.is_err_and(|error| sentence(&error).contains(first)));
        assert!(
            locked(&pool.devices).values().all(|device| device.allocation.is_none()),
            "each has been tried"
        );
    }

    #[tokio::test]
    async fn time_without_answers_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool(folder.path());
        let before = Instant::now();
        pool.look().await;
        let devices = locked(&pool.devices);
        let seen = |device: &Device| device.allocation.as_ref().map(|allocation| allocation.seen);
        assert!(devices.values().all(|device| seen(device) >= Some(before)));
    }
}
