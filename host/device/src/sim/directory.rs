//! The files of the bus: which process may serve a directory, what a function's directory holds, and how all
//! of it is removed.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use vgpu_paths::Dir;
use vgpu_wire::pci::{self, PciAddress};

use super::error::SimError;

/// Value of `f_type` for a tmpfs, from `linux/magic.h`.
const TMPFS_MAGIC: i64 = 0x0102_1994;
/// Resource flags as sysfs prints them: memory, aligned to its size; for BAR2 also 64-bit and prefetchable,
/// with the low bits of the BAR register. They are from `linux/ioport.h` and `linux/pci_regs.h`.
const BAR0_FLAGS: u64 = 0x0004_0200;
const BAR1_FLAGS: u64 = 0x0004_0200;
const BAR2_FLAGS: u64 = 0x0014_220c;
/// Addresses at which a firmware might have put the BARs of the first device.
const BAR0_START: u64 = 0xfe00_0000;
const BAR1_START: u64 = 0xc000_0000;
const BAR2_START: u64 = 0x80_0000_0000;
/// Number of lines of sysfs's `resource` of a function: six BARs, the ROM, and six for virtual functions.
const RESOURCE_LINES: usize = 13;

/// Sizes in bytes of BAR0 to BAR2; 0 stands for a BAR that the function does not have.
pub(super) type BarSizes = [u64; 3];

/// Directory that this process serves.
#[derive(Debug)]
pub(super) struct BusDirectory {
    folder: PathBuf,
    /// Lock of the directory, held as long as it is open. The kernel releases it however the process ends.
    _lock: File,
}

impl BusDirectory {
    /// Locks the directory and removes the files of a dead server.
    pub(super) fn open(folder: &Path) -> Result<Self, SimError> {
        let devices = folder.join("bus/pci/devices");
        Dir::make(&devices).map_err(|error| SimError::file("create", &devices, error))?;
        // From here on paths in the directory are used, so nobody else may change what they refer to.
        vgpu_paths::reject_replaceable(&devices).map_err(|error| SimError::file("serve", folder, error))?;
        let folder = fs::canonicalize(folder).map_err(|error| SimError::file("resolve", folder, error))?;
        // The directory itself is locked, because a lock file could not be removed without a race.
        let lock = File::open(&folder).map_err(|error| SimError::file("open", &folder, error))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => SimError::Served { folder: folder.clone() },
            TryLockError::Error(error) => SimError::file("lock", &folder, error),
        })?;
        let bus = Self { folder, _lock: lock };
        bus.remove_stale()?;
        bus.warn_of_slow_storage();
        Ok(bus)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn devices(&self) -> PathBuf {
        self.folder.join("bus/pci/devices")
    }

    /// Removes functions whose `resource0` is a socket. This process holds the lock, so their server is dead.
    fn remove_stale(&self) -> Result<(), SimError> {
        let ram = self.folder.join("ram");
        if let Err(error) = fs::remove_file(&ram)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(SimError::file("remove", &ram, error));
        }
        let devices = self.devices();
        let failed = |error| SimError::file("list", &devices, error);
        for entry in fs::read_dir(&devices).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let socket =
                fs::symlink_metadata(path.join("resource0")).is_ok_and(|data| data.file_type().is_socket());
            let unfinished = path.extension().is_some_and(|extension| extension == "unfinished");
            if socket || unfinished {
                tracing::info!(path = %path.display(), "removed what a dead device left");
                fs::remove_dir_all(&path).map_err(|error| SimError::file("remove", &path, error))?;
            }
        }
        Ok(())
    }

    /// Warns if the directory is on a disk, because the kernel would write the pages of the windows back
    /// again and again.
    fn warn_of_slow_storage(&self) {
        if let Ok(data) = rustix::fs::statfs(&self.folder)
            && data.f_type != TMPFS_MAGIC
        {
            tracing::warn!(folder = %self.folder.display(), "the directory is not on a tmpfs: windows will be slow");
        }
    }

    /// Makes a function's directory under a name that no scan accepts.
    pub(super) fn new_function(
        &self,
        address: PciAddress,
        bars: BarSizes,
    ) -> Result<FunctionDirectory, SimError> {
        let shown = self.devices().join(address.to_string());
        if shown.exists() {
            let source = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(SimError::file("create", &shown, source));
        }
        let path = self.devices().join(format!(".{address}.unfinished"));
        let mut builder = DirBuilder::new();
        builder.mode(0o755).create(&path).map_err(|error| SimError::file("create", &path, error))?;
        let function = FunctionDirectory { path, shown };
        let id = |value: u16| format!("{value:#06x}\n");
        function.write("vendor", 0o444, id(pci::VENDOR))?;
        function.write("device", 0o444, id(pci::DEVICE))?;
        function.write("subsystem_vendor", 0o444, id(pci::SUBSYSTEM_VENDOR))?;
        function.write("subsystem_device", 0o444, id(pci::SUBSYSTEM_DEVICE))?;
        function.write("class", 0o444, format!("{:#08x}\n", pci::CLASS))?;
        function.write("revision", 0o444, format!("{:#04x}\n", pci::REVISION))?;
        function.write("modalias", 0o444, modalias())?;
        function.write("enable", 0o600, "1\n")?;
        function.write("resource", 0o444, resources(address, bars))?;
        Ok(function)
    }
}

