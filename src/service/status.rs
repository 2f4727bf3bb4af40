//! Implements `service status`, which reports what is set up and what has changed since.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

use vgpu_findings::style::{Style, When};

use super::change::{self, print};
use super::command::{self, CommandError, UnitCommand};
use super::error::ServiceError;
use super::receipt::{Receipt, UnitEntry};
use super::root::SystemRoot;
use super::unit_name::unit_name;
use super::{surroundings, system, texts};
use crate::cli::ServiceOptions;
use crate::device::files::FILES;
use crate::device::survey;
use crate::diagnosis::Status;
use crate::launch::accounts::Accounts;
use crate::systemd::settings;

/// Exit code if everything is set up and unchanged.
const GOOD: u8 = 0;
/// Exit code if some item needs attention.
const BAD: u8 = 1;
/// Exit code if nothing is set up, the same that systemctl uses for a unit that does not run.
const NONE: u8 = 3;

/// State of one item, and the command or advice that repairs it.
struct StatusLine(Status, String, Option<String>);

impl StatusLine {
    fn good(text: impl Into<String>) -> Self {
        Self(Status::Pass, text.into(), None)
    }

    fn bad(text: impl Into<String>, fix: &str) -> Self {
        Self(Status::Fail, text.into(), Some(fix.to_owned()))
    }

    fn remark(text: impl Into<String>) -> Self {
        Self(Status::Warn, text.into(), None)
    }
}

/// Command that repairs most states.
const AGAIN: &str = "sudo vgpu-run service install";

/// Prints the state of a service's setup and returns the exit code.
pub fn status(options: &ServiceOptions) -> Result<ExitCode, ServiceError> {
    let root = change::open_root(&options.root)?;
    let unit = unit_name(&options.unit)?;
    let receipt = Receipt::load(&root)?;
    let Some(entry) = receipt.units.get(&unit) else {
        let device = if receipt.is_empty() { "" } else { " The device is." };
        let others: Vec<_> = receipt.units.keys().map(String::as_str).collect();
        let others =
            if others.is_empty() { String::new() } else { format!(" Set up: {}.", others.join(", ")) };
        print(&format!("{unit} is not set up to start by vgpu-run.{others}{device}\n"));
        return Ok(NONE.into());
    };
    let mut lines = Vec::new();
    for (path, written) in &receipt.files {
        lines.push(match change::current(&root, path) {
            Ok(Some(text)) if text == *written => {
                StatusLine::good(format!("{} is as it was written", path.display()))
            }
            Ok(None) => StatusLine::bad(format!("{} is gone", path.display()), AGAIN),
            _ => StatusLine::bad(
                format!("{} was changed since it was written", path.display()),
                "take the change back, or remove the file and start vgpu-run service install again",
            ),
        });
    }
    lines.push(command(&root, &unit, entry));
    lines.extend(overridden(&root, &unit, entry));
    lines.push(launcher(&root, &receipt, entry));
    if root.is_this() {
        lines.extend(here(&unit));
    }
    let style = Style::of_stdout(When::Auto);
    let mut text = String::new();
    for StatusLine(status, line, fix) in &lines {
        let _ = writeln!(text, "{} {line}", style.coloured(*status, style.mark(*status)));
        if let Some(fix) = fix {
            let _ = writeln!(text, "    fix: {fix}");
        }
    }
    print(&text);
    let bad = lines.iter().any(|StatusLine(status, ..)| *status == Status::Fail);
    Ok(if bad { BAD } else { GOOD }.into())
}

/// Reports whether the unit's own command is still the one that was recorded at the installation.
fn command(root: &SystemRoot, unit: &str, entry: &UnitEntry) -> StatusLine {
    match UnitCommand::find(root, unit, &entry.drop_in) {
        Ok(command) if command.text == entry.own => {
            StatusLine::good(format!("{unit} starts {} by vgpu-run", entry.own))
        }
        Ok(command) => StatusLine::bad(
            format!(
                "{} starts {} by now, and the drop-in still {}",
                command.path.display(),
                command.text,
                entry.own
            ),
            AGAIN,
        ),
        Err(CommandError::Missing(_)) => StatusLine::remark(format!("{unit} is not here yet")),
        Err(error) => StatusLine::bad(error.to_string(), &surroundings::hint(root, &error)),
    }
}

