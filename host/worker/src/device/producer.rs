//! The writing end of a worker's ring.

use std::sync::Arc;

use vgpu_device::{SessionError, Window};
use zerocopy::IntoBytes;

use crate::device::link::Link;
use crate::shared::board::{Board, Sleeper};
use crate::shared::frame::{FRAME_ALIGN, FRAME_MAX, FrameKind, Head, RING_BYTES, room};

/// However much more is to come, the worker hears of so many bytes.
const UNTOLD_MOST: u64 = 0x4000;

/// Writes frames. What it writes the worker finds when it is published.
#[derive(Debug)]
pub(crate) struct Producer {
    ring: Window,
    board: Arc<Board>,
    /// Bytes ever written, and of these, published.
    tail: u64,
    published: u64,
    /// Bytes that the worker has copied, when that was last looked at.
    head: u64,
}

impl Producer {
    /// A producer of an empty ring, which has [`RING_BYTES`].
    pub(crate) const fn new(ring: Window, board: Arc<Board>) -> Self {
        Self { ring, board, tail: 0, published: 0, head: 0 }
    }

    /// Writes a frame, whose body is the parts one behind the other. Waits for room; an error if there will
    /// be none.
    pub(crate) fn put(
        &mut self,
        link: &Link,
        kind: FrameKind,
        number: u64,
        parts: &[&[u8]],
    ) -> Result<(), SessionError> {
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let bytes = (size_of::<Head>() + body) as u64;
        debug_assert!(bytes <= FRAME_MAX, "a frame of {bytes} bytes");
        let to_end = RING_BYTES - self.tail % RING_BYTES;
        if room(bytes) > to_end {
            self.wait_for(link, to_end)?;
            self.write(0, Head { kind: FrameKind::Pad as u32, bytes: to_end as u32, number: 0 }.as_bytes());
            self.tail += to_end;
        }
        self.wait_for(link, room(bytes))?;
        let mut at = self.write(0, Head { kind: kind as u32, bytes: bytes as u32, number }.as_bytes());
        for part in parts {
            at = self.write(at, part);
        }
        self.tail += room(bytes);
        if self.tail - self.published >= UNTOLD_MOST {
            self.publish();
        }
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> u64 {
        let offset = self.tail % RING_BYTES + at;
        let slice = self.ring.slice(offset, bytes.len() as u64);
        slice.expect("a frame lies within the ring").copy_from(bytes);
        at + bytes.len() as u64
    }

    /// Lets the worker find what was written, and wakes it if it sleeps.
    pub(crate) fn publish(&mut self) {
        if self.tail != self.published {
            self.published = self.tail;
            self.board.set_tail(self.tail);
            self.board.wake(Sleeper::Worker);
        }
    }

    fn wait_for(&mut self, link: &Link, bytes: u64) -> Result<(), SessionError> {
        if self.look(link)? + bytes <= RING_BYTES {
            return Ok(());
        }
        self.head = self.board.head();
        while self.look(link)? + bytes > RING_BYTES {
            self.publish();
            let (tail, board) = (self.tail, &self.board);
            link.wait_until(|| {
                tail.wrapping_sub(board.head()).saturating_add(bytes) <= RING_BYTES || tail < board.head()
            })?;
            self.head = self.board.head();
        }
        Ok(())
    }

    /// Bytes of the ring that the worker has not copied.
    fn look(&self, link: &Link) -> Result<u64, SessionError> {
        let used = self.tail.wrapping_sub(self.head);
        if self.head > self.tail || used > RING_BYTES || !self.head.is_multiple_of(FRAME_ALIGN) {
            return Err(
                link.rubbish(format_args!("it read {} bytes of {} in its ring", self.head, self.tail))
            );
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
    use vgpu_device::{Home, InWorker, Limits, SessionHost, SharedRange};
    use vgpu_wire::area::AREA_BYTES;

    use super::*;
    use crate::shared::board::BOARD_BYTES;
    use crate::worker::reader::Reader;

    const FRAMES: u64 = 600;

    struct Nobody;

    impl Home for Nobody {
        fn memory_changed(&self, _answered: Option<u64>) {}

        fn worked(&self) {}

        fn let_go(&self, _number: u64, _range: SharedRange) {}
    }

    /// A link to a process that is no worker, and its session.
    fn link(board: &Arc<Board>) -> (Link, std::process::Child) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let (socket, _) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let known = InWorker {
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
        (Link::new(host, Arc::clone(board), socket, pidfd, child.id()), child)
    }

    fn shared() -> (Arc<Board>, Window, Window) {
        let board = Arc::new(Board::new(Window::anonymous(BOARD_BYTES).unwrap()));
        let ring = Window::anonymous(RING_BYTES).unwrap();
        let file = File::from(ring.file().try_clone_to_owned().unwrap());
        (board, ring, Window::of_part(file, 0, RING_BYTES).unwrap())
    }

    #[test]
    fn a_worker_has_not_worked_for_longer_than_it_exists() {
        let start = Instant::now();
        let (board, _, _) = shared();
        let (link, mut child) = link(&board);
        board.raise_busy(Duration::from_nanos(5));
        link.show_figures();
        assert_eq!(link.host.gauges().busy(), Duration::from_nanos(5));
        board.raise_busy(Duration::from_nanos(u64::MAX));
        link.show_figures();
        let shown = link.host.gauges().busy();
        assert!(shown > Duration::from_nanos(5) && shown <= start.elapsed(), "{shown:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn frames_arrive_as_they_were_sent() {
        let (board, ring, mapped) = shared();
        let (link, mut child) = link(&board);
        let mut producer = Producer::new(ring, Arc::clone(&board));
        let body = |number: u64| -> Vec<u8> {
            let bytes = number * 7919 % (FRAME_MAX - 16);
            (0..bytes).map(|at| (at ^ number) as u8).collect()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=FRAMES {
                    let body = body(number);
                    let (first, second) = body.split_at(body.len() / 3);
                    producer.put(&link, FrameKind::Message, number, &[first, second]).unwrap();
                }
                producer.publish();
            });
            let mut reader = Reader::new(mapped);
            let mut next = 1;
            while next <= FRAMES {
                board.sleep(Sleeper::Worker, None, || reader.has_news(&board));
                let tail = board.tail();
                while let Some(frame) = reader.next(&board, tail).unwrap() {
                    assert_eq!((frame.kind, frame.number), (FrameKind::Message, next));
                    assert_eq!(reader.body(&frame), body(next));
                    next += 1;
                }
                reader.release(&board);
                board.wake(Sleeper::Device);
            }
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_head_that_cannot_be_is_rubbish_and_the_worker_is_killed() {
        for head in [RING_BYTES + 16, 8, u64::MAX - 15] {
            let (board, ring, _mapped) = shared();
            let (link, mut child) = link(&board);
            let mut producer = Producer::new(ring, Arc::clone(&board));
            board.set_head(head);
            let body = vec![0; 0x8000];
            let error = (0..100).find_map(|_| producer.put(&link, FrameKind::Message, 1, &[&body]).err());
            assert!(error.unwrap().to_string().contains("talks rubbish"), "{head:#x}");
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
    }
}
