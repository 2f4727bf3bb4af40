//! Handles and what is set on them. Nothing here sends a message.

use std::ffi::c_int;

use vgpu_abi::blas::{Address, BlasStatus, Out, POINTER_MODE_DEVICE, POINTER_MODE_HOST, is_math_mode};
use vgpu_abi::export;

use crate::handle::{self, Handle};
use crate::{CUDA13, DRIVER};

export! {
    /// Makes a handle, and a context for the thread that has none.
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

    /// Sets the stream that work goes to. The workspace that the program set is given up.
    pub fn cublasSetStream_v2(handle: Handle, stream: usize) -> BlasStatus {
        let context = handle.context()?;
        context.set_stream(stream);
        context.set_workspace(0);
        context.set_workspace_bytes(0);
        Ok(())
    }

    /// The stream that work goes to.
    pub fn cublasGetStream_v2(handle: Handle, stream: Out<usize>) -> BlasStatus {
        let stream = stream.check()?;
        stream.set(handle.context()?.stream())
    }

    /// Gives the library device memory to work in, until another stream is set. The host may use it.
    pub fn cublasSetWorkspace_v2(handle: Handle, workspace: Address, bytes: usize) -> BlasStatus {
        let context = handle.context()?;
        context.set_workspace(workspace.0);
        context.set_workspace_bytes(if workspace.0 == 0 { 0 } else { bytes });
        Ok(())
    }

    /// Sets where alpha and beta are.
    pub fn cublasSetPointerMode_v2(handle: Handle, mode: c_int) -> BlasStatus {
        let context = handle.context()?;
        if !matches!(mode, POINTER_MODE_HOST | POINTER_MODE_DEVICE) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        context.set_pointer_mode(mode);
        Ok(())
    }

    /// Where alpha and beta are.
    pub fn cublasGetPointerMode_v2(handle: Handle, mode: Out<c_int>) -> BlasStatus {
        let mode = mode.check()?;
        mode.set(handle.context()?.pointer_mode())
    }

    /// Sets whether results may depend on the order of atomic additions. Nothing that travels does.
    pub fn cublasSetAtomicsMode(handle: Handle, mode: c_int) -> BlasStatus {
        let context = handle.context()?;
        if !matches!(mode, 0 | 1) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        context.set_atomics_mode(mode);
        Ok(())
    }

    /// Whether results may depend on the order of atomic additions.
    pub fn cublasGetAtomicsMode(handle: Handle, mode: Out<c_int>) -> BlasStatus {
        let mode = mode.check()?;
        mode.set(handle.context()?.atomics_mode())
    }

    /// Sets how exactly products are computed.
    pub fn cublasSetMathMode(handle: Handle, mode: c_int) -> BlasStatus {
        let context = handle.context()?;
        if !is_math_mode(mode, CUDA13) {
            return Err(BlasStatus::INVALID_VALUE);
        }
        context.set_math_mode(mode);
        Ok(())
    }

    /// How exactly products are computed.
    pub fn cublasGetMathMode(handle: Handle, mode: Out<c_int>) -> BlasStatus {
        let context = handle.context()?;
        mode.set(context.math_mode())
    }
}
