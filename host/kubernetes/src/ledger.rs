//! What the GPUs of a node have been promised: the ledger of all devices of the host ([`vgpu_share`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vgpu_share::{GpuUuid, Gpus, Promise, ShareError, SlotView, largest_reserve};

/// The memory of a GPU, as the plugin sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Bytes for VMs: the GPU's memory without the reserve.
    pub(crate) has: u64,
    /// Devices that are the plugin's, with the bytes that they hold.
    own: BTreeMap<String, u64>,
    /// Devices that are not, with the bytes that they hold.
    pub(crate) others: Vec<(String, u64)>,
}

impl Room {
    /// Returns what a promise of `asked` bytes says if it cannot be kept.
    pub(crate) fn promise(&self, gpu: GpuUuid, asked: u64) -> Promise {
        Promise { gpu, asked, has: self.has, holders: self.others.clone(), ending: false }
    }

    /// Returns the bytes that a device of the plugin has: what it is promised, or what its instance holds if
    /// that was started with a larger size of its profile.
    pub(crate) fn taken(&self, device: &str, promised: u64) -> u64 {
        self.own.get(device).map_or(promised, |held| promised.max(*held))
    }

    /// Returns the bytes that the plugin's own devices can have together.
    pub(crate) fn for_own(&self) -> u64 {
        self.others.iter().fold(self.has, |free, (_, bytes)| free.saturating_sub(*bytes))
    }
}

/// The ledger's directory.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// Path of the directory, or `None` for the host's.
    folder: Option<PathBuf>,
    /// Bytes of each GPU that are promised to nobody.
    reserve: u64,
}

impl Ledger {
    pub(crate) const fn new(folder: Option<PathBuf>, reserve: u64) -> Self {
        Self { folder, reserve }
    }

    /// Reads the rooms of GPUs, which are given with the bytes of their memory. `is_own` says of a name
    /// whether it is the plugin's. Nothing is made and nobody is waited for.
    pub(crate) fn rooms(
        &self,
        gpus: &BTreeMap<GpuUuid, u64>,
        is_own: &dyn Fn(&str) -> bool,
    ) -> Result<BTreeMap<GpuUuid, Room>, ShareError> {
        let all =
            self.folder.as_deref().map_or_else(Gpus::existing_of_host, |path: &Path| Gpus::existing(path))?;
        // A GPU without a file has had no device since the host started.
        let known = all.as_ref().map_or(Ok(Vec::new()), Gpus::all)?;
        let mut rooms = BTreeMap::new();
        for (gpu, bytes) in gpus {
            let holders = match &all {
                Some(all) if known.contains(gpu) => all.existing_gpu(*gpu)?.holders()?,
                _ => Vec::new(),
            };
            let has = bytes.saturating_sub(largest_reserve(&holders).max(self.reserve));
            let held = |holder: &SlotView| (holder.name(), holder.held_bytes());
            let (own, others): (Vec<_>, _) = holders.iter().map(held).partition(|(name, _)| is_own(name));
            rooms.insert(*gpu, Room { has, own: own.into_iter().collect(), others });
        }
        Ok(rooms)
    }
}
