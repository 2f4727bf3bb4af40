//! Settings of `serve`, defined once for the command line and for the configuration file. The command line
//! takes precedence.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use vgpu_device::ADDRESS_RANGES;
use vgpu_wire::area::AREA_BYTES;

use crate::device::CHANNELS;
use crate::engine::Engine;
use crate::executor::ExecutorKind;
use crate::values::{Bus, Capability, Group, Level, Limit, Part, Period, Size, Uuid};

/// Size limit of a configuration file in bytes, which is many times that of any real one.
const MOST: u64 = 1 << 20;

/// Least memory of a GPU or of a VM, in bytes.
const LEAST_MEMORY: u64 = 64 << 20;
/// Largest window in bytes. Firmware reserves twice its size for a root port.
const MOST_WINDOW: u64 = 16 << 30;

/// Reason for which a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("read the configuration file {path}")]
    Read {
        /// Path of the configuration file.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML, has an unknown setting, or gives a setting an invalid value.
    #[error("understand the configuration file {path}")]
    Parse {
        /// Path of the configuration file.
        path: PathBuf,
        /// Parse error, with its line and column.
        source: Box<toml::de::Error>,
    },
}

/// A size that a device or its VM cannot have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} = {value} is not possible: {why}")]
pub(crate) struct SettingError {
    name: &'static str,
    value: Size,
    why: &'static str,
}

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
    /// Least severe level that is logged on stderr: error, warn, info (which includes the output of kernels),
    /// debug [default: warn].
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
    /// Reads the settings of a configuration file.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = vgpu_paths::read_to_string(path, MOST)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        toml::from_str(&text)
            .map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })
    }

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

    /// Checks sizes that a device or its VM could not have.
    ///
    /// # Errors
    /// The error names the setting, its value, and one that would do.
    pub(crate) fn check(&self, bus: &Bus) -> Result<(), SettingError> {
        let wrong = |name, value: Size, why| Err(SettingError { name, value, why });
        if let Some(memory) = self.memory.filter(|memory| memory.0 < LEAST_MEMORY) {
            return wrong("memory", memory, "a GPU has 64M at least, such as 8G");
        }
        if let Some(memory) = self.vm_memory
            && (memory.0 < LEAST_MEMORY || !memory.0.is_multiple_of(1 << 20))
        {
            return wrong("vm-memory", memory, "a VM has 64M at least, in units of 1M, such as 4G");
        }
        let Some(window) = self.window else { return Ok(()) };
        if matches!(bus, Bus::VfioUser(_)) && !window.0.is_power_of_two() {
            return wrong("window", window, "a PCI BAR has a power of two, such as 256M");
        }
        let areas = u64::from(self.channels.unwrap_or(CHANNELS)).saturating_mul(AREA_BYTES);
        if window.0 < areas {
            return wrong(
                "window",
                window,
                "each channel takes 512K of it, and buffers the rest: 256M is usual",
            );
        }
        if window.0 > MOST_WINDOW {
            return wrong(
                "window",
                window,
                "no firmware reserves addresses for more than 16G; 256M is usual",
            );
        }
        Ok(())
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

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    /// A valid value for each setting, by name.
    const VALUES: [(&str, &str); 28] = [
        ("bus", "vfio-user:/run/x"),
        ("executor", "null"),
        ("gpu", "GPU-00112233-4455-6677-8899-aabbccddeeff"),
        ("memory", "3G"),
        ("reserve", "1G"),
        ("shares", "/run/gpus"),
        ("weight", "3"),
        ("window", "64M"),
        ("channels", "7"),
        ("address-range", "6"),
        ("address-part", "192G+64G"),
        ("group", "107"),
        ("control", "/run/control"),
        ("vm-memory", "2G"),
        ("vm-slot", "4"),
        ("libcuda", "/lib/libcuda.so.1"),
        ("libcublas", "libcublas.so.12"),
        ("worker-user", "nobody"),
        ("worker-connects", "true"),
        ("explain-refusals", "true"),
        ("compiled", "/var/cache/compiled"),
        ("cc", "9.0"),
        ("threads", "3"),
        ("kernel-timeout", "20m"),
        ("engine", "jit-avx2"),
        ("rate", "5"),
        ("grace", "5m"),
        ("log", "debug"),
    ];

    /// Settings whose values are numbers or booleans in a file, not strings.
    const BARE: [&str; 8] = [
        "worker-connects",
        "explain-refusals",
        "address-range",
        "channels",
        "vm-slot",
        "threads",
        "rate",
        "weight",
    ];

    fn file(name: &str, value: &str) -> Result<Settings, toml::de::Error> {
        let quote = if BARE.contains(&name) { "" } else { "\"" };
        toml::from_str(&format!("{name} = {quote}{value}{quote}"))
    }

    fn line(name: &str, value: &str) -> Settings {
        let matches = Line::command().try_get_matches_from(["x", &format!("--{name}"), value]).unwrap();
        Settings::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn file_and_command_line_have_the_same_settings_and_the_line_wins() {
        assert_eq!(Line::command().get_arguments().count(), VALUES.len(), "a setting without a value here");
        for (name, value) in VALUES {
            let (from_file, from_line) = (file(name, value).unwrap(), line(name, value));
            assert_eq!(from_file, from_line, "{name}");
            assert_ne!(from_line, Settings::default(), "{name}");
            assert_eq!(Settings::default().or(from_file.clone()), from_file, "{name} is lost");
        }
        let given = line("memory", "1G").or(file("memory", "2G").unwrap());
        assert_eq!(given.memory, Some(Size(1 << 30)));
    }

    #[test]
    fn a_wrong_file_is_told_with_its_line() {
        for (text, place, what) in [
            ("bus = \"sim:/a\"\nmemroy = \"8G\"", "line 2", "memroy"),
            ("\n\nmemory = \"8X\"", "line 3", "expected a size"),
            ("vm-slot = 32", "line 1", "1 to 31"),
            ("weight = 0", "line 1", "1 to 1000"),
            ("bus = \"/a\"", "line 1", "vfio-user:SOCKET"),
            ("executor = \"gpu\"", "line 1", "soft"),
            ("engine = \"avx2\"", "line 1", "jit-avx2"),
        ] {
            let error = toml::from_str::<Settings>(text).unwrap_err().to_string();
            assert!(error.contains(place) && error.contains(what), "{text}: {error}");
        }
        let error = Settings::read(Path::new("/does/not/exist")).unwrap_err();
        assert!(matches!(error, ConfigError::Read { .. }));
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
    fn impossible_sizes_are_named_with_one_that_would_do() {
        let check = |name, value, bus: &str| line(name, value).check(&bus.parse().unwrap());
        for (name, value, bus, why) in [
            ("memory", "0", "vfio-user:/a", "such as 8G"),
            ("memory", "8", "sim:/a", "such as 8G"),
            ("vm-memory", "3M", "vfio-user:/a", "such as 4G"),
            ("vm-memory", "67108865", "vfio-user:/a", "units of 1M"),
            ("window", "96M", "vfio-user:/a", "power of two"),
            ("window", "16M", "sim:/a", "256M is usual"),
            ("window", "64G", "vfio-user:/a", "16G"),
        ] {
            let error = check(name, value, bus).unwrap_err().to_string();
            assert!(error.starts_with(name) && error.contains(why), "{name} {value}: {error}");
        }
        for (name, value, bus) in [("window", "64M", "vfio-user:/a"), ("window", "96M", "sim:/a")] {
            assert_eq!(check(name, value, bus), Ok(()));
        }
        let few = line("window", "4M").or(line("channels", "8"));
        assert_eq!(few.check(&"vfio-user:/a".parse().unwrap()), Ok(()));
    }

    #[test]
    fn settings_that_a_bus_has_not_are_named() {
        let all = VALUES.iter().fold(Settings::default(), |all, (name, value)| all.or(line(name, value)));
        let misplaced = |bus: &str| all.misplaced(&bus.parse().unwrap());
        assert_eq!(misplaced("vfio-user:/a"), ["rate", "grace"]);
        assert_eq!(misplaced("sim:/a"), ["group", "vm-memory", "vm-slot", "rate", "grace"]);
        assert_eq!(misplaced("v1:/a"), ["window", "channels", "vm-memory", "vm-slot"]);
    }

    #[test]
    fn settings_that_an_executor_has_not_are_named() {
        let all = VALUES.iter().fold(Settings::default(), |all, (name, value)| all.or(line(name, value)));
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
