//! A session: what libcuda sees of the transport.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use vgpu_wire::area::{STAGING, WORDS};
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::{Counters, Kind, Payload, RoundTrip};

use crate::addresses::{self, AddressRefusal, Reservation};
use crate::attach;
use crate::attach_error::AttachError;
use crate::copies;
use crate::detach::detach;
use crate::device::Device;
use crate::explanation::Explanation;
use crate::fork::forked;
use crate::log_hook::{Notice, notify};
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::outgoing::{Outgoing, Tail};
use crate::replies::Answer;
use crate::return_path::{self, ReturnPath};
use crate::session_core::SessionCore;
use crate::session_error::{LateError, SessionError};
use crate::sysfs::PciFunction;
use crate::window_memory::WindowMemory;
use crate::word::Word;

/// One process's attachment to a device. Any number of threads may use it; messages are sent in the order of
/// the calls. Dropping it closes it, and so does the end of the process, however it comes.
#[derive(Debug)]
pub struct Session {
    function: PciFunction,
    facts: Box<DeviceFacts>,
    /// Set when the session is attached.
    core: OnceLock<Arc<SessionCore>>,
    /// Locked while the session attaches.
    before: Mutex<Before>,
    closed: AtomicBool,
}

/// The state before [`Session::core`] is set.
#[derive(Debug)]
enum Before {
    /// The opened device; the first message attaches.
    Opened(Box<Device>),
    /// The session is attached, or never will be.
    Over(SessionError),
}

impl Session {
    /// Opens a session: compares version and message table, locks a channel, attaches, and greets. Frees the
    /// channels of dead processes that it meets.
    ///
    /// # Errors
    /// Why there is no session. An error about versions names both sides.
    pub fn attach(device: Device) -> Result<Self, AttachError> {
        let function = device.function().clone();
        let (core, facts) = attach::attach(device)?;
        let facts = Box::new(facts);
        let before = Mutex::new(Before::Over(SessionError::Closed));
        Ok(Self { function, facts, core: OnceLock::from(core), before, closed: AtomicBool::new(false) })
    }

    /// Starts a session that attaches with its first message: a process that only reads facts and free memory
    /// needs no channel. Compares version and message table.
    ///
    /// # Errors
    /// The device is another build's, not ready, or has no facts. An attach that fails later is
    /// [`SessionError::NotAttached`].
    pub fn open(device: Device) -> Result<Self, AttachError> {
        attach::compare(&device)?;
        let facts = device.facts().map_err(|error| match error {
            OpenError::NoFacts { .. } => AttachError::Strange("its facts are empty"),
            error => AttachError::Open(error),
        })?;
        let function = device.function().clone();
        let before = Mutex::new(Before::Opened(Box::new(device)));
        Ok(Self { function, facts, core: OnceLock::new(), before, closed: AtomicBool::new(false) })
    }

    /// The attached session. The first call attaches.
    #[inline]
    fn core(&self) -> Result<&Arc<SessionCore>, SessionError> {
        self.core.get().map_or_else(|| self.attach_now(), Ok)
    }

    #[cold]
    fn attach_now(&self) -> Result<&Arc<SessionCore>, SessionError> {
        if forked() {
            return Err(SessionError::Forked);
        }
        let mut before = lock(&self.before);
        if let Some(core) = self.core.get() {
            return Ok(core);
        }
        match std::mem::replace(&mut *before, Before::Over(SessionError::Closed)) {
            Before::Opened(device) => match attach::attach(*device) {
                Ok((core, _)) => Ok(self.core.get_or_init(|| core)),
                Err(error) => {
                    let lost = error.into_lost();
                    notify(&Notice::Lost { function: self.function.address, lost });
                    *before = Before::Over(lost);
                    Err(lost)
                }
            },
            Before::Over(lost) => {
                *before = Before::Over(lost);
                Err(lost)
            }
        }
    }

    /// Free device memory in bytes, rounded down to MiB, without attaching. What dead processes held is freed
    /// first. `None`: the session is attached, and a message can ask the device.
    ///
    /// # Errors
    /// The device is gone.
    pub fn free_memory(&self) -> Result<Option<u64>, SessionError> {
        if forked() {
            return Err(SessionError::Forked);
        }
        match &*lock(&self.before) {
            Before::Opened(device) => attach::free_memory(device).map(Some),
            Before::Over(_) if self.core.get().is_some() => Ok(None),
            Before::Over(lost) => Err(*lost),
        }
    }

    /// What the device says of itself.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// The function behind the session.
    pub fn function(&self) -> &PciFunction {
        &self.function
    }

