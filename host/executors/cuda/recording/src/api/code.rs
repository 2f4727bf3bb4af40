//! Exports of the manual's chapters "Module Management", "Execution Control" and "Occupancy".

use std::ffi::{c_int, c_uint};

use vgpu_abi::driver::arg::{In, Out, Text};
use vgpu_abi::driver::{
    CUdeviceptr, CUfunction, CUhostFn, CUlaunchAttribute, CUlaunchConfig, CUmodule, CUstream,
    launch_attribute,
};

use crate::call::ApiCall;
use crate::code::LaunchShape;
use crate::graph::NodeKind;
use crate::raw::{
    DeviceAddress, Extra, HostAddress, HostFunction, ImageAddress, JitValues, Parameters, attributes,
};
use crate::rule::{CallResult, Rule};
use crate::system;

const WARPS: u32 = 64;
const BLOCKS: u32 = 32;

fn launch(
    call: &mut ApiCall,
    function: CUfunction,
    shape: LaunchShape,
    stream: CUstream,
    attributes: &[CUlaunchAttribute],
    parameters: Parameters,
    extra: Extra,
) -> CallResult {
    let context = call.context()?;
    let lane = call.streams.lane(context, stream.0)?;
    let found = call.modules.get(context, function.0)?;
    found.check(shape, parameters, extra)?;
    found.check_attributes(shape.grid, attributes)?;
    if !extra.is_null() {
        let bytes = extra.buffer_bytes()?;
        call.line.arg("parameter_bytes", bytes.into());
    }
    let early = attributes.iter().any(|attribute| {
        attribute.id == launch_attribute::PROGRAMMATIC_STREAM_SERIALIZATION && attribute.words()[0] != 0
    });
    call.submit(lane, NodeKind::Kernel { context, function: function.0, early })
}

calls! {
    /// Implements `cuModuleLoadDataEx`.
    pub fn cuModuleLoadDataEx(
        module: Out<CUmodule>, image: ImageAddress, count: c_uint, options: In<c_uint>, values: JitValues,
    ) |call| {
        let options = options.slice(count as usize)?;
        let (context, module) = (call.context()?, module.check()?);
        call.links.check_image(image.number())?;
        let image = image.bytes()?;
        call.line.arg("image_bytes", image.len().into());
        if call.options.compile_ms > 0 && !image.starts_with(b"\x7fELF") && !system::is_cached(image) {
            call.line.note("compiled");
            call.pause(call.options.compile_ms);
        }
        let newest = call.options.ptx_version;
        match call.modules.load(context, image, newest) {
            Ok(made) => {
                call.out("module", &CUmodule(made));
                Ok(module.set(CUmodule(made))?)
            }
            Err((refusal, why)) => {
                values.store_errors(options, &why);
                Err(refusal)
            }
        }
    }

    /// Implements `cuModuleUnload`. It does not wait for work that may run the module's code, unless the
    /// option `blocking` names it.
    pub fn cuModuleUnload(module: CUmodule) |call| {
        let context = call.context()?;
        call.modules.unload(context, module.0)
    }

    /// Implements `cuModuleGetFunction`.
    pub fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: Text) |call| {
        let (context, function) = (call.context()?, function.check()?);
        let name = name.get()?.to_string_lossy().into_owned();
        let made = CUfunction(call.modules.function(context, module.0, &name)?);
        call.out("function", &made);
        Ok(function.set(made)?)
    }

    /// Implements `cuModuleGetGlobal_v2`.
    pub fn cuModuleGetGlobal_v2(
        address: Out<CUdeviceptr>, bytes: Out<usize>, module: CUmodule, name: Text,
    ) |call| {
        let context = call.context()?;
        let name = name.get()?.to_string_lossy().into_owned();
        let (start, size) = call.modules.global(context, module.0, &name)?;
        let start = if let Some(start) = start {
            start
        } else {
            let start = call.memory.allocate(context, size)?;
            call.modules.place_global(context, module.0, &name, start)?;
            start
        };
        call.out("address", &DeviceAddress(start));
        address.set_if(start);
        bytes.set_if(size as usize);
        Ok(())
    }

    /// Implements `cuFuncGetAttribute`.
    pub fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_uint, function: CUfunction) |call| {
        let context = call.context()?;
        Ok(value.set(call.modules.get(context, function.0)?.attribute(attribute)?)?)
    }

    /// Implements `cuFuncSetAttribute`.
    pub fn cuFuncSetAttribute(function: CUfunction, attribute: c_uint, value: c_int) |call| {
        let context = call.context()?;
        call.modules.get_mut(context, function.0)?.set_attribute(attribute, value)
    }

    /// Implements `cuFuncSetCacheConfig`.
    pub fn cuFuncSetCacheConfig(function: CUfunction, config: c_uint) |call| {
        let context = call.context()?;
        call.modules.get(context, function.0)?;
        if config > 3 { Err(Rule::Argument.into()) } else { Ok(()) }
    }

    /// Implements `cuLaunchKernel`.
    pub fn cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
        block_y: c_uint, block_z: c_uint, shared_bytes: c_uint, stream: CUstream, params: Parameters,
        extra: Extra,
    ) |call| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(call, function, LaunchShape { grid, block, shared: shared_bytes }, stream, &[], params, extra)
    }

    /// Implements `cuLaunchKernelEx`.
    pub fn cuLaunchKernelEx(
        config: In<CUlaunchConfig>, function: CUfunction, params: Parameters, extra: Extra,
    ) |call| {
        let config = config.get()?;
        call.line.arg("grid", config.grid.to_vec().into());
        call.line.arg("block", config.block.to_vec().into());
        call.line.arg("shared_bytes", config.shared_bytes.into());
        call.show("stream", &config.stream);
        let attributes = attributes(&config)?;
        call.line.arg("attributes", attributes.iter().map(|one| one.id).collect::<Vec<_>>().into());
        let shape = LaunchShape { grid: config.grid, block: config.block, shared: config.shared_bytes };
        launch(call, function, shape, config.stream, attributes, params, extra)
    }

    /// Implements `cuLaunchHostFunc`.
    pub fn cuLaunchHostFunc(stream: CUstream, function: Option<CUhostFn>, data: HostAddress) |call| {
        let context = call.context()?;
        let lane = call.streams.lane(context, stream.0)?;
        let function = function.ok_or(Rule::NullArgument)?;
        call.submit(lane, NodeKind::Call(HostFunction::new(function, data)))
    }

    /// Implements `cuFuncGetParamInfo`.
    pub fn cuFuncGetParamInfo(
        function: CUfunction, index: usize, offset: Out<usize>, bytes: Out<usize>,
    ) |call| {
        let context = call.context()?;
        let param = call.modules.get(context, function.0)?.parameter(index)?;
        offset.set(param.offset as usize)?;
        bytes.set_if(param.size as usize);
        Ok(())
    }

    /// Implements `cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`.
    pub fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<c_int>, function: CUfunction, threads: c_int, shared: usize, flags: c_uint,
    ) |call| {
        if flags > 1 {
            return Err(Rule::Argument.into());
        }
        let context = call.context()?;
        call.modules.get(context, function.0)?;
        let threads = u32::try_from(threads).ok().filter(|&threads| threads > 0).ok_or(Rule::Argument)?;
        Ok(blocks.set((WARPS / threads.div_ceil(32)).min(BLOCKS).cast_signed())?)
    }
}
