//! The facts of a device, with which the host answers `Hello`. The guest answers every property and attribute
//! query from them.

use core::ops::RangeInclusive;

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
        /// Device memory in bytes. 0 tells a guest that the host has stored no facts.
        pub total_bytes: u64 = 352,
        /// What `cuDriverGetVersion` returns: 1000 * major + 10 * minor of the newest CUDA version that the
        /// host supports. Not 0.
        pub driver_version: u32 = 360,
        /// Major number of the compute capability.
        pub cc_major: u32 = 364,
        /// Minor number of the compute capability.
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
    /// The executor accepts launches. The null executor sets the bit too, and its launches have no effect.
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
    /// The host keeps no image beyond its session and ignores digests, so that a guest may leave them zero
    /// ([`ModuleOpen`](crate::body::module::ModuleOpen)).
    pub const UNNAMED: u32 = 1 << 7;
    /// Extension: programmatic dependencies of graph nodes
    /// ([`EDGE_PROGRAMMATIC`](crate::body::graph::EDGE_PROGRAMMATIC)).
    pub const EDGES: u32 = 1 << 8;
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

/// Attributes of a device that a host with a real GPU announces as 0, or that a guest reads as 0, with the
/// reason. They are named by their number in `CUdevice_attribute`.
#[derive(Clone, Debug)]
pub struct AbsentAttributes {
    /// Reason why a guest lacks them, a clause for readers of this table.
    pub reason: &'static str,
    /// Attributes that a guest reads as 0 even if its host says otherwise.
    in_any_guest: &'static [RangeInclusive<u8>],
    /// Attributes that a host with a real GPU does not copy from that GPU.
    of_a_gpu: &'static [RangeInclusive<u8>],
}

impl AbsentAttributes {
    const fn new(
        reason: &'static str,
        in_any_guest: &'static [RangeInclusive<u8>],
        of_a_gpu: &'static [RangeInclusive<u8>],
    ) -> Self {
        Self { reason, in_any_guest, of_a_gpu }
    }

    /// Returns the attributes that a guest reads as 0 even if its host says otherwise.
    pub fn in_any_guest(&self) -> impl Iterator<Item = usize> {
        self.in_any_guest.iter().cloned().flatten().map(usize::from)
    }

    /// Returns all attributes that a host with a real GPU announces as 0.
    pub fn all(&self) -> impl Iterator<Item = usize> {
        self.in_any_guest().chain(self.of_a_gpu.iter().cloned().flatten().map(usize::from))
    }
}

/// Attributes that a host announces as 0 whatever its GPU supports. It announces all others as the GPU has
/// them. A guest replaces the PCI ids among them with those of its own function.
pub const NOT_IN_A_GUEST: &[AbsentAttributes] = &[
    AbsentAttributes::new(
        "a display of the host does not limit the guest's kernels, and its modes are its own",
        &[],
        &[17..=17, 20..=20],
    ),
    AbsentAttributes::new(
        "kernels do not reach the guest's memory: it is another process's, at other addresses",
        &[19..=19, 91..=91],
        &[],
    ),
    AbsentAttributes::new(
        "textures, surfaces and arrays are not in the contract",
        &[107..=107, 112..=112, 121..=121, 127..=127],
        &[21..=29, 42..=49, 52..=74, 77..=77],
    ),
    AbsentAttributes::new(
        "the host's topology is not the guest's",
        &[],
        &[33..=34, 50..=50, 130..=131, 134..=134, 139..=140],
    ),
    AbsentAttributes::new(
        "memory that host and device share page by page needs one address space",
        &[83..=83, 88..=89, 100..=101],
        &[],
    ),
    AbsentAttributes::new(
        "no launch spans several of the guest's devices",
        &[96..=96, 132..=132],
        &[84..=85],
    ),
    AbsentAttributes::new("native atomics of host memory need kernels that reach it", &[], &[86..=86]),
    AbsentAttributes::new(
        "words that a guest's streams store or wait for are not in the contract",
        &[92..=94, 122..=123],
        &[],
    ),
    AbsentAttributes::new(
        "no other device of the guest reaches the GPU's memory",
        &[98..=98, 110..=110, 116..=118, 124..=124],
        &[],
    ),
    AbsentAttributes::new(
        "the guest itself says whether it can register its pages, which are its kernel's",
        &[99..=99, 113..=113],
        &[],
    ),
    AbsentAttributes::new(
        "other processes and APIs of the guest cannot open handles of the host",
        &[103..=105, 114..=114, 119..=119, 125..=125, 128..=128, 135..=135, 138..=138, 143..=143],
        &[],
    ),
    AbsentAttributes::new("a guest cannot use the host's MPS server", &[133..=133], &[]),
    AbsentAttributes::new(
        "the contract does not carry these features of CUDA 12 and 13",
        &[129..=129, 136..=137, 141..=142, 144..=146, 151..=156, 158..=159, 161..=161],
        &[],
    ),
];
