//! Fat binaries: containers of images for several architectures, each perhaps compressed.
//!
//! ```text
//!   header  u32 magic ba55ed50, u16 version, u16 header bytes, u64 bytes of entries
//!   entry    0 u16 kind (1 PTX, 2 cubin)    4 u32 header bytes           8 u64 payload bytes, padded
//!           16 u32 compressed bytes        28 u32 architecture          40 u64 flags
//!           56 u64 bytes when unpacked
//! ```
//! Source: fat binaries of nvcc 12.0 to 13.1 and of NVIDIA's `fatbinary` 13.0 in each compression mode,
//! read byte by byte.

use crate::ptx::Specific;

/// First word of a container.
pub const MAGIC: u32 = 0xba55_ed50;
/// First word of the structure by which nvcc's host code names a container: magic, version, address, u64.
pub const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// Length in bytes of a container's header.
pub const HEADER: usize = 16;

/// Length in bytes of the known part of an entry's header. A header may be longer.
pub const ENTRY: usize = 64;

const KIND_PTX: u16 = 1;
const KIND_CUBIN: u16 = 2;
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
const ARCHITECTURE_SPECIFIC: u64 = 0x10_0000;
const FAMILY_SPECIFIC: u64 = 0x20_0000;
/// Maximum length of an unpacked image, so that a container cannot exhaust memory. The largest images known
/// have 11 MB.
const UNPACKED_MOST: u64 = 1 << 30;

/// Kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The image is PTX text.
    Ptx,
    /// The image is an ELF image for one architecture.
    Cubin,
}

/// How an image is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// The image is stored as it is.
    Plain,
    /// The image is one LZ4 block.
    Lz4,
    /// The image is one zstd frame.
    Zstd,
}

/// An image in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Kind of the image.
    pub kind: Kind,
    /// The architecture, as in `sm_NUMBER`.
    pub sm: u32,
    /// Whether devices of other architectures run the image.
    pub specific: Specific,
    /// Compression of the image.
    pub packing: Packing,
    /// Length of the unpacked image in bytes. 0 if the entry does not state it, as for images that are not
    /// compressed.
    pub unpacked: u64,
    /// The bytes of the image, compressed or not. Padding may follow an image that is not compressed.
    pub payload: &'a [u8],
}

/// Why a container or one of its images cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FatbinError {
    /// The header is not that of a container.
    #[error("the data is no fat binary")]
    Header,
    /// An entry extends beyond the end of the container.
    #[error("an entry of the fat binary is cut off")]
    Short,
    /// A compressed image is malformed.
    #[error("failed to unpack an image of the fat binary: {0}")]
    Unpack(String),
    /// A compressed image claims to be longer than the limit.
    #[error("an image of the fat binary claims to have {0} bytes")]
    TooLarge(u64),
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Header of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container {
    /// Offset in bytes of the first entry.
    pub start: usize,
    /// Length of the container in bytes.
    pub end: usize,
}

impl Container {
    /// Reads the header. Fails with [`FatbinError::Header`] if it is not that of a container.
    pub fn read(header: [u8; HEADER]) -> Result<Self, FatbinError> {
        let start = usize::from(u16::from_le_bytes([header[6], header[7]]));
        let [a, b, c, d, ..] = header;
        if u32::from_le_bytes([a, b, c, d]) != MAGIC || start < HEADER {
            return Err(FatbinError::Header);
        }
        let entries = array(&header, 8).map(u64::from_le_bytes).ok_or(FatbinError::Header)?;
        let end = usize::try_from(entries).ok().and_then(|entries| entries.checked_add(start));
        let end = end.filter(|&end| isize::try_from(end).is_ok()).ok_or(FatbinError::Header)?;
        Ok(Self { start, end })
    }
}

/// Returns the length in bytes of the whole container, as its header states it.
pub fn length(header: [u8; HEADER]) -> Result<usize, FatbinError> {
    Container::read(header).map(|container| container.end)
}

/// Header of an entry, without the fields that concern compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Kind of the image; `None` if the kind is unknown.
    pub kind: Option<Kind>,
    /// The architecture, as in `sm_NUMBER`.
    pub sm: u32,
    /// Whether devices of other architectures run the image.
    pub specific: Specific,
    /// Length of the header in bytes.
    pub header: u64,
    /// Length of the image in bytes, padding included.
    pub padded: u64,
    flags: u64,
    packed: u32,
    unpacked: u64,
}

