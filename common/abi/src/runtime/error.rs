//! Status codes of the runtime API with their names and texts. Names and numbers are those of
//! `driver_types.h` 12.9 and 13.5, texts those that `cudaGetErrorString` returns. The majors agree on the
//! codes that both have; codes that are new in 13 are marked.

use core::ffi::{CStr, c_uint};

use crate::declare::zero_ended;

/// Status of a runtime call; 0 is success. Most codes are those of the driver API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CudaError(pub c_uint);

/// A row of the table of codes.
struct Row {
    code: c_uint,
    name: &'static CStr,
    text: &'static CStr,
    /// First major version with the code; 12 if 12.9 has it.
    since: u32,
}

macro_rules! errors {
    ($( $code:literal $konst:ident $name:literal $text:literal $(since $since:literal)?; )*) => {
        impl CudaError {
            $(
                #[doc = concat!("`", $name, "`")]
                pub const $konst: Self = Self($code);
            )*
        }

        /// All codes that exist, in ascending order.
        static ROWS: &[Row] = &[ $( Row {
            code: $code,
            name: zero_ended(concat!($name, "\0")),
            text: zero_ended(concat!($text, "\0")),
            since: errors!(@since $($since)?),
        }, )* ];
    };
    (@since) => { 12 };
    (@since $since:literal) => { $since };
}

