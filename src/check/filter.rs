//! Finds the system calls that a seccomp filter refuses to this process and to whatever it starts, for
//! whichever link fails because of them. Each call is made with arguments with which the kernel has nothing
//! to do, and with which it never answers EPERM, EACCES or ENOSYS: such an answer is the filter's.

use std::ffi::c_long;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::child;
use super::messages::RefusedCall;
use super::obstacles;
use crate::diagnosis::cause::kernel as cause;
use crate::diagnosis::{Finding, LinkId};

/// File with the mode of a process's filter.
const STATUS: &str = "/proc/self/status";
/// Maximum size of that file in bytes.
const STATUS_MOST: u64 = 64 << 10;
/// Line of that file which says that there is a filter (`SECCOMP_MODE_FILTER`).
const IN_FORCE: &str = "Seccomp:\t2";
/// Time limit for the calls, which take microseconds.
const LIMIT: Duration = Duration::from_secs(2);

/// A system call that Ollama's programs make, or vgpu-run's libraries in them.
struct Call {
    name: &'static str,
    number: c_long,
    arguments: [c_long; 5],
    /// Whether the server starts without it, and no model is loaded.
    load: bool,
    /// Errors at which who makes it goes on in another way. ENOSYS is the answer of kernels that do not
    /// have it.
    tolerated: &'static [Errno],
}

/// Creates a call that the server's start needs.
const fn call(name: &'static str, number: c_long, first: [c_long; 3]) -> Call {
    let [one, two, three] = first;
    Call { name, number, arguments: [one, two, three, 0, 0], load: false, tolerated: &[] }
}

impl Call {
    const fn for_loads(self) -> Self {
        Self { load: true, ..self }
    }

    const fn tolerating(self, tolerated: &'static [Errno]) -> Self {
        Self { tolerated, ..self }
    }

    /// Makes the call and returns its error number, or 0.
    fn errno(&self) -> i32 {
        let [one, two, three, four, five] = self.arguments;
        // SAFETY: the arguments are numbers, of which the kernel takes none for an address that it reads or
        // writes; see `CALLS`.
        let answer = unsafe { libc::syscall(self.number, one, two, three, four, five) };
        if answer < 0 { Errno::last_raw() } else { 0 }
    }

    /// Returns whether this error number is the answer of a filter.
    fn is_refused(&self, errno: i32) -> bool {
        let errno = Errno::from_raw(errno);
        FILTERS.contains(&errno) && !self.tolerated.contains(&errno)
    }
}

/// Answers of filters.
const FILTERS: [Errno; 3] = [Errno::EPERM, Errno::EACCES, Errno::ENOSYS];
/// File descriptor or number that no process has.
const NONE: c_long = -1;

/// The calls, each with an invalid descriptor, an empty range, an unknown kind or no address.
const CALLS: &[Call] = &[
    call("socket", libc::SYS_socket, [NONE, NONE, NONE]),
    call("bind", libc::SYS_bind, [NONE, 0, 0]),
    call("listen", libc::SYS_listen, [NONE, 0, 0]),
    call("accept4", libc::SYS_accept4, [NONE, 0, 0]),
    call("connect", libc::SYS_connect, [NONE, 0, 0]),
    call("getsockname", libc::SYS_getsockname, [NONE, 0, 0]).for_loads(),
    call("setsockopt", libc::SYS_setsockopt, [NONE, 0, 0]),
    call("getsockopt", libc::SYS_getsockopt, [NONE, 0, 0]),
    call("epoll_create1", libc::SYS_epoll_create1, [NONE, 0, 0]),
    call("epoll_ctl", libc::SYS_epoll_ctl, [NONE, libc::EPOLL_CTL_DEL as c_long, NONE]),
    call("epoll_pwait", libc::SYS_epoll_pwait, [NONE, 0, 0]),
    call("eventfd2", libc::SYS_eventfd2, [0, NONE, 0]),
    call("pipe2", libc::SYS_pipe2, [0, NONE, 0]),
    call("fcntl", libc::SYS_fcntl, [NONE, 0, 0]),
    call("getdents64", libc::SYS_getdents64, [NONE, 0, 0]),
    call("clone", libc::SYS_clone, [libc::CLONE_SIGHAND as c_long, 0, 0]),
    call("clone3", libc::SYS_clone3, [0, 0, 0]).tolerating(&[Errno::ENOSYS]),
    call("execve", libc::SYS_execve, [0, 0, 0]),
    call("wait4", libc::SYS_wait4, [i32::MIN as c_long, 0, 0]),
    call("waitid", libc::SYS_waitid, [NONE, 0, 0]).tolerating(&[Errno::ENOSYS]),
    call("pidfd_send_signal", libc::SYS_pidfd_send_signal, [NONE, 0, 0]).tolerating(&FILTERS),
    call("getrandom", libc::SYS_getrandom, [0, 0, NONE]).for_loads().tolerating(&[Errno::ENOSYS]),
    call("sigaltstack", libc::SYS_sigaltstack, [0, 0, 0]),
    call("rt_sigaction", libc::SYS_rt_sigaction, [0, 0, 0]),
    call("madvise", libc::SYS_madvise, [0, 0, 0]).for_loads(),
];

