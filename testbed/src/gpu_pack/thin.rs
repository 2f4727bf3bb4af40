//! Thins a CUDA library: each fat binary in it keeps or gets the code that one GPU uses, and nothing else.
//!
//! Nothing moves. The images are placed first in their container, the container's header states their size,
//! and the rest of the container is zeros, which compress to nothing. So the library keeps its addresses and
//! relocations, and references to containers stay valid.

use std::ops::Range;

use goblin::elf::Elf;
use vgpu_image::fatbin::{Container, ENTRY, EntryHeader, FatbinError, HEADER, Kind};
use vgpu_image::{Target, rank};
use vgpu_wire::facts::exec;

/// Name of the section that holds nvcc's containers.
const SECTION: &str = ".nv_fatbin";
/// Alignment in bytes of containers, and of the images in them.
const ALIGNMENT: usize = 8;
/// Offset in a container's header of the size of its entries, a u64.
const ENTRY_BYTES: Range<usize> = 8..16;
/// Offset in an entry's header of the padded size of its image, a u64.
const PADDED: Range<usize> = 8..16;
const ARCHITECTURE: Range<usize> = 28..32;

/// Statistics of a thinned library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thinned {
    /// Number of containers in the library.
    pub containers: usize,
    /// Number of images that remain in the containers.
    pub images: usize,
    /// Number of bytes of the remaining images, as they are packed.
    pub kept: usize,
    /// Number of bytes that were images before and are zero now.
    pub dropped: usize,
}

/// Reasons why a library could not be thinned.
#[derive(Debug, thiserror::Error)]
pub enum ThinError {
    /// The library is not an ELF file.
    #[error("read the library's sections")]
    Elf(#[source] Box<goblin::error::Error>),
    /// The library has no section of fat binaries.
    #[error("the library has no section {SECTION}")]
    NoSection,
    /// A container of the section is malformed.
    #[error("read the fat binary at byte {at}")]
    Container {
        /// Offset of the container in the file.
        at: usize,
        /// Error of the container's parser.
        #[source]
        source: FatbinError,
    },
    /// A fat binary has no image that runs on the GPU, or no entry to serve as the template for one.
    #[error("the fat binary at byte {at} has no {what}")]
    Lacks {
        /// Offset of the container in the file.
        at: usize,
        /// Description of what it lacks.
        what: String,
    },
    /// The new images do not fit into the space of the old ones.
    #[error("the fat binary at byte {at} has room for {room} bytes, not for {bytes}")]
    Room {
        /// Offset of the container in the file.
        at: usize,
        /// Number of bytes available.
        room: usize,
        /// Number of bytes required.
        bytes: usize,
    },
}

/// A fat binary of a library.
#[derive(Debug)]
pub struct FatBinary {
    /// Range of the fat binary in the file.
    pub place: Range<usize>,
    /// Offset of its first entry from its start.
    start: usize,
    entries: Vec<(EntryHeader, Range<usize>)>,
}

/// Returns the fat binaries of a library, in the order of the file.
pub fn fat_binaries(library: &[u8]) -> Result<Vec<FatBinary>, ThinError> {
    let section = section(library)?;
    let (mut found, mut at) = (Vec::new(), section.start);
    while let Some(start) = library.get(at..section.end).and_then(|rest| rest.first_chunk::<HEADER>()) {
        // Between containers lie zeros.
        if start[..ALIGNMENT] == [0; ALIGNMENT] {
            at += ALIGNMENT;
            continue;
        }
        let failed = |source| ThinError::Container { at, source };
        let Container { end, .. } = Container::read(*start).map_err(failed)?;
        let end = at.checked_add(end).filter(|&end| end <= section.end);
        let end = end.ok_or(FatbinError::Short).map_err(failed)?;
        found.push(FatBinary::read(at..end, &library[at..end]).map_err(failed)?);
        at = end.next_multiple_of(ALIGNMENT);
    }
    Ok(found)
}

/// Returns the range of the file that contains fat binaries.
fn section(library: &[u8]) -> Result<Range<usize>, ThinError> {
    let elf = Elf::parse(library).map_err(|error| ThinError::Elf(Box::new(error)))?;
    let named =
        |section: &&goblin::elf::SectionHeader| elf.shdr_strtab.get_at(section.sh_name) == Some(SECTION);
    let range = elf.section_headers.iter().find(named).and_then(goblin::elf::SectionHeader::file_range);
    range.filter(|range| range.end <= library.len()).ok_or(ThinError::NoSection)
}

impl FatBinary {
    /// Reads the entries of the container `bytes`, which is at `place` in the file.
    fn read(place: Range<usize>, bytes: &[u8]) -> Result<Self, FatbinError> {
        let header = bytes.first_chunk().ok_or(FatbinError::Header)?;
        let Container { start, end } = Container::read(*header)?;
        let (mut at, mut entries) = (start, Vec::new());
        while at < end {
            let entry = bytes.get(at..end).and_then(|rest| rest.first_chunk::<ENTRY>());
            let entry = entry.and_then(EntryHeader::read).ok_or(FatbinError::Short)?;
            let length =
                entry.header.checked_add(entry.padded).and_then(|length| usize::try_from(length).ok());
            let length = length.filter(|&length| length <= end - at).ok_or(FatbinError::Short)?;
            entries.push((entry, at..at + length));
            at += length;
        }
        Ok(Self { place, start, entries })
    }

