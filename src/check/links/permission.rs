//! Link `permission`: checks that the user who opens the device may do so. A worker tries it if possible; as
//! root, the worker becomes that user first.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Uid;
use vgpu_transport::{OpenError, PciFunction};
use vgpu_transport_v1::lock_files;

use super::{broken, unable};
use crate::check::child;
use crate::check::context::CheckContext;
use crate::check::identity::Become;
use crate::check::messages;
use crate::check::steps::{StepReport, Steps};
use crate::check::subject::Subject;
use crate::check::unit::Unit;
use crate::device;
use crate::diagnosis::cause::permission as cause;
use crate::diagnosis::fix::permission as fix;
use crate::diagnosis::{Finding, Fix, LinkId};
use crate::service;

const LINK: LinkId = LinkId::Permission;
/// Time limit for opening files, which takes little time. A device that blocks the kernel is reported by the
/// next link.
const LIMIT: Duration = Duration::from_secs(2);

/// Examines the link and returns its finding.
pub async fn examine(context: &mut CheckContext) -> Finding {
    if let Some(finding) = context.unit.as_ref().and_then(|unit| sandbox(unit, &context.functions)) {
        return finding;
    }
    let subject = match context.subject() {
        Ok(subject) => subject.clone(),
        Err(failure) => {
            return Finding::fail(cause::DEVICE_PERMISSION, failure.sentence()).fix(fix::UNKNOWN_USER);
        }
    };
    let files: Vec<(PciFunction, PathBuf)> = context
        .functions
        .iter()
        .flat_map(|function| {
            let own = device::files::FILES.map(|name| function.dir.join(name));
            own.into_iter().chain(lock_files(function)).map(|path| (function.clone(), path))
        })
        .collect();
    let paths: Vec<PathBuf> = files.iter().map(|(_, path)| path.clone()).collect();
    let answers = if subject.become_by.is_some() && !Uid::effective().is_root() {
        computed(&subject, &paths)
    } else {
        match tried(context, subject.become_by.as_ref(), &paths).await {
            Ok(answers) => answers,
            Err(error) => return unable(context, LINK, "start a process that opens the device", &error),
        }
    };
    let lockdown = device::judge::locked_down(&context.root);
    for ((function, path), answer) in files.iter().zip(answers) {
        let Some(errno) = answer else { continue };
        let source = io::Error::from_raw_os_error(errno);
        // Missing files and refused connections are reported by later links.
        if device::error::file_cause(lockdown, path, &source, false).link() != LINK {
            continue;
        }
        let path = path.clone();
        let refused = if path.starts_with(&function.dir) {
            OpenError::Open { path, source }
        } else {
            OpenError::Turn { path, source }
        };
        let error = device::judge::refused(function, &context.root, refused);
        let finding = broken(LINK, error);
        // The sentence is the launcher's own. Only check can name the user that it concerns.
        let found = match &subject.become_by {
            Some(_) => format!("as the user {}: {}", subject.name, finding.found),
            None => finding.found.clone(),
        };
        let wrapped = context.unit.as_ref().filter(|_| finding.cause == Some(cause::DEVICE_PERMISSION));
        let fix = wrapped.and_then(service_fix).or(finding.fix.clone());
        let rights = paths.iter().filter(|path| path.exists());
        return Finding { found, fix, ..finding }
            .detail(format!("user {} (uid {})", subject.name, subject.uid))
            .details(rights.map(|path| format!("{} {}", path.display(), mode(path))));
    }
    let who = match &subject.given_to {
        Some(user) => format!("vgpu-run, as root, gives the device to {user}"),
        None => format!("{} may open the device", subject.name),
    };
    match &context.unit_error {
        Some(error) => Finding::notice(LINK, format!("{who}; but {error}")).fix(fix::UNKNOWN_SERVICE),
        None => Finding::pass(LINK, who),
    }
}

/// Returns a finding for a sandbox of the unit that blocks access to the device.
fn sandbox(unit: &Unit, functions: &[PciFunction]) -> Option<Finding> {
    let within = |key: &str| {
        functions.iter().any(|function| {
            let dir = std::fs::canonicalize(&function.dir).unwrap_or_else(|_| function.dir.clone());
            unit.covers(key, &function.dir) || unit.covers(key, &dir)
        })
    };
    let (found, what) = if unit.on("ProtectKernelTunables") {
        ("ProtectKernelTunables=yes makes sysfs read-only".to_owned(), "ProtectKernelTunables=no")
    } else if within("ReadOnlyPaths") {
        (format!("ReadOnlyPaths={} covers the device", unit.get("ReadOnlyPaths")), "ReadOnlyPaths=")
    } else if within("InaccessiblePaths") {
        (
            format!("InaccessiblePaths={} hides the device", unit.get("InaccessiblePaths")),
            "InaccessiblePaths=",
        )
    } else {
        return None;
    };
    let finding = Finding::fail(cause::SYSFS_READ_ONLY, format!("in {} {found}", unit.name))
        .fix(fix::SANDBOX)
        .with("setting", what)
        .with("command", drop_in(unit, "vgpu-run-sandbox", what));
    Some(finding.detail(format!("unit file {}", unit.get("FragmentPath"))))
}

