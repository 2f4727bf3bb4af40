//! Holds: streams that wait for the guest. A stream waits for the word of shared memory in which the guest
//! stores the number of the newest hold that it has released. So a release needs no thread of this process,
//! all of which may be in calls of the driver that wait for a held stream.
//!
//! Where the driver does not register the guest's memory, the stream waits for a word of pinned memory, which
//! the session's thread stores when it reads the release.
//!
//! Where the driver's streams do not wait for words, a host function of the stream waits for the release. A
//! driver may call host functions one after the other, whatever their streams. So each such stream first
//! waits until the hold before has been released: the function that the driver is in is then always the one
//! whose release does not depend on another function of the driver, because guests release holds in the
//! order of their numbers. Meanwhile the driver may delay other host functions: copies through staging
//! buffers wait until the guest's function returns, which by CUDA's rules depends on no work that is not
//! ordered before it. A guest that breaks this rule waits until its session ends.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread;
use std::time::Duration;

use vgpu_abi::CUresult;
use vgpu_device::{SessionHost, lock_tracked};
use vgpu_wire::area;

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::host::Pinned;
use crate::driver::stream::DriverStream;
use crate::gpu::completion::Retained;
use crate::gpu::fence::Fence;
use crate::gpu::health::Health;
use crate::gpu::host_memory::HostMemory;

/// Pause between two stores that release all holds.
const PAUSE: Duration = Duration::from_millis(1);
/// Interval at which a host function polls the word of released holds, whose message may not have been read.
const LOOK: Duration = Duration::from_millis(1);

/// The holds of a session.
#[derive(Debug)]
pub(crate) struct Holds {
    health: Arc<Health>,
    /// Whether the driver's streams wait for words.
    by_words: bool,
    /// Word of pinned memory, if the driver does not register that of the guest.
    own: Option<Pinned>,
    /// Numbers of the holds that were not released.
    held: HashSet<u32>,
    /// Each wait that is not over has a copy.
    waiting: Arc<()>,
    /// Number of the newest released hold, for which host functions wait.
    releases: Arc<Releases>,
    /// Fence behind the newest hold for which a host function waits.
    newest: Option<Arc<Fence>>,
}

/// Tells any thread whether a stream waits for the guest.
#[derive(Clone, Debug)]
pub(crate) struct HoldsOpen(Weak<()>);

impl HoldsOpen {
    /// Returns whether a stream waits for the guest, or its wait has ended a moment ago.
    pub(crate) fn any(&self) -> bool {
        // One is that of the holds themselves.
        self.0.strong_count() > 1
    }
}

/// The number of the newest hold that was released, as far as this process has been told.
#[derive(Debug, Default)]
struct Releases {
    newest: Mutex<u32>,
    news: Condvar,
}

impl Releases {
    fn store(&self, hold: u32) {
        let mut newest = lock_tracked(&self.newest);
        *newest = hold.max(*newest);
        drop(newest);
        self.news.notify_all();
    }

    /// Waits until a hold is released, the session ends, or its context is lost. The guest's own store wakes
    /// nobody, and its message may not be read before another one, so the word is polled.
    fn wait(&self, hold: u32, health: &Health) {
        let host = health.host();
        let mut newest = lock_tracked(&self.newest);
        while *newest < hold && !host.has_released(hold) && !host.stopping() && health.dead().is_none() {
            newest = newest.wait_timeout(&self.news, LOOK);
        }
    }
}

impl Holds {
    /// Creates the state without holds. `by_words` is whether the driver's streams wait for words.
    pub(crate) fn new(health: &Arc<Health>, by_words: bool) -> Self {
        Self {
            health: Arc::clone(health),
            by_words,
            own: None,
            held: HashSet::new(),
            waiting: Arc::default(),
            releases: Arc::default(),
            newest: None,
        }
    }

    fn host(&self) -> &SessionHost {
        self.health.host()
    }

    /// Returns what tells other threads whether a stream waits for the guest, if the driver may wait for such
    /// a stream before it unmaps memory. One whose streams wait for words does not (580.159.04).
    pub(crate) fn unmapping_waits(&self) -> Option<HoldsOpen> {
        (!self.by_words).then(|| HoldsOpen(Arc::downgrade(&self.waiting)))
    }

    /// Returns whether any stream waits for the guest.
    pub(crate) fn any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the fence for which a stream has to wait before it is held, unless the fence is known to be
    /// complete.
    pub(crate) fn before(&self) -> Option<Arc<Fence>> {
        self.newest.as_ref().filter(|fence| !fence.is_known_complete()).cloned()
    }

    /// Records the fence behind the newest hold.
    pub(crate) fn follow(&mut self, fence: Arc<Fence>) {
        if !self.by_words {
            self.newest = Some(fence);
        }
    }

    /// Makes later work of a stream wait for the release. The caller drops the returned value when the wait
    /// is over.
    pub(crate) fn hold(
        &mut self,
        context: &Arc<DriverContext>,
        memory: &mut HostMemory,
        stream: &DriverStream,
        hold: u32,
    ) -> Result<Retained, DriverError> {
        let waiting = Arc::clone(&self.waiting);
        let waits: Retained = if self.by_words {
            self.wait_for_word(context, memory, stream, hold)?;
            waiting
        } else {
            let (releases, health) = (Arc::clone(&self.releases), Arc::clone(&self.health));
            Arc::new((stream.call(move || releases.wait(hold, &health))?, waiting))
        };
        self.held.insert(hold);
        Ok(waits)
    }

    /// Makes later work of a stream wait for a word that is at least `hold`.
    fn wait_for_word(
        &mut self,
        context: &Arc<DriverContext>,
        memory: &mut HostMemory,
        stream: &DriverStream,
        hold: u32,
    ) -> Result<(), DriverError> {
        let lacks = DriverError { call: "cuStreamWaitValue32_v2", code: CUresult::NOT_SUPPORTED };
        let (grant, offset) = self.host().release_word();
        if let Some(shared) = memory.registered(context, grant)? {
            let word = shared.device_word(offset).expect("a word of the area")?;
            return stream.wait_for(word, hold).unwrap_or(Err(lacks));
        }
        let own = if let Some(own) = self.own.take() {
            own
        } else {
            let own = Pinned::allocate(context, size_of::<u32>())?;
            own.store_word(0);
            own
        };
        let own = self.own.insert(own);
        stream.wait_for(own.device_word()?, hold).unwrap_or(Err(lacks))
    }

    /// Records that the guest has released a hold, and stores its number, because a guest may only have sent
    /// the message. Returns false, and does nothing, for a hold that the driver refused.
    pub(crate) fn release(&mut self, hold: u32) -> bool {
        let held = self.held.remove(&hold);
        if held {
            self.host().release_holds(hold);
            self.releases.store(hold);
            if let Some(own) = &self.own {
                own.store_word(hold);
            }
        }
        held
    }

    /// Releases all holds because the session ends. Returns when no stream waits any more, or the context is
    /// lost. The guest can overwrite the shared word, so it is stored until then.
    pub(crate) fn release_all(&mut self) {
        self.held.clear();
        self.newest = None;
        self.releases.store(area::HOLD_MAX);
        if let Some(own) = &self.own {
            own.store_word(area::HOLD_MAX);
        }
        while Arc::strong_count(&self.waiting) > 1 && self.health.dead().is_none() {
            self.host().release_all_holds();
            thread::sleep(PAUSE);
        }
    }
}
