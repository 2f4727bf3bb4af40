//! Settings of `serve`, defined once for the command line and for the configuration file. The command line
//! takes precedence.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde::Deserialize;
use vgpu_device::ADDRESS_RANGES;

use crate::engine::Engine;
use crate::executor::ExecutorKind;
use crate::values::{Bus, Capability, Group, Level, Limit, Part, Period, Size, Uuid};

/// The settings of `serve`, each of which may be absent.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Settings {
    /// Bus on which guests find the device: `vfio-user:SOCKET`, to which the VM's QEMU (10.1 or later)
    /// connects; `v1:SOCKET`, to which hypervisors with a device of version 1 connect; or `sim:DIR`, a
    /// directory that looks like sysfs, for programs of this machine.
    #[arg(long)]
    pub(crate) bus: Option<Bus>,
    /// Executor that carries out the calls [default: cuda].
    #[arg(long, value_enum)]
    pub(crate) executor: Option<ExecutorKind>,
    /// UUID of the GPU, as `nvidia-smi -L` prints it. The soft and null executors only announce it; without
    /// it they draw one at random.
    #[arg(long, value_name = "UUID")]
    pub(crate) gpu: Option<Uuid>,
    /// Device memory that the VM is promised, such as 8G. The contexts of its programs are part of it. A
    /// GPU's memory is promised once: what it does not have beside the promises to other VMs is refused.
    /// Without it the soft and null executors have 8G, and the cuda executor has all that is not promised.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,
    /// Memory of the GPU that is promised to no VM [default: 512M]. The largest reserve of the GPU's devices
    /// counts.
    #[arg(long, value_name = "SIZE")]
    pub(crate) reserve: Option<Size>,
    /// Directory in which the devices of a host find each other, so that a GPU's memory is promised once
    /// [default: /run/vgpu-device/gpus for root; for other users the first that they can have of it and of a
    /// directory in XDG_RUNTIME_DIR, /run/user or the directory for temporary files]. Only devices of one
    /// user know of each other there. Devices in containers need one that all of them see.
    #[arg(long, value_name = "DIR")]
    pub(crate) shares: Option<PathBuf>,
    /// Share of the GPU's time relative to that of its other VMs, 1 to 1000, as the node process grants it
    /// (`vgpu-device node`) [default: 1].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    #[serde(deserialize_with = "weight")]
    pub(crate) weight: Option<u32>,
    /// Size of the window that guest and host share, a power of two [default: 256M].
    #[arg(long, value_name = "SIZE")]
    pub(crate) window: Option<Size>,
    /// Number of guest processes that can use the device at a time, 64 at most [default: 64].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) channels: Option<u32>,
    /// Number of the device's range of addresses, 0 to 44, for hosts whose device processes share no
    /// directory, such as containers. No two devices of a VM may have the same; by default each takes a free
    /// one.
    #[arg(
        long,
        value_name = "NUMBER",
        value_parser = clap::value_parser!(u32).range(0..i64::from(ADDRESS_RANGES))
    )]
    pub(crate) address_range: Option<u32>,
    /// Part of that range where the cuda executor allocates, such as 192G+64G: its start and its size. For a
    /// driver that does not provide all of the range [default: all of it].
    #[arg(long, value_name = "OFFSET+SIZE")]
    pub(crate) address_part: Option<Part>,
    /// Group, by name or number, whose users may connect to the bus's socket, too. Without it only this user
    /// may; libvirt runs QEMU as a user of its own, in the group kvm or qemu.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<Group>,
    /// Path of the socket that `status` queries [default: /run/vgpu-device/NAME/control for root, and in
    /// XDG_RUNTIME_DIR for other users]. NAME is the name of the bus's file without its last extension, or
    /// that of its directory if the file is called `device`. For a socket DIR/NAME/control, `status` shows
    /// that NAME.
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Memory of the VM, for the arguments that are printed [default: 4G].
    #[arg(long, value_name = "SIZE")]
    pub(crate) vm_memory: Option<Size>,
    /// PCI slot of the device in the VM, 1 to 31, for the arguments that are printed. Without it the device
    /// is behind a PCIe root port of its own, which needs a machine of the type q35, and where `replug` can
    /// put it in again while the VM runs.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..32))]
    #[serde(deserialize_with = "slot")]
    pub(crate) vm_slot: Option<u8>,
    /// The driver's library, by path or name [default: libcuda.so.1].
    #[arg(long, value_name = "LIBRARY")]
    pub(crate) libcuda: Option<PathBuf>,
    /// cuBLAS, by path or name [default: libcublas.so.13, or libcublas.so.12, as the loader finds them, or of
    /// a toolkit or a Python environment]. The cuBLASLt of its version lies beside it.
    #[arg(long, value_name = "LIBRARY")]
    pub(crate) libcublas: Option<PathBuf>,
    /// User that the cuda executor's worker processes run as, if root starts them [default: vgpu-worker if
    /// there is such a user].
    #[arg(long, value_name = "USER")]
    pub(crate) worker_user: Option<String>,
    /// Whether worker processes may connect to UNIX sockets of this host, for a stand-in of the driver that
    /// finds its device by a socket [default: false].
    #[arg(long, value_name = "BOOL")]
    pub(crate) worker_connects: Option<bool>,
    /// Whether worker processes name each system call that they are refused on stderr, once for each call, to
    /// find out what a new driver needs. For diagnosis only: a refused call of a thread that blocks the
    /// signal SIGSYS ends the process [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) explain_refusals: Option<bool>,
    /// Directory that caches the code that the driver compiles for the cuda executor's worker processes. It
    /// is created if it does not exist, and must belong to this device alone [default: below the unit's
    /// CacheDirectory=; without one nothing is cached].
    #[arg(long, value_name = "DIR")]
    pub(crate) compiled: Option<PathBuf>,
    /// Compute capability that the soft and null executors announce [default: 6.1].
    #[arg(long, value_name = "MAJOR.MINOR")]
    pub(crate) cc: Option<Capability>,
    /// Number of threads of the soft executor that run one kernel, by default one for each CPU.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Time limit of one operation of the soft executor, such as 20m, 90s; without it there is no limit.
    #[arg(long, value_name = "TIME")]
    pub(crate) kernel_timeout: Option<Limit>,
    /// Engine that runs the kernels of the soft executor; by default jit if the processor has AVX2, and
    /// interpreter otherwise.
    #[arg(long, value_enum)]
    pub(crate) engine: Option<Engine>,
    /// Maximum number of calls per second of one machine, on the bus v1; further calls are refused with BUSY.
    #[arg(long, value_name = "CALLS")]
    pub(crate) rate: Option<u32>,
    /// Time for which a machine whose last connection has ended keeps its owners, on the bus v1 [default:
    /// 60s].
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<Period>,
    /// Least severe level that is logged on stderr: error, warn (which includes a line when a VM connects or
    /// leaves), info (which includes the output of kernels), debug [default: warn].
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<Level>,
}

