//! Registers of the simulated bus: `resource0` is a UNIX `SOCK_SEQPACKET` socket.
//!
//! The packets are those of [`vgpu_wire::sim_bus`]. Several accesses in one packet cost one wake-up of the device. One
//! connection serves a process. Packets may be sent ahead of their answers: a doorbell is not waited for.
//!
//! The socket is connected when it is first needed: registers that have no side effects are read from a file beside
//! it ([`crate::page`]).
//!
//! System calls here are raw: the C library's `recv` is a cancellation point, and a thread that the host program
//! cancels must not unwind out of these frames.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use vgpu_wire::pci::PciAddress;
use vgpu_wire::sim_bus::{self, ANSWER_BYTES, BATCH, BLOCK, REQUEST_BYTES};

use crate::descriptor::Descriptor;
use crate::log_hook::{Notice, tell};
use crate::page::{Page, Values};
use crate::registers::{Access, DataBar, RegisterError, Registers, check_home};
use crate::sleep::{processors, timespec};

/// Doorbells whose answers have not been taken from the socket yet.
const OWED_MAX: u32 = 16;
/// How long to look for an answer before sleeping: an attach, which makes a thread, takes less.
const LOOK: Duration = Duration::from_micros(150);
/// How long `recv` waits at a time; then the silence is told of, and it waits on.
static PATIENCE: libc::timeval = libc::timeval { tv_sec: 1, tv_usec: 0 };
/// How much of a socket's path fits into its address, with the zero.
const SUN_PATH: usize = 108;

/// The connection to a simulated device's registers.
#[derive(Debug)]
pub(crate) struct SimRegisters {
    function: PciAddress,
    path: PathBuf,
    page: Option<Page>,
    connection: Mutex<Option<Connection>>,
}

#[derive(Debug)]
struct Connection {
    descriptor: Descriptor,
    /// Answers that nobody waits for and that have not been received.
    owed: u32,
}

impl SimRegisters {
    /// The registers behind the socket at `path` whose page is open already.
    pub(crate) fn with_page(function: PciAddress, path: PathBuf, page: Page) -> Self {
        Self { function, path, page: Some(page), connection: Mutex::new(None) }
    }

    /// Those of a device that has no page: connects to the socket.
    pub(crate) fn connect(function: PciAddress, path: PathBuf) -> io::Result<Self> {
        let connection = Mutex::new(Some(Connection::new(&path)?));
        Ok(Self { function, path, page: None, connection })
    }

    /// A BAR without a page that is perhaps never used: connects at the first access.
    pub(crate) fn unconnected(function: PciAddress, path: PathBuf) -> Self {
        Self { function, path, page: None, connection: Mutex::new(None) }
    }

    /// Answers reads alone, from the page. False: the page has not got all of them, or there is none.
    fn read_page(&self, accesses: &[Access], values: &mut [u32]) -> Result<bool, RegisterError> {
        let on_page = |access: &Access| matches!(*access, Access::Read(offset) if Page::has(offset));
        let Some(page) = self.page.as_ref().filter(|_| accesses.iter().all(on_page)) else {
            return Ok(false);
        };
        let mut registers = Values::new();
        if !page.read(&mut registers).map_err(RegisterError::Closed)? {
            return Ok(false);
        }
        for (access, value) in accesses.iter().zip(values) {
            if let Access::Read(offset) = *access {
                *value = registers.at(offset);
            }
        }
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects, if this is the first time; anew, if the program has closed the descriptor or uses its number for something else.
    fn connected<'a>(
        &self,
        connection: &'a mut Option<Connection>,
    ) -> Result<&'a mut Connection, RegisterError> {
        if connection.as_ref().is_some_and(|connection| !connection.descriptor.intact()) {
            *connection = None;
            tell(&Notice::Reopened { function: self.function });
        }
        match connection {
            Some(connection) => Ok(connection),
            none => Ok(none.insert(Connection::new(&self.path).map_err(RegisterError::Closed)?)),
        }
    }
}

