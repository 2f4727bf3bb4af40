//! `/proc/self/maps`: the files that this process has mapped, identified by device and inode.

use vgpu_probe_steps::Mapped;

/// A file that this process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Address of its first mapping.
    pub start: usize,
    /// Identity of the file.
    pub file: Mapped,
}

/// Returns the files of this process that are shared objects.
pub fn objects() -> Vec<Mapping> {
    let text = std::fs::read("/proc/self/maps").unwrap_or_default();
    let mut files = parse(&String::from_utf8_lossy(&text));
    files.retain(|found| found.file.path.contains(".so") || found.file.path.starts_with("/memfd:"));
    files
}

/// Parses the map. Returns each file once, in the order of addresses.
pub fn parse(text: &str) -> Vec<Mapping> {
    let mut files: Vec<Mapping> = Vec::new();
    for mapping in text.lines().filter_map(line) {
        let same = |file: &Mapped| file.inode == mapping.file.inode && file.device == mapping.file.device;
        if !files.iter().any(|found| same(&found.file)) {
            files.push(mapping);
        }
    }
    files
}

/// Parses a line `start-end perms offset device inode path`, whose path may contain blanks.
fn line(text: &str) -> Option<Mapping> {
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
    let file = || Mapped { path: path.into(), device: device.into(), inode };
    path.starts_with('/').then(|| Mapping { start, file: file() })
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
        assert_eq!((files[0].start, files[0].file.path.as_str()), (0x7f00, "/usr/lib/lib a.so"));
        assert_eq!((files[1].file.inode, files[1].file.path.as_str()), (7, "/memfd:libcuda.so.1 (deleted)"));
    }

    #[test]
    fn this_process_has_its_libraries() {
        assert!(objects().iter().any(|found| found.file.path.contains("libc.so")));
    }

    proptest! {
        #[test]
        fn anything_may_stand_there(text in "[ -~\n]{0,300}") {
            let _ = parse(&text);
        }
    }
}
