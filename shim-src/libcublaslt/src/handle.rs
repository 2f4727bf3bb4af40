//! Handles. There is nothing behind one but the word that says what it is; a `cublasHandle_t` does as well.

use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_abi::blas::{BlasStatus, CUBLAS_COOKIE, CUBLASLT_COOKIE, Out};
use vgpu_abi::export;

use crate::{DRIVER, Result};

/// What every live handle points to: as there is no state, to the same.
static LIVE: AtomicU64 = AtomicU64::new(CUBLASLT_COOKIE);

/// `cublasLtHandle_t`
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Handle(*const AtomicU64);

impl Handle {
    /// Whether it is a handle of this library or of cuBLAS.
    pub fn check(self) -> Result {
        let live = matches!(self.word(), Some(CUBLASLT_COOKIE | CUBLAS_COOKIE));
        if live { Ok(()) } else { Err(BlasStatus::NOT_INITIALIZED) }
    }

    fn word(self) -> Option<u64> {
        if self.0.is_null() || !self.0.is_aligned() {
            return None;
        }
        // SAFETY: the caller of the export promised a handle, and what handles of both libraries point to
        // begins with such a word and is never given back.
        Some(unsafe { &*self.0 }.load(Ordering::Acquire))
    }
}

export! {
    /// Makes a handle, and a context for the thread that has none.
    pub fn cublasLtCreate(handle: Out<Handle>) -> BlasStatus {
        vgpu_abi::export::quiet_panics();
        let handle = handle.check()?;
        DRIVER.prepare()?;
        handle.set(Handle(&raw const LIVE))
    }

    /// Gives a handle back.
    pub fn cublasLtDestroy(handle: Handle) -> BlasStatus {
        match handle.word() {
            Some(CUBLASLT_COOKIE) => Ok(()),
            _ => Err(BlasStatus::INVALID_VALUE),
        }
    }
}
