//! Handles. A handle has no state, only the word that identifies it. A `cublasHandle_t` is accepted in its
//! place.

use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_abi::blas::{BlasStatus, CUBLAS_COOKIE, CUBLASLT_COOKIE, Out};
use vgpu_abi::export;

use crate::{DRIVER, Result};

/// The word that every live handle points to; one is enough, because handles have no state.
static LIVE: AtomicU64 = AtomicU64::new(CUBLASLT_COOKIE);

/// `cublasLtHandle_t`: null, or the address of the word that identifies it.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Handle(*const AtomicU64);

impl Handle {
    /// Checks that this is a handle of this library or of cuBLAS.
    pub fn check(self) -> Result {
        let live = matches!(self.word(), Some(CUBLASLT_COOKIE | CUBLAS_COOKIE));
        if live { Ok(()) } else { Err(BlasStatus::NOT_INITIALIZED) }
    }

    fn word(self) -> Option<u64> {
        if self.0.is_null() || !self.0.is_aligned() {
            return None;
        }
        // SAFETY: the caller of the export promised a handle, and handles of both libraries point to memory
        // that starts with such a word and is never freed.
        Some(unsafe { &*self.0 }.load(Ordering::Acquire))
    }
}

export! {
    /// Creates a handle, and a CUDA context for a thread that has none.
    pub fn cublasLtCreate(handle: Out<Handle>) -> BlasStatus {
        vgpu_abi::export::quiet_panics();
        let handle = handle.check()?;
        DRIVER.prepare()?;
        handle.set(Handle(&raw const LIVE))
    }

    /// Destroys a handle of this library, which has nothing to free.
    pub fn cublasLtDestroy(handle: Handle) -> BlasStatus {
        match handle.word() {
            Some(CUBLASLT_COOKIE) => Ok(()),
            _ => Err(BlasStatus::INVALID_VALUE),
        }
    }
}
