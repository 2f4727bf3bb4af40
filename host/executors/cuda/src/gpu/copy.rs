//! Copies between the guest's memory and the GPU's, in the order of a stream.

use std::sync::Arc;

use vgpu_device::{Piece, SessionHost};

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::range::DeviceRange;
use crate::gpu::host_memory::{HostMemory, Place};
use crate::gpu::staging::{BUFFER_BYTES, Staging};
use crate::gpu::streams::Streams;

/// What copies need of a session.
#[derive(Debug)]
pub(crate) struct Copies {
    context: Arc<Context>,
    host: SessionHost,
    memory: HostMemory,
    staging: Arc<Staging>,
}

/// A stream, and the message that gives it work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) stream: u32,
    pub(crate) message: u64,
}

impl Copies {
    /// Copies of a session.
    pub(crate) fn new(context: &Arc<Context>, host: &SessionHost, staging: Arc<Staging>) -> Self {
        let memory = HostMemory::new(host.clone());
        Self { context: Arc::clone(context), host: host.clone(), memory, staging }
    }

    /// What the session has registered.
    pub(crate) const fn memory(&mut self) -> &mut HostMemory {
        &mut self.memory
    }

    /// Where a piece of the guest's memory is; registers the range that it lies in if this is its first use.
    pub(crate) fn place(&mut self, piece: &Piece) -> Result<Place, DriverError> {
        self.memory.place(&self.context, piece)
    }

    /// Copies what came inside a message.
    pub(crate) fn inline(
        &mut self,
        streams: &mut Streams,
        at: At,
        destination: DeviceRange,
        source: &[u8],
    ) -> Result<(), DriverError> {
        for (index, chunk) in source.chunks(BUFFER_BYTES).enumerate() {
            let buffer = self.staging.take(&self.context)?;
            let offset = (index * BUFFER_BYTES) as u64;
            let bytes = chunk.len() as u64;
            buffer.pinned().slice().copy_from(chunk);
            let to = destination.part(destination.address() + offset, bytes).expect("as long as the source");
            let from = buffer.pinned().part(0, bytes).expect("a chunk fits a buffer");
            streams.work(at.stream)?.copy_in(to, from)?;
            streams.carry(at.stream, at.message, Arc::new(buffer))?;
        }
        Ok(())
    }

    /// Copies a piece of the guest's memory to the GPU.
    pub(crate) fn upload(
        &mut self,
        streams: &mut Streams,
        at: At,
        destination: DeviceRange,
        source: &Piece,
    ) -> Result<(), DriverError> {
        if let Place::Registered(registered, offset) = self.memory.place(&self.context, source)?
            && let Some(part) = registered.part(offset, source.bytes())
        {
            return streams.work(at.stream)?.copy_in(destination, part);
        }
        self.in_chunks(streams, at, source, |stream, host, piece, offset, bytes, buffer| {
            let (piece, filled) = (piece.clone(), Arc::clone(buffer));
            // In the stream's order: an earlier copy back may still be writing the source.
            let task = stream.call(move || {
                if let Ok(part) = host.slice(&piece).subslice(offset as usize, bytes as usize) {
                    part.copy_to_volatile_slice(filled.pinned().slice());
                }
            })?;
            let to = destination.part(destination.address() + offset, bytes).expect("as long as the source");
            let from = buffer.pinned().part(0, bytes).expect("a chunk fits a buffer");
            stream.copy_in(to, from)?;
            Ok(task)
        })
    }

    /// Copies memory of the GPU to a piece of the guest's.
    pub(crate) fn download(
        &mut self,
        streams: &mut Streams,
        at: At,
        destination: &Piece,
        source: DeviceRange,
    ) -> Result<(), DriverError> {
        if let Place::Registered(registered, offset) = self.memory.place(&self.context, destination)?
            && let Some(part) = registered.part(offset, destination.bytes())
        {
            return streams.work(at.stream)?.copy_out(part, source);
        }
        self.in_chunks(streams, at, destination, |stream, host, piece, offset, bytes, buffer| {
            let from = source.part(source.address() + offset, bytes).expect("as long as the destination");
            let to = buffer.pinned().part(0, bytes).expect("a chunk fits a buffer");
            stream.copy_out(to, from)?;
            let (piece, filled) = (piece.clone(), Arc::clone(buffer));
            stream.call(move || {
                let room = host.slice(&piece);
                if let (Ok(part), Ok(data)) = (
                    room.subslice(offset as usize, bytes as usize),
                    filled.pinned().slice().subslice(0, bytes as usize),
                ) {
                    data.copy_to_volatile_slice(part);
                }
            })
        })
    }

    /// Copies a piece through buffers, one chunk after the other: `chunk` gives the stream the work of one,
    /// and what it returns is kept until that is complete.
    fn in_chunks<T: Send + Sync + 'static>(
        &self,
        streams: &mut Streams,
        at: At,
        piece: &Piece,
        chunk: impl Fn(
            &crate::driver::stream::Stream,
            SessionHost,
            &Piece,
            u64,
            u64,
            &Arc<crate::gpu::staging::Buffer>,
        ) -> Result<T, DriverError>,
    ) -> Result<(), DriverError> {
        let mut offset = 0;
        while offset < piece.bytes() {
            let bytes = (piece.bytes() - offset).min(BUFFER_BYTES as u64);
            let buffer = Arc::new(self.staging.take(&self.context)?);
            let stream = streams.work(at.stream)?;
            let kept = chunk(stream, self.host.clone(), piece, offset, bytes, &buffer)?;
            streams.carry(at.stream, at.message, Arc::new((kept, buffer)))?;
            offset += bytes;
        }
        Ok(())
    }
}
