//! Streams that wait for the guest: a word of pinned memory for each hold, which the stream waits for and the
//! release sets. Only where streams can wait for words. In a worker process another thread than the session's
//! sets it, for that one may be in a call that waits for the stream (`vgpu_device::Releases`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use vgpu_abi::CUresult;
use vgpu_device::SessionHost;

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::host::Pinned;
use crate::driver::stream::Stream;

/// Holds at once, as many as a session may have.
const WORDS: usize = 4096;

/// The words, and which are free.
#[derive(Debug)]
struct Words {
    pinned: Pinned,
    free: Mutex<Vec<u32>>,
}

/// A word that a stream waits for. It is another's when this is dropped, which is when no stream waits for
/// it.
#[derive(Debug)]
pub(crate) struct Word {
    home: Arc<Words>,
    index: u32,
}

impl Word {
    /// Lets the stream go on.
    fn release(&self) {
        self.home.pinned.store(self.index as usize, 1);
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        self.home.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

/// The holds of a session.
#[derive(Debug)]
pub(crate) struct Holds {
    host: SessionHost,
    words: Option<Arc<Words>>,
    /// Words by hold, of holds that a stream waits for.
    held: HashMap<u32, Arc<Word>>,
}

impl Holds {
    /// No stream waits.
    pub(crate) fn new(host: SessionHost) -> Self {
        Self { host, words: None, held: HashMap::new() }
    }

    /// Whether any stream waits for the guest.
    pub(crate) fn any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Lets later work of a stream wait for the release. What is returned is kept until the stream is past
    /// it.
    pub(crate) fn hold(
        &mut self,
        context: &Arc<Context>,
        stream: &Stream,
        hold: u32,
    ) -> Result<Arc<Word>, DriverError> {
        let words = if let Some(words) = &self.words {
            Arc::clone(words)
        } else {
            let pinned = Pinned::allocate(context, 4 * WORDS)?;
            let free = Mutex::new((0..WORDS as u32).rev().collect());
            Arc::clone(self.words.insert(Arc::new(Words { pinned, free })))
        };
        let none = DriverError { call: "hold a stream", code: CUresult::OUT_OF_MEMORY };
        let index = words.free.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or(none)?;
        let word = Arc::new(Word { home: words, index });
        let pinned = &word.home.pinned;
        pinned.store(index as usize, 0);
        let place = pinned.device_word(index as usize).expect("a word of the buffer")?;
        let lacks = DriverError { call: "cuStreamWaitValue32_v2", code: CUresult::NOT_SUPPORTED };
        stream.wait_for(place, 1).unwrap_or(Err(lacks))?;
        self.held.insert(hold, Arc::clone(&word));
        // The session has a share of the word until the release is carried out.
        let waited = Arc::downgrade(&word);
        self.host.releases().when_told(hold, move || {
            if let Some(word) = waited.upgrade() {
                word.release();
            }
        });
        Ok(word)
    }

    /// Ends a hold. One that the driver refused has no word.
    pub(crate) fn release(&mut self, hold: u32) {
        let Some(word) = self.held.remove(&hold) else { return };
        // Before the word can be another's.
        self.host.releases().forget(hold);
        word.release();
    }

    /// Ends all holds: nothing may be held when the session ends.
    pub(crate) fn release_all(&mut self) {
        self.host.releases().forget_all();
        for word in self.held.values() {
            word.release();
        }
        self.held.clear();
    }
}
