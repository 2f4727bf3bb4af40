//! Handles and the state behind them.
//!
//! The context of a destroyed handle is kept for the next handle and never returned to the allocator. A
//! program that uses a destroyed handle therefore finds a context without its cookie, and not foreign memory.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use vgpu_abi::blas::{BlasStatus, CUBLAS_COOKIE as COOKIE};

use crate::Result;

/// What a handle points to. Threads may share it; one thread's settings become visible to others in no
/// particular order, as with cuBLAS.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    /// [`COOKIE`] while the handle lives, otherwise 0.
    cookie: AtomicU64,
    /// `cudaStream_t` that receives the work; 0 is the legacy default stream.
    stream: AtomicUsize,
    /// Device address of the workspace that the program gave, or 0; and its length in bytes.
    workspace: AtomicUsize,
    workspace_bytes: AtomicUsize,
    pointer_mode: AtomicI32,
    atomics_mode: AtomicI32,
    math_mode: AtomicI32,
}

/// Defines a reader and a setter for each field of a context.
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

/// Contexts of destroyed handles, for the next ones.
static SPARE: Mutex<Vec<&'static Context>> = Mutex::new(Vec::new());

/// `cublasHandle_t`: null, or the address of a context that [`create`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Handle(*const Context);

impl Handle {
    /// Returns the state behind a handle. Null and a destroyed handle return `CUBLAS_STATUS_NOT_INITIALIZED`.
    pub fn context(self) -> Result<&'static Context> {
        if self.0.is_null() || !self.0.is_aligned() {
            return Err(BlasStatus::NOT_INITIALIZED);
        }
        // SAFETY: the caller of the export promised a handle of this library, live or destroyed, and a
        // context is never freed.
        let context = unsafe { &*self.0 };
        if context.cookie.load(Ordering::Acquire) == COOKIE {
            Ok(context)
        } else {
            Err(BlasStatus::NOT_INITIALIZED)
        }
    }
}

/// Creates a handle with cuBLAS's initial settings: stream 0, host pointer mode, default math mode, no
/// workspace.
pub fn create() -> Handle {
    let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let context = spare.unwrap_or_else(|| Box::leak(Box::new(Context::new())));
    context.reset();
    context.cookie.store(COOKIE, Ordering::Release);
    Handle(context)
}

/// Destroys a handle. A second call for the same handle returns `CUBLAS_STATUS_NOT_INITIALIZED`.
pub fn destroy(handle: Handle) -> Result {
    let context = handle.context()?;
    // Two threads may destroy the same handle; one of them gets the cookie.
    if context.cookie.swap(0, Ordering::AcqRel) != COOKIE {
        return Err(BlasStatus::NOT_INITIALIZED);
    }
    SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(context);
    Ok(())
}
