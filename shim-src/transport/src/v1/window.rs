//! Which way a payload goes: BAR0, the shared window, or BAR1; and who has the window.
//!
//! The device decides by rules that look at what lies about (`vgpu_wire::v1::route`), for the whole virtual machine; so before each
//! call that needs the window, or must not meet another process's, this process makes sure of it.

use vgpu_wire::v1::INLINE_BYTES;
use vgpu_wire::v1::registers as reg;
use vgpu_wire::v1::route::PREFIX_BYTES;

use crate::pages::Contiguous;
use crate::registers::Access;
use crate::session_error::{GoneReason, SessionError};

use super::call::{Call, Failure, Payload};
use super::device_lock::DeviceLockGuard;
use super::mailbox::{BOUNCE, Mailbox, State, scratch};
use super::owners_file::Registrant;

/// What a payload is padded to when that lets it travel through the window: one byte more than fits BAR0, and a whole word.
const PADDED: u32 = INLINE_BYTES + 4;

/// What is registered as the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registered {
    Ours,
    Nothing,
    Unknown,
}

/// What old guests had registered as the window when a turn began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nobody has looked.
    Unknown,
    /// Nothing, or pages of this contract's own guests, which look for themselves.
    Nothing,
    /// Low and high half of the address, and the size.
    Theirs([u32; 3]),
}

impl Mailbox {
    /// Puts the payload where the device will look for it, and sees to it that what comes back comes to this process. How many
    /// bytes of payload the call then states.
    pub(super) fn place(
        &self,
        state: &mut State,
        guard: &mut DeviceLockGuard<'_>,
        token: Option<u32>,
        call: &Call<'_>,
    ) -> Result<u32, Failure> {
        let length = call.payload.len() as u32;
        let back = call.back.map_or(0, |(_, bytes)| bytes);
        let short = length <= INLINE_BYTES && back <= INLINE_BYTES as usize;
        if short && (length == 0 || !call.pads || self.pages(state).is_none()) {
            return Ok(length);
        }
        self.prepare_window(state, guard, token)?;
        let Some(pages) = self.pages(state).filter(|_| state.window == Registered::Ours) else {
            if length > INLINE_BYTES {
                self.store(call.payload)?;
                state.clean = false;
            }
            return Ok(length);
        };
        if length == 0 || (length <= INLINE_BYTES && !call.pads) {
            return Ok(length);
        }
        let fit = (pages.bytes / 2) as usize;
        if call.payload.len() > fit {
            return Err(Failure::Lost(SessionError::Misuse { what: "a payload above what a call carries" }));
        }
        // SAFETY: readable, as whoever made the payload promised; nobody has a pointer into the window.
        unsafe { pages.mapping.stream_in(0, call.payload.start(), call.payload.len()) };
        pages.mapping.order_stores();
        // A payload that begins with zeros looks as if it lay in BAR1, if anything does there (Q6).
        if call.op.is_bulk() && !state.clean && begins_with_zeros(call.payload) {
            if let Some(data) = &self.data {
                data.write(reg::BAR1_TO_HOST, &[0; PREFIX_BYTES as usize])?;
            }
            state.clean = true;
        }
        Ok(length.max(PADDED))
    }

    /// Makes this process's pages the window, or sees to it that there is none.
    fn prepare_window(
        &self,
        state: &mut State,
        guard: &mut DeviceLockGuard<'_>,
        token: Option<u32>,
    ) -> Result<(), Failure> {
        if guard.company {
            // An old guest that starts or ends changes the window without waiting for its turn (Q4).
            self.look_at_window(state, guard)?;
        }
        let Some(pages) = self.pages(state) else {
            if state.window != Registered::Nothing {
                self.release(state, guard)?;
            }
            return Ok(());
        };
        if state.window == Registered::Ours {
            return Ok(());
        }
        // First, so that whoever comes after this process's death knows whose the window may be.
        guard.set_registered(Some(Registrant { token, address: pages.address }))?;
        let [low, high] = vgpu_wire::v1::split(pages.address);
        // A host may look whose window it is.
        let mut accesses: Vec<Access> = state.staged.own(token.map_or(0, scratch)).into_iter().collect();
        if !std::mem::replace(&mut state.staged_window, true) {
            accesses.extend([
                Access::Write(reg::SHMEM_GPA_LO, low),
                Access::Write(reg::SHMEM_GPA_HI, high),
                Access::Write(reg::SHMEM_SIZE, pages.bytes),
            ]);
        }
        accesses.extend([Access::Write(reg::SHMEM_CTRL, reg::SHMEM_REGISTER), Access::Read(reg::STATUS)]);
        match self.access(&accesses)? {
            reg::DONE => {
                state.window = Registered::Ours;
                Ok(())
            }
            reg::ERROR => self.refuse(state, guard),
            _ => Err(GoneReason::Nonsense.into()),
        }
    }

