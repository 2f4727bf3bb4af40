//! Finds the system calls that a seccomp filter refuses to this process and to whatever it starts, for
//! whichever link fails because of them.

mod calls;

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vgpu_findings::busy;

use super::child;
use super::messages::{CallAnswer, RefusedCall, RefusedCalls};
use super::obstacles;
use crate::device::alive::{Patience, TICK};
use crate::diagnosis::cause::{self as catalogue, kernel as cause};
use crate::diagnosis::fix::kernel as fix;
use crate::diagnosis::{Cause, Finding, LinkId, Status};
pub use calls::make_calls;
use calls::{CALLS, Call, END, RANDOM};

/// File with the mode of a process's filter.
const STATUS: &str = "/proc/self/status";
/// Maximum size of that file in bytes.
const STATUS_MOST: u64 = 64 << 10;
/// Line of that file which says that there is a filter (`SECCOMP_MODE_FILTER`).
const IN_FORCE: &str = "Seccomp:\t2";
/// Time without an answer after which a call counts as one that does not return. A call takes microseconds.
const SILENCE: Duration = Duration::from_secs(2);
/// Number of calls that do not return for which is waited. The program that a filter asks then answers none.
const HANGS: usize = 2;

/// Returns whether a filter is in force for this process.
fn is_in_force() -> bool {
    let status = vgpu_paths::read_to_string(STATUS.as_ref(), STATUS_MOST).unwrap_or_default();
    status.lines().any(|line| line == IN_FORCE)
}

/// Returns the calls that a filter refuses to this process. A worker makes them, because a filter may end who
/// makes one. If no worker can be started, that has a name of its own.
pub fn refused() -> RefusedCalls {
    if !is_in_force() {
        return RefusedCalls { calls: Vec::new(), complete: true };
    }
    collect(ask)
}

/// Collects what workers that make the calls from an index on report, each until it ends.
fn collect(mut ask: impl FnMut(usize) -> io::Result<(String, TrialEnd)>) -> RefusedCalls {
    let (mut found, mut from, mut hangs) = (RefusedCalls::default(), 0, 0);
    while let Ok((text, end)) = ask(from) {
        let trial = Trial::parse(&text);
        found.calls.extend(trial.refused);
        found.complete = trial.complete;
        let answer = match end {
            TrialEnd::Killed => CallAnswer::Kills,
            TrialEnd::Silent if hangs < HANGS => CallAnswer::Hangs,
            TrialEnd::Silent | TrialEnd::Other => break,
        };
        hangs += usize::from(answer == CallAnswer::Hangs);
        // One that ended between two calls would end there again.
        let Some(open) = trial.open else { break };
        found.calls.extend(CALLS.get(open).map(|call| of_call(call, answer)));
        from = open + 1;
    }
    found
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialEnd {
    /// A filter killed it.
    Killed,
    /// It said nothing more, and was ended.
    Silent,
    Other,
}

/// Has a worker make the calls from `from` on. Returns what it wrote, and how it ended.
fn ask(from: usize) -> io::Result<(String, TrialEnd)> {
    let mut command = Command::new(child::OURSELVES);
    command.arg0("vgpu-run").args(["__worker", "calls"]).arg(from.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut text = Vec::new();
    let read = child.stdout.take().map_or(Ok(true), |output| read(output, &mut text));
    if !matches!(read, Ok(true)) {
        // It may have ended.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let end = match read? {
        false => TrialEnd::Silent,
        true if status.signal() == Some(libc::SIGSYS) => TrialEnd::Killed,
        true => TrialEnd::Other,
    };
    Ok((String::from_utf8_lossy(&text).into_owned(), end))
}

/// Reads a worker's output, and returns whether to its end: not if nothing more came for too long.
fn read(mut output: ChildStdout, text: &mut Vec<u8>) -> io::Result<bool> {
    let mut patience = Patience::new(SILENCE);
    let pause = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    let mut buffer = [0; 4096];
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)], Some(&pause)) {
            Ok(0) if patience.tick(text.len() as u64, busy::share()) => continue,
            Ok(0) => return Ok(false),
            // The worker's end is a signal for this process.
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match output.read(&mut buffer)? {
            0 => return Ok(true),
            bytes => text.extend_from_slice(&buffer[..bytes]),
        }
    }
}

