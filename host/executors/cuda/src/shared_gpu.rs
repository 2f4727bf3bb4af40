//! State that all sessions of an executor share.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use vgpu_device::{Addresses, MemoryPool, lock_tracked};
use vgpu_wire::AddressRange;
use vgpu_wire::facts::{DeviceFacts, exec};

use crate::driver::blas::library::{Blas, BlasFiles};
use crate::driver::device::DriverDevice;
use crate::driver::error::DriverError;
use crate::driver::range;
use crate::options::CudaOptions;

/// The GPU, and the counts and caches that all sessions share.
#[derive(Debug)]
pub(crate) struct SharedGpu {
    pub(crate) device: DriverDevice,
    pub(crate) account: Arc<MemoryPool>,
    /// Address range in which each session maps its memory.
    pub(crate) range: AddressRange,
    /// Whether a session of this process uses the range. The driver gives a process the range once.
    occupied: Arc<AtomicBool>,
    /// Keeps the addresses reserved against other device processes.
    _addresses: Addresses,
    /// Unit of device memory, in bytes.
    pub(crate) granule: u64,
    /// Whether streams can store words of the host and wait for them.
    pub(crate) stream_operations: bool,
    /// Whether graphs have programmatic edges. False once the driver has refused a graph for them.
    edges: AtomicBool,
    /// Version of the driver from `cuDriverGetVersion`: 1000 × major + 10 × minor.
    driver_version: u32,
    libcublas: Option<PathBuf>,
    /// Directory in place of `/`, in which cuBLAS is searched.
    root: PathBuf,
    /// The files of cuBLAS that the host has, searched when they are first needed.
    blas_files: OnceLock<Vec<BlasFiles>>,
    /// cuBLAS, loaded when a session first needs it. `None` if the host has none.
    blas: OnceLock<Option<Arc<Blas>>>,
    contexts: AtomicU64,
    instantiations: AtomicU64,
    /// Unsupported features that were logged.
    lacking: Mutex<HashSet<&'static str>>,
}

/// A session's use of the device's addresses. No other session of the process may map memory there.
#[derive(Debug)]
pub(crate) struct Occupied(Arc<AtomicBool>);

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl SharedGpu {
    /// Creates the state of a GPU that announces these facts.
    pub(crate) fn new(
        device: DriverDevice,
        options: &CudaOptions,
        facts: &DeviceFacts,
    ) -> Result<Self, DriverError> {
        let granule = range::granularity(&device)?;
        let stream_operations = device.has_stream_memory_operations();
        Ok(Self {
            account: Arc::new(MemoryPool::new(facts.total_bytes)),
            range: options.range,
            occupied: Arc::default(),
            _addresses: options.addresses.clone(),
            granule,
            stream_operations,
            edges: AtomicBool::new(facts.abilities & exec::EDGES != 0),
            driver_version: facts.driver_version,
            libcublas: options.libcublas.clone(),
            root: options.root.clone(),
            blas_files: options.found_blas.clone().map_or_else(OnceLock::new, |found| found.0.into()),
            blas: OnceLock::new(),
            contexts: AtomicU64::new(0),
            instantiations: AtomicU64::new(0),
            lacking: Mutex::default(),
            device,
        })
    }

    /// Returns the files of cuBLAS. Searches for them on the first call. Their absence is logged once.
    pub(crate) fn blas_files(&self) -> &[BlasFiles] {
        let path = self.libcublas.as_deref();
        let find = || BlasFiles::find(path, self.driver_version, &self.root);
        self.blas_files
            .get_or_init(|| find().inspect_err(|error| tracing::warn!("{error}")).unwrap_or_default())
    }

    /// Returns cuBLAS, and loads it on the first call. Its absence is logged once.
    pub(crate) fn blas(&self) -> Option<&Arc<Blas>> {
        let load = || match self.blas_files() {
            [] => None,
            files => Blas::load(files).inspect_err(|error| tracing::warn!("{error}")).ok(),
        };
        self.blas.get_or_init(load).as_ref()
    }

    /// Returns the contract's extensions that the host's libraries support, as bits of [`exec`]. The
    /// libraries are not loaded for this query, because another process may carry out the calls: their files
    /// tell which functions they have.
    pub(crate) fn extensions(&self) -> u32 {
        let links = if self.device.has_linker() { exec::LINKS } else { 0 };
        let Some(files) = self.blas_files().first() else { return links };
        match files.lacks_lt() {
            None => links | exec::VECTORS | exec::EPILOGUES,
            Some(why) => {
                if self.first_lack("cuBLASLt") {
                    tracing::warn!(
                        "products with epilogues are refused, because there is no cuBLASLt: {why}"
                    );
                }
                links | exec::VECTORS
            }
        }
    }

    /// Takes the addresses for a session. Returns `None` if another session of this process uses them.
    pub(crate) fn occupy(&self) -> Option<Occupied> {
        let taken = self.occupied.swap(true, Ordering::Acquire);
        (!taken).then(|| Occupied(Arc::clone(&self.occupied)))
    }

    /// Counts a context that was created.
    pub(crate) fn count_context(&self) {
        self.contexts.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of contexts that were ever created.
    pub(crate) fn contexts(&self) -> u64 {
        self.contexts.load(Ordering::Relaxed)
    }

    /// Counts a graph that was instantiated.
    pub(crate) fn count_instantiation(&self) {
        self.instantiations.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of graphs that were ever instantiated, including those that an update could not
    /// change.
    pub(crate) fn instantiations(&self) -> u64 {
        self.instantiations.load(Ordering::Relaxed)
    }

    /// Returns whether graphs have programmatic edges.
    pub(crate) fn has_edges(&self) -> bool {
        self.edges.load(Ordering::Relaxed)
    }

    /// Records that the driver takes a graph only without its programmatic edges.
    pub(crate) fn give_up_edges(&self, why: &DriverError) {
        if self.edges.swap(false, Ordering::Relaxed) {
            tracing::warn!("kernels of graphs do not overlap, because the driver refuses that: {why}");
        }
    }

    /// Records that a feature is missing. Returns whether this was not known before.
    pub(crate) fn first_lack(&self, what: &'static str) -> bool {
        lock_tracked(&self.lacking).insert(what)
    }
}
