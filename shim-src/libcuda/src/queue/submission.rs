//! The session with a device and the state that all its streams share: numbers of objects, errors that the
//! host reports late, completion words, and the epochs by which a query decides whether it may answer "not
//! complete".

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vgpu_abi::{CUresult, log};
use vgpu_transport::{LateError, Session, SessionError, Word};
use vgpu_wire::{Kind, Payload, RoundTrip};
use zerocopy::{FromBytes, IntoBytes};

use crate::Result;
use crate::code::refusal;
use crate::queue::holds::Holds;
use crate::queue::late;
use crate::queue::pending::Pending;
use crate::sync::Mutex;

/// Kinds of objects that the guest numbers. A number is never reused in a session.
#[derive(Clone, Copy, Debug)]
pub enum Minted {
    /// Numbers of streams.
    Stream,
    /// Numbers of events.
    Event,
    /// Numbers of modules.
    Module,
    /// Numbers of functions.
    Function,
    /// Numbers of instantiated graphs.
    Graph,
    /// Numbers of physical allocations.
    Physical,
    /// Numbers of holds, which stop a stream for a host function.
    Hold,
    /// Numbers of links.
    Link,
}

/// The submission queue of a device, which exists as long as the process.
pub struct Queue {
    /// The transport's session with this device.
    pub session: Session,
    /// Work that a synchronize has to wait for.
    pub pending: Pending,
    /// The device's index on the bus, for the log.
    index: usize,
    minted: [AtomicU32; 8],
    /// Words whose owner ended before their last mark was stored.
    deferred_frees: Mutex<Vec<Word>>,
    /// Number of the message whose asynchronous error was logged last.
    logged_error: AtomicU64,
    join_epoch: AtomicU64,
    observed_epoch: AtomicU64,
    /// Host functions that have not returned yet. While there is one, a query must answer "not complete"
    /// instead of waiting, because the function may itself wait for the thread that asks.
    pub holds: Holds,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.session.function().address)
    }
}

impl Queue {
    /// Creates a queue without work for an open session. `index` is the device's index on the bus.
    pub fn new(session: Session, index: usize) -> Self {
        Self {
            session,
            pending: Pending::default(),
            index,
            minted: Default::default(),
            deferred_frees: Mutex::default(),
            logged_error: AtomicU64::new(0),
            join_epoch: AtomicU64::new(0),
            observed_epoch: AtomicU64::new(0),
            holds: Holds::default(),
        }
    }

