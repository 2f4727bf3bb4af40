//! Options that name what stands behind devices: the executor and its GPU. Both commands have them.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use vgpu_device::{
    ADDRESS_RANGES, Addresses, ClaimError, Executor, GpuConfig, RangeLocks, parse_bytes,
    parse_compute_capability, parse_uuid,
};
use vgpu_executor_cuda::{Cuda, CudaOptions};
use vgpu_executor_null::Null;
use vgpu_executor_soft::{Soft, SoftOptions, TestHooks};
use vgpu_worker::{WorkerConfig, WorkerExecutor};

use crate::knobs::Knobs;

/// What stands behind the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum ExecutorKind {
    /// Carries calls out on the CPU: memory, copies, kernels from their PTX, matrix products.
    Soft,
    /// Answers success and does nothing: for measuring.
    Null,
    /// A GPU of this host, through its libcuda. Which facts the devices have is the GPU's to say.
    Cuda,
}

/// Options.
#[derive(clap::Args)]
pub(crate) struct ExecutorOptions {
    /// What stands behind the devices.
    #[arg(long, value_enum, default_value_t = ExecutorKind::Soft)]
    executor: ExecutorKind,
    /// Compute capability.
    #[arg(long, default_value = "6.1", value_parser = capability)]
    cc: (u32, u32),
    /// Device memory, such as 8G.
    #[arg(long, default_value = "8G", value_parser = parse_size)]
    memory: u64,
    /// Product name.
    #[arg(long, default_value = vgpu_executor_soft::NAME)]
    name: String,
    /// The library through which the cuda executor drives its GPU; `libcuda.so.1` as the loader finds it, if not
    /// given.
    #[arg(long, value_name = "PATH")]
    libcuda: Option<PathBuf>,
    /// The GPU of the cuda executor; the first, if not given.
    #[arg(long = "gpu", value_name = "UUID", value_parser = uuid)]
    host_gpu: Option<[u8; 16]>,
    /// UUID; drawn at random if not given.
    #[arg(long, value_parser = uuid)]
    uuid: Option<[u8; 16]>,
    /// The device addresses of the first device, as the number of a range, 0 to 44; further devices have those
    /// that follow. No two devices of a virtual machine may have the same. Without it each takes a range that
    /// no other device of this host has, by a lock in a directory that device processes share: where they
    /// share none, as in containers, give each its own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..i64::from(ADDRESS_RANGES)))]
    address_range: Option<u32>,
    /// `cuDriverGetVersion`: the newest CUDA that the device supports.
    #[arg(long, default_value_t = 13_000)]
    driver: u32,
    /// Version text of the driver.
    #[arg(long, default_value = "580.65.06")]
    driver_text: String,
    /// Threads of the soft executor that run one kernel; one for each CPU if not given.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// How long a kernel, product, copy or fill of the soft executor may take before it fails with
    /// `CUDA_ERROR_LAUNCH_TIMEOUT`, such as 20m, 90s, 500ms; a plain number is seconds. Without it there is
    /// no limit.
    #[arg(long, value_name = "TIME", value_parser = limit)]
    kernel_timeout: Option<Duration>,
    /// Run each session in a confined worker process of its own. For devices of version 2.
    #[arg(long)]
    worker: bool,
    /// The user that worker processes run as, where root starts them. Without it, `vgpu-worker` if there is such
    /// a user.
    #[arg(long, value_name = "USER", requires = "worker")]
    worker_user: Option<String>,
}

/// The command by which this program is a worker process.
const WORKER: &str = "worker";

/// All that an executor is made of, for the process that makes it: this one, or a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Description {
    kind: ExecutorKind,
    gpu: GpuConfig,
    libcuda: Option<PathBuf>,
    host_gpu: Option<[u8; 16]>,
    threads: Option<NonZeroUsize>,
    kernel_timeout: Option<Duration>,
    adversarial: Option<u64>,
}

