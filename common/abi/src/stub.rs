//! Implementation of exported names for which no shim has a function.
//!
//! For each name of a symbol list that the shim does not define, the linking step generates a few
//! instructions that load the address of a [`Record`] into the first argument register and jump to
//! [`vgpu_stub_status`] or [`vgpu_stub_zero`]. A stub therefore depends on the kind of its return value and
//! on no signature.

use core::ffi::{CStr, c_int};
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::log;

/// A stub's data, emitted by the linking step. It holds no address, so the loader writes to none of the 2,800
/// records of a process.
#[derive(Debug)]
#[repr(C)]
pub struct Record {
    /// Whether the name has been logged: 0 if not.
    logged: AtomicU32,
    /// Status to return: the not-supported code of the library.
    status: c_int,
    /// Distance in bytes from this record to the stub.
    stub: i32,
}

/// Displays the exported name of a stub, which the loader knows.
struct Name<'a>(&'a Record);

impl fmt::Display for Name<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stub = core::ptr::from_ref(self.0).cast::<u8>().wrapping_offset(self.0.stub as isize);
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: any address may be asked about, and the answer goes to a structure of this frame.
        let known = unsafe { libc::dladdr(stub.cast(), found.as_mut_ptr()) } != 0;
        // SAFETY: zeros are valid for a structure of pointers, and dladdr only replaces them.
        let found = unsafe { found.assume_init() };
        if !known || found.dli_sname.is_null() {
            return out.write_str("a function");
        }
        // SAFETY: dladdr points to a name, ended by zero, of an object that stays loaded: shims are linked
        // so.
        let name = unsafe { CStr::from_ptr(found.dli_sname) };
        out.write_str(&name.to_string_lossy())
    }
}

fn log_once(record: &Record) {
    if record.logged.swap(1, Ordering::Relaxed) == 0 {
        log::warn(format_args!("{}: not implemented, answers not-supported", Name(record)));
    }
}

/// Logs the call of a stub and returns its status.
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

/// Logs the call of a stub and returns 0, for a function that returns a pointer, a size, nothing, or a
/// floating-point number (which the stub has set to zero itself).
///
/// # Safety
/// As for [`vgpu_stub_status`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vgpu_stub_zero(record: *const Record) -> usize {
    // SAFETY: as in `vgpu_stub_status`.
    log_once(unsafe { &*record });
    0
}
