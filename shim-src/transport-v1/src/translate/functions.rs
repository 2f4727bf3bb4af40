//! The functions of a session: the host's handles of kernels, their attributes, and launches.

use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, Launch};
use vgpu_wire::body::module::{
    FUNCTION_CACHE_CONFIG, FunctionGet, FunctionReply, FunctionSet, Occupancy, OccupancyReply,
};
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::payload::{self, LAUNCH_RAW};
use vgpu_wire::v1::split;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::modules::ModuleTable;
use super::numbered::Numbered;
use crate::call::{Call, CallError, Payload};
use crate::facts::{self, KernelUsage};
use crate::host_session::HostSession;
use crate::status::{INVALID_HANDLE, NOT_SUPPORTED};

/// Number of the attribute `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: u32 = 8;

/// A kernel that the host has resolved.
#[derive(Clone, Copy, Debug)]
struct HostFunction {
    /// Number of the module that contains it.
    module: u32,
    /// Handle of the function on the host.
    handle: u64,
    registers: u32,
    shared_bytes: u32,
    max_dynamic_shared: u32,
}

/// The functions of a session, by the numbers that the guest assigned.
#[derive(Debug)]
pub(super) struct FunctionTable {
    functions: Numbered<u32, HostFunction>,
}

impl FunctionTable {
    pub(super) const fn new() -> Self {
        Self { functions: Numbered::new() }
    }

    /// Resolves a kernel of a module, and reads its attributes.
    pub(super) fn resolve(
        &mut self,
        host: HostSession<'_>,
        modules: &ModuleTable,
        body: &FunctionGet,
        name: &[u8],
    ) -> Result<FunctionReply, CallError> {
        let module = modules.handle(body.module)?;
        let name = [name, &[0]].concat();
        let call = Call::new(Op::ModuleGetFunction, &module).with_padded_payload(Payload::Bytes(&name));
        let [handle, ..] = host.call_plain(&call.with_results(1))?;
        let [low, high] = split(handle);
        let attribute = |id: u32| -> Result<u32, CallError> {
            let [value, ..] =
                host.call_plain(&Call::new(Op::FuncGetAttribute, &[id, 0, low, high]).with_results(1))?;
            Ok(value as u32)
        };
        let mut reply = FunctionReply::new_zeroed();
        reply.max_threads = attribute(0)?;
        reply.shared_bytes = attribute(1)?;
        reply.const_bytes = attribute(2)?;
        reply.local_bytes = attribute(3)?;
        reply.registers = attribute(4)?;
        reply.ptx_version = attribute(5)?;
        reply.binary_version = attribute(6)?;
        reply.max_dynamic_shared = attribute(MAX_DYNAMIC_SHARED)?;
        let function = HostFunction {
            module: body.module,
            handle,
            registers: reply.registers,
            shared_bytes: reply.shared_bytes,
            max_dynamic_shared: reply.max_dynamic_shared,
        };
        self.functions.insert(body.function, function);
        Ok(reply)
    }

    /// Drops the functions of a module.
    pub(super) fn forget_module(&mut self, module: u32) {
        self.functions.retain(|function| function.module != module);
    }

    fn get(&self, number: u32) -> Result<&HostFunction, CallError> {
        self.functions.get(number).ok_or(CallError::Status(INVALID_HANDLE))
    }

    pub(super) fn set_attribute(&self, host: HostSession<'_>, body: &FunctionSet) -> Result<(), CallError> {
        let function = self.get(body.function)?;
        let value = body.value.cast_unsigned();
        match body.attribute {
            FUNCTION_CACHE_CONFIG => {
                let [low, high] = split(function.handle);
                let args = [low, high, value, 0];
                host.call_plain(&Call::new(Op::FuncSetCacheConfig, &args)).map(|_| ())
            }
            // No call sets the attribute (Q15). The host allows the default without it.
            MAX_DYNAMIC_SHARED if value > function.max_dynamic_shared => {
                Err(CallError::Status(NOT_SUPPORTED))
            }
            // The other attributes are hints.
            _ => Ok(()),
        }
    }

    /// Calculates the occupancy of a function, since no call returns it.
    pub(super) fn occupancy(
        &self,
        facts: &DeviceFacts,
        body: &Occupancy,
    ) -> Result<OccupancyReply, CallError> {
        let function = self.get(body.function)?;
        let kernel = KernelUsage {
            threads: body.block_threads,
            registers: function.registers,
            shared_bytes: u64::from(function.shared_bytes) + body.shared_bytes,
        };
        Ok(OccupancyReply { blocks: facts::occupancy(facts, kernel), reserved: 0 })
    }

    pub(super) fn launch(
        &self,
        host: HostSession<'_>,
        body: &Launch,
        params: &[u8],
    ) -> Result<(), CallError> {
        let function = self.get(body.function)?;
        let clusters = body.cluster.iter().any(|&blocks| blocks > 1);
        if clusters || body.flags & LAUNCH_COOPERATIVE != 0 {
            return Err(CallError::Status(NOT_SUPPORTED));
        }
        let head = payload::Launch {
            function: U64::new(function.handle),
            grid: body.grid.map(U32::new),
            block: body.block.map(U32::new),
            shared_bytes: U32::new(body.shared_bytes),
            stream: U64::new(0),
            // The message states the length of the parameters, not their number.
            params: U32::new(u32::from(!params.is_empty())),
            param_bytes: U32::new(params.len() as u32),
            mode: U32::new(LAUNCH_RAW),
            reserved: U32::new(0),
        };
        let payload = [head.as_bytes(), params].concat();
        host.call_plain(&Call::new(Op::LaunchKernel, &[]).with_padded_payload(Payload::Bytes(&payload)))
            .map(|_| ())
    }
}