/// What a worker wrote.
#[derive(Debug, Default)]
struct Trial {
    refused: Vec<RefusedCall>,
    /// Index of the call that it had begun and not ended.
    open: Option<usize>,
    /// Whether it made all calls.
    complete: bool,
}

impl Trial {
    fn parse(text: &str) -> Self {
        let mut trial = Self { complete: text.lines().last() == Some(END), ..Self::default() };
        for line in text.lines() {
            let mut words = line.split(' ');
            let Some(index) = words.next().and_then(|word| word.parse::<usize>().ok()) else { continue };
            let Some(errno) = words.next().and_then(|word| word.parse().ok()) else {
                trial.open = Some(index);
                continue;
            };
            trial.open = None;
            let call = CALLS.get(index).filter(|call| call.is_refused(errno));
            trial.refused.extend(call.map(|call| of_call(call, CallAnswer::Error(errno))));
        }
        trial
    }
}

fn of_call(call: &Call, answer: CallAnswer) -> RefusedCall {
    RefusedCall { name: call.name.to_owned(), answer, load: call.load }
}

/// Returns the finding about a filter under which every process of a check ends without a word: Rust's
/// runtime needs random numbers, and gets along with EPERM and with a kernel that has none.
pub fn ending_checks() -> Option<Finding> {
    let refused = refused().calls;
    ends_checks(&refused).then(|| finding(&refused.iter().collect::<Vec<_>>(), None))
}

fn ends_checks(refused: &[RefusedCall]) -> bool {
    let survives = CallAnswer::Error(Errno::EPERM as i32);
    refused.iter().any(|call| call.name == RANDOM && call.answer != survives)
}

/// Makes the calls in `refused` the finding of the link `kernel`: of a process of `unit`, if there is one. A
/// server that has found its GPUs disproves those that its start needs, and not those of loads. Where another
/// link is broken for a reason of its own, they are a warning beside it.
pub fn tell(findings: &mut [Finding], refused: &[RefusedCall], unit: Option<&str>) {
    let starts = findings.iter().any(|finding| finding.link == LinkId::Truth && finding.holds());
    let decisive: Vec<&RefusedCall> = refused.iter().filter(|call| call.load || !starts).collect();
    if decisive.is_empty() {
        return;
    }
    let mut finding = finding(&decisive, unit);
    let others = findings.iter().filter(|other| other.link != LinkId::Kernel);
    if others.into_iter().any(|other| other.status == Status::Fail && !explains(&decisive, other)) {
        finding.status = Status::Warn;
    }
    // Without the link there is none to blame: only some links were asked for.
    let _ = obstacles::place(findings, finding);
}

/// Adds to the finding of the link `kernel` that the calls which a filter refuses are not known. Returns
/// whether there is such a link.
pub fn tell_unknown(findings: &mut [Finding]) -> bool {
    let kernel = findings.iter_mut().find(|finding| finding.link == LinkId::Kernel);
    let Some(kernel) = kernel else { return false };
    let unknown =
        "a filter of system calls (seccomp) is in force, and what it refuses could not be found out";
    kernel.details.push(unknown.to_owned());
    true
}

/// Causes of failures that name no reason, or that of a filter.
const EXPLAINED: [Cause; 8] = [
    catalogue::discovery::CRASHED,
    catalogue::discovery::KILLED_BY_FILTER,
    catalogue::discovery::NO_DEVICE,
    catalogue::discovery::TIMED_OUT,
    catalogue::truth::CONNECTIONS_REFUSED,
    catalogue::truth::FOUND_CPU,
    catalogue::truth::SERVER_DIED,
    catalogue::truth::SERVER_SILENT,
];

/// Returns whether a failure may come from these refusals: it names no reason, or their error. EACCES is also
/// the answer for a file's mode, which the failure then names.
fn explains(refused: &[&RefusedCall], failure: &Finding) -> bool {
    let says = |errno: i32| {
        let errno = Errno::from_raw(errno);
        errno != Errno::EACCES && failure.found.to_lowercase().contains(&errno.desc().to_lowercase())
    };
    failure.cause.is_none_or(|cause| EXPLAINED.contains(&cause))
        || refused.iter().any(|call| matches!(call.answer, CallAnswer::Error(errno) if says(errno)))
}

