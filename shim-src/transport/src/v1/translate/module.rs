//! Modules, functions, launches.

use vgpu_wire::body::launch::{LAUNCH_COOPERATIVE, Launch};
use vgpu_wire::body::module::{
    FUNCTION_CACHE_CONFIG, FunctionGet, FunctionReply, FunctionSet, GlobalReply, IMAGE_PTX, ModuleData,
    ModuleOpen, ModuleOpenReply, Occupancy, OccupancyReply,
};
use vgpu_wire::v1::call::{CHUNK_ARG, CHUNK_FIRST, CHUNK_LAST, CHUNK_MIDDLE, Op};
use vgpu_wire::v1::payload::{self, LAUNCH_RAW};
use vgpu_wire::v1::{ARGS, split};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::super::call::{Call, Failure, Payload};
use super::super::facts::{self, Use};
use super::{INVALID_HANDLE, INVALID_VALUE, Means, NOT_SUPPORTED, Translator};

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: u32 = 8;

/// A module of the session.
#[derive(Debug, Default)]
pub(super) struct Module {
    text: bool,
    /// The image, until it is loaded.
    image: Vec<u8>,
    /// The host's handle.
    host: u64,
}

/// A function of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    module: u32,
    host: u64,
    registers: u32,
    shared_bytes: u32,
    max_dynamic_shared: u32,
}

impl Translator {
    pub(super) fn module_open(&mut self, body: &ModuleOpen) -> ModuleOpenReply {
        let module = Module { text: body.image == IMAGE_PTX, ..Module::default() };
        self.modules.insert(body.module, module);
        ModuleOpenReply::new_zeroed()
    }

    pub(super) fn module_data(&mut self, body: &ModuleData, data: &[u8]) -> Result<(), Failure> {
        let module = self.modules.get_mut(body.module).ok_or(Failure::Status(INVALID_HANDLE))?;
        if module.image.len() as u64 != body.offset {
            return Err(Failure::Status(INVALID_VALUE));
        }
        module.image.extend_from_slice(data);
        Ok(())
    }

    /// Sends the image, in pieces if it is longer than a call carries.
    pub(super) fn module_load(&mut self, means: Means<'_>, module: u32) -> Result<(), Failure> {
        let known = self.modules.get_mut(module).ok_or(Failure::Status(INVALID_HANDLE))?;
        let mut image = std::mem::take(&mut known.image);
        if known.text {
            image.push(0);
        }
        let pieces: Vec<&[u8]> = image.chunks(means.mailbox.limit()).collect();
        let mut host = 0;
        for (index, piece) in pieces.iter().enumerate() {
            let mut args = [0; ARGS];
            args[CHUNK_ARG] = match index {
                0 => CHUNK_FIRST,
                last if last + 1 == pieces.len() => CHUNK_LAST,
                _ => CHUNK_MIDDLE,
            };
            let whole = pieces.len() == 1;
            let call = Call {
                payload: Payload::Bytes(piece),
                ..Call::new(Op::ModuleLoadData, if whole { &[] } else { &args })
            };
            let last = index + 1 == pieces.len();
            [host, ..] = self.plain(means, &call.results(usize::from(last)))?;
        }
        if let Some(known) = self.modules.get_mut(module) {
            known.host = host;
        }
        Ok(())
    }

    pub(super) fn module_unload(&mut self, means: Means<'_>, module: u32) -> Result<(), Failure> {
        let Some(known) = self.modules.remove(module) else { return Err(Failure::Status(INVALID_HANDLE)) };
        self.functions.retain(|function| function.module != module);
        if known.host == 0 {
            return Ok(());
        }
        self.plain(means, &Call::new(Op::ModuleUnload, &split(known.host))).map(|_| ())
    }

    fn host_module(&self, module: u32) -> Result<[u32; 2], Failure> {
        let known = self.modules.get(module).filter(|module| module.host != 0);
        known.map(|module| split(module.host)).ok_or(Failure::Status(INVALID_HANDLE))
    }

    pub(super) fn function_get(
        &mut self,
        means: Means<'_>,
        body: &FunctionGet,
        name: &[u8],
    ) -> Result<FunctionReply, Failure> {
        let module = self.host_module(body.module)?;
        let name = [name, &[0]].concat();
        let call = Call::new(Op::ModuleGetFunction, &module).padded(Payload::Bytes(&name));
        let [host, ..] = self.plain(means, &call.results(1))?;
        let [low, high] = split(host);
        let attribute = |id: u32| -> Result<u32, Failure> {
            let [value, ..] =
                self.plain(means, &Call::new(Op::FuncGetAttribute, &[id, 0, low, high]).results(1))?;
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
            host,
            registers: reply.registers,
            shared_bytes: reply.shared_bytes,
            max_dynamic_shared: reply.max_dynamic_shared,
        };
        self.functions.insert(body.function, function);
        Ok(reply)
    }

    fn function(&self, number: u32) -> Result<&Function, Failure> {
        self.functions.get(number).ok_or(Failure::Status(INVALID_HANDLE))
    }

    pub(super) fn function_set(&self, means: Means<'_>, body: &FunctionSet) -> Result<(), Failure> {
        let function = self.function(body.function)?;
        let value = body.value.cast_unsigned();
        match body.attribute {
            FUNCTION_CACHE_CONFIG => {
                let [low, high] = split(function.host);
                let args = [low, high, value, 0];
                self.plain(means, &Call::new(Op::FuncSetCacheConfig, &args)).map(|_| ())
            }
            // No call sets it (Q15). Up to the default there is nothing to set.
            MAX_DYNAMIC_SHARED if value > function.max_dynamic_shared => Err(Failure::Status(NOT_SUPPORTED)),
            // The other attributes are hints.
            _ => Ok(()),
        }
    }

    pub(super) fn occupancy(&self, body: &Occupancy) -> Result<OccupancyReply, Failure> {
        let function = self.function(body.function)?;
        let kernel = Use {
            threads: body.block_threads,
            registers: function.registers,
            shared_bytes: u64::from(function.shared_bytes) + body.shared_bytes,
        };
        Ok(OccupancyReply { blocks: facts::occupancy(self.facts(), kernel), reserved: 0 })
    }

    pub(super) fn global_get(
        &self,
        means: Means<'_>,
        module: u32,
        name: &[u8],
    ) -> Result<GlobalReply, Failure> {
        let module = self.host_module(module)?;
        let name = [name, &[0]].concat();
        let call = Call::new(Op::ModuleGetGlobal, &module).padded(Payload::Bytes(&name));
        let [address, bytes, ..] = self.plain(means, &call.results(2))?;
        Ok(GlobalReply { address, bytes })
    }

    pub(super) fn launch(&self, means: Means<'_>, body: &Launch, params: &[u8]) -> Result<(), Failure> {
        let function = self.function(body.function)?;
        let clusters = body.cluster.iter().any(|&blocks| blocks > 1);
        if clusters || body.flags & LAUNCH_COOPERATIVE != 0 {
            return Err(Failure::Status(NOT_SUPPORTED));
        }
        let head = payload::Launch {
            function: U64::new(function.host),
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
        self.plain(means, &Call::new(Op::LaunchKernel, &[]).padded(Payload::Bytes(&payload))).map(|_| ())
    }
}
