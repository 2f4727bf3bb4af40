//! `cudaDeviceProp` in three layouts, filled from one table. CUDA 12 exports `cudaGetDeviceProperties_v2`
//! with its own layout (1032 bytes) and the plain name with that of CUDA 11 (728 bytes, which the other
//! layout continues); CUDA 13 exports only the plain name, with a layout of its own (1008 bytes).
//!
//! Source of names and offsets: `driver_types.h` of 11.8, 12.9, 13.0 and 13.5. Nearly all fields are
//! attributes of the device, so the table names the attributes.

use core::ffi::c_int;

use vgpu_abi::driver::CUdevice;
use vgpu_abi::runtime::CudaError;

use crate::MAJOR;

/// Length of CUDA 11's structure in bytes.
#[cfg_attr(feature = "cuda13", allow(dead_code, reason = "only CUDA 12 still exports a call for it"))]
pub const BYTES_11: usize = 728;
/// Length of this library's structure in bytes.
pub const BYTES: usize = LAYOUT.bytes;

const LAYOUT: Layout = if MAJOR == 13 { Layout::V13 } else { Layout::V12 };

/// The properties of a device, as the program gets them.
pub struct Properties([u8; BYTES]);

/// Offsets of the fields of `cudaDeviceProp` in one CUDA release.
#[derive(Clone, Copy)]
struct Layout {
    bytes: usize,
    column: usize,
}

impl Layout {
    const V12: Self = Self { bytes: 1032, column: 0 };
    const V13: Self = Self { bytes: 1008, column: 1 };
}

/// Offsets that the layouts have in common, with no attribute behind them.
mod common {
    pub const NAME: usize = 0;
    pub const NAME_BYTES: usize = 256;
    pub const UUID: usize = 256;
    pub const TOTAL_GLOBAL_MEM: usize = 288;
}

/// A field that consists of one attribute, or of several attributes in a row.
struct Field {
    #[cfg(test)]
    name: &'static str,
    /// Offset of the field in CUDA 12 and in CUDA 13.
    offset: [Option<usize>; 2],
    /// Size of an element in bytes: 4 for `int`, 8 for `size_t`.
    element: usize,
    /// `CUdevice_attribute` ids, one for each element.
    attributes: &'static [c_int],
}

macro_rules! fields {
    ($( $name:ident $v12:tt $v13:tt $kind:tt $ids:tt; )*) => {
        static FIELDS: &[Field] = &[ $( Field {
            #[cfg(test)]
            name: stringify!($name),
            offset: [fields!(@offset $v12), fields!(@offset $v13)],
            element: fields!(@bytes $kind),
            attributes: &$ids,
        }, )* ];
    };
    (@offset -) => { None };
    (@offset $offset:literal) => { Some($offset) };
    (@bytes int) => { 4 };
    (@bytes usize) => { 8 };
}

fields! {
    // name, offset in 12 and in 13, type, attributes
    sharedMemPerBlock 296 296 usize [8];
    regsPerBlock 304 304 int [12];
    warpSize 308 308 int [10];
    memPitch 312 312 usize [11];
    maxThreadsPerBlock 320 320 int [1];
    maxThreadsDim 324 324 int [2, 3, 4];
    maxGridSize 336 336 int [5, 6, 7];
    clockRate 348 - int [13];
    totalConstMem 352 352 usize [9];
    major 360 360 int [75];
    minor 364 364 int [76];
    textureAlignment 368 368 usize [14];
    texturePitchAlignment 376 376 usize [51];
    deviceOverlap 384 - int [15];
    multiProcessorCount 388 384 int [16];
    kernelExecTimeoutEnabled 392 - int [17];
    integrated 396 388 int [18];
    canMapHostMemory 400 392 int [19];
    computeMode 404 - int [20];
    maxTexture1D 408 396 int [21];
    maxTexture1DMipmap 412 400 int [77];
    maxTexture1DLinear 416 - int [69];
    maxTexture2D 420 404 int [22, 23];
    maxTexture2DMipmap 428 412 int [73, 74];
    maxTexture2DLinear 436 420 int [70, 71, 72];
    maxTexture2DGather 448 432 int [45, 46];
    maxTexture3D 456 440 int [24, 25, 26];
    maxTexture3DAlt 468 452 int [47, 48, 49];
    maxTextureCubemap 480 464 int [52];
    maxTexture1DLayered 484 468 int [42, 43];
    maxTexture2DLayered 492 476 int [27, 28, 29];
    maxTextureCubemapLayered 504 488 int [53, 54];
    maxSurface1D 512 496 int [55];
    maxSurface2D 516 500 int [56, 57];
    maxSurface3D 524 508 int [58, 59, 60];
    maxSurface1DLayered 536 520 int [61, 62];
    maxSurface2DLayered 544 528 int [63, 64, 65];
    maxSurfaceCubemap 556 540 int [66];
    maxSurfaceCubemapLayered 560 544 int [67, 68];
    surfaceAlignment 568 552 usize [30];
    concurrentKernels 576 560 int [31];
    ECCEnabled 580 564 int [32];
    pciBusID 584 568 int [33];
    pciDeviceID 588 572 int [34];
    pciDomainID 592 576 int [50];
    tccDriver 596 580 int [35];
    asyncEngineCount 600 584 int [40];
    unifiedAddressing 604 588 int [41];
    memoryClockRate 608 - int [36];
    memoryBusWidth 612 592 int [37];
    l2CacheSize 616 596 int [38];
    persistingL2CacheMaxSize 620 600 int [108];
    maxThreadsPerMultiProcessor 624 604 int [39];
    streamPrioritiesSupported 628 608 int [78];
    globalL1CacheSupported 632 612 int [79];
    localL1CacheSupported 636 616 int [80];
    sharedMemPerMultiprocessor 640 624 usize [81];
    regsPerMultiprocessor 648 632 int [82];
    managedMemory 652 636 int [83];
    isMultiGpuBoard 656 640 int [84];
    multiGpuBoardGroupID 660 644 int [85];
    hostNativeAtomicSupported 664 648 int [86];
    singleToDoublePrecisionPerfRatio 668 - int [87];
    pageableMemoryAccess 672 652 int [88];
    concurrentManagedAccess 676 656 int [89];
    computePreemptionSupported 680 660 int [90];
    canUseHostPointerForRegisteredMem 684 664 int [91];
    cooperativeLaunch 688 668 int [95];
    cooperativeMultiDeviceLaunch 692 - int [96];
    sharedMemPerBlockOptin 696 672 usize [97];
    pageableMemoryAccessUsesHostPageTables 704 680 int [100];
    directManagedMemAccessFromHost 708 684 int [101];
    maxBlocksPerMultiProcessor 712 688 int [106];
    accessPolicyMaxWindowSize 716 692 int [109];
    reservedSharedMemPerBlock 720 696 usize [111];
    hostRegisterSupported 728 704 int [99];
    sparseCudaArraySupported 732 708 int [112];
    hostRegisterReadOnlySupported 736 712 int [113];
    timelineSemaphoreInteropSupported 740 716 int [114];
    memoryPoolsSupported 744 720 int [115];
    gpuDirectRDMASupported 748 724 int [116];
    gpuDirectRDMAFlushWritesOptions 752 728 int [117];
    gpuDirectRDMAWritesOrdering 756 732 int [118];
    memoryPoolSupportedHandleTypes 760 736 int [119];
    deferredMappingCudaArraySupported 764 740 int [121];
    ipcEventSupported 768 744 int [125];
    clusterLaunch 772 748 int [120];
    unifiedFunctionPointers 776 752 int [129];
    deviceNumaConfig - 756 int [130];
    deviceNumaId - 760 int [131];
    mpsEnabled - 764 int [133];
    hostNumaId - 768 int [134];
    gpuPciDeviceID - 772 int [139];
    gpuPciSubsystemID - 776 int [140];
    hostNumaMultinodeIpcSupported - 780 int [143];
}

