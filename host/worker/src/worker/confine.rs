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

/// System calls that are always refused.
const REFUSED: &[libc::c_long] = &[
    // Starting programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Accepting connections from other processes. [`other_sockets`] restricts the kinds of sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    // Access to other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Interfaces of the kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_personality,
];

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
/// worker must not carry out messages. `connects` permits connections to UNIX sockets.
pub(crate) fn confine(identity: Option<WorkerUser>, connects: bool) -> Result<(), NotConfined> {
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
    for (step, program) in filters(connects).map_err(failed("make a filter of system calls"))? {
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
    confine(None, connects).map_err(|error| error.to_string())
}

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

/// Returns the filters, each with the step that an error names.
fn filters(connects: bool) -> Result<Vec<(&'static str, BpfProgram)>, seccompiler::BackendError> {
    // The arguments of clone3 are in memory, which no filter can read. Without clone3 the C library uses
    // clone.
    let no_clone3 = filter([(libc::SYS_clone3, vec![])], libc::ENOSYS)?;
    let mut all = vec![("refuse clone3", no_clone3)];
    // If it may connect, the modes of the sockets' files decide to which of them.
    if !connects {
        all.push(("refuse connections", filter([(libc::SYS_connect, vec![])], libc::ENOENT)?));
    }
    let condition =
        |argument, length, operator, value| SeccompCondition::new(argument, length, operator, value);
    let mut rules: Vec<(libc::c_long, Vec<SeccompRule>)> =
        REFUSED.iter().map(|&call| (call, vec![])).collect();
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
    all.push(("refuse system calls", filter(rules, libc::EPERM)?));
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

    /// Each refused call has a number of its own, so that none was listed twice in place of another.
    #[test]
    fn the_filters_can_be_made() {
        let mut calls = REFUSED.to_vec();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), REFUSED.len());
        for connects in [false, true] {
            let all = filters(connects).unwrap();
            assert_eq!(all.len(), if connects { 2 } else { 3 });
            assert!(all.last().unwrap().1.len() > REFUSED.len());
        }
    }
}
