//! Modules: their code on its way to the host, and the host's handles of them.

use vgpu_wire::body::module::{GlobalReply, IMAGE_PTX, ModuleData, ModuleOpen, ModuleOpenReply};
use vgpu_wire::v1::call::{CHUNK_ARG, CHUNK_FIRST, CHUNK_LAST, CHUNK_MIDDLE, Op};
use vgpu_wire::v1::{ARGS, split};
use zerocopy::FromZeros;

use super::numbered::Numbered;
use crate::status::{INVALID_HANDLE, INVALID_VALUE};
use crate::v1::call::{Call, Failure, Payload};
use crate::v1::host::Host;

/// A module of the session.
#[derive(Debug, Default)]
struct Module {
    text: bool,
    /// The image, until it is loaded.
    image: Vec<u8>,
    /// The host's handle; 0 until it is loaded.
    handle: u64,
}

/// The modules of a session, by the numbers that the guest minted.
#[derive(Debug)]
pub(super) struct Modules {
    modules: Numbered<u32, Module>,
}

impl Modules {
    pub(super) const fn new() -> Self {
        Self { modules: Numbered::new() }
    }

    pub(super) fn open(&mut self, body: &ModuleOpen) -> ModuleOpenReply {
        let module = Module { text: body.image == IMAGE_PTX, ..Module::default() };
        self.modules.insert(body.module, module);
        ModuleOpenReply::new_zeroed()
    }

    pub(super) fn data(&mut self, body: &ModuleData, data: &[u8]) -> Result<(), Failure> {
        let module = self.modules.get_mut(body.module).ok_or(Failure::Status(INVALID_HANDLE))?;
        if module.image.len() as u64 != body.offset {
            return Err(Failure::Status(INVALID_VALUE));
        }
        module.image.extend_from_slice(data);
        Ok(())
    }

    /// Sends the image, in pieces if it is longer than a call carries.
    pub(super) fn load(&mut self, host: Host<'_>, number: u32) -> Result<(), Failure> {
        let module = self.modules.get_mut(number).ok_or(Failure::Status(INVALID_HANDLE))?;
        let mut image = std::mem::take(&mut module.image);
        if module.text {
            image.push(0);
        }
        let pieces: Vec<&[u8]> = image.chunks(host.limit()).collect();
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
            [module.handle, ..] = host.plain(&call.results(usize::from(last)))?;
        }
        Ok(())
    }

    pub(super) fn unload(&mut self, host: Host<'_>, number: u32) -> Result<(), Failure> {
        let module = self.modules.remove(number).ok_or(Failure::Status(INVALID_HANDLE))?;
        if module.handle == 0 {
            return Ok(());
        }
        host.plain(&Call::new(Op::ModuleUnload, &split(module.handle))).map(|_| ())
    }

    /// The host's handle of a loaded module, as calls carry it.
    pub(super) fn handle(&self, number: u32) -> Result<[u32; 2], Failure> {
        let module = self.modules.get(number).filter(|module| module.handle != 0);
        module.map(|module| split(module.handle)).ok_or(Failure::Status(INVALID_HANDLE))
    }

    pub(super) fn global(&self, host: Host<'_>, number: u32, name: &[u8]) -> Result<GlobalReply, Failure> {
        let module = self.handle(number)?;
        let name = [name, &[0]].concat();
        let call = Call::new(Op::ModuleGetGlobal, &module).padded(Payload::Bytes(&name));
        let [address, bytes, ..] = host.plain(&call.results(2))?;
        Ok(GlobalReply { address, bytes })
    }
}
