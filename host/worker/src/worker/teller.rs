//! What a worker tells the device's process: records by the socket, and its gauges by the board. It is told
//! itself by the session's host when memory changes hands.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::net::SendFlags;
use vgpu_device::{Home, SessionHost, SharedRange};

use crate::shared::board::Board;
use crate::shared::packet;
use crate::shared::record::Record;
use crate::worker::mapped::Reservation;

/// The device's process is told of time that the executor has worked when it is this much more. A packet
/// takes each process a few microseconds, so that they spend less than a thousandth of the time on it.
const WORKED_STEP: Duration = Duration::from_millis(10);

/// Tells.
#[derive(Debug)]
pub(crate) struct Teller {
    socket: OwnedFd,
    board: Arc<Board>,
    reservation: Arc<Reservation>,
    host: OnceLock<SessionHost>,
    /// Bytes of device memory, as the device's process was told last.
    allocated: AtomicU64,
    /// Nanoseconds of work, as it was told last.
    worked: AtomicU64,
}

impl Teller {
    pub(crate) const fn new(socket: OwnedFd, board: Arc<Board>, reservation: Arc<Reservation>) -> Self {
        let (allocated, worked) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { socket, board, reservation, host: OnceLock::new(), allocated, worked }
    }

    /// Whose gauges are shown.
    pub(crate) fn shows(&self, host: &SessionHost) {
        // There is one session.
        let _ = self.host.set(host.clone());
    }

    /// Says something.
    pub(crate) fn tell(&self, record: &Record) {
        // It fails when nobody listens any more; then the worker is told to stop, or killed.
        let _ = packet::send(&self.socket, &record.encode(), &[], SendFlags::empty());
    }

    /// Shows what the session holds, and says so if that is another amount of device memory. `answered`:
    /// number of a message that is answered next, after what it took or gave back is in the gauges.
    pub(crate) fn show(&self, answered: Option<u64>) {
        let Some(host) = self.host.get() else { return };
        self.board.store_gauges(host.gauges(), host.charges().bytes());
        if let Some(number) = answered {
            self.board.set_settled(number);
        }
        let allocated = host.gauges().allocated.load(Ordering::Relaxed);
        if self.allocated.swap(allocated, Ordering::Relaxed) != allocated {
            self.tell(&Record::Memory);
        }
    }
}

impl Home for Teller {
    fn memory_changed(&self, answered: Option<u64>) {
        self.show(answered);
    }

    fn worked(&self) {
        let Some(host) = self.host.get() else { return };
        let busy = host.gauges().busy();
        self.board.raise_busy(busy);
        let now = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        let step = WORKED_STEP.as_nanos() as u64;
        let due = |told: u64| (now >= told.saturating_add(step)).then_some(now);
        // Of several threads one tells.
        if self.worked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok() {
            self.tell(&Record::Worked);
        }
    }

    fn let_go(&self, number: u64, range: SharedRange) {
        if let SharedRange::Window { offset, bytes } = range
            && let Err(error) = self.reservation.unmap(offset, bytes)
        {
            // It stays the session's until this process ends.
            tracing::error!("unmap window memory: {error}");
            return;
        }
        self.tell(&Record::Retired(number));
    }
}
