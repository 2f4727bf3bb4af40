//! One call of version 1: its turn, its payload, doorbell, answer.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use vgpu_wire::pci::PciAddress;
use vgpu_wire::registers::{self as shared, MAX_CHANNELS};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::registers::{self as reg, ErrorCode};
use vgpu_wire::v1::route::limit;
use vgpu_wire::v1::{ARGS, INLINE_BYTES, RESULTS};

use crate::log_hook::{Notice, tell};
use crate::pages::Contiguous;
use crate::registers::{Access, BATCH, DataBar, Registers};
use crate::session_error::GoneReason;

use super::call::{Call, Failure, Payload, Results, UNKNOWN};
use super::device_lock::{DeviceLock, DeviceLockGuard};
use super::staged::Staged;
use super::window::{Found, Registered};

/// Bytes that are copied at a time between memory that is not ours to refer to and a BAR.
pub(super) const BOUNCE: usize = 32 << 10;
/// Looks at the status before the first sleep: each costs an exit, which is time enough for most calls.
const LOOKS: u32 = 16;
/// The longest sleep between two looks.
const NAP_MOST: Duration = Duration::from_millis(2);
/// The first pause after the mediator turned a call away, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(200));

/// How one attempt at a call ended.
enum Attempt {
    Done(Results),
    /// The mediator turned it away, for now.
    Limited,
    /// The payload has to go another way.
    Again,
}

/// The way to a device.
#[derive(Debug)]
pub(crate) struct Mailbox {
    function: PciAddress,
    pub(super) registers: Arc<dyn Registers>,
    pub(super) data: Option<Box<dyn DataBar>>,
    device_lock: DeviceLock,
    /// Looked for when a payload first needs it. Most processes only look.
    pages: OnceLock<Option<Contiguous>>,
    memory: Option<std::path::PathBuf>,
    state: Mutex<State>,
}

/// What is known of the device while this process had the last turn.
#[derive(Debug)]
pub(super) struct State {
    pub(super) staged: Staged,
    /// What is registered as the window: this process's pages, nothing, or unknown.
    pub(super) window: Registered,
    /// The first bytes of BAR1 are known to be zero.
    pub(super) clean: bool,
    /// The device does not take our pages.
    pub(super) refused: bool,
    /// The registers hold where this process's pages lie.
    pub(super) staged_window: bool,
    /// While old guests are about: what was the window when this turn first needed to know.
    pub(super) found: Found,
    /// The last call of this machine was turned away, whosever it was: the mediator hangs up after that, and a call that the device sends
    /// before it notices is lost unread.
    hanging_up: bool,
}