/// Reads a PCI slot of the range that the command line accepts.
fn slot<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u8>, D::Error> {
    let slot = u8::deserialize(from)?;
    if (1..32).contains(&slot) {
        Ok(Some(slot))
    } else {
        Err(serde::de::Error::custom(format!("there is no PCI slot {slot}: expected 1 to 31")))
    }
}

/// Reads a weight of the range that the command line accepts.
fn weight<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let weight = u32::deserialize(from)?;
    if (1..=1000).contains(&weight) {
        Ok(Some(weight))
    } else {
        Err(serde::de::Error::custom(format!("no VM has the weight {weight}: expected 1 to 1000")))
    }
}

impl Settings {
    /// Returns these settings, with those of `other` where one is missing.
    pub(crate) fn or(self, other: Self) -> Self {
        macro_rules! first_given {
            ($($setting:ident)*) => { Self { $($setting: self.$setting.or(other.$setting)),* } };
        }
        first_given! {
            bus executor gpu memory reserve shares weight window channels address_range address_part group control vm_memory
            vm_slot libcuda libcublas worker_user worker_connects explain_refusals compiled cc threads
            kernel_timeout engine rate grace log
        }
    }

    /// Returns the names of the settings that are given.
    pub(crate) fn given(&self) -> Vec<String> {
        macro_rules! given {
            ($($setting:ident)*) => { [$((stringify!($setting), self.$setting.is_some())),*] };
        }
        let all = given! {
            bus executor gpu memory reserve shares weight window channels address_range address_part group control vm_memory
            vm_slot libcuda libcublas worker_user worker_connects explain_refusals compiled cc threads
            kernel_timeout engine rate grace log
        };
        all.into_iter().filter(|(_, given)| *given).map(|(name, _)| name.replace('_', "-")).collect()
    }

    /// Returns the executor that the settings name, which is a GPU by default.
    pub(crate) fn executor(&self) -> ExecutorKind {
        self.executor.unwrap_or(ExecutorKind::Cuda)
    }

