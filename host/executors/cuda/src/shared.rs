//! What all sessions of an executor share.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use vgpu_device::{Account, Addresses};
use vgpu_wire::AddressRange;
use vgpu_wire::facts::{DeviceFacts, exec};

use crate::driver::blas::library::{Blas, NoBlas};
use crate::driver::device::Device;
use crate::driver::error::DriverError;
use crate::driver::range;
use crate::options::CudaOptions;

/// The GPU, and what is counted and kept for all sessions.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Device,
    pub(crate) account: Arc<Account>,
    /// The addresses at which each session maps its memory.
    pub(crate) range: AddressRange,
    /// A session of this process has its memory there. In one process the driver gives the range once.
    occupied: Arc<AtomicBool>,
    /// Keeps other device processes from the same addresses.
    _addresses: Addresses,
    /// The unit in which memory is made and mapped, bytes.
    pub(crate) granule: u64,
    /// Streams can store words of the host and wait for them.
    pub(crate) stream_operations: bool,
    /// `cuDriverGetVersion`
    driver_version: u32,
    libcublas: Option<PathBuf>,
    /// cuBLAS, or that there is none, once a session has needed it.
    blas: OnceLock<Option<Arc<Blas>>>,
    extensions: OnceLock<u32>,
    contexts: AtomicU64,
    instantiations: AtomicU64,
    /// What was asked for in vain and has been said.
    lacking: Mutex<HashSet<&'static str>>,
}

/// A session's hold on the addresses of its device: no other session of the process has memory there.
#[derive(Debug)]
pub(crate) struct Occupied(Arc<AtomicBool>);

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Shared {
    /// A GPU that guests are told these facts of.
    pub(crate) fn new(
        device: Device,
        options: &CudaOptions,
        facts: &DeviceFacts,
    ) -> Result<Self, DriverError> {
        let granule = range::granularity(&device)?;
        let stream_operations = device.has_stream_memory_operations();
        Ok(Self {
            account: Arc::new(Account::new(facts.total_bytes)),
            range: options.range,
            occupied: Arc::default(),
            _addresses: options.addresses.clone(),
            granule,
            stream_operations,
            driver_version: facts.driver_version,
            libcublas: options.libcublas.clone(),
            blas: OnceLock::new(),
            extensions: OnceLock::new(),
            contexts: AtomicU64::new(0),
            instantiations: AtomicU64::new(0),
            lacking: Mutex::default(),
            device,
        })
    }

    /// cuBLAS, which is loaded now if this is its first use. `None`: there is none, which is said once.
    pub(crate) fn blas(&self) -> Option<&Arc<Blas>> {
        let load = || self.load_blas().inspect_err(|error| tracing::warn!("{error}")).ok();
        self.blas.get_or_init(load).as_ref()
    }

    /// What of the contract's extensions the host's libraries serve, as bits of [`exec`]. They are loaded for
    /// the look, and let go: the process that describes a device may be another than the one that carries out
    /// its sessions' calls, and that one does not ask.
    pub(crate) fn extensions(&self) -> u32 {
        *self.extensions.get_or_init(|| {
            let links = if self.device.has_linker() { exec::LINKS } else { 0 };
            match self.load_blas() {
                Ok(blas) if blas.has_lt() => links | exec::VECTORS | exec::EPILOGUES,
                Ok(_) => links | exec::VECTORS,
                Err(error) => {
                    tracing::warn!("{error}");
                    links
                }
            }
        })
    }

    fn load_blas(&self) -> Result<Arc<Blas>, NoBlas> {
        Blas::load(self.libcublas.as_deref(), self.driver_version)
    }

    /// Takes the addresses for a session. `None`: another session of this process has them.
    pub(crate) fn occupy(&self) -> Option<Occupied> {
        let taken = self.occupied.swap(true, Ordering::Acquire);
        (!taken).then(|| Occupied(Arc::clone(&self.occupied)))
    }

    /// A context was made.
    pub(crate) fn count_context(&self) {
        self.contexts.fetch_add(1, Ordering::Relaxed);
    }

    /// How many contexts were ever made.
    pub(crate) fn contexts(&self) -> u64 {
        self.contexts.load(Ordering::Relaxed)
    }

    /// A graph was instantiated.
    pub(crate) fn count_instantiation(&self) {
        self.instantiations.fetch_add(1, Ordering::Relaxed);
    }

    /// How many graphs were ever instantiated, those included that an update could not change.
    pub(crate) fn instantiations(&self) -> u64 {
        self.instantiations.load(Ordering::Relaxed)
    }

    /// Whether it has not been said yet that the executor lacks something.
    pub(crate) fn first_lack(&self, what: &'static str) -> bool {
        self.lacking.lock().unwrap_or_else(PoisonError::into_inner).insert(what)
    }
}
