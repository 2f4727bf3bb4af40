//! Implements `service install`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use super::change::{self, FileChange, print};
use super::command::{CommandError, UnitCommand};
use super::error::ServiceError;
use super::receipt::{Receipt, UnitEntry};
use super::root::SystemRoot;
use super::unit_name::unit_name;
use super::{surroundings, system, texts};
use crate::cli::{InstallOptions, Options};
use crate::device::prepare::mend_turns;
use crate::inject::DeliveryMode;
use crate::launch::accounts::Accounts;
use crate::systemd::settings;

/// State that is reported when a later command fails: the files are already written.
const DONE: &str = "the files are in place";

/// Sets a service up: plans the files, asks for confirmation, writes them, and activates them.
pub fn install(options: &Options, install: &InstallOptions) -> Result<(), ServiceError> {
    let asked = &install.change;
    let root = change::open_root(&asked.service.root)?;
    change::may(&root, asked)?;
    if root.is_this() && !root.has("/run/systemd/system") && !install.device_only {
        return Err(ServiceError::NoSystemd { hint: surroundings::without_systemd(&root) });
    }
    let member = member(&root, install)?;
    let before = Receipt::load(&root)?;
    let mut wanted = before.clone();
    let mut remarks = Vec::new();
    let watched = !install.device_only || before.files.contains_key(Path::new(texts::WATCH));
    wanted.files.insert(texts::RULE.into(), texts::rule(watched));
    wanted.members.extend(member.filter(|name| !before.members.contains(name)));
    wanted.files.insert(texts::SYSUSERS.into(), texts::sysusers());
    let unit = if install.device_only {
        None
    } else {
        let name = unit_name(&asked.service.unit)?;
        let launcher = launcher(&root, install)?;
        add_unit(&root, &name, &start(&launcher, options), &mut wanted, &mut remarks)?;
        wanted.files.insert(texts::WATCH.into(), texts::watch());
        wanted.files.insert(texts::REAP.into(), texts::reap(&launcher));
        wanted.files.insert(texts::LOOK.into(), texts::look(&launcher));
        Some(name)
    };
    let changes = change::to_have(&root, &before, &wanted)?;
    if root.is_this() {
        remarks.extend(surroundings::rivals(&surroundings::functions()));
    }
    change::show(&changes);
    for remark in &remarks {
        print(&format!("note: {remark}\n"));
    }
    if changes.is_empty() {
        print("Everything is written already.\n");
    } else if let Some(unit) = unit.as_deref().filter(|_| root.is_this()) {
        verify(&root, unit, &wanted)?;
    }
    if asked.dry_run {
        return Ok(());
    }
    if !changes.is_empty() {
        change::agree(asked)?;
    }
    if root.is_this() {
        wanted.group_made |= !system::has_group().unwrap_or(true);
    }
    // First, so that an end in between can be undone.
    wanted.save(&root)?;
    let made = change::make(&root, &changes, &mut wanted);
    wanted.save(&root)?;
    made?;
    if root.is_this() {
        // There may be a device of version 1, and other users than root come now.
        surroundings::functions().iter().for_each(mend_turns);
        take_notice(unit.as_deref(), &wanted, restart_wanted(install, &changes))
    } else {
        print(&format!(
            "Written to {}. The group comes from its systemd-sysusers.\n",
            root.path("/").display()
        ));
        Ok(())
    }
}

/// Returns whether the service must be restarted because its files have changed.
fn restart_wanted(install: &InstallOptions, changes: &[FileChange]) -> bool {
    !install.change.no_restart && !changes.is_empty()
}

/// Returns the user that is to join the group, if one was given.
fn member(root: &SystemRoot, install: &InstallOptions) -> Result<Option<String>, ServiceError> {
    let Some(name) = install.user.as_ref().map(ToString::to_string) else { return Ok(None) };
    if !root.is_this() {
        return Err(ServiceError::Elsewhere(name));
    }
    let known = Accounts::system().is_ok_and(|accounts| accounts.user(&name).is_some());
    if known { Ok(Some(name)) } else { Err(ServiceError::User(name)) }
}

/// Returns the path of the vgpu-run that the service will start. The service runs it, so only root may be
/// able to write to it or to replace it.
fn launcher(root: &SystemRoot, install: &InstallOptions) -> Result<String, ServiceError> {
    let path = match &install.launcher {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(ServiceError::Own)?,
    };
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._+-".contains(letter);
    let name = path.to_str().filter(|name| name.starts_with('/') && name.chars().all(plain));
    let name = name.ok_or_else(|| ServiceError::LauncherName(path.clone()))?;
    if root.is_this() && !roots_alone(&path) {
        return Err(ServiceError::Launcher { path });
    }
    Ok(name.to_owned())
}

fn roots_alone(path: &Path) -> bool {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    real.ancestors().chain(path.ancestors()).all(|part| {
        // Of a link the mode says nothing, but its owner does.
        fs::symlink_metadata(part).is_ok_and(|metadata| {
            metadata.uid() == 0 && (metadata.is_symlink() || metadata.mode() & 0o022 == 0)
        })
    })
}

