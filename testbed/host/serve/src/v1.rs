//! Options of devices of version 1: the properties that a host's administrator sets, and where calls go.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::ValueEnum;
use vgpu_device::v1::{self, Client, GuestMemory, Local, Mediator, Preferences, Properties, Rules};
use vgpu_device::{Executor, GpuConfig, PciAddress, SimBus, V1Config, V1TestHooks, V1Way};

/// `pool_id`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Pool {
    /// The usual one.
    #[default]
    #[value(name = "A")]
    A,
    /// The other one.
    #[value(name = "B")]
    B,
}

/// `priority`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Priority {
    /// 0
    Low,
    /// 1
    #[default]
    Medium,
    /// 2
    High,
}

/// Options.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Options of version 1")]
pub(crate) struct V1Options {
    /// The mediator's socket; without it the mediator is in this process.
    #[arg(long, value_name = "SOCKET")]
    mediator: Option<PathBuf>,
    /// The machine's pool.
    #[arg(long, value_enum, default_value_t = Pool::A)]
    pool: Pool,
    /// The machine's priority.
    #[arg(long, value_enum, default_value_t = Priority::Medium)]
    priority: Priority,
    /// The machine's number.
    #[arg(long, default_value_t = 0)]
    vm_id: u32,
    /// Libraries come from the window though its first bytes are zero.
    #[arg(long)]
    authoritative_shmem_libload: bool,
    /// Before that is decided the guest's pages are read anew.
    #[arg(long)]
    probe_fresh_shmem_libload: bool,
    /// Copies to the device come from BAR1 if its first bytes are not zero.
    #[arg(long)]
    prefer_bar1_htod: bool,
    /// The window is its registrant's alone; not so on any host that exists, nor right for its guests.
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

    /// A device for a machine, whose memory is `memory`.
    pub(crate) fn device(
        &self,
        memory: Arc<dyn GuestMemory>,
        hooks: &V1TestHooks,
        executor: impl FnOnce() -> Result<Arc<dyn Executor>>,
    ) -> Result<Arc<v1::Device>> {
        if !hooks.access_cost.is_zero() {
            bail!("--access-cost is for a simulated bus: here an access costs what it costs");
        }
        let device = v1::Device::with_hooks(self.properties(), hooks.device, memory);
        device.attach(if let Some(path) = &self.mediator {
            Box::new(Client::connect(path, device.inlet()))
        } else {
            let mediator = Mediator::new(executor()?, Rules::default())?;
            Box::new(Local::connect(&mediator, device.inlet())?)
        });
        Ok(device)
    }

    /// Serves devices, each with a mediator of its own unless there is one elsewhere.
    pub(crate) fn serve(
        &self,
        bus: &Path,
        ram: u64,
        hooks: &V1TestHooks,
        gpus: Vec<(PciAddress, GpuConfig)>,
        executor: impl Fn(&GpuConfig) -> Result<Arc<dyn Executor>>,
    ) -> Result<SimBus> {
        let mut configs = Vec::new();
        for (address, gpu) in gpus {
            let way = match &self.mediator {
                Some(path) => V1Way::Socket(path.clone()),
                None => V1Way::Mediator(Mediator::new(executor(&gpu)?, Rules::default())?),
            };
            configs.push(V1Config { address, properties: self.properties(), way });
        }
        Ok(SimBus::serve_v1_hooked(bus, ram, configs, hooks)?)
    }
}
