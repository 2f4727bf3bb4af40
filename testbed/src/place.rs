//! The device that `generate`, `agree` and `demo` work on: one started for the purpose, or that of a bus that
//! is there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use vgpu_serve::{Engine, Facts};
use vgpu_testbed::bed::Bed;

/// Names a bus's folder, for the launcher and for us.
const SYSFS: &str = "VGPU_SYSFS";

/// Returns the bus of a device that is there already, if the environment names one.
pub fn others() -> Option<PathBuf> {
    std::env::var_os(SYSFS).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It is on.
    On,
    /// It is off.
    Off,
}

/// Returns the options of the device's process that choose an engine, if one is chosen.
pub fn engine_options(engine: Option<Engine>) -> Vec<&'static str> {
    engine.map(|engine| ["--engine", engine.name()]).into_iter().flatten().collect()
}

/// Options that describe the device.
#[derive(clap::Args, Clone, Debug)]
pub struct DeviceOptions {
    /// What stands behind the device: `soft`; `null`, which computes nothing; `cuda-loop`, the executor for
    /// real GPUs on our own libcuda and a soft device. Not used with `VGPU_SYSFS`.
    #[arg(long, default_value = "soft")]
    executor: String,
    /// Compute capability. Not used with `VGPU_SYSFS`.
    #[arg(long, default_value = "6.1")]
    pub cc: String,
    /// Device memory, such as 8G. Not used with `VGPU_SYSFS`.
    #[arg(long, default_value = "8G")]
    memory: String,
    /// What runs kernels on the soft device; `jit` where the processor has AVX2, else `interpreter`, if not
    /// given. Not used with `VGPU_SYSFS`.
    #[arg(long, value_enum)]
    engine: Option<Engine>,
}

/// A device's bus.
#[derive(Debug)]
pub enum TargetDevice {
    /// Started here, and ended with this value.
    Own(Bed),
    /// Somebody else's, by `VGPU_SYSFS`.
    Others(PathBuf),
}

impl TargetDevice {
    /// Returns the bus that `VGPU_SYSFS` names, or a new one with one device.
    pub fn open(options: &DeviceOptions, adversarial: Option<u64>) -> Result<Self> {
        if let Some(folder) = others() {
            return Ok(Self::Others(folder));
        }
        let bytes = vgpu_device::parse_bytes(&options.memory).context("read the size of device memory")?;
        let facts = Facts {
            address: "0000:00:05.0".to_owned(),
            name: format!("VGPU-STUB {}", options.executor),
            uuid: format!("{:032x}", rand::random::<u128>()),
            cc: options.cc.clone(),
            memory_mib: bytes >> 20,
        };
        let seed = adversarial.map(|seed| seed.to_string());
        let mut more = engine_options(options.engine);
        more.extend(seed.iter().flat_map(|seed| ["--adversarial", seed]));
        Bed::start_with(&options.executor, &[facts], &more).map(Self::Own)
    }

    /// What stands behind the device, for a reader.
    pub fn executor(&self, options: &DeviceOptions) -> String {
        match self {
            Self::Own(_) => format!("the {} executor of this test bed", options.executor),
            Self::Others(folder) => format!("whatever serves {}", folder.display()),
        }
    }

    /// Returns the folder that looks like sysfs.
    pub fn sysfs(&self) -> &Path {
        match self {
            Self::Own(bed) => bed.sysfs(),
            Self::Others(folder) => folder,
        }
    }
}
