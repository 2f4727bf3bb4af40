//! Describes errors that the host reports late: which kernel failed, where, and at which address.

use std::ffi::{CStr, CString};
use std::fmt::Write;

use vgpu_transport::{Explanation, weak_symbol};

use crate::pinned_ranges;

/// `__cxa_demangle` of the C++ runtime: takes a mangled name, a buffer or null, its size or null, and where
/// the outcome is stored or null. It returns a text allocated by `malloc`, or null.
type Demangle = unsafe extern "C" fn(
    *const libc::c_char,
    *mut libc::c_char,
    *mut libc::size_t,
    *mut libc::c_int,
) -> *mut libc::c_char;

/// Returns the text for the log and for a trace about work that failed.
pub fn describe(why: &Explanation) -> String {
    let mut text = String::new();
    if !why.kernel.is_empty() {
        text = format!("kernel {}: ", demangled(&why.kernel));
    }
    text.push_str(&why.reason);
    if let Some((start, bytes)) = why.address.and_then(pinned_ranges::find) {
        // Writing into a text does not fail.
        let _ = write!(
            text,
            "; the address lies in {bytes} bytes of pinned host memory at {start:#x}: kernels cannot reach \
             pinned host memory here"
        );
    }
    text
}

/// Returns a kernel's name as its program spells it. It stays mangled if the process has no C++ runtime, or
/// if the name is not a C++ name.
pub fn demangled(name: &str) -> String {
    let address = weak_symbol!("__cxa_demangle");
    // SAFETY: the C++ runtime alone has the name, as a function of this type; 0 is none.
    let demangle = unsafe { core::mem::transmute::<usize, Option<Demangle>>(address) };
    demangle.and_then(|demangle| demangled_by(demangle, name)).unwrap_or_else(|| name.to_owned())
}

/// Demangles a name by the given function.
fn demangled_by(demangle: Demangle, name: &str) -> Option<String> {
    // Other names could be those of types: `f` would become `float`.
    let mangled = CString::new(name).ok().filter(|_| name.starts_with("_Z"))?;
    let none = std::ptr::null_mut();
    // SAFETY: the name ends with zero; without a buffer the function makes one.
    let text = unsafe { demangle(mangled.as_ptr(), none, none.cast(), none.cast()) };
    if text.is_null() {
        return None;
    }
    // SAFETY: the answer is a text that ends with zero.
    let plain = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: the answer is from `malloc` and the caller's.
    unsafe { libc::free(text.cast()) };
    Some(plain)
}
