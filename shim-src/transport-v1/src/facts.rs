//! Derives a device's facts from the GPU facts of version 1, and computes the occupancy from them.

use vgpu_wire::facts::{DeviceFacts, exec};
use vgpu_wire::v1::payload::GpuInfo;
use zerocopy::FromZeros;
use zerocopy::little_endian::I32;

/// Returns the maximum number of resident blocks of a multiprocessor, by compute capability ("Compute
/// Capabilities" of the CUDA programming guide). Version 1 does not state it. An unknown capability gets the
/// smallest number in use.
fn blocks_per_multiprocessor(major: i32, minor: i32) -> i32 {
    match (major, minor) {
        (7, 5) | (8, 6 | 7) => 16,
        (5..=7 | 9 | 10, _) | (8, 0) => 32,
        (8, 9) | (11 | 12, _) => 24,
        _ => 16,
    }
}

/// Returns the number of bytes of shared memory that the CUDA system reserves for each block.
const fn reserved_shared(major: i32) -> i32 {
    if major >= 8 { 1024 } else { 0 }
}

/// Returns the oldest driver that supports a CUDA version, from the release notes of the toolkits. Version 1
/// does not state the host's driver, and NVML must return a version that programs can compare with the one
/// they need.
fn driver_text(version: i32) -> &'static str {
    match version {
        ..11_000 => "450.36.06",
        11_000..12_000 => "450.80.02",
        12_000 => "525.60.13",
        12_001..=12_010 => "530.30.02",
        12_011..=12_020 => "535.54.03",
        12_021..=12_030 => "545.23.06",
        12_031..=12_040 => "550.54.14",
        12_041..=12_050 => "555.42.02",
        12_051..=12_060 => "560.28.03",
        12_061..=12_080 => "570.26",
        12_081..13_000 => "575.51.03",
        _ => "580.65.06",
    }
}

/// Derives the facts. Attributes that neither version 1 states nor the compute capability implies are 0.
pub(crate) fn from_gpu_info(info: &GpuInfo) -> DeviceFacts {
    let mut facts = DeviceFacts::new_zeroed();
    facts.name = info.name;
    facts.name[255] = 0;
    facts.uuid = info.uuid;
    facts.total_bytes = info.total_bytes.get();
    facts.driver_version = info.driver_version.get().cast_unsigned();
    let text = driver_text(info.driver_version.get());
    facts.driver_text[..text.len()].copy_from_slice(text.as_bytes());
    let (major, minor) = (info.cc_major.get(), info.cc_minor.get());
    facts.cc_major = major.cast_unsigned();
    facts.cc_minor = minor.cast_unsigned();
    facts.granularity = 2 << 20;
    // Version 1 does not state which code a host accepts. A GPU's driver accepts both; if a host refuses a
    // cubin, libcuda sends the PTX of the same image.
    facts.abilities = exec::KERNELS | exec::CUBIN | exec::PTX;
    let [block_x, block_y, block_z] = info.max_block.map(I32::get);
    let [grid_x, grid_y, grid_z] = info.max_grid.map(I32::get);
    // Numbers as in `CUdevice_attribute`.
    for (id, value) in [
        (1, info.max_threads_per_block.get()),
        (2, block_x),
        (3, block_y),
        (4, block_z),
        (5, grid_x),
        (6, grid_y),
        (7, grid_z),
        (8, info.shared_per_block.get()),
        (9, 65536), // constant memory: the same of every architecture
        (10, info.warp.get()),
        (11, i32::MAX), // pitch
        (12, info.registers_per_block.get()),
        (13, info.clock_khz.get()),
        (14, 512), // alignment of textures
        (15, i32::from(info.async_engines.get() > 0)),
        (16, info.multiprocessors.get()),
        (30, 512), // alignment of surfaces
        (31, info.concurrent_kernels.get()),
        (32, info.ecc.get()),
        (33, info.pci_bus.get()),
        (34, info.pci_device.get()),
        (50, info.pci_domain.get()),
        (36, info.memory_clock_khz.get()),
        (37, info.bus_bits.get()),
        (38, info.l2_bytes.get()),
        (39, info.max_threads_per_multiprocessor.get()),
        (40, info.async_engines.get()),
        (41, info.unified_addressing.get()),
        (51, 32), // alignment of a texture's pitch
        (75, major),
        (76, minor),
        (79, 1),
        (80, 1), // global and local memory are cached
        (81, info.shared_per_multiprocessor.get()),
        (82, info.registers_per_multiprocessor.get()),
        // Shared memory that a kernel can opt in to. No call sets it (Q15), so it is the default.
        (97, info.shared_per_block.get()),
        (106, blocks_per_multiprocessor(major, minor)),
        (111, reserved_shared(major)),
        (115, 1), // allocations in the order of a stream: all is in order
        (126, 1),
    ] {
        facts.attributes[id] = value;
    }
    facts
}