errors! {
    0 SUCCESS "cudaSuccess" "no error";
    1 INVALID_VALUE "cudaErrorInvalidValue" "invalid argument";
    2 MEMORY_ALLOCATION "cudaErrorMemoryAllocation" "out of memory";
    3 INITIALIZATION_ERROR "cudaErrorInitializationError" "initialization error";
    4 CUDART_UNLOADING "cudaErrorCudartUnloading" "driver shutting down";
    5 PROFILER_DISABLED "cudaErrorProfilerDisabled" "profiler disabled while using external profiling tool";
    6 PROFILER_NOT_INITIALIZED "cudaErrorProfilerNotInitialized" "profiler not initialized: call cudaProfilerInitialize()";
    7 PROFILER_ALREADY_STARTED "cudaErrorProfilerAlreadyStarted" "profiler already started";
    8 PROFILER_ALREADY_STOPPED "cudaErrorProfilerAlreadyStopped" "profiler already stopped";
    9 INVALID_CONFIGURATION "cudaErrorInvalidConfiguration" "invalid configuration argument";
    10 VERSION_TRANSLATION "cudaErrorVersionTranslation" "Driver is newer than runtime and returned parameters the runtime cannot process" since 13;
    12 INVALID_PITCH_VALUE "cudaErrorInvalidPitchValue" "invalid pitch argument";
    13 INVALID_SYMBOL "cudaErrorInvalidSymbol" "invalid device symbol";
    16 INVALID_HOST_POINTER "cudaErrorInvalidHostPointer" "invalid host pointer";
    17 INVALID_DEVICE_POINTER "cudaErrorInvalidDevicePointer" "invalid device pointer";
    18 INVALID_TEXTURE "cudaErrorInvalidTexture" "invalid texture reference";
    19 INVALID_TEXTURE_BINDING "cudaErrorInvalidTextureBinding" "texture is not bound to a pointer";
    20 INVALID_CHANNEL_DESCRIPTOR "cudaErrorInvalidChannelDescriptor" "invalid channel descriptor";
    21 INVALID_MEMCPY_DIRECTION "cudaErrorInvalidMemcpyDirection" "invalid copy direction for memcpy";
    22 ADDRESS_OF_CONSTANT "cudaErrorAddressOfConstant" "invalid address of constant";
    23 TEXTURE_FETCH_FAILED "cudaErrorTextureFetchFailed" "fetch from texture failed";
    24 TEXTURE_NOT_BOUND "cudaErrorTextureNotBound" "cannot fetch from a texture that is not bound";
    25 SYNCHRONIZATION_ERROR "cudaErrorSynchronizationError" "incorrect use of __syncthreads()";
    26 INVALID_FILTER_SETTING "cudaErrorInvalidFilterSetting" "linear filtering not supported for non-float type";
    27 INVALID_NORM_SETTING "cudaErrorInvalidNormSetting" "read as normalized float not supported for data type";
    28 MIXED_DEVICE_EXECUTION "cudaErrorMixedDeviceExecution" "device emulation mode and device execution mode cannot be mixed";
    31 NOT_YET_IMPLEMENTED "cudaErrorNotYetImplemented" "feature not yet implemented";
    32 MEMORY_VALUE_TOO_LARGE "cudaErrorMemoryValueTooLarge" "memory size or pointer value too large to fit in 32 bit";
    34 STUB_LIBRARY "cudaErrorStubLibrary" "CUDA driver is a stub library";
    35 INSUFFICIENT_DRIVER "cudaErrorInsufficientDriver" "CUDA driver version is insufficient for CUDA runtime version";
    36 CALL_REQUIRES_NEWER_DRIVER "cudaErrorCallRequiresNewerDriver" "API call is not supported in the installed CUDA driver";
    37 INVALID_SURFACE "cudaErrorInvalidSurface" "invalid surface reference";
    43 DUPLICATE_VARIABLE_NAME "cudaErrorDuplicateVariableName" "duplicate global variable looked up by string name";
    44 DUPLICATE_TEXTURE_NAME "cudaErrorDuplicateTextureName" "duplicate texture looked up by string name";
    45 DUPLICATE_SURFACE_NAME "cudaErrorDuplicateSurfaceName" "duplicate surface looked up by string name";
    46 DEVICES_UNAVAILABLE "cudaErrorDevicesUnavailable" "CUDA-capable device(s) is/are busy or unavailable";
    49 INCOMPATIBLE_DRIVER_CONTEXT "cudaErrorIncompatibleDriverContext" "incompatible driver context";
    52 MISSING_CONFIGURATION "cudaErrorMissingConfiguration" "__global__ function call is not configured";
    53 PRIOR_LAUNCH_FAILURE "cudaErrorPriorLaunchFailure" "unspecified launch failure in prior launch";
    65 LAUNCH_MAX_DEPTH_EXCEEDED "cudaErrorLaunchMaxDepthExceeded" "launch would exceed maximum depth of nested launches";
    66 LAUNCH_FILE_SCOPED_TEX "cudaErrorLaunchFileScopedTex" "launch failed because kernel uses unsupported, file-scoped textures (texture objects are supported)";
    67 LAUNCH_FILE_SCOPED_SURF "cudaErrorLaunchFileScopedSurf" "launch failed because kernel uses unsupported, file-scoped surfaces (surface objects are supported)";
    68 SYNC_DEPTH_EXCEEDED "cudaErrorSyncDepthExceeded" "cudaDeviceSynchronize failed because caller's grid depth exceeds cudaLimitDevRuntimeSyncDepth";
    69 LAUNCH_PENDING_COUNT_EXCEEDED "cudaErrorLaunchPendingCountExceeded" "launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount";
    98 INVALID_DEVICE_FUNCTION "cudaErrorInvalidDeviceFunction" "invalid device function";
    100 NO_DEVICE "cudaErrorNoDevice" "no CUDA-capable device is detected";
    101 INVALID_DEVICE "cudaErrorInvalidDevice" "invalid device ordinal";
    102 DEVICE_NOT_LICENSED "cudaErrorDeviceNotLicensed" "device doesn't have valid Grid license";
    103 SOFTWARE_VALIDITY_NOT_ESTABLISHED "cudaErrorSoftwareValidityNotEstablished" "integrity checks failed";
    127 STARTUP_FAILURE "cudaErrorStartupFailure" "startup failure in cuda runtime";
    200 INVALID_KERNEL_IMAGE "cudaErrorInvalidKernelImage" "device kernel image is invalid";
    201 DEVICE_UNINITIALIZED "cudaErrorDeviceUninitialized" "invalid device context";
    205 MAP_BUFFER_OBJECT_FAILED "cudaErrorMapBufferObjectFailed" "mapping of buffer object failed";
    206 UNMAP_BUFFER_OBJECT_FAILED "cudaErrorUnmapBufferObjectFailed" "unmapping of buffer object failed";
    207 ARRAY_IS_MAPPED "cudaErrorArrayIsMapped" "array is mapped";
    208 ALREADY_MAPPED "cudaErrorAlreadyMapped" "resource already mapped";
    209 NO_KERNEL_IMAGE_FOR_DEVICE "cudaErrorNoKernelImageForDevice" "no kernel image is available for execution on the device";
    210 ALREADY_ACQUIRED "cudaErrorAlreadyAcquired" "resource already acquired";
    211 NOT_MAPPED "cudaErrorNotMapped" "resource not mapped";
    212 NOT_MAPPED_AS_ARRAY "cudaErrorNotMappedAsArray" "resource not mapped as array";
    213 NOT_MAPPED_AS_POINTER "cudaErrorNotMappedAsPointer" "resource not mapped as pointer";
    214 ECC_UNCORRECTABLE "cudaErrorECCUncorrectable" "uncorrectable ECC error encountered";
    215 UNSUPPORTED_LIMIT "cudaErrorUnsupportedLimit" "limit is not supported on this architecture";
    216 DEVICE_ALREADY_IN_USE "cudaErrorDeviceAlreadyInUse" "exclusive-thread device already in use by a different thread";
    217 PEER_ACCESS_UNSUPPORTED "cudaErrorPeerAccessUnsupported" "peer access is not supported between these two devices";
    218 INVALID_PTX "cudaErrorInvalidPtx" "a PTX JIT compilation failed";
    219 INVALID_GRAPHICS_CONTEXT "cudaErrorInvalidGraphicsContext" "invalid OpenGL or DirectX context";
    220 NVLINK_UNCORRECTABLE "cudaErrorNvlinkUncorrectable" "uncorrectable NVLink error detected during the execution";
    221 JIT_COMPILER_NOT_FOUND "cudaErrorJitCompilerNotFound" "PTX JIT compiler library not found";
    222 UNSUPPORTED_PTX_VERSION "cudaErrorUnsupportedPtxVersion" "the provided PTX was compiled with an unsupported toolchain.";
    223 JIT_COMPILATION_DISABLED "cudaErrorJitCompilationDisabled" "PTX JIT compilation was disabled";
    224 UNSUPPORTED_EXEC_AFFINITY "cudaErrorUnsupportedExecAffinity" "the provided execution affinity is not supported";
    225 UNSUPPORTED_DEV_SIDE_SYNC "cudaErrorUnsupportedDevSideSync" "the provided PTX contains unsupported call to cudaDeviceSynchronize";
    226 CONTAINED "cudaErrorContained" "Invalid access of peer GPU memory over nvlink or a hardware error";
    227 INSUFFICIENT_LOADER_VERSION "cudaErrorInsufficientLoaderVersion" "Loader version is insufficient for fatbin" since 13;
    300 INVALID_SOURCE "cudaErrorInvalidSource" "device kernel image is invalid";
    301 FILE_NOT_FOUND "cudaErrorFileNotFound" "file not found";
    302 SHARED_OBJECT_SYMBOL_NOT_FOUND "cudaErrorSharedObjectSymbolNotFound" "shared object symbol not found";
    303 SHARED_OBJECT_INIT_FAILED "cudaErrorSharedObjectInitFailed" "shared object initialization failed";
    304 OPERATING_SYSTEM "cudaErrorOperatingSystem" "OS call failed or operation not supported on this OS";
    400 INVALID_RESOURCE_HANDLE "cudaErrorInvalidResourceHandle" "invalid resource handle";
    401 ILLEGAL_STATE "cudaErrorIllegalState" "the operation cannot be performed in the present state";
    402 LOSSY_QUERY "cudaErrorLossyQuery" "attempted introspection would be semantically lossy";
    500 SYMBOL_NOT_FOUND "cudaErrorSymbolNotFound" "named symbol not found";
    600 NOT_READY "cudaErrorNotReady" "device not ready";
    700 ILLEGAL_ADDRESS "cudaErrorIllegalAddress" "an illegal memory access was encountered";
    701 LAUNCH_OUT_OF_RESOURCES "cudaErrorLaunchOutOfResources" "too many resources requested for launch";
    702 LAUNCH_TIMEOUT "cudaErrorLaunchTimeout" "the launch timed out and was terminated";
    703 LAUNCH_INCOMPATIBLE_TEXTURING "cudaErrorLaunchIncompatibleTexturing" "launch uses incompatible texturing mode";
    704 PEER_ACCESS_ALREADY_ENABLED "cudaErrorPeerAccessAlreadyEnabled" "peer access is already enabled";
    705 PEER_ACCESS_NOT_ENABLED "cudaErrorPeerAccessNotEnabled" "peer access has not been enabled";
    708 SET_ON_ACTIVE_PROCESS "cudaErrorSetOnActiveProcess" "cannot set while device is active in this process";
    709 CONTEXT_IS_DESTROYED "cudaErrorContextIsDestroyed" "context is destroyed";
    710 ASSERT "cudaErrorAssert" "device-side assert triggered";
    711 TOO_MANY_PEERS "cudaErrorTooManyPeers" "peer mapping resources exhausted";
    712 HOST_MEMORY_ALREADY_REGISTERED "cudaErrorHostMemoryAlreadyRegistered" "part or all of the requested memory range is already mapped";
    713 HOST_MEMORY_NOT_REGISTERED "cudaErrorHostMemoryNotRegistered" "pointer does not correspond to a registered memory region";
    714 HARDWARE_STACK_ERROR "cudaErrorHardwareStackError" "hardware stack error";
    715 ILLEGAL_INSTRUCTION "cudaErrorIllegalInstruction" "an illegal instruction was encountered";
    716 MISALIGNED_ADDRESS "cudaErrorMisalignedAddress" "misaligned address";
    717 INVALID_ADDRESS_SPACE "cudaErrorInvalidAddressSpace" "operation not supported on global/shared address space";
    718 INVALID_PC "cudaErrorInvalidPc" "invalid program counter";
    719 LAUNCH_FAILURE "cudaErrorLaunchFailure" "unspecified launch failure";
    720 COOPERATIVE_LAUNCH_TOO_LARGE "cudaErrorCooperativeLaunchTooLarge" "too many blocks in cooperative launch";
    721 TENSOR_MEMORY_LEAK "cudaErrorTensorMemoryLeak" "tensor memory not completely freed";
    800 NOT_PERMITTED "cudaErrorNotPermitted" "operation not permitted";
    801 NOT_SUPPORTED "cudaErrorNotSupported" "operation not supported";
    802 SYSTEM_NOT_READY "cudaErrorSystemNotReady" "system not yet initialized";
    803 SYSTEM_DRIVER_MISMATCH "cudaErrorSystemDriverMismatch" "system has unsupported display driver / cuda driver combination";
    804 COMPAT_NOT_SUPPORTED_ON_DEVICE "cudaErrorCompatNotSupportedOnDevice" "forward compatibility was attempted on non supported HW";
    805 MPS_CONNECTION_FAILED "cudaErrorMpsConnectionFailed" "MPS client failed to connect to the MPS control daemon or the MPS server";
    806 MPS_RPC_FAILURE "cudaErrorMpsRpcFailure" "the remote procedural call between the MPS server and the MPS client failed";
    807 MPS_SERVER_NOT_READY "cudaErrorMpsServerNotReady" "MPS server is not ready to accept new MPS client requests";
    808 MPS_MAX_CLIENTS_REACHED "cudaErrorMpsMaxClientsReached" "the hardware resources required to create MPS client have been exhausted";
    809 MPS_MAX_CONNECTIONS_REACHED "cudaErrorMpsMaxConnectionsReached" "the hardware resources required to support device connections have been exhausted";
    810 MPS_CLIENT_TERMINATED "cudaErrorMpsClientTerminated" "the MPS client has been terminated by the server";
    811 CDP_NOT_SUPPORTED "cudaErrorCdpNotSupported" "is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it";
    812 CDP_VERSION_MISMATCH "cudaErrorCdpVersionMismatch" "unsupported interaction between different versions of CUDA Dynamic Parallelism";
    900 STREAM_CAPTURE_UNSUPPORTED "cudaErrorStreamCaptureUnsupported" "operation not permitted when stream is capturing";
    901 STREAM_CAPTURE_INVALIDATED "cudaErrorStreamCaptureInvalidated" "operation failed due to a previous error during capture";
    902 STREAM_CAPTURE_MERGE "cudaErrorStreamCaptureMerge" "operation would result in a merge of separate capture sequences";
    903 STREAM_CAPTURE_UNMATCHED "cudaErrorStreamCaptureUnmatched" "capture was not ended in the same stream as it began";
    904 STREAM_CAPTURE_UNJOINED "cudaErrorStreamCaptureUnjoined" "capturing stream has unjoined work";
    905 STREAM_CAPTURE_ISOLATION "cudaErrorStreamCaptureIsolation" "dependency created on uncaptured work in another stream";
    906 STREAM_CAPTURE_IMPLICIT "cudaErrorStreamCaptureImplicit" "operation would make the legacy stream depend on a capturing blocking stream";
    907 CAPTURED_EVENT "cudaErrorCapturedEvent" "operation not permitted on an event last recorded in a capturing stream";
    908 STREAM_CAPTURE_WRONG_THREAD "cudaErrorStreamCaptureWrongThread" "attempt to terminate a thread-local capture sequence from another thread";
    909 TIMEOUT "cudaErrorTimeout" "wait operation timed out";
    910 GRAPH_EXEC_UPDATE_FAILURE "cudaErrorGraphExecUpdateFailure" "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    911 EXTERNAL_DEVICE "cudaErrorExternalDevice" "an async error has occured in external entity outside of CUDA";
    912 INVALID_CLUSTER_SIZE "cudaErrorInvalidClusterSize" "a kernel launch error has occurred due to cluster misconfiguration";
    913 FUNCTION_NOT_LOADED "cudaErrorFunctionNotLoaded" "the function handle is not loaded when calling an API that requires a loaded function";
    914 INVALID_RESOURCE_TYPE "cudaErrorInvalidResourceType" "one or more resources passed in are not valid resource types for the operation";
    915 INVALID_RESOURCE_CONFIGURATION "cudaErrorInvalidResourceConfiguration" "one or more resources are insufficient or non-applicable for the operation";
    917 STREAM_DETACHED "cudaErrorStreamDetached" "API call not permitted since the green context associated with the stream has been destroyed" since 13;
    918 GRAPH_RECAPTURE_FAILURE "cudaErrorGraphRecaptureFailure" "recapturing to the source graph failed and had to be terminated" since 13;
    919 FABRIC_NOT_READY "cudaErrorFabricNotReady" "GPU fabric is not ready within the probe wait budget; application may retry (see CUDA_FABRIC_INIT_TIMEOUT_MS)" since 13;
    999 UNKNOWN "cudaErrorUnknown" "unknown error";
    10000 API_FAILURE_BASE "cudaErrorApiFailureBase" "api failure base";
}