impl Mailbox {
    pub(crate) fn new(
        function: PciAddress,
        registers: Arc<dyn Registers>,
        data: Option<Box<dyn DataBar>>,
        device_lock: DeviceLock,
        memory: Option<std::path::PathBuf>,
    ) -> Self {
        let state = State {
            staged: Staged::new(),
            window: Registered::Unknown,
            clean: false,
            refused: false,
            staged_window: false,
            found: Found::Unknown,
            hanging_up: false,
        };
        Self {
            function,
            registers,
            data,
            device_lock,
            pages: OnceLock::new(),
            memory,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn device_lock(&self) -> &DeviceLock {
        &self.device_lock
    }

    pub(crate) fn registers(&self) -> &dyn Registers {
        self.registers.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process's pages, if it has some and the device takes them.
    pub(super) fn pages(&self, state: &State) -> Option<&Contiguous> {
        let pages = self.pages.get_or_init(|| Contiguous::find(self.memory.as_deref()));
        pages.as_ref().filter(|_| !state.refused)
    }

    /// The most payload of a call, each way.
    pub(crate) fn limit(&self) -> usize {
        let half = self.pages(&self.lock()).map_or(0, |pages| pages.bytes / 2);
        limit(half) as usize
    }

    /// Bytes of the guest pages that payload goes through; `None`: it goes through BAR1, an access for each 8 bytes.
    pub(crate) fn window_bytes(&self) -> Option<u32> {
        self.pages(&self.lock()).map(|pages| pages.bytes)
    }

    /// Makes a call in the name of `token`; `None`: in the virtual machine's. Waits until it is done, and as long as
    /// the mediator turns it away for now.
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

    /// The same for calls whose payload is a slice and that bring none back.
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
        // Whatever came of it: who has the next turn must not meet this process's pages.
        let left = if guard.company { self.leave_window(state, &mut guard) } else { Ok(()) };
        attempt.and_then(|attempt| left.map(|()| attempt))
    }

    /// The same in a turn.
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
        let bytes = self.place(state, guard, token, call)?;
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
        let status = self.access(&accesses)?;
        let status = self.finish(status)?;
        let hanging_up = std::mem::take(&mut state.hanging_up);
        if status == reg::DONE {
            // SAFETY: as the caller promises.
            return unsafe { self.collect(state, call) }.map(Attempt::Done);
        }
        let [code, result] = self.registers.read([reg::ERROR_CODE, reg::RESULT_STATUS])?;
        match ErrorCode::try_from(code) {
            Ok(ErrorCode::Cuda) => Err(Failure::Status(if result == 0 { UNKNOWN } else { result })),
            Ok(ErrorCode::RateLimited) => {
                state.hanging_up = true;
                Ok(Attempt::Limited)
            }
            Ok(ErrorCode::Quarantined) => Err(GoneReason::Quarantined.into()),
            Ok(ErrorCode::MediatorUnavailable) if hanging_up => Ok(Attempt::Limited),
            Ok(ErrorCode::MediatorUnavailable) => Err(GoneReason::Mediator.into()),
            // The device does not reach the pages: not ours to be had then, BAR1 is.
            Ok(ErrorCode::InvalidRequest) if state.window == Registered::Ours && bytes > INLINE_BYTES => {
                self.refuse(state, guard)?;
                Ok(Attempt::Again)
            }
            _ => Err(GoneReason::Nonsense.into()),
        }
    }

    /// Several accesses, in pieces that a bus takes; the value of the last.
    pub(super) fn access(&self, accesses: &[Access]) -> Result<u32, Failure> {
        let mut values = [0; BATCH];
        let mut last = 0;
        for piece in accesses.chunks(BATCH) {
            let values = &mut values[..piece.len()];
            self.registers.access(piece, values)?;
            last = values.last().copied().unwrap_or(0);
        }
        Ok(last)
    }

    /// Looks whether the registers are as this process left them; if not, forgets what it knew, and sees a call off that a dead process
    /// has left behind.
    fn take_over(
        &self,
        state: &mut State,
        guard: &mut DeviceLockGuard<'_>,
        token: Option<u32>,
    ) -> Result<(), Failure> {
        state.found = Found::Unknown;
        let [whose] = self.registers.read([reg::SCRATCH])?;
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
                let [code] = self.registers.read([reg::ERROR_CODE])?;
                [ErrorCode::RateLimited as u32, ErrorCode::Quarantined as u32].contains(&code)
            }
            _ => false,
        };
        // Its pages may be anybody's by now.
        if let Some(left) = guard.left_behind(token)? {
            self.release_if(state, guard, left)?;
        }
        Ok(())
    }

    /// Waits until the call that a dead process has left behind is over; the status then. Nobody wants its answer, and it may have no end: a
    /// kernel that loops. So the host is asked to end whose it was. A doorbell may be rung for that while a call is under way, whose own answer is
    /// dropped then (section 6.5 of the protocol); a host that carries out one call after the other comes to it no later than it would have
    /// come to the next.
    fn see_off(&self, state: &mut State, whose: u32, token: Option<u32>) -> Result<u32, Failure> {
        let [status] = self.registers.read([reg::STATUS])?;
        if status == reg::BUSY {
            // Who has a token and this process's turn is not in a call: it had the token before.
            let dead =
                |dead| if Some(dead) == token { Ok(true) } else { self.device_lock.owners.is_free(dead) };
            if token_of(whose).map_or(Ok(false), dead)? {
                let mut accesses = state.staged.stores(whose, Op::ProcessCleanup as u32, &[whose], 0, &[]);
                accesses.extend([Access::Write(reg::CUDA_DOORBELL, reg::RING), Access::Read(reg::STATUS)]);
                let status = self.access(&accesses)?;
                return self.finish(status);
            }
        }
        self.finish(status)
    }

    /// Gives the window up where it is this process's. Its program waits for results: it may be long until the next call, and an old guest that
    /// comes meanwhile and has no pages takes it for granted that there is no window (Q30).
    pub(crate) fn rest(&self, token: u32) -> Result<(), Failure> {
        if self.lock().window == Registered::Ours { self.end_window(token) } else { Ok(()) }
    }

    /// Gives the window up where it is the pages of the process with that token, this one or a dead one.
    pub(crate) fn end_window(&self, token: u32) -> Result<(), Failure> {
        let (state, token) = (&mut *self.lock(), Some(token));
        let mut guard = self.device_lock.take(token)?;
        self.take_over(state, &mut guard, token)?;
        if let Some(own) = guard.registered.filter(|registrant| registrant.token == token) {
            self.release_if(state, &mut guard, own)?;
        }
        Ok(())
    }

    /// Waits until the call is over; `DONE` or `ERROR`, or `IDLE` where there was none.
    fn finish(&self, mut status: u32) -> Result<u32, Failure> {
        let start = Instant::now();
        let mut looks = 0;
        while status == reg::BUSY {
            looks += 1;
            if looks > LOOKS {
                // Never late by more than an eighth.
                std::thread::sleep((start.elapsed() / 8).min(NAP_MOST));
            }
            [status] = self.registers.read([reg::STATUS])?;
        }
        if status == shared::ALL_ONES { Err(GoneReason::AllOnes.into()) } else { Ok(status) }
    }

    /// Fetches what a call that succeeded brought.
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
            self.registers.access(&reads, words)?;
            for (result, word) in results.iter_mut().zip(words.chunks_exact(2)) {
                *result = u64::from(word[1]) << 32 | u64::from(word[0]);
            }
        }
        let Some((to, bytes)) = call.back else { return Ok(results) };
        // A host answers a copy that is too long with success and nothing (Q14).
        let [came] = self.registers.read([reg::RESULT_DATA_LEN])?;
        if came as usize != bytes {
            return Err(Failure::Status(UNKNOWN));
        }
        if bytes > INLINE_BYTES as usize
            && let Some(pages) = self.pages(state).filter(|_| state.window == Registered::Ours)
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
                self.load_inline(piece)?;
            } else {
                let data = self.data.as_ref().ok_or(GoneReason::Nonsense)?;
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

    /// Loads an answer's payload from BAR0.
    fn load_inline(&self, to: &mut [u8]) -> Result<(), Failure> {
        let mut words = [0; BATCH];
        for (piece, at) in to.chunks_mut(4 * BATCH).zip((reg::INLINE_RESPONSE..).step_by(4 * BATCH)) {
            let words = &mut words[..piece.len().div_ceil(4)];
            let reads: Vec<Access> = (at..).step_by(4).take(words.len()).map(Access::Read).collect();
            self.registers.access(&reads, words)?;
            for (bytes, word) in piece.chunks_mut(4).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
            }
        }
        Ok(())
    }
}

/// What a token is in `SCRATCH`. Old guests write their process id there, which is below 2^22.
pub(crate) const fn scratch(token: u32) -> u32 {
    TOKEN_MARK | token
}

/// Says that `SCRATCH` holds a token.
const TOKEN_MARK: u32 = 0x80_0000;

/// Whether `SCRATCH` holds the process id of an old guest. All ones: no device is there.
const fn is_old(scratch: u32) -> bool {
    scratch != 0 && scratch & TOKEN_MARK == 0
}

/// The token that `SCRATCH` names; `None`: an old guest's process, or nobody.
fn token_of(scratch: u32) -> Option<u32> {
    scratch.checked_sub(TOKEN_MARK).filter(|&token| token < MAX_CHANNELS)
}
