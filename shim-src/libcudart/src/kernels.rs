//! Finds the driver's kernel for a host stub, as each launch needs it.
//!
//! A thread caches the results in a small table of its own, indexed by address without a lock; behind it are
//! a map of the process and then the registrations. Unregistering a fat binary invalidates every thread's
//! table at once.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vgpu_abi::driver::{CUfunction, CUkernel};
use vgpu_abi::runtime::CudaError;

use crate::{process, registry};

/// Number of lines of a thread's table, a power of two. A decoder runs about thirty different kernels for a
/// token.
const LINES: usize = 256;

struct ThreadCache {
    generation: Cell<u32>,
    /// Address of the host stub and its kernel; address 0 marks an empty line.
    lines: [Cell<(usize, CUkernel)>; LINES],
}

thread_local! {
    static TABLE: ThreadCache = const {
        ThreadCache { generation: Cell::new(0), lines: [const { Cell::new((0, CUkernel::NULL)) }; LINES] }
    };
}

/// Number of times that the tables of all threads have been invalidated.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A kernel that has been launched or looked up.
#[derive(Clone, Copy)]
struct CachedKernel {
    /// Address of its host stub.
    host: usize,
    kernel: CUkernel,
    /// Number of its fat binary.
    fatbin: u32,
}

/// Kernels that any thread has looked up, and those whose handles the program has.
struct KernelCache {
    /// Kernels by the addresses of their host stubs, sorted.
    entries: Vec<CachedKernel>,
    /// Kernels whose handles were returned to the program, which may pass them in place of a host stub;
    /// sorted.
    handed: Vec<CUkernel>,
}

static KNOWN: Mutex<KernelCache> = Mutex::new(KernelCache { entries: Vec::new(), handed: Vec::new() });

impl KernelCache {
    fn find(&self, host: usize) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&host, |known| known.host)
    }

    fn find_handed(&self, kernel: usize) -> Result<usize, usize> {
        self.handed.binary_search_by_key(&kernel, |handed| handed.0)
    }
}

fn known() -> MutexGuard<'static, KernelCache> {
    // A panic here could only come from an allocation, between complete states.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
fn line(host: usize) -> usize {
    // Functions are aligned to 16 bytes; the multiplier is the golden ratio's, which spreads neighbours.
    (host >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - LINES.trailing_zeros())
}

/// Returns the kernel of a host stub. The process must be initialised.
#[inline]
pub fn from_host(host: *const c_void) -> Result<CUkernel, CudaError> {
    let generation = GENERATION.load(Ordering::Acquire);
    TABLE.with(|table| {
        let line = &table.lines[line(host.addr())];
        let (address, kernel) = line.get();
        if address == host.addr() && address != 0 && table.generation.get() == generation {
            return Ok(kernel);
        }
        let kernel = find(host)?;
        if table.generation.replace(generation) != generation {
            table.lines.iter().for_each(|line| line.set((0, CUkernel::NULL)));
        }
        line.set((host.addr(), kernel));
        Ok(kernel)
    })
}

#[cold]
fn find(host: *const c_void) -> Result<CUkernel, CudaError> {
    // A forked child, and a process that is exiting, fail here, before a lock that another thread may have
    // held.
    process::runtime()?;
    {
        let known = known();
        if let Ok(index) = known.find(host.addr()) {
            return Ok(known.entries[index].kernel);
        }
    }
    let Some(found) = registry::function(host) else {
        let handed = !host.is_null() && known().find_handed(host.addr()).is_ok();
        return if handed { Ok(CUkernel(host.addr())) } else { Err(CudaError::INVALID_DEVICE_FUNCTION) };
    };
    let library = found.fatbin.library()?;
    let mut kernel = CUkernel::NULL;
    match cu!(cuLibraryGetKernel(&raw mut kernel, library, found.name)) {
        Err(CudaError::SYMBOL_NOT_FOUND) => return Err(CudaError::INVALID_DEVICE_FUNCTION),
        answer => answer?,
    }
    let mut known = known();
    if let Err(place) = known.find(host.addr()) {
        known.entries.insert(place, CachedKernel { host: host.addr(), kernel, fatbin: found.number });
    }
    Ok(kernel)
}

/// Records that the program has the handle of a kernel, and returns the handle.
pub fn hand(kernel: CUkernel) -> CUkernel {
    let mut known = known();
    if let Err(place) = known.find_handed(kernel.0) {
        known.handed.insert(place, kernel);
    }
    kernel
}

/// Returns the host stub of the kernel that the driver returned for a graph's node, given as a kernel or as
/// its function in the thread's context. Returns `None` if no such kernel was registered or used.
pub fn host_of(kernel: CUkernel, function: CUfunction) -> Option<usize> {
    let known = known();
    if let Some(entry) = known.entries.iter().find(|entry| entry.kernel == kernel) {
        return Some(entry.host);
    }
    let is = |entry: &&CachedKernel| {
        let mut own = CUfunction::NULL;
        cu!(cuKernelGetFunction(&raw mut own, entry.kernel)).is_ok() && own == function
    };
    known.entries.iter().find(is).map(|entry| entry.host)
}

/// Removes the kernels of the fat binary with this index.
pub fn forget(fatbin: u32) {
    let mut known = known();
    let before = known.entries.len();
    let KernelCache { entries, handed } = &mut *known;
    handed.retain(|&kernel| !entries.iter().any(|known| known.fatbin == fatbin && known.kernel == kernel));
    entries.retain(|known| known.fatbin != fatbin);
    if entries.len() != before {
        GENERATION.fetch_add(1, Ordering::Release);
    }
}
