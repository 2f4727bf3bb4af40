//! Finds which process owns which channel of a function: `/proc/locks` lists the holders of the channels'
//! record locks ([`crate::lock`]). The lock file itself is not opened here, because closing it would drop
//! this process's own locks.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use vgpu_wire::registers::MAX_CHANNELS;

/// A process that owns a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Index of the channel.
    pub channel: u32,
    /// Id of the process in this process's namespace.
    pub process: u32,
}

/// A file as `/proc/locks` identifies it: major and minor device number, and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct File {
    major: u32,
    minor: u32,
    inode: u64,
}

/// Returns the processes that have a session on the function with this directory in sysfs, in the order of
/// their channels. Those that this process's namespace does not show are omitted.
///
/// # Errors
/// Fails if the function's window file or `/proc/locks` cannot be read.
pub fn holders(function: &Path) -> io::Result<Vec<Holder>> {
    let metadata = fs::metadata(function.join("resource2"))?;
    let file = File {
        major: libc::major(metadata.dev()),
        minor: libc::minor(metadata.dev()),
        inode: metadata.ino(),
    };
    Ok(listed(&fs::read_to_string("/proc/locks")?, file))
}

fn listed(locks: &str, file: File) -> Vec<Holder> {
    let mut holders: Vec<Holder> = locks.lines().filter_map(|line| holder(line, file)).collect();
    holders.sort_unstable();
    holders
}

/// Returns the process that holds a channel of `file` according to a line of `/proc/locks`: `1: POSIX
/// ADVISORY  WRITE 1234 08:01:5678 3 3`. The device numbers are hexadecimal. A line with an arrow describes a
/// process that waits for a lock.
fn holder(line: &str, file: File) -> Option<Holder> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (kind, _, mode) = (words.next()?, words.next()?, words.next()?);
    let process: u32 = words.next()?.parse().ok()?;
    let mut place = words.next()?.split(':');
    let named = File {
        major: u32::from_str_radix(place.next()?, 16).ok()?,
        minor: u32::from_str_radix(place.next()?, 16).ok()?,
        inode: place.next()?.parse().ok()?,
    };
    let channel: u32 = words.next()?.parse().ok()?;
    let found = kind == "POSIX" && mode == "WRITE" && named == file && channel < MAX_CHANNELS;
    // 0 stands for a process that this one cannot see.
    (found && process != 0).then_some(Holder { channel, process })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: File = File { major: 0, minor: 0x1b, inode: 7957 };

    #[test]
    fn holders_of_channels_only() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 29845 00:1b:7957 0 0
1: -> POSIX  ADVISORY  WRITE 4 00:1b:7957 0 0
2: FLOCK  ADVISORY  WRITE 25105 fe:00:5865476 0 EOF
3: POSIX  ADVISORY  WRITE 30009 00:1b:7957 5 5
4: POSIX  ADVISORY  WRITE 30009 00:1b:7957 7 7
5: POSIX  ADVISORY  READ 30010 00:1b:7957 7 7
6: POSIX  ADVISORY  WRITE 30011 00:1b:7958 1 1
7: POSIX  ADVISORY  WRITE 30012 01:1b:7957 1 1
8: POSIX  ADVISORY  WRITE 0 00:1b:7957 2 2
9: OFDLCK ADVISORY  WRITE -1 00:1b:7957 3 3
10: POSIX  ADVISORY  WRITE 30013 00:1b:7957 4096 4096
11: POSIX  ADVISORY  WRITE 17 00:1b:7957 63 63
12: LEASE  ACTIVE    READ 30014 00:1b:7957 0 EOF
";
        let expected = [(0, 29845), (5, 30009), (7, 30009), (63, 17)];
        assert_eq!(listed(locks, FILE), expected.map(|(channel, process)| Holder { channel, process }));
        assert_eq!(listed("", FILE), []);
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(locks in "([ -~]{0,60}\n?){0,6}") {
            listed(&locks, FILE);
        }

        #[test]
        fn a_holder_is_found_among_others(
            process in 1u32..=i32::MAX as u32,
            channel in 0..MAX_CHANNELS,
            (major, minor, inode) in (0u32..256, 0u32..65536, 0u64..),
            other in "[ -~]{0,40}",
        ) {
            let file = File { major, minor, inode };
            let locks = format!(
                "9: POSIX  ADVISORY  WRITE {process} {major:02x}:{minor:02x}:{inode} {channel} {channel}\n{other}\n"
            );
            let expected = Holder { channel, process };
            prop_assert!(listed(&locks, file).contains(&expected));
        }
    }
}