impl CudaError {
    fn row(self, major: u32) -> Option<&'static Row> {
        let index = ROWS.binary_search_by_key(&self.0, |row| row.code).ok()?;
        Some(&ROWS[index]).filter(|row| row.since <= major)
    }

    /// Returns the code's name in the headers of CUDA `major`, or `None` for a code that it does not have.
    #[must_use]
    pub fn name(self, major: u32) -> Option<&'static CStr> {
        self.row(major).map(|row| row.name)
    }

    /// Returns the code's text, as `cudaGetErrorString` of CUDA `major` does, or `None` for a code that it
    /// does not have.
    #[must_use]
    pub fn text(self, major: u32) -> Option<&'static CStr> {
        self.row(major).map(|row| row.text)
    }

    /// Returns all codes of CUDA `major` in ascending order.
    pub fn all(major: u32) -> impl Iterator<Item = Self> {
        ROWS.iter().filter(move |row| row.since <= major).map(|row| Self(row.code))
    }

    /// Returns `Ok` for success.
    ///
    /// # Errors
    /// Returns any other code.
    pub const fn ok(self) -> Result<(), Self> {
        if self.0 == 0 { Ok(()) } else { Err(self) }
    }

    /// Returns whether the code says that the context is lost. By CUDA's manual the process must then be
    /// restarted, and every later call returns the same code.
    #[must_use]
    pub const fn is_sticky(self) -> bool {
        matches!(
            self,
            Self::ECC_UNCORRECTABLE
                | Self::NVLINK_UNCORRECTABLE
                | Self::CONTAINED
                | Self::ILLEGAL_ADDRESS
                | Self::LAUNCH_TIMEOUT
                | Self::ASSERT
                | Self::HARDWARE_STACK_ERROR
                | Self::ILLEGAL_INSTRUCTION
                | Self::MISALIGNED_ADDRESS
                | Self::INVALID_ADDRESS_SPACE
                | Self::INVALID_PC
                | Self::LAUNCH_FAILURE
                | Self::TENSOR_MEMORY_LEAK
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_the_search_finds_every_row() {
        assert!(ROWS.windows(2).all(|pair| pair[0].code < pair[1].code));
        for row in ROWS {
            assert_eq!(CudaError(row.code).name(13), Some(row.name));
        }
    }

    #[test]
    fn counts_are_those_of_the_headers() {
        assert_eq!(CudaError::all(12).count(), 134);
        assert_eq!(CudaError::all(13).count(), 139);
    }

    #[test]
    fn a_code_of_thirteen_is_unknown_to_twelve() {
        assert_eq!(CudaError::GRAPH_RECAPTURE_FAILURE.name(12), None);
        assert_eq!(CudaError::GRAPH_RECAPTURE_FAILURE.name(13), Some(c"cudaErrorGraphRecaptureFailure"));
        assert_eq!(CudaError(11).name(13), None);
        assert_eq!(CudaError(u32::MAX).text(13), None);
    }
}
