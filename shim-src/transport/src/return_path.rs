//! The return path: where the host writes completions, replies and downloads, and how fast the guest reads
//! them there.
//!
//! The speed of reads from a BAR depends on the hypervisor: as fast as memory, or a hundred times slower, a
//! trip over the bus for each load. Guest pages are memory in any case. If there are some, both are measured
//! with a few loads, and pages are used unless the BAR is much faster, for which no machine is known.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Instant;

use vgpu_wire::area;

use crate::bar_mappings::BarMappings;
use crate::device::Device;
use crate::mapping::{Mapping, MemoryType};
use crate::open_error::OpenError;
use crate::pages::{HugePages, REST, device_key};

/// Number of words loaded to measure memory: tens of microseconds if each is a trip over the bus.
const WORDS: u64 = 64;
/// Ratio above which pages are too slow: they are not used if they are more than this many times slower than
/// the BAR. Smaller differences are noise, because either may be faster where both are memory.
const MUCH: u64 = 4;
/// Ratio above which window memory is too slow: memory that is read more than this many times slower than
/// ordinary memory is not handed to programs.
const SLOW: u64 = 8;

/// Reason for the choice of a session's return path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The window is used because the device accepts no pages.
    NotTaken,
    /// The window is used because only an administrator may name pages.
    NotAllowed,
    /// The window is used because the kernel has no free large pages.
    NoPages,
    /// The window is used because the host refused the pages.
    Refused,
    /// The window is used because it is much faster than the pages.
    Slower,
    /// Pages are used because they are at least about as fast as the window.
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

/// The return path of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReturnPath {
    /// Number of bytes of guest pages that the host writes to; 0 if it writes to the window.
    pub page_bytes: u64,
    /// Speed of loads of words of the window through `resource2`, in megabytes per second; `None` if there
    /// was nothing to compare with.
    pub window_mb_s: Option<f64>,
    /// Speed of loads of words of guest pages, in megabytes per second; `None` if there are none.
    pub pages_mb_s: Option<f64>,
    /// Reason for this choice.
    pub why: Why,
}

/// Pages offered to the host, with the key that permits it.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) kept: HugePages,
    /// Key that proves to the host that this process may name pages.
    pub(crate) key: u64,
}

/// Chooses the return path of a session on a channel that this process has locked.
pub(crate) fn choose(
    device: &Device,
    mappings: &BarMappings,
    channel: u32,
) -> Result<(Option<Offer>, ReturnPath), OpenError> {
    let mut path = ReturnPath { page_bytes: 0, window_mb_s: None, pages_mb_s: None, why: Why::NotTaken };
    let Some(pool) = &device.pool else { return Ok((None, path)) };
    let Ok(Some(key)) = device_key(&device.function) else {
        path.why = Why::NotAllowed;
        return Ok((None, path));
    };
    let Some(kept) = pool.acquire(channel) else {
        path.why = Why::NoPages;
        return Ok((None, path));
    };
    // The facts can be read before there is a session.
    let facts = match mappings.facts(device.areas.offset_of(0)) {
        Ok(facts) => facts,
        Err(error) => {
            kept.release();
            return Err(error);
        }
    };
    let window = time_loads(&facts, 0);
    let pages = time_loads(&kept.mapping, REST);
    path.window_mb_s = Some(speed(window));
    path.pages_mb_s = Some(speed(pages));
    if pages / MUCH > window {
        kept.release();
        path.why = Why::Slower;
        return Ok((None, path));
    }
    path.why = Why::AsFast;
    path.page_bytes = area::RETURN_BYTES;
    Ok((Some(Offer { kept, key }), path))
}

/// Converts a measured time in nanoseconds to megabytes per second.
fn speed(nanoseconds: u64) -> f64 {
    f64::from((8 * WORDS) as u32) * 1e3 / f64::from(u32::try_from(nanoseconds).unwrap_or(u32::MAX).max(1))
}

/// Returns whether a part of the window is read about as fast as memory.
pub(crate) fn reads_well(window: &Mapping, offset: u64) -> bool {
    if window.memory() == MemoryType::WriteBack {
        return true;
    }
    let Ok(own) = Mapping::anonymous(4096) else { return true };
    own.put(0, &[1; 4096]);
    time_loads(window, offset) <= SLOW * time_loads(&own, 0)
}

/// Returns the nanoseconds that loads of [`WORDS`] words from `offset` on take, in the fastest of several
/// rounds.
fn time_loads(memory: &Mapping, offset: u64) -> u64 {
    let load = |words: u64| {
        for word in 0..words {
            core::hint::black_box(memory.load64(offset + 8 * word, Ordering::Relaxed));
        }
    };
    // The first access to the page, and an emulated processor's first translation of this code, must not be
    // measured.
    load(1);
    let mut best = u64::MAX;
    let begin = Instant::now();
    for round in 1..=8 {
        let start = Instant::now();
        load(WORDS);
        best = best.min(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        // Slow memory needs no second round. Fast memory may need one on a busy machine.
        let spent = begin.elapsed().as_micros();
        if spent > 2000 || (round >= 3 && spent > 500) {
            break;
        }
    }
    best.max(1)
}
