//! Whether a device gets on with anybody's work: how far it has read and carried out the messages of its
//! sessions. Read from the window alone, so that it can be told of a device that is too busy to answer a
//! register access or a new session.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use vgpu_wire::area;

use crate::areas::Areas;
use crate::bar_mappings::PolledParts;
use crate::device::Device;
use crate::mapping::Mapping;
use crate::open_error::OpenError;

/// A page, in which a return area keeps head and done.
const PAGE: u64 = 4096;

/// Counters of all sessions of a device whose return areas are in the window.
#[derive(Debug)]
pub struct Progress {
    /// `None`: the device is of version 1.
    window: Option<(PolledParts, Areas)>,
    /// Mapped by the first look: there is one for each channel, and most devices answer before anybody looks.
    returns: OnceLock<Vec<Mapping>>,
}

impl Progress {
    /// Opens a device's counters. A device of version 1 has none: its sessions are counted nowhere.
    ///
    /// # Errors
    /// The window cannot be opened.
    pub fn open(device: &Device) -> Result<Self, OpenError> {
        let window = match device.bridge {
            Some(_) => None,
            None => Some((device.mappings()?.polled_parts()?, device.areas)),
        };
        Ok(Self { window, returns: OnceLock::new() })
    }

    /// A number that changes when any session gets on. Two equal numbers mean that the device is stuck, that
    /// it has no work, or that its counters cannot be mapped.
    #[must_use]
    pub fn count(&self) -> u64 {
        let counters = |page: &Mapping| {
            [area::RETURN_HEAD, area::RETURN_DONE]
                .map(|field| page.load64(field, Ordering::Relaxed))
                .into_iter()
                .fold(0, u64::wrapping_add)
        };
        let returns = self.returns.get_or_init(|| self.map().unwrap_or_default());
        returns.iter().map(counters).fold(0, u64::wrapping_add)
    }

    fn map(&self) -> io::Result<Vec<Mapping>> {
        let Some((window, areas)) = &self.window else { return Ok(Vec::new()) };
        (0..areas.channels).map(|index| window.map(areas.offset_of(index) + area::RETURN, PAGE)).collect()
    }
}
