//! The number of initialisations, which is the library's only state.

use std::sync::atomic::{AtomicUsize, Ordering};

use vgpu_abi::nvml::{INIT_NO_GPUS, NvmlReturn};

use crate::{Result, driver};

static INITIALISED: AtomicUsize = AtomicUsize::new(0);

/// Counts an initialisation. It needs no CUDA context, but a device that answers, unless `flags` permit that
/// there is none.
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

/// Fails, with the error of the first device, if no device answers.
fn reached() -> Result {
    let mut devices = driver::gpus()?;
    let first = devices.next().unwrap_or(Err(NvmlReturn::DRIVER_NOT_LOADED));
    if first.is_ok() || devices.any(|device| device.is_ok()) { Ok(()) } else { first.map(|_| ()) }
}

/// Undoes one initialisation. As in NVIDIA's library, it is not an error if there is none.
pub fn end() {
    let _ = INITIALISED.try_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
}

/// Fails if calls may not be made. They may be made after initialisation, in the same process, and before it
/// ends.
pub fn required() -> Result {
    if INITIALISED.load(Ordering::Relaxed) == 0 {
        return Err(NvmlReturn::UNINITIALIZED);
    }
    driver::life()
}
