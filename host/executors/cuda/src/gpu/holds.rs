//! Holds: streams that wait for the guest. A stream waits for the word of shared memory in which the guest
//! stores the number of the newest hold that it has released. So a release needs no thread of this process,
//! all of which may be in calls of the driver that wait for a held stream.
//!
//! Where the driver does not register the guest's memory, the stream waits for a word of pinned memory, which
//! the session's thread stores when it reads the release.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use vgpu_abi::CUresult;
use vgpu_device::SessionHost;
use vgpu_wire::area;

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::host::Pinned;
use crate::driver::stream::DriverStream;
use crate::gpu::health::Health;
use crate::gpu::host_memory::HostMemory;

/// Pause between two stores that release all holds.
const PAUSE: Duration = Duration::from_millis(1);

/// The holds of a session.
#[derive(Debug)]
pub(crate) struct Holds {
    host: SessionHost,
    /// Word of pinned memory, if the driver does not register that of the guest.
    own: Option<Pinned>,
    /// Numbers of the holds that were not released.
    held: HashSet<u32>,
    /// Each wait that is not over has a copy.
    waiting: Arc<()>,
}

impl Holds {
    /// Creates the state without holds.
    pub(crate) fn new(host: SessionHost) -> Self {
        Self { host, own: None, held: HashSet::new(), waiting: Arc::default() }
    }

    /// Returns whether any stream waits for the guest.
    pub(crate) fn any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Makes later work of a stream wait for the release. The caller drops the returned value when the wait
    /// is over.
    pub(crate) fn hold(
        &mut self,
        context: &Arc<DriverContext>,
        memory: &mut HostMemory,
        stream: &DriverStream,
        hold: u32,
    ) -> Result<Arc<()>, DriverError> {
        let lacks = DriverError { call: "cuStreamWaitValue32_v2", code: CUresult::NOT_SUPPORTED };
        let (grant, offset) = self.host.release_word();
        if let Some(shared) = memory.registered(context, grant)? {
            let word = shared.device_word(offset).expect("a word of the area")?;
            stream.wait_for(word, hold).unwrap_or(Err(lacks))?;
        } else {
            let own = if let Some(own) = self.own.take() {
                own
            } else {
                let own = Pinned::allocate(context, size_of::<u32>())?;
                own.store_word(0);
                own
            };
            let own = self.own.insert(own);
            stream.wait_for(own.device_word()?, hold).unwrap_or(Err(lacks))?;
        }
        self.held.insert(hold);
        Ok(Arc::clone(&self.waiting))
    }

    /// Records that the guest has released a hold. A guest that only sends the message has stored no number.
    /// A hold that the driver refused is not in the list. Returns whether it was.
    pub(crate) fn release(&mut self, hold: u32) -> bool {
        let held = self.held.remove(&hold);
        if held {
            self.host.release_holds(hold);
            if let Some(own) = &self.own {
                own.store_word(hold);
            }
        }
        held
    }

    /// Releases all holds because the session ends. Returns when no stream waits any more, or the context is
    /// lost. The guest can overwrite the shared word, so it is stored until then.
    pub(crate) fn release_all(&mut self, health: &Health) {
        self.held.clear();
        if let Some(own) = &self.own {
            own.store_word(area::HOLD_MAX);
        }
        while Arc::strong_count(&self.waiting) > 1 && health.dead().is_none() {
            self.host.release_all_holds();
            thread::sleep(PAUSE);
        }
    }
}
