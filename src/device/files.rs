//! The files of a function in sysfs that processes open.

use std::path::Path;

/// Names of a function's files that a user needs. Only the simulated bus has `resource0_ro`, only version 1
/// has `resource1`, and `resource2_wc` exists only if BAR2 is prefetchable.
pub const FILES: [&str; 5] = ["resource0", "resource0_ro", "resource1", "resource2", "resource2_wc"];

/// Returns whether the shims only read a file of a device: the simulated bus's page of registers, and the
/// lock file of version 1.
pub fn is_only_read(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "resource0_ro" || name == "vgpu_transport.lock")
}
