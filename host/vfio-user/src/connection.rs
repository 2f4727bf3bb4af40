//! A connection to a VMM: what it has negotiated and changed, and how its requests are answered.
//!
//! Where another process continues the connection, a request stays in the socket until its reply was sent. A
//! process that dies in between leaves it to the next one, which must not answer a second time: QEMU takes a
//! reply that it does not expect for the start of the next message, as far as that reply has a payload. So
//! a [`Recorder`] is told that an answer is on its way, and a request that may have been answered
//! ([`SavedConnection::in_doubt`]) gets a reply without payload.
//!
//! Where nobody continues it, a request is taken before it is carried out: a socket that is closed with a
//! request unread resets the connection, and QEMU 11.1.3 ends by an assertion then.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET, VFIO_DMA_MAP_FLAG_WRITE, VFIO_PCI_CONFIG_REGION_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
};
use zerocopy::IntoBytes;

use crate::config::{BYTES, Config};
use crate::frame::{Broken, Command, HEADER_BYTES, Header, Info, MAX_MESSAGE, Refused, Request, Version};
use crate::limits::Limits;
use crate::ram::{MapError, Region, SharedRam};
use crate::recorder::{Answering, Recorder};
use crate::regions::Regions;
use crate::saved::{SavedConnection, UnsentReply};
use crate::stream::{Peeked, Stop, Stream, Woken};

/// Time in which a VMM has to negotiate the version. One that says nothing keeps others waiting.
const NEGOTIATION_MOST: Duration = Duration::from_secs(5);

/// Reason for which a connection ends before its VMM closes it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("the VMM's version is not spoken here: {0}")]
    Version(#[from] Refused),
    #[error("the VMM has not negotiated a version within {NEGOTIATION_MOST:?}")]
    Silent,
    #[error(transparent)]
    Socket(#[from] std::io::Error),
}

impl ConnectionError {
    /// Returns whether the VMM has closed its end while it was being answered.
    pub(crate) fn is_end(&self) -> bool {
        let ends = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        matches!(self, Self::Socket(error) if ends.contains(&error.kind()))
    }
}

/// How serving a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The VMM has closed its end.
    Gone,
    /// The thread was told to stop. The connection can be served again.
    Stopped,
}

/// A connection to a VMM.
pub(crate) struct Connection {
    stream: Stream,
    stop: Stop,
    /// `None` until the version is negotiated.
    limits: Option<Limits>,
    config: Config,
    /// Memory of the guest. It holds the window of version 1, and the pages that version 2 is granted.
    ram: SharedRam,
    /// The reply to the request at the start of the socket. Its buffer is used again.
    reply: UnsentReply,
    /// Id of the request that the process before this one may have answered.
    in_doubt: Option<u16>,
    unrecorded: Unrecorded,
}

/// What requests have changed since it was last recorded.
#[derive(Clone, Copy, Debug, Default)]
struct Unrecorded {
    limits: bool,
    config: bool,
    ram: bool,
}

impl Connection {
    /// Starts a connection to a VMM that has yet to negotiate.
    pub(crate) fn new(socket: OwnedFd, stop: Stop, config: Config, ram: SharedRam) -> std::io::Result<Self> {
        let stream = Stream::new(socket, stop.clone())?;
        let reply = UnsentReply::default();
        let unrecorded = Unrecorded::default();
        Ok(Self { stream, stop, limits: None, config, ram, reply, in_doubt: None, unrecorded })
    }

    /// Continues a connection of another process, whose parts have been checked.
    pub(crate) fn continued(
        saved: SavedConnection,
        stop: Stop,
        config: Config,
        ram: SharedRam,
    ) -> std::io::Result<Self> {
        let stream = Stream::new(saved.socket, stop.clone())?;
        let reply = saved.reply.unwrap_or_default();
        let (limits, in_doubt, unrecorded) = (saved.limits, saved.in_doubt, Unrecorded::default());
        Ok(Self { stream, stop, limits, config, ram, reply, in_doubt, unrecorded })
    }

    /// Returns the parts with which another process continues this connection.
    pub(crate) fn save(self) -> SavedConnection {
        self.parts()(self.stream.into_socket())
    }

    /// Returns the same parts, with a duplicate of the socket. This process does not serve the connection
    /// meanwhile.
    pub(crate) fn copy(&self) -> std::io::Result<SavedConnection> {
        Ok(self.parts()(self.stream.socket().try_clone_to_owned()?))
    }

