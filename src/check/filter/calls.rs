//! The system calls that Ollama's programs make, or vgpu-run's libraries in them, each made as they make it
//! as far as that has no effect. A filter sees the number of a call and its arguments, but no memory.

use std::ffi::{c_int, c_long};
use std::io::{self, Write};
use std::ptr;

use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use vgpu_findings::child::may_be_filtered;

/// A system call that a filter may refuse, and how its answer is judged.
pub struct Call {
    pub name: &'static str,
    /// Makes it and returns its answer.
    make: fn() -> c_long,
    /// Whether a server may find its GPUs without it, so that such a server does not disprove its refusal.
    pub load: bool,
    /// Errors that are not a filter's answer, or at which who makes it goes on in another way.
    tolerated: &'static [Errno],
}

impl Call {
    /// Creates a call that every server makes before it reports its GPUs, or answers its first request.
    const fn start(name: &'static str, make: fn() -> c_long) -> Self {
        Self { name, make, load: false, tolerated: &[] }
    }

    /// Creates a call that some server makes only when it loads a model.
    const fn load(name: &'static str, make: fn() -> c_long) -> Self {
        Self { name, make, load: true, tolerated: &[] }
    }

    const fn tolerating(self, tolerated: &'static [Errno]) -> Self {
        Self { tolerated, ..self }
    }

    /// Makes the call and returns its error number, or 0.
    fn errno(&self) -> i32 {
        if (self.make)() < 0 { Errno::last_raw() } else { 0 }
    }

    /// Returns whether this error number is the answer of a filter.
    pub fn is_refused(&self, errno: i32) -> bool {
        let errno = Errno::from_raw(errno);
        may_be_filtered(errno) && !self.tolerated.contains(&errno)
    }
}

/// Answer of a kernel that is older than the call. Programs then do without it.
const OLDER: &[Errno] = &[Errno::ENOSYS];
/// File descriptor or number that no process has.
const NONE: c_int = -1;

/// Makes a call with numbers, of which the kernel takes none for an address of memory. The wrappers of the
/// C library could make another call in its place.
fn with_numbers(number: c_long, [one, two, three]: [c_int; 3]) -> c_long {
    // SAFETY: see the table, whose calls take numbers, null pointers and descriptors that are not open.
    unsafe { libc::syscall(number, one as c_long, two as c_long, three as c_long, 0, 0) }
}

/// Makes a call that opens a descriptor, and closes it.
fn opening(number: c_long, numbers: [c_int; 3]) -> c_long {
    let answer = with_numbers(number, numbers);
    if answer >= 0 {
        // SAFETY: the descriptor was opened above, and nothing else knows it.
        unsafe { libc::close(answer as c_int) };
    }
    answer
}

/// Asks for a byte, as Rust's and Go's runtimes do.
fn getrandom() -> c_long {
    let mut byte = 0_u8;
    // SAFETY: the kernel writes one byte at most.
    unsafe { libc::syscall(libc::SYS_getrandom, &raw mut byte, 1_usize, libc::GRND_NONBLOCK) }
}

/// Gives the advice for no memory at all without which vgpu-run's libraries map no window.
fn advise() -> c_long {
    let advise = |advice: c_int| {
        // SAFETY: an empty range has no memory that could change.
        unsafe { libc::syscall(libc::SYS_madvise, ptr::null_mut::<u8>(), 0_usize, advice) }
    };
    match advise(libc::MADV_DONTFORK) {
        0 => advise(libc::MADV_DONTDUMP),
        refused => refused,
    }
}

