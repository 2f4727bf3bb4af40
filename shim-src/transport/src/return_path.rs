//! The return path: where the host writes completions, answers and downloads, and how fast the guest reads
//! them there.
//!
//! Reads from a BAR are as fast as the hypervisor makes them: as fast as memory, or a hundred times slower, a
//! trip over the bus for each load. Pages of the guest's own are memory in any case. Where there are some,
//! both are measured with a few loads, and pages are taken unless the BAR is much faster, which no machine is
//! known for.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Instant;

use vgpu_wire::area;

use crate::bar_mappings::BarMappings;
use crate::device::Device;
use crate::mapping::{Mapping, MemoryType};
use crate::open_error::OpenError;
use crate::pages::{HugePages, REST, device_key};

/// Number of words that are loaded to measure memory: tens of microseconds where each is a trip over the bus.
const WORDS: u64 = 64;
/// Pages that are more than this many times slower than the BAR are not taken. Less is noise: where both are
/// memory, either may win.
const MUCH: u64 = 4;
/// Window memory that is more than this many times slower to read than memory is not handed to programs.
const SLOW: u64 = 8;

/// Why a session has the return path that it has.
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

/// The return path of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReturnPath {
    /// Bytes of guest pages that the host writes to; 0: it writes to the window.
    pub page_bytes: u64,
    /// Megabytes a second at which words of the window are loaded through `resource2`. `None`: there was
    /// nothing to compare with.
    pub window_mb_s: Option<f64>,
    /// The same of guest pages.
    pub pages_mb_s: Option<f64>,
    /// Why this path.
    pub why: Why,
}

/// Pages that are offered to the host.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) kept: HugePages,
    /// The key that shows the host that this process may name pages.
    pub(crate) key: u64,
}

/// Chooses the return path of a session on a channel whose lock this process has.
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

/// Megabytes a second.
fn speed(nanoseconds: u64) -> f64 {
    f64::from((8 * WORDS) as u32) * 1e3 / f64::from(u32::try_from(nanoseconds).unwrap_or(u32::MAX).max(1))
}

/// Whether a part of the window is read about as fast as memory.
pub(crate) fn reads_well(window: &Mapping, offset: u64) -> bool {
    if window.memory() == MemoryType::WriteBack {
        return true;
    }
    let Ok(own) = Mapping::anonymous(4096) else { return true };
    own.put(0, &[1; 4096]);
    time_loads(window, offset) <= SLOW * time_loads(&own, 0)
}

/// Nanoseconds that loads of [`WORDS`] words from `offset` on take, in the best of a few rounds.
fn time_loads(memory: &Mapping, offset: u64) -> u64 {
    let load = |words: u64| {
        for word in 0..words {
            core::hint::black_box(memory.load64(offset + 8 * word, Ordering::Relaxed));
        }
    };
    // The first access to the page, and an emulated processor's first translation of this code, are not to be
    // measured.
    load(1);
    let mut best = u64::MAX;
    let begin = Instant::now();
    for round in 1..=8 {
        let start = Instant::now();
        load(WORDS);
        best = best.min(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        // Slow memory needs no second round; on a busy machine fast memory may.
        let spent = begin.elapsed().as_micros();
        if spent > 2000 || (round >= 3 && spent > 500) {
            break;
        }
    }
    best.max(1)
}
