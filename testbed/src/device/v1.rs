//! Options of devices of version 1: the properties of the device that hosts have, what an access costs, where calls go.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use vgpu_device::v1::{
    self, Client, GuestMemory, Local, Mediator, Preferences, Properties, Rules, TestHooks,
};
use vgpu_device::{Executor, GpuConfig, PciAddress, SimBus, V1Config, V1TestHooks, V1Way};

/// `pool_id`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pool {
    /// The usual one.
    #[value(name = "A")]
    A,
    /// The other one.
    #[value(name = "B")]
    B,
}

/// `priority`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Priority {
    /// 0
    Low,
    /// 1
    Medium,
    /// 2
    High,
}

/// Options.
#[derive(clap::Args)]
#[command(next_help_heading = "Options of version 1")]
pub struct V1Options {
    /// How long each access to a BAR takes, such as 88us: an exit of a virtual machine.
    #[arg(long, default_value = "0", value_parser = duration)]
    access_cost: Duration,
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
    /// What the register of the protocol's version reads, such as 0x20000: a version that no guest knows.
    #[arg(long, value_name = "VALUE", value_parser = register)]
    protocol_register: Option<u32>,
}

/// Reads a register's value.
fn register(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").ok_or("expected a value such as 0x20000")?;
    u32::from_str_radix(digits, 16).map_err(|error| error.to_string())
}

/// Reads a duration: "88us", "10", which are microseconds, "1ms".
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ns" => 1e-9,
        "us" | "" => 1e-6,
        "ms" => 1e-3,
        _ => f64::NAN,
    };
    let number: f64 = digits.parse().unwrap_or(f64::NAN);
    Duration::try_from_secs_f64(number * unit)
        .map_err(|_| "expected a time such as 88us, 500ns, 1ms".to_owned())
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

    fn hooks(&self) -> TestHooks {
        TestHooks { protocol: self.protocol_register }
    }

    /// A device for a machine, whose memory is `memory`.
    pub fn device(
        &self,
        memory: Arc<dyn GuestMemory>,
        executor: impl FnOnce() -> Result<Arc<dyn Executor>>,
    ) -> Result<Arc<v1::Device>> {
        if !self.access_cost.is_zero() {
            bail!("--access-cost is for a simulated bus: here an access costs what it costs");
        }
        let device = v1::Device::with_hooks(self.properties(), self.hooks(), memory);
        device.attach(if let Some(path) = &self.mediator {
            Box::new(Client::connect(path, device.inlet()))
        } else {
            let mediator = Mediator::new(executor()?, Rules::default())?;
            Box::new(Local::connect(&mediator, device.inlet())?)
        });
        Ok(device)
    }

    /// Serves devices, each with a mediator of its own unless there is one elsewhere.
    pub fn serve(
        &self,
        bus: &Path,
        ram: u64,
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
        let hooks =
            V1TestHooks { device: self.hooks(), access_cost: self.access_cost, ..V1TestHooks::default() };
        Ok(SimBus::serve_v1_hooked(bus, ram, configs, &hooks)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(duration("88us"), Ok(Duration::from_micros(88)));
        assert_eq!(duration("10"), Ok(Duration::from_micros(10)));
        assert_eq!(duration("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(duration("500ns"), Ok(Duration::from_nanos(500)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        for bad in ["", "us", "-1", "1s", "1e99", "x"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
