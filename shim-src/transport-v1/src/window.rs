//! Chooses which of BAR0, BAR1 and the shared window carries a payload, and whose pages are the window.
//!
//! The device decides this for the whole virtual machine, by rules that read the contents of these
//! (`vgpu_wire::v1::route`). So before each call whose payload may go through the window, or must not go
//! through another process's, this process ensures the window's state. The callers hold the device's lock.

use vgpu_transport::parts::Access;
use vgpu_transport::{GoneReason, SessionError};
use vgpu_wire::v1::route::PREFIX_BYTES;
use vgpu_wire::v1::{INLINE_BYTES, registers as reg};

use crate::call::{Call, CallError, Payload};
use crate::contiguous_pages::ContiguousPages;
use crate::device_lock::DeviceLockGuard;
use crate::owners_file::Registrant;
use crate::port::{MailboxState, OldGuestWindow, Port, WindowOwner, scratch};

/// Length to which a short payload is padded so that the window carries it: a whole word more than fits BAR0.
const PADDED: u32 = INLINE_BYTES + 4;

/// Copies the payload to where the device reads it, and makes sure that the answer's payload reaches this
/// process. Returns the payload length that the call must state.
pub(super) fn place_payload(
    port: &Port,
    state: &mut MailboxState,
    guard: &mut DeviceLockGuard<'_>,
    token: Option<u32>,
    call: &Call<'_>,
) -> Result<u32, CallError> {
    let length = call.payload.len() as u32;
    let back = call.back.map_or(0, |(_, bytes)| bytes);
    let short = length <= INLINE_BYTES && back <= INLINE_BYTES as usize;
    if short && (length == 0 || !call.pads || port.pages(state).is_none()) {
        return Ok(length);
    }
    prepare(port, state, guard, token)?;
    let Some(pages) = port.pages(state).filter(|_| state.window == WindowOwner::Ours) else {
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
        return Err(CallError::Lost(SessionError::Misuse { what: "a payload above what a call carries" }));
    }
    // SAFETY: readable, as whoever made the payload promised; nobody has a pointer into the window.
    unsafe { pages.mapping.stream_in(0, call.payload.start(), call.payload.len()) };
    pages.mapping.order_stores();
    // The device reads a payload that starts with zeros from BAR1 if BAR1 starts with other bytes (Q6).
    if call.op.is_bulk() && !state.clean && begins_with_zeros(call.payload) {
        if let Some(data) = &port.data {
            data.write(reg::BAR1_TO_HOST, &[0; PREFIX_BYTES as usize])?;
        }
        state.clean = true;
    }
    Ok(length.max(PADDED))
}

/// Registers this process's pages as the window. If it has none, ensures that there is no window.
fn prepare(
    port: &Port,
    state: &mut MailboxState,
    guard: &mut DeviceLockGuard<'_>,
    token: Option<u32>,
) -> Result<(), CallError> {
    if guard.old_guests {
        // An old guest that starts or exits changes the window without the lock (Q4).
        read_registered(port, state, guard)?;
    }
    let Some(pages) = port.pages(state) else {
        if state.window != WindowOwner::Nothing {
            release(port, state, guard)?;
        }
        return Ok(());
    };
    if state.window == WindowOwner::Ours {
        return Ok(());
    }
    // The owner is recorded first, so that other processes know it if this process dies.
    guard.set_registered(Some(Registrant { token, address: pages.address }))?;
    let [low, high] = vgpu_wire::v1::split(pages.address);
    // A host may check the owner of the window.
    let mut accesses: Vec<Access> = state.staged.store_owner(token.map_or(0, scratch)).into_iter().collect();
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
            state.window = WindowOwner::Ours;
            Ok(())
        }
        reg::ERROR => give_up(port, state, guard),
        _ => Err(GoneReason::Nonsense.into()),
    }
}

