//! The file `resource0_ro`: the device's own registers, so that a guest that only reads does not wake the
//! device. It is locked (`flock`) as long as the device's process lives. A guest that gets the lock has found
//! the file of a dead device.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use vgpu_wire::registers::V2_PAGE_BYTES;

use super::error::SimError;
use crate::device::Device;
use crate::memory::window::Window;

/// Lock of a device's register page, held while the device exists.
#[derive(Debug)]
pub(super) struct PageLock(#[expect(dead_code, reason = "held for its lock")] File);

/// Makes the register page at `path` and passes it to the device.
pub(super) fn publish(path: &Path, device: &Device) -> Result<PageLock, SimError> {
    let page = Window::create(path, u64::from(V2_PAGE_BYTES))
        .map_err(|source| SimError::Window { address: device.address(), source })?;
    // Storage is reserved first, because a store to a page without storage ends the process.
    if !page.reserve(0, u64::from(V2_PAGE_BYTES)) {
        return Err(SimError::file("find room for", path, std::io::ErrorKind::StorageFull));
    }
    device.published().set_page(page);
    device.publish_facts();
    device.publish();
    std::fs::set_permissions(path, Permissions::from_mode(0o600))
        .map_err(|source| SimError::file("set the mode of", path, source))?;
    let file = File::open(path).map_err(|source| SimError::file("open", path, source))?;
    file.lock().map_err(|source| SimError::file("lock", path, source))?;
    Ok(PageLock(file))
}
