//! An executor whose functions inspect its own process, hang, panic or send invalid packets, as the tests
//! request. The null executor does everything else.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    getsockname, listen, send, socket, socketpair,
};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};
use vgpu_device::{Executor, ExecutorError, Session, SessionError, SessionHost, Work};
use vgpu_executor_null::Null;
use vgpu_wire::body::module::OccupancyReply;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::{Body, Mark};
use zerocopy::IntoBytes;

/// Number of the function that hangs until its session ends. The functions below have special effects too.
pub const HANG: u32 = 1000;
/// Function that hangs without checking whether the session ends.
pub const HANG_FOR_EVER: u32 = 1001;
/// Completion word that this function sets to 1 once nothing stops it any more.
pub const HANGING: u32 = 8;
pub const PANIC: u32 = 1002;
/// Function that returns when the newest hold is released, as a call of NVIDIA's driver may.
pub const WAIT_FOR_RELEASE: u32 = 1008;
/// Function that sends a packet of an unknown kind.
pub const RUBBISH_KIND: u32 = 1003;
/// Function that sends a packet that is too long.
pub const RUBBISH_LENGTH: u32 = 1004;
/// Function that reports memory as released that was not retired.
pub const RUBBISH_MEMORY: u32 = 1005;
/// Function that reports the end at a message that was never sent.
pub const RUBBISH_NUMBER: u32 = 1006;

/// Function that sends reports until its session ends.
pub const FLOOD: u32 = 1009;

/// Number of the first function that makes a system call and returns its error as the occupancy, or 0 if
/// there is none.
pub const SOCKET_INET: u32 = 2000;
pub const EXEC: u32 = 2002;
pub const KILL_PARENT: u32 = 2003;
pub const UNSHARE: u32 = 2004;
/// Function that sends signal 0 to itself and starts a thread, which must both work.
pub const KILL_SELF: u32 = 2005;
pub const THREAD: u32 = 2006;
/// Function that opens and reads a device file, as driver libraries do.
pub const OPEN_DEVICE: u32 = 2007;
/// Function that queries its own limit of open files.
pub const OWN_LIMITS: u32 = 2008;
/// Function that counts descriptors of files below /etc.
pub const FOREIGN_FILES: u32 = 2009;
/// Function that connects to a UNIX socket that listens.
pub const CONNECT_UNIX: u32 = 2010;
/// Function that binds an abstract name, as NVIDIA's driver does when it starts, and listens.
pub const LISTEN_UNIX: u32 = 2011;
/// Function that stores a file where the driver caches compiled code, and returns [`NOT_KEPT`] if the cache
/// is disabled.
pub const KEEP_COMPILED: u32 = 2012;
pub const NOT_KEPT: u32 = 9999;
/// Function that accepts a connection of such a socket.
pub const ACCEPT_UNIX: u32 = 2013;
/// Function that makes sockets that could send without a connection, alone and in pairs, and returns those
/// that could be made.
pub const DATAGRAMS: u32 = 2014;
/// Function that names a thread by its file in `/proc`, and makes a file in memory, as the driver does when
/// it starts.
pub const NAME_THREAD: u32 = 2015;
pub const MEMORY_FILE: u32 = 2016;

#[derive(Debug)]
pub struct Probe(Null);

impl Probe {
    pub const fn new(null: Null) -> Self {
        Self(null)
    }
}

impl Executor for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn facts(&self) -> DeviceFacts {
        self.0.facts()
    }

    fn allocated(&self) -> u64 {
        self.0.allocated()
    }

    fn open(&self, host: SessionHost) -> Result<Box<dyn Session>, ExecutorError> {
        Ok(Box::new(ProbeSession { inner: self.0.open(host.clone())?, host, held: 0 }))
    }
}

struct ProbeSession {
    inner: Box<dyn Session>,
    host: SessionHost,
    /// Number of the newest hold.
    held: u32,
}

/// Sends a packet to the device's process that no worker sends.
fn say(kind: u32, number: u64, text: &[u8]) {
    let mut packet = kind.to_le_bytes().to_vec();
    packet.extend_from_slice(&(text.len() as u32).to_le_bytes());
    packet.extend_from_slice(&number.to_le_bytes());
    packet.extend_from_slice(text);
    send(io::stdin().as_fd(), &packet, SendFlags::NOSIGNAL).expect("the socket");
}

fn errno(result: Result<(), Errno>) -> u32 {
    result.map_or_else(|error| error.raw_os_error().cast_unsigned(), |()| 0)
}

fn os_error(result: io::Result<()>) -> u32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1).cast_unsigned(), |()| 0)
}

/// Makes a socket that listens at an abstract name with this process's number.
fn listen_abstract(name: &str) -> Result<OwnedFd, Errno> {
    let name = format!("{name}-{}", getpid().as_raw_nonzero());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
    bind(&socket, &address)?;
    listen(&socket, 8)?;
    Ok(socket)
}