    /// Returns what makes the saved connection of a socket.
    fn parts(&self) -> impl FnOnce(OwnedFd) -> SavedConnection + use<> {
        let Self { limits, in_doubt, .. } = *self;
        let (config, regions, reply) = (*self.config(), self.ram.regions(), self.unsent_reply().cloned());
        move |socket| SavedConnection { socket, limits, config, regions, reply, in_doubt }
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.socket()
    }

    /// Returns the reply that is not wholly sent.
    pub(crate) fn unsent_reply(&self) -> Option<&UnsentReply> {
        Some(&self.reply).filter(|reply| reply.request > 0)
    }

    /// Returns the configuration space.
    pub(crate) fn config(&self) -> &[u8; BYTES] {
        self.config.bytes()
    }

    /// Closes the connection. The VMM sees its end, and no reset.
    pub(crate) fn close(self) {
        self.stream.close();
    }

    /// Answers requests until the VMM closes its end or the thread is told to stop. A stop comes between two
    /// requests, or while the VMM leaves no room for a reply, which is then kept.
    pub(crate) fn serve(
        &mut self,
        regions: &Regions,
        recorder: Option<&dyn Recorder>,
    ) -> Result<Ended, ConnectionError> {
        let silent_at = Instant::now() + NEGOTIATION_MOST;
        // One byte more than a message shows that another one follows.
        let mut buffer = [0; MAX_MESSAGE + 1];
        loop {
            if self.stop.is_set() || !self.finish_reply(regions, recorder)? {
                return Ok(Ended::Stopped);
            }
            let Some(mut peeked) = self.stream.peek(&mut buffer)? else {
                if self.wait(silent_at)? == Woken::Stopped {
                    return Ok(Ended::Stopped);
                }
                continue;
            };
            if peeked.bytes == 0 {
                return Ok(Ended::Gone);
            }
            let header = Header::decode(&buffer[..peeked.bytes])?;
            let Some(header) = header.filter(|header| header.bytes as usize <= peeked.bytes) else {
                self.check_rest(header.map(|header| header.command), &peeked)?;
                if self.wait(silent_at)? == Woken::Stopped {
                    return Ok(Ended::Stopped);
                }
                continue;
            };
            let bytes = header.bytes as usize;
            // More than this request may lie there. Behind descriptors nothing is seen.
            let more = peeked.bytes > bytes || !peeked.files.is_empty() || self.stream.has_hung_up();
            if peeked.bytes > bytes {
                // Descriptors end what is peeked, so they came with the last of these bytes, which are
                // another request's. They are seen again with that one.
                (peeked.files, peeked.files_cut) = (Vec::new(), false);
            }
            if peeked.files_cut {
                return Err(broken(&header, "descriptors", peeked.files.len() as u64).into());
            }
            if recorder.is_none() {
                self.stream.take(bytes)?;
            }
            let refused = self.prepare_reply(regions, &header, &buffer[HEADER_BYTES..bytes], peeked.files)?;
            if header.wants_reply() {
                if !self.finish_reply(regions, recorder)? {
                    return Ok(Ended::Stopped);
                }
            } else {
                self.reply.request = 0;
                if let Some(recorder) = recorder {
                    self.record(recorder);
                    self.stream.take(bytes)?;
                }
            }
            if let Some(refused) = refused.filter(|_| self.limits.is_none()) {
                // The VMM was told why.
                return Err(refused.into());
            }
            if !more && self.wait(silent_at)? == Woken::Stopped {
                return Ok(Ended::Stopped);
            }
        }
    }

    /// Waits for more than has been seen.
    fn wait(&mut self, silent_at: Instant) -> Result<Woken, ConnectionError> {
        let limit = self.limits.is_none().then(|| silent_at.saturating_duration_since(Instant::now()));
        match self.stream.wait(limit)? {
            Woken::TimedOut if limit.is_some() => Err(ConnectionError::Silent),
            woken => Ok(woken),
        }
    }

    /// Checks that the rest of a request can still arrive.
    fn check_rest(&self, command: Option<Command>, peeked: &Peeked) -> Result<(), Broken> {
        let broken =
            |field| Err(Broken { command: command.unwrap_or(Command(0)), field, value: peeked.bytes as u64 });
        if !peeked.files.is_empty() || peeked.files_cut {
            // What follows descriptors is not seen before what came with them is taken. VMMs send such a
            // request in one piece.
            return broken("descriptors in a part of the request, of a size of");
        }
        if self.stream.has_hung_up() {
            return broken("the end of the connection after");
        }
        Ok(())
    }

