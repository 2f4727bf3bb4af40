//! Lists the GPU architectures that a backend has code for, from the headers of its fat binaries. Only one
//! PTX text is read, for its version; `vgpu_image::fatbin` describes the headers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use vgpu_image::fatbin::{self, Container, ENTRY, EntryHeader, HEADER, Kind, MAGIC};
use vgpu_image::ptx::{self, Specific};

use crate::program::elf::{ElfError, FileRange, ReadAt};

const WHAT: &str = "fat binary";
/// Maximum padding between two containers, in bytes. Linkers align containers.
const GAP: u64 = 4096;
/// Maximum number of entries. A real backend has about 1,500 entries in 150 containers.
const MOST: usize = 1 << 20;

/// GPU architectures of a backend, as the number in `sm_NUMBER`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Architectures {
    /// Architectures with machine code, which runs on the same major number and a minor number that is not
    /// lower.
    pub cubin: BTreeSet<u32>,
    /// Architectures with PTX, which the driver compiles for any device that is not older.
    pub ptx: BTreeSet<u32>,
    /// Number of containers in the section.
    pub containers: usize,
    /// Smallest container with PTX for each architecture, as a range of the file.
    texts: BTreeMap<u32, FileRange>,
}

impl Architectures {
    /// Returns whether CUDA finds code for a device of this compute capability.
    pub fn runs_on(&self, (major, minor): (u32, u32)) -> bool {
        let device = 10 * major + minor;
        self.cubin.iter().any(|sm| sm / 10 == major && *sm <= device)
            || self.ptx.iter().any(|sm| *sm <= device)
    }

    /// Returns the architectures with machine code or PTX in numerical order, as Ollama prints them.
    pub fn all(&self) -> BTreeSet<u32> {
        self.cubin.union(&self.ptx).copied().collect()
    }

    /// Reads the section at `range` of `file`.
    pub fn read(file: &impl ReadAt, range: FileRange) -> Result<Self, ElfError> {
        let mut found = Self::default();
        let end = range.offset.checked_add(range.bytes).ok_or(ElfError::Damaged(WHAT))?;
        let (mut at, mut gap, mut entries) = (range.offset, 0, 0);
        while at + HEADER as u64 <= end {
            let header: [u8; HEADER] = array(file, at)?;
            if !header.starts_with(&MAGIC.to_le_bytes()) {
                gap += 8;
                at += 8;
                if gap > GAP {
                    return Err(ElfError::Damaged(WHAT));
                }
                continue;
            }
            gap = 0;
            found.containers += 1;
            let container = Container::read(header).map_err(|_| ElfError::Damaged(WHAT))?;
            let stop = at.checked_add(container.end as u64).filter(|stop| *stop <= end);
            let stop = stop.ok_or(ElfError::Damaged(WHAT))?;
            let mut entry = at + container.start as u64;
            while entry < stop {
                entries += 1;
                if entries > MOST {
                    return Err(ElfError::Damaged(WHAT));
                }
                entry = found.entry(file, entry, FileRange { offset: at, bytes: stop - at })?;
            }
            at = stop.next_multiple_of(8).max(at + HEADER as u64);
        }
        Ok(found)
    }

    /// Returns the version of the PTX that a driver would have to compile for a device of this compute
    /// capability. Returns `None` if there is machine code for the device, if there is no PTX, or if the PTX
    /// cannot be read.
    pub fn ptx_version(&self, file: &impl ReadAt, (major, minor): (u32, u32)) -> Option<(u32, u32)> {
        let device = 10 * major + minor;
        if self.cubin.iter().any(|sm| sm / 10 == major && *sm <= device) {
            return None;
        }
        let (wanted, range) = self.texts.range(..=device).next_back()?;
        let mut container = vec![0; usize::try_from(range.bytes).ok()?];
        file.read_exact_at(&mut container, range.offset).ok()?;
        let entries = fatbin::entries(&container).ok()?;
        let text = entries.into_iter().find(|entry| entry.kind == Kind::Ptx && entry.sm == *wanted)?;
        ptx::head(&text.unpack().ok()?).ok().map(|head| head.version)
    }

    /// Adds the entry at `at` of a container and returns the offset of the next entry.
    fn entry(&mut self, file: &impl ReadAt, at: u64, container: FileRange) -> Result<u64, ElfError> {
        let stop = container.offset + container.bytes;
        if stop - at < ENTRY as u64 {
            return Err(ElfError::Damaged(WHAT));
        }
        let EntryHeader { kind, sm, specific, header, padded, .. } =
            EntryHeader::read(&array(file, at)?).ok_or(ElfError::Damaged(WHAT))?;
        let next = header.checked_add(padded).and_then(|bytes| at.checked_add(bytes));
        let next = next.filter(|next| *next <= stop).ok_or(ElfError::Damaged(WHAT))?;
        // Code for one architecture or family alone does not run on newer devices.
        if specific == Specific::No {
            match kind {
                Some(Kind::Ptx) => {
                    let known = self.texts.entry(sm).or_insert(container);
                    if container.bytes < known.bytes {
                        *known = container;
                    }
                    self.ptx.insert(sm)
                }
                Some(Kind::Cubin) => self.cubin.insert(sm),
                None => false,
            };
        }
        Ok(next)
    }
}