/// Returns the start of the service's command line: vgpu-run with the options for the service.
fn start(launcher: &str, options: &Options) -> String {
    let mut start = launcher.to_owned();
    if options.allow_cpu {
        start.push_str(" --allow-cpu");
    }
    start.push_str(match options.via {
        Some(DeliveryMode::Memory) => " --via memory",
        Some(DeliveryMode::Folder) => " --via folder",
        None => "",
    });
    start
}

/// Adds a unit's drop-in to `wanted`.
fn add_unit(
    root: &SystemRoot,
    name: &str,
    start: &str,
    wanted: &mut Receipt,
    remarks: &mut Vec<String>,
) -> Result<(), ServiceError> {
    let drop_in = texts::drop_in_path(name);
    let command = match UnitCommand::find(root, name, &drop_in) {
        Err(CommandError::Missing(_))
            if name == surroundings::OLLAMA && surroundings::other_ways(root).is_none() =>
        {
            remarks.push(format!(
                "{name} is not here yet. This is for the one that Ollama's own installer makes; vgpu-run service status says whether \
                 it starts something else."
            ));
            UnitCommand { text: surroundings::OLLAMA_COMMAND.into(), path: PathBuf::new(), files: Vec::new() }
        }
        found => found.map_err(|source| {
            let hint = surroundings::hint(root, &source);
            ServiceError::Command { unit: name.to_owned(), source, hint }
        })?,
    };
    remarks.extend(hardening(root, &command));
    let entry = UnitEntry { own: command.text.clone(), drop_in: drop_in.clone() };
    wanted.files.insert(drop_in, texts::drop_in(&command.text, &command.by(start)));
    wanted.units.insert(name.to_owned(), entry);
    Ok(())
}

/// Returns remarks on settings of the unit that block access to the device. They are not changed, because an
/// administrator removed these rights on purpose.
fn hardening(root: &SystemRoot, command: &UnitCommand) -> Vec<String> {
    let mut remarks = Vec::new();
    for path in &command.files {
        let text = change::current(root, path).ok().flatten().unwrap_or_default();
        for (key, value) in settings(&text, "Service") {
            if key == "ProtectKernelTunables" && matches!(value.as_str(), "yes" | "true" | "1" | "on") {
                remarks.push(format!(
                    "{} has {key}={value}, which makes /sys read-only: the device cannot be opened so. \
                     To allow it: systemctl edit, [Service], {key}=no",
                    path.display()
                ));
            }
        }
    }
    remarks
}

/// Makes systemd verify the unit as it would be, and fails for problems that the current unit does not have.
fn verify(root: &SystemRoot, unit: &str, wanted: &Receipt) -> Result<(), ServiceError> {
    let files = super::command::files(root, unit);
    let (Some(main), Some(entry)) = (&files.main, wanted.units.get(unit)) else { return Ok(()) };
    let file = |path: PathBuf| move |source| ServiceError::File { path, source };
    // TMPDIR may name a directory that another user could replace while root copies into it.
    let place = if Uid::effective().is_root() { PathBuf::from("/run") } else { std::env::temp_dir() };
    let template = place.join("vgpu-run-verify.XXXXXX");
    let folder = nix::unistd::mkdtemp(&template).map_err(|error| file(template.clone())(error.into()))?;
    let copy = || {
        let drop_ins = folder.join(format!("{unit}.d"));
        fs::create_dir(&drop_ins)?;
        fs::write(folder.join(unit), root.read(main)?)?;
        for path in files.drop_ins.iter().filter(|path| **path != entry.drop_in) {
            fs::write(drop_ins.join(path.file_name().unwrap_or_default()), root.read(path)?)?;
        }
        let before = system::verify(&folder.join(unit));
        let name = entry.drop_in.file_name().unwrap_or_default();
        fs::write(drop_ins.join(name), &wanted.files[&entry.drop_in])?;
        let after = system::verify(&folder.join(unit));
        Ok(after.into_iter().find(|line| !before.contains(line)))
    };
    let found = copy().map_err(file(folder.clone()));
    // It is in a folder for temporary files.
    let _ = fs::remove_dir_all(&folder);
    found?.map_or(Ok(()), |line| Err(ServiceError::Verify(line)))
}

/// Activates the written files on the running system: the group, udev and the unit.
fn take_notice(unit: Option<&str>, wanted: &Receipt, restart: bool) -> Result<(), ServiceError> {
    system::make_group(DONE, &wanted.members)?;
    if unit.is_some() {
        // First, because udev tells systemd to start one of the units.
        system::reload_systemd(DONE)?;
    }
    system::reload_udev(DONE)?;
    let Some(unit) = unit else {
        print(
            "The device is set up. Whoever is in the group vgpu, from the next login on, starts Ollama by vgpu-run.\n",
        );
        return Ok(());
    };
    let said = if restart && system::restart(DONE, unit)? {
        format!("{unit} was started anew, by vgpu-run. Whether it has the GPU: vgpu-run check --service\n")
    } else {
        format!("{unit} starts by vgpu-run from its next start on: systemctl restart {unit}\n")
    };
    print(&said);
    Ok(())
}
