//! Guest pages that the host maps: a segment of shared memory beside the window. Only devices with
//! [`crate::registers::CAP_PAGES`] accept them, from sessions that gave the key ([`crate::pci::PAGES_KEY`]).

use zerocopy::FromBytes;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 0x1000;
/// The most runs that a session can have registered, all segments together.
pub const RUNS_MAX: u32 = 512;

wire_struct! {
    /// Registers pages under a segment number that the guest mints. The tail is `runs` records of
    /// [`PageRun`], 1 to [`RUNS_MAX`]; they lie one behind the other in the segment, and a span lies within one of them. Reply: no
    /// data; the status is not-supported where the host cannot, not-permitted without the key, invalid-value where the pages are no
    /// memory or somebody's already, out-of-memory above [`RUNS_MAX`] of the session.
    pub struct PagesRegister = 16 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// Minted segment, neither 0 nor inline.
        pub segment: u32 = 4,
        /// Records in the tail.
        pub runs: u32 = 8,
        /// Zero.
        pub reserved: u32 = 12,
    }
}

wire_struct! {
    /// Consecutive guest-physical memory.
    pub struct PageRun = 16 {
        /// Guest-physical address, page aligned.
        pub address: u64 = 0,
        /// Bytes, a multiple of the page size.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// Ends a registration. Reply: no data; when it comes, the host touches the pages no more.
    pub struct PagesUnregister = 8 {
        /// Reply slot.
        pub reply: u32 = 0,
        /// The segment.
        pub segment: u32 = 4,
    }
}

/// A run that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunError {
    /// There are none, or more than [`RUNS_MAX`].
    Count(u32),
    /// It is empty, does not begin or end with a page, or goes beyond the last address.
    Run(PageRun),
}

impl PageRun {
    /// Whether it is whole pages, one at least, below the end of all addresses.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.bytes > 0
            && self.bytes.is_multiple_of(PAGE_BYTES)
            && self.address.is_multiple_of(PAGE_BYTES)
            && self.address.checked_add(self.bytes).is_some()
    }
}

impl PagesRegister {
    /// The runs in a message's tail, all of them good; their bytes together do not overflow. Whether there is memory, and whose,
    /// is not looked at.
    ///
    /// # Errors
    /// What is wrong.
    pub fn runs(self, tail: &[u8]) -> Result<impl Iterator<Item = PageRun> + '_, RunError> {
        let records = tail.chunks_exact(size_of::<PageRun>());
        let count = records.len();
        if self.runs == 0
            || self.runs > RUNS_MAX
            || count != self.runs as usize
            || !records.remainder().is_empty()
        {
            return Err(RunError::Count(self.runs));
        }
        let runs = records.filter_map(|record| PageRun::read_from_bytes(record).ok());
        let mut all: u64 = 0;
        for run in runs.clone() {
            let sum = all.checked_add(run.bytes).filter(|_| run.is_good());
            all = sum.ok_or(RunError::Run(run))?;
        }
        Ok(runs)
    }
}
