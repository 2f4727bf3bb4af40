//! The file `resource0_ro`: the device's own registers, so that a guest that only reads does not wake the
//! device. It is locked (`flock`) as long as the device's process lives. A guest that gets the lock has found
//! the file of a dead device.
//!
//! The device stores a register when it changes. A thread stores those that grow with time, every
//! [`REFRESH`].

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use vgpu_wire::registers::V2_PAGE_BYTES;

use super::error::SimError;
use crate::device::Device;
use crate::memory::window::Window;
use crate::threads;

/// Interval at which a thread stores the registers that grow with time.
const REFRESH: Duration = Duration::from_millis(100);

/// A device's register page. Dropping it ends the thread and unlocks the file.
#[derive(Debug)]
pub(super) struct PageFile {
    _lock: File,
    /// Sender for the thread, which ends when this is dropped.
    goes_on: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for PageFile {
    fn drop(&mut self) {
        self.goes_on = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported.
            let _ = thread.join();
        }
    }
}

/// Makes the register page at `path` and passes it to the device.
pub(super) fn publish(path: &Path, device: &Arc<Device>) -> Result<PageFile, SimError> {
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
    let (goes_on, ends) = channel();
    let refreshed = Arc::clone(device);
    let refresh = move || {
        while ends.recv_timeout(REFRESH) == Err(RecvTimeoutError::Timeout) {
            refreshed.refresh_page();
        }
    };
    let thread = threads::spawn("registers", refresh)
        .map_err(|source| SimError::file("start a thread for", path, source))?;
    Ok(PageFile { _lock: file, goes_on: Some(goes_on), thread: Some(thread) })
}
