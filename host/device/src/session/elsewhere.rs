//! A session of which one half is in a worker process: what the device's process says of the shared memory,
//! so that another can map it, and the [`SessionHost`] that a worker process makes of that. Replies, marks
//! and late errors of a worker's session are stored by the worker itself: the return area is the session's
//! own memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vgpu_wire::area;

use crate::charges::charge::{Charges, DeviceCharges};
use crate::charges::limits::Limits;
use crate::memory::pages::{Run, Segment};
use crate::memory::window::Window;
use crate::session::host::{Guest, SessionHost};
use crate::session::published::Published;
use crate::session::remote::{Home, Part, SharedRange};

/// What a worker process knows of its session.
#[derive(Debug)]
pub struct InWorker {
    /// The session's number.
    pub session: u32,
    /// The index of its channel.
    pub channel: u32,
    /// The guest's process id, as it said.
    pub process: u32,
    /// A futex reaches the guest's sleepers: they are processes of this kernel.
    pub wakes: bool,
    /// The window, of which only the session's own parts can be touched.
    pub window: Window,
    /// The return area, if it is in guest pages.
    pub returns: Option<Window>,
    /// What the device's clock says now.
    pub now: Duration,
    /// The most that the session may make this process hold.
    pub limits: Limits,
}

/// The device's process.
impl SessionHost {
    /// The window's file.
    #[must_use]
    pub fn window_part(&self) -> Part<'_> {
        Part::of(self.window())
    }

    /// Offset in the window of the channel's area, which is [`area::AREA_BYTES`] long.
    #[must_use]
    pub fn area_offset(&self) -> u64 {
        self.area()
    }

    /// The return area's file, if it is in guest pages.
    #[must_use]
    pub fn return_part(&self) -> Option<Part<'_>> {
        self.return_run().map(|run| Part::of(&run.memory))
    }

    /// The sticky error that the guest reads, if there is one. It lies in memory that the guest can write to:
    /// good for what this guest is told, and for nothing else.
    #[must_use]
    pub fn shown_error(&self) -> Option<u32> {
        let returns = self.returns();
        let flags = returns.u32_at(area::RETURN_ERROR_FLAGS).load(Ordering::Acquire);
        (flags & area::ERROR_STICKY != 0).then(|| returns.u32_at(area::RETURN_ERROR).load(Ordering::Relaxed))
    }

    /// What the session owns beside its channel's area.
    #[must_use]
    pub fn grants(&self) -> Vec<SharedRange> {
        let window = self.memory().window_ranges().into_iter();
        let window = window.map(|(offset, bytes)| SharedRange::Window { offset, bytes });
        let pages = self.memory().segment_numbers().into_iter().map(|segment| SharedRange::Pages { segment });
        window.chain(pages).collect()
    }

    /// Calls `each` with every run of a segment of guest pages, in the order of their offsets.
    pub fn each_run(&self, segment: u32, mut each: impl FnMut(Part<'_>)) {
        for run in self.memory().runs(segment) {
            each(Part::of(&run.memory));
        }
    }
}

/// A worker process.
impl SessionHost {
    /// The host of a session in its worker process.
    pub fn in_worker(known: InWorker, home: Arc<dyn Home>) -> Self {
        let now = Instant::now();
        Self::new(
            Arc::new(known.window),
            None,
            known.channel,
            now.checked_sub(known.now).unwrap_or(now),
            Arc::new(Published::elsewhere(home)),
            Charges::new(known.session, known.limits, Arc::new(DeviceCharges::default())),
            Guest {
                process: known.process,
                wakes: known.wakes,
                pages: None,
                returns: known.returns.map(|memory| Arc::new(Run::elsewhere(memory))),
            },
        )
    }

    /// A range of the window is the session's, and mapped.
    pub fn grant_window(&self, offset: u64, bytes: u64) {
        self.memory().lend(offset, bytes);
    }

    /// Guest pages are the session's, as a segment: its runs, one behind the other.
    pub fn grant_pages(&self, segment: u32, runs: Vec<Window>) {
        self.memory().adopt_pages(segment, Segment::elsewhere(runs));
    }

    /// Tells the guest how many messages are carried out.
    pub fn store_done(&self, number: u64) {
        self.returns().u64_at(area::RETURN_DONE).store(number, Ordering::Release);
    }

    /// Wakes the guest's threads if any sleep, which may wait for what [`SessionHost::store_done`] stored.
    pub fn wake_guest(&self) {
        self.wake();
    }
}
