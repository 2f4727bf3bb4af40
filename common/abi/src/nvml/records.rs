//! Structures that NVML fills in.

use core::ffi::{c_char, c_uint, c_ulonglong};

/// What the first word of a versioned structure says: its size, and its version in the highest byte.
const fn versioned<T>(version: c_uint) -> c_uint {
    size_of::<T>() as c_uint | version << 24
}

layout! {
    /// `nvmlMemory_t`; all sizes in bytes.
    pub struct Memory = 24 {
        /// All of it.
        pub total: c_ulonglong = 0,
        /// Bytes that are not allocated.
        pub free: c_ulonglong = 8,
        /// Allocated or reserved.
        pub used: c_ulonglong = 16,
    }

    /// `nvmlMemory_v2_t`; all sizes in bytes.
    pub struct MemoryV2 = 40 {
        /// Set by the caller to [`Self::VERSION`].
        pub version: c_uint = 0,
        /// All of it.
        pub total: c_ulonglong = 8,
        /// Reserved by the system.
        pub reserved: c_ulonglong = 16,
        /// Bytes that are not allocated.
        pub free: c_ulonglong = 24,
        /// Bytes that are allocated.
        pub used: c_ulonglong = 32,
    }

    /// The beginning of `nvmlPciInfo_t` that `nvmlDeviceGetPciInfo` fills in: the structure was once no
    /// longer.
    pub struct PciInfoV1 = 32 {
        /// `domain:bus:device.function` with four digits of the domain, ended by zero.
        pub bus_id_legacy: [c_char; 16] = 0,
        /// PCI domain number.
        pub domain: c_uint = 16,
        /// PCI bus number.
        pub bus: c_uint = 20,
        /// Device on the bus.
        pub device: c_uint = 24,
        /// Device id in the high half, vendor id in the low.
        pub id: c_uint = 28,
    }

    /// The beginning of `nvmlPciInfo_t` that `nvmlDeviceGetPciInfo_v2` fills in. Four reserved words
    /// followed.
    pub struct PciInfoV2 = 36 {
        /// As the first version has it.
        pub first: PciInfoV1 = 0,
        /// Subsystem's device id in the high half, vendor id in the low.
        pub subsystem: c_uint = 32,
    }

    /// `nvmlPciInfo_t`, as `nvmlDeviceGetPciInfo_v3` fills it in.
    pub struct PciInfo = 68 {
        /// As the second version has it.
        pub second: PciInfoV2 = 0,
        /// `domain:bus:device.function` with eight digits of the domain, ended by zero.
        pub bus_id: [c_char; 32] = 36,
    }

    /// `nvmlPciInfoExt_v1_t`
    pub struct PciInfoExt = 64 {
        /// Set by the caller to [`Self::VERSION`].
        pub version: c_uint = 0,
        /// PCI domain number.
        pub domain: c_uint = 4,
        /// PCI bus number.
        pub bus: c_uint = 8,
        /// Device on the bus.
        pub device: c_uint = 12,
        /// Device id in the high half, vendor id in the low.
        pub id: c_uint = 16,
        /// Subsystem's device id in the high half, vendor id in the low.
        pub subsystem: c_uint = 20,
        /// Base class of the PCI class code.
        pub base_class: c_uint = 24,
        /// Subclass of the PCI class code.
        pub sub_class: c_uint = 28,
        /// As in [`PciInfo`].
        pub bus_id: [c_char; 32] = 32,
    }

    /// `nvmlProcessInfo_v1_t`
    pub struct ProcessInfoV1 = 16 {
        /// Process id.
        pub pid: c_uint = 0,
        /// Its device memory, bytes, or [`super::NOT_AVAILABLE`].
        pub used_memory: c_ulonglong = 8,
    }

    /// `nvmlProcessInfo_v2_t`, which is `nvmlProcessInfo_t`.
    pub struct ProcessInfoV2 = 24 {
        /// Process id.
        pub pid: c_uint = 0,
        /// Its device memory, bytes, or [`super::NOT_AVAILABLE`].
        pub used_memory: c_ulonglong = 8,
        /// GPU instance, or [`super::NO_INSTANCE`].
        pub gpu_instance: c_uint = 16,
        /// Compute instance, or [`super::NO_INSTANCE`].
        pub compute_instance: c_uint = 20,
    }

    /// `nvmlUUID_v1_t`
    pub struct Uuid = 52 {
        /// Set by the caller to [`Self::VERSION`].
        pub version: c_uint = 0,
        /// What the value is: [`super::UUID_ASCII`], [`super::UUID_BINARY`].
        pub kind: c_uint = 4,
        /// Text ended by zero, or 16 bytes.
        pub value: [u8; 41] = 8,
    }
}

impl MemoryV2 {
    /// `nvmlMemory_v2`
    pub const VERSION: c_uint = versioned::<Self>(2);
}

impl PciInfoExt {
    /// `nvmlPciInfoExt_v1`
    pub const VERSION: c_uint = versioned::<Self>(1);
}

impl Uuid {
    /// `nvmlUUID_v1`
    pub const VERSION: c_uint = versioned::<Self>(1);
}

const _: () = {
    assert!(MemoryV2::VERSION == 0x0200_0028);
    assert!(PciInfoExt::VERSION == 0x0100_0040);
    assert!(Uuid::VERSION == 0x0100_0034);
};
