//! Activates changes on the running system: the group, udev and systemd. Each step runs a command that an
//! administrator would type.

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

/// Search path for the commands. It is fixed, so that the environment of sudo's caller has no influence.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a command and returns its standard output.
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

/// Returns whether a command exists on the search path.
fn has(name: &str) -> bool {
    PATH.split(':').any(|folder| Path::new(folder).join(name).exists())
}

/// Returns whether the group exists.
pub fn has_group() -> io::Result<bool> {
    Ok(Accounts::system()?.group(GROUP).is_some())
}

/// Creates the group from the file for systemd-sysusers, which must already be written, and adds the members
/// to it.
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

/// Removes `members` from the launcher's group, or with `whole` the group itself. Does nothing if there is no
/// such group.
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

/// Makes udev reload its rules and apply them to the device.
pub fn reload_udev(done: &'static str) -> Result<(), ServiceError> {
    run_tool(done, &["udevadm", "control", "--reload"])?;
    let vendor = format!("--attr-match=vendor={:#06x}", pci::VENDOR);
    let device = format!("--attr-match=device={:#06x}", pci::DEVICE);
    run_tool(done, &["udevadm", "trigger", "--action=change", "--subsystem-match=pci", &vendor, &device])?;
    run_tool(done, &["udevadm", "settle"]).map(drop)
}

/// Makes root the only owner of the functions again, and allows drivers to bind them.
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

/// Makes systemd reload its units.
pub fn reload_systemd(done: &'static str) -> Result<(), ServiceError> {
    run_tool(done, &["systemctl", "daemon-reload"]).map(drop)
}

/// Stops the units that a pattern names. There may be none.
pub fn stop(done: &'static str, pattern: &str) -> Result<(), ServiceError> {
    run_tool(done, &["systemctl", "stop", pattern]).map(drop)
}

/// Restarts a unit if it is running or being restarted. Returns whether it did.
pub fn restart(done: &'static str, unit: &str) -> Result<bool, ServiceError> {
    let state = run_tool(done, &["systemctl", "show", "--property=ActiveState", "--value", unit])?;
    let runs = !matches!(state.trim(), "inactive" | "failed");
    if runs {
        run_tool(done, &["systemctl", "restart", unit])?;
    }
    Ok(runs)
}

/// Returns the state of a unit according to systemd, and whether systemd has read its current files.
pub fn state(unit: &str) -> Option<String> {
    run_tool("", &["systemctl", "show", "--property=ActiveState,SubState,NRestarts,NeedDaemonReload", unit])
        .ok()
}

/// Returns the lines that `systemd-analyze verify` prints about a copy of a unit and its drop-ins. The list
/// is empty if systemd-analyze is not available.
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