/// Makes the calls from the one with index `from` on, and writes before each its index, and after it its
/// index and error number.
pub fn make_calls(from: usize) {
    let mut out = io::stdout().lock();
    for (index, call) in CALLS.iter().enumerate().skip(from) {
        // Whoever reads it may have given up.
        let _ = writeln!(out, "{index}").and_then(|()| out.flush());
        let errno = call.errno();
        let _ = writeln!(out, "{index} {errno}").and_then(|()| out.flush());
    }
}

/// Returns whether a filter is in force for this process.
pub fn is_in_force() -> bool {
    let status = vgpu_paths::read_to_string(STATUS.as_ref(), STATUS_MOST).unwrap_or_default();
    status.lines().any(|line| line == IN_FORCE)
}

/// Returns the calls that a filter refuses to this process. A worker makes them, because a filter may end who
/// makes one. Empty if none can be started, which is a fault with another name.
pub fn refused() -> Vec<RefusedCall> {
    let (mut found, mut from) = (Vec::new(), 0);
    if !is_in_force() {
        return found;
    }
    while let Ok((text, killed)) = ask(from) {
        let (answers, open) = parse(&text);
        found.extend(answers);
        let Some(last) = open.filter(|_| killed) else { break };
        found.extend(CALLS.get(last).map(|call| of_call(call, None)));
        from = last + 1;
    }
    found
}

/// Has a worker make the calls from `from` on. Returns what it wrote, and whether a filter ended it.
fn ask(from: usize) -> io::Result<(String, bool)> {
    let mut command = Command::new(child::OURSELVES);
    command.arg0("vgpu-run").args(["__worker", "calls"]).arg(from.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let text = child.stdout.take().map(read).transpose();
    if !matches!(text, Ok(Some(_))) {
        // It may have ended.
        let _ = child.kill();
    }
    let status = child.wait()?;
    Ok((text?.unwrap_or_default(), status.signal() == Some(libc::SIGSYS)))
}

/// Reads a worker's output to its end, up to the time limit.
fn read(mut output: ChildStdout) -> io::Result<String> {
    let deadline = Instant::now() + LIMIT;
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            // The worker's end is a signal for this process.
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match output.read(&mut buffer)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            bytes => text.extend_from_slice(&buffer[..bytes]),
        }
    }
}

/// Parses what a worker wrote: the refused calls, and the index of the one that it had begun and not ended.
fn parse(text: &str) -> (Vec<RefusedCall>, Option<usize>) {
    let (mut refused, mut open) = (Vec::new(), None);
    for line in text.lines() {
        let mut words = line.split(' ');
        let Some(index) = words.next().and_then(|word| word.parse::<usize>().ok()) else { continue };
        let Some(errno) = words.next().and_then(|word| word.parse().ok()) else {
            open = Some(index);
            continue;
        };
        open = None;
        let call = CALLS.get(index).filter(|call| call.is_refused(errno));
        refused.extend(call.map(|call| of_call(call, Some(errno))));
    }
    (refused, open)
}

