//! The connection's socket. A request is looked at where it lies, and taken from there only after its reply
//! was sent, so that the next process finds it if this one dies in between.
//!
//! A poll would report the request that is looked at again and again, so the socket is watched for changes
//! (edge-triggered): [`Stream::wait`] returns when more has arrived than before. Whoever has seen the end of
//! what is there may wait, and nobody else.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, recv, recvmsg, sendmsg, shutdown,
};

use crate::frame::{MAX_DESCRIPTORS, MAX_MESSAGE};

/// Number of the socket among the events.
const SOCKET: u64 = 0;

/// Tells the thread that serves a socket to stop. Copies of a value are one.
#[derive(Clone, Debug)]
pub struct Stop(Arc<(OwnedFd, AtomicBool)>);

impl Stop {
    /// Makes a value that does not tell to stop yet.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new((event, AtomicBool::new(false)))))
    }

    /// Tells the thread to stop after the request that it carries out. It does so once it serves, if it does
    /// not serve now.
    pub fn stop(&self) -> io::Result<()> {
        self.0.1.store(true, Ordering::Release);
        // A counter that is full wakes the thread as well.
        match rustix::io::write(&self.0.0, &1u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes it back, so that the socket can be served again. That holds even if this fails: the thread is
    /// then woken for nothing.
    pub fn clear(&self) -> io::Result<()> {
        self.0.1.store(false, Ordering::Release);
        match rustix::io::read(&self.0.0, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the thread is to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.0.1.load(Ordering::Acquire)
    }

    /// Waits for `time`, or until the thread is to stop.
    pub(crate) fn or_sleep(&self, time: Timespec) -> io::Result<()> {
        retry_on_intr(|| poll(&mut [PollFd::new(&self.0.0, PollFlags::IN)], Some(&time)))?;
        Ok(())
    }

    /// Waits until `socket` is ready, and returns whether it is: otherwise the thread is to stop.
    pub(crate) fn or_ready(&self, socket: BorrowedFd<'_>, ready: PollFlags) -> io::Result<bool> {
        while !self.is_set() {
            let mut both = [PollFd::from_borrowed_fd(socket, ready), PollFd::new(&self.0.0, PollFlags::IN)];
            retry_on_intr(|| poll(&mut both, None))?;
            if !both[0].revents().is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// More has arrived, or the VMM has closed its end.
    Arrived,
    /// The thread is to stop.
    Stopped,
    /// The time is over.
    TimedOut,
}

/// What lies at the start of the socket.
#[derive(Debug)]
pub(crate) struct Peeked {
    /// Number of bytes that were copied.
    pub(crate) bytes: usize,
    /// Duplicates of the descriptors that came with these bytes.
    pub(crate) files: Vec<OwnedFd>,
    /// Whether there were more descriptors than can be passed at a time, or than this process may open.
    pub(crate) files_cut: bool,
}

/// Ends a connection for both ends, whoever else has its socket open. What is unread is read then, because
/// the VMM would see a reset.
pub fn end(socket: &OwnedFd) {
    // A VMM that has gone needs no end.
    let _ = shutdown(socket, Shutdown::Both);
    let mut unread = [0; MAX_MESSAGE];
    while recv(socket, &mut unread[..], RecvFlags::DONTWAIT).is_ok_and(|(count, _)| count > 0) {}
}

/// The socket of a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: OwnedFd,
    events: OwnedFd,
    stop: Stop,
    /// Whether the VMM has closed its end. No event tells it a second time.
    hung_up: bool,
}

impl Stream {
    /// Watches a connected socket.
    pub(crate) fn new(socket: OwnedFd, stop: Stop) -> io::Result<Self> {
        let events = epoll::create(CreateFlags::CLOEXEC)?;
        let changes = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&events, &socket, EventData::new_u64(SOCKET), changes)?;
        epoll::add(&events, &stop.0.0, EventData::new_u64(SOCKET + 1), EventFlags::IN)?;
        Ok(Self { socket, events, stop, hung_up: false })
    }

    /// Gives the socket up.
    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Closes the socket for both ends.
    pub(crate) fn close(self) {
        end(&self.socket);
    }

    /// Returns whether the VMM has closed its end, after which nothing more arrives.
    pub(crate) fn has_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Waits for more than has been seen, at most for `limit`.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> io::Result<Woken> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(SOCKET + 1) };
        let mut events = [none; 2];
        let count = retry_on_intr(|| epoll::wait(&self.events, &mut events[..], limit.as_ref()))?;
        for Event { flags, data } in events {
            if data.u64() == SOCKET {
                self.hung_up |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            }
        }
        Ok(match count {
            0 => Woken::TimedOut,
            _ if self.stop.is_set() => Woken::Stopped,
            _ => Woken::Arrived,
        })
    }

    /// Copies what lies at the start of the socket, without taking it, or returns `None` if nothing does. No
    /// bytes are the end of the connection. What follows the first descriptors is not seen before the bytes
    /// with which they came are taken.
    pub(crate) fn peek(&self, into: &mut [u8]) -> io::Result<Option<Peeked>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(into)];
        let read = match retry_on_intr(|| recvmsg(&self.socket, &mut into, &mut control, flags)) {
            Ok(read) => read,
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                files.extend(passed);
            }
        }
        // The space is aligned, and may have room for another one or two.
        let files_cut = read.flags.contains(ReturnFlags::CTRUNC) || files.len() > MAX_DESCRIPTORS;
        Ok(Some(Peeked { bytes: read.bytes, files, files_cut }))
    }

    /// Takes bytes that were seen from the socket, and the descriptors that came with them.
    pub(crate) fn take(&self, mut bytes: usize) -> io::Result<()> {
        let mut taken = [0; MAX_MESSAGE];
        while bytes > 0 {
            // One call takes a message that was sent in one piece.
            let (count, _) = retry_on_intr(|| recv(&self.socket, &mut taken[..bytes], RecvFlags::DONTWAIT))?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes -= count;
        }
        Ok(())
    }

    /// Sends bytes, with a descriptor, and returns how many were sent. If the VMM leaves no room, it waits
    /// for that, and returns `None` if the thread is to stop instead.
    pub(crate) fn send(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<Option<usize>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let files = file.as_slice();
        loop {
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(files));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(sent) => return Ok(Some(sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !self.stop.or_ready(self.socket.as_fd(), PollFlags::OUT)? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
