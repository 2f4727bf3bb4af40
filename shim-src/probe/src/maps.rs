//! `/proc/self/maps`: the files that this process has mapped, identified by device and inode.

use serde_json::{Value, json};

/// A mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Start address of its first mapping.
    pub start: usize,
    /// Device number as the kernel writes it, such as `fd:01`.
    pub device: String,
    /// Inode number of the file.
    pub inode: u64,
    /// Path of the file; `/memfd:NAME (deleted)` for a memory file.
    pub path: String,
}

impl Mapped {
    /// The file as a JSON object, for the output.
    pub fn json(&self) -> Value {
        json!({ "path": self.path, "device": self.device, "inode": self.inode })
    }
}

/// The shared objects that this process has mapped.
pub fn objects() -> Vec<Mapped> {
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    let mut files = parse(&String::from_utf8_lossy(&text));
    files.retain(|file| file.path.contains(".so") || file.path.starts_with("/memfd:"));
    files
}

/// Parses the content of `maps`. Each file is returned once, in the order of addresses.
pub fn parse(text: &str) -> Vec<Mapped> {
    let mut files: Vec<Mapped> = Vec::new();
    for mapped in text.lines().filter_map(line) {
        if !files.iter().any(|file| file.inode == mapped.inode && file.device == mapped.device) {
            files.push(mapped);
        }
    }
    files
}

/// Parses a line, `start-end perms offset device inode path`. The path is the rest of the line.
fn line(text: &str) -> Option<Mapped> {
    let mut rest = text;
    let mut word = || {
        let trimmed = rest.trim_start();
        let end = trimmed.find(' ').unwrap_or(trimmed.len());
        let (word, after) = trimmed.split_at(end);
        rest = after;
        word
    };
    let (range, _, _, device, inode) = (word(), word(), word(), word(), word());
    let path = rest.trim_start();
    let start = usize::from_str_radix(range.split('-').next()?, 16).ok()?;
    let inode = inode.parse().ok().filter(|inode| *inode != 0)?;
    path.starts_with('/').then(|| Mapped { start, device: device.into(), inode, path: path.into() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
7f00-7f10 r-xp 00000000 fd:01 42                         /usr/lib/lib a.so
7f10-7f20 rw-p 00001000 fd:01 42                         /usr/lib/lib a.so
7f20-7f30 rw-p 00000000 00:00 0
7f30-7f40 r-xp 00000000 00:01 7                          /memfd:libcuda.so.1 (deleted)
7ffd-7ffe r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn files_are_told_once() {
        let files = parse(TEXT);
        assert_eq!(files.len(), 2);
        assert_eq!((files[0].start, files[0].path.as_str()), (0x7f00, "/usr/lib/lib a.so"));
        assert_eq!((files[1].inode, files[1].path.as_str()), (7, "/memfd:libcuda.so.1 (deleted)"));
    }

    #[test]
    fn this_process_has_its_libraries() {
        assert!(objects().iter().any(|file| file.path.contains("libc.so")));
    }

    proptest! {
        #[test]
        fn anything_may_stand_there(text in "[ -~\n]{0,300}") {
            let _ = parse(&text);
        }
    }
}
