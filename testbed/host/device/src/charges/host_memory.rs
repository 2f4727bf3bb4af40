//! What the device's process gets of its host: memory for sessions, asked for ahead, and mappings.

use std::sync::atomic::{AtomicU64, Ordering};

/// What Linux allows where it does not say: `DEFAULT_MAX_MAP_COUNT`.
const MAPPINGS_USUAL: u64 = 65_530;

/// How many mappings Linux allows a process: `vm.max_map_count`. Over it no thread can be started, and the
/// process ends.
#[must_use]
pub fn mappings_allowed() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(MAPPINGS_USUAL)
}

/// The bytes of host memory that sessions hold, and how many the host is known to have for them.
///
/// A session's work allocates in small pieces, where a failure would end the process. So the host is asked
/// first, for more than is needed now, and what it refuses is not started.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    bytes: AtomicU64,
    /// Up to how many bytes the host has been asked.
    asked: AtomicU64,
}

impl HostMemory {
    /// Bytes for which the host is asked ahead: more than one message makes it hold beside what is charged.
    const AHEAD: u64 = 4 << 20;

    /// Counts bytes that are going to be held. False: the host does not have them, and nothing is counted.
    pub(crate) fn take(&self, wanted: u64) -> bool {
        let bytes = self.bytes.fetch_add(wanted, Ordering::Relaxed).saturating_add(wanted);
        if bytes <= self.asked.load(Ordering::Relaxed) {
            return true;
        }
        let mut room = Vec::<u8>::new();
        let more = usize::try_from(wanted.saturating_add(Self::AHEAD));
        let there = more.is_ok_and(|more| room.try_reserve_exact(more).is_ok());
        // The compiler may otherwise leave out an allocation that nobody uses.
        std::hint::black_box(&mut room);
        if there {
            self.asked.fetch_max(bytes.saturating_add(Self::AHEAD), Ordering::Relaxed);
        } else {
            self.give_back(wanted);
        }
        there
    }

    /// Counts bytes that are held no more. The host may give them to somebody else, so it is asked again for
    /// the next.
    pub(crate) fn give_back(&self, less: u64) {
        let bytes = self.bytes.fetch_sub(less, Ordering::Relaxed).saturating_sub(less);
        self.asked.fetch_min(bytes.saturating_add(Self::AHEAD), Ordering::Relaxed);
    }

    /// The bytes that are counted.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
