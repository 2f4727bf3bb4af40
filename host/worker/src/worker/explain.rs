//! Names refused system calls on standard error, to find out which one a new driver needs.
//!
//! The filters trap where they would refuse: the kernel sends SIGSYS to the thread, with the call's number
//! and the error of the filter. The handler prints each number once, and lets the call return that error. A
//! thread that blocks SIGSYS cannot have it handled, and the kernel kills the process instead. So this is for
//! diagnosis, and off unless the configuration asks for it.
//!
//! The handler may interrupt any code, so it allocates nothing, takes no lock, and calls only `write`.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, ptr};

use seccompiler::BpfProgram;

use crate::worker::refused::name;

/// Instruction of a filter that returns a constant: `BPF_RET | BPF_K` of `linux/filter.h`.
const RETURN: u16 = 0x06;
/// Value of `si_code` for a call that a filter has trapped: `SYS_SECCOMP` of the kernel's `siginfo.h`.
const SYS_SECCOMP: c_int = 1;
/// Number of system calls that can be told apart. The kernel has fewer than 512.
const CALLS: usize = 1024;

/// The part of `siginfo_t` that SIGSYS has, by `_sigsys` of the kernel's `siginfo.h`.
#[repr(C)]
struct Trapped {
    signal: c_int,
    /// The low 16 bits of the value that the filter returned: the error of the refusal.
    error: c_int,
    code: c_int,
    _padding: c_int,
    _instruction: *mut c_void,
    call: c_int,
    _architecture: u32,
}

const _: () = assert!(size_of::<Trapped>() <= size_of::<libc::siginfo_t>());

/// The system calls that were named, one bit each.
static NAMED: [AtomicU64; CALLS / 64] = [const { AtomicU64::new(0) }; CALLS / 64];

/// Makes a filter trap where it refuses, with the same error.
pub(super) fn trap(program: &mut BpfProgram) {
    for instruction in program.iter_mut().filter(|instruction| instruction.code == RETURN) {
        if instruction.k & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_ERRNO {
            instruction.k = libc::SECCOMP_RET_TRAP | instruction.k & libc::SECCOMP_RET_DATA;
        }
    }
}

/// Installs the handler for the whole process.
pub(super) fn handle() -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    let place = action.as_mut_ptr();
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = explain;
    // SAFETY: the place is that of a live structure, all of whose bits may be zero.
    let action = unsafe { &mut *place };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: a live structure. The handler accesses only its arguments and static data.
    let set = unsafe { libc::sigaction(libc::SIGSYS, action, ptr::null_mut()) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The handler: prints the call, and lets it return its error.
extern "C" fn explain(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a live `siginfo_t` of SIGSYS, which starts with these fields.
    let trapped = unsafe { &*info.cast::<Trapped>() };
    if trapped.code != SYS_SECCOMP {
        return;
    }
    // SAFETY: the kernel passes the live state of the thread that it interrupted, to which it returns.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = -i64::from(trapped.error);
    if is_first(trapped.call) {
        print(&Line::refusal(trapped.call, trapped.error));
    }
}

/// Returns whether a call has not been named before, and remembers that it has.
fn is_first(call: c_int) -> bool {
    let Some((word, bit)) = usize::try_from(call).ok().map(|call| (call / 64, call % 64)) else {
        return true;
    };
    NAMED.get(word).is_none_or(|word| word.fetch_or(1 << bit, Ordering::Relaxed) & 1 << bit == 0)
}

/// Writes a line to standard error. The interrupted code's `errno` stays as it is.
fn print(line: &Line) {
    // SAFETY: takes no arguments.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own variable, which nothing else refers to meanwhile.
    let errno = unsafe { &mut *place };
    let before = *errno;
    let text = line.text();
    // SAFETY: a live buffer of this length. Nobody can be told of a failure.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    *errno = before;
}

/// A line of text on the stack.
struct Line {
    bytes: [u8; 128],
    length: usize,
}

impl Line {
    fn refusal(call: c_int, error: c_int) -> Self {
        let mut line = Self { bytes: [0; 128], length: 0 };
        line.add("vgpu-worker: refused system call ");
        line.add_number(call);
        if let Some(name) = name(call.into()) {
            line.add(" (");
            line.add(name);
            line.add(")");
        }
        line.add(" with error ");
        line.add_number(error);
        line.add("\n");
        line
    }

    fn text(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Adds as much of the text as there is room for.
    fn add(&mut self, text: &str) {
        for (place, byte) in self.bytes.iter_mut().skip(self.length).zip(text.bytes()) {
            *place = byte;
            self.length += 1;
        }
    }

    fn add_number(&mut self, number: c_int) {
        let mut digits = [0; 10];
        let (mut rest, mut first) = (number.unsigned_abs(), digits.len());
        while first > 0 && (rest > 0 || first == digits.len()) {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        if number < 0 {
            self.add("-");
        }
        self.add(std::str::from_utf8(&digits[first..]).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_the_call_and_its_error() {
        let text = |call, error| String::from_utf8(Line::refusal(call, error).text().to_vec()).unwrap();
        assert_eq!(text(272, 1), "vgpu-worker: refused system call 272 (unshare) with error 1\n");
        assert_eq!(text(0, 38), "vgpu-worker: refused system call 0 with error 38\n");
        assert_eq!(text(c_int::MIN, 2), "vgpu-worker: refused system call -2147483648 with error 2\n");
    }

    #[test]
    fn a_call_is_named_once() {
        assert!(is_first(1000));
        assert!(!is_first(1000));
        assert!(is_first(1001));
        // Without a bit of its own it is named each time.
        assert!(is_first(-1) && is_first(-1) && is_first(1024) && is_first(1024));
    }
}
