//! Maps each operation to the function that executes it.

use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::payload::{GemmEx, GemmStrided, Sgemm};

use super::core::Core;
use super::owner::Owner;
use super::request::{Reply, Request};
use super::status;
use crate::info;

/// Version that `cuCtxGetApiVersion` returns.
const API_VERSION: u64 = 3020;

/// Executes a call that the table of operations neither refuses nor ignores. The error is the `CUresult` that
/// the guest gets.
pub(super) fn do_call(core: &Core, owner: &mut Owner, request: &Request<'_>) -> Result<Reply, u32> {
    let (target, context) = (core.target(), core.context);
    let (mint, executor, facts) = (&core.mint, &core.executor, core.sessions.facts());
    owner.context |= needs_context(request.op);
    let number = |value: u64| Ok(Reply::results(&[value]));
    match request.op {
        Op::Init | Op::DeviceGetCount => number(1),
        Op::DriverGetVersion => number(facts.driver_version.into()),
        Op::DeviceGet | Op::CtxGetDevice => number(0),
        Op::GetGpuInfo => Ok(Reply::data(info::gpu_info(facts, executor.allocated()))),
        Op::CtxCreate | Op::PrimaryCtxRetain => number(context),
        Op::CtxGetCurrent => number(if owner.context { context } else { 0 }),
        Op::CtxSynchronize if owner.context => owner.port.finish().map(|()| Reply::NONE),
        Op::CtxSynchronize | Op::CtxSetCurrent => Ok(Reply::NONE),
        Op::CtxGetApiVersion => number(API_VERSION),
        Op::PrimaryCtxReset => owner.free_all().map(|()| Reply::NONE),
        Op::PrimaryCtxGetState => Ok(Reply::results(&[0, owner.context.into()])),

        Op::MemAlloc => owner.allocate(request),
        Op::MemFree => owner.free(request),
        Op::MemcpyHtoD => owner.copy_in(request, 0),
        Op::MemcpyHtoDAsync => owner.copy_in_async(request),
        Op::MemcpyDtoH => owner.copy_out(request),
        Op::MemcpyDtoD => owner.copy_device(request),
        Op::MemsetD8 => owner.fill(request, 1),
        Op::MemsetD32 => owner.fill(request, 4),
        Op::MemGetInfo => owner.memory_info(),

        Op::ModuleLoadData | Op::ModuleLoadDataEx | Op::ModuleLoadFatBinary => {
            owner.module_load(mint, request, target)
        }
        Op::ModuleUnload => owner.module_unload(request),
        Op::ModuleGetFunction => owner.function_get(mint, request),
        Op::ModuleGetGlobal => owner.global_get(request),
        Op::LibraryLoadData => owner.library_load(mint, request, target),
        Op::LibraryUnload => owner.library_unload(request),
        Op::LibraryGetModule => owner.library_module(request),
        Op::FuncGetAttribute => owner.function_attribute(request),
        Op::FuncSetCacheConfig => owner.function_cache(request),
        Op::FuncGetParamInfo => owner.function_param(request, facts.driver_version),
        Op::LaunchKernel => owner.launch(request),

        Op::StreamCreate | Op::StreamCreateWithFlags => owner.stream_create(mint, request.args[0], 0),
        Op::StreamCreateWithPriority => {
            owner.stream_create(mint, request.args[0], request.args[2].cast_signed())
        }
        Op::StreamDestroy => owner.stream_destroy(request),
        Op::StreamSynchronize => owner.stream_synchronize(request),
        Op::StreamQuery => owner.stream_query(request),
        Op::StreamWaitEvent => owner.stream_wait(request),
        Op::EventCreate | Op::EventCreateWithFlags => owner.event_create(mint, request.args[0]),
        Op::EventDestroy => owner.event_destroy(request),
        Op::EventRecord => owner.event_record(request),
        Op::EventSynchronize => owner.event_synchronize(request),
        Op::EventQuery => owner.event_query(request),
        Op::EventElapsedTime => owner.event_elapsed(request),

        Op::CublasCreate => Ok(owner.cublas_create(mint)),
        Op::CublasDestroy => Ok(owner.cublas_destroy(request)),
        Op::CublasSetStream => Ok(owner.cublas_set_stream(request)),
        Op::CublasGetStream => Ok(owner.cublas_get_stream(request)),
        Op::CublasSgemm => Ok(owner.multiply::<Sgemm>(request)),
        Op::CublasGemmEx => Ok(owner.multiply::<GemmEx>(request)),
        Op::CublasGemmStridedBatchedEx => Ok(owner.multiply::<GemmStrided>(request)),
        Op::CublasGemmBatchedEx => Ok(owner.multiply_batched(request)),
        // Operations that the table gains later are refused until they are implemented above.
        _ => Err(status::NOT_SUPPORTED),
    }
}

/// Returns whether a call makes its owner's context valid. Calls about contexts, streams, events, modules,
/// libraries and launches do; allocations, copies and products do not.
pub(super) const fn needs_context(op: Op) -> bool {
    !matches!(
        op,
        Op::Init
            | Op::DriverGetVersion
            | Op::DeviceGetCount
            | Op::DeviceGet
            | Op::GetGpuInfo
            | Op::CtxGetCurrent
            | Op::CtxSynchronize
            | Op::CtxGetDevice
            | Op::CtxGetApiVersion
            | Op::PrimaryCtxReset
            | Op::PrimaryCtxGetState
            | Op::MemAlloc
            | Op::MemFree
            | Op::MemcpyHtoD
            | Op::MemcpyHtoDAsync
            | Op::MemcpyDtoH
            | Op::MemcpyDtoD
            | Op::MemsetD8
            | Op::MemsetD32
            | Op::MemGetInfo
            | Op::CublasCreate
            | Op::CublasDestroy
            | Op::CublasSetStream
            | Op::CublasGetStream
            | Op::CublasSgemm
            | Op::CublasGemmEx
            | Op::CublasGemmStridedBatchedEx
            | Op::CublasGemmBatchedEx
    )
}
