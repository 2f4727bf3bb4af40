//! The mailbox of a device of version 1: a call under the device's lock, its payload, the doorbell, and the
//! answer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vgpu_wire::pci::PciAddress;
use vgpu_wire::registers as shared;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::registers::{self as reg, ErrorCode};
use vgpu_wire::v1::route::limit;
use vgpu_wire::v1::{ARGS, INLINE_BYTES, RESULTS};

use crate::log_hook::{Notice, tell};
use crate::registers::{Access, DataBar, Registers};
use crate::session_error::{GoneReason, known};
use crate::status::UNKNOWN;

use super::call::{Call, Failure, Payload, Results};
use super::device_lock::{DeviceLock, DeviceLockGuard};
use super::port::{BOUNCE, Found, Port, Registered, State, is_old, scratch, token_of};
use super::window;

/// Reads of the status before the first sleep. Each costs an exit, which is time enough for most calls.
const LOOKS: u32 = 16;
/// The longest sleep between two reads of the status.
const NAP_MOST: Duration = Duration::from_millis(2);
/// The first pause after the mediator has turned a call away, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(200));

/// How one attempt at a call ended.
enum Attempt {
    Done(Results),
    /// The mediator turned it away, for now.
    Limited,
    /// The payload has to go another way.
    Again,
}

/// The mailbox of a device: one call of the whole virtual machine is in it at a time.
#[derive(Debug)]
pub(crate) struct Mailbox {
    function: PciAddress,
    pub(super) port: Port,
    device_lock: DeviceLock,
    state: Mutex<State>,
}

impl Mailbox {
    pub(crate) fn new(
        function: PciAddress,
        registers: Arc<dyn Registers>,
        data: Option<Box<dyn DataBar>>,
        device_lock: DeviceLock,
        memory: Option<PathBuf>,
    ) -> Self {
        let port = Port::new(registers, data, memory);
        Self { function, port, device_lock, state: Mutex::new(State::new()) }
    }

    pub(crate) fn device_lock(&self) -> &DeviceLock {
        &self.device_lock
    }