/// The calls. Where nothing may happen, they have a descriptor that is not open, no address, or flags that
/// exclude each other.
pub const CALLS: &[Call] = &[
    // A security module answers EACCES where a process may have no sockets.
    Call::start("socket", || {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        opening(libc::SYS_socket, [libc::AF_INET, kind, 0])
    })
    .tolerating(&[Errno::EACCES]),
    Call::start("bind", || with_numbers(libc::SYS_bind, [NONE, 0, 0])),
    Call::start("listen", || with_numbers(libc::SYS_listen, [NONE, libc::SOMAXCONN, 0])),
    Call::start("accept4", || with_numbers(libc::SYS_accept4, [NONE, 0, 0])),
    Call::load("connect", || with_numbers(libc::SYS_connect, [NONE, 0, 0])),
    Call::load("getsockname", || with_numbers(libc::SYS_getsockname, [NONE, 0, 0])),
    Call::start("setsockopt", || {
        with_numbers(libc::SYS_setsockopt, [NONE, libc::SOL_SOCKET, libc::SO_REUSEADDR])
    }),
    Call::load("getsockopt", || with_numbers(libc::SYS_getsockopt, [NONE, libc::SOL_SOCKET, libc::SO_ERROR])),
    Call::start("epoll_create1", || opening(libc::SYS_epoll_create1, [libc::EPOLL_CLOEXEC, 0, 0])),
    Call::start("epoll_ctl", || with_numbers(libc::SYS_epoll_ctl, [NONE, libc::EPOLL_CTL_ADD, NONE])),
    Call::start("epoll_pwait", || with_numbers(libc::SYS_epoll_pwait, [NONE, 0, 0])),
    Call::start("eventfd2", || opening(libc::SYS_eventfd2, [0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK, 0])),
    Call::load("pipe2", || with_numbers(libc::SYS_pipe2, [0, libc::O_CLOEXEC, 0])),
    Call::start("fcntl", || with_numbers(libc::SYS_fcntl, [libc::STDOUT_FILENO, libc::F_GETFL, 0])),
    Call::load("getdents64", || with_numbers(libc::SYS_getdents64, [NONE, 0, 0])),
    Call::start("clone", || {
        let alike = libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SYSVSEM;
        // No thread is without the memory and the signal handlers of its process.
        with_numbers(libc::SYS_clone, [alike | libc::CLONE_SIGHAND | libc::CLONE_THREAD, 0, 0])
    }),
    Call::start("clone3", || with_numbers(libc::SYS_clone3, [0, 0, 0])).tolerating(OLDER),
    Call::load("execve", || with_numbers(libc::SYS_execve, [0, 0, 0])),
    Call::load("wait4", || with_numbers(libc::SYS_wait4, [i32::MIN, 0, 0])),
    Call::load("waitid", || with_numbers(libc::SYS_waitid, [NONE, 0, 0])).tolerating(OLDER),
    Call::load("pidfd_send_signal", || with_numbers(libc::SYS_pidfd_send_signal, [NONE, 0, 0]))
        .tolerating(&[Errno::EPERM, Errno::EACCES, Errno::ENOSYS]),
    Call::load(RANDOM, getrandom).tolerating(OLDER),
    Call::start("sigaltstack", || with_numbers(libc::SYS_sigaltstack, [0, 0, 0])),
    Call::start("rt_sigaction", || with_numbers(libc::SYS_rt_sigaction, [0, 0, 0])),
    Call::load("madvise", advise),
];

/// Name of the call without which Rust's runtime ends a process, unless the answer is EPERM or ENOSYS.
pub const RANDOM: &str = "getrandom";

/// Makes the calls from the one with index `from` on, and writes before each its index, and after it its
/// index and error number.
pub fn make_calls(from: usize) {
    // A filter may kill this process, which is nothing to keep a memory image of. It may refuse this, too.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let mut out = io::stdout().lock();
    for (index, call) in CALLS.iter().enumerate().skip(from) {
        // Whoever reads it may have given up.
        let _ = writeln!(out, "{index}").and_then(|()| out.flush());
        let errno = call.errno();
        let _ = writeln!(out, "{index} {errno}").and_then(|()| out.flush());
    }
    let _ = writeln!(out, "{END}").and_then(|()| out.flush());
}

/// Line after the last call.
pub const END: &str = "end";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kernel_answers_as_a_filter_does() {
        // A filter under which tests run lets them run: it refuses none of these.
        for call in CALLS {
            let errno = call.errno();
            assert!(!call.is_refused(errno), "{}: {}", call.name, Errno::from_raw(errno));
        }
    }

    #[test]
    fn calls_are_made_as_programs_make_them() {
        let answers = |name: &str| CALLS.iter().find(|call| call.name == name).unwrap().errno();
        for name in ["socket", "epoll_create1", "eventfd2", "fcntl", "getrandom", "madvise"] {
            assert_eq!(answers(name), 0, "{name}: a filter that looks at arguments lets another pass");
        }
    }

    #[test]
    fn an_answer_of_others_is_no_filters() {
        let refused = |name: &str, errno: Errno| {
            CALLS.iter().find(|call| call.name == name).unwrap().is_refused(errno as i32)
        };
        assert!(refused("socket", Errno::EPERM) && refused("getrandom", Errno::EACCES));
        assert!(!refused("socket", Errno::EAFNOSUPPORT), "a kernel without IPv4");
        assert!(!refused("socket", Errno::EACCES) && !refused("clone3", Errno::ENOSYS));
    }
}