fn probe_system_call(function: u32) -> u32 {
    match function {
        SOCKET_INET => errno(socket(AddressFamily::INET, SocketType::STREAM, None).map(drop)),
        EXEC => os_error(Command::new("/bin/true").status().map(drop)),
        KILL_PARENT => errno(kill_process(getppid().unwrap_or(Pid::INIT), Signal::CONT)),
        UNSHARE => errno(rustix::thread::move_into_link_name_space(io::stdin().as_fd(), None)),
        KILL_SELF => errno(rustix::process::test_kill_process(getpid())),
        THREAD => {
            os_error(thread::Builder::new().spawn(|| ()).map(|thread| thread.join().expect("a thread")))
        }
        OWN_LIMITS => {
            let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
            u32::from(files.current == Some(0))
        }
        FOREIGN_FILES => {
            let files = std::fs::read_dir("/proc/self/fd").expect("descriptors");
            let names = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
            names.filter(|name| name.starts_with("/etc")).count() as u32
        }
        CONNECT_UNIX => {
            let listening = listen_abstract("connecting").expect("a socket that listens");
            let address = getsockname(&listening).expect("its address");
            let own = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
            errno(connect(&own, &address))
        }
        LISTEN_UNIX => errno(listen_abstract("cuda-uvmfd").map(drop)),
        ACCEPT_UNIX => {
            let socket = listen_abstract("accepting").expect("a socket that listens");
            errno(accept_with(&socket, SocketFlags::NONBLOCK).map(drop))
        }
        DATAGRAMS => {
            let kinds = [SocketType::DGRAM, SocketType::RAW];
            let alone = kinds.iter().filter(|&&kind| socket(AddressFamily::UNIX, kind, None).is_ok());
            let (family, flags) = (AddressFamily::UNIX, SocketFlags::empty());
            let pairs = kinds.iter().filter(|&&kind| socketpair(family, kind, flags, None).is_ok());
            (alone.count() + pairs.count()) as u32
        }
        NAME_THREAD => {
            let thread = rustix::thread::gettid().as_raw_nonzero();
            os_error(std::fs::write(format!("/proc/self/task/{thread}/comm"), "probe"))
        }
        MEMORY_FILE => errno(rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC).map(drop)),
        KEEP_COMPILED => match std::env::var_os("CUDA_CACHE_PATH") {
            Some(directory) => os_error(std::fs::write(Path::new(&directory).join("kernel"), "code")),
            None if std::env::var_os("CUDA_CACHE_DISABLE").is_some_and(|value| value == "1") => NOT_KEPT,
            None => u32::MAX,
        },
        OPEN_DEVICE => os_error(std::fs::File::open("/dev/null").map(drop)),
        _ => u32::MAX,
    }
}

impl Session for ProbeSession {
    fn execute(&mut self, work: &Work<'_>) -> Result<(), SessionError> {
        match &work.message.body {
            Body::Launch(body) => match body.function {
                HANG => {
                    while !self.host.stopping() {
                        thread::yield_now();
                    }
                }
                FLOOD => {
                    while !self.host.stopping() {
                        say(5, 0, &[]);
                    }
                }
                HANG_FOR_EVER => {
                    self.host.signal(&Mark::new(HANGING, 1));
                    loop {
                        thread::park();
                    }
                }
                PANIC => panic!("the probe was told to"),
                WAIT_FOR_RELEASE => {
                    let (area, offset) = self.host.release_word();
                    let word = std::ptr::with_exposed_provenance_mut::<u32>(area.address() + offset as usize);
                    // SAFETY: the word is aligned and mapped while `area` lives, and everybody accesses it by
                    // atomics.
                    let word = unsafe { AtomicU32::from_ptr(word) };
                    while word.load(Ordering::Acquire) < self.held {
                        thread::yield_now();
                    }
                }
                RUBBISH_KIND => say(77, 0, &[]),
                RUBBISH_LENGTH => say(4, 0, &[b'x'; 4000]),
                RUBBISH_MEMORY => say(2, 5, &[]),
                RUBBISH_NUMBER => say(3, work.number + 1_000_000, b"never"),
                _ => return self.inner.execute(work),
            },
            Body::StreamHold(body) => {
                self.held = body.hold;
                return self.inner.execute(work);
            }
            Body::Occupancy(body) if body.function >= SOCKET_INET => {
                let reply = OccupancyReply { blocks: probe_system_call(body.function), reserved: 0 };
                if let Some(to) = work.reply_to() {
                    self.host.reply(to, 0, reply.as_bytes());
                }
            }
            _ => return self.inner.execute(work),
        }
        Ok(())
    }

    fn join(&mut self, stream: u32) -> Result<(), SessionError> {
        self.inner.join(stream)
    }
}