/// Returns sysfs's `modalias`, by which a kernel finds the driver of the function.
fn modalias() -> String {
    let (vendor, device, class) = (pci::VENDOR, pci::DEVICE, pci::CLASS);
    let (subvendor, subdevice) = (pci::SUBSYSTEM_VENDOR, pci::SUBSYSTEM_DEVICE);
    format!(
        "pci:v{vendor:08X}d{device:08X}sv{subvendor:08X}sd{subdevice:08X}bc{:02X}sc{:02X}i{:02X}\n",
        class >> 16,
        class >> 8 & 0xff,
        class & 0xff
    )
}

/// Returns the text of sysfs's `resource`: start, end and flags of each BAR. The addresses have no meaning
/// but differ between functions.
fn resources(address: PciAddress, bars: BarSizes) -> String {
    let slot = u64::from(address.bus) << 8 | u64::from(address.device) << 3 | u64::from(address.function);
    let bar0 = BAR0_START + slot * 0x1_0000 % 0x100_0000;
    let line = |start: u64, bytes: u64, flags: u64| {
        format!("{start:#018x} {:#018x} {flags:#018x}\n", start + bytes - 1)
    };
    let none = format!("{0:#018x} {0:#018x} {0:#018x}\n", 0);
    let mut lines = vec![none; RESOURCE_LINES];
    let bar1 = BAR1_START + slot * bars[1] % 0x2000_0000;
    let bar2 = BAR2_START + slot * bars[2].next_power_of_two();
    let placed = [(bar0, BAR0_FLAGS), (bar1, BAR1_FLAGS), (bar2, BAR2_FLAGS)];
    for ((to, bytes), (start, flags)) in lines.iter_mut().zip(bars).zip(placed) {
        if bytes > 0 {
            *to = line(start, bytes, flags);
        }
    }
    lines.concat()
}

/// Directory of a function, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct FunctionDirectory {
    path: PathBuf,
    /// Path once the function is complete.
    shown: PathBuf,
}

impl FunctionDirectory {
    /// Returns the path of a file of the function.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn write(&self, name: &str, mode: u32, text: impl AsRef<[u8]>) -> Result<(), SimError> {
        let path = self.path(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let written = options.open(&path).and_then(|mut file| file.write_all(text.as_ref()));
        written.map_err(|error| SimError::file("write", &path, error))
    }

    /// Writes the part of configuration space that guests read: the header's ids, and the key of guest pages.
    /// Only the owner may read it, as sysfs restricts the part after the header to root.
    pub(super) fn write_config(&self, key: u64) -> Result<(), SimError> {
        let mut space = [0; 256];
        space[..2].copy_from_slice(&pci::VENDOR.to_le_bytes());
        space[2..4].copy_from_slice(&pci::DEVICE.to_le_bytes());
        space[8..12].copy_from_slice(&(pci::CLASS << 8 | u32::from(pci::REVISION)).to_le_bytes());
        let at = pci::PAGES_KEY as usize;
        space[at..at + 8].copy_from_slice(&key.to_le_bytes());
        self.write("config", 0o600, space)
    }

