//! Whether a device gets on with anybody's work: how far it has read and carried out the messages of its
//! sessions. Read from the window alone, so that it can be told of a device that is too busy to answer a
//! register access or a new session.

use std::sync::atomic::Ordering;

use vgpu_wire::area;

use crate::device::Device;
use crate::mapping::Mapping;
use crate::open_error::OpenError;

/// A page, in which a return area keeps head and done.
const PAGE: u64 = 4096;

/// Counters of all sessions of a device whose return areas are in the window.
#[derive(Debug)]
pub struct Progress {
    returns: Vec<Mapping>,
}

impl Progress {
    /// Opens a device's counters. A device of version 1 has none: its sessions are counted nowhere.
    ///
    /// # Errors
    /// The window cannot be opened or mapped.
    pub fn of(device: &Device) -> Result<Self, OpenError> {
        if device.bridge.is_some() {
            return Ok(Self { returns: Vec::new() });
        }
        let mappings = device.mappings()?;
        let channels = 0..device.areas.channels;
        let returns = channels.map(|index| mappings.polled(device.areas.of(index) + area::RETURN, PAGE));
        Ok(Self { returns: returns.collect::<Result<_, _>>()? })
    }

    /// A number that changes when any session gets on. Two equal numbers mean that the device is stuck, or
    /// that it has no work.
    #[must_use]
    pub fn count(&self) -> u64 {
        let counters = |page: &Mapping| {
            [area::RETURN_HEAD, area::RETURN_DONE]
                .map(|field| page.load64(field, Ordering::Relaxed))
                .into_iter()
                .fold(0, u64::wrapping_add)
        };
        self.returns.iter().map(counters).fold(0, u64::wrapping_add)
    }
}
