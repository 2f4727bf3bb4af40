//! The description of the GPU that version 1 hosts send, made from the executor's facts.

use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::v1::payload::GpuInfo;
use zerocopy::IntoBytes;
use zerocopy::little_endian::I32;

/// The `CUdevice_attribute` values that the description contains.
mod id {
    pub(super) const MAX_THREADS_PER_BLOCK: usize = 1;
    pub(super) const MAX_BLOCK_DIM: usize = 2;
    pub(super) const MAX_GRID_DIM: usize = 5;
    pub(super) const MAX_SHARED_MEMORY_PER_BLOCK: usize = 8;
    pub(super) const WARP_SIZE: usize = 10;
    pub(super) const MAX_REGISTERS_PER_BLOCK: usize = 12;
    pub(super) const CLOCK_RATE: usize = 13;
    pub(super) const MULTIPROCESSOR_COUNT: usize = 16;
    pub(super) const CONCURRENT_KERNELS: usize = 31;
    pub(super) const ECC_ENABLED: usize = 32;
    pub(super) const PCI_BUS_ID: usize = 33;
    pub(super) const PCI_DEVICE_ID: usize = 34;
    pub(super) const MEMORY_CLOCK_RATE: usize = 36;
    pub(super) const GLOBAL_MEMORY_BUS_WIDTH: usize = 37;
    pub(super) const L2_CACHE_SIZE: usize = 38;
    pub(super) const MAX_THREADS_PER_MULTIPROCESSOR: usize = 39;
    pub(super) const ASYNC_ENGINE_COUNT: usize = 40;
    pub(super) const UNIFIED_ADDRESSING: usize = 41;
    pub(super) const PCI_DOMAIN_ID: usize = 50;
    pub(super) const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: usize = 81;
    pub(super) const MAX_REGISTERS_PER_MULTIPROCESSOR: usize = 82;
    pub(super) const MANAGED_MEMORY: usize = 83;
}

/// Returns the payload of `GetGpuInfo`, 472 bytes. `used` is the device memory in use, in bytes.
pub(super) fn gpu_info(facts: &DeviceFacts, used: u64) -> Vec<u8> {
    let get = |id: usize| I32::new(facts.attributes[id]);
    let axes = |first: usize| [get(first), get(first + 1), get(first + 2)];
    let natural = |value: u32| I32::new(i32::try_from(value).unwrap_or(i32::MAX));
    GpuInfo {
        name: facts.name,
        uuid: facts.uuid,
        total_bytes: facts.total_bytes.into(),
        free_bytes: facts.total_bytes.saturating_sub(used).into(),
        cc_major: natural(facts.cc_major),
        cc_minor: natural(facts.cc_minor),
        multiprocessors: get(id::MULTIPROCESSOR_COUNT),
        max_threads_per_block: get(id::MAX_THREADS_PER_BLOCK),
        max_block: axes(id::MAX_BLOCK_DIM),
        max_grid: axes(id::MAX_GRID_DIM),
        warp: get(id::WARP_SIZE),
        shared_per_block: get(id::MAX_SHARED_MEMORY_PER_BLOCK),
        shared_per_multiprocessor: get(id::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
        registers_per_block: get(id::MAX_REGISTERS_PER_BLOCK),
        registers_per_multiprocessor: get(id::MAX_REGISTERS_PER_MULTIPROCESSOR),
        clock_khz: get(id::CLOCK_RATE),
        memory_clock_khz: get(id::MEMORY_CLOCK_RATE),
        bus_bits: get(id::GLOBAL_MEMORY_BUS_WIDTH),
        l2_bytes: get(id::L2_CACHE_SIZE),
        max_threads_per_multiprocessor: get(id::MAX_THREADS_PER_MULTIPROCESSOR),
        unified_addressing: get(id::UNIFIED_ADDRESSING),
        managed_memory: get(id::MANAGED_MEMORY),
        concurrent_kernels: get(id::CONCURRENT_KERNELS),
        async_engines: get(id::ASYNC_ENGINE_COUNT),
        pci_bus: get(id::PCI_BUS_ID),
        pci_device: get(id::PCI_DEVICE_ID),
        pci_domain: get(id::PCI_DOMAIN_ID),
        ecc: get(id::ECC_ENABLED),
        driver_version: natural(facts.driver_version),
        runtime_version: natural(facts.driver_version),
        reserved: [I32::ZERO; 16],
    }
    .as_bytes()
    .to_vec()
}
