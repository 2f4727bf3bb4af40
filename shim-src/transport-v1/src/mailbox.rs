//! The mailbox of a device of version 1. Under the device's lock it places the payload, rings the doorbell,
//! waits, and reads the answer.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vgpu_transport::parts::{Access, Registers, known, notify};
use vgpu_transport::{GoneReason, Notice};
use vgpu_wire::pci::PciAddress;
use vgpu_wire::registers as shared;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::registers::{self as reg, ErrorCode};
use vgpu_wire::v1::route::limit;
use vgpu_wire::v1::{ARGS, INLINE_BYTES, RESULTS};

use crate::call::{Call, CallError, Payload, Results};
use crate::data_bar::DataBar;
use crate::device_lock::{DeviceLock, DeviceLockGuard};
use crate::port::{BOUNCE, MailboxState, OldGuestWindow, Port, WindowOwner, is_old, scratch, token_of};
use crate::status::UNKNOWN;
use crate::window;

/// Number of reads of the status before the first sleep. Each costs an exit of the virtual machine, during
/// which most calls complete.
const READS_BEFORE_SLEEP: u32 = 16;
/// The longest sleep between two reads of the status.
const SLEEP_MAX: Duration = Duration::from_millis(2);
/// Shortest and longest pause before a call is made again that the mediator has rejected.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(200));

/// How one attempt at a call ended.
enum Attempt {
    /// The host executed the call and returned these results.
    Done(Results),
    /// The mediator rejected the call. It may be made again after a pause.
    Limited,
    /// The device rejected the window. The call must be made again, with its payload in BAR1.
    Again,
}

