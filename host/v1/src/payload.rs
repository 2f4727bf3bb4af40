//! Location of the payload of a call and of its answer: inline in BAR0, in BAR1, or in the guest's pages.

use vgpu_device::GuestMemory;
use vgpu_wire::v1::registers::{BAR1_TO_GUEST, BAR1_TO_HOST, ErrorCode};
use vgpu_wire::v1::route::{self, PREFIX_BYTES, Place, Prefixes};
use vgpu_wire::v1::{INLINE_BYTES, call};

use super::properties::Properties;
use super::state::{DeviceState, Window};

/// Reads the call's payload from where the rules of [`vgpu_wire::v1`] put it. Fails if the guest's pages no
/// longer exist, or if the host has no memory.
pub(super) fn fetch(
    state: &DeviceState,
    memory: &dyn GuestMemory,
    properties: &Properties,
) -> Result<Vec<u8>, ErrorCode> {
    let staged = &state.registers.staged;
    let window = window_for(state, properties, staged.scratch);
    let half = window.map_or(0, |window| window.half);
    let seen = prefixes(state, memory, window);
    let (place, bytes) = route::to_host(staged.op, staged.data_len, half, seen, properties.preferences);
    let length = bytes as usize;
    Ok(match place {
        Place::Nowhere => Vec::new(),
        Place::Inline => staged.inline[..length].to_vec(),
        Place::Bar1 => {
            let mut data = room(length)?;
            data.copy_from_slice(state.bar1.get(BAR1_TO_HOST, length));
            data
        }
        Place::Window => {
            let window = window.ok_or(ErrorCode::RequestTooLarge)?;
            // The guest may have freed the pages since it registered them.
            if call::is_bulk(staged.op) && !memory.map(window.address, window.half.into()) {
                return Err(ErrorCode::InvalidRequest);
            }
            let mut data = room(length)?;
            if !memory.read(window.address, &mut data) {
                return Err(ErrorCode::InvalidRequest);
            }
            data
        }
    })
}

/// Finds out whether there is data (a byte that is not 0) in each place where a bulk payload can be. The
/// memory is read only if the decision depends on it.
fn prefixes(state: &DeviceState, memory: &dyn GuestMemory, window: Option<Window>) -> Prefixes {
    let staged = &state.registers.staged;
    let (Some(window), true) = (window, call::is_bulk(staged.op)) else { return Prefixes::default() };
    if staged.data_len <= INLINE_BYTES {
        return Prefixes::default();
    }
    let length = staged.data_len.min(PREFIX_BYTES) as usize;
    let any = |bytes: &[u8]| bytes.iter().any(|&byte| byte != 0);
    let mut prefix = [0; PREFIX_BYTES as usize];
    let prefix = &mut prefix[..length];
    let window_prefix = memory.read(window.address, prefix) && any(prefix);
    let fresh = window_prefix || (memory.read(window.address, prefix) && any(prefix));
    Prefixes { window: window_prefix, window_fresh: fresh, bar1: any(state.bar1.get(BAR1_TO_HOST, length)) }
}

/// Writes the answer's payload to where the rules put it. Returns false if the guest's pages no longer exist.
pub(super) fn put(
    state: &mut DeviceState,
    memory: &dyn GuestMemory,
    properties: &Properties,
    token: u32,
    data: &[u8],
) -> bool {
    let window = window_for(state, properties, token);
    let (place, bytes) = route::to_guest(data.len() as u32, window.map_or(0, |window| window.half));
    let data = &data[..bytes as usize];
    match (place, window) {
        (Place::Nowhere, _) => true,
        (Place::Inline, _) => {
            state.registers.shown.inline[..data.len()].copy_from_slice(data);
            true
        }
        (Place::Window, Some(window)) => memory.write(window.address + u64::from(window.half), data),
        (Place::Window | Place::Bar1, _) => {
            state.bar1.answer(BAR1_TO_GUEST, data);
            true
        }
    }
}

/// Returns the window, if calls with this token may use it.
fn window_for(state: &DeviceState, properties: &Properties, token: u32) -> Option<Window> {
    state.window.filter(|window| !properties.window_of_its_owner || window.token == token)
}

/// Allocates a zeroed buffer for a payload. The guest chooses its length, up to half of a window of any size,
/// and the host may not have that much memory: then the call fails.
fn room(bytes: usize) -> Result<Vec<u8>, ErrorCode> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| ErrorCode::RequestTooLarge)?;
    room.resize(bytes, 0);
    Ok(room)
}
