//! Reports of a worker to the device's process: records in the socket, and gauges on the status page. The
//! session's host calls it when the amount of memory changes.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::net::SendFlags;
use vgpu_device::{DeviceProcess, SessionHost, SharedRange, lock_tracked};

use crate::shared::packet;
use crate::shared::report::WorkerReport;
use crate::shared::status_page::StatusPage;
use crate::worker::control::ControlChannel;
use crate::worker::window_mapping::Reservation;

/// Growth of the working time after which it is reported to the device's process. A packet takes each process
/// a few microseconds, less than a thousandth of this time.
const WORKED_STEP: Duration = Duration::from_millis(10);

/// Reports to the device's process.
#[derive(Debug)]
pub(crate) struct Reporter {
    socket: OwnedFd,
    page: Arc<StatusPage>,
    reservation: Arc<Reservation>,
    control: Arc<ControlChannel>,
    host: OnceLock<SessionHost>,
    /// Number of bytes of device memory that were reported last. Threads that publish gauges take turns, so
    /// that no older gauges replace newer ones.
    allocated: Mutex<u64>,
    /// Nanoseconds of work that were reported last.
    worked: AtomicU64,
    /// Number of requests for device memory. Threads that send one take turns, because an answer does not
    /// name its request.
    requests: Mutex<u64>,
}

impl Reporter {
    pub(crate) const fn new(
        socket: OwnedFd,
        page: Arc<StatusPage>,
        reservation: Arc<Reservation>,
        control: Arc<ControlChannel>,
    ) -> Self {
        let (allocated, worked, requests) = (Mutex::new(0), AtomicU64::new(0), Mutex::new(0));
        Self { socket, page, reservation, control, host: OnceLock::new(), allocated, worked, requests }
    }

    /// Sets the session whose gauges are published.
    pub(crate) fn set_host(&self, host: &SessionHost) {
        // There is only one session.
        let _ = self.host.set(host.clone());
    }

    /// Sends a report to the device's process.
    pub(crate) fn report(&self, record: &WorkerReport) {
        // It fails if nobody receives any more. The worker is then told to stop, or killed.
        let _ = packet::send(&self.socket, &record.encode(), &[], SendFlags::empty());
    }

    /// Publishes the session's gauges, and reports a changed amount of device memory. `answered` is the
    /// number of the message that is answered next. The gauges include the memory that it allocated or freed.
    pub(crate) fn publish(&self, answered: Option<u64>) {
        let Some(host) = self.host.get() else { return };
        let mut reported = self.allocated.lock().unwrap_or_else(PoisonError::into_inner);
        self.page.store_gauges(host.gauges(), host.charges().bytes());
        if let Some(number) = answered {
            self.page.set_settled(number);
        }
        let allocated = self.page.allocated();
        let changed = std::mem::replace(&mut *reported, allocated) != allocated;
        drop(reported);
        if changed {
            self.report(&WorkerReport::Memory);
        }
    }
}

impl DeviceProcess for Reporter {
    fn memory_changed(&self, answered: Option<u64>) {
        self.publish(answered);
    }

    fn reserve(&self, bytes: u64, take: &mut dyn FnMut()) -> bool {
        let mut requests = lock_tracked(&self.requests);
        self.report(&WorkerReport::Reserve(bytes));
        if !self.control.wait_reserved() {
            return false;
        }
        *requests += 1;
        take();
        // The device's process counts the memory for the request until the gauges include it.
        self.publish(None);
        self.page.set_reserved(*requests);
        // Reservations of other sessions may wait for that.
        self.report(&WorkerReport::Memory);
        true
    }

    fn worked(&self) {
        let Some(host) = self.host.get() else { return };
        let busy = host.gauges().busy();
        self.page.raise_busy(busy);
        let now = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        let step = WORKED_STEP.as_nanos() as u64;
        let due = |told: u64| (now >= told.saturating_add(step)).then_some(now);
        // Only one of several threads reports.
        if self.worked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok() {
            self.report(&WorkerReport::Worked);
        }
    }

    fn settled(&self, number: u64) {
        self.page.set_complete(number);
        self.report(&WorkerReport::Complete);
    }

    fn release(&self, number: u64, range: SharedRange) {
        if let SharedRange::Window { offset, bytes } = range
            && let Err(error) = self.reservation.unmap(offset, bytes)
        {
            // The memory stays mapped until this process ends.
            tracing::error!("unmap window memory: {error}");
            return;
        }
        self.report(&WorkerReport::Retired(number));
    }
}
