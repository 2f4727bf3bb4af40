//! How often the library has been initialised, the only state that it has.

use std::sync::atomic::{AtomicUsize, Ordering};

use vgpu_abi::nvml::{INIT_NO_GPUS, NvmlReturn};

use crate::{Result, driver};

static INITIALISED: AtomicUsize = AtomicUsize::new(0);

/// Initialises once more. Needs no CUDA context; a device that answers, unless `flags` say otherwise.
pub fn begin(flags: u32) -> Result {
    vgpu_abi::export::quiet_panics();
    match reached() {
        Ok(()) => {}
        Err(NvmlReturn::DRIVER_NOT_LOADED) if flags & INIT_NO_GPUS != 0 => {}
        Err(status) => return Err(status),
    }
    INITIALISED.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Whether one of the devices answers: what stops the first, if none does.
fn reached() -> Result {
    let mut devices = driver::gpus()?;
    let first = devices.next().unwrap_or(Err(NvmlReturn::DRIVER_NOT_LOADED));
    if first.is_ok() || devices.any(|device| device.is_ok()) { Ok(()) } else { first.map(|_| ()) }
}

/// Takes one initialisation back. NVIDIA's library says nothing when there is none, so this does not either.
pub fn end() {
    let _ = INITIALISED.try_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
}

/// Whether calls may be made: after initialisation, in the process that did it, before its end.
pub fn required() -> Result {
    if INITIALISED.load(Ordering::Relaxed) == 0 {
        return Err(NvmlReturn::UNINITIALIZED);
    }
    driver::life()
}