/// Source of the values that the structure is filled with.
trait Source {
    fn attribute(&self, id: c_int) -> Result<c_int, CudaError>;
    fn name(&self, into: &mut [u8]) -> Result<(), CudaError>;
    fn uuid(&self) -> Result<[u8; 16], CudaError>;
    fn total(&self) -> Result<usize, CudaError>;
}

struct Driver(CUdevice);

impl Source for Driver {
    fn attribute(&self, id: c_int) -> Result<c_int, CudaError> {
        let mut value = 0;
        match cu!(cuDeviceGetAttribute(&raw mut value, id, self.0)) {
            // An attribute that the driver is too old to know is a zero in the structure.
            Err(CudaError::INVALID_VALUE) => Ok(0),
            answer => answer.map(|()| value),
        }
    }

    fn name(&self, into: &mut [u8]) -> Result<(), CudaError> {
        cu!(cuDeviceGetName(into.as_mut_ptr().cast(), into.len() as c_int, self.0))
    }

    fn uuid(&self) -> Result<[u8; 16], CudaError> {
        let mut uuid = [0; 16];
        cu!(cuDeviceGetUuid_v2(&raw mut uuid, self.0)).map(|()| uuid)
    }

    fn total(&self) -> Result<usize, CudaError> {
        let mut bytes = 0;
        cu!(cuDeviceTotalMem_v2(&raw mut bytes, self.0)).map(|()| bytes)
    }
}

fn fill(bytes: &mut [u8], layout: Layout, source: &impl Source) -> Result<(), CudaError> {
    source.name(&mut bytes[common::NAME..][..common::NAME_BYTES])?;
    bytes[common::UUID..][..16].copy_from_slice(&source.uuid()?);
    bytes[common::TOTAL_GLOBAL_MEM..][..8].copy_from_slice(&source.total()?.to_ne_bytes());
    for field in FIELDS {
        let Some(offset) = field.offset[layout.column] else { continue };
        for (&id, place) in field.attributes.iter().zip(bytes[offset..].chunks_exact_mut(field.element)) {
            let value = source.attribute(id)?;
            // An attribute is an int; where the structure has a size_t it is never negative.
            place.copy_from_slice(&i64::from(value).to_le_bytes()[..field.element]);
        }
    }
    Ok(())
}

impl Properties {
    /// Reads all properties of a device from the driver.
    pub fn read(device: CUdevice) -> Result<Self, CudaError> {
        let mut bytes = [0; BYTES];
        fill(&mut bytes, LAYOUT, &Driver(device))?;
        Ok(Self(bytes))
    }

    /// Returns the structure in this library's layout.
    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// Returns the start of the structure, which is CUDA 11's structure.
    #[cfg(not(feature = "cuda13"))]
    pub fn bytes_11(&self) -> [u8; BYTES_11] {
        let mut bytes = [0; BYTES_11];
        bytes.copy_from_slice(&self.0[..BYTES_11]);
        bytes
    }
}

#[cfg(test)]
#[path = "properties/tests.rs"]
mod tests;
