//! The figures of a device in its slot, which the node process and `status` read. A thread sums up what
//! sessions count anyway, a few times a second, so that counting costs messages nothing.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use vgpu_device::{DeviceFigures, lock, threads};
use vgpu_share::{Figure, GpuUuid, Slot};

/// Interval at which the figures are stored.
const PULSE: Duration = Duration::from_millis(200);
/// Time by which an executor may tell late of work that goes on.
const LATE_MOST: Duration = Duration::from_millis(120);

/// Figures of the device that is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServedFigures {
    /// What the device counts.
    pub(crate) device: DeviceFigures,
    /// Whether a VM is connected to it.
    pub(crate) connected: bool,
}

/// Returns the figures at this moment. Any thread may call it.
pub(crate) type ReadFigures = Arc<dyn Fn() -> ServedFigures + Send + Sync>;

/// Counts the GPU's time that a VM has had while it was alone, when the node process charges nothing.
#[derive(Default)]
pub(crate) struct UncontendedTime {
    read: OnceLock<ReadFigures>,
    count: Mutex<AloneCount>,
}

impl fmt::Debug for UncontendedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UncontendedTime").field("count", &self.count).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct AloneCount {
    /// Time at which the sessions' time was read, and what it was.
    since: Instant,
    busy: Duration,
    /// Time that passed and was not counted, at most [`LATE_MOST`].
    unused: Duration,
    /// Whether the VM has been alone since then.
    alone: bool,
    sum: Duration,
}

impl Default for AloneCount {
    fn default() -> Self {
        let zero = Duration::ZERO;
        // Without a node process a VM counts as alone.
        Self { since: Instant::now(), busy: zero, unused: zero, alone: true, sum: zero }
    }
}

impl AloneCount {
    /// Counts the time until `now`. Sessions that work at the same time do not make the time pass faster.
    fn count(&mut self, busy: Duration, now: Instant) {
        let passed = self.unused + now.saturating_duration_since(self.since);
        let more = busy.saturating_sub(self.busy).min(passed);
        if self.alone {
            self.sum += more;
        }
        (self.since, self.busy, self.unused) = (now, busy, passed.saturating_sub(more).min(LATE_MOST));
    }
}

impl UncontendedTime {
    /// Records whether the VM is alone from now on.
    pub(crate) fn set_alone(&self, alone: bool) {
        let mut count = lock(&self.count);
        if let Some(read) = self.read.get().filter(|_| count.alone != alone) {
            count.count(read().device.done.busy, Instant::now());
        }
        count.alone = alone;
    }

    /// Returns the time so far.
    pub(crate) fn sum(&self) -> Duration {
        lock(&self.count).sum
    }

    /// Continues with the time of the program that this process was before.
    pub(crate) fn restore(&self, sum: Duration) {
        lock(&self.count).sum = sum;
    }

    /// Returns the figures at this moment, and the time so far.
    fn pulse(&self, read: &ReadFigures) -> (ServedFigures, Duration) {
        let mut count = lock(&self.count);
        let figures = read();
        count.count(figures.device.done.busy, Instant::now());
        (figures, count.sum)
    }
}

/// The thread that stores figures, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct FigureThread {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FigureThread {
    /// Starts to pass the figures that `read` returns to `store`, with the time that the VM has had alone.
    pub(crate) fn start(
        alone: &Arc<UncontendedTime>,
        read: ReadFigures,
        store: impl Fn(&ServedFigures, Duration) + Send + 'static,
    ) -> io::Result<Self> {
        // A process has one device with a share.
        let _ = alone.read.set(Arc::clone(&read));
        let (end, ended) = channel();
        let alone = Arc::clone(alone);
        let beat = move || {
            loop {
                let (figures, time) = alone.pulse(&read);
                store(&figures, time);
                if ended.recv_timeout(PULSE) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        Ok(Self { end: Some(end), thread: Some(threads::spawn("figures", beat)?) })
    }
}

impl Drop for FigureThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the time since the first call in this process, in nanoseconds.
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    nanoseconds(START.get_or_init(Instant::now).elapsed())
}

impl ServedFigures {
    /// Stores the figures in the slot. `alone` is the GPU's time that the VM has had alone.
    pub(crate) fn store(&self, slot: &Slot, alone: Duration) {
        slot.set_device_uuid(GpuUuid(self.device.uuid));
        let DeviceFigures { used, contexts, sessions, done, lost, .. } = self.device;
        for (figure, value) in [
            (Figure::Used, used),
            (Figure::Contexts, contexts),
            (Figure::Sessions, sessions),
            (Figure::Connected, self.connected.into()),
            (Figure::GpuTime, nanoseconds(alone).saturating_add(slot.seen().charged_ns())),
            (Figure::Launches, done.launches),
            (Figure::CopiedIn, done.copied_in),
            (Figure::CopiedOut, done.copied_out),
            (Figure::OutOfMemory, done.out_of_memory),
            (Figure::LostViolation, lost.violation),
            (Figure::LostWorker, lost.worker),
            (Figure::LostOperator, lost.operator),
            (Figure::Stored, clock()),
        ] {
            slot.figure(figure).store(value, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn time_alone_is_neither_lost_nor_more_than_what_passes() {
        let mut count = AloneCount::default();
        let start = count.since;
        // One session that works all the time, whose executor tells of it in steps.
        count.count(100 * MS, start + 200 * MS);
        count.count(400 * MS, start + 400 * MS);
        assert_eq!(count.sum, 400 * MS);
        // Five of them.
        count.count(1400 * MS, start + 600 * MS);
        assert_eq!(count.sum, 600 * MS);
        // The node process charges this.
        count.alone = false;
        count.count(1500 * MS, start + 700 * MS);
        assert_eq!(count.sum, 600 * MS);
        // Idle time is not saved up.
        count.alone = true;
        count.count(1500 * MS, start + 10_000 * MS);
        count.count(2500 * MS, start + 10_100 * MS);
        assert_eq!(count.sum, 600 * MS + 100 * MS + LATE_MOST);
    }
}
