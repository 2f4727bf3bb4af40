//! Guest pages that the host maps: a segment of shared memory beside the window. Only devices with
//! [`crate::registers::CAP_PAGES`] accept them, from sessions that gave the key ([`crate::pci::PAGES_KEY`]).

use zerocopy::FromBytes;

/// Size in bytes of a guest page.
pub const PAGE_BYTES: u64 = 0x1000;
/// Maximum number of runs that a session can have registered, of all segments together.
pub const RUNS_MAX: u32 = 512;

wire_struct! {
    /// Registers pages under a segment number that the guest mints. The tail is `runs` records of
    /// [`PageRun`], 1 to [`RUNS_MAX`]; they follow each other in the segment, and a span lies within one of
    /// them. Reply: no data. The status is not-supported if the host cannot map guest pages, not-permitted
    /// without the key, invalid-value if the pages are not memory of the guest or are already in use, and
    /// out-of-memory if the session would exceed [`RUNS_MAX`].
    pub struct PagesRegister = 16 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number for the segment, minted by the guest and not in use; neither 0 nor
        /// [`SEGMENT_INLINE`](crate::SEGMENT_INLINE).
        pub segment: u32 = 4,
        /// Number of [`PageRun`] records in the tail, 1 to [`RUNS_MAX`].
        pub runs: u32 = 8,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 12,
    }
}

wire_struct! {
    /// A run of consecutive guest-physical pages.
    pub struct PageRun = 16 {
        /// Guest-physical address of the first page, a multiple of [`PAGE_BYTES`].
        pub address: u64 = 0,
        /// Length in bytes, a multiple of [`PAGE_BYTES`] and not 0.
        pub bytes: u64 = 8,
    }
}

wire_struct! {
    /// Ends a registration. Reply: no data. After it, the host no longer accesses the pages.
    pub struct PagesUnregister = 8 {
        /// Index of the reply slot that takes the answer.
        pub reply: u32 = 0,
        /// Number of the segment, from [`PagesRegister::segment`].
        pub segment: u32 = 4,
    }
}

/// Why a list of runs is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunError {
    /// The number of runs is 0, is above [`RUNS_MAX`], or does not match the tail.
    Count(u32),
    /// The run is empty, does not start and end at a page boundary, or reaches beyond the last address.
    Run(PageRun),
}

impl PageRun {
    /// Returns whether the run consists of whole pages, at least one, and ends below the last address.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.bytes > 0
            && self.bytes.is_multiple_of(PAGE_BYTES)
            && self.address.is_multiple_of(PAGE_BYTES)
            && self.address.checked_add(self.bytes).is_some()
    }
}

impl PagesRegister {
    /// Returns the runs in a message's tail, each of them valid, with lengths whose sum does not overflow.
    /// The caller has to check that they are the guest's memory, and nobody else's.
    ///
    /// # Errors
    /// Returns the number of runs, or the first run that is not valid.
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
