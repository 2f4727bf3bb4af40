//! The plugin from its start to its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use vgpu_device::parse_bytes;
use vgpu_share::GpuUuid;

use crate::command::HostCommands;
use crate::config::{Config, Profile};
use crate::error::PluginError;
use crate::gpus;
use crate::instance::{HostFolders, Instance, MARK, PREFIX};
use crate::ledger::Ledger;
use crate::pool::{Parts, Pool, Timing};
use crate::registration;

/// Memory of a GPU that is promised to no VM, unless the setting `reserve` says otherwise: as in
/// `vgpu-device`.
const RESERVE: u64 = 512 << 20;
/// Maximum size of a configuration in bytes.
const CONFIGURATION_MOST: u64 = 1 << 20;

/// Options of the program.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The file of profiles.
    #[arg(long, value_name = "FILE", default_value = "/etc/vgpu-device-plugin/profiles.toml")]
    config: PathBuf,
    /// Directory of the kubelet, with its sockets for device plugins and pod resources.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet: PathBuf,
    /// Directory of the configurations that vgpu-device@NAME.service reads.
    #[arg(long, value_name = "DIR", default_value = "/etc/vgpu-device")]
    configurations: PathBuf,
    /// Directory of the devices' directories, which vgpu-device@NAME.service makes.
    #[arg(long, value_name = "DIR", default_value = "/run/vgpu-device")]
    runtime: PathBuf,
    /// Print the node's resources if their memory can be promised, and serve nothing.
    #[arg(long)]
    check: bool,
    /// Interval in milliseconds at which instances, pods and the ledger are looked at.
    #[arg(long, value_name = "MS", default_value_t = 5000, hide = true)]
    tick: u64,
    /// Time in milliseconds for which a device must have no pod before its instance ends.
    #[arg(long, value_name = "MS", default_value_t = 30_000, hide = true)]
    grace: u64,
}

/// Runs the plugin until it is told to stop. Instances go on.
///
/// # Errors
/// The file of profiles is wrong, or what it promises cannot be kept.
pub async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let config = Config::read(&arguments.config)?;
    let commands = HostCommands::new(config.host_command.clone());
    let gpus = gpus::list(&commands, &config).await?;
    let folders =
        HostFolders { configurations: arguments.configurations.clone(), runtime: arguments.runtime.clone() };
    let mut instances = instances(&config, &gpus, &folders)?;
    // Before the profiles are judged: nobody else ends those, and they would be in the way for good.
    instances.extend(retired(&instances, &folders)?);
    let reserve = config.settings.get("reserve").and_then(|value| parse_bytes(value.as_str()?));
    let ledger = Ledger::new(config.path_setting("shares"), reserve.unwrap_or(RESERVE));
    admit(&config, &gpus, &instances, &ledger, &arguments.config)?;
    if arguments.check {
        for (number, profile) in config.profiles.iter().enumerate() {
            let count = instances.iter().filter(|instance| instance.profile == Some(number)).count();
            println!("{} {count}", config.resource(&profile.name));
        }
        return Ok(());
    }
    let timing =
        Timing { tick: Duration::from_millis(arguments.tick), grace: Duration::from_millis(arguments.grace) };
    let pods = arguments.kubelet.join("pod-resources/kubelet.sock");
    let (profiles, tick) = (config.profiles.len(), timing.tick);
    let pool = Arc::new(Pool::new(Parts { config, commands, ledger, gpus, pods, timing, instances }));
    let mut ended = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut is_served = false;
    loop {
        pool.look().await;
        // The kubelet's first list is a true one: with an empty one the node would lose its resources.
        if !is_served && pool.is_published() {
            for profile in 0..profiles {
                let folder = arguments.kubelet.join("device-plugins");
                tokio::spawn(registration::serve(Arc::clone(&pool), profile, folder));
            }
            is_served = true;
        }
        tokio::select! {
            _ = ended.recv() => break,
            _ = interrupted.recv() => break,
            () = tokio::time::sleep(tick) => {}
        }
    }
    tracing::info!("ends; running instances go on");
    Ok(())
}

/// Returns the instances of all profiles.
fn instances(
    config: &Config,
    gpus: &BTreeMap<GpuUuid, u64>,
    folders: &HostFolders,
) -> Result<Vec<Instance>, PluginError> {
    let mut instances = Vec::new();
    for (number, profile) in config.profiles.iter().enumerate() {
        let wanted: Vec<GpuUuid> = match profile.gpu {
            Some(gpu) => gpus.keys().copied().filter(|known| *known == gpu.0).collect(),
            None => gpus.keys().copied().collect(),
        };
        if wanted.is_empty() {
            let found: Vec<_> = gpus.keys().map(ToString::to_string).collect();
            return Err(PluginError::NoGpu {
                profile: profile.name.clone(),
                gpu: profile.gpu.map_or_else(|| "GPU".to_owned(), |gpu| gpu.0.to_string()),
                found: if found.is_empty() { "none".to_owned() } else { found.join(", ") },
            });
        }
        for gpu in wanted {
            instances
                .extend((0..profile.count).map(|index| Instance::new(folders, number, profile, gpu, index)));
        }
    }
    Ok(instances)
}

/// Refuses profiles whose memory does not fit what a GPU has for VMs beside what devices hold that are not
/// the plugin's. Those of earlier profiles are the plugin's: until they end, a device that does not fit
/// beside them is unhealthy.
fn admit(
    config: &Config,
    gpus: &BTreeMap<GpuUuid, u64>,
    instances: &[Instance],
    ledger: &Ledger,
    path: &Path,
) -> Result<(), PluginError> {
    let is_own = |name: &str| instances.iter().any(|instance| instance.name == name);
    for (gpu, room) in ledger.rooms(gpus, &is_own)? {
        let of_gpu = instances.iter().filter(|instance| instance.gpu == gpu);
        let asked = of_gpu.fold(0_u64, |sum, instance| sum.saturating_add(instance.memory));
        let promise = room.promise(gpu, asked);
        if asked > promise.free() {
            let on_gpu = |profile: &&Profile| profile.gpu.is_none_or(|wanted| wanted.0 == gpu);
            let words = |profile: &Profile| {
                format!("{} x {} MiB for {}", profile.count, profile.memory.0 >> 20, profile.name)
            };
            let needs: Vec<_> = config.profiles.iter().filter(on_gpu).map(words).collect();
            return Err(PluginError::Room { path: path.to_owned(), needs: needs.join(" and "), promise });
        }
    }
    Ok(())
}

/// Returns instances whose configurations an earlier plugin has written and whose profiles are gone. A pod
/// may still have them.
fn retired(known: &[Instance], folders: &HostFolders) -> Result<Vec<Instance>, PluginError> {
    let folder = &folders.configurations;
    let failed = |source| PluginError::File {
        doing: "read the directory",
        device: "earlier profiles".to_owned(),
        path: folder.clone(),
        source,
    };
    let mut found = Vec::new();
    for name in vgpu_paths::Dir::open(folder).and_then(|dir| dir.entries()).map_err(failed)? {
        let name = name.to_string_lossy();
        let Some(name) = name.strip_suffix(".toml").filter(|name| name.starts_with(PREFIX)) else { continue };
        if known.iter().any(|instance| instance.name == name) {
            continue;
        }
        let instance = Instance::retired(folders, name.to_owned());
        let text = vgpu_paths::read_to_string(&instance.configuration(), CONFIGURATION_MOST);
        if text.is_ok_and(|text| text.starts_with(MARK)) {
            found.push(instance);
        }
    }
    Ok(found)
}