fn array<const N: usize>(file: &impl ReadAt, at: u64) -> Result<[u8; N], ElfError> {
    let mut bytes = [0; N];
    let failed = |error: io::Error| ElfError::reading(WHAT, error);
    file.read_exact_at(&mut bytes, at).map_err(failed).map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PTX: u16 = 1;
    const CUBIN: u16 = 2;
    /// Flags of the architecture-specific targets such as `sm_90a` and `sm_100f`.
    const SPECIFIC: u64 = 0x10_0000 | 0x20_0000;

    /// Builds a container with entries of these kinds, architectures, flags, and code sizes in bytes.
    fn container(entries: &[(u16, u32, u64, usize)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, sm, flags, bytes) in entries {
            let mut header = [0; ENTRY];
            header[..2].copy_from_slice(&kind.to_le_bytes());
            header[4..8].copy_from_slice(&(ENTRY as u32).to_le_bytes());
            header[8..16].copy_from_slice(&(*bytes as u64).to_le_bytes());
            header[28..32].copy_from_slice(&sm.to_le_bytes());
            header[40..48].copy_from_slice(&flags.to_le_bytes());
            body.extend_from_slice(&header);
            body.resize(body.len() + bytes, 0xee);
        }
        let mut all = MAGIC.to_le_bytes().to_vec();
        all.extend_from_slice(&[1, 0, HEADER as u8, 0]);
        all.extend_from_slice(&(body.len() as u64).to_le_bytes());
        all.extend(body);
        all
    }

    fn read(bytes: &[u8]) -> Result<Architectures, ElfError> {
        Architectures::read(&bytes, FileRange { offset: 0, bytes: bytes.len() as u64 })
    }

    #[test]
    fn all_containers_are_read_and_gaps_passed_over() {
        let mut bytes = container(&[(CUBIN, 75, 0, 16), (PTX, 50, 0, 8)]);
        bytes.resize(bytes.len() + 24, 0);
        bytes.extend(container(&[(CUBIN, 90, SPECIFIC, 8), (7, 61, 0, 8), (CUBIN, 86, 0x8000, 24)]));
        let found = read(&bytes).unwrap();
        assert_eq!((found.cubin, found.ptx, found.containers), ([75, 86].into(), [50].into(), 2));
    }

    #[test]
    fn code_runs_where_cuda_says() {
        let found = Architectures { cubin: [75, 86].into(), ptx: [89].into(), ..Architectures::default() };
        for (device, runs) in
            [((7, 5), true), ((8, 0), false), ((8, 6), true), ((8, 9), true), ((6, 1), false)]
        {
            assert_eq!(found.runs_on(device), runs, "{device:?}");
        }
        assert!(found.runs_on((12, 0)), "PTX runs on what is newer");
        assert_eq!(found.all(), [75, 86, 89].into());
    }

    #[test]
    fn the_version_is_that_of_the_text_that_is_compiled() {
        let text = |sm: u32, minor: u32| format!(".version 9.{minor}\n.target sm_{sm}\n.address_size 64\n");
        let texts = [(75, text(75, 1)), (80, text(80, 0))];
        let sizes: Vec<_> = texts.iter().map(|(sm, text)| (PTX, *sm, 0, text.len())).collect();
        let mut bytes = container(&sizes);
        let mut at = HEADER;
        for (_, text) in &texts {
            at += ENTRY;
            bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
            at += text.len();
        }
        let found = read(&bytes).unwrap();
        assert_eq!(found.ptx_version(&bytes.as_slice(), (7, 5)), Some((9, 1)));
        assert_eq!(found.ptx_version(&bytes.as_slice(), (8, 6)), Some((9, 0)));
        assert_eq!(found.ptx_version(&bytes.as_slice(), (7, 0)), None, "no code at all");
        let compiled = Architectures { cubin: [86].into(), ..found };
        assert_eq!(compiled.ptx_version(&bytes.as_slice(), (8, 6)), None, "nothing is compiled");
    }

    #[test]
    fn what_is_no_fat_binary_is_damage() {
        assert!(read(&[0; 8192]).is_err());
        assert_eq!(read(&[]).unwrap(), Architectures::default());
        let whole = container(&[(CUBIN, 75, 0, 16)]);
        for bytes in HEADER..whole.len() {
            assert!(read(&whole[..bytes]).is_err(), "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let mut begun = MAGIC.to_le_bytes().to_vec();
            begun.extend(bytes);
            let _ = read(&begun);
        }

        #[test]
        fn what_is_written_is_read(
            entries in prop::collection::vec((1_u16..=2, 30_u32..130, 0_usize..40), 0..12),
        ) {
            let entries: Vec<_> = entries.into_iter().map(|(kind, sm, bytes)| (kind, sm, 0, bytes)).collect();
            let found = read(&container(&entries)).unwrap();
            let of = |wanted| entries.iter().filter(|entry| entry.0 == wanted).map(|entry| entry.1).collect();
            prop_assert_eq!((&found.cubin, &found.ptx, found.containers), (&of(CUBIN), &of(PTX), 1));
            prop_assert!(found.texts.keys().eq(&found.ptx), "each has a container");
        }
    }
}
