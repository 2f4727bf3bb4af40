//! Execution control: kernel launches, host functions, and attributes of kernels.

use std::ffi::{c_char, c_int, c_uint, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUfunction, CUhostFn, CUlaunchConfig, CUmodule, CUstream, CUstreamCallback};
use vgpu_wire::body::launch::LAUNCH_COOPERATIVE;

use crate::arg::{In, Out};
use crate::object::current;
use crate::object::default_stream::find;
use crate::object::function::param_info;
use crate::object::library::function as get;
use crate::submit::host_function::{self, HostCall};
use crate::submit::launch::{LaunchShape, Params, read_attributes, submit_launch};

export_ptsz! {
    /// Launches a kernel in the order of a stream. The parameters are given by `params`, a pointer to each,
    /// or by `extra`, which describes a buffer that holds all of them.
    pub fn cuLaunchKernel, fn cuLaunchKernel_ptsz(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void,
        extra: *mut *mut c_void
    ) |default| {
        let context = current::context()?;
        let grid = [grid_x, grid_y, grid_z];
        let block = [block_x, block_y, block_z];
        let shape = LaunchShape { grid, block, shared_bytes, cluster: [0; 3], flags: 0, priority: 0 };
        // SAFETY: the caller promised what the manual says.
        let params = unsafe { Params::from_arguments(params, extra) }?;
        // SAFETY: as above.
        unsafe { submit_launch(context, function, &shape, stream, default, params) }
    }

    /// Launches a kernel whose blocks are all resident at once. Fails with cooperative-launch-too-large if
    /// they do not fit the device.
    pub fn cuLaunchCooperativeKernel, fn cuLaunchCooperativeKernel_ptsz(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, params: *mut *mut c_void
    ) |default| {
        let context = current::context()?;
        let grid = [grid_x, grid_y, grid_z];
        let block = [block_x, block_y, block_z];
        let flags = LAUNCH_COOPERATIVE;
        let shape = LaunchShape { grid, block, shared_bytes, cluster: [0; 3], flags, priority: 0 };
        let params = Params::Each(params.cast_const().cast());
        // SAFETY: the caller promised what the manual says.
        unsafe { submit_launch(context, function, &shape, stream, default, params) }
    }

    /// Launches a kernel with attributes. Those that are hints are ignored; those for events and for kernel
    /// nodes that kernels update are not supported.
    pub fn cuLaunchKernelEx, fn cuLaunchKernelEx_ptsz(
        config: In<CUlaunchConfig>, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void
    ) |default| {
        let context = current::context()?;
        let config = config.get()?;
        let CUlaunchConfig { grid, block, shared_bytes, .. } = config;
        let mut shape = LaunchShape { grid, block, shared_bytes, cluster: [0; 3], flags: 0, priority: 0 };
        // SAFETY: the caller promised `attribute_count` attributes.
        let attributes = unsafe { In::new(config.attributes) };
        read_attributes(&mut shape, attributes.slice(config.attribute_count as usize)?)?;
        // SAFETY: the caller promised what the manual says.
        let params = unsafe { Params::from_arguments(params, extra) }?;
        // SAFETY: as above.
        unsafe { submit_launch(context, function, &shape, config.stream, default, params) }
    }
}

export_ptsz! {
    /// Calls a host function once the stream's earlier work has completed. Later work of the stream waits
    /// until it has returned. The function is skipped if the earlier work failed. Not supported by a host
    /// that cannot hold streams.
    pub fn cuLaunchHostFunc, fn cuLaunchHostFunc_ptsz(
        stream: CUstream, call: Option<CUhostFn>, data: *mut c_void
    ) |default| {
        host_function::launch(find(stream, default)?, host_function::function(call)?, data)
    }

    /// Calls a host function as `cuLaunchHostFunc` does. `mode` (0 or 1) says how the device waits meanwhile,
    /// which the host decides itself.
    pub fn cuLaunchHostFunc_v2, fn cuLaunchHostFunc_v2_ptsz(
        stream: CUstream, call: Option<CUhostFn>, data: *mut c_void, mode: c_uint
    ) |default| {
        let stream = find(stream, default)?;
        if mode > 1 {
            return Err(CUresult::INVALID_VALUE);
        }
        host_function::launch(stream, host_function::function(call)?, data)
    }

    /// Calls a callback with the stream's handle and status once the stream's earlier work has completed or
    /// failed. `flags` must be 0.
    pub fn cuStreamAddCallback, fn cuStreamAddCallback_ptsz(
        handle: CUstream, callback: Option<CUstreamCallback>, data: *mut c_void, flags: c_uint
    ) |default| {
        let stream = find(handle, default)?;
        let callback = callback.ok_or(CUresult::INVALID_VALUE)?;
        if flags != 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        host_function::launch(stream, HostCall::Callback(callback, handle), data)
    }
}

exports! {
    /// Stores an attribute of a kernel.
    pub fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_uint, function: CUfunction) -> CUresult {
        let function = get(function)?;
        let out = value.check()?;
        out.set(function.attribute(attribute)?)
    }

    /// Sets an attribute of a kernel.
    pub fn cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int) -> CUresult {
        get(function)?.set_attribute(attribute, value)
    }

    /// Sets a kernel's preferred split between cache and shared memory.
    pub fn cuFuncSetCacheConfig(function: CUfunction, config: c_uint) -> CUresult {
        get(function)?.set_cache_config(config)
    }

    /// Stores the handle of a kernel's module.
    pub fn cuFuncGetModule(module: Out<CUmodule>, function: CUfunction) -> CUresult {
        module.set(CUmodule(get(function)?.module()))
    }

    /// Stores the mangled name of a kernel.
    pub fn cuFuncGetName(name: Out<*const c_char>, function: CUfunction) -> CUresult {
        name.set(get(function)?.name()?.as_ptr())
    }

    /// Stores the offset in bytes of parameter `index` in a kernel's parameter buffer and, unless `bytes` is
    /// null, its size in bytes. Fails with `CUDA_ERROR_INVALID_VALUE` if the kernel has no such parameter.
    pub fn cuFuncGetParamInfo(
        function: CUfunction, index: usize, offset: Out<usize>, bytes: Out<usize>,
    ) -> CUresult {
        param_info(get(function)?.layout(), index, offset, bytes)
    }

    /// Stores the number of a kernel's parameters.
    pub fn cuFuncGetParamCount(function: CUfunction, count: Out<usize>) -> CUresult {
        count.set(get(function)?.layout().params.len())
    }

    /// Stores 1 if the host has loaded the kernel, otherwise 0.
    pub fn cuFuncIsLoaded(state: Out<c_uint>, function: CUfunction) -> CUresult {
        state.set(c_uint::from(get(function)?.is_loaded()))
    }

    /// Loads a kernel's module and the kernel on the host, unless that has been done.
    pub fn cuFuncLoad(function: CUfunction) -> CUresult { get(function)?.number().map(drop) }
}