impl EntryHeader {
    /// Reads the header. Returns `None` if it states a length below [`ENTRY`].
    pub fn read(bytes: &[u8; ENTRY]) -> Option<Self> {
        let u32_at = |at| array(bytes, at).map(u32::from_le_bytes);
        let u64_at = |at| array(bytes, at).map(u64::from_le_bytes);
        let kind = match array(bytes, 0).map(u16::from_le_bytes)? {
            KIND_PTX => Some(Kind::Ptx),
            KIND_CUBIN => Some(Kind::Cubin),
            _ => None,
        };
        let flags = u64_at(40)?;
        let specific = if flags & ARCHITECTURE_SPECIFIC != 0 {
            Specific::Architecture
        } else if flags & FAMILY_SPECIFIC != 0 {
            Specific::Family
        } else {
            Specific::No
        };
        let header = u64::from(u32_at(4)?);
        let (padded, packed, unpacked) = (u64_at(8)?, u32_at(16)?, u64_at(56)?);
        let entry = Self { kind, sm: u32_at(28)?, specific, header, padded, flags, packed, unpacked };
        (header >= ENTRY as u64).then_some(entry)
    }

    /// Returns the compression of the image, or `None` if it is unknown.
    fn packing(&self) -> Option<Packing> {
        match self.flags & (LZ4 | ZSTD) {
            0 => Some(Packing::Plain),
            LZ4 => Some(Packing::Lz4),
            ZSTD => Some(Packing::Zstd),
            _ => None,
        }
    }
}

/// Returns the PTX images and cubins of a container. Images of other kinds, and those with an unknown
/// compression, are skipped.
pub fn entries(container: &[u8]) -> Result<Vec<Entry<'_>>, FatbinError> {
    let header = array(container, 0).ok_or(FatbinError::Header)?;
    let Container { start, end } = Container::read(header)?;
    let mut rest = container.get(start..end).ok_or(FatbinError::Short)?;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (entry, after) = split(rest).ok_or(FatbinError::Short)?;
        entries.extend(entry);
        rest = after;
    }
    Ok(entries)
}

/// Splits off the first entry and returns it with the bytes that follow it. The entry is `None` if its kind
/// or compression is unknown. Returns `None` if the entry is cut off.
fn split(bytes: &[u8]) -> Option<(Option<Entry<'_>>, &[u8])> {
    let header = EntryHeader::read(bytes.first_chunk()?)?;
    let (_, body) = bytes.split_at_checked(usize::try_from(header.header).ok()?)?;
    let (payload, rest) = body.split_at_checked(usize::try_from(header.padded).ok()?)?;
    let (Some(kind), Some(packing)) = (header.kind, header.packing()) else { return Some((None, rest)) };
    let packed = usize::try_from(header.packed).ok()?;
    let payload = match packing {
        Packing::Plain => payload,
        _ if packed == 0 => payload,
        _ => payload.get(..packed)?,
    };
    let EntryHeader { sm, specific, unpacked, .. } = header;
    Some((Some(Entry { kind, sm, specific, packing, unpacked, payload }), rest))
}

impl<'a> Entry<'a> {
    /// Returns the image as it is stored: the payload, without the zeros at the end of PTX text that is not
    /// packed.
    pub fn stored(&self) -> &'a [u8] {
        let is_text = (self.kind, self.packing) == (Kind::Ptx, Packing::Plain);
        if is_text { without_zeros(self.payload) } else { self.payload }
    }

    /// Unpacks the image. Zeros at the end of PTX text are removed. Fails if the image claims to be longer
    /// than 1 GiB, or is malformed.
    pub fn unpack(&self) -> Result<Vec<u8>, FatbinError> {
        let mut image = match self.packing {
            Packing::Plain => return Ok(self.stored().to_vec()),
            packing => {
                if self.unpacked > UNPACKED_MOST {
                    return Err(FatbinError::TooLarge(self.unpacked));
                }
                let mut image = vec![0; self.unpacked as usize];
                let bytes = match packing {
                    Packing::Zstd => zstd(self.payload, &mut image)?,
                    _ => lz4_flex::block::decompress_into(self.payload, &mut image)
                        .map_err(|error| FatbinError::Unpack(error.to_string()))?,
                };
                image.truncate(bytes);
                image
            }
        };
        if self.kind == Kind::Ptx {
            image.truncate(without_zeros(&image).len());
        }
        Ok(image)
    }
}

/// Returns a text without the zeros at its end.
fn without_zeros(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &text[..end]
}

fn zstd(packed: &[u8], image: &mut [u8]) -> Result<usize, FatbinError> {
    let failed = |error: ruzstd::decoding::errors::FrameDecoderError| FatbinError::Unpack(error.to_string());
    ruzstd::decoding::FrameDecoder::new().decode_all(packed, image).map_err(failed)
}

/// Builds containers for tests, here and in the tests of images.
pub mod build {
    use super::{ARCHITECTURE_SPECIFIC, ENTRY, FAMILY_SPECIFIC, Kind, MAGIC, Packing, Specific};

