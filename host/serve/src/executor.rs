//! Options for the executor behind a device and for its GPU, shared by `device`, `mediator` and `serve`.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use vgpu_device::{ADDRESS_RANGES, Addresses, Executor, GpuConfig, RangeLocks};
use vgpu_executor_cuda::{Cuda, CudaOptions, FoundBlas};
use vgpu_executor_null::{Null, NullOptions};
use vgpu_executor_soft::{Soft, SoftOptions, TestHooks};
use vgpu_vfio_user::record::{Record, RecordedProcess, start_of};
use vgpu_wire::facts::DeviceFacts;
use vgpu_worker::{ProcessWatch, Watched, WorkerConfig, WorkerExecutor, WorkerLock};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::context_cost::GpuQuestion;
use crate::engine::Engine;
use crate::knobs::Knobs;
use crate::ranges::{OfferQuestion, choose, claim};
use crate::share::VmShare;
use crate::values::{Capability, Limit, Part, Size, Uuid};

/// Default size of the device memory, in bytes.
const MEMORY: Size = Size(8 << 30);
/// Default compute capability: the lowest with which programs use integer dot products but no tensor cores.
const CAPABILITY: Capability = Capability((6, 1));
/// Default driver version in the form of `cuDriverGetVersion`: CUDA 13.1, which compiles the PTX of the
/// stock backends.
const DRIVER: u32 = 13_010;
/// Default driver version as text: a driver of CUDA 13.1.
const DRIVER_TEXT: &str = "590.44.01";

/// The executor that carries out the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecutorKind {
    /// The soft executor, on the CPU: memory, copies, kernels from their PTX, matrix products.
    Soft,
    /// The null executor: calls succeed and have no effect, for measurements.
    Null,
    /// The cuda executor: a GPU of this host, through its libcuda. The device has the GPU's facts.
    Cuda,
}

impl ExecutorKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Null => "null",
            Self::Cuda => "cuda",
        }
    }
}

impl fmt::Display for ExecutorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Options for the executor and its GPU.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecutorOptions {
    /// Executor that carries out the calls of guests.
    #[arg(long, value_enum, default_value_t = ExecutorKind::Soft)]
    pub(crate) executor: ExecutorKind,
    /// Compute capability that the soft and null executors announce, such as 6.1.
    #[arg(long, default_value_t = CAPABILITY)]
    pub(crate) cc: Capability,
    /// Device memory that the soft and null executors announce, such as 8G.
    #[arg(long, default_value_t = MEMORY)]
    pub(crate) memory: Size,
    /// Product name that the soft and null executors announce.
    #[arg(long, default_value = vgpu_executor_soft::NAME)]
    pub(crate) name: String,
    /// Library through which the cuda executor drives its GPU; by default `libcuda.so.1` as the loader finds
    /// it.
    #[arg(long, value_name = "PATH")]
    pub(crate) libcuda: Option<PathBuf>,
    /// Library that computes the cuda executor's matrix products; by default `libcublas.so.13` or
    /// `libcublas.so.12`, as the loader finds them, or of a toolkit or a Python environment.
    #[arg(long, value_name = "PATH")]
    pub(crate) libcublas: Option<PathBuf>,
    /// GPU of the cuda executor; the first by default.
    #[arg(long = "gpu", value_name = "UUID")]
    pub(crate) host_gpu: Option<Uuid>,
    /// Device memory that guests get of a real GPU, which is all that contexts leave by default. Set by
    /// `serve`.
    #[arg(skip)]
    pub(crate) gpu_memory: Option<Size>,
    /// Share of the GPU that is promised to the VM, if other devices are to know of it. Set by `serve`.
    #[arg(skip)]
    pub(crate) share: Option<Arc<VmShare>>,
    /// Record of worker processes, for whoever takes this process's place. Set by `serve`.
    #[arg(skip)]
    pub(crate) record: Option<Arc<Record>>,
    /// UUID of the first device; drawn at random by default.
    #[arg(long)]
    pub(crate) uuid: Option<Uuid>,
    /// Number of the first device's range of addresses, 0 to 44; further devices have the ranges that follow.
    /// No two devices of a virtual machine may have the same. By default each takes a range that no other
    /// device of this host has, by a lock in a directory that device processes share. If they share none, as
    /// in containers, give each its own.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(0..i64::from(ADDRESS_RANGES))
    )]
    pub(crate) address_range: Option<u32>,
    /// Part of its range of addresses where the cuda executor allocates, such as 192G+64G, for a driver that
    /// does not provide all of it.
    #[arg(long, value_name = "OFFSET+SIZE")]
    pub(crate) address_part: Option<Part>,
    /// Newest CUDA version that the device supports, in the form of `cuDriverGetVersion`: 13000 is 13.0.
    #[arg(long, default_value_t = DRIVER)]
    pub(crate) driver: u32,
    /// Version of the driver as text.
    #[arg(long, default_value = DRIVER_TEXT)]
    pub(crate) driver_text: String,
    /// Threads of the soft executor that run one kernel; by default one for each CPU.
    #[arg(long)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Time limit of a kernel, product, copy or fill of the soft executor, such as 20m, 90s, 500ms; a plain
    /// number is seconds. After it the operation fails with `CUDA_ERROR_LAUNCH_TIMEOUT`. Without it there is
    /// no limit.
    #[arg(long, value_name = "TIME")]
    pub(crate) kernel_timeout: Option<Limit>,
    /// Time that each launch of the null executor takes, such as 8ms, give or take 2 %. Without it, launches
    /// are complete at once.
    #[arg(long, value_name = "TIME")]
    pub(crate) complete_after: Option<Limit>,
    /// Engine that runs the kernels of the soft executor; by default `jit` if the processor has AVX2, and
    /// `interpreter` otherwise.
    #[arg(long, value_enum)]
    pub(crate) engine: Option<Engine>,
    /// Run each session in a separate, confined worker process, for devices of version 2. Without it the cuda
    /// executor serves one program at a time.
    #[arg(long)]
    pub(crate) worker: bool,
    /// User that worker processes run as, if root starts them. By default it is `vgpu-worker` if there is
    /// such a user.
    #[arg(long, value_name = "USER", requires = "worker")]
    pub(crate) worker_user: Option<String>,
    /// Permit worker processes to connect to UNIX sockets of this host, for a stand-in of the driver that
    /// finds its device by a socket.
    #[arg(long, requires = "worker")]
    pub(crate) worker_connects: bool,
    /// Have worker processes name each system call that they are refused on stderr, once for each call. For
    /// diagnosis only: a refused call of a thread that blocks the signal SIGSYS ends the process.
    #[arg(long, requires = "worker")]
    pub(crate) explain_refusals: bool,
    /// Directory that caches the code that the driver compiles for worker processes, created if it does not
    /// exist. It must belong to this device alone. By default it is below `CACHE_DIRECTORY`; without that
    /// nothing is cached.
    #[arg(long, value_name = "DIR", requires = "worker")]
    pub(crate) compiled: Option<PathBuf>,
}

