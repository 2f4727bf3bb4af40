//! Handles and other plain types of the driver API.

use core::ffi::{c_int, c_void};

use super::status::CUresult;

macro_rules! handles {
    ($( $(#[$meta:meta])* $name:ident; )*) => {
        $(
            $(#[$meta])*
            ///
            /// A number that looks like a pointer; nothing lies behind it.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            #[repr(transparent)]
            pub struct $name(pub usize);

            impl $name {
                /// The handle that refers to no object.
                pub const NULL: Self = Self(0);
            }
        )*
    };
}

handles! {
    /// Handle of a context.
    CUcontext;
    /// A stream, or one of the special values 0, [`STREAM_LEGACY`] and [`STREAM_PER_THREAD`].
    CUstream;
    /// Handle of an event.
    CUevent;
    /// A module: a library's code in one context.
    CUmodule;
    /// A kernel in one context. Launches take a [`CUkernel`] in its place too.
    CUfunction;
    /// A library: code of no context.
    CUlibrary;
    /// A kernel of a library, of no context.
    CUkernel;
    /// Handle of a graph that has not been instantiated.
    CUgraph;
    /// A node of a graph.
    CUgraphNode;
    /// An instantiated graph.
    CUgraphExec;
    /// A link.
    CUlinkState;
    /// A pool of device memory.
    CUmemoryPool;
}

/// A device: its CUDA ordinal.
pub type CUdevice = c_int;
/// An address in device memory.
pub type CUdeviceptr = u64;
/// Physical memory, `cuMemCreate`.
pub type CUmemGenericAllocationHandle = u64;

/// `CU_STREAM_LEGACY`
pub const STREAM_LEGACY: CUstream = CUstream(1);
/// `CU_STREAM_PER_THREAD`
pub const STREAM_PER_THREAD: CUstream = CUstream(2);

/// 16 bytes of a UUID, `CUuuid`.
pub type CUuuid = [u8; 16];

/// `CUoccupancyB2DSize`: dynamic shared memory, in bytes, that a block of so many threads wants.
pub type BlockToShared = Option<unsafe extern "C" fn(c_int) -> usize>;

/// `CUhostFn`: a function of the program that a stream calls.
pub type CUhostFn = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`: the same with the stream and the status of the work before it.
pub type CUstreamCallback = unsafe extern "C" fn(CUstream, CUresult, *mut c_void);
