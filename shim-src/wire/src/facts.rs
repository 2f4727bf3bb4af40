//! What a device says of itself: the answer to `Hello`, from which the guest answers every
//! property and attribute query without asking again.

use crate::area;

wire_struct! {
    /// Facts of the GPU behind the device. Texts are UTF-8, padded with zeros, the last byte zero.
    pub struct DeviceFacts = 1200 {
        /// Product name, as `cuDeviceGetName` reports it.
        pub name: [u8; 256] = 0,
        /// Text of the driver's version, as `nvmlSystemGetDriverVersion` reports it, such as "580.65.06".
        pub driver_text: [u8; 80] = 256,
        /// UUID, as `cuDeviceGetUuid` reports it.
        pub uuid: [u8; 16] = 336,
        /// Device memory in bytes.
        pub total_bytes: u64 = 352,
        /// `cuDriverGetVersion`: 1000 * major + 10 * minor. The newest CUDA runtime that the host supports.
        pub driver_version: u32 = 360,
        /// Compute capability, major.
        pub cc_major: u32 = 364,
        /// Compute capability, minor.
        pub cc_minor: u32 = 368,
        /// Granularity and alignment of device memory allocations of the virtual memory calls, bytes.
        pub granularity: u32 = 372,
        /// Which [`exec`] abilities the executor has.
        pub abilities: u32 = 376,
        /// Zero, except for the function's device addresses ([`DeviceFacts::addresses`]): base and size, 64
        /// bits each, at 384 and 392 of the facts.
        pub reserved: [u32; 13] = 380,
        /// `CUdevice_attribute` values by id; 0 where the host does not know. PCI ids in it are the
        /// host's; the guest overrides them with its own function's address.
        pub attributes: [i32; 192] = 432,
    }
}

/// Bits of [`DeviceFacts::abilities`].
pub mod exec {
    /// Kernels run (false for the null executor, and for one that has memory only).
    pub const KERNELS: u32 = 1 << 0;
    /// Cubins are accepted.
    pub const CUBIN: u32 = 1 << 1;
    /// PTX is accepted.
    pub const PTX: u32 = 1 << 2;
    /// A stream can be held for the guest ([`crate::body::stream::StreamHold`]).
    pub const HOLDS: u32 = 1 << 3;
    /// Products with epilogues, and with a C that is not D ([`crate::body::matmul::MatmulLt`]).
    pub const EPILOGUES: u32 = 1 << 4;
    /// Sums over vectors, and sums of vectors ([`crate::body::vector::VectorOp`]).
    pub const VECTORS: u32 = 1 << 5;
    /// The driver's linker ([`crate::body::link`]).
    pub const LINKS: u32 = 1 << 6;
}

wire_struct! {
    /// Reply to `Hello`.
    pub struct HelloReply = 1216 {
        /// The session's number.
        pub session: u32 = 0,
        /// The device's generation.
        pub generation: u32 = 4,
        /// Window memory that sessions can share out among themselves, bytes.
        pub window_bytes: u64 = 8,
        /// The device.
        pub facts: DeviceFacts = 16,
    }
}

const _: () = {
    assert!(size_of::<HelloReply>() as u64 <= area::REPLY_DATA_MAX);
    assert!(size_of::<DeviceFacts>() as u64 <= area::FACTS_BYTES);
};
