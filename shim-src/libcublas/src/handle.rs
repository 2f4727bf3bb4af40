//! Handles and the state behind them.
//!
//! A context is never given back to the allocator but kept for the next handle, so that what a program does with a
//! destroyed handle finds a context without its cookie and not foreign memory.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use vgpu_abi::blas::{BlasStatus, CUBLAS_COOKIE as COOKIE};

use crate::Result;

/// What a handle points to. Threads may share it; what one sets another sees, in no particular order,
/// as with cuBLAS.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    /// [`COOKIE`] while the handle lives.
    cookie: AtomicU64,
    /// The stream that work goes to.
    stream: AtomicUsize,
    /// Device memory for the library's use, and its size.
    workspace: AtomicUsize,
    workspace_bytes: AtomicUsize,
    pointer_mode: AtomicI32,
    atomics_mode: AtomicI32,
    math_mode: AtomicI32,
}

/// Reads and writes of a context's fields.
macro_rules! fields {
    ($( $get:ident $set:ident $ty:ty; )*) => {
        impl Context {
            $(
                pub fn $get(&self) -> $ty {
                    self.$get.load(Ordering::Relaxed)
                }

                pub fn $set(&self, value: $ty) {
                    self.$get.store(value, Ordering::Relaxed);
                }
            )*
        }
    };
}

fields! {
    stream set_stream usize;
    workspace set_workspace usize;
    workspace_bytes set_workspace_bytes usize;
    pointer_mode set_pointer_mode c_int;
    atomics_mode set_atomics_mode c_int;
    math_mode set_math_mode c_int;
}

impl Context {
    const fn new() -> Self {
        Self {
            cookie: AtomicU64::new(0),
            stream: AtomicUsize::new(0),
            workspace: AtomicUsize::new(0),
            workspace_bytes: AtomicUsize::new(0),
            pointer_mode: AtomicI32::new(0),
            atomics_mode: AtomicI32::new(0),
            math_mode: AtomicI32::new(0),
        }
    }

    fn reset(&self) {
        self.set_stream(0);
        self.set_workspace(0);
        self.set_workspace_bytes(0);
        self.set_pointer_mode(0);
        self.set_atomics_mode(0);
        self.set_math_mode(0);
    }
}

/// Contexts that no handle has.
static SPARE: Mutex<Vec<&'static Context>> = Mutex::new(Vec::new());

/// `cublasHandle_t`: null, or what [`create`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Handle(*const Context);

impl Handle {
    /// The state behind a handle; for null and a destroyed handle the library is not initialised.
    pub fn context(self) -> Result<&'static Context> {
        if self.0.is_null() || !self.0.is_aligned() {
            return Err(BlasStatus::NOT_INITIALIZED);
        }
        // SAFETY: the caller of the export promised a handle of this library, live or destroyed, whose context is
        // never given back.
        let context = unsafe { &*self.0 };
        if context.cookie.load(Ordering::Acquire) == COOKIE {
            Ok(context)
        } else {
            Err(BlasStatus::NOT_INITIALIZED)
        }
    }
}

/// Makes a handle, with the settings that cuBLAS starts with.
pub fn create() -> Handle {
    let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let context = spare.unwrap_or_else(|| Box::leak(Box::new(Context::new())));
    context.reset();
    context.cookie.store(COOKIE, Ordering::Release);
    Handle(context)
}

/// Destroys a handle.
pub fn destroy(handle: Handle) -> Result {
    let context = handle.context()?;
    // Of two threads that destroy it one does.
    if context.cookie.swap(0, Ordering::AcqRel) != COOKIE {
        return Err(BlasStatus::NOT_INITIALIZED);
    }
    SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(context);
    Ok(())
}
