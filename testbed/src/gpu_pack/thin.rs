//! Thins a CUDA library: of each fat binary in it only the image stays that one GPU takes.
//!
//! Nothing moves. The image that stays is put first in its container, the container's header says that it is
//! the only one, and the rest of the container is zeros, which compress to nothing. So the library keeps its
//! addresses and relocations, and what refers to a container still finds it.

use std::ops::Range;

use goblin::elf::Elf;
use vgpu_image::fatbin::{Container, ENTRY, EntryHeader, FatbinError, HEADER, MAGIC};
use vgpu_image::{Target, rank};
use vgpu_wire::facts::exec;

/// The section of nvcc's containers.
const SECTION: &str = ".nv_fatbin";
/// Containers start at multiples of this many bytes.
const ALIGNMENT: usize = 8;
/// Where a container's header has the bytes of its entries, as a u64.
const ENTRY_BYTES: Range<usize> = 8..16;

/// What became of a library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thinned {
    /// Number of containers.
    pub containers: usize,
    /// Bytes of the images that stayed, as they are packed.
    pub kept: usize,
    /// Bytes of those that went.
    pub dropped: usize,
}

/// Why a library was not thinned.
#[derive(Debug, thiserror::Error)]
pub enum ThinError {
    /// It is not an ELF file.
    #[error("read the library's sections")]
    Elf(#[source] Box<goblin::error::Error>),
    /// It has no section of fat binaries.
    #[error("the library has no section {SECTION}")]
    NoSection,
    /// What should be a fat binary is none.
    #[error("read the fat binary at byte {at}")]
    Container {
        /// Offset in the file.
        at: usize,
        /// What is wrong with it.
        #[source]
        source: FatbinError,
    },
    /// No image of a fat binary runs on the GPU.
    #[error("the fat binary at byte {at} has no code for sm_{sm}")]
    NoCode {
        /// Offset in the file.
        at: usize,
        /// The GPU's architecture.
        sm: u32,
    },
}

/// Thins the library for a GPU of the architecture `sm`, as in `sm_NUMBER`, which takes cubins and PTX.
pub fn thin(library: &mut [u8], sm: u32) -> Result<Thinned, ThinError> {
    let section = section(library)?;
    let mut thinned = Thinned::default();
    let mut at = section.start;
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
        let (kept, dropped) = container(&mut library[at..end], sm).map_err(|why| match why {
            Some(source) => ThinError::Container { at, source },
            None => ThinError::NoCode { at, sm },
        })?;
        thinned.containers += 1;
        thinned.kept += kept;
        thinned.dropped += dropped;
        at = end.next_multiple_of(ALIGNMENT);
    }
    Ok(thinned)
}

/// Where the file has its fat binaries.
fn section(library: &[u8]) -> Result<Range<usize>, ThinError> {
    let elf = Elf::parse(library).map_err(|error| ThinError::Elf(Box::new(error)))?;
    let named =
        |section: &&goblin::elf::SectionHeader| elf.shdr_strtab.get_at(section.sh_name) == Some(SECTION);
    let range = elf.section_headers.iter().find(named).and_then(goblin::elf::SectionHeader::file_range);
    range.filter(|range| range.end <= library.len()).ok_or(ThinError::NoSection)
}

/// Thins one container; bytes of what stayed and of what went. `None`: none of its images fits.
fn container(bytes: &mut [u8], sm: u32) -> Result<(usize, usize), Option<FatbinError>> {
    let target = Target { sm, abilities: exec::CUBIN | exec::PTX };
    let header = bytes.first_chunk().ok_or(FatbinError::Header)?;
    debug_assert_eq!(header[..4], MAGIC.to_le_bytes());
    let Container { start, end } = Container::read(*header)?;
    let (mut at, mut best) = (start, None);
    while at < end {
        let entry = bytes.get(at..end).and_then(|rest| rest.first_chunk::<ENTRY>());
        let entry = entry.and_then(EntryHeader::read).ok_or(FatbinError::Short)?;
        let length = entry.header.checked_add(entry.padded).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|&length| length <= end - at).ok_or(FatbinError::Short)?;
        if let Some(kind) = entry.kind
            && target.takes(kind, entry.sm, entry.specific)
        {
            let rank = rank(kind, entry.sm, entry.specific);
            if best.as_ref().is_none_or(|(other, _)| rank > *other) {
                best = Some((rank, at..at + length));
            }
        }
        at += length;
    }
    let Some((_, image)) = best else {
        // One without any image has nothing to lose.
        return if start == end { Ok((0, 0)) } else { Err(None) };
    };
    let kept = image.len();
    bytes.copy_within(image, start);
    bytes[start + kept..end].fill(0);
    bytes[ENTRY_BYTES].copy_from_slice(&(kept as u64).to_le_bytes());
    Ok((kept, end - start - kept))
}

#[cfg(test)]
mod tests {
    use vgpu_image::fatbin::{Kind, Packing, build, entries};
    use vgpu_image::ptx::Specific;

    use super::*;

    fn fatbin() -> Vec<u8> {
        let image = |kind, sm, text: &[u8]| (kind, sm, Specific::No, Packing::Lz4, text.to_vec());
        build::fatbin(&[
            image(Kind::Ptx, 50, b"old"),
            image(Kind::Ptx, 80, b"the one"),
            image(Kind::Cubin, 86, b"of another architecture"),
            image(Kind::Ptx, 100, b"too new"),
        ])
    }

    #[test]
    fn what_fits_best_stays_alone_at_the_same_place() {
        let whole = fatbin();
        let mut bytes = whole.clone();
        let (kept, dropped) = container(&mut bytes, 90).unwrap();
        let left = entries(&bytes).unwrap();
        let [only] = left[..] else { panic!("{left:?}") };
        assert_eq!((only.sm, only.unpack().unwrap()), (80, b"the one".to_vec()));
        assert_eq!((bytes.len(), HEADER + kept + dropped), (whole.len(), whole.len()));
        assert!(bytes[HEADER + kept..].iter().all(|&byte| byte == 0));
        assert_eq!(container(&mut bytes, 90).unwrap(), (kept, 0), "nothing is left to be thinned");
    }

    #[test]
    fn a_container_without_code_for_the_gpu_is_an_error() {
        assert_eq!(container(&mut fatbin(), 37), Err(None));
        let mut cut = fatbin();
        let length = (cut.len() - HEADER - 8) as u64;
        cut[ENTRY_BYTES].copy_from_slice(&length.to_le_bytes());
        assert_eq!(container(&mut cut, 90), Err(Some(FatbinError::Short)));
        assert!(matches!(thin(&mut fatbin(), 90), Err(ThinError::Elf(_))));
    }
}
