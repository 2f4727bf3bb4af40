//! The session, which is the transport as libcuda sees it.

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

/// A process's attachment to a device. Any number of threads may use it; messages are sent in the order of
/// the calls. It is closed on drop, and by the end of the process, however that comes.
#[derive(Debug)]
pub struct Session {
    function: PciFunction,
    facts: Box<DeviceFacts>,
    /// State of the attached session, set by the attach.
    core: OnceLock<Arc<SessionCore>>,
    /// State before the attach. It is locked while the session attaches.
    before: Mutex<Before>,
    closed: AtomicBool,
}

/// State of a session before the attach, or after one that failed for good.
#[derive(Debug)]
enum Before {
    /// The device is open, and the first message attaches.
    Opened(Box<Device>),
    /// The session is attached, or the attach has failed for good.
    Over(SessionError),
}

impl Session {
    /// Opens a session: compares version and message table, locks a channel, attaches, and greets the host.
    /// Frees the channels of dead processes that it finds.
    ///
    /// # Errors
    /// Returns why there is no session. An error about versions names both sides.
    pub fn attach(device: Device) -> Result<Self, AttachError> {
        let function = device.function().clone();
        let (core, facts) = attach::attach(device)?;
        let facts = Box::new(facts);
        let before = Mutex::new(Before::Over(SessionError::Closed));
        Ok(Self { function, facts, core: OnceLock::from(core), before, closed: AtomicBool::new(false) })
    }

    /// Creates a session that attaches with its first message: a process that only reads facts and free
    /// memory needs no channel. Compares version and message table.
    ///
    /// # Errors
    /// Fails if the device has another version or table, is not ready, or has no facts. An attach that fails
    /// later is [`SessionError::NotAttached`].
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

    /// Returns the attached session. The first call attaches.
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

    /// Returns free device memory in bytes, rounded down to MiB, without attaching. The memory of dead
    /// processes is freed first. Returns `None` if the session is attached, because a message can ask the
    /// device then.
    ///
    /// # Errors
    /// Fails if the device is gone.
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

    /// Returns the device's facts.
    pub fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// Returns the function that the session is on.
    pub fn function(&self) -> &PciFunction {
        &self.function
    }

    /// Reserves the pages of device memory outside the range that the function announces, so that no memory
    /// of the program can be there while the returned value exists.
    ///
    /// # Errors
    /// Fails if memory of the process, or of another function, is there.
    pub fn reserve_outside(&self, start: u64, bytes: u64) -> Result<Reservation, AddressRefusal> {
        addresses::reserve_outside(self.function.address, start, bytes)
    }

    /// Returns the session's number, as the device's status shows it; 0 before it attaches.
    pub fn number(&self) -> u32 {
        self.core.get().map_or(0, |core| core.link().number)
    }

    /// Returns the index of the channel; 0 before the session attaches.
    pub fn channel(&self) -> u32 {
        self.core.get().map_or(0, |core| core.link().index)
    }

    /// Sends a message that is not answered. The pieces of `tail` follow the body; their total length must be
    /// the one that the body states. Returns the message's number, to be compared with [`Session::done`] and
    /// [`LateError::message`].
    ///
    /// # Errors
    /// Fails with [`SessionError::Misuse`] if the message is longer than `area::MESSAGE_MAX`; otherwise the
    /// session is lost.
    #[inline]
    pub fn send<P: Payload>(&self, body: &P, tail: &[&[u8]]) -> Result<u64, SessionError> {
        self.core()?.messenger.send(&Outgoing::new(body, Tail::Pieces(tail)))
    }

    /// Sends a message that is not answered, if the ring is less than half full and no other thread waits for
    /// room in it. Returns whether it was sent.
    ///
    /// # Errors
    /// Fails if the session is lost.
    pub fn try_send<P: Payload>(&self, body: &P, tail: &[&[u8]]) -> Result<bool, SessionError> {
        self.core()?.messenger.try_send(&Outgoing::new(body, Tail::Pieces(tail)))
    }

    /// Sends a message and waits for its reply. The data is copied to `reply`, truncated to its length.
    ///
    /// # Errors
    /// Fails as [`Session::send`] does.
    pub fn call<P: RoundTrip>(
        &self,
        body: P,
        tail: &[&[u8]],
        reply: &mut [u8],
    ) -> Result<Answer, SessionError> {
        self.core()?.messenger.call(body, Tail::Pieces(tail), reply)
    }

    /// Orders all work sent after this call after the work submitted to `stream` so far
    /// ([`vgpu_wire::JOIN_ALL`]: every stream). Sends nothing: the next message of any thread carries the
    /// join.
    pub fn join(&self, stream: u32) {
        if let Some(core) = self.core.get() {
            core.messenger.join(stream);
        }
    }

    /// Lets the streams continue that wait for holds up to this number, by storing it where the host's GPU
    /// may poll it. The caller releases holds in the order of their numbers and sends
    /// [`StreamRelease`](vgpu_wire::body::stream::StreamRelease) for each.
    pub fn release_holds(&self, hold: u32) {
        if let Some(core) = self.core.get()
            && core.link().enter().is_ok()
        {
            core.link().channel.set_released(hold);
        }
    }

    /// Takes a completion word. Returns `None` if all have owners, or the session is lost.
    pub fn word(&self) -> Option<Word> {
        Word::new(Arc::clone(self.core().ok()?))
    }

    /// Returns the newest value that a word has reached; 0 for a word that does not exist. A loop that polls
    /// it must also call [`Session::check`].
    #[inline]
    pub fn word_value(&self, word: u32) -> u64 {
        self.attached_here().filter(|_| word < WORDS).map_or(0, |core| core.link().channel.value(word))
    }

