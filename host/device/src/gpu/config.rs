//! The configuration of a GPU in software, with which an executor is started.

use super::addresses::Addresses;

use serde::{Deserialize, Serialize};

/// Reason for which a configuration does not describe a GPU.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// No GPU of this interface has the compute capability.
    #[error("make a GPU of compute capability {}.{}: there is none", .0.0, .0.1)]
    ComputeCapability((u32, u32)),
    /// A text is too long for its field.
    #[error("make a GPU with a {field} of {bytes} bytes: there is room for {room}")]
    Text {
        /// Name of the field.
        field: &'static str,
        /// Length of the text in bytes.
        bytes: usize,
        /// Number of bytes that the field can hold.
        room: usize,
    },
    /// The memory is too small for a GPU, or larger than its addresses.
    #[error("make a GPU with {0} bytes of memory: it has 1 MiB at least and half a TiB at most")]
    Memory(u64),
    /// The system returned no random numbers.
    #[error("draw a random UUID")]
    Random(#[source] std::io::Error),
}

/// Configuration of a GPU in software. [`GpuConfig::new`] has the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuConfig {
    /// The GPU's product name.
    pub name: String,
    /// The GPU's UUID, as 16 raw bytes.
    pub uuid: [u8; 16],
    /// Compute capability, major and minor. Programs choose their kernels by it.
    pub compute_capability: (u32, u32),
    /// Device memory in bytes. The host allocates it when it is first used.
    pub memory_bytes: u64,
    /// Value of `cuDriverGetVersion`: 1000 * major + 10 * minor.
    pub driver_version: u32,
    /// Version text of the driver.
    pub driver_text: String,
    /// Number of multiprocessors, by which programs size their grids.
    pub multiprocessors: u32,
    /// Clock of the multiprocessors in kHz.
    pub clock_khz: u32,
    /// Clock of the memory in kHz.
    pub memory_clock_khz: u32,
    /// Width of the memory bus in bits.
    pub bus_bits: u32,
    /// Size of the second-level cache in bytes.
    pub l2_bytes: u32,
    /// Device addresses of the GPU. Devices that one guest sees must not share any.
    pub addresses: Addresses,
}

impl GpuConfig {
    /// Creates the configuration of a GPU with compute capability 6.1, 8 GiB, driver 13.0 and a random UUID.
    /// 6.1 is the least that programs expect of a GPU with integer dot products and without tensor cores. The
    /// addresses are those of [`Addresses::next_in_process`].
    pub fn new(name: &str) -> Result<Self, GpuError> {
        Ok(Self {
            name: name.to_owned(),
            uuid: random_uuid()?,
            compute_capability: (6, 1),
            memory_bytes: 8 << 30,
            driver_version: 13_000,
            driver_text: "580.65.06".to_owned(),
            multiprocessors: 4,
            clock_khz: 1_000_000,
            memory_clock_khz: 1_000_000,
            bus_bits: 128,
            l2_bytes: 1 << 20,
            addresses: Addresses::next_in_process(),
        })
    }
}

/// Draws a random UUID of version 4.
fn random_uuid() -> Result<[u8; 16], GpuError> {
    let mut uuid = [0; 16];
    rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| GpuError::Random(error.into()))?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}