impl Default for ExecutorOptions {
    fn default() -> Self {
        Self {
            executor: ExecutorKind::Soft,
            cc: CAPABILITY,
            memory: MEMORY,
            name: vgpu_executor_soft::NAME.to_owned(),
            uuid: None,
            libcuda: None,
            libcublas: None,
            host_gpu: None,
            gpu_memory: None,
            share: None,
            record: None,
            address_range: None,
            address_part: None,
            driver: DRIVER,
            driver_text: DRIVER_TEXT.to_owned(),
            threads: None,
            kernel_timeout: None,
            complete_after: None,
            engine: None,
            worker: false,
            worker_user: None,
            worker_connects: false,
            explain_refusals: false,
            compiled: None,
        }
    }
}

/// Command by which this program becomes a worker process.
const WORKER: &str = "worker";

/// Description of an executor, for the process that creates it: this one or a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Description {
    kind: ExecutorKind,
    gpu: GpuConfig,
    libcuda: Option<PathBuf>,
    libcublas: Option<PathBuf>,
    /// Files of cuBLAS, which a worker does not search again. `None` searches them.
    found_blas: Option<FoundBlas>,
    /// Version of the host's driver, which a worker does not look up again. `None` looks it up.
    host_driver: Option<String>,
    host_gpu: Option<[u8; 16]>,
    gpu_memory: Option<u64>,
    /// Whether `gpu_memory` includes what contexts cost.
    promised: bool,
    /// Offset and size in bytes of the part of the addresses that is used, or `None` for all of them.
    address_part: Option<(u64, u64)>,
    threads: Option<NonZeroUsize>,
    kernel_timeout: Option<Duration>,
    complete_after: Option<Duration>,
    engine: Option<Engine>,
    adversarial: Option<u64>,
    /// What the soft executor charges a session for a context.
    context_bytes: u64,
}

/// An executor of workers, as a program leaves it to its successor, which asks the driver nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedExecutor {
    description: Description,
    /// The facts that the device announces, as the guest reads them.
    facts: Vec<u8>,
    memory_unit: u64,
    /// What a context is charged to the VM.
    context_bytes: u64,
}

