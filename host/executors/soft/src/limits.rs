//! Limits of launches, from the device's attributes, and occupancy.

use vgpu_wire::facts::DeviceFacts;

/// Numbers of the `CUdevice_attribute`s from which the limits are read.
mod id {
    pub(super) const MAX_THREADS_PER_BLOCK: usize = 1;
    pub(super) const MAX_BLOCK_DIM_X: usize = 2;
    pub(super) const MAX_GRID_DIM_X: usize = 5;
    pub(super) const MAX_SHARED_MEMORY_PER_BLOCK: usize = 8;
    pub(super) const MULTIPROCESSOR_COUNT: usize = 16;
    pub(super) const MAX_THREADS_PER_MULTIPROCESSOR: usize = 39;
    pub(super) const MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: usize = 81;
    pub(super) const MAX_REGISTERS_PER_MULTIPROCESSOR: usize = 82;
    pub(super) const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: usize = 97;
    pub(super) const MAX_BLOCKS_PER_MULTIPROCESSOR: usize = 106;
    pub(super) const RESERVED_SHARED_MEMORY_PER_BLOCK: usize = 111;
}

/// Number of threads of a warp.
const WARP: u32 = 32;
/// Number of partitions of a multiprocessor. The warps of a block are allocated in multiples of it.
const PARTS: u32 = 4;
/// Allocation unit of a warp's registers, in registers of 32 bits: a warp takes a multiple of it.
const REGISTER_UNIT: u32 = 256;

/// Limits of a device. Sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchLimits {
    pub(crate) threads: u32,
    pub(crate) block: [u32; 3],
    pub(crate) grid: [u32; 3],
    /// Largest sum of static and dynamic shared memory of a block, without opting in to more.
    pub(crate) shared: u32,
    /// Largest sum of static and dynamic shared memory of a block whose kernel has opted in to more.
    pub(crate) shared_optin: u32,
    pub(crate) multiprocessors: u32,
    sm_threads: u32,
    sm_blocks: u32,
    sm_shared: u32,
    sm_registers: u32,
    reserved_shared: u32,
    /// Allocation unit of shared memory: a block takes a multiple of it.
    shared_unit: u32,
}

/// Resources that a launch needs for each block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) threads: u32,
    pub(crate) max_threads: u32,
    pub(crate) registers: u32,
    /// Static and dynamic shared memory in bytes.
    pub(crate) shared: u64,
}

impl LaunchLimits {
    pub(crate) fn new(facts: &DeviceFacts) -> Self {
        let get = |id: usize| facts.attributes[id].max(0).cast_unsigned();
        let axes = |first: usize| [get(first), get(first + 1), get(first + 2)];
        let shared = get(id::MAX_SHARED_MEMORY_PER_BLOCK);
        Self {
            threads: get(id::MAX_THREADS_PER_BLOCK),
            block: axes(id::MAX_BLOCK_DIM_X),
            grid: axes(id::MAX_GRID_DIM_X),
            shared,
            shared_optin: get(id::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN).max(shared),
            multiprocessors: get(id::MULTIPROCESSOR_COUNT),
            sm_threads: get(id::MAX_THREADS_PER_MULTIPROCESSOR),
            sm_blocks: get(id::MAX_BLOCKS_PER_MULTIPROCESSOR),
            sm_shared: get(id::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
            sm_registers: get(id::MAX_REGISTERS_PER_MULTIPROCESSOR),
            reserved_shared: get(id::RESERVED_SHARED_MEMORY_PER_BLOCK),
            shared_unit: if facts.cc_major >= 8 { 128 } else { 256 },
        }
    }

    /// Returns the largest number of registers per thread with which a block of `threads` threads fits on a
    /// multiprocessor.
    pub(crate) fn registers_for(&self, threads: u32) -> u32 {
        let warps = threads.div_ceil(WARP).max(1).next_multiple_of(PARTS);
        let per_warp = self.sm_registers / warps / REGISTER_UNIT * REGISTER_UNIT;
        (per_warp / WARP).min(255)
    }

    /// Carries out `cuOccupancyMaxActiveBlocksPerMultiprocessor`: returns the number of blocks that a
    /// multiprocessor can hold at once, for which its threads, registers and shared memory suffice. The rules
    /// are those of the toolkit's occupancy calculator.
    pub(crate) fn blocks(&self, demand: &Demand) -> u32 {
        if demand.threads == 0 || demand.threads > self.threads.min(demand.max_threads) {
            return 0;
        }
        let warps = demand.threads.div_ceil(WARP);
        let by_threads = self.sm_threads / WARP / warps;
        let per_warp = (demand.registers.max(1) * WARP).next_multiple_of(REGISTER_UNIT);
        let warps_by_registers = self.sm_registers / PARTS / per_warp * PARTS;
        let by_registers = warps_by_registers / warps.next_multiple_of(PARTS);
        // Blocks of fewer than four warps may share a multiprocessor's partitions.
        let by_registers = by_registers.max(if warps < PARTS { warps_by_registers / warps } else { 0 });
        let shared = demand.shared.saturating_add(self.reserved_shared.into());
        let by_shared = match shared.checked_next_multiple_of(self.shared_unit.into()) {
            _ if demand.shared > self.shared_optin.into() => 0,
            None => 0,
            Some(0) => u32::MAX,
            Some(bytes) => u32::try_from(u64::from(self.sm_shared) / bytes).unwrap_or(u32::MAX),
        };
        self.sm_blocks.min(by_threads).min(by_registers).min(by_shared)
    }
}

#[cfg(test)]
mod tests {
    use vgpu_device::GpuConfig;