/// The mailbox of a device. It holds one call of the whole virtual machine at a time.
#[derive(Debug)]
pub(crate) struct Mailbox {
    function: PciAddress,
    pub(super) port: Port,
    device_lock: DeviceLock,
    state: Mutex<MailboxState>,
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
        Self { function, port, device_lock, state: Mutex::new(MailboxState::new()) }
    }

    pub(crate) fn device_lock(&self) -> &DeviceLock {
        &self.device_lock
    }

    pub(crate) fn registers(&self) -> &dyn Registers {
        self.port.registers.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the maximum payload of a call in bytes, in each direction.
    pub(crate) fn payload_limit(&self) -> usize {
        let half = self.port.pages(&self.lock()).map_or(0, |pages| pages.bytes / 2);
        limit(half) as usize
    }

    /// Returns the size in bytes of the guest pages that carry payload, or `None` if BAR1 carries it, with an
    /// access for each 8 bytes.
    pub(crate) fn window_bytes(&self) -> Option<u32> {
        self.port.pages(&self.lock()).map(|pages| pages.bytes)
    }

    /// Makes a call on behalf of `token`, or of the virtual machine if that is `None`. Waits until the call
    /// has completed, and retries as long as the mediator rejects it.
    ///
    /// # Safety
    /// `call.back` is writable, and `call.payload` readable, for their lengths.
    ///
    /// # Errors
    /// Returns the host's `CUresult`, or why the session is lost.
    pub(crate) unsafe fn call(&self, token: Option<u32>, call: &Call<'_>) -> Result<Results, CallError> {
        let mut pause = RETRY_PAUSE.0;
        loop {
            // SAFETY: as the caller promises.
            match unsafe { self.attempt(token, call) }? {
                Attempt::Done(results) => return Ok(results),
                Attempt::Again => continue,
                Attempt::Limited => {}
            }
            if pause == RETRY_PAUSE.0 {
                notify(&Notice::Limited { function: self.function });
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(RETRY_PAUSE.1);
        }
    }

    /// Makes a call whose payload is a slice and whose answer has no payload.
    pub(crate) fn call_plain(&self, token: Option<u32>, call: &Call<'_>) -> Result<Results, CallError> {
        assert!(call.back.is_none() && matches!(call.payload, Payload::Bytes(_)));
        // SAFETY: a slice is readable, and nothing comes back.
        unsafe { self.call(token, call) }
    }

    /// Makes a call once.
    ///
    /// # Safety
    /// As [`Mailbox::call`].
    unsafe fn attempt(&self, token: Option<u32>, call: &Call<'_>) -> Result<Attempt, CallError> {
        let state = &mut *self.lock();
        let mut guard = self.device_lock.acquire(token)?;
        // SAFETY: as the caller promises.
        let attempt = unsafe { self.attempt_in(state, &mut guard, token, call) };
        // This is done after a failure too: the next holder of the lock must not find this process's pages
        // registered.
        let left = if guard.old_guests {
            window::restore_for_old_guests(&self.port, state, &mut guard)
        } else {
            Ok(())
        };
        attempt.and_then(|attempt| left.map(|()| attempt))
    }

    /// Makes a call once, with the device's lock held.
    ///
    /// # Safety
    /// As [`Mailbox::call`].
    unsafe fn attempt_in(
        &self,
        state: &mut MailboxState,
        guard: &mut DeviceLockGuard<'_>,
        token: Option<u32>,
        call: &Call<'_>,
    ) -> Result<Attempt, CallError> {
        let scratch = token.map_or(0, scratch);
        self.resync(state, guard, token)?;
        let bytes = window::place_payload(&self.port, state, guard, token, call)?;
        let inline = if bytes <= INLINE_BYTES {
            let mut inline = vec![0; call.payload.len()];
            call.payload.copy_to(0, &mut inline);
            inline
        } else {
            Vec::new()
        };
        let mut accesses = state.staged.stores(scratch, call.op as u32, call.args, bytes, &inline);
        debug_assert!(call.args.len() <= ARGS && call.results <= RESULTS);
        accesses.extend([Access::Write(reg::CUDA_DOORBELL, reg::RING), Access::Read(reg::STATUS)]);
        let status = self.port.access(&accesses)?;
        let status = self.wait_until_idle(status)?;
        let hanging_up = std::mem::take(&mut state.hanging_up);
        if status == reg::DONE {
            // SAFETY: as the caller promises.
            return unsafe { self.read_answer(state, call) }.map(Attempt::Done);
        }
        let [code, result] = self.port.registers.read([reg::ERROR_CODE, reg::RESULT_STATUS])?;
        match ErrorCode::try_from(code) {
            Ok(ErrorCode::Cuda) => Err(CallError::Status(known(result))),
            Ok(ErrorCode::RateLimited) => {
                state.hanging_up = true;
                Ok(Attempt::Limited)
            }
            Ok(ErrorCode::Quarantined) => Err(GoneReason::Quarantined.into()),
            Ok(ErrorCode::MediatorUnavailable) if hanging_up => Ok(Attempt::Limited),
            Ok(ErrorCode::MediatorUnavailable) => Err(GoneReason::Mediator.into()),
            // The device cannot access the pages, but it can access BAR1.
            Ok(ErrorCode::InvalidRequest) if state.window == WindowOwner::Ours && bytes > INLINE_BYTES => {
                window::give_up(&self.port, state, guard)?;
                Ok(Attempt::Again)
            }
            _ => Err(GoneReason::Nonsense.into()),
        }
    }

    /// Checks whether the registers are as this process left them. If not, discards the recorded values, and
    /// ends a call that a dead process has left behind.
    fn resync(
        &self,
        state: &mut MailboxState,
        guard: &mut DeviceLockGuard<'_>,
        token: Option<u32>,
    ) -> Result<(), CallError> {
        state.old_guest_window = OldGuestWindow::Unknown;
        let [whose] = self.port.registers.read([reg::SCRATCH])?;
        if is_old(whose) {
            guard.note_old_guest()?;
        }
        if guard.mine && whose == token.map_or(0, scratch) {
            return Ok(());
        }
        state.staged.forget();
        state.staged_window = false;
        state.window = WindowOwner::Unknown;
        state.clean = false;
        state.hanging_up = match self.end_dead_call(state, whose, token)? {
            reg::ERROR => {
                let [code] = self.port.registers.read([reg::ERROR_CODE])?;
                [ErrorCode::RateLimited as u32, ErrorCode::Quarantined as u32].contains(&code)
            }
            _ => false,
        };
        // The kernel may have given the pages of a dead process to another process.
        if let Some(left) = guard.abandoned_window(token)? {
            window::release_registrant(&self.port, state, guard, left)?;
        }
        Ok(())
    }

    /// Waits until the call that a dead process has left behind has completed, and returns the status. A
    /// kernel that loops may never complete, so the host is asked to clean up after the call's owner. The
    /// doorbell may be rung for that during a call, whose own answer is then dropped (section 6.5 of the
    /// protocol). A host that executes calls one after the other starts the cleanup no later than it would
    /// have started the next call.
    fn end_dead_call(
        &self,
        state: &mut MailboxState,
        whose: u32,
        token: Option<u32>,
    ) -> Result<u32, CallError> {
        let [status] = self.port.registers.read([reg::STATUS])?;
        if status == reg::BUSY {
            // This process holds the lock and makes no call, so a call with its own token is that of an
            // earlier owner of the token.
            let dead =
                |dead| if Some(dead) == token { Ok(true) } else { self.device_lock.owners.is_free(dead) };
            if token_of(whose).map_or(Ok(false), dead)? {
                let mut accesses = state.staged.stores(whose, Op::ProcessCleanup as u32, &[whose], 0, &[]);
                accesses.extend([Access::Write(reg::CUDA_DOORBELL, reg::RING), Access::Read(reg::STATUS)]);
                let status = self.port.access(&accesses)?;
                return self.wait_until_idle(status);
            }
        }
        self.wait_until_idle(status)
    }

    /// Releases the window if it consists of this process's pages. It is called when the program waits for
    /// results, after which a long time may pass before the next call: an old guest without pages that starts
    /// meanwhile assumes that there is no window (Q30).
    pub(crate) fn release_window_while_idle(&self, token: u32) -> Result<(), CallError> {
        if self.lock().window == WindowOwner::Ours { self.release_window_of(token) } else { Ok(()) }
    }

    /// Releases the window if it consists of the pages of the process with that token, this one or a dead
    /// one.
    pub(crate) fn release_window_of(&self, token: u32) -> Result<(), CallError> {
        let (state, token) = (&mut *self.lock(), Some(token));
        let mut guard = self.device_lock.acquire(token)?;
        self.resync(state, &mut guard, token)?;
        if let Some(own) = guard.registered.filter(|registrant| registrant.token == token) {
            window::release_registrant(&self.port, state, &mut guard, own)?;
        }
        Ok(())
    }

    /// Waits until the call has completed. Returns `DONE` or `ERROR`, or `IDLE` if there was no call.
    fn wait_until_idle(&self, mut status: u32) -> Result<u32, CallError> {
        let start = Instant::now();
        let mut reads = 0;
        while status == reg::BUSY {
            reads += 1;
            if reads > READS_BEFORE_SLEEP {
                // The status is read again after at most an eighth of the time waited so far.
                std::thread::sleep((start.elapsed() / 8).min(SLEEP_MAX));
            }
            [status] = self.port.registers.read([reg::STATUS])?;
        }
        if status == shared::ALL_ONES { Err(GoneReason::AllOnes.into()) } else { Ok(status) }
    }

    /// Reads the results and the payload of a call that succeeded.
    ///
    /// # Safety
    /// As [`Mailbox::call`].
    unsafe fn read_answer(&self, state: &MailboxState, call: &Call<'_>) -> Result<Results, CallError> {
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
        // A host answers a copy that is too long with success and no payload (Q14).
        let [came] = self.port.registers.read([reg::RESULT_DATA_LEN])?;
        if came as usize != bytes {
            return Err(CallError::Status(UNKNOWN));
        }
        if bytes > INLINE_BYTES as usize
            && let Some(pages) = self.port.pages(state).filter(|_| state.window == WindowOwner::Ours)
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