    /// Sends what remains of the reply, and takes its request from the socket. Returns whether that is done:
    /// otherwise the thread is to stop.
    fn finish_reply(
        &mut self,
        regions: &Regions,
        recorder: Option<&dyn Recorder>,
    ) -> Result<bool, ConnectionError> {
        if self.reply.request == 0 {
            return Ok(true);
        }
        if let Some(recorder) = recorder {
            recorder.answering(if self.reply.sent == 0 {
                Answering::Reply(self.reply.id())
            } else {
                Answering::Rest
            });
            self.record(recorder);
        }
        let reply = &mut self.reply;
        while reply.sent < reply.bytes.len() {
            // The descriptor goes with the first byte.
            let file = reply.bar.filter(|_| reply.sent == 0).and_then(|bar| regions.memory(bar));
            match self.stream.send(&reply.bytes[reply.sent..], file)? {
                Some(sent) => reply.sent += sent,
                None => return Ok(false),
            }
            if let Some(recorder) = recorder.filter(|_| reply.sent < reply.bytes.len()) {
                recorder.answering(Answering::Rest);
            }
        }
        if let Some(recorder) = recorder {
            self.stream.take(reply.request)?;
            recorder.answering(Answering::Nothing);
        }
        reply.request = 0;
        Ok(true)
    }

    /// Records what has changed.
    fn record(&mut self, recorder: &dyn Recorder) {
        let Unrecorded { limits, config, ram } = std::mem::take(&mut self.unrecorded);
        if let Some(limits) = self.limits.filter(|_| limits) {
            recorder.negotiated(limits);
        }
        if config {
            recorder.configured(self.config.bytes());
        }
        if ram {
            recorder.mapped(&self.ram.regions());
        }
    }

    /// Carries out a request and prepares its reply. Returns the reason if that is an error.
    fn prepare_reply(
        &mut self,
        regions: &Regions,
        header: &Header,
        payload: &[u8],
        files: Vec<OwnedFd>,
    ) -> Result<Option<Refused>, Broken> {
        if self.limits.is_none() && header.command != Command::VERSION {
            return Err(broken(header, "no VERSION before it, and id", header.id.into()));
        }
        let mut bytes = std::mem::take(&mut self.reply.bytes);
        bytes.clear();
        bytes.extend([0; HEADER_BYTES]);
        let in_doubt = self.in_doubt.take() == Some(header.id);
        let done = Request::decode(header, payload, files.len()).and_then(|request| {
            if in_doubt {
                return self.carry_out_in_doubt(regions, header.command, &request, files, &mut bytes);
            }
            self.carry_out(regions, header.command, &request, files, &mut bytes)
        });
        let (answer, bar, refused) = match done {
            Ok(bar) => (header.reply(bytes.len() - HEADER_BYTES), bar, None),
            Err(refused) => {
                tracing::debug!("{refused}");
                bytes.truncate(HEADER_BYTES);
                (header.error(refused.errno), None, Some(refused))
            }
        };
        bytes[..HEADER_BYTES].copy_from_slice(answer.as_bytes());
        self.reply = UnsentReply { bytes, sent: 0, bar, request: header.bytes as usize };
        Ok(refused)
    }

    /// Answers a request that the process before this one may have carried out and answered. A reply without
    /// payload does not disturb a VMM that expects none. A VMM that has no answer yet learns of a read that
    /// it has failed; everything else has the same effect when it is done twice, but for a write to a BAR,
    /// which is not repeated.
    fn carry_out_in_doubt(
        &mut self,
        regions: &Regions,
        command: Command,
        request: &Request<'_>,
        files: Vec<OwnedFd>,
        into: &mut Vec<u8>,
    ) -> Result<Option<usize>, Refused> {
        match request {
            Request::Write(access, _) if access.region != VFIO_PCI_CONFIG_REGION_INDEX => {}
            Request::DmaMap(map) if self.ram.is_mapped(map.address, map.bytes) => {}
            Request::Write(..)
            | Request::DmaMap(_)
            | Request::DmaUnmap(_)
            | Request::SetIrqs(_)
            | Request::Reset => {
                self.carry_out(regions, command, request, files, into)?;
                into.truncate(HEADER_BYTES);
            }
            _ => return Err(Refused { command, field: "reply, which may have been sent", errno: Errno::IO }),
        }
        Ok(None)
    }

