//! Examines a script that starts Ollama: whether the libraries reach the program that the script starts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use vgpu_probe_steps::Message;

use crate::check::child::{self, ChildEnd, ChildOutcome};
use crate::check::context::CheckContext;
use crate::check::facts::TargetProgram;
use crate::check::limits::{self, Limit};
use crate::check::links::{ollama, unable};
use crate::check::locks;
use crate::check::messages::{Exec, Follow, StepFailure};
use crate::check::steps::{StepReport, Steps};
use crate::device::survey::size;
use crate::diagnosis::cause::loader as cause;
use crate::diagnosis::fix::loader as fix;
use crate::diagnosis::{Finding, LinkId};
use crate::embedded::OBJECTS;
use crate::env::OLLAMA_HOST;
use crate::ollama::address;
use crate::ollama::processes::{OllamaServer, Running};
use crate::ollama::sockets;
use crate::program::Program;
use crate::program::elf::Elf;

const LINK: LinkId = LinkId::Loader;
/// Time limit for the program that a script starts to print its version.
const LIMIT: Duration = Duration::from_secs(5);
/// Time that this usually takes. A script that takes longer may wait for a lock.
const USUAL: Duration = Duration::from_millis(400);
/// Maximum number of characters of a script's last line that are shown.
const LINE: usize = 200;
/// Directory in which the kernel shows processes and sockets.
const PROC: &str = "/proc";

/// Follows a script that starts Ollama to the program that it becomes. The script may remove LD_PRELOAD or
/// close the descriptors that it names.
pub async fn follow(context: &mut CheckContext) -> Option<Finding> {
    let script = context.target().program.as_ref().ok().filter(|program| !program.is_binary())?;
    if ollama::confined(script).is_some() {
        return None;
    }
    let script = script.path.clone();
    let mut command = child::ourselves(context.runs_as.as_ref());
    command.arg("follow");
    if let Some(way) = context.launch.via.and_then(|way| way.to_possible_value()) {
        command.args(["--via", way.get_name()]);
    }
    command.arg("--").arg(&script).arg("-v");
    let environment = ollama::alone(&context.environment);
    // A script that lets one server run at a time waits for the running one.
    let (begin, mut holder) = (Instant::now(), None);
    let waits = &mut |_: &str, pid: Option<u32>| {
        if begin.elapsed() > USUAL {
            let family = pid.map(|pid| Running::scan(Path::new(PROC)).tree(pid)).unwrap_or_default();
            holder = locks::holder(&family.iter().map(|process| process.pid).collect::<Vec<_>>());
        }
        holder.is_some()
    };
    let run = child::run_until(command, &environment, context.time(LIMIT), waits);
    let outcome = match run.await {
        Ok(outcome) => outcome,
        Err(error) => return Some(unable(context, LINK, "follow the program", &error)),
    };
    let own = limits::address_space().unwrap_or(u64::MAX);
    let (finding, program) = judge_script(&script, &outcome, limits::needed(&context.opened), own);
    let started = program.and_then(|program| recognised(&program));
    let running = || running_program(context, holder).and_then(|program| recognised(&program));
    if let Some(target) = started.or_else(running) {
        // From here on it is the program itself that is looked at.
        context.script = Some(script);
        context.target = Some(target);
    } else {
        context.followed = ended(&outcome);
    }
    Some(finding)
}

/// Describes a script that was followed and started no Ollama meanwhile: how it ended, with its last line, or
/// that it did not end.
fn ended(outcome: &ChildOutcome) -> Option<String> {
    if matches!(outcome.end, ChildEnd::TimedOut(_)) {
        return outcome.trouble().map(|how| format!("that had started no Ollama when it {how}"));
    }
    let Follow { code, signal } = Steps::read(&outcome.stdout).said()?;
    let how = match (code, signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("was killed by signal {}", signal?),
    };
    let last = outcome.stderr.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let last: Option<String> = last.map(|line| line.chars().take(LINE).collect());
    Some(match last {
        Some(line) => format!("that starts no Ollama: it {how}: {line}"),
        None => format!("that starts no Ollama: it {how}"),
    })
}

fn recognised(path: &Path) -> Option<TargetProgram> {
    let program = Program::find(path.as_os_str(), None).ok()?;
    let ollama = crate::ollama::recognise(&program)?;
    Some(TargetProgram { program: Ok(program), ollama: Some(ollama) })
}

/// Returns the program of the server that holds the lock of a script's start, or else of the one that
/// vgpu-run started at the address in OLLAMA_HOST. A script that refuses to start a second server cannot be
/// followed.
fn running_program(context: &CheckContext, holder: Option<u32>) -> Option<PathBuf> {
    let running = Running::scan(Path::new(PROC));
    let host = context.environment.get(OLLAMA_HOST).map(|host| host.to_string_lossy().into_owned());
    let addresses = address::addresses(host.as_deref());
    let listens = |server: &&OllamaServer| {
        let sockets = server.listens.as_deref().unwrap_or_default();
        let answers = addresses.iter().any(|address| sockets::answering(sockets, *address).is_some());
        answers && server.process.wrapped() == Some(true)
    };
    let held = holder.and_then(|holder| running.server_of(holder));
    let server = held.or_else(|| running.servers.iter().find(listens))?;
    std::fs::read_link(format!("{PROC}/{}/exe", server.process.pid)).ok()
}