/// Resources of a kernel that limit its [`occupancy`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelUsage {
    /// Number of threads of a block.
    pub(crate) threads: u32,
    /// Number of registers of a thread.
    pub(crate) registers: u32,
    /// Static and dynamic shared memory of a block in bytes.
    pub(crate) shared_bytes: u64,
}

/// Returns the number of blocks that are resident on one multiprocessor, by the rules of CUDA's occupancy
/// calculator. Registers are allocated in units of 256 for each warp, shared memory in units of 128 bytes
/// (256 below compute capability 8.0).
pub(crate) fn occupancy(facts: &DeviceFacts, kernel: KernelUsage) -> u32 {
    let attribute = |id: usize| u64::try_from(facts.attributes[id]).unwrap_or(0);
    let warp = attribute(10).max(1);
    let warps = u64::from(kernel.threads).div_ceil(warp).max(1);
    let by_warps = attribute(39) / warp / warps;
    let registers = (u64::from(kernel.registers) * warp).next_multiple_of(256);
    // A warp gets its registers from one of four partitions of the multiprocessor.
    let by_registers = match (attribute(82) / 4).checked_div(registers) {
        Some(per_part) => per_part * 4 / warps,
        None => u64::MAX,
    };
    let unit = if facts.cc_major >= 8 { 128 } else { 256 };
    let shared = (kernel.shared_bytes + attribute(111)).next_multiple_of(unit);
    let by_shared = attribute(81).checked_div(shared).unwrap_or(u64::MAX);
    let blocks = by_warps.min(by_registers).min(by_shared).min(attribute(106));
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h100() -> GpuInfo {
        let mut info = GpuInfo::new_zeroed();
        info.cc_major = 9.into();
        info.multiprocessors = 114.into();
        info.max_threads_per_block = 1024.into();
        info.warp = 32.into();
        info.shared_per_block = 49152.into();
        info.shared_per_multiprocessor = (228 << 10).into();
        info.registers_per_multiprocessor = 65536.into();
        info.max_threads_per_multiprocessor = 2048.into();
        info.driver_version = 12_030.into();
        info.total_bytes = (80 << 30).into();
        info
    }

    #[test]
    fn a_host_of_cuda_12_3_has_the_driver_of_it() {
        let facts = from_gpu_info(&h100());
        assert_eq!(&facts.driver_text[..10], b"545.23.06\0");
        assert_eq!((facts.driver_version, facts.cc_major, facts.attributes[75]), (12030, 9, 9));
        assert_eq!(facts.attributes[97], 49152, "nothing can be opted in to");
        assert_eq!(
            (facts.attributes[95], facts.attributes[102]),
            (0, 0),
            "no cooperation, no virtual memory"
        );
    }

    /// Compares with NVIDIA's occupancy calculator for compute capability 9.0.
    #[test]
    fn occupancy_is_the_calculators() {
        let facts = from_gpu_info(&h100());
        let blocks = |threads, registers, shared_bytes| {
            occupancy(&facts, KernelUsage { threads, registers, shared_bytes })
        };
        assert_eq!(blocks(256, 32, 0), 8);
        assert_eq!(blocks(256, 64, 0), 4);
        assert_eq!(blocks(1024, 64, 0), 1);
        assert_eq!(blocks(32, 16, 0), 32, "as many as there are");
        assert_eq!(blocks(128, 32, 48 << 10), 4, "shared memory");
        assert_eq!(blocks(1024, 255, 0), 0, "does not fit at all");
    }
}
