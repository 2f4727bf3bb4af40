//! The table of `CUdevice_attribute` values. Values that depend on the compute capability are from the tables
//! of the CUDA programming guide ("Compute Capabilities"); ids are those of `cuda.h`. A value that promises a
//! feature is only set if software executors have the feature: cooperative grids, virtual memory management
//! and stream-ordered allocation, but not textures, managed memory, or kernels that run beside copies.

use super::config::GpuConfig;

/// Properties that the compute capability determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family {
    compute_capability: (u32, u32),
    /// Shared memory of a multiprocessor in KiB.
    shared_kib: i32,
    /// Maximum shared memory in KiB of a block whose kernel opts in to more than the default.
    optin_kib: i32,
    /// Shared memory in bytes that the system reserves for each block.
    reserved: i32,
    /// Maximum number of threads on a multiprocessor.
    threads: i32,
    /// Maximum number of blocks on a multiprocessor.
    blocks: i32,
    /// Maximum number of registers of a block, in units of 1024.
    block_registers_k: i32,
}

const fn family(
    compute_capability: (u32, u32),
    shared_kib: i32,
    optin_kib: i32,
    reserved: i32,
    threads: i32,
    blocks: i32,
    block_registers_k: i32,
) -> Family {
    Family { compute_capability, shared_kib, optin_kib, reserved, threads, blocks, block_registers_k }
}

const FAMILIES: &[Family] = &[
    family((5, 0), 64, 48, 0, 2048, 32, 64),
    family((5, 2), 96, 48, 0, 2048, 32, 64),
    family((5, 3), 64, 48, 0, 2048, 32, 32),
    family((6, 0), 64, 48, 0, 2048, 32, 64),
    family((6, 1), 96, 48, 0, 2048, 32, 64),
    family((6, 2), 64, 48, 0, 2048, 32, 32),
    family((7, 0), 96, 96, 0, 2048, 32, 64),
    family((7, 2), 96, 96, 0, 2048, 32, 64),
    family((7, 5), 64, 64, 0, 1024, 16, 64),
    family((8, 0), 164, 163, 1024, 2048, 32, 64),
    family((8, 6), 100, 99, 1024, 1536, 16, 64),
    family((8, 7), 164, 163, 1024, 1536, 16, 64),
    family((8, 9), 100, 99, 1024, 1536, 24, 64),
    family((9, 0), 228, 227, 1024, 2048, 32, 64),
    family((10, 0), 228, 227, 1024, 2048, 32, 64),
    family((10, 3), 228, 227, 1024, 2048, 32, 64),
    family((11, 0), 228, 227, 1024, 1536, 24, 64),
    family((12, 0), 100, 99, 1024, 1536, 24, 64),
    family((12, 1), 100, 99, 1024, 1536, 24, 64),
];

impl Family {
    pub(super) fn for_compute_capability(compute_capability: (u32, u32)) -> Option<Self> {
        FAMILIES.iter().copied().find(|family| family.compute_capability == compute_capability)
    }
}

/// Ids of attributes, named as in `cuda.h` without `CU_DEVICE_ATTRIBUTE_`.
mod id {
    pub(super) const MAX_THREADS_PER_BLOCK: usize = 1;
    pub(super) const MAX_BLOCK_DIM_X: usize = 2;
    pub(super) const MAX_BLOCK_DIM_Y: usize = 3;
    pub(super) const MAX_BLOCK_DIM_Z: usize = 4;
    pub(super) const MAX_GRID_DIM_X: usize = 5;
    pub(super) const MAX_GRID_DIM_Y: usize = 6;
    pub(super) const MAX_GRID_DIM_Z: usize = 7;
    pub(super) const MAX_SHARED_MEMORY_PER_BLOCK: usize = 8;
    pub(super) const TOTAL_CONSTANT_MEMORY: usize = 9;
    pub(super) const WARP_SIZE: usize = 10;
    pub(super) const MAX_PITCH: usize = 11;
    pub(super) const MAX_REGISTERS_PER_BLOCK: usize = 12;
    pub(super) const CLOCK_RATE: usize = 13;
    pub(super) const TEXTURE_ALIGNMENT: usize = 14;
    pub(super) const MULTIPROCESSOR_COUNT: usize = 16;
    pub(super) const SURFACE_ALIGNMENT: usize = 30;
    pub(super) const MEMORY_CLOCK_RATE: usize = 36;
    pub(super) const GLOBAL_MEMORY_BUS_WIDTH: usize = 37;
    pub(super) const L2_CACHE_SIZE: usize = 38;
    pub(super) const MAX_THREADS_PER_MULTIPROCESSOR: usize = 39;
    pub(super) const UNIFIED_ADDRESSING: usize = 41;
    pub(super) const TEXTURE_PITCH_ALIGNMENT: usize = 51;
    pub(super) const COMPUTE_CAPABILITY_MAJOR: usize = 75;
    pub(super) const COMPUTE_CAPABILITY_MINOR: usize = 76;
    pub(super) const GLOBAL_L1_CACHE_SUPPORTED: usize = 79;
    pub(super) const LOCAL_L1_CACHE_SUPPORTED: usize = 80;
    pub(super) const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: usize = 81;
    pub(super) const MAX_REGISTERS_PER_MULTIPROCESSOR: usize = 82;
    pub(super) const SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: usize = 87;
    pub(super) const COOPERATIVE_LAUNCH: usize = 95;
    pub(super) const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: usize = 97;
    pub(super) const VIRTUAL_MEMORY_MANAGEMENT: usize = 102;
    pub(super) const MAX_BLOCKS_PER_MULTIPROCESSOR: usize = 106;
    pub(super) const RESERVED_SHARED_MEMORY_PER_BLOCK: usize = 111;
    pub(super) const MEMORY_POOLS_SUPPORTED: usize = 115;
    pub(super) const MEM_SYNC_DOMAIN_COUNT: usize = 126;
    pub(super) const NUMA_ID: usize = 131;
    pub(super) const GPU_PCI_DEVICE_ID: usize = 139;
    pub(super) const GPU_PCI_SUBSYSTEM_ID: usize = 140;
}

