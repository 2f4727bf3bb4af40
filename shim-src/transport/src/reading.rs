//! How a session reads what its host writes - completions, answers, copies back: which ways there are, how fast they are, which is taken.
//!
//! A BAR is read as the hypervisor lets it be: as fast as memory, or a hundred times slower, a trip over the bus for each load. Pages
//! of the guest's own are memory in any case. Where they are to be had, both are measured with a few loads, and pages are taken
//! unless the BAR is much the faster, which no machine is known for.

use std::fmt;

use vgpu_wire::area;
use vgpu_wire::registers::CAP_PAGES;

use crate::device::{Device, OpenError};
use crate::mapping::{Mapping, MemoryType};
use crate::pages::{Keeper, Kept, REST, device_key};
use crate::reach::Reach;

/// Words that are loaded to measure a way: tens of microseconds where each is a trip over the bus.
const WORDS: u64 = 64;
/// Pages that are so many times slower than the BAR are not taken. Less is noise: where both are memory, either may win.
const MUCH: u64 = 4;
/// Window memory that is so many times slower to read than memory is not for programs to read.
const SLOW: u64 = 8;

/// Why a session reads the way that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The window: the device takes no pages.
    NotTaken,
    /// The window: only an administrator may name pages.
    NotAllowed,
    /// The window: the kernel has no large pages set aside, or none that are free.
    NoPages,
    /// The window: the host did not take the pages.
    Refused,
    /// The window: it is much faster.
    Slower,
    /// Pages: they are as fast as the window, or faster.
    AsFast,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTaken => "the host takes no guest pages",
            Self::NotAllowed => "only root may name guest pages to the host",
            Self::NoPages => "no large pages are free (vm.nr_hugepages)",
            Self::Refused => "the host refused the guest's pages",
            Self::Slower => "guest pages are much slower to read",
            Self::AsFast => "guest pages are as fast to read as the window, or faster",
        })
    }
}

/// How a session reads what its host writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Bytes of guest pages that the host writes to; 0: it writes to the window.
    pub page_bytes: u64,
    /// Megabytes a second at which words of the window are loaded through `resource2`; `None`: there was nothing to compare with.
    pub window_mb_s: Option<f64>,
    /// The same of guest pages.
    pub pages_mb_s: Option<f64>,
    /// Why this way.
    pub why: Why,
}

/// Pages that are to be given to the host.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) kept: Kept,
    /// By which the host knows that this process may.
    pub(crate) key: u64,
}

/// The way of a session on a channel whose lock this process has.
pub(crate) fn choose(
    device: &Device,
    reach: &Reach,
    channel: u32,
) -> Result<(Option<Offer>, Reading), OpenError> {
    let mut reading = Reading { page_bytes: 0, window_mb_s: None, pages_mb_s: None, why: Why::NotTaken };
    let Some(keeper) = &device.keeper else { return Ok((None, reading)) };
    let Ok(Some(key)) = device_key(&device.function) else {
        reading.why = Why::NotAllowed;
        return Ok((None, reading));
    };
    let Some(kept) = keeper.take(channel) else {
        reading.why = Why::NoPages;
        return Ok((None, reading));
    };
    // The facts are what is there to be read before a session is.
    let facts = match reach.facts(device.areas.of(0)) {
        Ok(facts) => facts,
        Err(error) => {
            kept.release();
            return Err(error);
        }
    };
    let window = facts.time_loads(0, WORDS);
    let pages = kept.mapping.time_loads(REST, WORDS);
    reading.window_mb_s = Some(speed(window));
    reading.pages_mb_s = Some(speed(pages));
    if pages / MUCH > window {
        kept.release();
        reading.why = Why::Slower;
        return Ok((None, reading));
    }
    reading.why = Why::AsFast;
    reading.page_bytes = area::RETURN_BYTES;
    Ok((Some(Offer { kept, key }), reading))
}

/// Megabytes a second.
fn speed(nanoseconds: u64) -> f64 {
    f64::from((8 * WORDS) as u32) * 1e3 / f64::from(u32::try_from(nanoseconds).unwrap_or(u32::MAX).max(1))
}

/// Where pages of a device's sessions are kept; `None`: it takes none.
pub(crate) fn keeper(function: &crate::PciFunction, capabilities: u32) -> Option<Keeper> {
    (capabilities & CAP_PAGES != 0).then(|| Keeper::of(function, function.is_simulated()))
}

/// Whether a part of the window is read about as fast as memory.
pub(crate) fn reads_well(window: &Mapping, offset: u64) -> bool {
    if window.memory() == MemoryType::WriteBack {
        return true;
    }
    let Ok(own) = Mapping::anonymous(4096) else { return true };
    own.put(0, &[1; 4096]);
    window.time_loads(offset, WORDS) <= SLOW * own.time_loads(0, WORDS)
}