    /// Reserves the pages of device memory that lies outside of the range that the function announces, so
    /// that nothing of the program can lie there while the returned value lives.
    ///
    /// # Errors
    /// Something of the process, or of another function, lies there.
    pub fn reserve_outside(&self, start: u64, bytes: u64) -> Result<Reservation, AddressRefusal> {
        addresses::reserve_outside(self.function.address, start, bytes)
    }

    /// The session's number, as the device's status shows it; 0 before it attaches.
    pub fn number(&self) -> u32 {
        self.core.get().map_or(0, |core| core.link().number)
    }

    /// Index of the channel; 0 before the session attaches.
    pub fn channel(&self) -> u32 {
        self.core.get().map_or(0, |core| core.link().index)
    }

    /// Sends a message that is not answered. The pieces of `tail` follow the body, and must be as long in all
    /// as the body states. Returns the message's number, to be compared with [`Session::done`] and
    /// [`LateError::message`].
    ///
    /// # Errors
    /// [`SessionError::Misuse`] if the message is longer than `area::MESSAGE_MAX`; otherwise the session is
    /// lost.
    #[inline]
    pub fn send<P: Payload>(&self, body: &P, tail: &[&[u8]]) -> Result<u64, SessionError> {
        self.core()?.messenger.send(&Outgoing::new(body, Tail::Pieces(tail)))
    }

