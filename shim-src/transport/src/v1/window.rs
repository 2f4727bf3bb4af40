//! How a payload travels - through BAR0, the shared window, or BAR1 - and whose pages are the window.
//!
//! The device decides, for the whole virtual machine, by rules that read what lies in these places
//! (`vgpu_wire::v1::route`). So before each call that needs the window, or must not meet another process's,
//! this process makes sure of it. Its callers hold the device's lock.

use vgpu_wire::v1::INLINE_BYTES;
use vgpu_wire::v1::registers as reg;
use vgpu_wire::v1::route::PREFIX_BYTES;

use crate::pages::Contiguous;
use crate::registers::Access;
use crate::session_error::{GoneReason, SessionError};

use super::call::{Call, Failure, Payload};
use super::device_lock::DeviceLockGuard;
use super::owners_file::Registrant;
use super::port::{Found, Port, Registered, State, scratch};

/// The length to which a payload is padded when that lets it travel through the window: more than fits BAR0,
/// and a whole word.
const PADDED: u32 = INLINE_BYTES + 4;

/// Puts the payload where the device will read it, and makes sure that the answer's payload comes to this
/// process. Returns how many bytes of payload the call must state.
pub(super) fn place(
    port: &Port,
    state: &mut State,
    guard: &mut DeviceLockGuard<'_>,
    token: Option<u32>,
    call: &Call<'_>,
) -> Result<u32, Failure> {
    let length = call.payload.len() as u32;
    let back = call.back.map_or(0, |(_, bytes)| bytes);
    let short = length <= INLINE_BYTES && back <= INLINE_BYTES as usize;
    if short && (length == 0 || !call.pads || port.pages(state).is_none()) {
        return Ok(length);
    }
    prepare(port, state, guard, token)?;
    let Some(pages) = port.pages(state).filter(|_| state.window == Registered::Ours) else {
        if length > INLINE_BYTES {
            port.store(call.payload)?;
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
        if let Some(data) = &port.data {
            data.write(reg::BAR1_TO_HOST, &[0; PREFIX_BYTES as usize])?;
        }
        state.clean = true;
    }
    Ok(length.max(PADDED))
}

/// Makes this process's pages the window, or makes sure that there is none.
fn prepare(
    port: &Port,
    state: &mut State,
    guard: &mut DeviceLockGuard<'_>,
    token: Option<u32>,
) -> Result<(), Failure> {
    if guard.company {
        // An old guest that starts or ends changes the window without waiting for the lock (Q4).
        read_registered(port, state, guard)?;
    }
    let Some(pages) = port.pages(state) else {
        if state.window != Registered::Nothing {
            release(port, state, guard)?;
        }
        return Ok(());
    };
    if state.window == Registered::Ours {
        return Ok(());
    }
    // First, so that the others know whose the window may be if this process dies.
    guard.set_registered(Some(Registrant { token, address: pages.address }))?;
    let [low, high] = vgpu_wire::v1::split(pages.address);
    // A host may check whose window it is.
    let mut accesses: Vec<Access> = state.staged.own(token.map_or(0, scratch)).into_iter().collect();
    if !std::mem::replace(&mut state.staged_window, true) {
        accesses.extend([
            Access::Write(reg::SHMEM_GPA_LO, low),
            Access::Write(reg::SHMEM_GPA_HI, high),
            Access::Write(reg::SHMEM_SIZE, pages.bytes),
        ]);
    }
    accesses.extend([Access::Write(reg::SHMEM_CTRL, reg::SHMEM_REGISTER), Access::Read(reg::STATUS)]);
    match port.access(&accesses)? {
        reg::DONE => {
            state.window = Registered::Ours;
            Ok(())
        }
        reg::ERROR => refuse(port, state, guard),
        _ => Err(GoneReason::Nonsense.into()),
    }
}

/// Reads what is registered, once while the lock is held.
fn read_registered(port: &Port, state: &mut State, guard: &DeviceLockGuard<'_>) -> Result<(), Failure> {
    if state.found != Found::Unknown {
        return Ok(());
    }
    let [low, high, bytes, control] =
        port.registers.read([reg::SHMEM_GPA_LO, reg::SHMEM_GPA_HI, reg::SHMEM_SIZE, reg::SHMEM_CTRL])?;
    let address = u64::from(high) << 32 | u64::from(low);
    let ours = port.pages(state).is_some_and(|pages| pages.address == address);
    let known = ours || guard.registered.is_some_and(|registrant| registrant.address == address);
    // An old guest may have written them since.
    state.staged_window &= ours && pages_are(port.pages(state), bytes);
    (state.found, state.window) = match control {
        reg::SHMEM_REGISTER if ours => (Found::Nothing, Registered::Ours),
        reg::SHMEM_REGISTER if known => (Found::Nothing, Registered::Unknown),
        reg::SHMEM_REGISTER => (Found::Theirs([low, high, bytes]), Registered::Unknown),
        _ => (Found::Nothing, Registered::Nothing),
    };
    Ok(())
}

/// Restores the window for old guests, before the lock is released. They register their pages once and take
/// it for granted that those are the window; one that has none takes it for granted that there is no window.
/// So what was registered is registered again, and nothing where nothing was (Q10, Q30).
pub(super) fn leave(port: &Port, state: &mut State, guard: &mut DeviceLockGuard<'_>) -> Result<(), Failure> {
    if state.found == Found::Unknown && guard.registered.is_none() {
        return Ok(());
    }
    read_registered(port, state, guard)?;
    match state.found {
        Found::Theirs([low, high, bytes]) => {
            guard.set_registered(None)?;
            state.staged_window = false;
            port.access(&[
                Access::Write(reg::SHMEM_GPA_LO, low),
                Access::Write(reg::SHMEM_GPA_HI, high),
                Access::Write(reg::SHMEM_SIZE, bytes),
                Access::Write(reg::SHMEM_CTRL, reg::SHMEM_REGISTER),
            ])?;
            state.window = Registered::Unknown;
        }
        _ if state.window != Registered::Nothing => release(port, state, guard)?,
        _ => guard.set_registered(None)?,
    }
    Ok(())
}

/// Makes sure that there is no window.
fn release(port: &Port, state: &mut State, guard: &mut DeviceLockGuard<'_>) -> Result<(), Failure> {
    port.registers.write(reg::SHMEM_CTRL, reg::SHMEM_RELEASE)?;
    state.window = Registered::Nothing;
    guard.set_registered(None)?;
    Ok(())
}

/// The same, if the window is still the registrant's.
pub(super) fn release_if(
    port: &Port,
    state: &mut State,
    guard: &mut DeviceLockGuard<'_>,
    registrant: Registrant,
) -> Result<(), Failure> {
    let [low, high] = vgpu_wire::v1::split(registrant.address);
    let seen = port.registers.read([reg::SHMEM_GPA_LO, reg::SHMEM_GPA_HI, reg::SHMEM_CTRL])?;
    if seen == [low, high, reg::SHMEM_REGISTER] {
        return release(port, state, guard);
    }
    state.window = Registered::Unknown;
    guard.set_registered(None)?;
    Ok(())
}

/// Gives the window up for good: payload goes through BAR1 from here on (Q9).
pub(super) fn refuse(port: &Port, state: &mut State, guard: &mut DeviceLockGuard<'_>) -> Result<(), Failure> {
    release(port, state, guard)?;
    state.refused = true;
    Ok(())
}

fn pages_are(pages: Option<&Contiguous>, bytes: u32) -> bool {
    pages.is_some_and(|pages| pages.bytes == bytes)
}

fn begins_with_zeros(payload: Payload<'_>) -> bool {
    let mut prefix = [0; PREFIX_BYTES as usize];
    payload.copy(0, &mut prefix);
    prefix == [0; PREFIX_BYTES as usize]
}
