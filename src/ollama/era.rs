//! Which way of looking for GPUs an Ollama has, told by texts in its binary that only that way prints.
//!
//! | era | releases | who looks | text |
//! |---|---|---|---|
//! | A | to 0.12.3 | `ollama serve` itself, which opens the driver's library by its path | `looking for compatible GPUs` |
//! | B | 0.12.4 to 0.24 | a child, `ollama runner` | `discovering available GPUs` |
//! | C | from 0.30 | children, `llama-server` and `ollama gpu-discover` | the same, and `llama-server --list-devices` |
//!
//! Checked against Ollama's sources of 0.3.14 to 0.31.2 and the built binaries of one release of each era.

use memchr::memmem::Finder;

use crate::program::elf::{self, ElfError, Range, ReadAt};

/// Go puts this section into every binary it links.
const GO: &str = ".go.buildinfo";
/// Of the log line of era A.
const LOOKING: &[u8] = b"looking for compatible GPUs";
/// Of the log line of eras B and C.
const DISCOVERING: &[u8] = b"discovering available GPUs";
/// Of the failures of era C.
const LISTING: &[u8] = b"llama-server --list-devices";
/// How much is read at once.
const CHUNK: u64 = 1 << 20;
/// How much of a chunk the next one repeats, so that no text is cut: the longest text, less one byte.
const OVERLAP: u64 = 26;

const _: () = assert!(
    OVERLAP as usize + 1 >= LOOKING.len()
        && OVERLAP as usize + 1 >= DISCOVERING.len()
        && OVERLAP as usize + 1 >= LISTING.len()
);

/// A way of looking for GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum Era {
    /// In the server's own process, by the path of the driver's library.
    A,
    /// In a child of the server's own binary.
    B,
    /// In llama-server.
    C,
}

impl Era {
    /// The server looks for the driver's library by its path, and takes nothing else.
    pub fn by_path(self) -> bool {
        self == Self::A
    }
}

/// The era of the Ollama in `file`; none if it is no Ollama.
pub fn recognise(file: &impl ReadAt) -> Result<Option<Era>, ElfError> {
    let (ranges, go) = elf::constants(file, GO)?;
    if !go {
        return Ok(None);
    }
    let [looking, discovering, listing] = search(file, &ranges, [LOOKING, DISCOVERING, LISTING])?;
    Ok(match (discovering, listing, looking) {
        (true, true, _) => Some(Era::C),
        (true, false, _) => Some(Era::B),
        (false, _, true) => Some(Era::A),
        (false, _, false) => None,
    })
}

/// Which of `texts` are in the ranges of `file`.
fn search<const N: usize>(
    file: &impl ReadAt,
    ranges: &[Range],
    texts: [&[u8]; N],
) -> Result<[bool; N], ElfError> {
    let finders = texts.map(Finder::new);
    let mut found = [false; N];
    let mut buffer = Vec::new();
    for range in ranges {
        let mut at = 0;
        while at < range.bytes {
            buffer.resize(CHUNK.min(range.bytes - at) as usize, 0);
            let offset = range.offset.checked_add(at).ok_or(ElfError::Damaged("constants"))?;
            file.read_exact_at(&mut buffer, offset).map_err(|error| ElfError::reading("constants", error))?;
            for (found, finder) in found.iter_mut().zip(&finders) {
                *found = *found || finder.find(&buffer).is_some();
            }
            at += if buffer.len() as u64 > OVERLAP { buffer.len() as u64 - OVERLAP } else { CHUNK };
            if at + OVERLAP >= range.bytes {
                break;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_program_that_is_not_made_by_go_is_no_ollama() {
        // These tests hold the texts, and are not Go.
        let own = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(recognise(&own).unwrap(), None);
    }

    #[test]
    fn only_the_oldest_looks_by_path() {
        assert!(Era::A.by_path());
        assert!(!Era::B.by_path() && !Era::C.by_path());
    }

    /// A file of `bytes` bytes with the text at `at`, in a range that begins at 10.
    fn has(bytes: u64, at: u64) -> bool {
        let mut file = vec![b'.'; bytes as usize + 10];
        let at = at as usize + 10;
        file[at..at + LOOKING.len()].copy_from_slice(LOOKING);
        let ranges = [Range { offset: 10, bytes }];
        let found = search(&file.as_slice(), &ranges, [LOOKING, DISCOVERING]).unwrap();
        assert!(!found[1]);
        found[0]
    }

    #[test]
    fn texts_at_the_edges_of_chunks_are_found() {
        let length = LOOKING.len() as u64;
        for bytes in [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + OVERLAP] {
            for at in [0, CHUNK - length, CHUNK - length + 1, CHUNK - OVERLAP, CHUNK - 1, bytes - length] {
                if at + length <= bytes {
                    assert!(has(bytes, at), "{bytes} {at}");
                }
            }
        }
    }

    #[test]
    fn a_range_beyond_the_file_is_an_error() {
        for range in [Range { offset: 10, bytes: 100 }, Range { offset: u64::MAX, bytes: 2 * CHUNK }] {
            assert!(search(&[0_u8; 50].as_slice(), &[range], [LOOKING]).is_err());
        }
        assert_eq!(search(&[].as_slice(), &[], [LOOKING]).unwrap(), [false]);
        assert_eq!(search(&[].as_slice(), &[Range { offset: 0, bytes: 0 }], [LOOKING]).unwrap(), [false]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_text_anywhere_is_found(bytes in CHUNK..3 * CHUNK, at: u64) {
            prop_assert!(has(bytes, at % (bytes - LOOKING.len() as u64)));
        }
    }
}
