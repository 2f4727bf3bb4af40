//! This system takes notice: the group, udev, systemd. Each command is one that an administrator would type.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use vgpu_transport::PciFunction;
use vgpu_wire::pci;

use super::error::ServiceError;
use super::texts::{GROUP, SYSUSERS};
use crate::device::files::FILES;
use crate::device::prepare::settled;
use crate::launch::accounts::Accounts;

/// Fixed search path for the commands, independent of whoever called sudo.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a command and returns what it printed.
fn run_tool(done: &'static str, words: &[&str]) -> Result<String, ServiceError> {
    let error = |why: String| ServiceError::Tool { done, command: words.join(" "), why };
    tracing::debug!(?words, "runs");
    let output = Command::new(words[0])
        .args(&words[1..])
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| error(source.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(error(format!("{last} ({})", output.status)))
}

/// Whether a command is there.
fn has(name: &str) -> bool {
    PATH.split(':').any(|folder| Path::new(folder).join(name).exists())
}

/// Whether the group is there.
pub fn has_group() -> io::Result<bool> {
    Ok(Accounts::system()?.group(GROUP).is_some())
}

/// Makes the group, as the file for systemd-sysusers says, which is in place, and puts users into it.
pub fn make_group(done: &'static str, members: &[String]) -> Result<(), ServiceError> {
    if has("systemd-sysusers") {
        run_tool(done, &["systemd-sysusers", SYSUSERS])?;
    } else if !has_group().unwrap_or(false) {
        run_tool(done, &["groupadd", "--system", GROUP])?;
    }
    for member in members {
        run_tool(done, &["gpasswd", "--add", member, GROUP])?;
    }
    Ok(())
}

/// Takes users out of the group, or the whole group away.
pub fn unmake_group(done: &'static str, whole: bool, members: &[String]) -> Result<(), ServiceError> {
    if !has_group().unwrap_or(true) {
        return Ok(());
    }
    if whole {
        return run_tool(done, &["groupdel", GROUP]).map(drop);
    }
    for member in members {
        run_tool(done, &["gpasswd", "--delete", member, GROUP])?;
    }
    Ok(())
}

/// Has udev read its rules anew, and apply them to the device.
pub fn reload_udev(done: &'static str) -> Result<(), ServiceError> {
    run_tool(done, &["udevadm", "control", "--reload"])?;
    let vendor = format!("--attr-match=vendor={:#06x}", pci::VENDOR);
    let device = format!("--attr-match=device={:#06x}", pci::DEVICE);
    run_tool(done, &["udevadm", "trigger", "--action=change", "--subsystem-match=pci", &vendor, &device])?;
    run_tool(done, &["udevadm", "settle"]).map(drop)
}

/// Makes the functions root's alone again, and lets drivers have them.
pub fn take_back(functions: &[PciFunction]) -> Result<(), ServiceError> {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    for function in functions {
        settled(&function.dir).map_err(|source| ServiceError::File { path: function.dir.clone(), source })?;
        for path in FILES.iter().map(|name| function.dir.join(name)).filter(|path| path.exists()) {
            chown(&path, Some(0), Some(0))
                .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)))
                .map_err(|source| ServiceError::File { path, source })?;
        }
        let path = function.dir.join("driver_override");
        // An empty line is none.
        if path.exists() {
            std::fs::write(&path, "\n").map_err(|source| ServiceError::File { path, source })?;
        }
    }
    Ok(())
}

/// Has systemd read its units anew.
pub fn reload_systemd(done: &'static str) -> Result<(), ServiceError> {
    run_tool(done, &["systemctl", "daemon-reload"]).map(drop)
}

/// Starts a unit anew, if it runs or keeps failing.
pub fn restart(done: &'static str, unit: &str) -> Result<bool, ServiceError> {
    let state = run_tool(done, &["systemctl", "show", "--property=ActiveState", "--value", unit])?;
    let runs = !matches!(state.trim(), "inactive" | "failed");
    if runs {
        run_tool(done, &["systemctl", "restart", unit])?;
    }
    Ok(runs)
}

/// State of a unit according to systemd, and whether systemd has read its current files.
pub fn state(unit: &str) -> Option<String> {
    run_tool("", &["systemctl", "show", "--property=ActiveState,SubState,NRestarts,NeedDaemonReload", unit])
        .ok()
}

/// Lines that `systemd-analyze verify` prints about a copy of a unit and its drop-ins. Empty without
/// systemd-analyze.
pub fn verify(unit: &Path) -> Vec<String> {
    let command = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(unit)
        .env("PATH", PATH)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let Ok(output) = command else { return Vec::new() };
    let name = unit.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // It names the files in the copy's folder, and says things about other units of this system too.
    said.lines().filter(|line| line.contains(&name)).map(str::to_owned).collect()
}
