//! The value of `--device`: the facts of one device as JSON. Programs that start a device process serialize
//! the same type.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use vgpu_device::{GpuConfig, PciAddress, parse_compute_capability, parse_uuid};

/// Facts of one device, as the option `--device` states them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Facts {
    /// PCI address, such as `0000:00:05.0`.
    pub address: String,
    /// Product name that the guest sees.
    pub name: String,
    /// UUID of the GPU, 32 hexadecimal digits.
    pub uuid: String,
    /// Compute capability, such as `6.1`.
    pub cc: String,
    /// Device memory in MiB.
    pub memory_mib: u64,
}

/// Parses the value of `--device`.
pub(crate) fn parse(text: &str) -> Result<Facts, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl Facts {
    /// Returns the PCI address of the device, and `gpu` with these facts applied.
    ///
    /// # Errors
    /// A fact cannot be read. The error names it.
    pub(crate) fn apply_to(&self, gpu: GpuConfig) -> Result<(PciAddress, GpuConfig)> {
        let gpu = GpuConfig {
            name: self.name.clone(),
            uuid: parse_uuid(&self.uuid).context("read a device's uuid")?,
            compute_capability: parse_compute_capability(&self.cc).context("read a device's cc")?,
            memory_bytes: self.memory_mib << 20,
            ..gpu
        };
        Ok((self.address.parse().context("read a device's address")?, gpu))
    }
}
