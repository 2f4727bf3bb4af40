//! Copies between the guest's memory and the GPU's, in the order of a stream.

use std::sync::Arc;

use vgpu_device::{ResolvedSpan, SessionHost};

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::range::DeviceRange;
use crate::gpu::host_memory::{GuestLocation, HostMemory};
use crate::gpu::staging::{BUFFER_BYTES, Staging, StagingBuffer};
use crate::gpu::streams::Streams;

/// Number of entries that the copy of a chunk takes in the driver's queue: a host function and a copy.
const CHUNK_PIECES: u64 = 2;

/// Copies between guest memory and the GPU, for one session.
#[derive(Debug)]
pub(crate) struct Copies {
    context: Arc<DriverContext>,
    host: SessionHost,
    memory: HostMemory,
    staging: Arc<Staging>,
}

/// The stream of some work, and the message that requests it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkOrigin {
    pub(crate) stream: u32,
    pub(crate) message: u64,
}

impl Copies {
    /// Creates the copies of a session, with no copy in progress.
    pub(crate) fn new(context: &Arc<DriverContext>, host: &SessionHost, staging: Arc<Staging>) -> Self {
        let memory = HostMemory::new(host.clone());
        Self { context: Arc::clone(context), host: host.clone(), memory, staging }
    }

    /// Returns the registrations of the guest's memory.
    pub(crate) const fn memory(&mut self) -> &mut HostMemory {
        &mut self.memory
    }

    /// Locates a piece of the guest's memory. Registers its range on the first use.
    pub(crate) fn place(&mut self, piece: &ResolvedSpan) -> Result<GuestLocation, DriverError> {
        self.memory.place(&self.context, piece)
    }

    /// Acquires a buffer for a copy. A copy behind a hold uses buffers of its own, so that copies on other
    /// streams do not wait for the guest.
    fn buffer(&self, streams: &mut Streams, at: WorkOrigin) -> Result<StagingBuffer, DriverError> {
        if streams.waits_for_guest(at.stream) {
            return self.staging.acquire_held(&self.context);
        }
        if let Some(buffer) = self.staging.try_acquire(&self.context)? {
            return Ok(buffer);
        }
        // A buffer is returned when the fence after its copy completes. Record the fences that are missing.
        streams.fence_carried(at.message)?;
        self.staging.wait()
    }

    /// Uploads data that is inside a message, through staging buffers. `destination` is as long as `source`.
    pub(crate) fn inline(
        &mut self,
        streams: &mut Streams,
        at: WorkOrigin,
        destination: DeviceRange,
        source: &[u8],
    ) -> Result<(), DriverError> {
        for (index, chunk) in source.chunks(BUFFER_BYTES).enumerate() {
            let buffer = self.buffer(streams, at)?;
            let offset = (index * BUFFER_BYTES) as u64;
            let bytes = chunk.len() as u64;
            buffer.pinned().slice().copy_from(chunk);
            let to = destination.part(destination.address() + offset, bytes).expect("as long as the source");
            let from = buffer.pinned().part(0, bytes).expect("a chunk fits a buffer");
            streams.begin_work(at.stream)?.enqueue_h2d(to, from)?;
            streams.carry(at.stream, at.message, Arc::new(buffer))?;
        }
        Ok(())
    }

    /// Uploads a piece of the guest's memory to the GPU: directly if the driver has registered the memory,
    /// and otherwise in chunks through staging buffers. `destination` is as long as `source`.
    pub(crate) fn upload(
        &mut self,
        streams: &mut Streams,
        at: WorkOrigin,
        destination: DeviceRange,
        source: &ResolvedSpan,
    ) -> Result<(), DriverError> {
        if let GuestLocation::Registered(registered, offset) = self.memory.place(&self.context, source)?
            && let Some(part) = registered.part(offset, source.bytes())
        {
            return streams.begin_work(at.stream)?.enqueue_h2d(destination, part);
        }
        self.in_chunks(streams, at, source, |stream, host, piece, offset, bytes, buffer| {
            let (piece, filled) = (piece.clone(), Arc::clone(buffer));
            // The copy runs in the stream's order, because an earlier download may still write the source.
            let task = stream.call(move || {
                if let Ok(part) = host.slice(&piece).subslice(offset as usize, bytes as usize) {
                    part.copy_to_volatile_slice(filled.pinned().slice());
                }
            })?;
            let to = destination.part(destination.address() + offset, bytes).expect("as long as the source");
            let from = buffer.pinned().part(0, bytes).expect("a chunk fits a buffer");
            stream.enqueue_h2d(to, from)?;
            Ok(task)
        })
    }

    /// Downloads GPU memory to a piece of the guest's memory, as [`Copies::upload`] uploads it.
    pub(crate) fn download(
        &mut self,
        streams: &mut Streams,
        at: WorkOrigin,
        destination: &ResolvedSpan,
        source: DeviceRange,
    ) -> Result<(), DriverError> {
        if let GuestLocation::Registered(registered, offset) =
            self.memory.place(&self.context, destination)?
            && let Some(part) = registered.part(offset, destination.bytes())
        {
            return streams.begin_work(at.stream)?.enqueue_d2h(part, source);
        }
        self.in_chunks(streams, at, destination, |stream, host, piece, offset, bytes, buffer| {
            let from = source.part(source.address() + offset, bytes).expect("as long as the destination");
            let to = buffer.pinned().part(0, bytes).expect("a chunk fits a buffer");
            stream.enqueue_d2h(to, from)?;
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

    /// Copies a piece through staging buffers. `chunk` enqueues the copy of one chunk; its result is kept
    /// until the copy is complete.
    fn in_chunks<T: Send + Sync + 'static>(
        &self,
        streams: &mut Streams,
        at: WorkOrigin,
        piece: &ResolvedSpan,
        chunk: impl Fn(
            &crate::driver::stream::DriverStream,
            SessionHost,
            &ResolvedSpan,
            u64,
            u64,
            &Arc<crate::gpu::staging::StagingBuffer>,
        ) -> Result<T, DriverError>,
    ) -> Result<(), DriverError> {
        let mut offset = 0;
        while offset < piece.bytes() {
            let bytes = (piece.bytes() - offset).min(BUFFER_BYTES as u64);
            let buffer = Arc::new(self.buffer(streams, at)?);
            let stream = streams.begin_pieces(at.stream, CHUNK_PIECES)?;
            let kept = chunk(stream, self.host.clone(), piece, offset, bytes, &buffer)?;
            streams.carry(at.stream, at.message, Arc::new((kept, buffer)))?;
            offset += bytes;
        }
        Ok(())
    }
}
