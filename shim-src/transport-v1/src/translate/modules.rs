//! The modules of a session: images being received from the guest, and the host's handles of loaded modules.

use vgpu_wire::body::module::{GlobalReply, IMAGE_PTX, ModuleData, ModuleOpen, ModuleOpenReply};
use vgpu_wire::v1::call::{CHUNK_ARG, CHUNK_FIRST, CHUNK_LAST, CHUNK_MIDDLE, Op};
use vgpu_wire::v1::{ARGS, split};
use zerocopy::FromZeros;

use super::numbered::Numbered;
use crate::call::{Call, CallError, Payload};
use crate::host_session::HostSession;
use crate::status::{INVALID_HANDLE, INVALID_VALUE};

/// A module, before or after it is loaded.
#[derive(Debug, Default)]
struct HostModule {
    /// Whether the image is PTX, to which the host expects a trailing zero.
    text: bool,
    /// The part of the image that has been received. Empty after the load.
    image: Vec<u8>,
    /// The host's handle; 0 before the load.
    handle: u64,
}

/// The modules of a session, by the numbers that the guest assigned.
#[derive(Debug)]
pub(super) struct ModuleTable {
    modules: Numbered<u32, HostModule>,
}

impl ModuleTable {
    pub(super) const fn new() -> Self {
        Self { modules: Numbered::new() }
    }

    pub(super) fn open(&mut self, body: &ModuleOpen) -> ModuleOpenReply {
        let module = HostModule { text: body.image == IMAGE_PTX, ..HostModule::default() };
        self.modules.insert(body.module, module);
        ModuleOpenReply::new_zeroed()
    }

    pub(super) fn data(&mut self, body: &ModuleData, data: &[u8]) -> Result<(), CallError> {
        let module = self.modules.get_mut(body.module).ok_or(CallError::Status(INVALID_HANDLE))?;
        if module.image.len() as u64 != body.offset {
            return Err(CallError::Status(INVALID_VALUE));
        }
        module.image.extend_from_slice(data);
        Ok(())
    }

    /// Sends the image, in parts if it does not fit a call.
    pub(super) fn load(&mut self, host: HostSession<'_>, number: u32) -> Result<(), CallError> {
        let module = self.modules.get_mut(number).ok_or(CallError::Status(INVALID_HANDLE))?;
        let mut image = std::mem::take(&mut module.image);
        if module.text {
            image.push(0);
        }
        let pieces: Vec<&[u8]> = image.chunks(host.payload_limit()).collect();
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
            [module.handle, ..] = host.call_plain(&call.with_results(usize::from(last)))?;
        }
        Ok(())
    }

    pub(super) fn unload(&mut self, host: HostSession<'_>, number: u32) -> Result<(), CallError> {
        let module = self.modules.remove(number).ok_or(CallError::Status(INVALID_HANDLE))?;
        if module.handle == 0 {
            return Ok(());
        }
        host.call_plain(&Call::new(Op::ModuleUnload, &split(module.handle))).map(|_| ())
    }

    /// Returns the host's handle of a loaded module, as the arguments of a call.
    pub(super) fn handle(&self, number: u32) -> Result<[u32; 2], CallError> {
        let module = self.modules.get(number).filter(|module| module.handle != 0);
        module.map(|module| split(module.handle)).ok_or(CallError::Status(INVALID_HANDLE))
    }

    pub(super) fn global(
        &self,
        host: HostSession<'_>,
        number: u32,
        name: &[u8],
    ) -> Result<GlobalReply, CallError> {
        let module = self.handle(number)?;
        let name = [name, &[0]].concat();
        let call = Call::new(Op::ModuleGetGlobal, &module).with_padded_payload(Payload::Bytes(&name));
        let [address, bytes, ..] = host.call_plain(&call.with_results(2))?;
        Ok(GlobalReply { address, bytes })
    }
}
