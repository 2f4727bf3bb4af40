//! Structures of the runtime API that the shims read or write, with their sizes and offsets (`driver_types.h`
//! and `vector_types.h` 12.9, 13.0 and 13.5). They are the same in both majors, except for
//! `cudaPointerAttributes`.

use core::ffi::{c_int, c_long, c_uint, c_void};

use super::handles::Stream;
use crate::driver::CUlaunchAttribute;

/// Declares a C structure and asserts its size and offsets. Fields bear CUDA's names.
macro_rules! c_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident = $size:literal {
            $( pub $field:ident : $ty:ty = $offset:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[allow(non_snake_case, missing_docs, reason = "the fields are CUDA's, under CUDA's names")]
        pub struct $name {
            $( pub $field: $ty, )*
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $( assert!(core::mem::offset_of!($name, $field) == $offset); )*
        };

        impl $name {
            /// Size of the structure, then name and offset of each field.
            pub const LAYOUT: (usize, &'static [(&'static str, usize)]) =
                ($size, &[ $( (stringify!($field), $offset), )* ]);
        }
    };
}

c_struct! {
    /// `dim3`: the extent of a grid or block.
    #[derive(PartialEq, Eq)]
    pub struct Dim3 = 12 {
        pub x: c_uint = 0,
        pub y: c_uint = 4,
        pub z: c_uint = 8,
    }
}

c_struct! {
    /// `cudaFuncAttributes`. The fields that only CUDA 13.5 has are part of `reserved`, and zero.
    pub struct FuncAttributes = 144 {
        pub sharedSizeBytes: usize = 0,
        pub constSizeBytes: usize = 8,
        pub localSizeBytes: usize = 16,
        pub maxThreadsPerBlock: c_int = 24,
        pub numRegs: c_int = 28,
        pub ptxVersion: c_int = 32,
        pub binaryVersion: c_int = 36,
        pub cacheModeCA: c_int = 40,
        pub maxDynamicSharedSizeBytes: c_int = 44,
        pub preferredShmemCarveout: c_int = 48,
        pub clusterDimMustBeSet: c_int = 52,
        pub requiredClusterWidth: c_int = 56,
        pub requiredClusterHeight: c_int = 60,
        pub requiredClusterDepth: c_int = 64,
        pub clusterSchedulingPolicyPreference: c_int = 68,
        pub nonPortableClusterSizeAllowed: c_int = 72,
        pub reserved: [c_int; 16] = 76,
    }
}

c_struct! {
    /// `cudaLaunchConfig_t`. The attributes' ids and values are the driver's.
    pub struct LaunchConfig = 56 {
        pub gridDim: Dim3 = 0,
        pub blockDim: Dim3 = 12,
        pub dynamicSmemBytes: usize = 24,
        pub stream: Stream = 32,
        pub attrs: *const CUlaunchAttribute = 40,
        pub numAttrs: c_uint = 48,
    }
}

c_struct! {
    /// `cudaPointerAttributes` of CUDA 12.
    pub struct PointerAttributes12 = 24 {
        pub r#type: c_uint = 0,
        pub device: c_int = 4,
        pub devicePointer: *mut c_void = 8,
        pub hostPointer: *mut c_void = 16,
    }
}

c_struct! {
    /// `cudaPointerAttributes` of CUDA 13.
    pub struct PointerAttributes13 = 88 {
        pub r#type: c_uint = 0,
        pub device: c_int = 4,
        pub devicePointer: *mut c_void = 8,
        pub hostPointer: *mut c_void = 16,
        pub reserved: [c_long; 8] = 24,
    }
}

c_struct! {
    /// `cudaExtent`: the size of a 3D copy or fill.
    pub struct Extent = 24 {
        pub width: usize = 0,
        pub height: usize = 8,
        pub depth: usize = 16,
    }
}

c_struct! {
    /// `cudaPos`: where a 3D copy starts.
    pub struct Position = 24 {
        pub x: usize = 0,
        pub y: usize = 8,
        pub z: usize = 16,
    }
}

c_struct! {
    /// `cudaPitchedPtr`: memory whose rows are `pitch` bytes apart.
    pub struct PitchedPtr = 32 {
        pub ptr: *mut c_void = 0,
        pub pitch: usize = 8,
        pub xsize: usize = 16,
        pub ysize: usize = 24,
    }
}

c_struct! {
    /// `cudaMemcpy3DParms`: the arguments of `cudaMemcpy3D`.
    pub struct Memcpy3DParms = 160 {
        pub srcArray: *mut c_void = 0,
        pub srcPos: Position = 8,
        pub srcPtr: PitchedPtr = 32,
        pub dstArray: *mut c_void = 64,
        pub dstPos: Position = 72,
        pub dstPtr: PitchedPtr = 96,
        pub extent: Extent = 128,
        pub kind: c_uint = 152,
    }
}

c_struct! {
    /// `cudaMemcpy3DPeerParms`: the arguments of `cudaMemcpy3DPeer`.
    pub struct Memcpy3DPeerParms = 168 {
        pub srcArray: *mut c_void = 0,
        pub srcPos: Position = 8,
        pub srcPtr: PitchedPtr = 32,
        pub srcDevice: c_int = 64,
        pub dstArray: *mut c_void = 72,
        pub dstPos: Position = 80,
        pub dstPtr: PitchedPtr = 104,
        pub dstDevice: c_int = 136,
        pub extent: Extent = 144,
    }
}

c_struct! {
    /// `cudaMemsetParams`: the parameters of a fill node.
    pub struct MemsetParams = 40 {
        pub dst: *mut c_void = 0,
        pub pitch: usize = 8,
        pub value: c_uint = 16,
        pub elementSize: c_uint = 20,
        pub width: usize = 24,
        pub height: usize = 32,
    }
}

c_struct! {
    /// `cudaKernelNodeParams`: the parameters of a kernel node.
    pub struct KernelNodeParams = 56 {
        pub func: *mut c_void = 0,
        pub gridDim: Dim3 = 8,
        pub blockDim: Dim3 = 20,
        pub sharedMemBytes: c_uint = 32,
        pub kernelParams: *mut *mut c_void = 40,
        pub extra: *mut *mut c_void = 48,
    }
}
