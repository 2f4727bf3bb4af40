//! `/etc/ld.so.cache`: which file the loader has for a SONAME that no variable and no program decides.
//!
//! ```text
//!   header  20 bytes magic, u32 entries, u32 bytes of strings, 20 bytes more
//!   entry   i32 flags, u32 offset of the name, u32 offset of the path, u32, u64; offsets count from the header
//! ```
//! The cache of old loaders may stand before it.

use std::path::Path;

use memchr::memmem;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// Flags of an entry for an x86-64 library of glibc.
const X86_64: u32 = 0x0303;

/// Path of the loader's cache.
const CACHE: &str = "/etc/ld.so.cache";
/// Maximum number of bytes that are read of the cache; real caches are far smaller.
const MOST: u64 = 64 << 20;

/// Returns the content of this system's cache, or nothing if it cannot be read.
pub fn content() -> Vec<u8> {
    vgpu_paths::read(Path::new(CACHE), MOST).unwrap_or_default()
}

/// Returns the paths that the cache lists for `soname`, in the loader's order.
pub fn paths(cache: &[u8], soname: &str) -> Vec<String> {
    let Some(start) = memmem::find(cache, MAGIC) else { return Vec::new() };
    let cache = &cache[start..];
    let word = |at: usize| {
        let bytes = cache.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let text = |at: u32| {
        let rest = cache.get(at as usize..)?;
        std::str::from_utf8(&rest[..memchr::memchr(0, rest)?]).ok()
    };
    let entries = (word(20).unwrap_or_default() as usize).min(cache.len() / ENTRY);
    let entry = |index: usize| {
        let at = HEADER + index * ENTRY;
        let (flags, name, path) = (word(at)?, text(word(at + 4)?)?, text(word(at + 8)?)?);
        (flags == X86_64 && name == soname).then(|| path.to_owned())
    };
    (0..entries).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let strings = HEADER + entries.len() * ENTRY;
        let (mut table, mut texts) = (Vec::new(), Vec::new());
        let mut add = |text: &str| {
            let at = (strings + texts.len()) as u32;
            texts.extend_from_slice(text.as_bytes());
            texts.push(0);
            at
        };
        for (flags, name, path) in entries {
            for number in [*flags, add(name), add(path), 0, 0, 0] {
                table.extend_from_slice(&number.to_le_bytes());
            }
        }
        let mut all = MAGIC.to_vec();
        all.extend_from_slice(&(entries.len() as u32).to_le_bytes());
        all.extend_from_slice(&(texts.len() as u32).to_le_bytes());
        all.resize(HEADER, 0);
        all.extend(table);
        all.extend(texts);
        all
    }

    #[test]
    fn names_are_found_in_order_and_for_this_machine() {
        let cache = cache(&[
            (X86_64, "libcuda.so.1", "/a/libcuda.so.1"),
            (3, "libcuda.so.1", "/i386/libcuda.so.1"),
            (X86_64, "libcudart.so.12", "/b/libcudart.so.12"),
            (X86_64, "libcuda.so.1", "/c/libcuda.so.1"),
        ]);
        assert_eq!(paths(&cache, "libcuda.so.1"), ["/a/libcuda.so.1", "/c/libcuda.so.1"]);
        assert!(paths(&cache, "libcuda.so").is_empty());
        let mut old = b"ld.so-1.7.0 and its entries".to_vec();
        old.extend(&cache);
        assert_eq!(paths(&old, "libcudart.so.12"), ["/b/libcudart.so.12"]);
    }

    #[test]
    fn this_machines_own() {
        assert!(paths(&content(), "libc.so.6").iter().all(|path| path.ends_with("libc.so.6")));
    }

    proptest! {
        #[test]
        fn damage_is_borne(at: usize, byte: u8, cut: usize) {
            let mut bytes = cache(&[(X86_64, "a", "/a"), (X86_64, "b", "/b")]);
            let place = at % bytes.len();
            bytes[place] = byte;
            let _ = paths(&bytes, "a");
            bytes.truncate(cut % bytes.len());
            let _ = paths(&bytes, "b");
        }
    }
}
