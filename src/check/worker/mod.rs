//! Tasks that `check` runs in child processes: `vgpu-run __worker TASK`, as another user with `--user`. Each
//! task reports steps ([`super::messages`]), which the links read.

mod device;
pub mod family;
mod follow;
mod hold;
mod say;
mod serve;
mod sessions;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ExitCode};

use nix::libc;
use vgpu_findings::style::Style;

use super::messages::{Access, Become};
use super::{filter, rights, walker};
use crate::cli::{Cli, Command, Options, WorkerTask};
use crate::env::Environment;
use crate::exit::Exit;
use crate::launch::user;

/// Executes a task, after becoming the user that the options name.
pub fn work(options: &Options, groups: &[u32], task: &WorkerTask) -> ExitCode {
    // A server is given the user's HOME.
    let mut environment = Environment::inherited();
    if let Some(name) = &options.user {
        let become_user = user::find(name)
            .map_err(crate::error::Failure::from)
            .and_then(|user| Ok(user::become_user(&user.with_groups(groups), &mut environment)?));
        if let Err(failure) = become_user {
            say::failed::<Become>(&failure.sentence().into());
            return ExitCode::FAILURE;
        }
    }
    match task {
        WorkerTask::Access { files } => files.iter().for_each(|path| access(path)),
        WorkerTask::Rights { files } => files.iter().for_each(|path| say::done(&rights::own_rights(path))),
        WorkerTask::Calls { from } => filter::make_calls(*from),
        WorkerTask::Device { address } => device::examine(address),
        WorkerTask::Sessions { address } => sessions::list_sessions(address),
        WorkerTask::Hold { fixed, objects } => hold::hold(options, *fixed, objects),
        WorkerTask::Run { words } => return become_program(words),
        WorkerTask::Serve { words } => serve::serve(words, &environment),
        WorkerTask::Follow { words } => follow::follow(options, words),
        WorkerTask::Handover { words } => follow::hand_over(options, words),
        WorkerTask::Walk { unicode, colour, width, words } => {
            let style = Style { unicode: *unicode, colour: *colour, width: *width };
            return walk(words, style);
        }
    }
    ExitCode::SUCCESS
}

/// Walks the chain for a `check` with these arguments.
fn walk(words: &[OsString], style: Style) -> ExitCode {
    let line: Vec<OsString> = std::iter::once("vgpu-run".into()).chain(words.iter().cloned()).collect();
    match crate::cli::parse(&line) {
        Ok(Cli { options, command: Some(Command::Check(check)), .. }) => {
            walker::apart(&options, &check, style)
        }
        _ => ExitCode::FAILURE,
    }
}

/// Replaces this process by the program.
fn become_program(words: &[OsString]) -> ExitCode {
    let Some((program, arguments)) = words.split_first() else { return ExitCode::FAILURE };
    let error = process::Command::new(program).args(arguments).exec();
    // Standard error is the one that the program would have used.
    let _ = writeln!(std::io::stderr(), "vgpu-run: failed to start {}: {error}", program.display());
    Exit::NotExecutable.into()
}

/// Opens a file as the shims do and reports the step.
fn access(path: &Path) {
    let opened = match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => writable(path),
        Ok(_) => std::fs::OpenOptions::new()
            .read(true)
            .write(!crate::device::files::is_only_read(path))
            // Where VGPU_SYSFS names the folder a FIFO may stand there.
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)
            .map(drop),
        Err(error) => Err(error),
    };
    let errno = opened.as_ref().err().and_then(std::io::Error::raw_os_error);
    say::outcome(opened.is_ok(), &Access { path: path.display().to_string(), errno });
}

/// Checks whether this user may connect to a socket. Connecting with the wrong socket type fails with
/// EPROTOTYPE exactly if the connection is permitted, and the listener does not notice.
fn writable(path: &Path) -> std::io::Result<()> {
    match UnixDatagram::unbound()?.connect(path) {
        Err(error) if error.raw_os_error() == Some(libc::EPROTOTYPE) => Ok(()),
        other => other,
    }
}
