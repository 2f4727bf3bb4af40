//! Checks whether this process can create every fault.

use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Returns whether this process can create faults that need root: namespaces, mounts, another user, immutable
/// files. A container's root may lack these rights. The result is computed once.
pub fn may_change_the_system() -> bool {
    const TRIAL: &str = "file=$(mktemp) && chattr +i \"$file\" && chattr -i \"$file\" && rm \"$file\" && \
        exec unshare --mount --pid --fork --mount-proc -- sh -c 'mount -t tmpfs none /mnt && \
        exec setpriv --reuid=65534 --regid=65534 --clear-groups -- true'";
    static MAY: LazyLock<bool> = LazyLock::new(|| {
        let tried = Command::new("sh").args(["-c", TRIAL]).stdin(Stdio::null()).output();
        rustix::process::geteuid().is_root() && tried.is_ok_and(|output| output.status.success())
    });
    *MAY
}