/// Reads which window is registered, once for each time that the lock is held.
fn read_registered(
    port: &Port,
    state: &mut MailboxState,
    guard: &DeviceLockGuard<'_>,
) -> Result<(), CallError> {
    if state.old_guest_window != OldGuestWindow::Unknown {
        return Ok(());
    }
    let [low, high, bytes, control] =
        port.registers.read([reg::SHMEM_GPA_LO, reg::SHMEM_GPA_HI, reg::SHMEM_SIZE, reg::SHMEM_CTRL])?;
    let address = u64::from(high) << 32 | u64::from(low);
    let ours = port.pages(state).is_some_and(|pages| pages.address == address);
    let known = ours || guard.registered.is_some_and(|registrant| registrant.address == address);
    // An old guest may have overwritten the registers.
    state.staged_window &= ours && pages_are(port.pages(state), bytes);
    (state.old_guest_window, state.window) = match control {
        reg::SHMEM_REGISTER if ours => (OldGuestWindow::Nothing, WindowOwner::Ours),
        reg::SHMEM_REGISTER if known => (OldGuestWindow::Nothing, WindowOwner::Unknown),
        reg::SHMEM_REGISTER => (OldGuestWindow::Theirs([low, high, bytes]), WindowOwner::Unknown),
        _ => (OldGuestWindow::Nothing, WindowOwner::Nothing),
    };
    Ok(())
}

/// Restores the window of old guests before the lock is released. An old guest registers its pages once and
/// assumes that they stay the window; one without pages assumes that there is no window (Q10, Q30).
pub(super) fn restore_for_old_guests(
    port: &Port,
    state: &mut MailboxState,
    guard: &mut DeviceLockGuard<'_>,
) -> Result<(), CallError> {
    if state.old_guest_window == OldGuestWindow::Unknown && guard.registered.is_none() {
        return Ok(());
    }
    read_registered(port, state, guard)?;
    match state.old_guest_window {
        OldGuestWindow::Theirs([low, high, bytes]) => {
            guard.set_registered(None)?;
            state.staged_window = false;
            port.access(&[
                Access::Write(reg::SHMEM_GPA_LO, low),
                Access::Write(reg::SHMEM_GPA_HI, high),
                Access::Write(reg::SHMEM_SIZE, bytes),
                Access::Write(reg::SHMEM_CTRL, reg::SHMEM_REGISTER),
            ])?;
            state.window = WindowOwner::Unknown;
        }
        _ if state.window != WindowOwner::Nothing => release(port, state, guard)?,
        _ => guard.set_registered(None)?,
    }
    Ok(())
}

/// Releases the window, whoever owns it.
fn release(port: &Port, state: &mut MailboxState, guard: &mut DeviceLockGuard<'_>) -> Result<(), CallError> {
    port.registers.write(reg::SHMEM_CTRL, reg::SHMEM_RELEASE)?;
    state.window = WindowOwner::Nothing;
    guard.set_registered(None)?;
    Ok(())
}

/// Releases the window if it still consists of the registrant's pages.
pub(super) fn release_registrant(
    port: &Port,
    state: &mut MailboxState,
    guard: &mut DeviceLockGuard<'_>,
    registrant: Registrant,
) -> Result<(), CallError> {
    let [low, high] = vgpu_wire::v1::split(registrant.address);
    let seen = port.registers.read([reg::SHMEM_GPA_LO, reg::SHMEM_GPA_HI, reg::SHMEM_CTRL])?;
    if seen == [low, high, reg::SHMEM_REGISTER] {
        return release(port, state, guard);
    }
    state.window = WindowOwner::Unknown;
    guard.set_registered(None)?;
    Ok(())
}

/// Releases the window and does not register one again: from now on BAR1 carries payload (Q9).
pub(super) fn give_up(
    port: &Port,
    state: &mut MailboxState,
    guard: &mut DeviceLockGuard<'_>,
) -> Result<(), CallError> {
    release(port, state, guard)?;
    state.refused = true;
    Ok(())
}

fn pages_are(pages: Option<&ContiguousPages>, bytes: u32) -> bool {
    pages.is_some_and(|pages| pages.bytes == bytes)
}

fn begins_with_zeros(payload: Payload<'_>) -> bool {
    let mut prefix = [0; PREFIX_BYTES as usize];
    payload.copy_to(0, &mut prefix);
    prefix == [0; PREFIX_BYTES as usize]
}
