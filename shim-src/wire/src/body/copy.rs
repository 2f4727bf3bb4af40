//! Copies and fills. Host memory appears only as spans of shared memory: the guest has copied a
//! pageable source there, and copies a result from there.

use crate::span::{Mark, Span};

wire_struct! {
    /// Host to device. The tail is the data when the span is inline.
    pub struct CopyIn = 56 {
        /// The stream.
        pub stream: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Destination address.
        pub destination: u64 = 8,
        /// Source.
        pub source: Span = 16,
        /// Stored when the source has been read: it may be written again.
        pub read: Mark = 40,
    }
}

wire_struct! {
    /// Device to host.
    pub struct CopyOut = 56 {
        /// The stream.
        pub stream: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Source address.
        pub source: u64 = 8,
        /// Destination; never inline.
        pub destination: Span = 16,
        /// Stored when the data is there.
        pub written: Mark = 40,
    }
}

wire_struct! {
    /// Device to device, on one device. The ranges do not overlap.
    pub struct CopyDevice = 32 {
        /// The stream.
        pub stream: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Destination address.
        pub destination: u64 = 8,
        /// Source address.
        pub source: u64 = 16,
        /// Bytes.
        pub bytes: u64 = 24,
    }
}

wire_struct! {
    /// A box of rows, device to device: `cuMemcpy2D`, `cuMemcpy3D`. Host sides are packed and unpacked by
    /// the guest, which stages rows.
    pub struct CopyRows = 80 {
        /// The stream.
        pub stream: u32 = 0,
        /// Zero.
        pub reserved: u32 = 4,
        /// Destination address of the first row.
        pub destination: u64 = 8,
        /// Bytes from one destination row to the next.
        pub destination_pitch: u64 = 16,
        /// Bytes from one destination slice to the next.
        pub destination_slice: u64 = 24,
        /// Source address of the first row.
        pub source: u64 = 32,
        /// Bytes from one source row to the next.
        pub source_pitch: u64 = 40,
        /// Bytes from one source slice to the next.
        pub source_slice: u64 = 48,
        /// Bytes of a row.
        pub width: u64 = 56,
        /// Rows.
        pub height: u64 = 64,
        /// Slices.
        pub depth: u64 = 72,
    }
}

wire_struct! {
    /// `cuMemsetD8`, `D16`, `D32` and their 2D forms.
    pub struct Fill = 48 {
        /// The stream.
        pub stream: u32 = 0,
        /// The value; the low `element` bytes count.
        pub value: u32 = 4,
        /// Bytes of an element: 1, 2 or 4.
        pub element: u32 = 8,
        /// Zero.
        pub reserved: u32 = 12,
        /// Address of the first row, aligned to an element.
        pub destination: u64 = 16,
        /// Bytes from one row to the next.
        pub pitch: u64 = 24,
        /// Elements of a row.
        pub width: u64 = 32,
        /// Rows.
        pub height: u64 = 40,
    }
}
