//! Calls about code: modules, libraries, kernels, variables.

use sha2::{Digest, Sha256};
use vgpu_device::Resource;
use vgpu_wire::body::module::{
    FUNCTION_CACHE_CONFIG, FunctionGet, FunctionReply, FunctionSet, GlobalGet, GlobalReply, ModuleData,
    ModuleLoad, ModuleOpen, ModuleOpenReply, ModuleUnload,
};
use vgpu_wire::facts::exec;
use vgpu_wire::v1::call::{CHUNK_ARG, CHUNK_FIRST, CHUNK_LAST, Op};
use vgpu_wire::{Span, v1};

use super::core::Mint;
use super::owner::{IncomingImage, Owner, OwnerFunction, OwnerModule};
use super::port::Port;
use super::request::{Reply, Request};
use super::status;
use crate::image::{Code, ImageError};
use vgpu_image::Target;
use vgpu_image::ptx::PtxError;

/// Largest number of bytes that the pieces of one image may have together.
const IMAGE_MOST: usize = 1 << 30;
/// Largest valid cache preference, `CU_FUNC_CACHE_PREFER_EQUAL`.
const CACHE_CONFIG_MOST: u32 = 3;
/// Number of known `CU_FUNC_ATTRIBUTE_*`. Those after the eighth have the value 0, or -1 for a preference.
const ATTRIBUTES: u32 = 16;
const PREFERRED_CARVEOUT: u32 = 9;

/// Reads the name in a payload, without its terminating zero. Bytes after the zero are padding.
fn name(data: &[u8]) -> Result<&[u8], u32> {
    let end = data.iter().position(|&byte| byte == 0).ok_or(status::INVALID_VALUE)?;
    Ok(&data[..end])
}

impl Owner {
    /// Takes an image, or appends a piece of one. Returns the whole image, or `None` if more pieces follow.
    /// Fails if the pieces exceed [`IMAGE_MOST`] or the owner's limit of host memory.
    fn image(&mut self, request: &Request<'_>) -> Result<Option<Vec<u8>>, u32> {
        let chunk = if request.num_args > CHUNK_ARG { request.args[CHUNK_ARG] } else { 0 };
        if chunk == 0 {
            return Ok(Some(request.data.to_vec()));
        }
        if chunk & CHUNK_FIRST != 0 {
            // An image that an earlier first piece started is dropped before memory is requested for the new
            // one.
            self.pieces = None;
            let charge = self.port.host().charges().charge(Resource::HostBytes, 0);
            let charge = charge.map_err(|_| status::OUT_OF_MEMORY)?;
            self.pieces = Some(IncomingImage { bytes: Vec::new(), charge });
        }
        let more = request.data.len();
        match &mut self.pieces {
            Some(IncomingImage { bytes, charge }) => {
                let room = bytes.len() + more <= IMAGE_MOST
                    && charge.grow(more as u64).is_ok()
                    && bytes.try_reserve(more).is_ok();
                if !room {
                    self.pieces = None;
                    return Err(status::OUT_OF_MEMORY);
                }
                bytes.extend_from_slice(request.data);
            }
            // A piece without a first one is an error for a library. For a module such pieces are dropped,
            // and the last one is refused as an empty image.
            None if request.op == Op::LibraryLoadData => return Err(status::INVALID_VALUE),
            None if chunk & CHUNK_LAST != 0 => return Err(status::INVALID_IMAGE),
            None => return Ok(None),
        }
        if chunk & CHUNK_LAST == 0 {
            return Ok(None);
        }
        Ok(self.pieces.take().map(|pieces| pieces.bytes))
    }

    /// Loads the part of an image that is best for the target as a module of the session.
    fn load(&mut self, image: &[u8], target: Target) -> Result<OwnerModule, u32> {
        let code = Code::choose(image, target).map_err(|error| {
            tracing::warn!("an image is refused: {error}");
            match error {
                ImageError::Fatbin(_) | ImageError::Cubin(_) | ImageError::Ptx(PtxError::Begin) => {
                    status::INVALID_IMAGE
                }
                ImageError::Ptx(_) => status::INVALID_PTX,
                ImageError::None(_) => status::NO_BINARY_FOR_GPU,
            }
        })?;
        let number = self.mint();
        let unnamed = target.abilities & exec::UNNAMED != 0;
        let open = ModuleOpen {
            reply: 0,
            module: number,
            image: code.kind,
            reserved: 0,
            bytes: code.bytes.len() as u64,
            digest: if unnamed { [0; 32] } else { Sha256::digest(&code.bytes).into() },
        };
        let ModuleOpenReply { known, .. } = self.port.ask_for(open, &[])?;
        if known == 0 {
            for (offset, piece) in Port::pieces(&code.bytes) {
                let data = Span::inline(piece.len() as u64);
                self.port.send(&ModuleData { module: number, reserved: 0, offset, data }, piece)?;
            }
        }
        self.port.ask(ModuleLoad { reply: 0, module: number }, &[])?;
        Ok(OwnerModule { number, layouts: code.layouts })
    }

    pub(super) fn module_load(
        &mut self,
        mint: &Mint,
        request: &Request<'_>,
        target: Target,
    ) -> Result<Reply, u32> {
        let Some(image) = self.image(request)? else { return Ok(Reply::NONE) };
        self.modules.room()?;
        let module = self.load(&image, target)?;
        let handle = mint.handle();
        self.modules.insert(handle, module);
        Ok(Reply::results(&[handle]))
    }

