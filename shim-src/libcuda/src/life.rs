//! The process's life with CUDA: not initialised, attached, initialised, forked away, ended.
//!
//! What is known of the devices hangs from one page that the kernel empties in a forked child
//! (`MADV_WIPEONFORK`), however it was forked. So a child finds nothing and answers not-initialised, and no
//! call has to ask for the process id. Kernels before 4.14 cannot do that; there the process id is asked for.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use vgpu_abi::{CUresult, log};

use crate::Result;
use crate::process::{Devices, Process};
use crate::sync::Mutex;

/// What the page holds. All zeros in a forked child.
struct Page {
    process: AtomicPtr<Process>,
    devices: AtomicPtr<Devices>,
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());
/// The process that the page is about, where the kernel does not empty it; else 0.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// `cuInit` has succeeded, here or in a process that this one was forked from.
static INITIALISED: AtomicBool = AtomicBool::new(false);
/// Exit handlers have run.
static ENDED: AtomicBool = AtomicBool::new(false);
/// Held while a process attaches or initialises.
static BEGIN: Mutex<()> = Mutex::new(());

/// The page, if it is there and about this process.
fn page() -> Option<&'static Page> {
    let page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        return None;
    }
    let owner = OWNER.load(Ordering::Relaxed);
    // SAFETY: getpid has no preconditions.
    if owner != 0 && owner != unsafe { libc::getpid() } {
        return None;
    }
    // SAFETY: `make_page` stores the address of a mapping that is never unmapped, and whose zeros are a valid `Page`.
    Some(unsafe { &*page })
}

fn make_page() -> Result<&'static Page> {
    let old = PAGE.load(Ordering::Acquire);
    let page = if old.is_null() {
        // SAFETY: a new private mapping, no address asked for.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size_of::<Page>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        // SAFETY: the mapping that was just made.
        let wiped = unsafe { libc::madvise(address, size_of::<Page>(), libc::MADV_WIPEONFORK) };
        if wiped != 0 {
            // SAFETY: getpid has no preconditions.
            OWNER.store(unsafe { libc::getpid() }, Ordering::Relaxed);
        }
        PAGE.store(address.cast(), Ordering::Release);
        address.cast()
    } else {
        old
    };
    // SAFETY: as in `page`.
    let page: &'static Page = unsafe { &*page };
    let owner = OWNER.load(Ordering::Relaxed);
    // SAFETY: getpid has no preconditions.
    let process = unsafe { libc::getpid() };
    if owner != 0 && owner != process {
        page.process.store(ptr::null_mut(), Ordering::Relaxed);
        page.devices.store(ptr::null_mut(), Ordering::Relaxed);
        OWNER.store(process, Ordering::Relaxed);
    }
    Ok(page)
}

/// The devices; not-initialised before `cuInit` and in a forked child, deinitialised after exit handlers.
#[inline]
pub fn devices() -> Result<&'static Devices> {
    if let Some(page) = page() {
        let devices = page.devices.load(Ordering::Acquire);
        if !devices.is_null() {
            // SAFETY: `initialise` stores leaked values alone.
            return Ok(unsafe { &*devices });
        }
    }
    Err(why_not())
}

#[cold]
fn why_not() -> CUresult {
    if ENDED.load(Ordering::Relaxed) { CUresult::DEINITIALIZED } else { CUresult::NOT_INITIALIZED }
}

/// Whether this is a forked child of a process that had initialised CUDA.
fn forked() -> bool {
    INITIALISED.load(Ordering::Relaxed)
        && page().is_none_or(|page| page.devices.load(Ordering::Relaxed).is_null())
        && !ENDED.load(Ordering::Relaxed)
}

/// Success, or what every call answers now: for the other shims, initialises nothing.
pub fn status() -> Result {
    if ENDED.load(Ordering::Relaxed) {
        Err(CUresult::DEINITIALIZED)
    } else if forked() {
        Err(CUresult::NOT_INITIALIZED)
    } else {
        Ok(())
    }
}

/// The process's functions on the bus, found at the first call; attaches to none.
pub fn attached() -> Result<&'static Process> {
    status()?;
    let _begin = BEGIN.lock();
    attached_locked()
}

fn attached_locked() -> Result<&'static Process> {
    static AT_EXIT: AtomicBool = AtomicBool::new(false);
    status()?;
    let page = make_page()?;
    let process = page.process.load(Ordering::Acquire);
    if !process.is_null() {
        // SAFETY: leaked values alone are stored, below.
        return Ok(unsafe { &*process });
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
    page.process.store(ptr::from_ref(process).cast_mut(), Ordering::Release);
    Ok(process)
}

/// `cuInit`. A failure is not remembered: the next call looks again.
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
    make_page()?.devices.store(ptr::from_ref(devices).cast_mut(), Ordering::Release);
    INITIALISED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Ends the sessions. Other threads may be anywhere: they find the page empty, or their session closed.
extern "C" fn at_exit() {
    vgpu_abi::export::guard("exit handler", || {
        let process = page().map(|page| {
            page.devices.store(ptr::null_mut(), Ordering::Release);
            page.process.swap(ptr::null_mut(), Ordering::AcqRel)
        });
        ENDED.store(true, Ordering::Release);
        if let Some(process) = process.filter(|process| !process.is_null()) {
            // SAFETY: leaked values alone are stored. In a forked child the page is empty, so that the
            // parent's sessions are not reached from there.
            unsafe { &*process }.close();
        }
    });
}
