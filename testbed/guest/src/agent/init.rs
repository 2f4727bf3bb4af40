//! The first process of a guest: file systems, kernel modules, shared directories, and who may use the
//! device.
//!
//! The list of what to do is [`InitPlan`], a file of the initramfs that the host wrote.

use std::ffi::CStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};
use rustix::system::finit_module;
use serde::{Deserialize, Serialize};
use vgpu_wire::pci;

use super::loopback;

/// Path of the plan in the initramfs.
pub const PLAN: &str = "/etc/vgpu-guest.json";

/// Preparations that the host requests from the guest's first process.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct InitPlan {
    /// Paths of the kernel modules, in the order of loading.
    pub modules: Vec<PathBuf>,
    /// Directories of the host to mount, with the tags of their virtiofs.
    pub shares: Vec<Share>,
    /// Group that receives the device's resource files, as a udev rule would arrange; without one they stay
    /// root's.
    pub device_group: Option<u32>,
}

/// A directory of the host, mounted in the guest.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Tag by which the guest mounts the virtiofs.
    pub tag: String,
    /// Mount point in the guest, which equals the directory's path on the host.
    pub path: PathBuf,
}

/// Description of a preparation that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path}: {source}")]
pub struct InitError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

fn failed(what: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> InitError {
    let path = path.as_ref().to_owned();
    move |source| InitError { what, path, source }
}

/// File systems that programs expect: type, mount point and options.
const FILE_SYSTEMS: [(&str, &str, &CStr); 8] = [
    ("proc", "/proc", c""),
    ("sysfs", "/sys", c""),
    ("devtmpfs", "/dev", c"mode=0755"),
    ("tmpfs", "/dev/shm", c"mode=1777"),
    ("hugetlbfs", "/dev/hugepages", c"pagesize=2M,mode=0755"),
    ("tmpfs", "/tmp", c"mode=1777"),
    ("tmpfs", "/var/tmp", c"mode=1777"),
    ("tmpfs", "/run", c"mode=0755"),
];

/// Mounts the file systems that every program needs. The agent's port becomes reachable once its modules are
/// loaded too.
///
/// # Errors
/// Fails if a mount point cannot be created or mounted; the error names it.
pub fn mount_basics() -> Result<(), InitError> {
    for (kind, path, options) in FILE_SYSTEMS {
        fs::create_dir_all(path).map_err(failed("make", path))?;
        let mounted = mount(kind, path, kind, MountFlags::NOSUID, options);
        mounted.map_err(|error| failed("mount", path)(error.into()))?;
    }
    Ok(())
}

impl InitPlan {
    /// Reads the plan that the host put into the initramfs.
    ///
    /// # Errors
    /// Fails if the plan is missing or invalid.
    pub fn read() -> Result<Self, InitError> {
        let text = fs::read(PLAN).map_err(failed("read", PLAN))?;
        serde_json::from_slice(&text).map_err(|error| failed("understand", PLAN)(error.into()))
    }

    /// Loads the modules in the plan's order.
    ///
    /// # Errors
    /// Fails if the kernel refuses a module; the error names it.
    pub fn load_modules(&self) -> Result<(), InitError> {
        self.modules.iter().try_for_each(|path| {
            let file = File::open(path).map_err(failed("open", path))?;
            finit_module(file, c"", 0).map_err(|error| failed("load", path)(error.into()))
        })
    }

    /// Brings the loopback interface up, mounts the host's directories and grants the device to its group.
    ///
    /// # Errors
    /// Fails if a directory cannot be mounted, the device cannot be granted, or the interface stays down.
    pub fn carry_out(&self) -> Result<(), InitError> {
        loopback::bring_up().map_err(failed("bring up", "lo"))?;
        for Share { tag, path } in &self.shares {
            fs::create_dir_all(path).map_err(failed("make", path))?;
            let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
            let mounted = mount(tag.as_str(), path, "virtiofs", flags, None);
            mounted.map_err(|error| failed("mount", path)(error.into()))?;
        }
        self.device_group.map_or(Ok(()), give_devices)
    }
}

/// Grants the resource files of every VGPU-STUB function to a group and enables memory decoding, as a udev
/// rule would.
fn give_devices(group: u32) -> Result<(), InitError> {
    let folder = Path::new("/sys/bus/pci/devices");
    for entry in fs::read_dir(folder).map_err(failed("list", folder))? {
        let path = entry.map_err(failed("list", folder))?.path();
        let is = |file: &str, id: u16| {
            fs::read_to_string(path.join(file)).is_ok_and(|text| text.trim() == format!("{id:#06x}"))
        };
        if !is("vendor", pci::VENDOR) || !is("device", pci::DEVICE) {
            continue;
        }
        let enable = path.join("enable");
        if fs::read_to_string(&enable).is_ok_and(|text| text.trim() == "0") {
            fs::write(&enable, "1").map_err(failed("write", &enable))?;
        }
        for file in ["resource0", "resource1", "resource1_wc", "resource2", "resource2_wc"] {
            let path = path.join(file);
            if path.exists() {
                chown(&path, None, Some(group)).map_err(failed("give away", &path))?;
                let mode = Permissions::from_mode(0o660);
                fs::set_permissions(&path, mode).map_err(failed("set the mode of", &path))?;
            }
        }
    }
    Ok(())
}
