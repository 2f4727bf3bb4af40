//! Detects whether the devices make progress on any session's work while the server is silent.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use vgpu_transport::{Device, Progress, scan, sysfs_root};

use crate::device::survey;

/// Progress counters of all devices that can be opened.
pub struct Devices {
    opened: RefCell<Vec<Progress>>,
    coming: Receiver<Progress>,
}

impl Devices {
    /// Opens the counters on a thread of its own, because opening a silent device blocks.
    pub fn watch() -> Self {
        let (send, coming) = channel();
        thread::spawn(move || {
            for function in scan(&sysfs_root()).unwrap_or_default() {
                // A device of version 1 has no counters, and opening it takes the turn of other processes.
                if survey::version(&function) == 1 {
                    continue;
                }
                if let Ok(progress) = Device::open(&function, Some(vgpu_transport_v1::open))
                    .and_then(|device| Progress::open(&device))
                {
                    // Nobody may want to know any more.
                    let _ = send.send(progress);
                }
            }
        });
        Self { opened: RefCell::default(), coming }
    }

    /// Returns a number that changes whenever a device makes progress.
    pub fn count(&self) -> u64 {
        let mut opened = self.opened.borrow_mut();
        opened.extend(self.coming.try_iter());
        opened.iter().map(Progress::count).fold(0, u64::wrapping_add)
    }
}