impl Description {
    /// Makes the executor.
    pub(crate) fn make(&self) -> Result<Arc<dyn Executor>> {
        Ok(match self.kind {
            ExecutorKind::Soft => {
                let usual = SoftOptions::default();
                let options = SoftOptions {
                    threads: self.threads.unwrap_or(usual.threads),
                    kernel_timeout: self.kernel_timeout,
                };
                let hooks = TestHooks { adversary: self.adversarial };
                Arc::new(Soft::with_hooks(&self.gpu, options, hooks)?)
            }
            ExecutorKind::Null => Arc::new(Null::new(&self.gpu)?),
            ExecutorKind::Cuda => {
                let usual = CudaOptions::new(self.gpu.addresses.range().base);
                let options = CudaOptions { libcuda: self.libcuda.clone(), uuid: self.host_gpu, ..usual };
                // The options name the addresses alone. They stay this process's for as long as it serves.
                std::mem::forget(self.gpu.addresses.clone());
                Arc::new(Cuda::new(&options)?)
            }
        })
    }
}

/// Reads a size such as `8G`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "expected a size such as 8G, 512M".to_owned())
}

fn capability(text: &str) -> Result<(u32, u32), String> {
    parse_compute_capability(text).ok_or_else(|| "expected MAJOR.MINOR".to_owned())
}

/// Reads a limit of time: "20m", "1.5h", "500ms", "60", which are seconds.
fn limit(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let number: f64 = digits.parse().unwrap_or(f64::NAN);
    Duration::try_from_secs_f64(number * unit)
        .ok()
        .filter(|limit| !limit.is_zero())
        .ok_or_else(|| "expected a time such as 20m, 90s, 500ms, 1h; a plain number is seconds".to_owned())
}

fn uuid(text: &str) -> Result<[u8; 16], String> {
    parse_uuid(text).ok_or_else(|| "expected a UUID".to_owned())
}

impl ExecutorOptions {
    /// The UUID that was given.
    pub(crate) const fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid
    }

    /// The device addresses of the device `index` of this process, counted from 0.
    fn addresses(&self, index: usize) -> Result<Addresses, ClaimError> {
        let Some(first) = self.address_range else { return RangeLocks::of_host()?.draw() };
        // Where there is nowhere to lock, what was chosen counts all the same.
        let locks = RangeLocks::of_host().ok();
        Addresses::chosen(first.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)), locks.as_ref())
    }

    /// The GPU of the device `index` of this process as the options describe it, but for its UUID, which
    /// names one.
    pub(crate) fn gpu(&self, index: usize) -> Result<GpuConfig> {
        let mut gpu = GpuConfig::new(&self.name)?;
        gpu.addresses = self.addresses(index)?;
        gpu.compute_capability = self.cc;
        gpu.memory_bytes = self.memory;
        gpu.driver_version = self.driver;
        gpu.driver_text.clone_from(&self.driver_text);
        Ok(gpu)
    }

    /// Whether sessions run in worker processes.
    pub(crate) const fn has_workers(&self) -> bool {
        self.worker
    }

    /// The executor of a GPU.
    pub(crate) fn executor(&self, gpu: &GpuConfig, knobs: &Knobs) -> Result<Arc<dyn Executor>> {
        let description = Description {
            kind: self.executor,
            gpu: gpu.clone(),
            libcuda: self.libcuda.clone(),
            host_gpu: self.host_gpu,
            threads: self.threads,
            kernel_timeout: self.kernel_timeout,
            adversarial: knobs.adversarial,
        };
        let executor = description.make()?;
        if !self.worker {
            return Ok(knobs.wrapped(executor));
        }
        // The executor here says what the device is; those in the workers carry messages out.
        let config = WorkerConfig {
            name: executor.name(),
            facts: executor.facts(),
            program: "/proc/self/exe".into(),
            arguments: vec![WORKER.into()],
            executor: serde_json::to_value(&description)?,
            user: self.worker_user.clone(),
        };
        Ok(knobs.wrapped(Arc::new(WorkerExecutor::new(config)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--kernel-timeout 20m` sets a limit; the option takes units.
    #[test]
    fn a_kernel_timeout_takes_units() {
        for (text, millis) in [
            ("20m", 1_200_000),
            ("2min", 120_000),
            ("90s", 90_000),
            ("60", 60_000),
            ("0.5", 500),
            ("500ms", 500),
            ("1.5h", 5_400_000),
        ] {
            assert_eq!(limit(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "m", "20 m", "20d", "-1", "0", "0s", "nan", "inf", "1e300h", "20m30s"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