/// Returns the command that adds lines to a unit in a drop-in of its own, so that other files stay unchanged.
fn drop_in(unit: &Unit, file: &str, lines: &str) -> String {
    let folder = format!("/etc/systemd/system/{}.d", unit.name);
    format!(
        "mkdir -p {folder} && printf '[Service]\\n{lines}\\n' > {folder}/{file}.conf && systemctl daemon-reload && \
         systemctl restart {}",
        unit.name
    )
}

/// Returns the remedy that gives the device to the user of a service, or `None` if the unit does not start
/// Ollama.
fn service_fix(unit: &Unit) -> Option<Fix> {
    let command = unit.command();
    let (remedy, command) = if unit.get("DropInPaths").contains(service::DROP_IN) {
        (fix::CHANGED_SERVICE, service::status_command(&unit.name))
    } else if let Some(launcher) = command.first().filter(|word| word.ends_with("vgpu-run")) {
        // Somebody set it up by hand.
        let program = command.iter().position(|word| word.ends_with("ollama"))?;
        let (name, rest) = (unit.get("User"), command[program..].join(" "));
        let lines = format!("User=root\\nExecStart=\\nExecStart={launcher} --user {name} {rest}");
        (fix::OWN_SERVICE, drop_in(unit, "vgpu-run", &lines))
    } else {
        (fix::PLAIN_SERVICE, service::install_command(&unit.name))
    };
    Some(Fix::from(remedy).with("command", command))
}

/// Formats the mode and owner of a file, or the error of reading them.
fn mode(path: &Path) -> String {
    std::fs::metadata(path).map_or_else(
        |error| error.to_string(),
        |metadata| {
            format!("mode {:04o}, owner {}:{}", metadata.mode() & 0o7777, metadata.uid(), metadata.gid())
        },
    )
}

/// Returns whether the user may open all files of the functions. Only root can find out.
pub async fn may_open(context: &CheckContext, user: &Become) -> bool {
    let files = context
        .functions
        .iter()
        .flat_map(|function| device::files::FILES.map(|name| function.dir.join(name)));
    let files: Vec<PathBuf> = files.filter(|path| path.exists()).collect();
    let answers = tried(context, Some(user), &files).await;
    answers.is_ok_and(|answers| answers.iter().all(Option::is_none))
}

/// Opens each file in a worker. Returns the error number for each file that cannot be opened.
async fn tried(
    context: &CheckContext,
    user: Option<&Become>,
    files: &[PathBuf],
) -> io::Result<Vec<Option<i32>>> {
    let mut command = child::ourselves(user);
    command.arg("access").args(files);
    let outcome = child::run_limited(command, &context.environment, context.time(LIMIT)).await?;
    let steps = Steps::read(&outcome.stdout);
    if let Some(report) = steps.report_of::<messages::Become>().filter(|report| !report.ok) {
        return Err(io::Error::other(report.said::<messages::StepFailure>().unwrap_or_default().error));
    }
    let answers: Vec<messages::Access> = steps.done.iter().filter_map(StepReport::said).collect();
    let errno = |path: &PathBuf| {
        let name = path.display().to_string();
        answers.iter().find(|answer| answer.path == name)?.errno
    };
    Ok(files.iter().map(errno).collect())
}

/// Computes from the mode of each file whether the user may open it. Returns an error number for each file
/// that the user may not open.
fn computed(subject: &Subject, files: &[PathBuf]) -> Vec<Option<i32>> {
    let may = |path: &Path, metadata: &std::fs::Metadata| {
        let may = if device::files::is_only_read(path) { Subject::may_read } else { Subject::may };
        may(subject, metadata.mode(), metadata.uid(), metadata.gid())
    };
    let answer = |path: &PathBuf| match std::fs::metadata(path) {
        Ok(metadata) if may(path, &metadata) => None,
        Ok(_) => Some(nix::libc::EACCES),
        Err(error) => error.raw_os_error(),
    };
    files.iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_that_makes_sysfs_read_only() {
        let finding = sandbox(&Unit::with(&[("ProtectKernelTunables", "yes")]), &[]).unwrap();
        assert_eq!(finding.issue().unwrap(), "permission/sysfs-read-only");
        let command = finding.fix.unwrap().command.unwrap();
        assert!(
            command.contains("ollama.service.d/vgpu-run-sandbox.conf")
                && command.contains("ProtectKernelTunables=no")
        );
        assert_eq!(sandbox(&Unit::with(&[("ProtectKernelTunables", "no")]), &[]), None);
    }

    #[test]
    fn the_fix_of_a_service_is_a_command_of_ours() {
        let stock = ("ExecStart", "{ path=/o ; argv[]=/usr/local/bin/ollama serve ; x }");
        let command = |properties: &[_]| service_fix(&Unit::with(properties)).unwrap().command.unwrap();
        assert_eq!(command(&[stock]), "vgpu-run service install");
        let paths = ("DropInPaths", "/etc/systemd/system/ollama.service.d/zz-vgpu-run.conf");
        assert_eq!(command(&[stock, paths]), "vgpu-run service status");
    }

    #[test]
    fn the_fix_of_a_service_keeps_its_command() {
        let unit = Unit::with(&[
            ("User", "ollama"),
            ("ExecStart", "{ path=/o ; argv[]=/opt/vgpu-run /usr/local/bin/ollama serve ; x }"),
        ]);
        let command = service_fix(&unit).unwrap().command.unwrap();
        assert!(command.contains(" --user ollama /usr/local/bin/ollama serve"), "{command}");
    }
}
