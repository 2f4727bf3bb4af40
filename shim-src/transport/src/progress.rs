//! Progress of a device on the work of all its sessions: how far it has read and executed their messages. It
//! is read from the window alone, so it can be observed even if the device is too busy to answer a register
//! access or to accept a new session.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use vgpu_wire::area;

use crate::areas::Areas;
use crate::bar_mappings::PolledParts;
use crate::device::Device;
use crate::mapping::Mapping;
use crate::open_error::OpenError;

/// Length of a page, in which a return area keeps head and done.
const PAGE: u64 = 4096;

/// Counters of all sessions of a device whose return areas are in the window.
#[derive(Debug)]
pub struct Progress {
    /// Window and areas of the device; `None` if it has version 1.
    window: Option<(PolledParts, Areas)>,
    /// Return areas of all channels, mapped by the first read, because most devices answer before their
    /// progress is examined.
    returns: OnceLock<Vec<Mapping>>,
}

impl Progress {
    /// Opens a device's counters. A device of version 1 has none.
    ///
    /// # Errors
    /// Fails if the window cannot be opened.
    pub fn open(device: &Device) -> Result<Self, OpenError> {
        let window = match device.bridge {
            Some(_) => None,
            None => Some((device.mappings()?.polled_parts()?, device.areas)),
        };
        Ok(Self { window, returns: OnceLock::new() })
    }

    /// Returns a number that changes when any session makes progress. Two equal numbers mean that the device
    /// is stuck, that it has no work, or that its counters cannot be mapped.
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
