//! The status page: shared memory with a word for each figure that one process shows the other at any time.
//! Each word has one writer, except for the two flags by which a sleeper is woken. A reader loads a word once
//! and checks the value.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::thread::futex;
use vgpu_device::{Gauges, Window};

/// Size of the status page in bytes.
pub(crate) const STATUS_PAGE_BYTES: u64 = 0x1000;

/// Offsets of the words. Words of different writers lie in different cache lines.
mod at {
    /// Number of bytes ever written to the ring, stored by the device's process.
    pub(super) const TAIL: u64 = 0x00;
    /// Number of session threads of the device's process that are awake.
    pub(super) const AWAKE: u64 = 0x08;
    /// Number of bytes of the ring that the worker has copied.
    pub(super) const HEAD: u64 = 0x40;
    /// Number of the newest message that the worker has carried out.
    pub(super) const EXECUTED: u64 = 0x48;
    /// Number of the newest message that the worker has answered or carried out. The gauges include its
    /// memory.
    pub(super) const SETTLED: u64 = 0x50;
    /// Number of the newest message up to which all work is complete on the GPU, as far as that was asked
    /// for.
    pub(super) const COMPLETE: u64 = 0x58;
    /// Number of the worker's requests for device memory whose memory the gauges include.
    pub(super) const RESERVED: u64 = 0x60;
    /// Futex word that is 1 while the worker sleeps until the tail moves.
    pub(super) const WORKER_SLEEPS: u64 = 0x80;
    /// Futex word that is 1 while the session's thread sleeps until the head or the executed number moves.
    pub(super) const DEVICE_SLEEPS: u64 = 0xc0;
    /// First of the worker's gauges, the number of allocated bytes of device memory.
    pub(super) const ALLOCATED: u64 = 0x100;
    pub(super) const CHARGED: u64 = 0x108;
    pub(super) const ALLOCATIONS: u64 = 0x110;
    pub(super) const STREAMS: u64 = 0x114;
    pub(super) const EVENTS: u64 = 0x118;
    pub(super) const MODULES: u64 = 0x11c;
    pub(super) const CONTEXTS: u64 = 0x120;
    /// Time that the worker's executor has worked, in nanoseconds. It never decreases.
    pub(super) const BUSY: u64 = 0x128;
    /// Number of messages that the worker answered that there is too little memory.
    pub(super) const OUT_OF_MEMORY: u64 = 0x130;
    /// The part of the allocated bytes that the guest has freed. Workers that do not know the word leave it 0.
    pub(super) const FREEING: u64 = 0x138;
}

/// Mapping of the status page in one of the two processes.
#[derive(Debug)]
pub(crate) struct StatusPage(Window);

/// The side that sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sleeper {
    /// The worker sleeps until its ring has a frame.
    Worker,
    /// The session's thread of the device's process sleeps until the worker has progressed.
    Device,
}

impl Sleeper {
    const fn offset(self) -> u64 {
        match self {
            Self::Worker => at::WORKER_SLEEPS,
            Self::Device => at::DEVICE_SLEEPS,
        }
    }
}

impl StatusPage {
    /// Interprets `memory`, which has [`STATUS_PAGE_BYTES`], as a status page.
    pub(crate) const fn new(memory: Window) -> Self {
        Self(memory)
    }

