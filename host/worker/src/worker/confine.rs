//! Confinement of a worker before its first message. It gives up other users' rights, the gain of new rights,
//! core files, being traced, the network, and system calls that it does not need.
//!
//! The filter lists what is refused, because only NVIDIA knows all calls of its driver library: it opens and
//! maps device files and uses ioctls on them, waits on futexes and starts threads. It needs no other
//! programs, no network, no other processes, no mounts or namespaces, and no interfaces of the kernel itself.
//! A refused call returns EPERM, so that a library that only tries it continues.
//!
//! The driver needs one socket: `cuInit` binds a socket of type SEQPACKET to an abstract name of the UNIX
//! family, `cuda-uvmfd-NAMESPACE-PID`, and listens on it, so that other processes can ask for its descriptor
//! of `/dev/nvidia-uvm`. If it may not, it returns `CUDA_ERROR_OPERATING_SYSTEM` (304). (snapd's interface
//! `opengl` allows `unix (bind,listen) type=seqpacket addr="@cuda-uvmfd-[0-9a-f]*"` for that.) So a worker
//! may make such sockets, bind them and listen. It may neither connect nor accept, so it reaches nobody, and
//! serves nobody who connects. It cannot have datagram sockets, which can send without a connection.
//!
//! The driver also tries a connection: `cuInit` looks for the control socket of MPS, and continues alone if
//! there is none (`ENOENT` or `ECONNREFUSED` in a trace of NVIDIA's cuda-checkpoint, issue 10). So `connect`
//! returns `ENOENT`, as if no socket had a name. Behind these filters driver 580.159.04 starts, and PyTorch
//! and Ollama compute (`testbed/bench/README.md`).

use std::collections::BTreeMap;

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::process::{DumpableBehavior, Resource, Rlimit, getpid, set_dumpable_behavior, setrlimit};
use rustix::thread::set_no_new_privs;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use crate::shared::setup::WorkerUser;
use crate::worker::explain;
use crate::worker::refused::REFUSED;

/// Reason for which a worker cannot be confined. It does not start then.
#[derive(Debug, thiserror::Error)]
#[error("confine the worker: {step}: {source}")]
pub(crate) struct NotConfined {
    step: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

fn failed<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    step: &'static str,
) -> impl FnOnce(E) -> NotConfined {
    move |error| NotConfined { step, source: error.into() }
}

/// Mask of the low bits of a socket's type that select the kind of socket. The others are flags. It is
/// `SOCK_TYPE_MASK` in the kernel's `linux/net.h`.
const SOCKET_TYPE: u64 = 0xf;
/// Types of sockets that cannot send before they are connected. In the UNIX family all others are datagrams,
/// including `SOCK_RAW`.
const CONNECTED: [libc::c_int; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];

/// Flags of `clone` that create namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u32 as u64;

/// Confines the process, which must have a single thread. Any failure is an error, because an unconfined
/// worker must not carry out messages. `connects` permits connections to UNIX sockets. With `explains` the
/// process names each call that it is refused ([`explain`]).
pub(crate) fn confine(
    identity: Option<WorkerUser>,
    connects: bool,
    explains: bool,
) -> Result<(), NotConfined> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(failed("forbid core files"))?;
    if let Some(WorkerUser { user, group, groups }) = identity {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        let groups: Vec<Gid> = groups.into_iter().map(Gid::from_raw).collect();
        setgroups(&groups).map_err(failed("change the groups"))?;
        setresgid(group, group, group).map_err(failed("change the group"))?;
        setresuid(user, user, user).map_err(failed("change the user"))?;
    }
    // After the change of user, which resets it.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("forbid being looked into"))?;
    set_no_new_privs(true).map_err(failed("forbid new rights"))?;
    let filters = filters(connects, explains).map_err(failed("make a filter of system calls"))?;
    if explains {
        explain::handle().map_err(failed("explain refused calls"))?;
    }
    for Filter { step, mut program, explained } in filters {
        if explained {
            explain::trap(&mut program);
        }
        apply_filter(&program).map_err(failed(step))?;
    }
    Ok(())
}

/// Confines this process, which must have a single thread, as a worker is confined, but leaves it its user. A
/// process that asks the driver what a worker would be answered calls this. `connects` permits connections to
/// UNIX sockets.
///
/// # Errors
/// Returns the step that failed, with the system's reason.
pub fn confine_process(connects: bool) -> Result<(), String> {
    confine(None, connects, true).map_err(|error| error.to_string())
}