    /// Carries out a request, and appends the payload of its reply. Returns the BAR whose memory is passed
    /// along.
    fn carry_out(
        &mut self,
        regions: &Regions,
        command: Command,
        request: &Request<'_>,
        mut files: Vec<OwnedFd>,
        into: &mut Vec<u8>,
    ) -> Result<Option<usize>, Refused> {
        let refused = |field, errno| Refused { command, field, errno };
        let limits = self.limits.unwrap_or_default();
        match *request {
            Request::Version(version, text) => {
                if self.limits.is_some() {
                    return Err(refused("version, after it was negotiated", Errno::INVAL));
                }
                if version.major != 0 {
                    return Err(refused("major", Errno::OPNOTSUPP));
                }
                let limits = Limits::parse(text).map_err(|_| refused("text", Errno::INVAL))?;
                tracing::info!(?version, ?limits, "a VMM has connected");
                self.limits = Some(limits);
                self.unrecorded.limits = true;
                into.extend(Version { major: 0, minor: 0 }.as_bytes());
                into.extend(Limits::answer().as_bytes());
            }
            Request::DmaMap(map) => {
                // A region without a file is not guest memory, but a BAR of this function or a ROM.
                let Some(file) = files.pop() else { return Ok(None) };
                let writable = map.flags & VFIO_DMA_MAP_FLAG_WRITE != 0;
                let file = Arc::new(File::from(file));
                let region = Region { file, offset: map.offset, bytes: map.bytes, writable };
                tracing::debug!("guest memory: {:#x} bytes at {:#x}", map.bytes, map.address);
                self.ram.change().map(map.address, region).map_err(|error| match error {
                    MapError::NoEnd => refused("size", Errno::INVAL),
                    MapError::Overlaps => refused("address", Errno::EXIST),
                    MapError::TooMany => refused("number", Errno::NOSPC),
                })?;
                self.unrecorded.ram = true;
            }
            Request::DmaUnmap(unmap) => {
                if unmap.is_all() {
                    self.ram.change().clear();
                } else if !self.ram.change().unmap(unmap.address, unmap.bytes) {
                    // A region is unmapped wholly or not at all, as VFIO has it.
                    return Err(refused("size", Errno::INVAL));
                }
                self.unrecorded.ram = true;
                into.extend(unmap.as_bytes());
            }
            Request::DeviceInfo => into.extend(
                info(
                    VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET,
                    VFIO_PCI_NUM_REGIONS,
                    VFIO_PCI_NUM_IRQS,
                )
                .as_bytes(),
            ),
            Request::RegionInfo { index, argsz } => {
                return Ok(regions.describe(index, argsz, limits.max_msg_fds > 0, into));
            }
            // A VMM asks about each kind of interrupts, and the function has none.
            Request::IrqInfo(index) => into.extend(info(0, index, 0).as_bytes()),
            // Disabling an interrupt that does not exist is no error.
            Request::SetIrqs(set) if set.count == 0 => {}
            Request::SetIrqs(_) => return Err(refused("count", Errno::INVAL)),
            Request::Read(access) => {
                if access.count > limits.max_data_xfer_size {
                    return Err(refused("count", Errno::INVAL));
                }
                into.extend(access.as_bytes());
                let start = into.len();
                into.resize(start + access.count as usize, 0);
                regions.read(&self.config, access, &mut into[start..]);
            }
            Request::Write(access, data) => {
                regions.write(&mut self.config, access, data);
                self.unrecorded.config |= access.region == VFIO_PCI_CONFIG_REGION_INDEX;
                into.extend(access.as_bytes());
            }
            Request::Reset => {
                tracing::debug!("reset");
                regions.reset();
            }
        }
        Ok(None)
    }
}

/// Returns the payload of a reply about the device or about a kind of interrupts.
fn info(flags: u32, first: u32, second: u32) -> Info {
    Info { argsz: size_of::<Info>() as u32, flags, first, second }
}

fn broken(header: &Header, field: &'static str, value: u64) -> Broken {
    Broken { command: header.command, field, value }
}