    /// Returns the file of the page.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    fn load(&self, word: u64) -> u64 {
        self.0.u64_at(word).load(Ordering::Acquire)
    }

    pub(crate) fn tail(&self) -> u64 {
        self.load(at::TAIL)
    }

    pub(crate) fn set_tail(&self, tail: u64) {
        self.0.u64_at(at::TAIL).store(tail, Ordering::Release);
    }

    pub(crate) fn awake(&self) -> usize {
        self.0.u32_at(at::AWAKE).load(Ordering::Relaxed) as usize
    }

    pub(crate) fn set_awake(&self, awake: usize) {
        self.0.u32_at(at::AWAKE).store(awake as u32, Ordering::Relaxed);
    }

    pub(crate) fn head(&self) -> u64 {
        self.load(at::HEAD)
    }

    pub(crate) fn set_head(&self, head: u64) {
        self.0.u64_at(at::HEAD).store(head, Ordering::Release);
    }

    pub(crate) fn executed(&self) -> u64 {
        self.load(at::EXECUTED)
    }

    pub(crate) fn set_executed(&self, number: u64) {
        self.set_settled(number);
        self.0.u64_at(at::EXECUTED).store(number, Ordering::Release);
    }

    /// Returns the number of the newest message whose memory the gauges include.
    pub(crate) fn settled(&self) -> u64 {
        self.load(at::SETTLED)
    }

    /// Stores the number of a message whose memory the gauges include. Several threads of the worker may do
    /// so.
    pub(crate) fn set_settled(&self, number: u64) {
        self.0.u64_at(at::SETTLED).fetch_max(number, Ordering::Release);
    }

    /// Returns the number of the message up to which the worker claims that all work is complete.
    pub(crate) fn complete(&self) -> u64 {
        self.load(at::COMPLETE)
    }

    /// Stores the number of a message up to which all work is complete. Several threads of the worker may do
    /// so.
    pub(crate) fn set_complete(&self, number: u64) {
        self.0.u64_at(at::COMPLETE).fetch_max(number, Ordering::Release);
    }

    /// Returns the number of requests for device memory whose memory the worker claims the gauges include.
    pub(crate) fn reserved(&self) -> u64 {
        self.load(at::RESERVED)
    }

    /// Stores the number of requests whose memory the gauges include. Requests take turns.
    pub(crate) fn set_reserved(&self, count: u64) {
        self.0.u64_at(at::RESERVED).store(count, Ordering::Release);
    }

    /// Returns the number of bytes of device memory that the worker claims to have allocated.
    pub(crate) fn allocated(&self) -> u64 {
        self.load(at::ALLOCATED)
    }

    /// Returns the number of allocated bytes that the worker claims the guest has freed.
    pub(crate) fn freeing(&self) -> u64 {
        self.load(at::FREEING)
    }

    /// Returns the number of bytes of host and device memory that the worker claims to have charged to the
    /// session.
    pub(crate) fn charged(&self) -> u64 {
        self.load(at::CHARGED)
    }

    /// Returns the number of messages that the worker claims to have answered that there is too little
    /// memory.
    pub(crate) fn out_of_memory(&self) -> u64 {
        self.load(at::OUT_OF_MEMORY)
    }

    /// Returns the time that the worker claims its executor has worked.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.load(at::BUSY))
    }

    /// Stores the time that the executor has worked. Several threads of the worker may do so; the largest
    /// value stays.
    pub(crate) fn raise_busy(&self, busy: Duration) {
        let busy = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        self.0.u64_at(at::BUSY).fetch_max(busy, Ordering::Release);
    }

    /// Stores the gauges of the session in the worker.
    pub(crate) fn store_gauges(&self, gauges: &Gauges, charged: u64) {
        let wide = |word, value| self.0.u64_at(word).store(value, Ordering::Release);
        wide(at::ALLOCATED, gauges.allocated.load(Ordering::Relaxed));
        wide(at::FREEING, gauges.freeing.load(Ordering::Relaxed));
        wide(at::CHARGED, charged);
        wide(at::OUT_OF_MEMORY, gauges.out_of_memory.load(Ordering::Relaxed));
        self.raise_busy(gauges.busy());
        for (word, gauge) in Self::narrow(gauges) {
            self.0.u32_at(word).store(gauge.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Copies the worker's gauges for the status report. It leaves out the time, which is compared with the
    /// clock first ([`StatusPage::busy`]).
    pub(crate) fn load_gauges(&self, gauges: &Gauges) {
        gauges.allocated.store(self.allocated(), Ordering::Relaxed);
        for (word, gauge) in Self::narrow(gauges) {
            gauge.store(self.0.u32_at(word).load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    const fn narrow(gauges: &Gauges) -> [(u64, &AtomicU32); 5] {
        [
            (at::ALLOCATIONS, &gauges.allocations),
            (at::STREAMS, &gauges.streams),
            (at::EVENTS, &gauges.events),
            (at::MODULES, &gauges.modules),
            (at::CONTEXTS, &gauges.contexts),
        ]
    }

    /// Sleeps until `news` returns true, at most for `limit`. [`StatusPage::wake`] ends the sleep. The flag
    /// is set before `news` is called for the last time, so whoever stores news later sees the flag.
    pub(crate) fn sleep(&self, sleeper: Sleeper, limit: Option<Duration>, mut news: impl FnMut() -> bool) {
        let end = limit.map(|limit| Instant::now() + limit);
        let flag = self.0.u32_at(sleeper.offset());
        loop {
            flag.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if news() {
                flag.store(0, Ordering::SeqCst);
                return;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                flag.store(0, Ordering::SeqCst);
                return;
            }
            let left = left.and_then(|left| futex::Timespec::try_from(left).ok());
            // Not a private futex, because the waker is another process or uses another mapping. A signal
            // also ends the wait, and the loop checks again.
            let _ = futex::wait(flag, futex::Flags::empty(), 1, left.as_ref());
            if news() {
                flag.store(0, Ordering::SeqCst);
                return;
            }
        }
    }

    /// Wakes the other side if it sleeps. The caller must have stored the value that the sleeper waits for.
    pub(crate) fn wake(&self, sleeper: Sleeper) {
        fence(Ordering::SeqCst);
        let flag = self.0.u32_at(sleeper.offset());
        if flag.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.wake_surely(sleeper);
    }

    /// Wakes the other side as [`StatusPage::wake`] does, whatever the flag says, because a worker can store
    /// it and would keep the session's thread asleep.
    pub(crate) fn wake_surely(&self, sleeper: Sleeper) {
        let flag = self.0.u32_at(sleeper.offset());
        flag.store(0, Ordering::SeqCst);
        // A wake of a mapped word does not fail.
        let _ = futex::wake(flag, futex::Flags::empty(), i32::MAX as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> StatusPage {
        StatusPage::new(Window::anonymous(STATUS_PAGE_BYTES).unwrap())
    }

    #[test]
    fn gauges_arrive() {
        let page = page();
        let (from, to) = (Gauges::default(), Gauges::default());
        from.allocated.store(1 << 40, Ordering::Relaxed);
        from.events.store(7, Ordering::Relaxed);
        from.contexts.store(1, Ordering::Relaxed);
        from.raise_busy(Duration::from_secs(3));
        from.out_of_memory.store(5, Ordering::Relaxed);
        page.store_gauges(&from, 99);
        page.load_gauges(&to);
        assert_eq!((to.allocated.load(Ordering::Relaxed), to.events.load(Ordering::Relaxed)), (1 << 40, 7));
        assert_eq!((page.charged(), to.streams.load(Ordering::Relaxed)), (99, 0));
        assert_eq!((to.contexts.load(Ordering::Relaxed), to.busy()), (1, Duration::ZERO));
        assert_eq!((page.out_of_memory(), to.out_of_memory.load(Ordering::Relaxed)), (5, 0));
        page.raise_busy(Duration::from_secs(2));
        assert_eq!(page.busy(), Duration::from_secs(3), "it never decreases");
    }

    #[test]
    fn a_sleeper_is_woken_by_news_that_come_at_any_moment() {
        let page = page();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for tail in 1..=2000 {
                    page.set_tail(tail);
                    page.wake(Sleeper::Worker);
                }
            });
            let mut seen = 0;
            while seen < 2000 {
                page.sleep(Sleeper::Worker, None, || page.tail() > seen);
                seen = page.tail();
            }
        });
    }

    /// A worker may store the flag of the other side.
    #[test]
    fn a_sleeper_whose_flag_was_taken_away_is_woken_surely() {
        let page = page();
        let flag = page.0.u32_at(Sleeper::Device.offset());
        for round in 1..=200 {
            std::thread::scope(|scope| {
                let sleeper = scope.spawn(|| page.sleep(Sleeper::Device, None, || page.tail() == round));
                while flag.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                flag.store(0, Ordering::SeqCst);
                page.set_tail(round);
                page.wake_surely(Sleeper::Device);
                sleeper.join().unwrap();
            });
        }
    }
}
