//! Connection to a BAR of the simulated bus: packets of requests, and their answers.
//!
//! System calls here are raw: the C library's `recv` is a cancellation point, and a thread that the host
//! program cancels must not unwind out of these frames.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use vgpu_wire::pci::PciAddress;
use vgpu_wire::sim_bus::{self, BATCH, REQUEST_BYTES};

use crate::descriptor::Descriptor;
use crate::log_hook::{Notice, notify};
use crate::registers::{Access, RegisterError};
use crate::sleep::{processors, timespec};

/// Time to poll for an answer before sleeping. An attach, which starts a thread, takes less.
const LOOK: Duration = Duration::from_micros(150);
/// Time that one `recv` waits. The silence is then reported, and the wait continues.
static PATIENCE: libc::timeval = libc::timeval { tv_sec: 1, tv_usec: 0 };
/// Length of the path in a socket's address, with the zero.
const SUN_PATH: usize = 108;

/// A connection of a process to one BAR.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) descriptor: Descriptor,
    /// Number of answers that no thread waits for and that have not been received.
    pub(crate) owed: u32,
}

impl Connection {
    /// Connects to the socket at `path`.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { descriptor: connect(path)?, owed: 0 })
    }

    /// Sends a packet of requests.
    pub(crate) fn request(&self, accesses: &[Access]) -> Result<(), RegisterError> {
        let mut packet = [0; BATCH * REQUEST_BYTES];
        let packet = &mut packet[..accesses.len() * REQUEST_BYTES];
        for (request, access) in packet.chunks_exact_mut(REQUEST_BYTES).zip(accesses) {
            request.copy_from_slice(&words(match *access {
                Access::Read(offset) => [sim_bus::READ, offset, 0],
                Access::Write(offset, value) => [sim_bus::WRITE, offset, value],
            }));
        }
        self.send(packet)
    }

    /// Sends one packet, which a BAR must answer.
    pub(crate) fn send(&self, packet: &[u8]) -> Result<(), RegisterError> {
        loop {
            // SAFETY: the kernel reads the packet's bytes; a closed peer gives an error instead of a signal.
            let sent = unsafe {
                libc::syscall(
                    libc::SYS_sendto,
                    self.descriptor.number(),
                    packet.as_ptr(),
                    packet.len(),
                    libc::MSG_NOSIGNAL,
                    core::ptr::null::<u8>(),
                    0,
                )
            };
            if sent == packet.len() as i64 {
                return Ok(());
            }
            match io::Error::last_os_error() {
                error if again(&error) => {}
                error => return Err(RegisterError::Closed(error)),
            }
        }
    }

    /// Receives a packet of answers, however long it takes: polls for a while, then sleeps.
    pub(crate) fn answer(&self, function: PciAddress, answers: &mut [u8]) -> Result<(), RegisterError> {
        let start = Instant::now();
        while several_processors() && start.elapsed() < LOOK {
            if self.receive(answers, libc::MSG_DONTWAIT)? {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        let mut silent: Option<Instant> = None;
        loop {
            if self.receive(answers, 0)? {
                if let Some(since) = silent {
                    notify(&Notice::Back { function, waited: since.elapsed() });
                }
                return Ok(());
            }
            match silent {
                None => {
                    let now = Instant::now();
                    let since = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
                    notify(&Notice::Silent { function, waited: now - since });
                    silent = Some(since);
                }
                Some(since) if since.elapsed().as_secs().is_multiple_of(60) => {
                    notify(&Notice::Silent { function, waited: since.elapsed() });
                }
                Some(_) => {}
            }
        }
    }

    /// Receives one packet of answers. Returns false if none came in the time that the flags and the socket
    /// allow.
    pub(crate) fn receive(&self, answers: &mut [u8], flags: libc::c_int) -> Result<bool, RegisterError> {
        loop {
            // SAFETY: the kernel writes at most the buffer's length.
            let got = unsafe {
                libc::syscall(
                    libc::SYS_recvfrom,
                    self.descriptor.number(),
                    answers.as_mut_ptr(),
                    answers.len(),
                    flags,
                    core::ptr::null::<u8>(),
                    core::ptr::null::<u8>(),
                )
            };
            if got == answers.len() as i64 {
                return Ok(true);
            }
            if got >= 0 {
                return Err(RegisterError::Closed(io::ErrorKind::UnexpectedEof.into()));
            }
            match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EINTR) => {}
                error if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(false),
                error => return Err(RegisterError::Closed(error)),
            }
        }
    }

    /// Waits for an answer, but no longer than `limit`. Returns whether there is one.
    pub(crate) fn readable_within(&self, limit: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.descriptor.number(), events: libc::POLLIN, revents: 0 };
        let limit = timespec(limit);
        // SAFETY: one entry, which the kernel reads and writes, and a time, which it reads; no signal mask.
        let ready = unsafe {
            libc::syscall(libc::SYS_ppoll, &raw mut poll, 1, &raw const limit, core::ptr::null::<u8>(), 0)
        };
        ready > 0
    }
}

/// Encodes a request as it is sent.
pub(crate) fn words(words: [u32; 3]) -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    for (bytes, word) in request.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    request
}

fn several_processors() -> bool {
    static SEVERAL: OnceLock<bool> = OnceLock::new();
    *SEVERAL.get_or_init(|| processors() > 1)
}

/// Returns whether a failed send should be tried again.
fn again(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}

/// Connects to the socket at `path`.
fn connect(path: &Path) -> io::Result<Descriptor> {
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::ffi::OsStrExt;

    // A path that is too long for an address is reached through its directory's descriptor.
    let mut name = path.to_owned();
    let folder = if path.as_os_str().len() >= SUN_PATH {
        let parent = path.parent().unwrap_or(Path::new("/"));
        let folder = std::fs::File::open(parent)?;
        name = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        name.push(path.file_name().unwrap_or_default());
        Some(folder)
    } else {
        None
    };

    // SAFETY: makes a descriptor; no memory is involved.
    let number = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the number was made just now and belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };

    let mut address =
        libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; SUN_PATH] };
    let bytes = name.as_os_str().as_bytes();
    if bytes.len() >= SUN_PATH {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    loop {
        // SAFETY: the address is a whole `sockaddr_un` that ends in a zero.
        let connected = unsafe {
            libc::connect(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_un>() as libc::socklen_t,
            )
        };
        if connected == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
    drop(folder);

    // SAFETY: the kernel reads one `timeval`.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const PATIENCE).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        )
    };
    if set != 0 {
        return Err(io::Error::last_os_error());
    }
    Descriptor::adopt(socket)
}
