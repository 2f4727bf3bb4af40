//! Resources that the device's process gets from its host: memory for sessions, which is requested ahead, and
//! mappings.

use std::sync::atomic::{AtomicU64, Ordering};

/// Linux's default limit, `DEFAULT_MAX_MAP_COUNT`, used if the limit cannot be read.
const MAPPINGS_USUAL: u64 = 65_530;

/// Returns the number of mappings that Linux allows a process, `vm.max_map_count`. Above it no thread can be
/// started, and the process would end.
#[must_use]
pub fn mappings_allowed() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    text.trim().parse().unwrap_or(MAPPINGS_USUAL)
}

/// The bytes of host memory that sessions hold, and the bytes that the host is known to have for them.
///
/// A session's work allocates in small pieces, and a failed small allocation would end the process. So memory
/// is requested from the host first, more than is needed now, and work for which the host refuses it is not
/// started.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    bytes: AtomicU64,
    /// Number of bytes that the host is known to have for sessions. Charges up to it need no further request.
    asked: AtomicU64,
}

impl HostMemory {
    /// Number of bytes requested ahead. It exceeds the uncharged memory that one message takes.
    const AHEAD: u64 = 4 << 20;

    /// Counts bytes before they are allocated. Returns false, and counts nothing, if the host does not have
    /// them.
    pub(crate) fn reserve(&self, wanted: u64) -> bool {
        let bytes = self.bytes.fetch_add(wanted, Ordering::Relaxed).saturating_add(wanted);
        if bytes <= self.asked.load(Ordering::Relaxed) {
            return true;
        }
        let mut room = Vec::<u8>::new();
        let more = usize::try_from(wanted.saturating_add(Self::AHEAD));
        let there = more.is_ok_and(|more| room.try_reserve_exact(more).is_ok());
        // Without this the compiler may remove the unused allocation.
        std::hint::black_box(&mut room);
        if there {
            self.asked.fetch_max(bytes.saturating_add(Self::AHEAD), Ordering::Relaxed);
        } else {
            self.release(wanted);
        }
        there
    }

    /// Counts bytes that are allocated already.
    pub(crate) fn adopt(&self, bytes: u64) {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.asked.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were freed. The host may give them to another process, so it is asked again for the
    /// next ones.
    pub(crate) fn release(&self, less: u64) {
        let bytes = self.bytes.fetch_sub(less, Ordering::Relaxed).saturating_sub(less);
        self.asked.fetch_min(bytes.saturating_add(Self::AHEAD), Ordering::Relaxed);
    }

    /// Returns the number of bytes that are counted now.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
