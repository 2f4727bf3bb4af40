//! Functions: the host's handles of kernels, what they use, and launches.

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

use super::modules::Modules;
use super::numbered::Numbered;
use crate::status::{INVALID_HANDLE, NOT_SUPPORTED};
use crate::v1::call::{Call, Failure, Payload};
use crate::v1::facts::{self, Use};
use crate::v1::host::Host;

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: u32 = 8;

/// A function of the session.
#[derive(Clone, Copy, Debug)]
struct Function {
    /// The guest's number of its module.
    module: u32,
    /// The host's handle.
    handle: u64,
    registers: u32,
    shared_bytes: u32,
    max_dynamic_shared: u32,
}

/// The functions of a session, by the numbers that the guest minted.
#[derive(Debug)]
pub(super) struct Functions {
    functions: Numbered<u32, Function>,
}

impl Functions {
    pub(super) const fn new() -> Self {
        Self { functions: Numbered::new() }
    }

    /// Asks for a kernel of a module and for its attributes.
    pub(super) fn introduce(
        &mut self,
        host: Host<'_>,
        modules: &Modules,
        body: &FunctionGet,
        name: &[u8],
    ) -> Result<FunctionReply, Failure> {
        let module = modules.handle(body.module)?;
        let name = [name, &[0]].concat();
        let call = Call::new(Op::ModuleGetFunction, &module).padded(Payload::Bytes(&name));
        let [handle, ..] = host.plain(&call.results(1))?;
        let [low, high] = split(handle);
        let attribute = |id: u32| -> Result<u32, Failure> {
            let [value, ..] = host.plain(&Call::new(Op::FuncGetAttribute, &[id, 0, low, high]).results(1))?;
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
        let function = Function {
            module: body.module,
            handle,
            registers: reply.registers,
            shared_bytes: reply.shared_bytes,
            max_dynamic_shared: reply.max_dynamic_shared,
        };
        self.functions.insert(body.function, function);
        Ok(reply)
    }

    /// Forgets the functions of a module.
    pub(super) fn forget(&mut self, module: u32) {
        self.functions.retain(|function| function.module != module);
    }

    fn get(&self, number: u32) -> Result<&Function, Failure> {
        self.functions.get(number).ok_or(Failure::Status(INVALID_HANDLE))
    }

    pub(super) fn set(&self, host: Host<'_>, body: &FunctionSet) -> Result<(), Failure> {
        let function = self.get(body.function)?;
        let value = body.value.cast_unsigned();
        match body.attribute {
            FUNCTION_CACHE_CONFIG => {
                let [low, high] = split(function.handle);
                let args = [low, high, value, 0];
                host.plain(&Call::new(Op::FuncSetCacheConfig, &args)).map(|_| ())
            }
            // No call sets it (Q15). Up to the default there is nothing to set.
            MAX_DYNAMIC_SHARED if value > function.max_dynamic_shared => Err(Failure::Status(NOT_SUPPORTED)),
            // The other attributes are hints.
            _ => Ok(()),
        }
    }

    /// Blocks of a function that a multiprocessor of the device holds: calculated, since no call answers it.
    pub(super) fn occupancy(&self, facts: &DeviceFacts, body: &Occupancy) -> Result<OccupancyReply, Failure> {
        let function = self.get(body.function)?;
        let kernel = Use {
            threads: body.block_threads,
            registers: function.registers,
            shared_bytes: u64::from(function.shared_bytes) + body.shared_bytes,
        };
        Ok(OccupancyReply { blocks: facts::occupancy(facts, kernel), reserved: 0 })
    }

    pub(super) fn launch(&self, host: Host<'_>, body: &Launch, params: &[u8]) -> Result<(), Failure> {
        let function = self.get(body.function)?;
        let clusters = body.cluster.iter().any(|&blocks| blocks > 1);
        if clusters || body.flags & LAUNCH_COOPERATIVE != 0 {
            return Err(Failure::Status(NOT_SUPPORTED));
        }
        let head = payload::Launch {
            function: U64::new(function.handle),
            grid: body.grid.map(U32::new),
            block: body.block.map(U32::new),
            shared_bytes: U32::new(body.shared_bytes),
            stream: U64::new(0),
            // The layout does not say how many parameters there are, only how many bytes.
            params: U32::new(u32::from(!params.is_empty())),
            param_bytes: U32::new(params.len() as u32),
            mode: U32::new(LAUNCH_RAW),
            reserved: U32::new(0),
        };
        let payload = [head.as_bytes(), params].concat();
        host.plain(&Call::new(Op::LaunchKernel, &[]).padded(Payload::Bytes(&payload))).map(|_| ())
    }
}
