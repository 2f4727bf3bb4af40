//! Handles and other plain types of the driver API.

use core::ffi::{c_int, c_void};

use super::status::CUresult;

macro_rules! handles {
    ($( $(#[$meta:meta])* $name:ident; )*) => {
        $(
            $(#[$meta])*
            /// The number is opaque. It has the size of a pointer, but must not be dereferenced.
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
    /// Handle of a stream, or one of the special values 0, [`STREAM_LEGACY`] and [`STREAM_PER_THREAD`].
    CUstream;
    /// Handle of an event.
    CUevent;
    /// Handle of a module, a library's code in one context.
    CUmodule;
    /// Handle of a kernel in one context. Launches accept a [`CUkernel`] in its place too.
    CUfunction;
    /// Handle of a library, whose code belongs to no context.
    CUlibrary;
    /// Handle of a library's kernel, which belongs to no context.
    CUkernel;
    /// Handle of a graph that has not been instantiated.
    CUgraph;
    /// Handle of a graph's node.
    CUgraphNode;
    /// Handle of an instantiated graph.
    CUgraphExec;
    /// Handle of a link operation of the driver's linker.
    CUlinkState;
    /// Handle of a pool of device memory.
    CUmemoryPool;
}

/// CUDA ordinal of a device.
pub type CUdevice = c_int;
/// An address in device memory.
pub type CUdeviceptr = u64;
/// Handle of physical memory, created by `cuMemCreate`.
pub type CUmemGenericAllocationHandle = u64;

/// `CU_STREAM_LEGACY`: the default stream that all threads of a context share.
pub const STREAM_LEGACY: CUstream = CUstream(1);
/// `CU_STREAM_PER_THREAD`: the calling thread's own default stream.
pub const STREAM_PER_THREAD: CUstream = CUstream(2);

/// The 16 bytes of a UUID, `CUuuid`.
pub type CUuuid = [u8; 16];

/// `CUoccupancyB2DSize`: returns the dynamic shared memory, in bytes, of a block of the given number of
/// threads.
pub type BlockToShared = Option<unsafe extern "C" fn(c_int) -> usize>;

/// `CUhostFn`: a function of the program that a stream calls.
pub type CUhostFn = unsafe extern "C" fn(*mut c_void);
/// `CUstreamCallback`: like [`CUhostFn`], but called with the stream and the status of the work before it.
pub type CUstreamCallback = unsafe extern "C" fn(CUstream, CUresult, *mut c_void);