    /// Looks what is registered, once a turn.
    fn look_at_window(&self, state: &mut State, guard: &DeviceLockGuard<'_>) -> Result<(), Failure> {
        if state.found != Found::Unknown {
            return Ok(());
        }
        let [low, high, bytes, control] =
            self.registers.read([reg::SHMEM_GPA_LO, reg::SHMEM_GPA_HI, reg::SHMEM_SIZE, reg::SHMEM_CTRL])?;
        let address = u64::from(high) << 32 | u64::from(low);
        let ours = self.pages(state).is_some_and(|pages| pages.address == address);
        let known = ours || guard.registered.is_some_and(|registrant| registrant.address == address);
        // It may be an old guest's that has written them since.
        state.staged_window &= ours && pages_are(self.pages(state), bytes);
        (state.found, state.window) = match control {
            reg::SHMEM_REGISTER if ours => (Found::Nothing, Registered::Ours),
            reg::SHMEM_REGISTER if known => (Found::Nothing, Registered::Unknown),
            reg::SHMEM_REGISTER => (Found::Theirs([low, high, bytes]), Registered::Unknown),
            _ => (Found::Nothing, Registered::Nothing),
        };
        Ok(())
    }

    /// The end of a turn while old guests are about. They register their pages once and take it for granted that those are the window; one that has
    /// none takes it for granted that there is no window. So what was registered is registered again, and nothing where nothing was (Q10, Q30).
    pub(super) fn leave_window(
        &self,
        state: &mut State,
        guard: &mut DeviceLockGuard<'_>,
    ) -> Result<(), Failure> {
        if state.found == Found::Unknown && guard.registered.is_none() {
            return Ok(());
        }
        self.look_at_window(state, guard)?;
        match state.found {
            Found::Theirs([low, high, bytes]) => {
                guard.set_registered(None)?;
                state.staged_window = false;
                self.access(&[
                    Access::Write(reg::SHMEM_GPA_LO, low),
                    Access::Write(reg::SHMEM_GPA_HI, high),
                    Access::Write(reg::SHMEM_SIZE, bytes),
                    Access::Write(reg::SHMEM_CTRL, reg::SHMEM_REGISTER),
                ])?;
                state.window = Registered::Unknown;
            }
            _ if state.window != Registered::Nothing => self.release(state, guard)?,
            _ => guard.set_registered(None)?,
        }
        Ok(())
    }

    /// No window.
    fn release(&self, state: &mut State, guard: &mut DeviceLockGuard<'_>) -> Result<(), Failure> {
        self.registers.write(reg::SHMEM_CTRL, reg::SHMEM_RELEASE)?;
        state.window = Registered::Nothing;
        guard.set_registered(None)?;
        Ok(())
    }

    /// The same if the window is still the registrant's.
    pub(super) fn release_if(
        &self,
        state: &mut State,
        guard: &mut DeviceLockGuard<'_>,
        registrant: Registrant,
    ) -> Result<(), Failure> {
        let [low, high] = vgpu_wire::v1::split(registrant.address);
        let seen = self.registers.read([reg::SHMEM_GPA_LO, reg::SHMEM_GPA_HI, reg::SHMEM_CTRL])?;
        if seen == [low, high, reg::SHMEM_REGISTER] {
            return self.release(state, guard);
        }
        state.window = Registered::Unknown;
        guard.set_registered(None)?;
        Ok(())
    }

    /// Gives the window up for good: payload goes through BAR1 from here on (Q9).
    pub(super) fn refuse(&self, state: &mut State, guard: &mut DeviceLockGuard<'_>) -> Result<(), Failure> {
        self.release(state, guard)?;
        state.refused = true;
        Ok(())
    }

    /// Stores a payload to BAR1.
    fn store(&self, payload: Payload<'_>) -> Result<(), Failure> {
        let data = self.data.as_ref().ok_or(GoneReason::Nonsense)?;
        let mut piece = vec![0; payload.len().min(BOUNCE)];
        let mut at = 0;
        while at < payload.len() {
            let bytes = payload.copy(at, &mut piece);
            data.write(reg::BAR1_TO_HOST + at as u32, &piece[..bytes])?;
            at += bytes;
        }
        Ok(())
    }
}

fn pages_are(pages: Option<&Contiguous>, bytes: u32) -> bool {
    pages.is_some_and(|pages| pages.bytes == bytes)
}

fn begins_with_zeros(payload: Payload<'_>) -> bool {
    let mut prefix = [0; PREFIX_BYTES as usize];
    payload.copy(0, &mut prefix);
    prefix == [0; PREFIX_BYTES as usize]
}