/// Returns the values by id. An id that is not listed is 0: the property is absent or unsupported, or the
/// guest determines it (its PCI address, whether host memory can be registered).
pub(super) fn attributes(config: &GpuConfig, family: Family) -> [i32; 192] {
    use vgpu_wire::pci;

    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let pci_id = |device: u16, vendor: u16| (u32::from(device) << 16 | u32::from(vendor)).cast_signed();
    let (major, minor) = config.compute_capability;
    let mut values = [0; 192];
    for (id, value) in [
        (id::MAX_THREADS_PER_BLOCK, 1024),
        (id::MAX_BLOCK_DIM_X, 1024),
        (id::MAX_BLOCK_DIM_Y, 1024),
        (id::MAX_BLOCK_DIM_Z, 64),
        (id::MAX_GRID_DIM_X, i32::MAX),
        (id::MAX_GRID_DIM_Y, 65_535),
        (id::MAX_GRID_DIM_Z, 65_535),
        (id::MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10),
        (id::TOTAL_CONSTANT_MEMORY, 64 << 10),
        (id::WARP_SIZE, 32),
        (id::MAX_PITCH, i32::MAX),
        (id::MAX_REGISTERS_PER_BLOCK, family.block_registers_k << 10),
        (id::CLOCK_RATE, number(config.clock_khz)),
        (id::TEXTURE_ALIGNMENT, 512),
        (id::MULTIPROCESSOR_COUNT, number(config.multiprocessors)),
        (id::SURFACE_ALIGNMENT, 512),
        (id::MEMORY_CLOCK_RATE, number(config.memory_clock_khz)),
        (id::GLOBAL_MEMORY_BUS_WIDTH, number(config.bus_bits)),
        (id::L2_CACHE_SIZE, number(config.l2_bytes)),
        (id::MAX_THREADS_PER_MULTIPROCESSOR, family.threads),
        (id::UNIFIED_ADDRESSING, 1),
        (id::TEXTURE_PITCH_ALIGNMENT, 32),
        (id::COMPUTE_CAPABILITY_MAJOR, number(major)),
        (id::COMPUTE_CAPABILITY_MINOR, number(minor)),
        (id::GLOBAL_L1_CACHE_SUPPORTED, 1),
        (id::LOCAL_L1_CACHE_SUPPORTED, 1),
        (id::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, family.shared_kib << 10),
        (id::MAX_REGISTERS_PER_MULTIPROCESSOR, 64 << 10),
        (id::SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2),
        // Kernels with a grid barrier need instructions of 6.0.
        (id::COOPERATIVE_LAUNCH, i32::from(major >= 6)),
        (id::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, family.optin_kib << 10),
        (id::VIRTUAL_MEMORY_MANAGEMENT, 1),
        (id::MAX_BLOCKS_PER_MULTIPROCESSOR, family.blocks),
        (id::RESERVED_SHARED_MEMORY_PER_BLOCK, family.reserved),
        (id::MEMORY_POOLS_SUPPORTED, 1),
        (id::MEM_SYNC_DOMAIN_COUNT, 1),
        (id::NUMA_ID, -1),
        (id::GPU_PCI_DEVICE_ID, pci_id(pci::DEVICE, pci::VENDOR)),
        (id::GPU_PCI_SUBSYSTEM_ID, pci_id(pci::SUBSYSTEM_DEVICE, pci::SUBSYSTEM_VENDOR)),
    ] {
        values[id] = value;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_in_order_and_consistent() {
        assert!(FAMILIES.is_sorted_by(|a, b| a.compute_capability < b.compute_capability));
        for family in FAMILIES {
            assert!(family.optin_kib <= family.shared_kib, "{family:?}");
            assert_eq!(family.threads % 32, 0, "{family:?}");
            assert_eq!(family.compute_capability.0 >= 8, family.reserved != 0, "{family:?}");
        }
    }

    #[test]
    fn shared_memory_that_kernels_may_ask_for_is_what_real_devices_report() {
        for (capability, bytes) in [
            ((6, 1), 49_152),
            ((7, 0), 98_304),
            ((7, 5), 65_536),
            ((8, 0), 166_912),
            ((8, 6), 101_376),
            ((8, 9), 101_376),
            ((9, 0), 232_448),
        ] {
            let config = GpuConfig { compute_capability: capability, ..GpuConfig::new("x").unwrap() };
            let values = attributes(&config, Family::for_compute_capability(capability).unwrap());
            assert_eq!(values[id::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN], bytes, "{capability:?}");
            assert_eq!(values[id::MAX_SHARED_MEMORY_PER_BLOCK], 49_152);
        }
    }
}
