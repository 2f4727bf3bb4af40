//! Whether this process may make every fault.

use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Returns whether the faults can be made that take root: namespaces, mounts, another user, a file that
/// nobody may change. A container's root may have none of these. Tried once.
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
