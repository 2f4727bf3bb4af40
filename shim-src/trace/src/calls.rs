//! Functions that the common part of the trampolines calls before and after a call, and those for the
//! transport and libcuda.

use vgpu_trace_format::{KERNEL_MOST, REASON_MOST};

use crate::file::File;
use crate::resolve::real;
use crate::{state, table, thread};

unsafe extern "C" {
    /// Address to which followed calls return, in `trampoline.s`.
    fn vgpu_trace_return();
}

/// Records a call of function `index` with these registers, and returns the function's address. `slot` holds
/// the return address, which is replaced if the call is followed.
///
/// # Safety
/// Only the trampoline may call it: both pointers point into its stack frame.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_trace_enter(index: u32, arguments: *const [u64; 6], slot: *mut usize) -> *const u8 {
    let real = real(index);
    if let Some(file) = state::file() {
        // SAFETY: the trampoline has saved six registers there.
        let arguments = unsafe { &*arguments };
        // SAFETY: the return address of the call is there.
        let caller = unsafe { *slot };
        if let Some(stub) = begin(file, index, arguments, slot as usize, caller, real) {
            // SAFETY: as above; the stub puts the return address back before it returns there.
            unsafe { *slot = stub };
        }
    }
    real
}

/// Records the start of a call. Returns the new return address if the call is followed.
#[inline]
fn begin(
    file: &File,
    index: u32,
    arguments: &[u64; 6],
    slot: usize,
    caller: usize,
    real: *const u8,
) -> Option<usize> {
    let function = table::entries().get(index as usize)?;
    if function.counted != 0 {
        file.count(index, function, real);
        return None;
    }
    thread::with(|thread| {
        file.name(index, function, real);
        let entry = file.call(thread, index, function, arguments)?;
        if thread.push(slot, caller, entry) {
            return Some(vgpu_trace_return as *const () as usize);
        }
        file.lose(&entry);
        None
    })?
}

/// Completes the call whose return address was at `slot`, and returns that address.
#[unsafe(no_mangle)]
extern "C" fn vgpu_trace_leave(result: u64, slot: usize) -> usize {
    let Some((caller, entry)) = thread::with(|thread| thread.pop(slot)).flatten() else {
        // Who returns here was put there by `begin` on this thread, and is taken away here alone.
        // SAFETY: ends the process: there is nowhere to return to.
        unsafe { libc::abort() };
    };
    if let Some(file) = state::file() {
        file.end(&entry, result);
    }
    caller
}

/// Records a message or a wait, for the transport (`vgpu_trace_format::Event`).
#[unsafe(no_mangle)]
extern "C" fn vgpu_trace_event(kind: u32, index: u32, begin: u64, end: u64, result: u64, argument: u64) {
    if let Some(file) = state::file() {
        thread::with(|thread| file.event(thread, [kind, index], [begin, end], result, argument));
    }
}

/// Records why the host refused a call, for libcuda (`vgpu_trace_format::Refused`).
///
/// # Safety
/// As `vgpu_trace_format::Refused` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_trace_refusal(kind: u32, status: u32, reason: *const u8, bytes: usize) {
    if let Some(file) = state::file() {
        // SAFETY: upheld by the caller; no more is read than there is.
        let reason = unsafe { core::slice::from_raw_parts(reason, bytes.min(REASON_MOST)) };
        thread::with(|thread| file.refusal(thread, kind, status, reason));
    }
}

/// Records a kernel's name, for libcuda (`vgpu_trace_format::Kernel`).
///
/// # Safety
/// As `vgpu_trace_format::Kernel` says.
#[unsafe(no_mangle)]
unsafe extern "C" fn vgpu_trace_kernel(session: u32, function: u32, name: *const u8, bytes: usize) {
    if let Some(file) = state::file() {
        // SAFETY: upheld by the caller; no more is read than there is.
        let name = unsafe { core::slice::from_raw_parts(name, bytes.min(KERNEL_MOST)) };
        file.kernel(session, function, name);
    }
}
