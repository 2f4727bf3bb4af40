//! Each thread's stack of contexts, whose top is the thread's current context.

use std::cell::{Cell, RefCell};

use vgpu_abi::CUresult;
use vgpu_abi::driver::CUcontext;

use crate::Result;
use crate::object::context::{self, Context};
use crate::object::lifecycle;

thread_local! {
    /// Handle of the current context, the top of the stack; 0 if the stack is empty.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// Handles below the current one, the bottom of the stack first.
    static BELOW: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Returns the calling thread's context.
#[inline]
pub fn context() -> Result<&'static Context> {
    lifecycle::devices()?;
    match CURRENT.get() {
        0 => Err(CUresult::INVALID_CONTEXT),
        handle => context::get(CUcontext(handle)),
    }
}

/// Returns the context of a handle, or the calling thread's for null.
pub fn or_given(handle: CUcontext) -> Result<&'static Context> {
    if handle == CUcontext::NULL {
        return context();
    }
    lifecycle::devices()?;
    context::get(handle)
}

/// Returns the handle of the calling thread's context, which may have ended; 0 without one.
pub fn handle() -> usize {
    CURRENT.get()
}

/// Replaces the top of the stack, which is not empty.
pub fn replace(handle: usize) {
    CURRENT.set(handle);
}

/// Pushes a context onto the stack.
pub fn push(handle: usize) {
    let below = CURRENT.replace(handle);
    // The list is destroyed only while the thread ends, and no call pops after that.
    let _ = BELOW.try_with(|list| list.borrow_mut().push(below));
}

/// Pops the top of the stack and returns its handle.
pub fn pop() -> usize {
    let below = BELOW.try_with(|list| list.borrow_mut().pop()).ok().flatten().unwrap_or(0);
    CURRENT.replace(below)
}