    pub(crate) fn registers(&self) -> &dyn Registers {
        self.port.registers.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most payload of a call, each way.
    pub(crate) fn limit(&self) -> usize {
        let half = self.port.pages(&self.lock()).map_or(0, |pages| pages.bytes / 2);
        limit(half) as usize
    }

    /// Bytes of the guest pages through which payload goes. `None`: it goes through BAR1, with an access for
    /// each 8 bytes.
    pub(crate) fn window_bytes(&self) -> Option<u32> {
        self.port.pages(&self.lock()).map(|pages| pages.bytes)
    }

    /// Makes a call in the name of `token`, or of the virtual machine if that is `None`. Waits until the call
    /// has completed, and as long as the mediator turns it away.
    ///
    /// # Safety
    /// `call.back` is writable, and `call.payload` readable, for their lengths.
    ///
    /// # Errors
    /// The host's error, or why there is no host any more.
    pub(crate) unsafe fn call(&self, token: Option<u32>, call: &Call<'_>) -> Result<Results, Failure> {
        let mut pause = PAUSE.0;
        loop {
            // SAFETY: as the caller promises.
            match unsafe { self.attempt(token, call) }? {
                Attempt::Done(results) => return Ok(results),
                Attempt::Again => continue,
                Attempt::Limited => {}
            }
            if pause == PAUSE.0 {
                tell(&Notice::Limited { function: self.function });
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(PAUSE.1);
        }
    }

    /// The same for calls whose payload is a slice, and whose answer has no payload.
    pub(crate) fn plain(&self, token: Option<u32>, call: &Call<'_>) -> Result<Results, Failure> {
        assert!(call.back.is_none() && matches!(call.payload, Payload::Bytes(_)));
        // SAFETY: a slice is readable, and nothing comes back.
        unsafe { self.call(token, call) }
    }

    /// Makes a call once.
    ///
    /// # Safety
    /// As [`Mailbox::call`].
    unsafe fn attempt(&self, token: Option<u32>, call: &Call<'_>) -> Result<Attempt, Failure> {
        let state = &mut *self.lock();
        let mut guard = self.device_lock.take(token)?;
        // SAFETY: as the caller promises.
        let attempt = unsafe { self.attempt_in(state, &mut guard, token, call) };
        // However it ended: the next process that takes the lock must not meet this process's pages.
        let left = if guard.company { window::leave(&self.port, state, &mut guard) } else { Ok(()) };
        attempt.and_then(|attempt| left.map(|()| attempt))
    }

    /// The same with the device's lock held.
    ///
    /// # Safety
    /// As [`Mailbox::call`].
    unsafe fn attempt_in(
        &self,
        state: &mut State,
        guard: &mut DeviceLockGuard<'_>,
        token: Option<u32>,
        call: &Call<'_>,
    ) -> Result<Attempt, Failure> {
        let scratch = token.map_or(0, scratch);
        self.take_over(state, guard, token)?;
        let bytes = window::place(&self.port, state, guard, token, call)?;
        let inline = if bytes <= INLINE_BYTES {
            let mut inline = vec![0; call.payload.len()];
            call.payload.copy(0, &mut inline);
            inline
        } else {
            Vec::new()
        };
        let mut accesses = state.staged.stores(scratch, call.op as u32, call.args, bytes, &inline);
        debug_assert!(call.args.len() <= ARGS && call.results <= RESULTS);
        accesses.extend([Access::Write(reg::CUDA_DOORBELL, reg::RING), Access::Read(reg::STATUS)]);
        let status = self.port.access(&accesses)?;
        let status = self.finish(status)?;
        let hanging_up = std::mem::take(&mut state.hanging_up);
        if status == reg::DONE {
            // SAFETY: as the caller promises.
            return unsafe { self.collect(state, call) }.map(Attempt::Done);
        }
        let [code, result] = self.port.registers.read([reg::ERROR_CODE, reg::RESULT_STATUS])?;
        match ErrorCode::try_from(code) {
            Ok(ErrorCode::Cuda) => Err(Failure::Status(known(result))),
            Ok(ErrorCode::RateLimited) => {
                state.hanging_up = true;
                Ok(Attempt::Limited)
            }
            Ok(ErrorCode::Quarantined) => Err(GoneReason::Quarantined.into()),
            Ok(ErrorCode::MediatorUnavailable) if hanging_up => Ok(Attempt::Limited),
            Ok(ErrorCode::MediatorUnavailable) => Err(GoneReason::Mediator.into()),
            // The device does not reach the pages; it does reach BAR1.
            Ok(ErrorCode::InvalidRequest) if state.window == Registered::Ours && bytes > INLINE_BYTES => {
                window::refuse(&self.port, state, guard)?;
                Ok(Attempt::Again)
            }
            _ => Err(GoneReason::Nonsense.into()),
        }
    }

    /// Checks whether the registers are as this process left them. If not, forgets what it knew, and sees off
    /// a call that a dead process has left behind.
    fn take_over(
        &self,
        state: &mut State,
        guard: &mut DeviceLockGuard<'_>,
        token: Option<u32>,
    ) -> Result<(), Failure> {
        state.found = Found::Unknown;
        let [whose] = self.port.registers.read([reg::SCRATCH])?;
        if is_old(whose) {
            guard.meet()?;
        }
        if guard.mine && whose == token.map_or(0, scratch) {
            return Ok(());
        }
        state.staged.forget();
        state.staged_window = false;
        state.window = Registered::Unknown;
        state.clean = false;
        state.hanging_up = match self.see_off(state, whose, token)? {
            reg::ERROR => {
                let [code] = self.port.registers.read([reg::ERROR_CODE])?;
                [ErrorCode::RateLimited as u32, ErrorCode::Quarantined as u32].contains(&code)
            }
            _ => false,
        };
        // Its pages may be anybody's by now.
        if let Some(left) = guard.left_behind(token)? {
            window::release_if(&self.port, state, guard, left)?;
        }
        Ok(())
    }

    /// Waits until the call that a dead process has left behind is over, and returns the status. Nobody wants
    /// its answer, and it may never end: a kernel that loops. So the host is asked to clean up after its
    /// owner. The doorbell may be rung for that while a call is under way, whose own answer is then dropped
    /// (section 6.5 of the protocol); a host that executes calls one after the other comes to it no later
    /// than it would have come to the next.
    fn see_off(&self, state: &mut State, whose: u32, token: Option<u32>) -> Result<u32, Failure> {
        let [status] = self.port.registers.read([reg::STATUS])?;
        if status == reg::BUSY {
            // A process that holds the lock is not in a call: the token had another owner before it.
            let dead =
                |dead| if Some(dead) == token { Ok(true) } else { self.device_lock.owners.is_free(dead) };
            if token_of(whose).map_or(Ok(false), dead)? {
                let mut accesses = state.staged.stores(whose, Op::ProcessCleanup as u32, &[whose], 0, &[]);
                accesses.extend([Access::Write(reg::CUDA_DOORBELL, reg::RING), Access::Read(reg::STATUS)]);
                let status = self.port.access(&accesses)?;
                return self.finish(status);
            }
        }
        self.finish(status)
    }

    /// Gives the window up where it is this process's. Its program waits for results: it may be long until
    /// the next call, and an old guest that comes meanwhile and has no pages takes it for granted that there
    /// is no window (Q30).
    pub(crate) fn rest(&self, token: u32) -> Result<(), Failure> {
        if self.lock().window == Registered::Ours { self.end_window(token) } else { Ok(()) }
    }

    /// Gives the window up where it is the pages of the process with that token, this one or a dead one.
    pub(crate) fn end_window(&self, token: u32) -> Result<(), Failure> {
        let (state, token) = (&mut *self.lock(), Some(token));
        let mut guard = self.device_lock.take(token)?;
        self.take_over(state, &mut guard, token)?;
        if let Some(own) = guard.registered.filter(|registrant| registrant.token == token) {
            window::release_if(&self.port, state, &mut guard, own)?;
        }
        Ok(())
    }

    /// Waits until the call is over. Returns `DONE` or `ERROR`, or `IDLE` where there was none.
    fn finish(&self, mut status: u32) -> Result<u32, Failure> {
        let start = Instant::now();
        let mut looks = 0;
        while status == reg::BUSY {
            looks += 1;
            if looks > LOOKS {
                // Never late by more than an eighth.
                std::thread::sleep((start.elapsed() / 8).min(NAP_MOST));
            }
            [status] = self.port.registers.read([reg::STATUS])?;
        }
        if status == shared::ALL_ONES { Err(GoneReason::AllOnes.into()) } else { Ok(status) }
    }

    /// Fetches the results and the payload of a call that succeeded.
    ///
    /// # Safety
    /// As [`Mailbox::call`].
    unsafe fn collect(&self, state: &State, call: &Call<'_>) -> Result<Results, Failure> {
        let mut results = [0; RESULTS];
        if call.results > 0 {
            let mut words = [0; 2 * RESULTS];
            let words = &mut words[..2 * call.results];
            let reads: Vec<Access> =
                (reg::RESULTS..).step_by(4).take(words.len()).map(Access::Read).collect();
            self.port.registers.access(&reads, words)?;
            for (result, word) in results.iter_mut().zip(words.chunks_exact(2)) {
                *result = u64::from(word[1]) << 32 | u64::from(word[0]);
            }
        }
        let Some((to, bytes)) = call.back else { return Ok(results) };
        // A host answers a copy that is too long with success and nothing (Q14).
        let [came] = self.port.registers.read([reg::RESULT_DATA_LEN])?;
        if came as usize != bytes {
            return Err(Failure::Status(UNKNOWN));
        }
        if bytes > INLINE_BYTES as usize
            && let Some(pages) = self.port.pages(state).filter(|_| state.window == Registered::Ours)
        {
            let half = u64::from(pages.bytes / 2);
            // SAFETY: writable for `bytes`, as the caller promises; nobody has a pointer into the window.
            unsafe { pages.mapping.copy_out(half, to.as_ptr(), bytes) };
            return Ok(results);
        }
        let mut piece = vec![0; bytes.min(BOUNCE)];
        let mut at = 0;
        while at < bytes {
            let length = BOUNCE.min(bytes - at);
            let piece = &mut piece[..length];
            if bytes <= INLINE_BYTES as usize {
                self.port.load_inline(piece)?;
            } else {
                let data = self.port.data.as_ref().ok_or(GoneReason::Nonsense)?;
                data.read(reg::BAR1_TO_GUEST + at as u32, piece)?;
            }
            // SAFETY: `at` is below `bytes`, for which the caller promises the destination.
            let to = unsafe { to.as_ptr().add(at) };
            // SAFETY: writable for `length` more; the piece is private.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), to, length) };
            at += length;
        }
        Ok(results)
    }
}