    /// Sends a message and waits for its answer. The data is copied to `reply`, cut to its length.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub fn call<P: RoundTrip>(
        &self,
        body: P,
        tail: &[&[u8]],
        reply: &mut [u8],
    ) -> Result<Answer, SessionError> {
        self.core()?.messenger.call(body, Tail::Pieces(tail), reply)
    }

    /// Orders all work sent after this call after the work that `stream` has so far ([`vgpu_wire::JOIN_ALL`]:
    /// every stream). Sends nothing: the join rides on the next message, whichever thread sends it.
    pub fn join(&self, stream: u32) {
        if let Some(core) = self.core.get() {
            core.messenger.join(stream);
        }
    }

    /// Takes a completion word. `None`: all have owners, or the session is lost.
    pub fn word(&self) -> Option<Word> {
        Word::new(Arc::clone(self.core().ok()?))
    }

    /// The newest value that a word has reached; 0 for a word that does not exist. A loop that polls it must
    /// also call [`Session::check`].
    #[inline]
    pub fn word_value(&self, word: u32) -> u64 {
        self.attached_here().filter(|_| word < WORDS).map_or(0, |core| core.link().channel.value(word))
    }

    /// Time on the executor's clock, in nanoseconds, at which the word reached its newest value.
    pub fn word_time(&self, word: u32) -> u64 {
        self.attached_here().filter(|_| word < WORDS).map_or(0, |core| core.link().channel.time(word))
    }

    /// Waits until the word has reached the value: spins for a while, then sleeps. Word 0 is always there.
    ///
    /// # Errors
    /// The session is lost, which is noticed within a second; or [`SessionError::Ended`] if a sticky error
    /// came before the value did.
    pub fn wait(&self, word: u32, value: u64) -> Result<(), SessionError> {
        let core = self.core()?;
        core.fences.wait(core.link(), word, value)
    }

    /// Checks whether the session still stands. Costs a few loads most of the time; examines the device at
    /// most every 0.4 s. For callers that poll a word, such as `cuEventQuery`, when the word has not reached
    /// the value yet.
    ///
    /// # Errors
    /// The session is lost, or a sticky error is there.
    pub fn check(&self) -> Result<(), SessionError> {
        let Some(core) = self.core.get() else {
            return match &*lock(&self.before) {
                Before::Over(lost) if self.core.get().is_none() => Err(*lost),
                _ => Ok(()),
            };
        };
        let link = core.link();
        link.enter()?;
        link.broken()?;
        link.ping()
    }

    /// The newest error that the host reported late, if it is to be reported to this caller. An error that is
    /// not sticky is returned once, to one caller; a sticky one every time. A lost session is a sticky error
    /// too.
    #[inline]
    pub fn late_error(&self) -> Option<LateError> {
        let core = self.core.get()?;
        core.late_errors.next(core.link())
    }

    /// Why the work of a late error failed, if the host says so.
    #[cold]
    pub fn explain(&self, error: &LateError) -> Option<Explanation> {
        let core = self.core.get()?;
        Explanation::read(&core.link().channel, error.message)
    }

    /// Tells the tracer of `vgpu-run trace`, if it is in this process, by which number the host knows a
    /// kernel.
    #[cold]
    pub fn trace_kernel(&self, function: u32, name: impl FnOnce() -> String) {
        if let Some(core) = self.core.get() {
            core.link().tracer.kernel(function, name);
        }
    }

    /// Number of messages that the host has executed.
    pub fn done(&self) -> u64 {
        self.attached_here().map_or(0, |core| core.link().channel.done())
    }

    /// Copies from process memory to the device in the order of `stream`. Returns when the source may be
    /// changed or freed. Synchronizes nothing else.
    ///
    /// # Safety
    /// `source` is readable for `bytes`.
    ///
    /// # Errors
    /// The session is lost.
    pub unsafe fn copy_in(
        &self,
        stream: u32,
        destination: u64,
        source: *const u8,
        bytes: usize,
    ) -> Result<(), SessionError> {
        // SAFETY: the caller promises the same of the memory.
        unsafe { copies::upload(self.core()?, stream, destination, source, bytes) }
    }

    /// Copies from the device to process memory, ordered after the earlier work of `stream`. Returns when the
    /// data is there.
    ///
    /// # Safety
    /// `destination` is writable for `bytes` and nobody else uses it meanwhile.
    ///
    /// # Errors
    /// The session is lost.
    pub unsafe fn copy_out(
        &self,
        stream: u32,
        source: u64,
        destination: *mut u8,
        bytes: usize,
    ) -> Result<(), SessionError> {
        // SAFETY: the caller promises the same of the memory.
        unsafe { copies::download(self.core()?, stream, source, destination, bytes) }
    }

    /// Size in bytes of the guest pages that carry payload to a device behind a bridge. `Some(None)`: a BAR
    /// carries it, with an exit of the virtual machine for each 8 bytes. `None`: the device is of version 2,
    /// or the session is not attached.
    pub fn payload_pages(&self) -> Option<Option<u32>> {
        self.attached_here()?.bridge.as_ref().map(|bridge| bridge.payload_pages())
    }

    /// The session's return path. `None`: it is not attached, or the device is of version 1
    /// ([`Session::payload_pages`]).
    pub fn reading(&self) -> Option<ReturnPath> {
        let core = self.attached_here().filter(|core| core.bridge.is_none())?;
        let mut path = core.return_path;
        if let Some(pages) = core.pages.segment() {
            path.page_bytes = pages.mapping.bytes();
        }
        Some(path)
    }

    /// Whether reads from the window are fast enough to hand window memory to the program: a BAR may be a
    /// hundred times slower than memory. Measured on first use, in less than a millisecond.
    ///
    /// # Errors
    /// The session is lost.
    pub fn window_reads_well(&self) -> Result<bool, SessionError> {
        let core = self.core()?;
        let staging = core.area + STAGING;
        Ok(*core.reads_well.get_or_init(|| return_path::reads_well(&core.link().window, staging)))
    }

    /// Takes window memory, for pinned host memory. `None`: there is no room, even after the share of dead
    /// processes was reclaimed.
    ///
    /// # Errors
    /// The session is lost.
    pub fn window_alloc(&self, bytes: u64) -> Result<Option<WindowMemory>, SessionError> {
        WindowMemory::new(Arc::clone(self.core()?), bytes)
    }

    /// Detaches the channels of dead processes, and returns how many. To be called when an allocation finds
    /// no room, before it is tried once more.
    ///
    /// # Errors
    /// The session is lost.
    pub fn reclaim(&self) -> Result<u32, SessionError> {
        let core = self.core()?;
        core.reclaimer.reclaim(core.link())
    }

    /// The attached session, in the process that attached it.
    #[inline]
    fn attached_here(&self) -> Option<&Arc<SessionCore>> {
        self.core.get().filter(|core| !core.link().in_forked_child())
    }

    /// The counters as they are now.
    pub fn counters(&self) -> Counters {
        self.core.get().map_or_else(Counters::default, |core| core.link().counters.read())
    }

    /// Number of messages of each kind that were written. Kinds without any are left out.
    pub fn kinds(&self) -> Vec<(Kind, u64)> {
        self.core.get().map_or_else(Vec::new, |core| core.link().counters.kinds().collect())
    }

    /// Ends the session: the host frees everything that it holds. Never blocks for long, whatever other
    /// threads do; their calls return [`SessionError::Closed`]. Window memory stays readable and writable,
    /// but is empty and private to the process from here on. Does nothing in a forked child, and nothing the
    /// second time.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            if let Some(core) = self.core.get() {
                detach(core);
            } else if let Ok(mut before) = self.before.try_lock() {
                // The thread that holds the lock is attaching; its channel is freed when the process ends.
                *before = Before::Over(SessionError::Closed);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}
