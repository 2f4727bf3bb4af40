//! Peer device memory access, answered by the driver.

use core::ffi::{c_int, c_uint};

use vgpu_abi::runtime::CudaError;

use crate::process;

calls! {
    /// Stores whether a device can access a peer's memory.
    pub fn cudaDeviceCanAccessPeer(answer: *mut c_int, ordinal: c_int, peer: c_int) {
        let runtime = process::runtime()?;
        let (device, peer) = (runtime.device(ordinal)?.handle, runtime.device(peer)?.handle);
        if answer.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuDeviceCanAccessPeer(answer, device, peer))
    }

    /// Enables access of the thread's device to a peer's memory, which this project's driver does not
    /// support.
    pub fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) {
        let runtime = process::enter()?;
        let device = runtime.device(peer)?;
        if peer == runtime.current()? {
            return Err(CudaError::INVALID_DEVICE);
        }
        cu!(cuCtxEnablePeerAccess(device.primary()?, flags))
    }

    /// Disables access of the thread's device to a peer's memory. Fails, because this project's driver
    /// enables none.
    pub fn cudaDeviceDisablePeerAccess(peer: c_int) {
        let runtime = process::enter()?;
        cu!(cuCtxDisablePeerAccess(runtime.device(peer)?.primary()?))
    }

    /// Stores an attribute of the link between two devices.
    pub fn cudaDeviceGetP2PAttribute(
        value: *mut c_int, attribute: c_uint, source: c_int, destination: c_int
    ) {
        let runtime = process::runtime()?;
        if source == destination {
            return Err(CudaError::INVALID_DEVICE);
        }
        let (source, destination) = (runtime.device(source)?.handle, runtime.device(destination)?.handle);
        if value.is_null() {
            return Err(CudaError::INVALID_VALUE);
        }
        cu!(cuDeviceGetP2PAttribute(value, attribute, source, destination))
    }
}