    /// Sets the mode of the window file and links its second name.
    pub(super) fn finish_window(&self) -> Result<(), SimError> {
        use std::os::unix::fs::PermissionsExt;
        let (window, wc) = (self.path("resource2"), self.path("resource2_wc"));
        let only_owner = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&window, only_owner)
            .map_err(|error| SimError::file("set the mode of", &window, error))?;
        fs::hard_link(&window, &wc).map_err(|error| SimError::file("link", &wc, error))
    }

    /// Renames the directory to its final name, under which guests find it.
    pub(super) fn show(&mut self) -> Result<(), SimError> {
        fs::rename(&self.path, &self.shown).map_err(|error| SimError::file("name", &self.shown, error))?;
        self.path.clone_from(&self.shown);
        Ok(())
    }

    /// Removes the directory. A second call has no effect.
    pub(super) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), "failed to remove: {error}");
        }
    }
}

impl Drop for FunctionDirectory {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_read_as_those_of_a_real_function() {
        let text = resources("0000:00:05.0".parse().unwrap(), [pci::V2_BAR0_BYTES, 0, 256 << 20]);
        let lines: Vec<Vec<u64>> = text
            .lines()
            .map(|line| line.split(' ').map(|n| u64::from_str_radix(&n[2..], 16).unwrap()).collect())
            .collect();
        assert_eq!(lines.len(), RESOURCE_LINES);
        assert_eq!(lines[0][1] - lines[0][0] + 1, pci::V2_BAR0_BYTES);
        assert_eq!(lines[1], [0, 0, 0]);
        assert_eq!(lines[2][1] - lines[2][0] + 1, 256 << 20);
        assert_eq!(lines[2][2] & 0x2000, 0x2000, "prefetchable");
        assert!(text.lines().all(|line| line.len() == 56));
    }

    /// A directory that others can change is not served, because paths in it are opened and have their modes
    /// set by name. A user could become root, or write to forbidden files.
    #[test]
    fn a_folder_that_others_can_change_is_not_served() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let dir = tempfile::tempdir().unwrap();
        let (hostile, own) = (dir.path().join("hostile"), dir.path().join("own"));
        for folder in [&hostile, &own] {
            fs::create_dir(folder).unwrap();
        }
        fs::set_permissions(&hostile, fs::Permissions::from_mode(0o777)).unwrap();
        symlink(&own, hostile.join("link")).unwrap();
        for folder in [hostile.join("bus"), hostile.join("link"), hostile.clone()] {
            let error = BusDirectory::open(&folder).unwrap_err();
            let SimError::File { source, .. } = error else { panic!("{error}") };
            assert!(vgpu_paths::hint(&source).is_some(), "{source}");
        }
        assert_eq!(fs::read_dir(&own).unwrap().count(), 0, "nothing is made through a link");
        drop(BusDirectory::open(&own).unwrap());
    }

    #[test]
    fn a_function_of_version_1_has_bar1_and_no_window() {
        let text = resources("0000:00:05.0".parse().unwrap(), [pci::V1_BAR0_BYTES, pci::V1_BAR1_BYTES, 0]);
        let sizes: Vec<u64> = text
            .lines()
            .map(|line| {
                let number = |at: usize| u64::from_str_radix(&line[at + 2..at + 18], 16).unwrap();
                (number(19) - number(0)).checked_add(u64::from(number(19) != 0)).unwrap()
            })
            .collect();
        assert_eq!(sizes[..4], [0x1000, 0x100_0000, 0, 0]);
        assert_eq!(sizes.len(), RESOURCE_LINES);
    }

    #[test]
    fn the_line_of_numbers_is_a_kernels() {
        assert_eq!(modalias(), "pci:v000010DEd00002331sv000010DEsd000016C1bc03sc02i00\n");
    }

    #[test]
    fn a_folder_is_served_once_and_cleaned_of_the_dead() {
        let dir = tempfile::tempdir().unwrap();
        let bus = BusDirectory::open(dir.path()).unwrap();
        assert!(matches!(BusDirectory::open(dir.path()), Err(SimError::Served { .. })));
        let devices = bus.devices();
        let other = devices.join("0000:00:1f.0");
        fs::create_dir(&other).unwrap();
        let dead = devices.join("0000:00:05.0");
        fs::create_dir(&dead).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dead.join("resource0")).unwrap();
        let function =
            bus.new_function("0000:00:06.0".parse().unwrap(), [pci::V2_BAR0_BYTES, 0, 1 << 20]).unwrap();
        let unfinished = function.path.clone();
        std::mem::forget(function);
        drop(bus);
        drop(BusDirectory::open(dir.path()).unwrap());
        assert!(other.exists() && !dead.exists() && !unfinished.exists());
    }
}
