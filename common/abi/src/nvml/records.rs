//! Structures that NVML fills in.

use core::ffi::{c_char, c_uint, c_ulonglong};

/// Returns the first word of a versioned structure: its size, with its version in the highest byte.
const fn versioned<T>(version: c_uint) -> c_uint {
    size_of::<T>() as c_uint | version << 24
}

layout! {
    /// `nvmlMemory_t`; all sizes in bytes.
    pub struct Memory = 24 {
        /// Size of the device memory in bytes.
        pub total: c_ulonglong = 0,
        /// Number of bytes that are not allocated.
        pub free: c_ulonglong = 8,
        /// Number of bytes that are allocated or reserved.
        pub used: c_ulonglong = 16,
    }

    /// `nvmlMemory_v2_t`; all sizes in bytes.
    pub struct MemoryV2 = 40 {
        /// Set by the caller to [`Self::VERSION`].
        pub version: c_uint = 0,
        /// Size of the device memory in bytes.
        pub total: c_ulonglong = 8,
        /// Number of bytes that are reserved by the system.
        pub reserved: c_ulonglong = 16,
        /// Number of bytes that are not allocated.
        pub free: c_ulonglong = 24,
        /// Number of bytes that are allocated.
        pub used: c_ulonglong = 32,
    }

    /// Start of `nvmlPciInfo_t` that `nvmlDeviceGetPciInfo` fills in, from the time when the structure ended
    /// there.
    pub struct PciInfoV1 = 32 {
        /// Text `domain:bus:device.function` with four digits of the domain and a zero at the end.
        pub bus_id_legacy: [c_char; 16] = 0,
        /// PCI domain number.
        pub domain: c_uint = 16,
        /// PCI bus number.
        pub bus: c_uint = 20,
        /// PCI device number on the bus.
        pub device: c_uint = 24,
        /// Device id in the high half, vendor id in the low.
        pub id: c_uint = 28,
    }

    /// Start of `nvmlPciInfo_t` that `nvmlDeviceGetPciInfo_v2` fills in. Four reserved words followed.
    pub struct PciInfoV2 = 36 {
        /// Fields of the first version.
        pub first: PciInfoV1 = 0,
        /// Subsystem id: device id in the high half, vendor id in the low.
        pub subsystem: c_uint = 32,
    }

    /// `nvmlPciInfo_t`, as `nvmlDeviceGetPciInfo_v3` fills it in.
    pub struct PciInfo = 68 {
        /// Fields of the second version.
        pub second: PciInfoV2 = 0,
        /// Text `domain:bus:device.function` with eight digits of the domain and a zero at the end.
        pub bus_id: [c_char; 32] = 36,
    }

    /// `nvmlPciInfoExt_v1_t`, which adds the PCI class.
    pub struct PciInfoExt = 64 {
        /// Set by the caller to [`Self::VERSION`].
        pub version: c_uint = 0,
        /// PCI domain number.
        pub domain: c_uint = 4,
        /// PCI bus number.
        pub bus: c_uint = 8,
        /// PCI device number on the bus.
        pub device: c_uint = 12,
        /// Device id in the high half, vendor id in the low.
        pub id: c_uint = 16,
        /// Subsystem id: device id in the high half, vendor id in the low.
        pub subsystem: c_uint = 20,
        /// Base class of the PCI class code.
        pub base_class: c_uint = 24,
        /// Subclass of the PCI class code.
        pub sub_class: c_uint = 28,
        /// Address as text, in the form of [`PciInfo::bus_id`].
        pub bus_id: [c_char; 32] = 32,
    }

    /// `nvmlProcessInfo_v1_t`, a process that uses a device.
    pub struct ProcessInfoV1 = 16 {
        /// Process id.
        pub pid: c_uint = 0,
        /// Device memory of the process in bytes, or [`super::NOT_AVAILABLE`].
        pub used_memory: c_ulonglong = 8,
    }

    /// `nvmlProcessInfo_v2_t`, which is `nvmlProcessInfo_t`.
    pub struct ProcessInfoV2 = 24 {
        /// Process id.
        pub pid: c_uint = 0,
        /// Device memory of the process in bytes, or [`super::NOT_AVAILABLE`].
        pub used_memory: c_ulonglong = 8,
        /// Id of the GPU instance, or [`super::NO_INSTANCE`].
        pub gpu_instance: c_uint = 16,
        /// Id of the compute instance, or [`super::NO_INSTANCE`].
        pub compute_instance: c_uint = 20,
    }

    /// `nvmlUUID_v1_t`, the UUID of a device.
    pub struct Uuid = 52 {
        /// Set by the caller to [`Self::VERSION`].
        pub version: c_uint = 0,
        /// Form of the value: [`super::UUID_ASCII`] or [`super::UUID_BINARY`].
        pub kind: c_uint = 4,
        /// UUID as text with a zero at its end, or as 16 bytes.
        pub value: [u8; 41] = 8,
    }
}

impl MemoryV2 {
    /// `nvmlMemory_v2`: size and version of the structure.
    pub const VERSION: c_uint = versioned::<Self>(2);
}

impl PciInfoExt {
    /// `nvmlPciInfoExt_v1`: size and version of the structure.
    pub const VERSION: c_uint = versioned::<Self>(1);
}

impl Uuid {
    /// `nvmlUUID_v1`: size and version of the structure.
    pub const VERSION: c_uint = versioned::<Self>(1);
}

const _: () = {
    assert!(MemoryV2::VERSION == 0x0200_0028);
    assert!(PciInfoExt::VERSION == 0x0100_0040);
    assert!(Uuid::VERSION == 0x0100_0034);
};
