//! One part of an image: code for one architecture, as the program passed it.

use std::slice;
use std::sync::Arc;

use crate::fatbin::{Entry, FatbinError, Kind, Packing};
use crate::ptx::Specific;

/// Bytes of code: a copy, or the program's own bytes, which stay in place.
#[derive(Clone, Debug)]
pub enum Bytes {
    /// Bytes of the program, which stay in place and unchanged.
    Kept(&'static [u8]),
    /// Bytes of the shim: a copy, or the result of unpacking.
    Own(Arc<Vec<u8>>),
}

impl Bytes {
    /// Returns the program's bytes themselves if it promised to keep them (`kept`), otherwise a copy.
    pub fn owned_if_needed(bytes: &[u8], kept: bool) -> Self {
        if kept {
            // SAFETY: the program promised that the code stays where it is, unchanged, until the library is
            // unloaded, after which nothing refers to it any more.
            Self::Kept(unsafe { slice::from_raw_parts(bytes.as_ptr(), bytes.len()) })
        } else {
            Self::Own(Arc::new(bytes.to_vec()))
        }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes,
            Self::Own(bytes) => bytes,
        }
    }
}

/// Code for one architecture, as the program passed it.
#[derive(Clone, Debug)]
pub struct ImagePart {
    /// PTX or a cubin.
    pub kind: Kind,
    /// The architecture, as in `sm_NUMBER`.
    pub sm: u32,
    /// Whether the code runs on this architecture alone, or on its family.
    pub specific: Specific,
    /// How the payload is compressed.
    pub packing: Packing,
    /// Length of the unpacked payload in bytes; 0 if the container does not state it.
    pub unpacked: u64,
    /// The code, possibly compressed.
    pub payload: Bytes,
    /// Whether the program passed the code by itself, not in a container.
    pub alone: bool,
}

/// Displays kind and architecture of each part of an image, such as `PTX 61, cubin 90`.
pub struct PartNames<'a>(pub &'a [ImagePart]);

impl std::fmt::Display for PartNames<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let kind = if part.kind == Kind::Ptx { "PTX" } else { "cubin" };
            write!(f, "{comma}{kind} {}", part.sm)?;
        }
        if self.0.is_empty() { f.write_str("nothing") } else { Ok(()) }
    }
}

impl ImagePart {
    /// Unpacks the code. Code that is not packed is as the program handed it over.
    pub fn unpack(&self) -> std::result::Result<Bytes, FatbinError> {
        if self.packing == Packing::Plain {
            return Ok(self.payload.clone());
        }
        let entry = Entry {
            kind: self.kind,
            sm: self.sm,
            specific: self.specific,
            packing: self.packing,
            unpacked: self.unpacked,
            payload: &self.payload,
        };
        Ok(Bytes::Own(Arc::new(entry.unpack()?)))
    }
}
