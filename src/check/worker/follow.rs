//! Implements `__worker follow`: starts a program as vgpu-run does and examines each program that its
//! processes execute, at the moment of its start: whether LD_PRELOAD is still set, and whether the files in
//! it can be opened. A script in between may remove the variable or close the descriptors.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Event, Options as Trace};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::say;
use crate::check::limits::ProcessLimits;
use crate::check::messages::{Exec, Follow};
use crate::cli::Options;
use crate::env::{Environment, LD_PRELOAD};
use crate::inject::owner::Owner;
use crate::inject::{DeliveryPlan, Injection};

/// Delivers the libraries and executes the program. Returns only on failure; the tracer sees the process end.
pub fn hand_over(options: &Options, words: &[OsString]) {
    let plan = DeliveryPlan::new(options.via, false, &std::collections::BTreeSet::new());
    let mut environment = Environment::inherited();
    let Ok(owner) = Owner::this() else { return };
    let Ok(injection) = Injection::carry_out(&plan, &environment, owner) else { return };
    injection.apply(&mut environment);
    if let Some((program, arguments)) = words.split_first() {
        let _ = Command::new(program).args(arguments).env_clear().envs(environment.iter()).exec();
    }
}

/// Reports the libraries that each program received in a step [`Exec`], and in a step [`Follow`] whether all
/// programs were followed.
pub fn follow(options: &Options, words: &[OsString]) {
    if let Err(error) = trace(options, words) {
        say::failed::<Follow>(&error.into());
    }
}

fn trace(options: &Options, words: &[OsString]) -> Result<(), String> {
    let mut command = Command::new("/proc/self/exe");
    if let Some(via) = options.via {
        let name = clap::ValueEnum::to_possible_value(&via).map(|value| value.get_name().to_owned());
        command.arg("--via").args(name);
    }
    command.args(["__worker", "handover", "--"]).args(words).stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: between fork and exec only this one system call is made.
    unsafe {
        command.pre_exec(|| ptrace::traceme().map_err(Into::into));
    }
    let mut child = command.spawn().map_err(|error| format!("it cannot be traced: {error}"))?;
    let main = Pid::from_raw(child.id() as i32);
    // It stops when it has been started.
    waitpid(main, None).map_err(failed)?;
    let wanted = Trace::PTRACE_O_TRACEEXEC
        | Trace::PTRACE_O_TRACEFORK
        | Trace::PTRACE_O_TRACEVFORK
        | Trace::PTRACE_O_TRACECLONE
        | Trace::PTRACE_O_EXITKILL;
    ptrace::setoptions(main, wanted).map_err(failed)?;
    resume(main, None)?;
    let mut followed = Follow::default();
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::PtraceEvent(pid, _, event)) => {
                if event == Event::PTRACE_EVENT_EXEC as i32 {
                    report(pid);
                }
                resume(pid, None)?;
            }
            // How a new process or thread begins, and how a group stop looks: neither is for the program.
            Ok(WaitStatus::Stopped(pid, Signal::SIGSTOP | Signal::SIGTRAP)) => resume(pid, None)?,
            Ok(WaitStatus::Stopped(pid, signal)) => resume(pid, signal.into())?,
            Ok(WaitStatus::Exited(pid, code)) if pid == main => {
                followed.code = Some(code);
                break;
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == main => {
                followed.signal = Some(signal as i32);
                break;
            }
            Err(Errno::ECHILD) => break,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    // Reaped already.
    let _ = child.try_wait();
    say::done(&followed);
    Ok(())
}

fn failed(error: Errno) -> String {
    format!("it cannot be followed: {error}")
}

/// Resumes a traced process. A process that was killed in the meantime is not an error.
fn resume(pid: Pid, signal: Option<Signal>) -> Result<(), String> {
    match ptrace::cont(pid, signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Reports the environment of a process at the start of its program.
fn report(pid: Pid) {
    let folder = format!("/proc/{pid}");
    let program = std::fs::read_link(format!("{folder}/exe")).unwrap_or_default();
    // Of a program whose environment may not be read nothing is known.
    let Ok(environment) = std::fs::read(format!("{folder}/environ")) else { return };
    let preload = preload(&environment);
    let named: Vec<&OsStr> = preload.split(|byte| b": ".contains(byte)).map(OsStr::from_bytes).collect();
    let ours: Vec<&&OsStr> = named.iter().filter(|entry| ours(Path::new(entry))).collect();
    let reached = ours.iter().filter(|entry| std::fs::metadata(entry).is_ok()).count();
    say::done(&Exec {
        pid: pid.as_raw(),
        program: program.display().to_string(),
        preload: String::from_utf8_lossy(&preload).into_owned(),
        before: before(&named).map(|entry| entry.to_string_lossy().into_owned()).collect(),
        named: ours.len() as u64,
        reached: reached as u64,
        address_space: ProcessLimits::of_process(pid.as_raw().cast_unsigned())
            .map(|limits| limits.address_space)
            .filter(|space| *space != u64::MAX),
    });
}

/// Returns the entries of LD_PRELOAD before the first library of a launcher, if there is one.
fn before<'a>(named: &'a [&OsStr]) -> impl Iterator<Item = &'a OsStr> {
    let first = named.iter().position(|entry| ours(Path::new(entry))).unwrap_or(0);
    named[..first].iter().copied().filter(|entry| !entry.is_empty())
}

/// Returns the value of LD_PRELOAD in the content of an `environ` file.
fn preload(environment: &[u8]) -> Vec<u8> {
    let wanted = [LD_PRELOAD.as_bytes(), b"="].concat();
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|entry| entry.strip_prefix(wanted.as_slice())).unwrap_or_default().to_vec()
}

/// Returns whether a path has the form of a launcher's library path. The file need not exist.
fn ours(entry: &Path) -> bool {
    let text = entry.to_string_lossy();
    let memory = text.starts_with("/proc/") && text.contains("/fd/");
    let folder = entry.parent().and_then(Path::file_name);
    memory || folder.is_some_and(|name| name.to_string_lossy().starts_with("vgpu-run."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_before_ours() {
        let list = |text: &'static str| text.split(':').map(OsStr::new).collect::<Vec<_>>();
        let found =
            |text| before(&list(text)).map(|entry| entry.to_string_lossy().into_owned()).collect::<Vec<_>>();
        assert_eq!(found("/a/libcuda.so.1::/proc/7/fd/900:/b.so"), ["/a/libcuda.so.1"]);
        assert!(found("/proc/7/fd/900:/b.so").is_empty());
        assert!(found("/b.so").is_empty(), "none of ours is there at all");
    }

    #[test]
    fn names_of_launchers() {
        for (name, expected) in [
            ("/proc/12/fd/900", true),
            ("/run/user/0/vgpu-run.1.2.3.x/libcuda.so.1", true),
            ("/usr/lib/libcuda.so.1", false),
            ("", false),
        ] {
            assert_eq!(ours(Path::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn the_variable_in_an_environment() {
        assert_eq!(preload(b"A=b\0LD_PRELOAD=/x:/y\0C=d\0"), b"/x:/y");
        assert!(preload(b"MY_LD_PRELOAD=/x\0").is_empty());
    }
}
