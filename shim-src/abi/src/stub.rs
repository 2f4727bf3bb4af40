//! What a name that is not implemented answers.
//!
//! The linking step generates, for each name of a symbol list that the shim does not define, a few
//! instructions that load the address of a [`Record`] into the first argument register and jump to
//! [`vgpu_stub_status`] or [`vgpu_stub_zero`]. A stub so needs a name and the kind of its return
//! value, no signature.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::log;

/// A stub's data, emitted by the linking step: a flag that it keeps, and its name.
#[derive(Debug)]
#[repr(C)]
pub struct Record {
    /// Whether the name has been logged.
    logged: AtomicU32,
    /// The status to be answered: the not-supported code of the library.
    status: c_int,
    /// The name, ended by zero.
    name: *const c_char,
}

fn log_once(record: &Record) {
    if record.logged.swap(1, Ordering::Relaxed) == 0 {
        // SAFETY: the linking step puts the address of a constant, zero-ended name into each record.
        let name = unsafe { CStr::from_ptr(record.name) };
        log::warn(format_args!("{}: not implemented, answers not-supported", name.to_string_lossy()));
    }
}

/// Answer of a stub whose function returns a status.
///
/// # Safety
/// `record` is a record that the linking step emitted; only its stubs jump here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgpu_stub_status(record: *const Record) -> c_int {
    // SAFETY: upheld by the caller, see above: a record is constant data but for its atomic flag.
    let record = unsafe { &*record };
    log_once(record);
    record.status
}

/// Answer of a stub whose function returns a pointer, a size, nothing, or a floating point number (which
/// the stub has set to zero itself).
///
/// # Safety
/// As [`vgpu_stub_status`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgpu_stub_zero(record: *const Record) -> usize {
    // SAFETY: as in `vgpu_stub_status`.
    log_once(unsafe { &*record });
    0
}
