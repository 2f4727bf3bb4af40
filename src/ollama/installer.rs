//! Knowledge about Ollama's own installer for administrators: its command, and whether it would install a
//! driver because of the device.

use std::path::Path;

use vgpu_transport::{PciFunction, scan, sysfs_root};

/// Directories in which an installer that runs as root finds programs.
const FOLDERS: [&str; 6] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns whether the installer would take `functions` for GPUs without a driver and install NVIDIA's. It
/// looks for nvidia-smi first, then asks lspci or lshw (its `scripts/install.sh`).
pub fn adds_driver(functions: &[PciFunction]) -> bool {
    let there = |name: &str| FOLDERS.iter().any(|folder| Path::new(folder).join(name).exists());
    !functions.is_empty() && !there("nvidia-smi") && (there("lspci") || there("lshw"))
}

/// Returns the command that installs Ollama. If the installer would add a driver, the command hides that need
/// by providing an `nvidia-smi` during the installation.
pub fn command() -> &'static str {
    if scan(&sysfs_root()).is_ok_and(|functions| adds_driver(&functions)) {
        "ln -s /bin/true /usr/local/bin/nvidia-smi; curl -fsSL https://ollama.com/install.sh | sh; rm /usr/local/bin/nvidia-smi"
    } else {
        "curl -fsSL https://ollama.com/install.sh | sh"
    }
}
