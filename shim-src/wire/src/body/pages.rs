//! Guest pages that the host maps: a segment of shared memory beside the window. Only devices with
//! [`crate::registers::CAP_PAGES`] accept them.

wire_struct! {
    /// Registers pages under a segment number that the guest mints. The tail is `runs` records of
    /// [`PageRun`]. Reply: no data; the status is not-supported where the host cannot.
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