    /// Returns the time on the executor's clock, in nanoseconds, at which the word reached its newest value.
    pub fn word_time(&self, word: u32) -> u64 {
        self.attached_here().filter(|_| word < WORDS).map_or(0, |core| core.link().channel.time(word))
    }

    /// Waits until the word has reached the value: spins for a while, then sleeps. Word 0 has reached every
    /// value.
    ///
    /// # Errors
    /// Fails if the session is lost, which is noticed within a second, and with [`SessionError::Ended`] if a
    /// sticky error comes before the value.
    pub fn wait(&self, word: u32, value: u64) -> Result<(), SessionError> {
        let core = self.core()?;
        core.fences.wait(core.link(), word, value)
    }

    /// Checks whether the session still stands. Costs a few loads most of the time; examines the device at
    /// most every 0.4 s. For callers that poll a word, such as `cuEventQuery`, when the word has not reached
    /// the value yet.
    ///
    /// # Errors
    /// Fails if the session is lost, or after a sticky error.
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

    /// Returns the newest error that the host reported late, if it is to be reported to this caller. An error
    /// that is not sticky is returned once, to one caller; a sticky one every time. A lost session is a
    /// sticky error too.
    #[inline]
    pub fn late_error(&self) -> Option<LateError> {
        let core = self.core.get()?;
        core.late_errors.next(core.link())
    }

    /// Returns why the work of a late error failed, if the host explains it.
    #[cold]
    pub fn explain(&self, error: &LateError) -> Option<Explanation> {
        let core = self.core.get()?;
        Explanation::read(&core.link().channel, error.message)
    }

    /// Reports the name of a kernel and its number in messages to the tracer of `vgpu-run trace`, if it is in
    /// this process.
    #[cold]
    pub fn trace_kernel(&self, function: u32, name: impl FnOnce() -> String) {
        if let Some(core) = self.core.get() {
            core.link().tracer.kernel(function, name);
        }
    }

    /// Returns the number of messages that the host's executor has taken.
    pub fn done(&self) -> u64 {
        self.attached_here().map_or(0, |core| core.link().channel.done())
    }

    /// Copies process memory to the device in the order of `stream`. Returns when the source may be changed
    /// or freed, and synchronises nothing else.
    ///
    /// # Safety
    /// `source` is readable for `bytes`.
    ///
    /// # Errors
    /// Fails if the session is lost.
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
    /// data has arrived.
    ///
    /// # Safety
    /// `destination` is writable for `bytes` and nobody else uses it meanwhile.
    ///
    /// # Errors
    /// Fails if the session is lost.
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

    /// Returns the size in bytes of the guest pages that carry payload to a device behind a bridge.
    /// `Some(None)` means that a BAR carries it, with an exit of the virtual machine for each 8 bytes; `None`
    /// that the device has version 2, or that the session is not attached.
    pub fn payload_pages(&self) -> Option<Option<u32>> {
        self.attached_here()?.bridge.as_ref().map(|bridge| bridge.payload_pages())
    }

    /// Returns the session's return path, or `None` if it is not attached or the device has version 1
    /// ([`Session::payload_pages`]).
    pub fn reading(&self) -> Option<ReturnPath> {
        let core = self.attached_here().filter(|core| core.bridge.is_none())?;
        let mut path = core.return_path;
        if let Some(pages) = core.pages.segment() {
            path.page_bytes = pages.mapping.bytes();
        }
        Some(path)
    }

    /// Returns whether reads from the window are fast enough to hand window memory to the program: a BAR may
    /// be a hundred times slower than memory. It is measured on first use, in less than a millisecond.
    ///
    /// # Errors
    /// Fails if the session is lost.
    pub fn window_reads_well(&self) -> Result<bool, SessionError> {
        let core = self.core()?;
        let staging = core.area + STAGING;
        Ok(*core.reads_well.get_or_init(|| return_path::reads_well(&core.link().window, staging)))
    }

    /// Allocates window memory, for pinned host memory. Returns `None` if there is no room, even after the
    /// memory of dead processes was reclaimed.
    ///
    /// # Errors
    /// Fails if the session is lost.
    pub fn window_alloc(&self, bytes: u64) -> Result<Option<WindowMemory>, SessionError> {
        WindowMemory::new(Arc::clone(self.core()?), bytes)
    }

    /// Ends the sessions of dead processes, and returns how many have ended. A caller whose allocation finds
    /// no room calls it before it tries once more.
    ///
    /// # Errors
    /// Fails if the session is lost.
    pub fn reclaim(&self) -> Result<u32, SessionError> {
        let core = self.core()?;
        core.reclaimer.reclaim(core.link())
    }

    /// Returns the attached session, but only in the process that attached it.
    #[inline]
    fn attached_here(&self) -> Option<&Arc<SessionCore>> {
        self.core.get().filter(|core| !core.link().in_forked_child())
    }

    /// Returns the current values of the counters.
    pub fn counters(&self) -> Counters {
        self.core.get().map_or_else(Counters::default, |core| core.link().counters.read())
    }

    /// Returns the number of messages written of each kind. Kinds without messages are omitted.
    pub fn kinds(&self) -> Vec<(Kind, u64)> {
        self.core.get().map_or_else(Vec::new, |core| core.link().counters.kinds().collect())
    }

    /// Ends the session: the host frees everything that it holds. It never blocks for long, whatever other
    /// threads do; their calls return [`SessionError::Closed`]. Window memory stays readable and writable,
    /// but is empty and private to the process from then on. Does nothing in a forked child, and nothing the
    /// second time.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            if let Some(core) = self.core.get() {
                detach(core);
            } else if let Ok(mut before) = self.before.try_lock() {
                // Another thread is attaching while it holds the lock. Its channel is freed when the process
                // ends.
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