    use super::*;

    fn limits(compute_capability: (u32, u32)) -> LaunchLimits {
        let config = GpuConfig { compute_capability, ..GpuConfig::new("x").unwrap() };
        LaunchLimits::new(&config.facts(0).unwrap())
    }

    #[test]
    fn blocks_are_limited_by_each_resource() {
        let limits = limits((6, 1));
        let demand = Demand { threads: 256, max_threads: 1024, registers: 32, shared: 0 };
        assert_eq!(limits.blocks(&demand), 8, "threads");
        assert_eq!(limits.blocks(&Demand { threads: 32, ..demand }), 32, "blocks");
        assert_eq!(limits.blocks(&Demand { registers: 64, ..demand }), 4, "registers");
        assert_eq!(limits.blocks(&Demand { registers: 255, ..demand }), 1);
        assert_eq!(limits.blocks(&Demand { shared: 48 << 10, ..demand }), 2, "shared memory");
        assert_eq!(limits.blocks(&Demand { shared: (48 << 10) + 1, ..demand }), 0);
        assert_eq!(limits.blocks(&Demand { shared: u64::MAX, ..demand }), 0);
        assert_eq!(limits.blocks(&Demand { threads: 1025, ..demand }), 0);
        assert_eq!(limits.blocks(&Demand { max_threads: 128, ..demand }), 0);
        assert_eq!(limits.blocks(&Demand { threads: 1024, registers: 64, ..demand }), 1);
        assert_eq!(limits.blocks(&Demand { threads: 1024, registers: 65, ..demand }), 0);
    }

    #[test]
    fn what_the_system_takes_of_shared_memory_counts() {
        let limits = limits((8, 6));
        let demand = Demand { threads: 128, max_threads: 1024, registers: 32, shared: 48 << 10 };
        // The multiprocessor has 100 KiB, and each block takes one KiB more than it asks for.
        assert_eq!(limits.blocks(&demand), 2);
        assert_eq!(limits.blocks(&Demand { shared: 49 << 10, ..demand }), 2);
        assert_eq!(limits.blocks(&Demand { shared: 50 << 10, ..demand }), 1);
        assert_eq!(limits.blocks(&Demand { shared: 99 << 10, ..demand }), 1);
    }

    #[test]
    fn as_many_registers_as_fit_do_fit() {
        for capability in [(6, 1), (7, 5), (8, 9), (9, 0)] {
            let limits = limits(capability);
            for threads in [1, 32, 33, 128, 256, 384, 512, 1000, 1024] {
                let registers = limits.registers_for(threads);
                let demand = Demand { threads, max_threads: 1024, registers, shared: 0 };
                assert!(limits.blocks(&demand) > 0, "{capability:?} {threads} {registers}");
            }
        }
    }
}
