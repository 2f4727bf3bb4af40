//! Completion words that the GPU stores itself, in the order of a stream, so that the guest sees them without
//! the help of a processor of the host's.
//!
//! A word's value never decreases, and a GPU stores what it is told. So it stores only words that no other
//! stream may still store; marks of a word that one may are stored by the host when all work is complete.

use std::collections::HashMap;
use std::sync::Arc;

use vgpu_device::SessionHost;
use vgpu_wire::{Mark, area};

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::stream::Stream;
use crate::gpu::host_memory::HostMemory;

/// The words of a session.
#[derive(Debug)]
pub(crate) struct Words {
    host: SessionHost,
    /// Whether streams can store words.
    able: bool,
    /// The lane that was told last to store a word, and the value.
    writers: HashMap<u32, (u64, u64)>,
}

impl Words {
    /// No word has been stored. `able`: the GPU can.
    pub(crate) fn new(host: SessionHost, able: bool) -> Self {
        Self { host, able, writers: HashMap::new() }
    }

    /// Whether the GPU stores words, as far as is known.
    pub(crate) const fn is_able(&self) -> bool {
        self.able
    }

    /// Whether a stream of another lane may still store a smaller value.
    pub(crate) fn conflicts(&self, lane: u64, mark: &Mark) -> bool {
        self.writers
            .get(&mark.word)
            .is_some_and(|&(writer, value)| writer != lane && !self.host.has_reached(mark.word, value))
    }

    /// Has the stream of a lane store a mark, if the driver has the words registered; whether it does. The
    /// mark does not conflict.
    pub(crate) fn write(
        &mut self,
        context: &Arc<Context>,
        memory: &mut HostMemory,
        lane: u64,
        stream: &Stream,
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
        self.writers.insert(mark.word, (lane, mark.value));
        Ok(true)
    }
}
