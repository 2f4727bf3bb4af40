//! Options of version 1 devices: the properties that a host's administrator sets, and where calls go.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::ValueEnum;
use vgpu_device::{Executor, GpuConfig, GuestMemory, PciAddress, SimBus};
use vgpu_device_v1::{
    self as v1, BusDeviceConfig, BusTestHooks, Client, Local, Mediator, MediatorPlace, MediatorRules,
    Preferences, Properties,
};

/// The device's property `pool_id`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Pool {
    /// Pool A, the default.
    #[default]
    #[value(name = "A")]
    A,
    /// Pool B.
    #[value(name = "B")]
    B,
}

/// The device's property `priority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Priority {
    /// Low priority, register value 0.
    Low,
    /// Medium priority, register value 1, which is the default.
    #[default]
    Medium,
    /// High priority, register value 2.
    High,
}

/// Options of version 1 devices.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Options of version 1")]
pub(crate) struct V1Options {
    /// Socket of a mediator; without it this process has one mediator for each device.
    #[arg(long, value_name = "SOCKET")]
    mediator: Option<PathBuf>,
    /// Pool of the virtual machine, which the device shows and tells the mediator.
    #[arg(long, value_enum, default_value_t = Pool::A)]
    pool: Pool,
    /// Priority of the virtual machine, which the device shows and tells the mediator.
    #[arg(long, value_enum, default_value_t = Priority::Medium)]
    priority: Priority,
    /// Number of the virtual machine, by which the mediator keeps owners apart.
    #[arg(long, default_value_t = 0)]
    vm_id: u32,
    /// Read a library from the window even if the window's first bytes are zero.
    #[arg(long)]
    authoritative_shmem_libload: bool,
    /// Read the guest's pages again before the device decides where a library is.
    #[arg(long)]
    probe_fresh_shmem_libload: bool,
    /// Read uploads from BAR1 if its first bytes are not zero.
    #[arg(long)]
    prefer_bar1_htod: bool,
    /// Let only the process that registered the window use it. No existing host does so, and guests written
    /// for those hosts fail.
    #[arg(long)]
    window_of_its_owner: bool,
}

impl V1Options {
    fn properties(&self) -> Properties {
        Properties {
            pool: match self.pool {
                Pool::A => v1::Pool::A,
                Pool::B => v1::Pool::B,
            },
            priority: match self.priority {
                Priority::Low => v1::Priority::Low,
                Priority::Medium => v1::Priority::Medium,
                Priority::High => v1::Priority::High,
            },
            vm_id: self.vm_id,
            preferences: Preferences {
                prefer_bar1_htod: self.prefer_bar1_htod,
                authoritative_library: self.authoritative_shmem_libload,
                probe_fresh_library: self.probe_fresh_shmem_libload,
            },
            window_of_its_owner: self.window_of_its_owner,
        }
    }

    /// Creates a version 1 device for a virtual machine whose memory is `memory`.
    pub(crate) fn device(
        &self,
        memory: Arc<dyn GuestMemory>,
        hooks: &BusTestHooks,
        executor: impl FnOnce() -> Result<Arc<dyn Executor>>,
    ) -> Result<Arc<v1::Device>> {
        if !hooks.access_cost.is_zero() {
            bail!("--access-cost is for a simulated bus: here an access costs what it costs");
        }
        let device = v1::Device::with_hooks(self.properties(), hooks.device, memory);
        device.attach(if let Some(path) = &self.mediator {
            Box::new(Client::connect(path, device.inlet()))
        } else {
            let mediator = Mediator::new(executor()?, MediatorRules::default())?;
            Box::new(Local::connect(&mediator, device.inlet())?)
        });
        Ok(device)
    }

    /// Serves devices on a simulated bus, each with a mediator of its own unless `--mediator` names one.
    pub(crate) fn serve(
        &self,
        bus: &Path,
        ram: u64,
        hooks: &BusTestHooks,
        gpus: Vec<(PciAddress, GpuConfig)>,
        executor: impl Fn(&GpuConfig) -> Result<Arc<dyn Executor>>,
    ) -> Result<SimBus> {
        let mut configs = Vec::new();
        for (address, gpu) in gpus {
            let mediator = match &self.mediator {
                Some(path) => MediatorPlace::Socket(path.clone()),
                None => MediatorPlace::Local(Mediator::new(executor(&gpu)?, MediatorRules::default())?),
            };
            configs.push(BusDeviceConfig { address, properties: self.properties(), mediator });
        }
        Ok(v1::serve_on_bus(bus, ram, configs, hooks)?)
    }
}
