//! The state of a served device, as the program that is replaced leaves it to its successor, in a sealed
//! memory file: a line of JSON about the process, and the state of the device with its sessions.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vgpu_device::{ADDRESS_RANGES, Addresses, DeviceState, STATE_MAX};
use vgpu_vfio_user::{UnsentReply, record};

use crate::executor::SavedExecutor;
use crate::share::SavedSlot;

/// Version of the state, that of the device included. A program restores its own version, and none other.
pub const STATE_VERSION: u32 = 1;
// A new form of the device's state makes one of this, too.
const _: () = assert!(vgpu_device::STATE_VERSION == 1 && STATE_VERSION == 1);
/// Length of the longest first line that is read, in bytes.
const PROCESS_MOST: u64 = 4 << 20;

/// What a process leaves to its successor beside the device.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedProcess {
    /// [`STATE_VERSION`] of the program that has saved it.
    pub(crate) version: u32,
    /// Version of that program.
    pub(crate) program: String,
    /// Layout of the record of the connection, by its first word.
    pub(crate) record: u64,
    /// Settings that a device keeps as long as it lives, by their names.
    pub(crate) settings: BTreeMap<String, Value>,
    /// Times of the device's start and of the pause, by [`clock`].
    pub(crate) started: u64,
    pub(crate) paused: u64,
    /// Number of reloads before this one.
    pub(crate) reloads: u32,
    pub(crate) executor: SavedExecutor,
    /// The VM's slot of the GPU, if it has one.
    pub(crate) slot: Option<SavedSlot>,
    /// Whether a process before this device has died and its VM has lost it.
    pub(crate) lost: bool,
    /// A reply for which the VMM has left no room.
    pub(crate) reply: Option<UnsentReply>,
}

/// The part of the first line that each version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
    program: String,
}

impl SavedProcess {
    /// Writes the state to a new memory file, which nobody can change afterwards.
    pub(crate) fn write(&self, device: &DeviceState) -> io::Result<File> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(memfd_create("vgpu-state", flags)?);
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        serde_json::to_writer(&mut text, device)?;
        file.write_all(&text)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
        file.rewind()?;
        Ok(file)
    }

    /// Reads a state, and checks that it is one of this version. Whoever restores a part checks that.
    pub(crate) fn read(from: impl io::Read) -> Result<(Self, DeviceState)> {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        from.by_ref().take(PROCESS_MOST).read_until(b'\n', &mut line).context("read the state")?;
        let found: Versioned = serde_json::from_slice(&line).context("read the version of the state")?;
        let Versioned { version, program } = found;
        if version != STATE_VERSION {
            bail!(
                "the device runs version {program}, whose state has version {version}: version {} takes over a state \
                 of version {STATE_VERSION} only, so the device has to be restarted",
                env!("CARGO_PKG_VERSION")
            );
        }
        let process: Self =
            serde_json::from_slice(&line).with_context(|| format!("understand the state of {program}"))?;
        if process.record != record::MAGIC {
            bail!("the record of {program} has the layout {:#x}, which is not known here", process.record);
        }
        let mut text = Vec::new();
        from.take(STATE_MAX as u64 + 1).read_to_end(&mut text).context("read the state of the device")?;
        Ok((process, DeviceState::parse(&text)?))
    }

    /// Returns the device's addresses with their lock.
    pub(crate) fn addresses(&self, lock: Option<OwnedFd>) -> Result<Addresses> {
        let saved = &self.executor.gpu().addresses;
        if saved.index() >= ADDRESS_RANGES {
            bail!("the state has addresses of the range {}", saved.index());
        }
        Ok(Addresses::inherited(saved.index(), lock).shortened(saved.range().bytes))
    }

    /// Refuses settings that differ from those with which the device was started.
    pub(crate) fn check_settings(&self, now: &BTreeMap<String, Value>) -> Result<()> {
        let names = self.settings.keys().chain(now.keys());
        let mut changed: Vec<&str> =
            names.filter(|name| self.settings.get(*name) != now.get(*name)).map(String::as_str).collect();
        changed.sort_unstable();
        changed.dedup();
        if !changed.is_empty() {
            bail!(
                "the settings now differ in {}, which a device keeps as long as it lives: set them back, or restart it",
                changed.join(", ")
            );
        }
        Ok(())
    }
}

/// Returns the time on the system's clock, in nanoseconds since 1970, which a program has in common with the
/// next one. Whoever sets the clock in between changes what `status` shows, and nothing else.
pub(crate) fn clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