fn of_call(call: &Call, errno: Option<i32>) -> RefusedCall {
    RefusedCall { name: call.name.to_owned(), errno, load: call.load }
}

/// Makes the calls in `refused` the finding of the link `kernel`. A server that has found its GPUs disproves
/// those that its start needs, and not those of loads.
pub fn tell(findings: &mut [Finding], refused: &[RefusedCall]) {
    let starts = findings.iter().any(|finding| finding.link == LinkId::Truth && finding.holds());
    let decisive: Vec<&RefusedCall> = refused.iter().filter(|call| call.load || !starts).collect();
    if decisive.is_empty() {
        return;
    }
    let finding = finding(&decisive);
    // Without the link there is none to blame: only some links were asked for.
    let _ = obstacles::place(findings, finding);
}

fn finding(refused: &[&RefusedCall]) -> Finding {
    let mut answers: Vec<(Option<i32>, Vec<&str>)> = Vec::new();
    for call in refused {
        match answers.iter_mut().find(|(errno, _)| *errno == call.errno) {
            Some((_, names)) => names.push(&call.name),
            None => answers.push((call.errno, vec![&call.name])),
        }
    }
    let said: Vec<String> = answers
        .into_iter()
        .map(|(errno, names)| {
            let names = names.join(", ");
            match errno.map(Errno::from_raw) {
                Some(errno) => format!("answers {names} with {errno:?} ({})", errno.desc()),
                None => format!("ends each process that calls {names}"),
            }
        })
        .collect();
    let names: Vec<&str> = refused.iter().map(|call| call.name.as_str()).collect();
    let found = format!("a filter of system calls (seccomp) {}", said.join(" and "));
    Finding::fail(cause::CALLS_REFUSED, found).with("calls", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Status;

    fn refused(name: &str, errno: Option<Errno>, load: bool) -> RefusedCall {
        RefusedCall { name: name.into(), errno: errno.map(|errno| errno as i32), load }
    }

    #[test]
    fn no_kernel_answers_as_a_filter_does() {
        // A filter under which tests run lets them run: it refuses none of these.
        for call in CALLS {
            let errno = call.errno();
            assert!(!call.is_refused(errno), "{}: {}", call.name, Errno::from_raw(errno));
        }
    }

    #[test]
    fn what_a_worker_wrote_names_the_calls() {
        let index = |name: &str| CALLS.iter().position(|call| call.name == name).unwrap();
        let (listen, clone3) = (index("listen"), index("clone3"));
        let text = format!("0\n0 97\n{listen}\n{listen} 38\n{clone3}\n{clone3} 38\n7\n");
        let (found, open) = parse(&text);
        assert_eq!(found, [refused("listen", Some(Errno::ENOSYS), false)], "of clone3 that is an old kernel");
        assert_eq!(open, Some(7), "it has not come back");
        assert_eq!(parse(&format!("{clone3} 1\nx\n")).0.len(), 1);
    }

    #[test]
    fn the_call_is_told_and_a_server_that_starts_disproves_it() {
        let listen = || refused("listen", None, false);
        let told = |truth: Finding, calls: &[RefusedCall]| {
            let mut findings = [Finding::pass(LinkId::Kernel, "fine"), truth];
            tell(&mut findings, calls);
            findings
        };
        let skip = || Finding::skip(LinkId::Truth, "not known");
        let [kernel, _] = told(skip(), &[listen(), refused("bind", Some(Errno::EACCES), false)]);
        assert_eq!(
            kernel.found,
            "a filter of system calls (seccomp) ends each process that calls listen and answers bind with EACCES \
             (Permission denied)"
        );
        assert!(kernel.fix.unwrap().text.contains("listen, bind"));
        let works = || Finding::pass(LinkId::Truth, "CUDA");
        assert_eq!(told(works(), &[listen()])[0].status, Status::Pass);
        let load = refused("madvise", Some(Errno::EPERM), true);
        assert_eq!(told(works(), &[load])[0].status, Status::Fail);
    }
}
