//! A sandbox that refuses certain system calls, or ends the process at them, as the seccomp filter of a
//! service manager or a container does.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

/// Offset of the system call number in `struct seccomp_data`; the next ones are those of other fields.
const NUMBER: u32 = 0;
const ARGUMENTS: u32 = 16;

fn load(offset: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

/// Returns an instruction that continues if the word is `value`, and otherwise skips `others` instructions.
fn if_equal(value: u32, others: u8) -> libc::sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    libc::sock_filter { code, jt: 0, jf: others, k: value }
}

/// Returns an instruction that continues if the word has one of `bits`, and otherwise skips `others`
/// instructions.
fn if_any(bits: u32, others: u8) -> libc::sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    libc::sock_filter { code, jt: 0, jf: others, k: bits }
}

fn answer(what: u32) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: what }
}

/// Calls that are refused, and the error number that they get.
pub struct Refused {
    /// Numbers of the calls.
    pub calls: Vec<u32>,
    /// Error number.
    pub errno: u16,
}

/// Builds a filter. With `memfd`, memfd_create fails with EPERM; so does mmap for execution of exactly
/// `exec_bytes`. The calls `refused` fail with their own error. The call `kill` ends the process.
fn program(
    memfd: bool,
    exec_bytes: Option<u32>,
    kill: Option<u32>,
    refused: &Refused,
) -> Vec<libc::sock_filter> {
    let refuse = answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let mut program = Vec::new();
    for number in &refused.calls {
        let error = answer(libc::SECCOMP_RET_ERRNO | u32::from(refused.errno));
        program.extend([load(NUMBER), if_equal(*number, 1), error]);
    }
    if let Some(number) = kill {
        program.extend([load(NUMBER), if_equal(number, 1), answer(libc::SECCOMP_RET_KILL_PROCESS)]);
    }
    if memfd {
        program.extend([load(NUMBER), if_equal(libc::SYS_memfd_create as u32, 1), refuse]);
    }
    if let Some(bytes) = exec_bytes {
        program.extend([
            load(NUMBER),
            if_equal(libc::SYS_mmap as u32, 5),
            load(ARGUMENTS + 8),
            if_equal(bytes, 3),
            load(ARGUMENTS + 16),
            if_any(libc::PROT_EXEC as u32, 1),
            refuse,
        ]);
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program
}

/// Applies the filter to this process and executes `command`.
pub fn enter(
    memfd: bool,
    exec_bytes: Option<u32>,
    kill: Option<u32>,
    refused: &Refused,
    command: &[OsString],
) -> Result<ExitCode> {
    let mut filter = program(memfd, exec_bytes, kill, refused);
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).context("a filter that is too long")?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: takes plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error()).context("give up new privileges");
    }
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program is alive and as long as it says.
    if unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) } != 0 {
        return Err(io::Error::last_os_error()).context("install the filter");
    }
    let (name, arguments) = command.split_first().context("no command")?;
    let error = Command::new(name).args(arguments).exec();
    Err(error).with_context(|| format!("start {}", name.display()))
}
