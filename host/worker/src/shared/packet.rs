//! Packets of the socket between the device's process and a worker. They may carry descriptors.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Largest number of descriptors in one packet.
pub(crate) const FILES_MAX: usize = 64;

/// An order of the device's process. Orders follow the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerOrder {
    /// Announces files that are sent with the packet. They are numbered from this number on.
    Files(u64),
    /// Stops the worker, whatever it does at the moment.
    Stop,
    /// Answers the newest request for device memory: whether the device had it.
    Reserved(bool),
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    kind: u64,
    number: u64,
}

impl WorkerOrder {
    /// Size of a packet in bytes.
    pub(crate) const BYTES: usize = size_of::<Raw>();

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let raw = match self {
            Self::Files(number) => Raw { kind: 1, number },
            Self::Stop => Raw { kind: 2, number: 0 },
            Self::Reserved(reserved) => Raw { kind: 3, number: reserved.into() },
        };
        let mut packet = [0; Self::BYTES];
        packet.copy_from_slice(raw.as_bytes());
        packet
    }

    pub(crate) fn decode(packet: &[u8]) -> Option<Self> {
        match Raw::read_from_bytes(packet).ok()? {
            Raw { kind: 1, number } => Some(Self::Files(number)),
            Raw { kind: 2, number: 0 } => Some(Self::Stop),
            Raw { kind: 3, number: reserved @ 0..=1 } => Some(Self::Reserved(reserved == 1)),
            _ => None,
        }
    }
}

/// Sends a packet with descriptors.
pub(crate) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for a packet"));
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags | SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives a packet of at most `room` bytes with its descriptors. Returns `None` if the other end is closed,
/// and an error if the packet is longer.
pub(crate) fn receive(socket: impl AsFd, room: usize) -> io::Result<Option<(Vec<u8>, Vec<File>)>> {
    let mut bytes = vec![0; room];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let files: Vec<File> = files.flatten().map(|file: OwnedFd| File::from(file)).collect();
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet is longer than any there is"));
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    Ok(Some((bytes, files)))
}
