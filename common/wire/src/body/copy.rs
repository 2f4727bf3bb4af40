//! Copies and fills. Host memory appears only as spans of shared memory: the guest copies a pageable source
//! to shared memory before, and a result from there afterwards.

use crate::span::{Mark, Span};

wire_struct! {
    /// H2D: copies shared memory to the device. The tail is the data when the source is inline.
    pub struct CopyIn = 56 {
        /// Stream that orders the work; 0 is the legacy default stream.
        pub stream: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// First device address to write.
        pub destination: u64 = 8,
        /// Bytes to copy, in the window, in guest pages, or inline.
        pub source: Span = 16,
        /// Stored once the source has been read, so that the guest may overwrite it.
        pub read: Mark = 40,
    }
}

wire_struct! {
    /// D2H: copies device memory to shared memory.
    pub struct CopyOut = 56 {
        /// Stream that orders the work; 0 is the legacy default stream.
        pub stream: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// First device address to read.
        pub source: u64 = 8,
        /// Range that receives the bytes, in the window or in guest pages. Never inline.
        pub destination: Span = 16,
        /// Stored once the bytes are at the destination.
        pub written: Mark = 40,
    }
}

wire_struct! {
    /// D2D: copies within one device. The ranges do not overlap.
    pub struct CopyDevice = 32 {
        /// Stream that orders the work; 0 is the legacy default stream.
        pub stream: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// First device address to write.
        pub destination: u64 = 8,
        /// First device address to read.
        pub source: u64 = 16,
        /// Number of bytes to copy.
        pub bytes: u64 = 24,
    }
}

wire_struct! {
    /// `cuMemcpy2D` and `cuMemcpy3D` within the device: copies `depth` slices of `height` rows. Where one
    /// side is host memory the guest stages the rows itself.
    pub struct CopyRows = 80 {
        /// Stream that orders the work; 0 is the legacy default stream.
        pub stream: u32 = 0,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 4,
        /// Device address of the first row to write.
        pub destination: u64 = 8,
        /// Bytes from one destination row to the next.
        pub destination_pitch: u64 = 16,
        /// Bytes from one destination slice to the next.
        pub destination_slice: u64 = 24,
        /// Device address of the first row to read.
        pub source: u64 = 32,
        /// Bytes from one source row to the next.
        pub source_pitch: u64 = 40,
        /// Bytes from one source slice to the next.
        pub source_slice: u64 = 48,
        /// Bytes to copy of each row.
        pub width: u64 = 56,
        /// Number of rows of a slice.
        pub height: u64 = 64,
        /// Number of slices.
        pub depth: u64 = 72,
    }
}

wire_struct! {
    /// `cuMemsetD8`, `D16`, `D32` and their 2D forms: fills `height` rows with one value.
    pub struct Fill = 48 {
        /// Stream that orders the work; 0 is the legacy default stream.
        pub stream: u32 = 0,
        /// Value of an element, in the low `element` bytes.
        pub value: u32 = 4,
        /// Size of an element in bytes: 1, 2 or 4.
        pub element: u32 = 8,
        /// Must be zero, or the host ends the session.
        pub reserved: u32 = 12,
        /// Device address of the first row, a multiple of the element's size.
        pub destination: u64 = 16,
        /// Bytes from one row to the next.
        pub pitch: u64 = 24,
        /// Number of elements of a row.
        pub width: u64 = 32,
        /// Number of rows.
        pub height: u64 = 40,
    }
}
