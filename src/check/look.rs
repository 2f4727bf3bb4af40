//! What runs in check's own children: `vgpu-run __look TASK`. As another user where `--user` says so. Each prints the steps that
//! [`super::child`] reads. A step that takes too long ends the process, and so stays the open one.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::Duration;

use nix::libc;
use serde_json::{Value, json};
use vgpu_transport::Progress;

use crate::cli::{Options, Task};
use crate::device::alive::{Patience, TICK};
use crate::env::Environment;
use crate::exit::Exit;
use crate::launch::user;

mod device;
mod follow;
mod hold;

/// How a child ends that waited too long.
const TOO_LONG: i32 = 124;

/// Does what a child is for.
pub fn look(options: &Options, groups: &[u32], task: &Task) -> ExitCode {
    if let Some(name) = &options.user {
        let mut environment = Environment::default();
        let become_user = user::find(name)
            .map_err(crate::error::Failure::from)
            .and_then(|user| Ok(user::become_user(&user.with_groups(groups), &mut environment)?));
        if let Err(failure) = become_user {
            end("become", false, json!({"error": failure.sentence()}));
            return ExitCode::FAILURE;
        }
    }
    match task {
        Task::Access { files } => files.iter().for_each(|path| access(path)),
        Task::Device { address } => device::look(address),
        Task::Hold { fixed, objects } => hold::hold(options, *fixed, objects),
        Task::Run { words } => return run(words),
        Task::Follow { words } => follow::follow(options, words),
        Task::Handover { words } => follow::hand_over(options, words),
    }
    ExitCode::SUCCESS
}

/// Becomes the program.
fn run(words: &[OsString]) -> ExitCode {
    let Some((program, arguments)) = words.split_first() else { return ExitCode::FAILURE };
    let error = Command::new(program).args(arguments).exec();
    // Its stderr is what the program's would have been.
    let _ = writeln!(std::io::stderr(), "vgpu-run: failed to start {}: {error}", program.display());
    Exit::NotExecutable.into()
}

/// Opens a file as the shims do.
fn access(path: &Path) {
    let opened = match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => writable(path),
        Ok(_) => std::fs::OpenOptions::new()
            .read(true)
            .write(!crate::device::is_only_read(path))
            .open(path)
            .map(drop),
        Err(error) => Err(error),
    };
    let errno = opened.as_ref().err().and_then(std::io::Error::raw_os_error);
    end("access", opened.is_ok(), json!({"path": path.display().to_string(), "errno": errno}));
}

/// A socket of another kind than is asked for answers EPROTOTYPE where it may be connected to, and is told nothing.
fn writable(path: &Path) -> std::io::Result<()> {
    match UnixDatagram::unbound()?.connect(path) {
        Err(error) if error.raw_os_error() == Some(libc::EPROTOTYPE) => Ok(()),
        other => other,
    }
}

/// How much longer the step may take that is being done.
static STEP: Mutex<Option<Patience>> = Mutex::new(None);
/// How the device gets on, once that is known.
static PROGRESS: Mutex<Option<Progress>> = Mutex::new(None);

/// Says that a step begins, which may take no longer than `limit` unless the device gets on with other work.
fn begin(step: &str, limit: Duration) {
    say(&json!({"step": step, "begin": true}));
    *lock(&STEP) = Some(Patience::new(limit));
}

/// Has steps wait longer while this device gets on.
fn follow_progress(progress: Option<Progress>) {
    *lock(&PROGRESS) = progress;
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Says how a step ended.
fn end(step: &str, ok: bool, mut fields: Value) {
    *lock(&STEP) = None;
    fields["step"] = step.into();
    fields["ok"] = ok.into();
    say(&fields);
}

/// Ends the process when a step takes longer than it may.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(TICK);
            let progress = lock(&PROGRESS).as_ref().map_or(0, Progress::count);
            if lock(&STEP).as_mut().is_some_and(|patience| !patience.tick(progress)) {
                std::process::exit(TOO_LONG);
            }
        }
    });
}

fn say(line: &Value) {
    let mut out = std::io::stdout().lock();
    // Who reads it may be gone, and then nobody wants to know.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