fn finding(refused: &[&RefusedCall], unit: Option<&str>) -> Finding {
    let mut answers: Vec<(CallAnswer, Vec<&str>)> = Vec::new();
    for call in refused {
        match answers.iter_mut().find(|(answer, _)| *answer == call.answer) {
            Some((_, names)) => names.push(&call.name),
            None => answers.push((call.answer, vec![&call.name])),
        }
    }
    let said: Vec<String> = answers
        .into_iter()
        .map(|(answer, names)| {
            let names = names.join(", ");
            match answer {
                CallAnswer::Error(errno) => {
                    let errno = Errno::from_raw(errno);
                    format!("answers {names} with {errno:?} ({})", errno.desc())
                }
                CallAnswer::Kills => format!("ends each process that calls {names}"),
                CallAnswer::Hangs => format!("never answers a process that calls {names}"),
            }
        })
        .collect();
    let names: Vec<&str> = refused.iter().map(|call| call.name.as_str()).collect();
    let found = format!("a filter of system calls (seccomp) {}", said.join(" and "));
    let finding = Finding::fail(cause::CALLS_REFUSED, found);
    match unit {
        Some(unit) => finding.fix(fix::CALLS_IN_UNIT).with("unit", unit).with("calls", names.join(" ")),
        None => finding.with("calls", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, answer: CallAnswer, load: bool) -> RefusedCall {
        RefusedCall { name: name.into(), answer, load }
    }

    fn answers(errno: Errno) -> CallAnswer {
        CallAnswer::Error(errno as i32)
    }

    fn index(name: &str) -> usize {
        CALLS.iter().position(|call| call.name == name).unwrap()
    }

    #[test]
    fn what_a_worker_wrote_names_the_calls() {
        let (listen, clone3) = (index("listen"), index("clone3"));
        let text = format!("0\n0 97\n{listen}\n{listen} 38\n{clone3}\n{clone3} 38\n7\n");
        let trial = Trial::parse(&text);
        let found = [refused("listen", answers(Errno::ENOSYS), false)];
        assert_eq!(trial.refused, found, "of clone3 that is an old kernel");
        assert_eq!(trial.open, Some(7), "it has not come back");
        assert!(!trial.complete && Trial::parse("0\n0 0\nend\n").complete);
        assert_eq!(Trial::parse(&format!("{clone3} 1\nx\n")).refused.len(), 1);
    }

    #[test]
    fn a_trial_goes_on_after_a_call_that_ends_it() {
        let (bind, listen) = (index("bind"), index("listen"));
        let mut asked = Vec::new();
        let found = collect(|from| {
            asked.push(from);
            Ok(match asked.len() {
                1 => (format!("0\n0 1\n{bind}\n"), TrialEnd::Silent),
                2 => (format!("{listen}\n"), TrialEnd::Killed),
                _ => ("9\n9 0\nend\n".into(), TrialEnd::Other),
            })
        });
        assert_eq!(asked, [0, bind + 1, listen + 1]);
        let kills = refused("listen", CallAnswer::Kills, false);
        let hangs = refused("bind", CallAnswer::Hangs, false);
        assert!(found.complete);
        assert_eq!(found.calls, [refused("socket", answers(Errno::EPERM), false), hangs, kills]);
    }

    #[test]
    fn a_trial_that_is_not_complete_is_not_one_without_refusals() {
        let of = |text: &str, end| collect(|_| Ok((text.to_owned(), end)));
        assert_eq!(of("0\n0 0\n", TrialEnd::Other), RefusedCalls::default());
        assert_eq!(of("", TrialEnd::Silent), RefusedCalls::default(), "nothing was begun");
        assert!(!collect(|_| Err(io::ErrorKind::Other.into())).complete);
        assert!(of("0\n0 0\nend\n", TrialEnd::Other).complete);
        let some = of("0\n0 1\n", TrialEnd::Other);
        assert!(some.calls.len() == 1 && !some.complete, "what was read holds");
        let mut asked = 0;
        let hang = collect(|from| {
            asked += 1;
            Ok((format!("{from}\n"), TrialEnd::Silent))
        });
        assert_eq!((asked, hang.calls.len(), hang.complete), (HANGS + 1, HANGS, false), "nobody answers");
        let mut findings = [fine()];
        assert!(tell_unknown(&mut findings) && !findings[0].details.is_empty());
    }

    fn told(mut findings: Vec<Finding>, calls: &[RefusedCall]) -> Vec<Finding> {
        tell(&mut findings, calls, None);
        findings
    }

    fn fine() -> Finding {
        Finding::pass(LinkId::Kernel, "fine")
    }

    #[test]
    fn the_call_is_told_and_a_server_that_starts_disproves_it() {
        let listen = || refused("listen", CallAnswer::Kills, false);
        let skip = Finding::skip(LinkId::Truth, "not known");
        let calls = [listen(), refused("bind", answers(Errno::EACCES), false)];
        let kernel = told(vec![fine(), skip], &calls).remove(0);
        assert_eq!(
            kernel.found,
            "a filter of system calls (seccomp) ends each process that calls listen and answers bind with EACCES \
             (Permission denied)"
        );
        let fix = kernel.fix.unwrap();
        assert!(fix.text.contains("listen, bind") && fix.command.is_none(), "{fix:?}");
        let works = || Finding::pass(LinkId::Truth, "CUDA");
        assert_eq!(told(vec![fine(), works()], &[listen()])[0].status, Status::Pass);
        for load in ["madvise", "connect", "execve", "wait4"] {
            let call = &CALLS[index(load)];
            let findings = told(vec![fine(), works()], &[of_call(call, answers(Errno::EPERM))]);
            assert_eq!(findings[0].status, Status::Fail, "{load} is first made at a load in some era");
        }
    }

    #[test]
    fn a_unit_gets_the_line_that_allows_the_calls() {
        let mut findings = [fine()];
        let calls = ["listen", "bind"].map(|name| refused(name, CallAnswer::Kills, false));
        tell(&mut findings, &calls, Some("ollama.service"));
        let fix = findings[0].fix.as_ref().unwrap();
        assert!(fix.text.contains("SystemCallFilter=listen bind"), "{fix:?}");
        assert_eq!(fix.command.as_deref(), Some("systemctl edit ollama.service"));
    }

    #[test]
    fn a_refused_call_does_not_hide_a_failure_with_a_reason() {
        let calls = [refused("listen", answers(Errno::EPERM), false)];
        let absent = || Finding::fail(catalogue::ollama::OLLAMA_MISSING, "there is none");
        let findings = told(vec![fine(), absent()], &calls);
        assert_eq!((findings[0].status, findings[1].status), (Status::Warn, Status::Fail));
        assert!(findings[0].fix.is_some());
        let died = Finding::fail(catalogue::truth::SERVER_DIED, "ended with exit code 1");
        assert_eq!(told(vec![fine(), died], &calls)[0].status, Status::Fail, "that is why");
        let says = Finding::fail(catalogue::ollama::NOT_OLLAMA, "bind: operation not permitted");
        assert_eq!(told(vec![fine(), says], &calls)[0].status, Status::Fail);
        let mode = || Finding::fail(catalogue::ollama::NOT_EXECUTABLE, "may not: Permission denied");
        let denied = [refused("listen", answers(Errno::EACCES), false)];
        assert_eq!(told(vec![fine(), mode()], &denied)[0].status, Status::Warn, "a file's mode");
        let failed = Finding::fail(cause::NO_PROC, "not mounted");
        let kernel = told(vec![failed, mode()], &calls).remove(0);
        assert_eq!(kernel.cause, Some(cause::NO_PROC));
        assert!(kernel.details.iter().any(|detail| detail.contains("Allow listen")), "{kernel:?}");
    }

    #[test]
    fn a_random_number_that_is_refused_ends_a_check() {
        let random = |answer| ends_checks(&[refused("getrandom", answer, true)]);
        assert!(random(answers(Errno::EACCES)) && random(CallAnswer::Kills));
        assert!(!random(answers(Errno::EPERM)) && !ends_checks(&[]));
    }
}