/// Reports a drop-in that is ordered after ours and starts another command.
fn overridden(root: &SystemRoot, unit: &str, entry: &UnitEntry) -> Option<StatusLine> {
    let files = command::files(root, unit);
    let after = files.drop_ins.into_iter().skip_while(|path| *path != entry.drop_in).skip(1);
    after
        .filter(|path| {
            let text = change::current(root, path).ok().flatten().unwrap_or_default();
            settings(&text, "Service").any(|(key, _)| key == "ExecStart")
        })
        .map(|path| {
            let text =
                format!("{} counts after ours, and has the service start something else", path.display());
            StatusLine::bad(text, "rename it to come before zz-vgpu-run.conf")
        })
        .next()
}

/// Reports whether the vgpu-run that the drop-in starts exists.
fn launcher(root: &SystemRoot, receipt: &Receipt, entry: &UnitEntry) -> StatusLine {
    let text = receipt.files.get(&entry.drop_in).map_or("", String::as_str);
    let last = settings(text, "Service").filter(|(key, _)| key == "ExecStart").last();
    let line = last.map(|(_, value)| value).unwrap_or_default();
    let path = line.trim_start_matches(|letter| letter != '/').split(' ').next().unwrap_or("").to_owned();
    if root.has(&path) {
        StatusLine::good(format!("{path} is there"))
    } else {
        StatusLine::bad(
            format!("{path} is gone, and the service cannot start without it"),
            "install vgpu-run again",
        )
    }
}

/// Reports the state of the group, the device and the unit on the running system.
fn here(unit: &str) -> Vec<StatusLine> {
    let group = Accounts::system().ok().and_then(|accounts| accounts.group(texts::GROUP));
    let Some(group) = group else {
        return vec![StatusLine::bad(format!("there is no group {}", texts::GROUP), AGAIN)];
    };
    let functions = surroundings::functions();
    let mut lines = Vec::new();
    if functions.is_empty() {
        lines.push(StatusLine::remark("there is no VGPU-STUB device in this machine: its host adds it"));
    }
    for function in &functions {
        let name = function.address.to_string();
        if let Some(driver) = survey::driver(&function.dir).filter(|driver| driver != texts::NO_DRIVER) {
            lines.push(StatusLine::remark(format!("the kernel driver {driver} is bound to {name}")));
        }
        let ours = |path: &Path| {
            path.metadata()
                .is_ok_and(|metadata| metadata.gid() == group.as_raw() && metadata.mode() & 0o060 == 0o060)
        };
        let files = FILES.iter().map(|file| function.dir.join(file)).filter(|path| path.exists());
        let missing: Vec<_> =
            files.filter(|path| !ours(path)).map(|path| path.display().to_string()).collect();
        let on = survey::attribute(&function.dir, "enable").is_ok_and(|text| text.trim() != "0");
        lines.push(if !missing.is_empty() {
            StatusLine::bad(
                format!("{} is not the group's", missing.join(", ")),
                "sudo udevadm trigger --subsystem-match=pci",
            )
        } else if on {
            StatusLine::good(format!("{name} is the group's, and on"))
        } else {
            StatusLine::bad(
                format!("{name} does not decode memory accesses"),
                "sudo udevadm trigger --subsystem-match=pci",
            )
        });
    }
    if let Some(state) = system::state(unit) {
        let get = |key: &str| {
            state.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap_or("")
        };
        if get("NeedDaemonReload") == "yes" {
            lines.push(StatusLine::bad(
                "systemd has not read what has changed",
                "sudo systemctl daemon-reload",
            ));
        }
        let text = format!("{unit} is {} ({})", get("ActiveState"), get("SubState"));
        lines.push(match get("ActiveState") {
            "active" => StatusLine::good(text),
            "failed" | "activating" => {
                StatusLine::bad(text, &format!("journalctl --unit {unit}; vgpu-run check --service"))
            }
            _ => StatusLine::remark(text),
        });
    }
    lines
}