impl Registers for SimRegisters {
    fn access(&self, accesses: &[Access], values: &mut [u32]) -> Result<(), RegisterError> {
        check_home()?;
        debug_assert!(accesses.len() <= BATCH, "a batch fits the socket's buffers");
        if self.read_page(accesses, values)? {
            return Ok(());
        }
        let mut connection = self.lock();
        let connection = self.connected(&mut connection)?;
        connection.request(accesses)?;
        let mut doorbell = [0; ANSWER_BYTES];
        while connection.owed > 0 {
            connection.answer(self.function, &mut doorbell)?;
            connection.owed -= 1;
        }
        let mut answers = [0; BATCH * ANSWER_BYTES];
        let answers = &mut answers[..accesses.len() * ANSWER_BYTES];
        connection.answer(self.function, answers)?;
        let mut failed = None;
        for (result, answer) in values.iter_mut().zip(answers.chunks_exact(ANSWER_BYTES)) {
            let [status, value] = [0, 4]
                .map(|at| u32::from_le_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]]));
            match status {
                sim_bus::DONE => *result = value,
                status => failed = Some(status),
            }
        }
        failed.map_or(Ok(()), |status| Err(RegisterError::Refused(status)))
    }

    fn post(&self, offset: u32, value: u32, still: &dyn Fn() -> bool) -> Result<bool, RegisterError> {
        check_home()?;
        let mut connection = self.lock();
        // Whoever had the lock before may have done what is to be done.
        if !still() {
            return Ok(false);
        }
        let connection = self.connected(&mut connection)?;
        let mut answer = [0; ANSWER_BYTES];
        while connection.owed > 0 {
            if connection.owed >= OWED_MAX {
                connection.answer(self.function, &mut answer)?;
            } else if !connection.receive(&mut answer, libc::MSG_DONTWAIT)? {
                break;
            }
            connection.owed -= 1;
        }
        connection.request(&[Access::Write(offset, value)])?;
        connection.owed += 1;
        Ok(true)
    }

    fn write_within(&self, offset: u32, value: u32, limit: Duration) -> Result<(), RegisterError> {
        check_home()?;
        let end = Instant::now() + limit;
        let mut connection = loop {
            match self.connection.try_lock() {
                Ok(connection) => break connection,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                // Another thread waits for an answer that does not come.
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(RegisterError::TimedOut);
                }
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        };
        let connection = self.connected(&mut connection)?;
        connection.request(&[Access::Write(offset, value)])?;
        connection.owed += 1;
        let mut answer = [0; ANSWER_BYTES];
        while connection.owed > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if !connection.readable_within(left) {
                return Err(RegisterError::TimedOut);
            }
            if connection.receive(&mut answer, libc::MSG_DONTWAIT)? {
                connection.owed -= 1;
            }
        }
        Ok(())
    }
}

/// A data BAR that is behind a socket of the same kind: runs of accesses go in blocks.
impl DataBar for SimRegisters {
    fn write(&self, offset: u32, data: &[u8]) -> Result<(), RegisterError> {
        check_home()?;
        let mut connection = self.lock();
        let connection = self.connected(&mut connection)?;
        let mut answer = [0; ANSWER_BYTES];
        for (block, at) in data.chunks(BLOCK).zip((offset..).step_by(BLOCK)) {
            let mut packet = words([sim_bus::WRITE_BLOCK, at, block.len() as u32]).to_vec();
            packet.extend_from_slice(block);
            connection.send(&packet)?;
            connection.answer(self.function, &mut answer)?;
            succeeded(&answer)?;
        }
        Ok(())
    }

    fn read(&self, offset: u32, data: &mut [u8]) -> Result<(), RegisterError> {
        check_home()?;
        let mut connection = self.lock();
        let connection = self.connected(&mut connection)?;
        let mut answer = vec![0; ANSWER_BYTES + data.len().min(BLOCK)];
        for (block, at) in data.chunks_mut(BLOCK).zip((offset..).step_by(BLOCK)) {
            let answer = &mut answer[..ANSWER_BYTES + block.len()];
            connection.send(&words([sim_bus::READ_BLOCK, at, block.len() as u32]))?;
            connection.answer(self.function, answer)?;
            succeeded(answer)?;
            block.copy_from_slice(&answer[ANSWER_BYTES..]);
        }
        Ok(())
    }
}

/// What the first word of an answer says.
fn succeeded(answer: &[u8]) -> Result<(), RegisterError> {
    match u32::from_le_bytes([answer[0], answer[1], answer[2], answer[3]]) {
        sim_bus::DONE => Ok(()),
        status => Err(RegisterError::Refused(status)),
    }
}

impl Connection {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { descriptor: connect(path)?, owed: 0 })
    }

    /// Sends a packet of requests.
    fn request(&self, accesses: &[Access]) -> Result<(), RegisterError> {
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

    fn send(&self, packet: &[u8]) -> Result<(), RegisterError> {
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

    /// Receives a packet of answers, however long it takes: looks for it for a while, then sleeps.
    fn answer(&self, function: PciAddress, answers: &mut [u8]) -> Result<(), RegisterError> {
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
                    tell(&Notice::Back { function, waited: since.elapsed() });
                }
                return Ok(());
            }
            match silent {
                None => {
                    let now = Instant::now();
                    let since = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
                    tell(&Notice::Silent { function, waited: now - since });
                    silent = Some(since);
                }
                Some(since) if since.elapsed().as_secs().is_multiple_of(60) => {
                    tell(&Notice::Silent { function, waited: since.elapsed() });
                }
                Some(_) => {}
            }
        }
    }

    /// One packet of answers; false where none came in the time that flags and socket allow.
    fn receive(&self, answers: &mut [u8], flags: libc::c_int) -> Result<bool, RegisterError> {
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

    /// Waits for an answer, but no longer than `limit`.
    fn readable_within(&self, limit: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.descriptor.number(), events: libc::POLLIN, revents: 0 };
        let limit = timespec(limit);
        // SAFETY: one entry, which the kernel reads and writes, and a time, which it reads; no signal mask.
        let ready = unsafe {
            libc::syscall(libc::SYS_ppoll, &raw mut poll, 1, &raw const limit, core::ptr::null::<u8>(), 0)
        };
        ready > 0
    }
}

/// A request as it travels.
fn words(words: [u32; 3]) -> [u8; REQUEST_BYTES] {
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

/// Whether a send is to be tried again.
fn again(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}

/// Connects to the socket at `path`.
fn connect(path: &Path) -> io::Result<Descriptor> {
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::ffi::OsStrExt;

    // A path too long for an address is reached through its folder's descriptor.
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