    /// Returns the names of the settings that are given but have no effect on the executor.
    pub(crate) fn unused(&self) -> Vec<&'static str> {
        let (cuda, soft) = (ExecutorKind::Cuda, ExecutorKind::Soft);
        let executor = self.executor();
        named([
            ("libcuda", self.libcuda.is_some(), executor == cuda),
            ("libcublas", self.libcublas.is_some(), executor == cuda),
            ("reserve", self.reserve.is_some(), executor == cuda),
            ("shares", self.shares.is_some(), executor == cuda),
            ("weight", self.weight.is_some(), executor == cuda),
            ("address-part", self.address_part.is_some(), executor == cuda),
            ("worker-user", self.worker_user.is_some(), executor == cuda),
            ("worker-connects", self.worker_connects.is_some(), executor == cuda),
            ("explain-refusals", self.explain_refusals.is_some(), executor == cuda),
            ("compiled", self.compiled.is_some(), executor == cuda),
            ("cc", self.cc.is_some(), executor != cuda),
            ("threads", self.threads.is_some(), executor == soft),
            ("kernel-timeout", self.kernel_timeout.is_some(), executor == soft),
            ("engine", self.engine.is_some(), executor == soft),
        ])
    }

    /// Returns the names of the settings that are given but have no effect on `bus`.
    pub(crate) fn misplaced(&self, bus: &Bus) -> Vec<&'static str> {
        let machine = matches!(bus, Bus::VfioUser(_));
        let mediator = matches!(bus, Bus::V1(_));
        named([
            ("group", self.group.is_some(), machine || mediator),
            ("window", self.window.is_some(), !mediator),
            ("channels", self.channels.is_some(), !mediator),
            ("vm-memory", self.vm_memory.is_some(), machine),
            ("vm-slot", self.vm_slot.is_some(), machine),
            ("rate", self.rate.is_some(), mediator),
            ("grace", self.grace.is_some(), mediator),
        ])
    }
}

/// Returns the names of the settings that are given but have no effect, from triples of name, given, and
/// effective.
fn named<const N: usize>(settings: [(&'static str, bool, bool); N]) -> Vec<&'static str> {
    settings.into_iter().filter_map(|(name, given, meant)| (given && !meant).then_some(name)).collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};

    use super::*;
    use crate::config::EXAMPLES;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    /// Returns a valid value for each setting, by name, as a file spells it.
    fn values() -> [(&'static str, &'static str); EXAMPLES.len()] {
        // A system need not have the group of the example.
        EXAMPLES.map(|(name, value)| (name, if name == "group" { "\"107\"" } else { value }))
    }

    fn file(name: &str, value: &str) -> Settings {
        toml::from_str(&format!("{name} = {value}")).unwrap()
    }

    fn line(name: &str, value: &str) -> Settings {
        let matches = Line::command()
            .try_get_matches_from(["x", &format!("--{name}"), value.trim_matches('"')])
            .unwrap();
        Settings::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn file_and_command_line_have_the_same_settings_and_the_line_wins() {
        assert_eq!(Line::command().get_arguments().count(), EXAMPLES.len(), "a setting without an example");
        for (name, value) in values() {
            let (from_file, from_line) = (file(name, value), line(name, value));
            assert_eq!(from_file, from_line, "{name}");
            assert_ne!(from_line, Settings::default(), "{name}");
            assert_eq!(Settings::default().or(from_file.clone()), from_file, "{name} is lost");
        }
        let given = line("memory", "1G").or(file("memory", "\"2G\""));
        assert_eq!(given.memory, Some(Size(1 << 30)));
    }

    #[test]
    fn the_example_is_understood() {
        let text = include_str!("../share/vm1.toml");
        let example: Settings = toml::from_str(text).unwrap();
        let bus = example.bus.clone().expect("a bus");
        assert_eq!((example.misplaced(&bus), example.unused()), (Vec::new(), Vec::new()));
        // The commented settings are valid as well, with a group that every system has.
        let all = text.replace("# gpu =", "gpu =").replace("# group = \"kvm\"", "group = \"root\"");
        let all: Settings = toml::from_str(&all).unwrap();
        assert!(all.gpu.is_some() && all.group.is_some() && all.memory == example.memory);
    }

    #[test]
    fn settings_that_a_bus_has_not_are_named() {
        let all = values().iter().fold(Settings::default(), |all, (name, value)| all.or(line(name, value)));
        let misplaced = |bus: &str| all.misplaced(&bus.parse().unwrap());
        assert_eq!(misplaced("vfio-user:/a"), ["rate", "grace"]);
        assert_eq!(misplaced("sim:/a"), ["group", "vm-memory", "vm-slot", "rate", "grace"]);
        assert_eq!(misplaced("v1:/a"), ["window", "channels", "vm-memory", "vm-slot"]);
    }

    #[test]
    fn settings_that_an_executor_has_not_are_named() {
        let all = values().iter().fold(Settings::default(), |all, (name, value)| all.or(line(name, value)));
        let unused = |executor| Settings { executor, ..all.clone() }.unused();
        let cuda = ["cc", "threads", "kernel-timeout", "engine"];
        assert_eq!(unused(None), cuda, "the GPU, if none is named");
        assert_eq!(unused(Some(ExecutorKind::Cuda)), cuda);
        let of_cuda = [
            "libcuda",
            "libcublas",
            "reserve",
            "shares",
            "weight",
            "address-part",
            "worker-user",
            "worker-connects",
            "explain-refusals",
            "compiled",
        ];
        assert_eq!(unused(Some(ExecutorKind::Soft)), of_cuda);
        let null = [&of_cuda[..], &["threads", "kernel-timeout", "engine"]].concat();
        assert_eq!(unused(Some(ExecutorKind::Null)), null);
        assert!(Settings::default().unused().is_empty());
    }
}
