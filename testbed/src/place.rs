//! The device that `generate`, `agree` and `demo` work on: one started for the purpose, or that of a bus that
//! is there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use vgpu_serve::{Engine, Facts};
use vgpu_testbed::bed::Bed;

/// Environment variable that names a bus's directory, for the launcher and the test bed.
const SYSFS: &str = "VGPU_SYSFS";

/// Returns the bus of an existing device, if `VGPU_SYSFS` names one.
pub fn others() -> Option<PathBuf> {
    std::env::var_os(SYSFS).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// The setting is enabled.
    On,
    /// The setting is disabled.
    Off,
}

/// Returns the options of the device process that select an engine, if one was chosen.
pub fn engine_options(engine: Option<Engine>) -> Vec<&'static str> {
    engine.map(|engine| ["--engine", engine.name()]).into_iter().flatten().collect()
}

/// Options that describe the device.
#[derive(clap::Args, Clone, Debug)]
pub struct DeviceOptions {
    /// Executor of the device: `soft`; `null`, which computes nothing; or `cuda-loop`, the executor for real
    /// GPUs on our own libcuda and a soft device. Not used with `VGPU_SYSFS`.
    #[arg(long, default_value = "soft")]
    executor: String,
    /// Compute capability. Not used with `VGPU_SYSFS`.
    #[arg(long, default_value = "6.1")]
    pub cc: String,
    /// Device memory, such as 8G. Not used with `VGPU_SYSFS`.
    #[arg(long, default_value = "8G")]
    memory: String,
    /// Engine that runs kernels on the soft device; by default `jit` if the processor has AVX2, else
    /// `interpreter`. Not used with `VGPU_SYSFS`.
    #[arg(long, value_enum)]
    engine: Option<Engine>,
}

/// Bus of the device to use.
#[derive(Debug)]
pub enum TargetDevice {
    /// A bus that this process started and stops when the value is dropped.
    Own(Bed),
    /// An existing bus that `VGPU_SYSFS` names.
    Others(PathBuf),
}

impl TargetDevice {
    /// Returns the bus that `VGPU_SYSFS` names, or starts one with a single device.
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

    /// Returns a readable description of the device's executor.
    pub fn executor(&self, options: &DeviceOptions) -> String {
        match self {
            Self::Own(_) => format!("the {} executor of this test bed", options.executor),
            Self::Others(folder) => format!("whatever serves {}", folder.display()),
        }
    }

    /// Returns the directory that imitates sysfs.
    pub fn sysfs(&self) -> &Path {
        match self {
            Self::Own(bed) => bed.sysfs(),
            Self::Others(folder) => folder,
        }
    }
}
