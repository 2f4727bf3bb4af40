//! Calls about device memory: allocations, copies and fills. Each waits for its work.

use vgpu_wire::body::copy::{CopyDevice, CopyIn, CopyOut, Fill};
use vgpu_wire::body::memory::{Address, MemAlloc, MemFree, MemInfo, MemInfoReply};
use vgpu_wire::v1::PAYLOAD_MAX;
use vgpu_wire::v1::call::ALLOCATIONS_MAX;

use super::owner::Owner;
use super::port::COPY_WORD;
use super::request::{Reply, Request};
use super::status;

/// The payload of an asynchronous copy that starts with this word is dropped (Q19).
const DROPPED: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();

impl Owner {
    pub(super) fn allocate(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let bytes = request.wide(0);
        if bytes == 0 {
            return Err(status::INVALID_VALUE);
        }
        if self.allocations.len() >= ALLOCATIONS_MAX {
            return Err(status::OUT_OF_MEMORY);
        }
        let Address { address } = self.port.ask_for(MemAlloc { reply: 0, flags: 0, bytes }, &[])?;
        self.allocations.insert(address, bytes, ());
        Ok(Reply::results(&[address]))
    }

    pub(super) fn free(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let address = request.wide(0);
        if self.allocations.remove(address).is_some() {
            self.port.send(&MemFree { address }, &[])?;
            self.port.finish()?;
        }
        Ok(Reply::NONE)
    }

    /// Frees all allocations of the owner, and waits until their work has completed.
    pub(super) fn free_all(&mut self) -> Result<(), u32> {
        for address in self.allocations.addresses() {
            self.allocations.remove(address);
            self.port.send(&MemFree { address }, &[])?;
        }
        self.port.finish()
    }

    pub(super) fn copy_in(&mut self, request: &Request<'_>, stream: u64) -> Result<Reply, u32> {
        let (destination, bytes) = (request.wide(0), request.wide(2));
        let data = &request.data[..request.data.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))];
        if data.is_empty() {
            return Ok(Reply::NONE);
        }
        self.reaches(destination, data.len() as u64)?;
        let stream = self.stream(stream);
        let (source, tail) = self.port.source(data)?;
        // The mark is stored once the source has been read. Its word belongs to no event.
        let read = self.port.mark(COPY_WORD);
        self.port.send(&CopyIn { stream, reserved: 0, destination, source, read }, tail)?;
        self.bytes_in += data.len() as u64;
        self.port.wait_for(&read)?;
        Ok(Reply::NONE)
    }

    pub(super) fn copy_in_async(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        if request.data.starts_with(&DROPPED) {
            return Ok(Reply::NONE);
        }
        self.copy_in(request, request.wide(4))
    }

    pub(super) fn copy_out(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let (source, bytes) = (request.wide(0), request.wide(2));
        // The call succeeds without data (Q14).
        if bytes == 0 || bytes > u64::from(PAYLOAD_MAX) {
            return Ok(Reply::NONE);
        }
        self.reaches(source, bytes)?;
        let destination = self.port.sink(bytes)?;
        let written = self.port.mark(COPY_WORD);
        self.port.send(&CopyOut { stream: 0, reserved: 0, source, destination, written }, &[])?;
        self.port.wait_for(&written)?;
        self.bytes_out += bytes;
        Ok(Reply::data(self.port.fetch(&destination)))
    }

    pub(super) fn copy_device(&mut self, request: &Request<'_>) -> Result<Reply, u32> {
        let (destination, source, bytes) = (request.wide(0), request.wide(2), request.wide(4));
        if bytes == 0 {
            return Ok(Reply::NONE);
        }
        self.reaches(destination, bytes)?;
        self.reaches(source, bytes)?;
        self.port.send(&CopyDevice { stream: 0, reserved: 0, destination, source, bytes }, &[])?;
        self.port.finish()?;
        Ok(Reply::NONE)
    }

    /// Fills memory with elements of `element` bytes, and waits for the fill.
    pub(super) fn fill(&mut self, request: &Request<'_>, element: u32) -> Result<Reply, u32> {
        let (destination, value, width) = (request.wide(0), request.args[2], request.wide(4));
        let bytes = width.checked_mul(element.into()).ok_or(status::INVALID_VALUE)?;
        if !destination.is_multiple_of(element.into()) {
            return Err(status::INVALID_VALUE);
        }
        if bytes == 0 {
            return Ok(Reply::NONE);
        }
        self.reaches(destination, bytes)?;
        let fill =
            Fill { stream: 0, value, element, reserved: 0, destination, pitch: bytes, width, height: 1 };
        self.port.send(&fill, &[])?;
        self.port.finish()?;
        Ok(Reply::NONE)
    }

    pub(super) fn memory_info(&mut self) -> Result<Reply, u32> {
        let MemInfoReply { free, total } = self.port.ask_for(MemInfo { reply: 0, reserved: 0 }, &[])?;
        Ok(Reply::results(&[free, total]))
    }
}
