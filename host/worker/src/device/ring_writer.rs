//! The writing end of a worker's ring.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use vgpu_device::{Charge, Charges, Resource, RestoreError, SessionError, Window};
use zerocopy::IntoBytes;

use crate::device::process::{Waited, WorkerProcess};
use crate::device::saved::split_frame;
use crate::shared::frame::{FRAME_ALIGN, FRAME_MAX, FrameHead, FrameKind, RING_BYTES, room};
use crate::shared::status_page::{Sleeper, StatusPage};

/// Number of written bytes after which frames are published, even if more follow.
const UNTOLD_MOST: u64 = 0x4000;

/// Writes frames to a worker's ring. The worker sees them once they are published.
#[derive(Debug)]
pub(crate) struct RingWriter {
    ring: Window,
    page: Arc<StatusPage>,
    /// Number of bytes ever written, whether published or not.
    tail: u64,
    published: u64,
    /// Number of bytes that the worker had copied when the status page was last read.
    head: u64,
    /// Frames for which there was no room when the device was paused: those of one message with its payload,
    /// and a few small ones. They are written before any other.
    backlog: VecDeque<(Box<[u8]>, Charge)>,
}

impl RingWriter {
    /// Creates the writer of an empty ring of [`RING_BYTES`].
    pub(crate) const fn new(ring: Window, page: Arc<StatusPage>) -> Self {
        Self { ring, page, tail: 0, published: 0, head: 0, backlog: VecDeque::new() }
    }

    /// Creates the writer of a ring to which `tail` bytes have been written. `backlog` has the frames that
    /// wait.
    pub(crate) fn restore(
        ring: Window,
        page: Arc<StatusPage>,
        tail: u64,
        mut backlog: &[u8],
        charges: &Arc<Charges>,
    ) -> Result<Self, RestoreError> {
        // What the worker has read is checked like all that it says, when it is used.
        let mut writer = Self { head: page.head(), tail, published: tail, ..Self::new(ring, page) };
        while !backlog.is_empty() {
            let frame;
            (frame, backlog) = split_frame(backlog)?;
            writer.keep(charges, frame.into());
        }
        Ok(writer)
    }

    /// Keeps a frame for which there is no room.
    fn keep(&mut self, charges: &Arc<Charges>, frame: Box<[u8]>) {
        let charge = charges.adopt(Resource::HostBytes, frame.len() as u64);
        self.backlog.push_back((frame, charge));
    }

