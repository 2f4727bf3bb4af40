//! Holds: streams that wait for the guest. A stream waits for a word of pinned memory, which the release
//! sets. The driver must support waits for words.
//!
//! In a worker process another thread than the session's sets the word, because the session's thread may be
//! in a call that waits for the stream (`vgpu_device::Releases`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use vgpu_abi::CUresult;
use vgpu_device::SessionHost;

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::host::Pinned;
use crate::driver::stream::DriverStream;

/// Number of words, as many as a session may have holds.
const WORDS: usize = 4096;

/// The words of holds, and which of them are free.
#[derive(Debug)]
struct HoldWords {
    pinned: Pinned,
    free: Mutex<Vec<u32>>,
}

/// A word for which a stream waits. Dropping this after the wait frees the word.
#[derive(Debug)]
pub(crate) struct HoldWord {
    home: Arc<HoldWords>,
    index: u32,
}

impl HoldWord {
    /// Stores the word, which ends the wait.
    fn release(&self) {
        self.home.pinned.store(self.index as usize, 1);
    }
}

impl Drop for HoldWord {
    fn drop(&mut self) {
        self.home.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

/// The holds of a session.
#[derive(Debug)]
pub(crate) struct Holds {
    host: SessionHost,
    words: Option<Arc<HoldWords>>,
    /// Words for which streams wait, by the number of the hold.
    held: HashMap<u32, Arc<HoldWord>>,
}

impl Holds {
    /// Creates the state without holds.
    pub(crate) fn new(host: SessionHost) -> Self {
        Self { host, words: None, held: HashMap::new() }
    }

    /// Returns whether any stream waits for the guest.
    pub(crate) fn any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Makes later work of a stream wait for the release. The caller keeps the returned word until the wait
    /// is over.
    pub(crate) fn hold(
        &mut self,
        context: &Arc<DriverContext>,
        stream: &DriverStream,
        hold: u32,
    ) -> Result<Arc<HoldWord>, DriverError> {
        let words = if let Some(words) = &self.words {
            Arc::clone(words)
        } else {
            let pinned = Pinned::allocate(context, 4 * WORDS)?;
            let free = Mutex::new((0..WORDS as u32).rev().collect());
            Arc::clone(self.words.insert(Arc::new(HoldWords { pinned, free })))
        };
        let none = DriverError { call: "hold a stream", code: CUresult::OUT_OF_MEMORY };
        let index = words.free.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or(none)?;
        let word = Arc::new(HoldWord { home: words, index });
        let pinned = &word.home.pinned;
        pinned.store(index as usize, 0);
        let place = pinned.device_word(index as usize).expect("a word of the buffer")?;
        let lacks = DriverError { call: "cuStreamWaitValue32_v2", code: CUresult::NOT_SUPPORTED };
        stream.wait_for(place, 1).unwrap_or(Err(lacks))?;
        self.held.insert(hold, Arc::clone(&word));
        // The session keeps the word alive until the release is carried out.
        let waited = Arc::downgrade(&word);
        self.host.releases().on_release(hold, move || {
            if let Some(word) = waited.upgrade() {
                word.release();
            }
        });
        Ok(word)
    }

    /// Releases a hold. A hold that the driver refused has no word.
    pub(crate) fn release(&mut self, hold: u32) {
        let Some(word) = self.held.remove(&hold) else { return };
        // Done before the word can be reused.
        self.host.releases().forget(hold);
        word.release();
    }

    /// Releases all holds because the session ends.
    pub(crate) fn release_all(&mut self) {
        self.host.releases().forget_all();
        for word in self.held.values() {
            word.release();
        }
        self.held.clear();
    }
}