    /// An image to be put into a container: kind, architecture, whether others run it, compression, and
    /// contents.
    pub type Image = (Kind, u32, Specific, Packing, Vec<u8>);

    /// Returns a container with these images.
    pub fn fatbin(images: &[Image]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, sm, specific, packing, contents) in images {
            let packed = match packing {
                Packing::Plain => contents.clone(),
                Packing::Lz4 => lz4_flex::block::compress(contents),
                Packing::Zstd => ruzstd::encoding::compress_to_vec(
                    &contents[..],
                    ruzstd::encoding::CompressionLevel::Fastest,
                ),
            };
            let plain = *packing == Packing::Plain;
            let mut flags = [0x11, 0x2011, 0x8011][*packing as usize];
            flags |= [0, FAMILY_SPECIFIC, ARCHITECTURE_SPECIFIC][*specific as usize];
            let mut header = [0_u8; ENTRY + 8];
            header[0] = if *kind == Kind::Ptx { 1 } else { 2 };
            header[2..4].copy_from_slice(&0x101_u16.to_le_bytes());
            header[4..8].copy_from_slice(&(ENTRY as u32 + 8).to_le_bytes());
            let padded = packed.len().next_multiple_of(8);
            header[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
            let sizes = if plain { (0, 0) } else { (packed.len() as u32, contents.len() as u64) };
            header[16..20].copy_from_slice(&sizes.0.to_le_bytes());
            header[28..32].copy_from_slice(&sm.to_le_bytes());
            header[40..48].copy_from_slice(&u64::to_le_bytes(flags));
            header[56..64].copy_from_slice(&sizes.1.to_le_bytes());
            body.extend(header);
            body.extend(&packed);
            body.resize(body.len() + padded - packed.len(), 0);
        }
        let mut fatbin = MAGIC.to_le_bytes().to_vec();
        fatbin.extend([1, 0, 16, 0]);
        fatbin.extend((body.len() as u64).to_le_bytes());
        fatbin.extend(body);
        fatbin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn image() -> impl Strategy<Value = build::Image> {
        (
            prop::sample::select(vec![Kind::Ptx, Kind::Cubin]),
            50_u32..122,
            prop::sample::select(vec![Specific::No, Specific::Family, Specific::Architecture]),
            prop::sample::select(vec![Packing::Plain, Packing::Lz4, Packing::Zstd]),
            prop::collection::vec(prop_oneof![3 => Just(b'.'), 1 => 1_u8..255], 0..2000),
        )
    }

    #[test]
    fn unknown_kinds_are_passed_over() {
        let ptx = (Kind::Ptx, 61, Specific::No, Packing::Plain, b".version".to_vec());
        let mut fatbin = build::fatbin(&[ptx.clone(), ptx]);
        fatbin[HEADER] = 16;
        assert_eq!(entries(&fatbin).unwrap().len(), 1);
        fatbin[0] = 0;
        assert_eq!(entries(&fatbin), Err(FatbinError::Header));
    }

    #[test]
    fn claims_are_limited() {
        let ptx = (Kind::Ptx, 61, Specific::No, Packing::Zstd, vec![b'x'; 1000]);
        let fatbin = build::fatbin(&[ptx]);
        let mut entry = entries(&fatbin).unwrap()[0];
        entry.unpacked = 1 << 40;
        assert_eq!(entry.unpack(), Err(FatbinError::TooLarge(1 << 40)));
        entry.unpacked = 999;
        assert!(entry.unpack().is_err(), "more than was claimed");
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_out(images in prop::collection::vec(image(), 0..5)) {
            let fatbin = build::fatbin(&images);
            let found = entries(&fatbin).unwrap();
            prop_assert_eq!(found.len(), images.len());
            for (entry, (kind, sm, specific, packing, contents)) in found.iter().zip(&images) {
                prop_assert_eq!((entry.kind, entry.sm, entry.specific, entry.packing), (*kind, *sm, *specific, *packing));
                let mut unpacked = entry.unpack().unwrap();
                if *kind == Kind::Cubin {
                    prop_assert!(unpacked[contents.len()..].iter().all(|&byte| byte == 0), "padding");
                    unpacked.truncate(contents.len());
                }
                prop_assert_eq!(&unpacked, contents);
            }
        }

        #[test]
        fn damage_never_panics(images in prop::collection::vec(image(), 1..4), places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..10), cut: prop::sample::Index) {
            let mut fatbin = build::fatbin(&images);
            for (place, value) in places {
                let place = place.index(fatbin.len());
                fatbin[place] = value;
            }
            fatbin.truncate(cut.index(fatbin.len() + 1));
            for entry in entries(&fatbin).unwrap_or_default() {
                if entry.unpacked < 1 << 20 {
                    let _ = entry.unpack();
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = entries(&bytes);
        }
    }
}