    /// Returns a number that no object of the kind has had in this session.
    pub fn mint(&self, what: Minted) -> u32 {
        self.minted[what as usize].fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the error that the host reported for earlier work, if any. A sticky error is returned each
    /// time, any other once.
    #[inline]
    pub fn async_error(&self) -> Result {
        self.session.late_error().map_or(Ok(()), |error| Err(self.log_async_error(&error)))
    }

    #[cold]
    fn log_async_error(&self, error: &LateError) -> CUresult {
        // A sticky error is returned by every call; one line about it is enough.
        if self.logged_error.swap(error.message, Ordering::Relaxed) != error.message {
            let kind = match error {
                LateError { ended: true, .. } => "ends the session",
                LateError { sticky: true, .. } => "stays",
                _ => "is reported once",
            };
            let code = CUresult(error.code);
            let why = self.session.explain(error).map(|why| late::describe(&why)).unwrap_or_default();
            let colon = if why.is_empty() { "" } else { ": " };
            log::error(format_args!(
                "device {}: {code} of message {} {kind}{colon}{why}",
                self.index, error.message
            ));
            if !why.is_empty() {
                vgpu_transport::trace_refusal(None, code.0, &why);
            }
        }
        CUresult(error.code)
    }

    /// Sends a message that is not answered. Returns the message's number.
    #[inline]
    pub fn send<P: Payload>(&self, body: &P, tail: &[&[u8]]) -> Result<u64> {
        self.session.send(body, tail).map_err(|lost| self.report(&lost))
    }

    /// Sends a message that is not answered, if that needs no wait. Returns whether it was sent.
    pub fn try_send<P: Payload>(&self, body: &P) -> Result<bool> {
        self.session.try_send(body, &[]).map_err(|lost| self.report(&lost))
    }

    /// Sends a message and waits for its reply, whose status is the error. Returns the number of bytes in the
    /// reply.
    pub fn call<P: RoundTrip>(&self, body: P, tail: &[&[u8]], reply: &mut [u8]) -> Result<usize> {
        let answer = self.session.call(body, tail, reply).map_err(|lost| self.report(&lost))?;
        if answer.status != 0 {
            return Err(self.refused(P::KIND, CUresult(answer.status), &answer.why, tail));
        }
        Ok(answer.bytes)
    }

    /// Reports why the host refused a call, if the host gave a reason: in the log, in the compiler's logs,
    /// and in a trace.
    #[cold]
    fn refused(&self, kind: Kind, code: CUresult, why: &str, tail: &[&[u8]]) -> CUresult {
        if why.is_empty() {
            return code;
        }
        let why = with_name(kind, tail, why);
        let line = format_args!("device {}: {} is refused with {code}: {why}", self.index, kind.name());
        // Programs ask for kernels to learn whether there are any.
        if code == CUresult::NOT_FOUND {
            log::debug(line);
        } else {
            log::error(line);
            vgpu_transport::trace_refusal(Some(kind), code.0, &why);
        }
        refusal::record(&why);
        code
    }

    /// Sends a message and waits for its reply, which must be exactly one structure.
    pub fn ask<P: RoundTrip, R: FromBytes + IntoBytes>(&self, body: P, tail: &[&[u8]]) -> Result<R> {
        let mut reply = R::new_zeroed();
        let bytes = self.call(body, tail, reply.as_mut_bytes())?;
        if bytes < size_of::<R>() {
            log::error(format_args!(
                "device {}: an answer to {} has {bytes} bytes, not {}",
                self.index,
                P::KIND.name(),
                size_of::<R>()
            ));
            return Err(CUresult::UNKNOWN);
        }
        Ok(reply)
    }

    /// Waits until a word reaches a value.
    pub fn wait(&self, word: u32, value: u64) -> Result {
        self.session.wait(word, value).map_err(|lost| self.report(&lost))?;
        self.observe_completion();
        Ok(())
    }

    /// Returns whether a word has reached a value. If not, also checks that the device still works.
    pub fn reached(&self, word: u32, value: u64) -> Result<bool> {
        if self.session.word_value(word) >= value {
            return Ok(true);
        }
        self.session.check().map_err(|lost| self.report(&lost))?;
        Ok(false)
    }

    /// Converts an error of the transport into a status. The transport itself logs the end of a session.
    #[cold]
    pub fn report(&self, lost: &SessionError) -> CUresult {
        if !lost.is_final() {
            log::error(format_args!("device {}: {lost}", self.index));
        } else if let SessionError::Ended { .. } = lost
            && let Some(error) = self.session.late_error()
            && !error.ended
        {
            // A wait ended because work failed: the session stands, and the transport sends no notice.
            self.log_async_error(&error);
        }
        CUresult(lost.code())
    }

    /// Takes a completion word. Fails with out-of-memory when all are in use; a session that has ended has an
    /// error of its own.
    pub fn take_word(&self) -> Result<Word> {
        if let Some(word) = self.session.word() {
            return Ok(word);
        }
        self.free_deferred();
        if let Some(word) = self.session.word() {
            return Ok(word);
        }
        // A session that has ended has no words either.
        self.session.check().map_err(|lost| self.report(&lost))?;
        Err(CUresult::OUT_OF_MEMORY)
    }

    /// Frees a word once its last mark has been stored. Before that the next owner could mistake that mark
    /// for its own.
    pub fn retire(&self, word: Word) {
        if self.session.word_value(word.index()) < word.last() {
            self.deferred_frees.lock().push(word);
        }
        self.free_deferred();
    }

    fn free_deferred(&self) {
        self.deferred_frees.lock().retain(|word| self.session.word_value(word.index()) < word.last());
    }

    /// Orders all later work after everything submitted to a stream so far, and lets the program treat that
    /// work as complete.
    pub fn join(&self, stream: u32) {
        self.session.join(stream);
        self.join_epoch.fetch_add(1, Ordering::Release);
        self.observe_completion();
    }

    /// Returns the number of synchronizes answered by a join. An event recorded before the latest of them
    /// must not be reported as incomplete, because the join may have covered it.
    #[inline]
    pub fn join_epoch(&self) -> u64 {
        self.join_epoch.load(Ordering::Acquire)
    }

    /// Counts that the program has learned of the completion of some work.
    pub fn observe_completion(&self) {
        self.observed_epoch.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of times that the program has learned of the completion of some work. A stream or
    /// an event whose newest work is older than the latest of them may have completed: that completion may
    /// have been ordered after this work, even if the mark of this work arrives a moment later.
    #[inline]
    pub fn observed_epoch(&self) -> u64 {
        self.observed_epoch.load(Ordering::Acquire)
    }
}

/// Returns the host's reason for refusing a kernel, and adds the kernel's name if the host leaves it out.
fn with_name(kind: Kind, tail: &[&[u8]], why: &str) -> String {
    let name = tail.first().filter(|_| kind == Kind::FunctionGet).map(|name| String::from_utf8_lossy(name));
    match name {
        Some(name) if !why.contains(&*name) => format!("kernel {name}: {why}"),
        _ => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_kernel_is_named() {
        let of = |kind, why| with_name(kind, &[b"mine"], why);
        assert_eq!(
            of(Kind::FunctionGet, "line 7: no such instruction"),
            "kernel mine: line 7: no such instruction"
        );
        assert_eq!(of(Kind::FunctionGet, "mine, line 7"), "mine, line 7");
        assert_eq!(of(Kind::ModuleLoad, "line 7"), "line 7");
        assert_eq!(with_name(Kind::FunctionGet, &[], "why"), "why");
    }
}