    pub(super) fn library_load(
        &mut self,
        mint: &Mint,
        request: &Request<'_>,
        target: Target,
    ) -> Result<Reply, u32> {
        let Some(image) = self.image(request)? else { return Ok(Reply::NONE) };
        self.libraries.room()?;
        let module = self.load(&image, target)?;
        let (library, handle) = (mint.handle(), mint.handle());
        self.library_modules.insert(handle, module);
        self.libraries.insert(library, handle);
        Ok(Reply::results(&[library]))
    }

    fn unload(&mut self, handle: u64, module: &OwnerModule) -> Result<(), u32> {
        self.functions.retain(|_, function| function.module != handle);
        self.globals.retain(|of| *of != handle);
        self.port.send(&ModuleUnload { module: module.number, reserved: 0 }, &[])?;
        self.port.finish()
    }

    pub(super) fn module_unload(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let handle = request.wide(0);
        // The module of a library is unloaded with the library.
        if let Some(module) = self.modules.remove(handle) {
            self.unload(handle, &module)?;
        }
        Ok(Reply::NONE)
    }

    pub(super) fn library_unload(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let handle = self.libraries.remove(request.wide(0)).ok_or(status::INVALID_HANDLE)?;
        if let Some(module) = self.library_modules.remove(handle) {
            self.unload(handle, &module)?;
        }
        Ok(Reply::NONE)
    }

    pub(super) fn library_module(&self, request: &Request<'_>) -> Result<Reply, u32> {
        let module = self.libraries.get(request.wide(0)).ok_or(status::INVALID_HANDLE)?;
        Ok(Reply::results(&[*module]))
    }

    pub(super) fn function_get(&mut self, mint: &Mint, request: &Request<'_>) -> Result<Reply, u32> {
        let handle = request.wide(0);
        let number = self.module(handle).ok_or(status::INVALID_VALUE)?.number;
        let bytes = name(request.data)?;
        let name = str::from_utf8(bytes).map_err(|_| status::NOT_FOUND)?;
        // The same kernel gets the same handle each time.
        let same = |function: &OwnerFunction| function.module == handle && function.name == name;
        if let Some((known, _)) = self.functions.iter().find(|(_, function)| same(function)) {
            return Ok(Reply::results(&[*known]));
        }
        self.functions.room()?;
        let function = self.mint();
        let body = FunctionGet { reply: 0, module: number, function, name_bytes: bytes.len() as u32 };
        let attributes: FunctionReply = self.port.ask_for(body, bytes)?;
        let new = mint.handle();
        self.functions.insert(
            new,
            OwnerFunction { number: function, module: handle, name: name.to_owned(), attributes },
        );
        Ok(Reply::results(&[new]))
    }

    pub(super) fn global_get(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let handle = request.wide(0);
        let module = self.module(handle).ok_or(status::INVALID_VALUE)?.number;
        let bytes = name(request.data)?;
        let body = GlobalGet { reply: 0, module, name_bytes: bytes.len() as u32, reserved: 0 };
        let GlobalReply { address, bytes } = self.port.ask_for(body, bytes)?;
        self.globals.insert(address, bytes, handle);
        Ok(Reply::results(&[address, bytes]))
    }

    pub(super) fn function(&self, handle: u64) -> Result<&OwnerFunction, u32> {
        self.functions.get(handle).ok_or(status::INVALID_HANDLE)
    }

    pub(super) fn function_attribute(&self, request: &Request<'_>) -> Result<Reply, u32> {
        let of = &self.function(request.wide(2))?.attributes;
        let known = [
            of.max_threads,
            of.shared_bytes,
            of.const_bytes,
            of.local_bytes,
            of.registers,
            of.ptx_version,
            of.binary_version,
            0,
            of.max_dynamic_shared,
        ];
        match request.args[0] {
            PREFERRED_CARVEOUT => Ok(Reply::results(&[u64::from(u32::MAX)])),
            attribute if attribute < ATTRIBUTES => {
                Ok(Reply::results(&[known.get(attribute as usize).copied().unwrap_or(0).into()]))
            }
            _ => Err(status::INVALID_VALUE),
        }
    }

    pub(super) fn function_cache(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let function = self.function(request.wide(0))?.number;
        let config = request.args[2];
        if config > CACHE_CONFIG_MOST {
            return Err(status::INVALID_VALUE);
        }
        let set =
            FunctionSet { function, attribute: FUNCTION_CACHE_CONFIG, value: config as i32, reserved: 0 };
        self.port.send(&set, &[])?;
        self.port.check_errors()?;
        Ok(Reply::NONE)
    }

    /// Carries out `cuFuncGetParamInfo`, which hosts with drivers from CUDA 12.4 on answer.
    pub(super) fn function_param(&self, request: &Request<'_>, driver: u32) -> Result<Reply, u32> {
        const FIRST_DRIVER: u32 = 12_040;
        if driver < FIRST_DRIVER {
            return Err(status::NOT_SUPPORTED);
        }
        let function = self.functions.get(request.wide(0)).ok_or(status::INVALID_VALUE)?;
        let module = self.module(function.module).ok_or(status::INVALID_VALUE)?;
        let layout = module.layouts.get(&function.name).ok_or(status::INVALID_VALUE)?;
        let index = usize::try_from(request.wide(2)).unwrap_or(usize::MAX);
        let param = layout.params.get(index).ok_or(status::INVALID_VALUE)?;
        Ok(Reply::results(&[param.offset.into(), param.size.into()]))
    }
}

const _: () = assert!(CHUNK_ARG < v1::ARGS);
