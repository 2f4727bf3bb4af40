//! Determines whether the kernel will start a program in secure mode (AT_SECURE), in which the loader ignores
//! LD_PRELOAD. The rules are those of `cap_bprm_creds_from_file` and `bprm_fill_uid` in Linux.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use nix::libc;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{Gid, Uid};

/// Flag in the first word of the attribute: the capabilities are effective from the start.
const CAP_EFFECTIVE: u32 = 1;

/// Reason why the kernel starts a program in secure mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Secure {
    /// The file has the set-user-ID bit and belongs to another user than the caller.
    #[error("it is setuid")]
    User,
    /// The file has the set-group-ID bit and a group that is not the caller's.
    #[error("it is setgid")]
    Group,
    /// The file has capabilities and the caller is not root.
    #[error("it has file capabilities")]
    Capabilities,
    /// The caller's effective ids differ from its real ids.
    #[error("vgpu-run itself runs with the rights of another user or group")]
    Caller,
}

/// Attributes of the file and the caller on which the rules depend.
#[derive(Clone, Copy, Debug)]
struct Facts {
    mode: u32,
    owner: u32,
    group: u32,
    /// Whether the file's capability attribute grants a capability.
    capabilities: bool,
    /// Whether the file system is mounted nosuid, which disables both the bits and the capabilities.
    nosuid: bool,
    /// Whether PR_SET_NO_NEW_PRIVS is set, which disables the bits.
    no_new_privileges: bool,
    real_user: u32,
    real_group: u32,
    effective_user: u32,
    effective_group: u32,
}

/// Returns the reason why `file` would start in secure mode, or `None` if it would not. Security modules may
/// have further reasons, which cannot be determined.
pub fn secure(file: &File) -> std::io::Result<Option<Secure>> {
    let metadata = file.metadata()?;
    let flags = fstatvfs(file).map_or(FsFlags::empty(), |filesystem| filesystem.flags());
    Ok(judge(Facts {
        mode: metadata.mode(),
        owner: metadata.uid(),
        group: metadata.gid(),
        capabilities: capabilities(file).is_some_and(|attribute| raises(&attribute)),
        nosuid: flags.contains(FsFlags::ST_NOSUID),
        no_new_privileges: nix::sys::prctl::get_no_new_privs().unwrap_or(false),
        real_user: Uid::current().as_raw(),
        real_group: Gid::current().as_raw(),
        effective_user: Uid::effective().as_raw(),
        effective_group: Gid::effective().as_raw(),
    }))
}

fn judge(facts: Facts) -> Option<Secure> {
    let bits = !facts.nosuid && !facts.no_new_privileges;
    let setgid = libc::S_ISGID | libc::S_IXGRP;
    if bits && facts.mode & libc::S_ISUID != 0 {
        if facts.owner != facts.real_user {
            return Some(Secure::User);
        }
    } else if facts.effective_user != facts.real_user {
        return Some(Secure::Caller);
    }
    if bits && facts.mode & setgid == setgid {
        if facts.group != facts.real_group {
            return Some(Secure::Group);
        }
    } else if facts.effective_group != facts.real_group {
        return Some(Secure::Caller);
    }
    (facts.capabilities && !facts.nosuid && facts.real_user != 0).then_some(Secure::Capabilities)
}

/// Returns the file's `security.capability` attribute, if it has one.
fn capabilities(file: &File) -> Option<Vec<u8>> {
    let mut value = [0_u8; 32];
    // SAFETY: the name is a C string, the buffer is as large as said, and the descriptor is open while `file`
    // lives.
    let got = unsafe {
        libc::fgetxattr(
            file.as_raw_fd(),
            c"security.capability".as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    usize::try_from(got).ok().map(|length| value[..length].to_vec())
}

/// Returns whether a `security.capability` attribute grants a capability. The attribute is a little-endian
/// `struct vfs_cap_data`: a word of revision and flags, then pairs of permitted and inheritable words (one
/// pair in revision 1, two in later ones).
fn raises(attribute: &[u8]) -> bool {
    let words: Vec<u32> = attribute
        .chunks_exact(4)
        .map(|word| word.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
        .collect();
    let Some((head, sets)) = words.split_first() else { return false };
    head & CAP_EFFECTIVE != 0 || sets.iter().take(4).step_by(2).any(|permitted| *permitted != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Facts = Facts {
        mode: 0o100_755,
        owner: 0,
        group: 0,
        capabilities: false,
        nosuid: false,
        no_new_privileges: false,
        real_user: 1000,
        real_group: 1000,
        effective_user: 1000,
        effective_group: 1000,
    };

    #[test]
    fn set_id_bits_of_others_count() {
        assert_eq!(judge(PLAIN), None);
        assert_eq!(judge(Facts { mode: 0o104_755, ..PLAIN }), Some(Secure::User));
        assert_eq!(judge(Facts { mode: 0o102_755, ..PLAIN }), Some(Secure::Group));
        assert_eq!(
            judge(Facts { mode: 0o102_745, ..PLAIN }),
            None,
            "setgid without group execution is a lock mode"
        );
        assert_eq!(judge(Facts { mode: 0o104_755, owner: 1000, ..PLAIN }), None);
        assert_eq!(judge(Facts { mode: 0o102_755, group: 1000, ..PLAIN }), None);
    }

    #[test]
    fn what_disarms_them() {
        assert_eq!(judge(Facts { mode: 0o106_755, nosuid: true, ..PLAIN }), None);
        assert_eq!(judge(Facts { mode: 0o106_755, no_new_privileges: true, ..PLAIN }), None);
        let root = Facts { real_user: 0, effective_user: 0, real_group: 0, effective_group: 0, ..PLAIN };
        assert_eq!(judge(Facts { mode: 0o106_755, ..root }), None);
    }

    #[test]
    fn capabilities_count_for_all_but_root() {
        assert_eq!(judge(Facts { capabilities: true, ..PLAIN }), Some(Secure::Capabilities));
        assert_eq!(
            judge(Facts { capabilities: true, no_new_privileges: true, ..PLAIN }),
            Some(Secure::Capabilities)
        );
        assert_eq!(judge(Facts { capabilities: true, nosuid: true, ..PLAIN }), None);
        assert_eq!(judge(Facts { capabilities: true, real_user: 0, effective_user: 0, ..PLAIN }), None);
    }

    #[test]
    fn a_launcher_with_borrowed_rights_is_told() {
        assert_eq!(judge(Facts { effective_user: 0, ..PLAIN }), Some(Secure::Caller));
        assert_eq!(judge(Facts { effective_group: 0, ..PLAIN }), Some(Secure::Caller));
    }

    #[test]
    fn the_attribute_of_setcap() {
        // cap_net_bind_service+ep, as setcap(8) writes it.
        let ep = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(raises(&ep));
        let mut permitted_only = ep;
        permitted_only[0] = 0;
        assert!(raises(&permitted_only));
        let mut inheritable_only = permitted_only;
        inheritable_only.swap(5, 9);
        assert!(!raises(&inheritable_only));
        assert!(!raises(&[]));
        assert!(!raises(&[0, 0, 0]));
    }
}