/// Judges whether the programs that a script started received the libraries. Also returns the last program.
/// `needed` is the address space in bytes that the devices take, and `own` that which a process may have
/// that starts the script.
fn judge_script(script: &Path, outcome: &ChildOutcome, needed: u64, own: u64) -> (Finding, Option<PathBuf>) {
    let steps = Steps::read(&outcome.stdout);
    let started = steps.done.iter().filter(|report| report.step == Exec::STEP && report.ok);
    let programs: Vec<Exec> = started.filter_map(StepReport::said).collect();
    let is_ollama = |name: &str| {
        Path::new(name).file_name().is_some_and(|name| name.to_string_lossy().starts_with("ollama"))
    };
    let last = programs.iter().rev().find(|exec| is_ollama(&exec.program)).or(programs.last());
    let script = script.display();
    let (Some(first), Some(last)) = (programs.first(), last) else {
        let why = steps
            .failed()
            .map(|report| report.said::<StepFailure>().unwrap_or_default().error)
            .or_else(|| outcome.trouble());
        let why = why.unwrap_or_else(|| "it starts nothing".into());
        return (
            Finding::pass(LINK, "").detail(format!("{script} is a script, and could not be followed: {why}")),
            None,
        );
    };
    let program = &last.program;
    let details: Vec<String> = programs
        .iter()
        .map(|Exec { program, named, reached, .. }| {
            format!(
                "{script} starts {program}: LD_PRELOAD names {named} of vgpu-run's libraries, {reached} can be reached"
            )
        })
        .collect();
    let expected = format!("{} libraries", first.named);
    let finding = if last.named < first.named {
        Finding::fail(
            cause::PRELOAD_STRIPPED,
            format!("{script} starts {program} without the libraries that LD_PRELOAD named"),
        )
        .expected(expected)
        .with("program", program)
    } else if last.reached < last.named {
        Finding::fail(
            cause::DESCRIPTORS_CLOSED,
            format!("{script} closes the descriptors of the libraries before it starts {program}"),
        )
        .expected(expected)
        .fix(fix::SCRIPT_CLOSES)
        .with("script", script)
    } else if let Some((file, soname)) = ahead(last) {
        let found = format!("{script} starts {program} with {file} before vgpu-run's {soname}");
        Finding::fail(cause::OTHER_LIBRARY_WINS, found)
            .expected("vgpu-run's libraries first")
            .fix(fix::SCRIPT_CHANGES)
            .with("program", program)
    } else if let Some((limit, line)) = limits::said(&outcome.stderr) {
        limit.finding(cause::RESOURCE_LIMIT, format!("{script} starts {program}, which ends: {line}"))
    } else if let Some(bytes) = last.address_space.filter(|bytes| *bytes < needed) {
        // The limit may be that of whatever starts the script.
        let who =
            if bytes < own { format!("{script} limits {program}") } else { format!("{program} is limited") };
        let (bytes, needed) = (size(bytes), size(needed));
        let found =
            format!("{who} to {bytes} of address space, and a process reserves {needed} for the device");
        Limit::AddressSpace.finding(cause::RESOURCE_LIMIT, found)
    } else {
        Finding::pass(LINK, "")
    };
    (finding.details(details), Some(program.into()))
}

/// Returns a library that has one of our SONAMEs and that the loader loads before ours.
fn ahead(exec: &Exec) -> Option<(String, &'static str)> {
    exec.before.iter().find_map(|entry| {
        let soname = Elf::read(&vgpu_paths::open_regular(Path::new(entry)).ok()?).ok()?.soname?;
        let object = OBJECTS.iter().find(|object| object.soname == soname)?;
        Some((entry.to_owned(), object.soname))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::child::ended as child_ended;
    use crate::diagnosis::Status;

    #[test]
    fn scripts_are_judged_by_what_their_program_gets() {
        let limited_by = |last: &str, own: u64| {
            let first = r#"{"step":"exec","ok":true,"program":"/bin/sh","named":8,"reached":8}"#;
            let stdout = format!("{first}\n{last}\n");
            let outcome = child_ended(ChildEnd::Exit(0), &stdout, "");
            judge_script(Path::new("/x/ollama"), &outcome, 1 << 40, own)
        };
        let of = |last: &str| limited_by(last, u64::MAX);
        let program = |named: u32, reached: u32| {
            format!(
                r#"{{"step":"exec","ok":true,"program":"/o/ollama","named":{named},"reached":{reached}}}"#
            )
        };
        let (finding, found) = of(&program(8, 8));
        assert_eq!((finding.status, found), (Status::Pass, Some("/o/ollama".into())));
        assert_eq!(of(&program(0, 0)).0.cause, Some(cause::PRELOAD_STRIPPED));
        assert_eq!(of(&program(8, 0)).0.cause, Some(cause::DESCRIPTORS_CLOSED));
        let limited = program(8, 8).replace("\"named\"", "\"address_space\":1000000,\"named\"");
        let finding = of(&limited).0;
        assert_eq!(finding.cause, Some(cause::RESOURCE_LIMIT));
        assert!(finding.found.starts_with("/x/ollama limits /o/ollama to"), "{}", finding.found);
        let inherited = limited_by(&limited, 1_000_000).0;
        assert!(inherited.found.starts_with("/o/ollama is limited to"), "{}", inherited.found);
        let end = ended(&child_ended(
            ChildEnd::Exit(0),
            r#"{"step":"follow","ok":true,"code":1}"#,
            "no licence\n\n",
        ));
        assert_eq!(end.as_deref(), Some("that starts no Ollama: it ended with exit code 1: no licence"));
        let slow = child_ended(ChildEnd::TimedOut(LIMIT), "", "");
        assert!(
            ended(&slow).unwrap().starts_with("that had started no Ollama when it "),
            "what it does then"
        );
        let (nothing, found) = judge_script(Path::new("/x"), &child_ended(ChildEnd::Exit(1), "", ""), 0, 0);
        assert!(nothing.holds() && found.is_none() && nothing.details[0].contains("could not be followed"));
    }
}
