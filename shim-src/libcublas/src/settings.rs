//! The exports that create and destroy handles, and set and read their settings. None of them sends a
//! message.

use std::ffi::c_int;

use vgpu_abi::blas::{Address, BlasStatus, Out, POINTER_MODE_DEVICE, POINTER_MODE_HOST, is_math_mode};
use vgpu_abi::export;

use crate::handle::{self, Handle};
use crate::{CUDA13, DRIVER};

export! {
    /// Creates a handle, and a CUDA context for a thread that has none.
    pub fn cublasCreate_v2(handle: Out<Handle>) -> BlasStatus {
        vgpu_abi::export::quiet_panics();
        let handle = handle.check()?;
        DRIVER.prepare()?;
        handle.set(handle::create())
    }

    /// Destroys a handle.
    pub fn cublasDestroy_v2(handle: Handle) -> BlasStatus {
        handle::destroy(handle)
    }

    /// Sets the stream that receives the work, and forgets the workspace that the program gave.
    pub fn cublasSetStream_v2(handle: Handle, stream: usize) -> BlasStatus {
        let context = handle.context()?;
        context.set_stream(stream);
        context.set_workspace(0);
        context.set_workspace_bytes(0);
        Ok(())
    }

    /// Stores the stream that receives the work.
    pub fn cublasGetStream_v2(handle: Handle, stream: Out<usize>) -> BlasStatus {
        let stream = stream.check()?;
        stream.set(handle.context()?.stream())
    }

    /// Sets device memory that the host may use for products and solves, until the stream is set again.
    pub fn cublasSetWorkspace_v2(handle: Handle, workspace: Address, bytes: usize) -> BlasStatus {
        let context = handle.context()?;
        context.set_workspace(workspace.0);
        context.set_workspace_bytes(if workspace.0 == 0 { 0 } else { bytes });
        Ok(())
    }

    /// Sets whether scalars (alpha, beta and sums) are in host or in device memory.
    pub fn cublasSetPointerMode_v2(handle: Handle, mode: c_int) -> BlasStatus {
        let context = handle.context()?;
        if !matches!(mode, POINTER_MODE_HOST | POINTER_MODE_DEVICE) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        context.set_pointer_mode(mode);
        Ok(())
    }

    /// Stores whether scalars are in host or in device memory.
    pub fn cublasGetPointerMode_v2(handle: Handle, mode: Out<c_int>) -> BlasStatus {
        let mode = mode.check()?;
        mode.set(handle.context()?.pointer_mode())
    }

    /// Sets whether results may depend on the order of atomic additions. The mode is kept and changes
    /// nothing: no message carries it.
    pub fn cublasSetAtomicsMode(handle: Handle, mode: c_int) -> BlasStatus {
        let context = handle.context()?;
        if !matches!(mode, 0 | 1) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        context.set_atomics_mode(mode);
        Ok(())
    }

    /// Stores the mode that [`cublasSetAtomicsMode`] set.
    pub fn cublasGetAtomicsMode(handle: Handle, mode: Out<c_int>) -> BlasStatus {
        let mode = mode.check()?;
        mode.set(handle.context()?.atomics_mode())
    }

    /// Sets the `cublasMath_t` of later products, which travels with each.
    pub fn cublasSetMathMode(handle: Handle, mode: c_int) -> BlasStatus {
        let context = handle.context()?;
        if !is_math_mode(mode, CUDA13) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        context.set_math_mode(mode);
        Ok(())
    }

    /// Stores the `cublasMath_t` of later products.
    pub fn cublasGetMathMode(handle: Handle, mode: Out<c_int>) -> BlasStatus {
        let context = handle.context()?;
        mode.set(context.math_mode())
    }
}