/// An executor, and what its successor needs.
pub(crate) struct MadeExecutor {
    pub(crate) executor: Arc<dyn Executor>,
    /// `None` for an executor without workers.
    pub(crate) saved: Option<SavedExecutor>,
}

impl SavedExecutor {
    /// Returns the GPU's description, with addresses that are locked by nobody yet.
    pub(crate) const fn gpu(&self) -> &GpuConfig {
        &self.description.gpu
    }

    fn facts(&self) -> Result<DeviceFacts> {
        DeviceFacts::read_from_bytes(&self.facts)
            .map_err(|_| anyhow!("the state has {} bytes of facts about the GPU", self.facts.len()))
    }
}

impl Description {
    /// Makes the executor, in this process.
    pub(crate) fn make(&self) -> Result<Arc<dyn Executor>> {
        Ok(match self.kind {
            ExecutorKind::Soft => {
                let usual = SoftOptions::default();
                let options = SoftOptions {
                    threads: self.threads.unwrap_or(usual.threads),
                    kernel_timeout: self.kernel_timeout,
                    features: self.engine.map_or(Ok(usual.features), Engine::features)?,
                };
                let hooks = TestHooks { adversary: self.adversarial, context_bytes: self.context_bytes };
                Arc::new(Soft::with_hooks(&self.gpu, options, hooks)?)
            }
            ExecutorKind::Null => {
                let options = NullOptions { complete_after: self.complete_after };
                Arc::new(Null::with(&self.gpu, options)?)
            }
            ExecutorKind::Cuda => Arc::new(self.cuda()?),
        })
    }

    /// Makes the executor for a real GPU.
    fn cuda(&self) -> Result<Cuda> {
        let mut range = self.gpu.addresses.range();
        if let Some((offset, bytes)) = self.address_part {
            range.base += offset;
            range.bytes = bytes;
        }
        let usual = CudaOptions::new(self.gpu.addresses.clone());
        let options = CudaOptions {
            contexts: if self.promised { 0 } else { usual.contexts },
            libcuda: self.libcuda.clone(),
            libcublas: self.libcublas.clone(),
            found_blas: self.found_blas.clone(),
            uuid: self.host_gpu,
            memory: self.gpu_memory,
            driver_text: self.host_driver.clone(),
            range,
            ..usual
        };
        Ok(Cuda::new(&options)?)
    }
}