    /// Returns the file of the ring.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.ring.file()
    }

    /// Publishes all frames. Returns how many bytes were ever written.
    pub(crate) fn save(&mut self) -> u64 {
        self.publish();
        self.tail
    }

    /// Returns the frames for which there is no room.
    pub(crate) fn backlog(&self) -> impl Iterator<Item = &[u8]> {
        self.backlog.iter().map(|(frame, _)| &**frame)
    }

    /// Writes a frame whose body consists of `parts`. Waits for space in the ring; fails if there will be
    /// none. While the device is paused it does not wait, and the frame is kept.
    pub(crate) fn write_frame(
        &mut self,
        link: &WorkerProcess,
        kind: FrameKind,
        number: u64,
        parts: &[&[u8]],
    ) -> Result<(), SessionError> {
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let bytes = (size_of::<FrameHead>() + body) as u64;
        debug_assert!(bytes <= FRAME_MAX, "a frame of {bytes} bytes");
        let head = FrameHead { kind: kind as u32, bytes: bytes as u32, number };
        if self.flush(link)? && self.make_room(link, bytes)? {
            self.append(bytes, head.as_bytes(), parts);
        } else {
            self.keep(link.host.charges(), [&[head.as_bytes()], parts].concat().concat().into());
        }
        Ok(())
    }

    /// Writes the frames that were kept while the device was paused. Returns false if it is paused again
    /// before all are written.
    pub(crate) fn flush(&mut self, link: &WorkerProcess) -> Result<bool, SessionError> {
        while let Some(bytes) = self.backlog.front().map(|(frame, _)| frame.len() as u64) {
            if !self.make_room(link, bytes)? {
                return Ok(false);
            }
            if let Some((frame, _charge)) = self.backlog.pop_front() {
                self.append(bytes, &frame, &[]);
            }
        }
        Ok(true)
    }

    /// Waits until a frame of `bytes` bytes fits, and pads the ring to its end if it does not fit there.
    /// Returns false if the device is paused before.
    fn make_room(&mut self, link: &WorkerProcess, bytes: u64) -> Result<bool, SessionError> {
        let to_end = RING_BYTES - self.tail % RING_BYTES;
        if room(bytes) > to_end {
            if !self.wait_for_room(link, to_end)? {
                return Ok(false);
            }
            let pad = FrameHead { kind: FrameKind::Pad as u32, bytes: to_end as u32, number: 0 };
            self.write(0, pad.as_bytes());
            self.tail += to_end;
        }
        self.wait_for_room(link, room(bytes))
    }

    /// Writes a frame of `bytes` bytes, for which there is room.
    fn append(&mut self, bytes: u64, head: &[u8], parts: &[&[u8]]) {
        let mut at = self.write(0, head);
        for part in parts {
            at = self.write(at, part);
        }
        self.tail += room(bytes);
        if self.tail - self.published >= UNTOLD_MOST {
            self.publish();
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) -> u64 {
        let offset = self.tail % RING_BYTES + at;
        let slice = self.ring.slice(offset, bytes.len() as u64);
        slice.expect("a frame lies within the ring").copy_from(bytes);
        at + bytes.len() as u64
    }

    /// Makes the written frames visible to the worker, and wakes it if it sleeps.
    pub(crate) fn publish(&mut self) {
        if self.tail != self.published {
            self.published = self.tail;
            self.page.set_tail(self.tail);
            self.page.wake(Sleeper::Worker);
        }
    }

    /// Waits for `bytes` of room. Returns false if the device is paused before there is any.
    fn wait_for_room(&mut self, link: &WorkerProcess, bytes: u64) -> Result<bool, SessionError> {
        if self.unread_bytes(link)? + bytes <= RING_BYTES {
            return Ok(true);
        }
        self.head = self.page.head();
        while self.unread_bytes(link)? + bytes > RING_BYTES {
            self.publish();
            let (tail, page) = (self.tail, &self.page);
            let waited = link.wait_until(|| {
                tail.wrapping_sub(page.head()).saturating_add(bytes) <= RING_BYTES || tail < page.head()
            })?;
            if waited == Waited::Paused {
                return Ok(false);
            }
            self.head = self.page.head();
        }
        Ok(true)
    }

    /// Returns the number of bytes in the ring that the worker has not copied.
    fn unread_bytes(&self, link: &WorkerProcess) -> Result<u64, SessionError> {
        let used = self.tail.wrapping_sub(self.head);
        if self.head > self.tail || used > RING_BYTES || !self.head.is_multiple_of(FRAME_ALIGN) {
            return Err(link.kill_for_violation(format_args!(
                "it read {} bytes of {} in its ring",
                self.head, self.tail
            )));
        }
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use vgpu_device::{DeviceProcess, Limits, SessionHost, SessionInWorker, SharedRange};
    use vgpu_wire::area::AREA_BYTES;

    use super::*;
    use crate::shared::status_page::STATUS_PAGE_BYTES;
    use crate::worker::ring_reader::RingReader;

    const FRAMES: u64 = 600;

    struct Nobody;

    impl DeviceProcess for Nobody {
        fn memory_changed(&self, _answered: Option<u64>) {}

        fn worked(&self) {}

        fn settled(&self, _number: u64) {}

        fn reserve(&self, _bytes: u64, _take: &mut dyn FnMut()) -> bool {
            false
        }

        fn release(&self, _number: u64, _range: SharedRange) {}
    }

    /// Returns the handle of a process that is not a worker, with the process.
    fn link(page: &Arc<StatusPage>) -> (WorkerProcess, std::process::Child) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let (socket, _) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let known = SessionInWorker {
            session: 1,
            channel: 0,
            process: 1,
            wakes: false,
            window: Window::anonymous(AREA_BYTES).unwrap(),
            returns: None,
            now: Duration::ZERO,
            limits: Limits::default(),
        };
        let host = SessionHost::in_worker(known, Arc::new(Nobody));
        (WorkerProcess::new(host, Arc::clone(page), socket, Some(pidfd), child.id()), child)
    }

    fn shared() -> (Arc<StatusPage>, Window, Window) {
        let page = Arc::new(StatusPage::new(Window::anonymous(STATUS_PAGE_BYTES).unwrap()));
        let ring = Window::anonymous(RING_BYTES).unwrap();
        let file = File::from(ring.file().try_clone_to_owned().unwrap());
        (page, ring, Window::from_file_range(file, 0, RING_BYTES).unwrap())
    }

    #[test]
    fn a_worker_has_not_worked_for_longer_than_it_exists() {
        let start = Instant::now();
        let (page, _, _) = shared();
        let (link, mut child) = link(&page);
        page.raise_busy(Duration::from_nanos(5));
        link.show_figures();
        assert_eq!(link.host.gauges().busy(), Duration::from_nanos(5));
        page.raise_busy(Duration::from_nanos(u64::MAX));
        link.show_figures();
        let shown = link.host.gauges().busy();
        assert!(shown > Duration::from_nanos(5) && shown <= start.elapsed(), "{shown:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn frames_arrive_as_they_were_sent() {
        let (page, ring, mapped) = shared();
        let (link, mut child) = link(&page);
        let mut ring = RingWriter::new(ring, Arc::clone(&page));
        let body = |number: u64| -> Vec<u8> {
            let bytes = number * 7919 % (FRAME_MAX - 16);
            (0..bytes).map(|at| (at ^ number) as u8).collect()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=FRAMES {
                    let body = body(number);
                    let (first, second) = body.split_at(body.len() / 3);
                    ring.write_frame(&link, FrameKind::Message, number, &[first, second]).unwrap();
                }
                ring.publish();
            });
            let mut reader = RingReader::new(mapped);
            let mut next = 1;
            while next <= FRAMES {
                page.sleep(Sleeper::Worker, None, || reader.has_news(&page));
                let tail = page.tail();
                while let Some(frame) = reader.next(&page, tail).unwrap() {
                    assert_eq!((frame.kind, frame.number), (FrameKind::Message, next));
                    assert_eq!(reader.body(&frame), body(next));
                    next += 1;
                }
                reader.release(&page);
                page.wake(Sleeper::Device);
            }
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_head_that_cannot_be_is_rubbish_and_the_worker_is_killed() {
        for head in [RING_BYTES + 16, 8, u64::MAX - 15] {
            let (page, ring, _mapped) = shared();
            let (link, mut child) = link(&page);
            let mut ring = RingWriter::new(ring, Arc::clone(&page));
            page.set_head(head);
            let body = vec![0; 0x8000];
            let error = (0..100).find_map(|_| ring.write_frame(&link, FrameKind::Message, 1, &[&body]).err());
            assert!(error.unwrap().to_string().contains("violates the protocol"), "{head:#x}");
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
    }
}
