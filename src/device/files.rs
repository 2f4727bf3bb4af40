//! The files of a function in sysfs that processes open.

use std::path::Path;

/// The files of a function that a user needs. Only the simulated bus has `resource0_ro`, only version 1 has
/// `resource1`, and `resource2_wc` is there only where BAR2 is prefetchable.
pub const FILES: [&str; 5] = ["resource0", "resource0_ro", "resource1", "resource2", "resource2_wc"];

/// Whether the shims only read one of a device's files: the simulated bus's page of registers, and the lock
/// file of version 1.
pub fn is_only_read(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "resource0_ro" || name == "vgpu_transport.lock")
}
