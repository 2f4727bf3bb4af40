//! Functions for modules, libraries, launches and occupancy.

use core::ffi::{c_char, c_int, c_uint, c_void};

use crate::driver::{
    BlockToShared, CUdevice, CUdeviceptr, CUfunction, CUhostFn, CUkernel, CUlaunchConfig, CUlibrary,
    CUlinkState, CUmodule, CUresult, CUstream, CUstreamCallback,
};

functions! {
    // Module Management
    cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint,
        values: *mut *mut c_void
    );
    cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void);
    cuModuleLoad(module: *mut CUmodule, file: *const c_char);
    cuModuleUnload(module: CUmodule);
    cuModuleGetLoadingMode(mode: *mut c_uint);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule);
    cuModuleEnumerateFunctions(functions: *mut CUfunction, room: c_uint, module: CUmodule);
    cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
    // Module Management: the linker. Both forms have one signature.
    cuLinkCreate(
        count: c_uint, options: *mut c_uint, values: *mut *mut c_void, state: *mut CUlinkState
    );
    cuLinkAddData(
        state: CUlinkState, kind: c_uint, data: *mut u8, bytes: usize, name: *const c_char, count: c_uint,
        options: *mut c_uint, values: *mut *mut c_void
    );
    cuLinkAddFile(
        state: CUlinkState, kind: c_uint, path: *const c_char, count: c_uint, options: *mut c_uint,
        values: *mut *mut c_void
    );
    cuLinkCreate_v2(
        count: c_uint, options: *mut c_uint, values: *mut *mut c_void, state: *mut CUlinkState
    );
    cuLinkAddData_v2(
        state: CUlinkState, kind: c_uint, data: *mut u8, bytes: usize, name: *const c_char, count: c_uint,
        options: *mut c_uint, values: *mut *mut c_void
    );
    cuLinkAddFile_v2(
        state: CUlinkState, kind: c_uint, path: *const c_char, count: c_uint, options: *mut c_uint,
        values: *mut *mut c_void
    );
    cuLinkComplete(state: CUlinkState, image: *mut *mut c_void, bytes: *mut usize);
    cuLinkDestroy(state: CUlinkState);

    // Library Management
    cuLibraryLoadData(
        library: *mut CUlibrary, code: *const c_void, jit_options: *mut c_uint,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void,
        count: c_uint
    );
    cuLibraryLoadFromFile(
        library: *mut CUlibrary, file: *const c_char, jit_options: *mut c_uint,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_uint, values: *mut *mut c_void,
        count: c_uint
    );
    cuLibraryUnload(library: CUlibrary);
    cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    cuLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary);
    cuLibraryEnumerateKernels(kernels: *mut CUkernel, room: c_uint, library: CUlibrary);
    cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary);
    cuLibraryGetGlobal(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
    cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel);
    cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel);
    cuKernelGetName(name: *mut *const c_char, kernel: CUkernel);
    cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, bytes: *mut usize);
    cuKernelGetParamCount(kernel: CUkernel, count: *mut usize);
    cuKernelGetAttribute(value: *mut c_int, attribute: c_uint, kernel: CUkernel, device: CUdevice);
    cuKernelSetAttribute(attribute: c_uint, value: c_int, kernel: CUkernel, device: CUdevice);
    cuKernelSetCacheConfig(kernel: CUkernel, config: c_uint, device: CUdevice);

    // Execution Control
    cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void,
        extra: *mut *mut c_void
    ) | cuLaunchKernel_ptsz;
    cuLaunchCooperativeKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void
    ) | cuLaunchCooperativeKernel_ptsz;
    cuLaunchKernelEx(
        config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void,
        extra: *mut *mut c_void
    ) | cuLaunchKernelEx_ptsz;
    cuLaunchHostFunc(stream: CUstream, call: Option<CUhostFn>, data: *mut c_void) | cuLaunchHostFunc_ptsz;
    cuLaunchHostFunc_v2(
        stream: CUstream, call: Option<CUhostFn>, data: *mut c_void, mode: c_uint
    ) | cuLaunchHostFunc_v2_ptsz;
    cuStreamAddCallback(
        handle: CUstream, callback: Option<CUstreamCallback>, data: *mut c_void, flags: c_uint
    ) | cuStreamAddCallback_ptsz;
    cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction);
    cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int);
    cuFuncSetCacheConfig(function: CUfunction, config: c_uint);
    cuFuncGetModule(module: *mut CUmodule, function: CUfunction);
    cuFuncGetName(name: *mut *const c_char, function: CUfunction);
    cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, bytes: *mut usize);
    cuFuncGetParamCount(function: CUfunction, count: *mut usize);
    cuFuncIsLoaded(state: *mut c_uint, function: CUfunction);
    cuFuncLoad(function: CUfunction);

    // Occupancy
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int, function: CUfunction, threads: c_int, shared: usize
    );
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int, function: CUfunction, threads: c_int, shared: usize, flags: c_uint
    );
    cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int, block: *mut c_int, function: CUfunction, shared_of: BlockToShared, shared: usize,
        limit: c_int
    );
    cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut c_int, block: *mut c_int, function: CUfunction, shared_of: BlockToShared, shared: usize,
        limit: c_int, flags: c_uint
    );
}