/// A filter of system calls.
struct Filter {
    /// The step of the confinement that an error names.
    step: &'static str,
    program: BpfProgram,
    /// Whether calls that this filter refuses are explained.
    explained: bool,
}

/// Calls that start programs. A process that is about to start one may block all signals and have no
/// handlers, so that a trap would kill it.
const PROGRAMS: [libc::c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// Returns the arguments of `socket` and `socketpair` that are refused: families other than UNIX, and types
/// that can send without a connection.
fn other_sockets() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let unix = u64::from(libc::AF_UNIX.cast_unsigned());
    let family = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, unix)?;
    let mut refused = vec![SeccompRule::new(vec![family])?];
    let allowed = CONNECTED.map(|kind| u64::from(kind.cast_unsigned()));
    for kind in (0..=SOCKET_TYPE).filter(|kind| !allowed.contains(kind)) {
        let operator = SeccompCmpOp::MaskedEq(SOCKET_TYPE);
        let is = SeccompCondition::new(1, SeccompCmpArgLen::Dword, operator, kind)?;
        refused.push(SeccompRule::new(vec![is])?);
    }
    Ok(refused)
}

/// Returns the filters. If refusals are explained, those of programs have a filter of their own.
fn filters(connects: bool, explains: bool) -> Result<Vec<Filter>, seccompiler::BackendError> {
    // The arguments of clone3 are in memory, which no filter can read. Without clone3 the C library uses
    // clone. It tries clone3 with all signals blocked, so that a trap would kill it.
    let program = filter([(libc::SYS_clone3, vec![])], libc::ENOSYS)?;
    let mut all = vec![Filter { step: "refuse clone3", program, explained: false }];
    // If it may connect, the modes of the sockets' files decide to which of them.
    if !connects {
        let program = filter([(libc::SYS_connect, vec![])], libc::ENOENT)?;
        all.push(Filter { step: "refuse connections", program, explained: explains });
    }
    if explains {
        let program = filter(PROGRAMS.map(|call| (call, vec![])), libc::EPERM)?;
        all.push(Filter { step: "refuse programs", program, explained: false });
    }
    let condition =
        |argument, length, operator, value| SeccompCondition::new(argument, length, operator, value);
    let mut rules: Vec<(libc::c_long, Vec<SeccompRule>)> =
        REFUSED.iter().map(|&(call, _)| (call, vec![])).collect();
    rules.retain(|(call, _)| !(explains && PROGRAMS.contains(call)));
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        rules.push((call, other_sockets()?));
    }
    // A process aborts by sending a signal to itself.
    let own = u64::from(getpid().as_raw_nonzero().get().cast_unsigned());
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_tgsigqueueinfo] {
        let other = condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, own)?;
        rules.push((call, vec![SeccompRule::new(vec![other])?]));
    }
    // A library may query the process's own limits, by 0 or by its number.
    let others = [0, own].map(|own| condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, own));
    let others = others.into_iter().collect::<Result<Vec<_>, _>>()?;
    rules.push((libc::SYS_prlimit64, vec![SeccompRule::new(others)?]));
    let mut namespaces = Vec::new();
    for bit in (0..u64::BITS).map(|bit| 1 << bit).filter(|bit| NAMESPACES & bit != 0) {
        let made = condition(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bit), bit)?;
        namespaces.push(SeccompRule::new(vec![made])?);
    }
    rules.push((libc::SYS_clone, namespaces));
    let program = filter(rules, libc::EPERM)?;
    all.push(Filter { step: "refuse system calls", program, explained: explains });
    Ok(all)
}

fn filter(
    rules: impl IntoIterator<Item = (libc::c_long, Vec<SeccompRule>)>,
    errno: i32,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let rules: BTreeMap<i64, Vec<SeccompRule>> = rules.into_iter().collect();
    let refuse = SeccompAction::Errno(errno.cast_unsigned());
    // A system call by another architecture's number kills the process.
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, TargetArch::x86_64)?.try_into()
}

/// The tests in `walls.rs` check that a confined worker is refused what it may not do.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_can_be_made() {
        for (connects, explains, count) in [(false, false, 3), (true, false, 2), (false, true, 4)] {
            let all = filters(connects, explains).unwrap();
            assert_eq!(all.len(), count);
            assert!(all.last().unwrap().program.len() > REFUSED.len());
            assert_eq!(all.iter().any(|filter| filter.explained), explains);
        }
    }
}
