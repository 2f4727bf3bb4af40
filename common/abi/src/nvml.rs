//! Types and codes of NVML (`nvml.h`).
//!
//! Layouts are those of CUDA 12 and 13, which are the same here.

mod module;
mod records;
mod status;

pub use module::module_version;
pub use records::{
    Memory, MemoryV2, PciInfo, PciInfoExt, PciInfoV1, PciInfoV2, ProcessInfoV1, ProcessInfoV2, Uuid,
};
pub use status::NvmlReturn;

use core::ffi::c_uint;

/// Value of a number that is not known: `NVML_VALUE_NOT_AVAILABLE` as an unsigned number.
pub const NOT_AVAILABLE: u64 = u64::MAX;
/// Id of the GPU or compute instance of a process on a device without such instances.
pub const NO_INSTANCE: u32 = u32::MAX;

/// `NVML_INIT_FLAG_NO_GPUS`: initialisation does not need a device.
pub const INIT_NO_GPUS: c_uint = 1;

/// `nvmlClockType_t`: the graphics clock.
pub const CLOCK_GRAPHICS: c_uint = 0;
/// `nvmlClockType_t`: the multiprocessors' clock.
pub const CLOCK_SM: c_uint = 1;
/// `nvmlClockType_t`: the memory clock.
pub const CLOCK_MEM: c_uint = 2;
/// `nvmlClockType_t`: the video engines' clock.
pub const CLOCK_VIDEO: c_uint = 3;

/// `NVML_FEATURE_DISABLED`: the feature is off.
pub const FEATURE_DISABLED: c_uint = 0;

/// `NVML_BRAND_UNKNOWN`: the brand is not known.
pub const BRAND_UNKNOWN: c_uint = 0;

/// `nvmlUUIDType_t`: a UUID as text.
pub const UUID_ASCII: c_uint = 1;
/// `nvmlUUIDType_t`: a UUID as 16 bytes.
pub const UUID_BINARY: c_uint = 2;

/// `NVML_DEVICE_ARCH_UNKNOWN`: the architecture is not known.
pub const ARCH_UNKNOWN: c_uint = c_uint::MAX;

/// Returns the `nvmlDeviceArchitecture_t` of a compute capability. Compute capabilities are CUDA's numbers,
/// architectures those of `nvml.h`.
#[must_use]
pub const fn architecture(major: u32, minor: u32) -> c_uint {
    match (major, minor) {
        (3, _) => 2,        // Kepler
        (5, _) => 3,        // Maxwell
        (6, _) => 4,        // Pascal
        (7, 5) => 6,        // Turing
        (7, _) => 5,        // Volta
        (8, 9) => 8,        // Ada
        (8, _) => 7,        // Ampere
        (9, _) => 9,        // Hopper
        (10..=12, _) => 10, // Blackwell
        _ => ARCH_UNKNOWN,
    }
}

/// Returns the number of single-precision units ("CUDA cores") of a multiprocessor, from the CUDA programming
/// guide's table of arithmetic throughput, or `None` for a compute capability that is not in it.
#[must_use]
pub const fn cores_per_multiprocessor(major: u32, minor: u32) -> Option<u32> {
    if minor > 9 {
        return None;
    }
    Some(match 10 * major + minor {
        30 | 32 | 35 | 37 => 192,
        50 | 52 | 53 | 61 | 62 | 86 | 87 | 89 | 90 | 100 | 101 | 103 | 110 | 120 | 121 => 128,
        60 | 70 | 72 | 75 | 80 => 64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures() {
        // The compute capability of one GPU each: K40, M40, P40, V100, T4, A100, L4, H200, B200, RTX 5090.
        let known = [(3, 5), (5, 2), (6, 1), (7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)];
        let answers = known.map(|(major, minor)| architecture(major, minor));
        assert_eq!(answers, [2, 3, 4, 5, 6, 7, 8, 9, 10, 10]);
        assert_eq!(architecture(2, 0), ARCH_UNKNOWN);
    }

    #[test]
    fn cores() {
        assert_eq!(cores_per_multiprocessor(9, 0).map(|cores| cores * 132), Some(16896)); // H200
        assert_eq!(cores_per_multiprocessor(6, 1).map(|cores| cores * 20), Some(2560)); // GTX 1080
        assert_eq!(cores_per_multiprocessor(7, 5).map(|cores| cores * 40), Some(2560)); // T4
        assert_eq!(cores_per_multiprocessor(4, 2), None);
    }
}