impl ExecutorOptions {
    /// Returns the UUID that `--uuid` gives.
    pub(crate) fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid.map(|uuid| uuid.0)
    }

    /// Returns the device addresses of the process's device with the number `index`, counted from 0.
    fn addresses(&self, index: usize) -> Result<Addresses> {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let (number, locks) =
            (self.address_range.map(|first| first.saturating_add(index)), RangeLocks::of_host());
        // A part is for a driver whose addresses are known.
        if self.executor == ExecutorKind::Cuda && self.address_part.is_none() {
            let question =
                OfferQuestion { libcuda: self.libcuda.clone(), uuid: self.host_gpu.map(|gpu| gpu.0) };
            return choose(&question.ask()?, number, locks);
        }
        Ok(claim(number, 0..ADDRESS_RANGES, locks)?)
    }

    /// Returns the GPU of the process's device with the number `index`, as the options describe it. Its UUID
    /// is not that of `--uuid`, which names one device.
    pub(crate) fn gpu(&self, index: usize) -> Result<GpuConfig> {
        let mut gpu = GpuConfig::new(&self.name)?;
        gpu.addresses = self.addresses(index)?;
        gpu.compute_capability = self.cc.0;
        gpu.memory_bytes = self.memory.0;
        gpu.driver_version = self.driver;
        gpu.driver_text.clone_from(&self.driver_text);
        Ok(gpu)
    }

    /// Returns the directory for code that the driver compiles: the configured one, or one below the
    /// directory that systemd makes for this instance, which no other VM's device uses. The path is absolute,
    /// because workers have a working directory of their own.
    fn compiled(&self) -> Result<Option<PathBuf>> {
        let below = || {
            // One directory for each of the unit's `CacheDirectory=`.
            let directories = std::env::var_os("CACHE_DIRECTORY")?;
            std::env::split_paths(&directories).next().map(|directory| directory.join("compiled"))
        };
        let Some(path) = self.compiled.clone().or_else(below) else { return Ok(None) };
        let path = std::path::absolute(&path).with_context(|| format!("find {}", path.display()))?;
        Ok(Some(path))
    }

    /// Returns whether each session runs in a worker process of its own.
    pub(crate) const fn has_workers(&self) -> bool {
        self.worker
    }

    /// Returns the executor for `gpu`, in this process or in worker processes.
    pub(crate) fn executor(&self, gpu: &GpuConfig, knobs: &Knobs) -> Result<Arc<dyn Executor>> {
        Ok(self.make_executor(gpu, knobs)?.executor)
    }

    /// Makes the executor for `gpu`, in this process or in worker processes.
    pub(crate) fn make_executor(&self, gpu: &GpuConfig, knobs: &Knobs) -> Result<MadeExecutor> {
        let question = || GpuQuestion {
            libcuda: self.libcuda.clone(),
            libcublas: self.libcublas.clone(),
            uuid: self.host_gpu.map(|gpu| gpu.0),
        };
        let promised = self.share.as_ref().map(|share| share.claim(&question())).transpose()?;
        let mut description = Description {
            kind: self.executor,
            gpu: gpu.clone(),
            libcuda: self.libcuda.clone(),
            libcublas: self.libcublas.clone(),
            found_blas: None,
            host_driver: None,
            host_gpu: self.host_gpu.map(|gpu| gpu.0),
            gpu_memory: promised.map(|promised| promised.bytes).or(self.gpu_memory.map(|memory| memory.0)),
            promised: promised.is_some(),
            address_part: self.address_part.map(|part| part.0),
            threads: self.threads,
            kernel_timeout: self.kernel_timeout.map(|limit| limit.0),
            complete_after: self.complete_after.map(|time| time.0),
            engine: self.engine,
            adversarial: knobs.adversarial,
            context_bytes: knobs.context_bytes,
        };
        let executor: Arc<dyn Executor> = match self.executor {
            ExecutorKind::Cuda => {
                let cuda = description.cuda()?;
                description.found_blas = Some(cuda.found_blas());
                Arc::new(cuda)
            }
            _ => description.make()?,
        };
        if self.executor == ExecutorKind::Cuda && executor.facts().driver_text[0] == 0 {
            tracing::warn!(
                "the driver's version is not known: neither /sys/module/nvidia/version nor \
                 /proc/driver/nvidia/version nor NVML (libnvidia-ml.so.1) tells it; programs of the guest that ask \
                 for it may refuse the GPU"
            );
        }
        if !self.worker {
            return Ok(MadeExecutor { executor: knobs.wrapped(executor), saved: None });
        }
        let version = executor.facts().driver_text;
        let version = version.split(|&byte| byte == 0).next().unwrap_or_default();
        description.host_driver = Some(String::from_utf8_lossy(version).into_owned());
        // The executor of this process provides the device's facts; those of the workers carry out messages.
        let saved = SavedExecutor {
            description,
            facts: executor.facts().as_bytes().to_owned(),
            memory_unit: executor.memory_unit(),
            context_bytes: promised.map_or(0, |promised| promised.context_bytes),
        };
        let executor = self.restore_executor(&saved, gpu.addresses.clone(), knobs)?;
        Ok(MadeExecutor { executor, saved: Some(saved) })
    }

    /// Makes the executor in worker processes that was saved. `addresses` are those of its GPU, locked.
    pub(crate) fn restore_executor(
        &self,
        saved: &SavedExecutor,
        addresses: Addresses,
        knobs: &Knobs,
    ) -> Result<Arc<dyn Executor>> {
        let config = WorkerConfig {
            name: saved.description.kind.name(),
            facts: saved.facts()?,
            memory_unit: saved.memory_unit,
            context_bytes: saved.context_bytes,
            lock: self.share.clone().map(|share| WorkerLock::new(move || share.worker_lock())),
            watch: self.record.clone().map(watch),
            addresses,
            program: "/proc/self/exe".into(),
            arguments: vec![WORKER.into()],
            executor: serde_json::to_value(&saved.description)?,
            user: self.worker_user.clone(),
            connects: self.worker_connects,
            explains: self.explain_refusals,
            compiled: self.compiled()?,
        };
        Ok(knobs.wrapped(Arc::new(WorkerExecutor::new(config)?)))
    }
}

/// Returns what records each worker process until it is reaped.
fn watch(record: Arc<Record>) -> ProcessWatch {
    ProcessWatch::new(move |pid| {
        let start = start_of(pid)?.ok_or_else(|| std::io::Error::other("it has ended already"))?;
        let entry = record.add(RecordedProcess { pid, start });
        let entry =
            entry.ok_or_else(|| std::io::Error::other("the record has no room for another worker"))?;
        Ok(Box::new(entry) as Watched)
    })
}
