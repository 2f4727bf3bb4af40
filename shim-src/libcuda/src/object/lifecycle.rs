//! Life cycle of a process that uses CUDA: not initialised, bus scanned, initialised, forked, ended.
//!
//! The devices are reached through two words that read as 0 in a forked child, however it was forked
//! ([`vgpu_transport::wiped`]). So a child finds no devices and returns not-initialised, and no call has to
//! compare process ids.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use vgpu_abi::driver::CUdevice;
use vgpu_abi::{CUresult, log};
use vgpu_transport::wiped;

use crate::Result;
use crate::object::gpu::Gpu;
use crate::object::process::{Devices, Process};
use crate::sync::Mutex;

/// Address of the two words, null until the bus is first scanned. The address is the same in a forked child.
static WORDS: AtomicPtr<[AtomicUsize; 2]> = AtomicPtr::new(ptr::null_mut());
/// Whether `cuInit` has succeeded, here or in a process that this one was forked from.
static INITIALISED: AtomicBool = AtomicBool::new(false);
/// Whether exit handlers have run.
static ENDED: AtomicBool = AtomicBool::new(false);
/// Held while the process scans the bus or initialises CUDA.
static BEGIN: Mutex<()> = Mutex::new(());

/// The two words, each the address of a leaked value or 0.
struct Page {
    process: &'static AtomicUsize,
    devices: &'static AtomicUsize,
}

impl Page {
    #[inline]
    fn from_counters([process, devices]: &'static [AtomicUsize; 2]) -> Self {
        Self { process, devices }
    }

    #[inline]
    fn process(&self) -> Option<&'static Process> {
        let process = ptr::with_exposed_provenance::<Process>(self.process.load(Ordering::Acquire));
        // SAFETY: null, or what `attached_locked` leaked, which nobody changes or frees.
        unsafe { process.as_ref() }
    }

    #[inline]
    fn devices(&self) -> Option<&'static Devices> {
        let devices = ptr::with_exposed_provenance::<Devices>(self.devices.load(Ordering::Acquire));
        // SAFETY: null, or what `initialise` leaked, which nobody changes or frees.
        unsafe { devices.as_ref() }
    }
}

/// Returns the two words, if they exist.
#[inline]
fn page() -> Option<Page> {
    let words = WORDS.load(Ordering::Acquire);
    // SAFETY: null, or what `make_page` stored, which lives as long as the process.
    unsafe { words.as_ref() }.map(Page::from_counters)
}

fn make_page() -> Page {
    let words = wiped();
    WORDS.store(ptr::from_ref(words).cast_mut(), Ordering::Release);
    Page::from_counters(words)
}

/// Returns the devices. Fails with not-initialised before `cuInit` and in a forked child, and with
/// deinitialised after exit handlers.
#[inline]
pub fn devices() -> Result<&'static Devices> {
    page().and_then(|page| page.devices()).ok_or_else(why_not)
}

#[cold]
fn why_not() -> CUresult {
    if ENDED.load(Ordering::Relaxed) { CUresult::DEINITIALIZED } else { CUresult::NOT_INITIALIZED }
}

/// Returns the device of an ordinal.
pub fn device(ordinal: CUdevice) -> Result<&'static Gpu> {
    let devices = devices()?;
    usize::try_from(ordinal)
        .ok()
        .and_then(|ordinal| devices.get(ordinal))
        .copied()
        .ok_or(CUresult::INVALID_DEVICE)
}

/// Returns whether this is a forked child of a process that had initialised CUDA.
fn forked() -> bool {
    INITIALISED.load(Ordering::Relaxed)
        && page().is_none_or(|page| page.devices().is_none())
        && !ENDED.load(Ordering::Relaxed)
}

/// Returns the error that every call returns now, for the other shims. Initialises nothing.
pub fn status() -> Result {
    if ENDED.load(Ordering::Relaxed) {
        Err(CUresult::DEINITIALIZED)
    } else if forked() {
        Err(CUresult::NOT_INITIALIZED)
    } else {
        Ok(())
    }
}

/// Returns the process's functions on the bus. The first call scans the bus but opens no device.
pub fn attached() -> Result<&'static Process> {
    status()?;
    let _begin = BEGIN.lock();
    attached_locked()
}

fn attached_locked() -> Result<&'static Process> {
    static AT_EXIT: AtomicBool = AtomicBool::new(false);
    status()?;
    let page = make_page();
    if let Some(process) = page.process() {
        return Ok(process);
    }
    vgpu_abi::export::quiet_panics();
    let process: &'static Process = Box::leak(Box::new(Process::discover()?));
    if !AT_EXIT.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function of this object; the C library runs it when the process exits or
        // this object is unloaded, whichever is first.
        if unsafe { libc::atexit(at_exit) } != 0 {
            log::warn(format_args!("failed to register an exit handler: the host will notice the end late"));
        }
    }
    page.process.store(ptr::from_ref(process).expose_provenance(), Ordering::Release);
    Ok(process)
}

/// Initialises CUDA. A failure is not remembered, so the next call tries again.
pub fn initialise() -> Result {
    if devices().is_ok() {
        return Ok(());
    }
    status()?;
    let _begin = BEGIN.lock();
    if devices().is_ok() {
        return Ok(());
    }
    let process = attached_locked()?;
    let devices = process.visible()?;
    if devices.is_empty() {
        return Err(CUresult::NO_DEVICE);
    }
    let devices: &'static Devices = Box::leak(Box::new(devices));
    make_page().devices.store(ptr::from_ref(devices).expose_provenance(), Ordering::Release);
    INITIALISED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Ends the sessions. Other threads may be in any call: they find the words cleared, or their session closed.
extern "C" fn at_exit() {
    vgpu_abi::export::guard("exit handler", || {
        // In a forked child the words are empty, so that the parent's sessions are not reached from there.
        let process = page().and_then(|page| {
            let process = page.process();
            page.devices.store(0, Ordering::Release);
            page.process.store(0, Ordering::Release);
            process
        });
        ENDED.store(true, Ordering::Release);
        if let Some(process) = process {
            process.close();
        }
    });
}
