//! A VMM of a test: sends requests, byte by byte as the test wants them, and reads replies.

use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Time limit for a reply on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// Size in bytes of a message's header.
pub const HEADER: usize = 16;

/// Numbers of commands.
pub mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const GET_INFO: u16 = 4;
    pub const GET_REGION_INFO: u16 = 5;
    pub const GET_IRQ_INFO: u16 = 7;
    pub const SET_IRQS: u16 = 8;
    pub const READ: u16 = 9;
    pub const WRITE: u16 = 10;
    pub const RESET: u16 = 13;
    pub const DIRTY_PAGES: u16 = 14;
}

/// Flag of a request that is not to be answered.
pub const NO_REPLY: u32 = 1 << 4;

/// A reply, and the descriptors that came with it.
#[derive(Debug)]
pub struct Reply {
    pub id: u16,
    pub command: u16,
    pub flags: u32,
    pub error: u32,
    pub payload: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// Returns a request's bytes.
pub fn request(id: u16, command: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    let bytes = (HEADER + payload.len()) as u32;
    let mut message = [id.to_le_bytes(), command.to_le_bytes()].concat();
    for word in [bytes, flags, 0] {
        message.extend(word.to_le_bytes());
    }
    message.extend(payload);
    message
}

/// Returns the payload of a request for the protocol's version.
pub fn version(text: &[u8]) -> Vec<u8> {
    [&[0; 4], text].concat()
}

/// Returns the payload of a read, or the start of that of a write.
pub fn access(region: u32, offset: u64, count: u32) -> Vec<u8> {
    [&offset.to_le_bytes()[..], &region.to_le_bytes(), &count.to_le_bytes()].concat()
}

/// Returns the payload of a request that maps guest memory.
pub fn map(offset: u64, address: u64, bytes: u64) -> Vec<u8> {
    let words = [offset, address, bytes].map(u64::to_le_bytes);
    [&32u32.to_le_bytes()[..], &3u32.to_le_bytes(), words.as_flattened()].concat()
}

/// Returns a payload of 32-bit fields.
pub fn words(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

/// The VMM's end of a connection.
pub struct Vmm {
    pub stream: UnixStream,
    next: u16,
}

impl Vmm {
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, next: 1 }
    }

    pub fn connect(path: &Path) -> Self {
        Self::new(UnixStream::connect(path).unwrap())
    }

    /// Connects, and negotiates as QEMU does.
    pub fn start(path: &Path) -> Self {
        let mut vmm = Self::connect(path);
        vmm.negotiate();
        vmm
    }

    pub fn negotiate(&mut self) {
        let text = br#"{"capabilities": {"max_msg_fds": 16, "max_data_xfer_size": 1048576, "pgsizes": 4096, "write_multiple": true, "migration": {"pgsize": 4096}}}"#;
        let reply = self.ask(command::VERSION, &version(&[&text[..], b"\0"].concat()));
        assert_eq!((reply.error, &reply.payload[..4]), (0, &[0; 4][..]));
        assert_eq!(reply.payload.iter().position(|byte| *byte == 0), Some(0));
        assert_eq!(reply.payload.last(), Some(&0));
    }

    /// Sends bytes in one piece, with descriptors.
    pub fn send(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert_eq!(sent, bytes.len());
    }

    /// Sends a request, and returns its id.
    pub fn post(&mut self, command: u16, flags: u32, payload: &[u8], files: &[BorrowedFd<'_>]) -> u16 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.send(&request(id, command, flags, payload), files);
        id
    }

    /// Sends a request, and returns its reply.
    pub fn ask(&mut self, command: u16, payload: &[u8]) -> Reply {
        self.ask_with(command, payload, &[])
    }

    /// Sends a request with descriptors, and returns its reply.
    pub fn ask_with(&mut self, command: u16, payload: &[u8], files: &[BorrowedFd<'_>]) -> Reply {
        let id = self.post(command, 0, payload, files);
        let reply = self.reply();
        assert_eq!((reply.id, reply.command), (id, command), "{reply:?}");
        reply
    }

    /// Reads a reply, which is one message.
    pub fn reply(&mut self) -> Reply {
        let mut header = [0; HEADER];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [std::io::IoSliceMut::new(&mut header)];
        let read = recvmsg(&self.stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        assert_eq!(read.bytes, HEADER, "the connection ended");
        let mut files = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        let half = |at: usize| u16::from_le_bytes(header[at..at + 2].try_into().unwrap());
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut payload = vec![0; word(4) as usize - HEADER];
        self.stream.read_exact(&mut payload).unwrap();
        Reply { id: half(0), command: half(2), flags: word(8), error: word(12), payload, files }
    }

    /// Waits until the other end has closed the connection, and asserts that it sent nothing before, and no
    /// reset, which ends QEMU.
    pub fn is_closed(&mut self, what: &str) {
        let read = self.stream.read(&mut [0]);
        assert!(matches!(read, Ok(0)), "{what}: {read:?}");
    }
}
