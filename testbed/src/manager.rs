//! A play of the service manager, as far as a service sees it: it hears notifications, keeps descriptors, and
//! passes them to the next process of the service.
//!
//! Descriptors have to have certain numbers in the service, 3 and those that follow. A process of the test bed
//! ([`start_service`]) receives them through its standard input, when it has no others, and executes the
//! service.

use std::ffi::OsString;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::bed::PATIENCE;

/// Message of this process to itself, which tells that all messages before it were heard.
const BARRIER: &[u8] = b"BARRIER";
/// Maximum number of descriptors in a message.
const FILES: usize = 253;
/// Command of the test bed that becomes the service.
pub const START: &str = "__start-service";

/// What has been heard.
#[derive(Debug, Default)]
struct Heard {
    ready: u64,
    barriers: u64,
    /// Messages that are none of the protocol.
    strange: Vec<String>,
    kept: Vec<(String, OwnedFd)>,
}

/// A manager with a store of a bounded number of descriptors.
#[derive(Debug)]
pub struct Manager {
    /// Sends barriers.
    own: UnixDatagram,
    heard: Arc<(Mutex<Heard>, Condvar)>,
}

impl Manager {
    /// Listens at `path`, and keeps at most `most` descriptors.
    ///
    /// # Errors
    /// Fails if it cannot listen.
    pub fn start(path: &Path, most: usize) -> Result<Self> {
        let socket = UnixDatagram::bind(path).context("listen for notifications")?;
        let own = UnixDatagram::unbound()?;
        own.connect(path)?;
        let heard = Arc::<(Mutex<Heard>, Condvar)>::default();
        let shared = Arc::clone(&heard);
        std::thread::spawn(move || {
            // It ends with the test's process.
            while let Ok((message, files)) = receive(&socket) {
                let mut heard = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                heard.hear(&message, files, most);
                shared.1.notify_all();
            }
        });
        Ok(Self { own, heard })
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` holds. `alive` is asked now and then whether there is something to wait for.
    fn wait(&self, done: impl Fn(&Heard) -> bool, mut alive: impl FnMut() -> Result<()>) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        let mut heard = self.heard();
        while !done(&heard) {
            let wait = self.heard.1.wait_timeout(heard, std::time::Duration::from_millis(50));
            heard = wait.unwrap_or_else(PoisonError::into_inner).0;
            alive()?;
            ensure!(Instant::now() < end, "the service said nothing within {PATIENCE:?}");
        }
        ensure!(heard.strange.is_empty(), "the service said {:?}", heard.strange);
        Ok(())
    }

    /// Returns the number of times that a process has become ready.
    #[must_use]
    pub fn readies(&self) -> u64 {
        self.heard().ready
    }

    /// Waits until a process has become ready after `before` others.
    ///
    /// # Errors
    /// Fails if `alive` does, or if none is ready in time.
    pub fn wait_ready(&self, before: u64, alive: impl FnMut() -> Result<()>) -> Result<()> {
        self.wait(|heard| heard.ready > before, alive)
    }

    /// Waits until everything has been heard that was said before.
    ///
    /// # Errors
    /// Fails if something strange was said.
    pub fn catch_up(&self) -> Result<()> {
        let before = self.heard().barriers;
        self.own.send(BARRIER)?;
        self.wait(|heard| heard.barriers > before, || Ok(()))
    }

    /// Closes everything that is kept, as a manager without a store has nothing.
    pub fn forget(&self) {
        self.heard().kept.clear();
    }

    /// Returns the names of the descriptors that are kept, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.heard().kept.iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// Returns a copy of the descriptor of a name.
    ///
    /// # Errors
    /// Fails if none is kept.
    pub fn kept(&self, name: &str) -> Result<OwnedFd> {
        let heard = self.heard();
        let found = heard.kept.iter().find(|(known, _)| known == name).context("it is not kept")?;
        Ok(found.1.try_clone()?)
    }

    /// Returns the standard input with which [`start_service`] starts a process of the service.
    ///
    /// # Errors
    /// Fails if it cannot be made.
    pub fn pass(&self) -> Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        let heard = self.heard();
        let names: Vec<&str> = heard.kept.iter().map(|(name, _)| name.as_str()).collect();
        let files: Vec<BorrowedFd<'_>> = heard.kept.iter().map(|(_, file)| file.as_fd()).collect();
        let text = names.join(":") + "\n";
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            ensure!(control.push(SendAncillaryMessage::ScmRights(&files)), "too many descriptors");
        }
        sendmsg(&ours, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
        Ok(theirs.into())
    }
}

impl Heard {
    /// Does what a message asks for, as systemd does.
    fn hear(&mut self, message: &[u8], files: Vec<OwnedFd>, most: usize) {
        if message == BARRIER {
            self.barriers += 1;
            return;
        }
        let text = String::from_utf8_lossy(message);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let name = field("FDNAME").unwrap_or("stored").to_owned();
        if field("READY") == Some("1") {
            self.ready += 1;
        } else if field("FDSTOREREMOVE") == Some("1") {
            self.kept.retain(|(known, _)| *known != name);
        } else if field("FDSTORE") == Some("1") && field("FDPOLL") == Some("0") && files.len() == 1 {
            if self.kept.len() < most {
                self.kept.extend(files.into_iter().map(|file| (name.clone(), file)));
            }
        } else {
            self.strange.push(text.into_owned());
        }
    }
}

/// Receives a message with its descriptors.
fn receive(socket: &impl std::os::fd::AsFd) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    receive_with(socket, RecvFlags::CMSG_CLOEXEC)
}

fn receive_with(socket: &impl std::os::fd::AsFd, flags: RecvFlags) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 32 << 10];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let read = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    bytes.truncate(read.bytes);
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    Ok((bytes, files))
}

/// Becomes a process of a service, with the descriptors that standard input passes. `words` are its program and
/// arguments.
///
/// # Errors
/// Fails if it cannot be executed.
pub fn start_service(words: &[OsString]) -> Result<std::convert::Infallible> {
    // They are inherited, and so have the lowest numbers that are free.
    let (names, files) = receive_with(&std::io::stdin(), RecvFlags::empty())?;
    let names = String::from_utf8(names)?;
    for (number, file) in (3..).zip(&files) {
        let has = std::os::fd::AsRawFd::as_raw_fd(file);
        ensure!(has == number, "descriptor {number} of the service would be {has}");
    }
    let Some((program, arguments)) = words.split_first() else { bail!("no program is given") };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    if !files.is_empty() {
        command.env("LISTEN_PID", std::process::id().to_string());
        command.env("LISTEN_FDS", files.len().to_string());
        command.env("LISTEN_FDNAMES", names.trim_end());
    }
    Err(command.exec()).context("execute the service")
}
