//! A session of which one half is in a worker process: how the device's process describes the shared memory,
//! so that another process can map it, and the [`SessionHost`] that a worker process makes from that. A
//! worker stores the replies, marks and late errors of its session itself, because the return area is the
//! session's own memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vgpu_wire::area;

use crate::charges::charge::{Charges, DeviceCharges};
use crate::charges::limits::Limits;
use crate::memory::pages::{MappedRun, PageSegment};
use crate::memory::window::Window;
use crate::session::host::{GuestProcess, SessionHost};
use crate::session::register_page::RegisterPage;
use crate::session::remote::{DeviceProcess, FileRange, SharedRange};

/// A session as its worker process knows it.
#[derive(Debug)]
pub struct SessionInWorker {
    /// The session's number.
    pub session: u32,
    /// Index of the session's channel.
    pub channel: u32,
    /// Process id of the guest, as it stated it.
    pub process: u32,
    /// Whether the guest's threads run on this kernel, so that a futex wakes them.
    pub wakes: bool,
    /// Window, of which only the session's own parts can be accessed.
    pub window: Window,
    /// Return area, if that is in guest pages.
    pub returns: Option<Window>,
    /// Current time on the device's clock.
    pub now: Duration,
    /// Limits of the session in this process.
    pub limits: Limits,
}

/// The functions here are for the device's process.
impl SessionHost {
    /// Returns the file of the window.
    #[must_use]
    pub fn window_file(&self) -> FileRange<'_> {
        FileRange::new(self.window())
    }

    /// Returns the offset in the window of the channel's area, which is [`area::AREA_BYTES`] long.
    #[must_use]
    pub fn area_offset(&self) -> u64 {
        self.area()
    }

    /// Returns the file of the return area, if that is in guest pages.
    #[must_use]
    pub fn return_file(&self) -> Option<FileRange<'_>> {
        self.return_run().map(|run| FileRange::new(&run.memory))
    }

    /// Returns the sticky error that the guest reads, if there is one. The guest can write to this memory, so
    /// the value may be used only to answer this guest.
    #[must_use]
    pub fn shown_error(&self) -> Option<u32> {
        let returns = self.returns();
        let flags = returns.u32_at(area::RETURN_ERROR_FLAGS).load(Ordering::Acquire);
        (flags & area::ERROR_STICKY != 0).then(|| returns.u32_at(area::RETURN_ERROR).load(Ordering::Relaxed))
    }

    /// Returns the memory that the session owns besides its channel's area.
    #[must_use]
    pub fn grants(&self) -> Vec<SharedRange> {
        let window = self.memory().window_ranges().into_iter();
        let window = window.map(|(offset, bytes)| SharedRange::Window { offset, bytes });
        let pages = self.memory().segment_numbers().into_iter().map(|segment| SharedRange::Pages { segment });
        window.chain(pages).collect()
    }

    /// Calls `each` with every run of a segment of guest pages, in the order of their offsets.
    pub fn each_run(&self, segment: u32, mut each: impl FnMut(FileRange<'_>)) {
        for run in self.memory().runs(segment) {
            each(FileRange::new(&run.memory));
        }
    }
}

/// The functions here are for a worker process.
impl SessionHost {
    /// Makes the host of a session in its worker process.
    pub fn in_worker(known: SessionInWorker, home: Arc<dyn DeviceProcess>) -> Self {
        let now = Instant::now();
        Self::new(
            Arc::new(known.window),
            None,
            known.channel,
            now.checked_sub(known.now).unwrap_or(now),
            Arc::new(RegisterPage::in_worker(home)),
            Charges::new(known.session, known.limits, Arc::new(DeviceCharges::default())),
            GuestProcess {
                process: known.process,
                wakes: known.wakes,
                pages: None,
                returns: known.returns.map(|memory| Arc::new(MappedRun::in_worker(memory))),
            },
        )
    }

    /// Grants the session a range of the window, which is mapped.
    pub fn grant_window(&self, offset: u64, bytes: u64) {
        self.memory().lend(offset, bytes);
    }

    /// Grants the session a segment of guest pages, which consists of these runs in order.
    pub fn grant_pages(&self, segment: u32, runs: Vec<Window>) {
        self.memory().adopt_pages(segment, PageSegment::in_worker(runs));
    }

    /// Stores for the guest how many messages are carried out.
    pub fn store_done(&self, number: u64) {
        self.returns().u64_at(area::RETURN_DONE).store(number, Ordering::Release);
    }

    /// Wakes the guest's threads if any sleep. They may wait for the value that [`SessionHost::store_done`]
    /// stored.
    pub fn wake_guest(&self) {
        self.wake();
    }
}
