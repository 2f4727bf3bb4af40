//! Searches ranges of a file for texts, with at most one chunk of the file in memory.

use memchr::memmem::Finder;

use super::elf::{ElfError, FileRange, ReadAt};

/// Number of bytes that are read at once.
const CHUNK: u64 = 1 << 20;

/// Returns which of `texts` occur in the ranges of `file`. A text must not be empty or nearly as long as a
/// chunk.
pub fn search<const N: usize>(
    file: &impl ReadAt,
    ranges: &[FileRange],
    texts: [&[u8]; N],
) -> Result<[bool; N], ElfError> {
    // Number of bytes of a chunk that the next one repeats, so that no text is cut: the longest text, less
    // one byte.
    let overlap = texts.iter().map(|text| text.len() as u64).max().unwrap_or(1).saturating_sub(1);
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
            at += if buffer.len() as u64 > overlap { buffer.len() as u64 - overlap } else { CHUNK };
            if at + overlap >= range.bytes {
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

    const LONG: &[u8] = b"looking for compatible GPUs";
    const SHORT: &[u8] = b"absent";
    const OVERLAP: u64 = LONG.len() as u64 - 1;

    /// Returns whether the search finds the text at `at` in a file of `bytes` bytes, in a range that starts
    /// at 10.
    fn has(bytes: u64, at: u64) -> bool {
        let mut file = vec![b'.'; bytes as usize + 10];
        let at = at as usize + 10;
        file[at..at + LONG.len()].copy_from_slice(LONG);
        let ranges = [FileRange { offset: 10, bytes }];
        let found = search(&file.as_slice(), &ranges, [LONG, SHORT]).unwrap();
        assert!(!found[1]);
        found[0]
    }

    #[test]
    fn texts_at_the_edges_of_chunks_are_found() {
        let length = LONG.len() as u64;
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
        for range in [FileRange { offset: 10, bytes: 100 }, FileRange { offset: u64::MAX, bytes: 2 * CHUNK }]
        {
            assert!(search(&[0_u8; 50].as_slice(), &[range], [LONG]).is_err());
        }
        assert_eq!(search(&[].as_slice(), &[], [LONG]).unwrap(), [false]);
        assert_eq!(search(&[].as_slice(), &[FileRange { offset: 0, bytes: 0 }], [LONG]).unwrap(), [false]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_text_anywhere_is_found(bytes in CHUNK..3 * CHUNK, at: u64) {
            prop_assert!(has(bytes, at % (bytes - LONG.len() as u64)));
        }
    }
}
