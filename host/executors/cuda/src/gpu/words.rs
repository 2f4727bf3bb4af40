//! Completion words that the GPU stores itself, in the order of a stream, so that the guest sees them without
//! the help of a host processor.
//!
//! A word's value never decreases, but a GPU stores whatever it is told. So it stores only words that no
//! other stream may still store. Marks of other words are stored by the host once all work is complete.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_device::SessionHost;
use vgpu_wire::{Mark, area};

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::stream::DriverStream;
use crate::gpu::host_memory::HostMemory;

/// Completion words of a session.
#[derive(Debug)]
pub(crate) struct CompletionWords {
    host: SessionHost,
    /// Whether streams can store words.
    able: bool,
    /// By word: the id of the stream that stores it last, and the value.
    writers: HashMap<u32, (u64, u64)>,
}

impl CompletionWords {
    /// Creates the state without any stores. `able` is whether the GPU can store words.
    pub(crate) fn new(host: SessionHost, able: bool) -> Self {
        Self { host, able, writers: HashMap::new() }
    }

    /// Returns whether the GPU can store words, as far as is known.
    pub(crate) const fn is_able(&self) -> bool {
        self.able
    }

    /// Returns whether another stream may still store a smaller value.
    pub(crate) fn conflicts(&self, stream_id: u64, mark: &Mark) -> bool {
        self.writers
            .get(&mark.word)
            .is_some_and(|&(writer, value)| writer != stream_id && !self.host.has_reached(mark.word, value))
    }

    /// Makes a stream store a mark, which must not conflict. Returns false if the driver does not register
    /// the words or its streams cannot store them.
    pub(crate) fn write(
        &mut self,
        context: &Arc<DriverContext>,
        memory: &mut HostMemory,
        stream_id: u64,
        stream: &DriverStream,
        mark: &Mark,
    ) -> Result<bool, DriverError> {
        let (grant, first) = self.host.words();
        let offset = first + u64::from(mark.word) * area::WORD_BYTES + area::WORD_VALUE;
        let Some(words) = memory.registered(context, grant)? else {
            self.able = false;
            return Ok(false);
        };
        let Some(place) = words.device_word(offset) else { return Ok(false) };
        let Some(written) = stream.write(place?, mark.value) else {
            self.able = false;
            return Ok(false);
        };
        written?;
        self.writers.insert(mark.word, (stream_id, mark.value));
        Ok(true)
    }
}
