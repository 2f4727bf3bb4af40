//! The facts of a device, with which the host answers `Hello`. The guest answers every property and attribute
//! query from them.

use crate::area;

wire_struct! {
    /// Facts of the GPU behind the device. Texts are UTF-8 and padded with zeros, at least one.
    pub struct DeviceFacts = 1200 {
        /// Product name, as `cuDeviceGetName` returns it.
        pub name: [u8; 256] = 0,
        /// Version of the driver as text, as `nvmlSystemGetDriverVersion` returns it, such as "580.65.06".
        pub driver_text: [u8; 80] = 256,
        /// The 16 bytes that `cuDeviceGetUuid` returns.
        pub uuid: [u8; 16] = 336,
        /// Device memory in bytes; 0 tells a guest that there are no facts.
        pub total_bytes: u64 = 352,
        /// What `cuDriverGetVersion` returns: 1000 * major + 10 * minor of the newest CUDA version that the
        /// host supports. Not 0.
        pub driver_version: u32 = 360,
        /// Compute capability, the number before the point.
        pub cc_major: u32 = 364,
        /// Compute capability, the number behind the point.
        pub cc_minor: u32 = 368,
        /// Granularity and alignment in bytes of allocations by the virtual memory calls.
        pub granularity: u32 = 372,
        /// Combination of the bits in [`exec`].
        pub abilities: u32 = 376,
        /// Zeros, except for the range of device addresses that [`DeviceFacts::addresses`] reads: base and
        /// size, 64 bits each, at offsets 384 and 392 of the facts.
        pub reserved: [u32; 13] = 380,
        /// Values of `CUdevice_attribute` by id, 0 where the host does not know one. PCI ids among them are
        /// the host's; the guest replaces them with its own function's address.
        pub attributes: [i32; 192] = 432,
    }
}

/// Bits of [`DeviceFacts::abilities`]: what the executor can do, and which extensions the host knows.
pub mod exec {
    /// The executor runs kernels; the null executor, for one, does not.
    pub const KERNELS: u32 = 1 << 0;
    /// The executor loads cubins ([`IMAGE_CUBIN`](crate::body::module::IMAGE_CUBIN)).
    pub const CUBIN: u32 = 1 << 1;
    /// The executor loads PTX ([`IMAGE_PTX`](crate::body::module::IMAGE_PTX)).
    pub const PTX: u32 = 1 << 2;
    /// The executor can hold a stream for the guest ([`crate::body::stream::StreamHold`]).
    pub const HOLDS: u32 = 1 << 3;
    /// Extension: products with an epilogue, or with a C that is not D ([`crate::body::matmul::MatmulLt`]).
    pub const EPILOGUES: u32 = 1 << 4;
    /// Extension: reductions and sums of vectors ([`crate::body::vector::VectorOp`]).
    pub const VECTORS: u32 = 1 << 5;
    /// Extension: the driver's linker ([`crate::body::link`]).
    pub const LINKS: u32 = 1 << 6;
    /// The host keeps no image for later sessions and looks at no digest: a guest may leave it zero
    /// ([`ModuleOpen`](crate::body::module::ModuleOpen)).
    pub const UNNAMED: u32 = 1 << 7;
}

wire_struct! {
    /// Reply to [`Hello`](crate::body::session::Hello).
    pub struct HelloReply = 1216 {
        /// The session's number, which must equal [`crate::registers::channel::SESSION`].
        pub session: u32 = 0,
        /// The device's generation, which must equal [`crate::registers::V2_GENERATION`].
        pub generation: u32 = 4,
        /// Bytes of window memory that [`WindowAlloc`](crate::body::session::WindowAlloc) shares out among
        /// all sessions.
        pub window_bytes: u64 = 8,
        /// Facts of the GPU, the same as in the window.
        pub facts: DeviceFacts = 16,
    }
}

const _: () = {
    assert!(size_of::<HelloReply>() as u64 <= area::REPLY_DATA_MAX);
    assert!(size_of::<DeviceFacts>() as u64 <= area::FACTS_BYTES);
};