    fn lacks(&self, what: String) -> ThinError {
        ThinError::Lacks { at: self.place.start, what }
    }

    /// Returns the entry, with its header, of the code that fits a GPU of the architecture `sm` (as in
    /// `sm_NUMBER`) best, from PTX alone or from cubins too. Returns `None` if the container has no entries.
    pub fn best<'a>(
        &self,
        library: &'a [u8],
        sm: u32,
        ptx_only: bool,
    ) -> Result<Option<&'a [u8]>, ThinError> {
        let abilities = if ptx_only { exec::PTX } else { exec::CUBIN | exec::PTX };
        let target = Target { sm, abilities };
        let mut best = None;
        for (entry, range) in &self.entries {
            if let Some(kind) = entry.kind
                && target.takes(kind, entry.sm, entry.specific)
            {
                let rank = rank(kind, entry.sm, entry.specific);
                if best.as_ref().is_none_or(|(other, _)| rank > *other) {
                    best = Some((rank, range));
                }
            }
        }
        match best {
            Some((_, range)) => Ok(Some(&library[self.place.clone()][range.clone()])),
            // A container without any image has nothing to keep.
            None if self.entries.is_empty() => Ok(None),
            None => Err(self.lacks(format!("code for sm_{sm}"))),
        }
    }

    /// Returns an entry for the cubin `image` of the architecture `sm`, with the header of the container's
    /// own cubin.
    pub fn cubin(&self, library: &[u8], sm: u32, image: &[u8]) -> Result<Vec<u8>, ThinError> {
        let like = self.entries.iter().find(|(entry, _)| entry.kind == Some(Kind::Cubin));
        let (header, range) = like.ok_or_else(|| self.lacks("cubin".to_owned()))?;
        let header = usize::try_from(header.header).unwrap_or(ENTRY);
        let mut entry = library[self.place.clone()][range.start..range.start + header].to_vec();
        let padded = image.len().next_multiple_of(ALIGNMENT);
        entry[PADDED].copy_from_slice(&(padded as u64).to_le_bytes());
        entry[ARCHITECTURE].copy_from_slice(&sm.to_le_bytes());
        entry.extend_from_slice(image);
        entry.resize(header + padded, 0);
        Ok(entry)
    }

    /// Replaces the container's entries by these and updates `thinned`.
    pub fn fill(
        &self,
        library: &mut [u8],
        entries: &[Vec<u8>],
        thinned: &mut Thinned,
    ) -> Result<(), ThinError> {
        let container = &mut library[self.place.clone()];
        let (room, bytes) = (container.len() - self.start, entries.iter().map(Vec::len).sum());
        if bytes > room {
            return Err(ThinError::Room { at: self.place.start, room, bytes });
        }
        container[self.start..].fill(0);
        let mut at = self.start;
        for entry in entries {
            container[at..at + entry.len()].copy_from_slice(entry);
            at += entry.len();
        }
        container[ENTRY_BYTES].copy_from_slice(&(bytes as u64).to_le_bytes());
        thinned.containers += 1;
        thinned.images += entries.len();
        thinned.kept += bytes;
        thinned.dropped += room - bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use vgpu_image::fatbin::{Packing, build, entries};
    use vgpu_image::ptx::Specific;

    use super::*;

    fn fatbin() -> Vec<u8> {
        let image = |kind, sm, text: &[u8]| (kind, sm, Specific::No, Packing::Lz4, text.to_vec());
        build::fatbin(&[
            image(Kind::Ptx, 50, b"old"),
            image(Kind::Ptx, 80, b"the one"),
            (Kind::Cubin, 86, Specific::No, Packing::Plain, b"of another architecture".to_vec()),
            image(Kind::Ptx, 100, b"too new"),
        ])
    }

    fn only(bytes: &[u8]) -> FatBinary {
        FatBinary::read(0..bytes.len(), bytes).unwrap()
    }

    #[test]
    fn what_fits_best_stays_alone_at_the_same_place() {
        let whole = fatbin();
        let (mut bytes, mut thinned) = (whole.clone(), Thinned::default());
        let best = only(&bytes).best(&bytes, 90, false).unwrap().unwrap().to_vec();
        only(&whole).fill(&mut bytes, &[best], &mut thinned).unwrap();
        let left = entries(&bytes).unwrap();
        let [one] = left[..] else { panic!("{left:?}") };
        assert_eq!((one.sm, one.unpack().unwrap()), (80, b"the one".to_vec()));
        assert_eq!((bytes.len(), HEADER + thinned.kept + thinned.dropped), (whole.len(), whole.len()));
        assert!(bytes[HEADER + thinned.kept..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_cubin_is_described_as_another_one_was() {
        let whole = fatbin();
        let (mut bytes, mut thinned) = (whole.clone(), Thinned::default());
        let binary = only(&whole);
        let image = b"compiled ahead of time";
        let entry = binary.cubin(&bytes, 90, image).unwrap();
        let text = binary.best(&bytes, 90, true).unwrap().unwrap().to_vec();
        binary.fill(&mut bytes, &[entry, text], &mut thinned).unwrap();
        let left = entries(&bytes).unwrap();
        let [cubin, ptx] = left[..] else { panic!("{left:?}") };
        assert_eq!((cubin.kind, cubin.sm, cubin.packing), (Kind::Cubin, 90, Packing::Plain));
        assert!(
            cubin.payload.starts_with(image) && cubin.payload[image.len()..].iter().all(|&byte| byte == 0)
        );
        assert_eq!((ptx.kind, ptx.unpack().unwrap()), (Kind::Ptx, b"the one".to_vec()));
        let rest = HEADER + thinned.kept;
        assert!(thinned.images == 2 && bytes[rest..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_a_container_lacks_is_an_error() {
        let mut bytes = fatbin();
        let binary = only(&bytes);
        assert!(matches!(binary.best(&bytes, 37, false), Err(ThinError::Lacks { .. })));
        let room = bytes.len() - HEADER;
        let large = binary.fill(&mut bytes, &[vec![0; room + 1]], &mut Thinned::default());
        assert!(matches!(large, Err(ThinError::Room { .. })));
        let length = (bytes.len() - HEADER - 8) as u64;
        bytes[ENTRY_BYTES].copy_from_slice(&length.to_le_bytes());
        let read = FatBinary::read(0..bytes.len(), &bytes).map(drop);
        assert_eq!(read, Err(FatbinError::Short));
        assert!(matches!(fat_binaries(&bytes), Err(ThinError::Elf(_))));
    }
}
