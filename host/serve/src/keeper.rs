//! Keeps what the next process needs to continue the VM's connection if this one dies: descriptors in the
//! service manager's store, and the record that says what they are.
//!
//! ```text
//!  record              the record: a memory file
//!  window              the device's window
//!  listener-DEV-INO    the socket that listens, with the identity of its name in the file system
//!  connection          the connection to the VMM
//!  ram-DEV-INO-MODE    each distinct file of the guest's memory
//! ```
//!
//! A descriptor is stored before the record refers to it, and removed after the record does so no more, so that
//! a death at any moment leaves no record whose descriptors are missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use vgpu_device::lock;
use vgpu_vfio_user::record::{ConnectionImage, FileId, Loss, MAX_FILES, Record, RegionImage};
use vgpu_vfio_user::{Answering, CONFIG_BYTES, Limits, Recorder, Region};

use crate::store::Store;

/// Names in the store.
pub(crate) const RECORD: &str = "record";
pub(crate) const WINDOW: &str = "window";
pub(crate) const CONNECTION: &str = "connection";
pub(crate) const LISTENER: &str = "listener-";
pub(crate) const RAM: &str = "ram-";

/// Number of descriptors in the store beside those of the guest's memory.
const OTHERS: usize = 4;

/// Returns the name of a file of the guest's memory.
pub(crate) fn ram_name(file: FileId) -> String {
    let mode = if file.writable { "rw" } else { "r" };
    format!("{RAM}{:x}-{:x}-{mode}", file.device, file.inode)
}

/// Returns the name of a socket that listens at `path`, by the identity of the file there.
pub(crate) fn listener_name(path: &Path) -> io::Result<String> {
    let about = rustix::fs::lstat(path)?;
    Ok(format!("{LISTENER}{:x}-{:x}", about.st_dev, about.st_ino))
}

/// Regions of the guest's memory as they are recorded, and their distinct files.
pub(crate) struct RecordedRam<'a> {
    pub(crate) regions: Vec<RegionImage>,
    pub(crate) files: BTreeMap<FileId, &'a File>,
}

impl<'a> RecordedRam<'a> {
    pub(crate) fn of(regions: &'a [(u64, Region)]) -> io::Result<Self> {
        let mut recorded = Self { regions: Vec::with_capacity(regions.len()), files: BTreeMap::new() };
        for (address, region) in regions {
            let image = RegionImage::of(*address, region)?;
            recorded.files.insert(image.file, &region.file);
            recorded.regions.push(image);
        }
        Ok(recorded)
    }
}

/// What is kept of a device.
#[derive(Debug)]
pub(crate) struct Keeper {
    store: Arc<Store>,
    record: Arc<Record>,
    /// Files of the guest's memory in the store.
    files: Mutex<BTreeSet<FileId>>,
}

impl Keeper {
    /// Makes a keeper whose store has these files of the guest's memory already.
    pub(crate) fn new(store: Arc<Store>, record: Arc<Record>, files: BTreeSet<FileId>) -> Self {
        Self { store, record, files: Mutex::new(files) }
    }

    /// Returns the record.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Removes everything from the store, because the process ends in order.
    pub(crate) fn end(&self, listener: &str) {
        self.ended();
        for name in [listener, WINDOW, RECORD] {
            self.remove(name);
        }
    }

    /// Removes a descriptor. What the manager keeps for too long does no harm: the next process sees that
    /// nothing refers to it.
    fn remove(&self, name: &str) {
        if let Err(error) = self.store.remove(name) {
            tracing::warn!(name, "the service manager still keeps a descriptor: {error}");
        }
    }

    /// Gives the connection up: this process serves it, and no other one will.
    fn lose(&self, loss: Loss) {
        tracing::warn!("the VM will lose its GPU if this process dies: {loss}");
        self.record.change(|image| {
            image.connection = None;
            image.loss = Some(loss);
        });
        self.forget(&mut lock(&self.files), &BTreeSet::new());
    }

    /// Removes the files that are not `needed`.
    fn forget(&self, files: &mut BTreeSet<FileId>, needed: &BTreeSet<FileId>) {
        for file in files.difference(needed) {
            self.remove(&ram_name(*file));
        }
        files.retain(|file| needed.contains(file));
    }

    /// Changes the recorded connection, if there is one that can be continued.
    fn change(&self, change: impl FnOnce(&mut ConnectionImage)) {
        self.record.change(|image| {
            if let Some(connection) = &mut image.connection {
                change(connection);
            }
        });
    }

    fn is_lost(&self) -> bool {
        self.record.image().loss.is_some()
    }
}

impl Recorder for Keeper {
    fn answering(&self, answering: Answering) {
        self.record.answering(answering);
    }

    fn connected(&self, socket: BorrowedFd<'_>, config: &[u8; CONFIG_BYTES]) {
        self.record.answering(Answering::Nothing);
        if let Err(error) = self.store.keep(CONNECTION, socket) {
            tracing::warn!("tell the service manager of the connection: {error}");
            self.lose(Loss::Store);
            return;
        }
        self.record.change(|image| {
            image.loss = None;
            image.crashes = 0;
            image.connection = Some(ConnectionImage { limits: None, config: *config, regions: Vec::new() });
        });
    }

    fn negotiated(&self, limits: Limits) {
        self.change(|connection| connection.limits = Some(limits));
    }

    fn configured(&self, bytes: &[u8; CONFIG_BYTES]) {
        self.change(|connection| connection.config = *bytes);
    }

    fn mapped(&self, regions: &[(u64, Region)]) {
        if self.is_lost() {
            return;
        }
        let mut files = lock(&self.files);
        match self.store_files(&mut files, regions) {
            Ok(RecordedRam { regions, files: needed }) => {
                self.change(|connection| connection.regions = regions);
                self.forget(&mut files, &needed.into_keys().collect());
            }
            Err(loss) => {
                drop(files);
                self.lose(loss);
            }
        }
    }

    fn ended(&self) {
        self.record.change(|image| {
            image.connection = None;
            image.loss = None;
        });
        self.record.answering(Answering::Nothing);
        self.remove(CONNECTION);
        self.forget(&mut lock(&self.files), &BTreeSet::new());
    }
}

impl Keeper {
    /// Stores the files of regions that are not stored yet. Returns the regions with all their files.
    fn store_files<'a>(
        &self,
        files: &mut BTreeSet<FileId>,
        regions: &'a [(u64, Region)],
    ) -> Result<RecordedRam<'a>, Loss> {
        let recorded = RecordedRam::of(regions).map_err(|_| Loss::Store)?;
        let most = MAX_FILES.min(self.store.most().saturating_sub(OTHERS));
        if recorded.files.len() > most {
            return Err(Loss::Files);
        }
        for (id, file) in &recorded.files {
            if files.contains(id) {
                continue;
            }
            if files.len() >= most {
                // Files that nothing refers to any more make room.
                return Err(Loss::Files);
            }
            self.store.keep(&ram_name(*id), file.as_fd()).map_err(|_| Loss::Store)?;
            files.insert(*id);
        }
        Ok(recorded)
    }
}
