//! Device management: the properties of devices.

use core::ffi::c_int;

use crate::process;
use crate::properties::BYTES;
#[cfg(not(feature = "cuda13"))]
use crate::properties::BYTES_11;

#[cfg(not(feature = "cuda13"))]
calls! {
    /// Stores a device's properties in the layout of CUDA 11.
    pub fn cudaGetDeviceProperties(properties: *mut [u8; BYTES_11], ordinal: c_int) {
        let device = process::runtime()?.device(ordinal)?;
        store!(properties, device.properties()?.bytes_11())
    }

    /// Stores a device's properties in this library's layout.
    pub fn cudaGetDeviceProperties_v2(properties: *mut [u8; BYTES], ordinal: c_int) {
        let device = process::runtime()?.device(ordinal)?;
        store!(properties, *device.properties()?.bytes())
    }
}

#[cfg(feature = "cuda13")]
calls! {
    /// Stores a device's properties in this library's layout.
    pub fn cudaGetDeviceProperties(properties: *mut [u8; BYTES], ordinal: c_int) {
        let device = process::runtime()?.device(ordinal)?;
        store!(properties, *device.properties()?.bytes())
    }
}
