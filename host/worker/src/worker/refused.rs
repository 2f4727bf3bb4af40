//! The system calls that a worker is refused, with their names.

/// A system call: its number, and its name in the kernel's headers.
pub(super) type NamedCall = (libc::c_long, &'static str);

/// Lists system calls by their constants.
macro_rules! calls {
    ($($call:ident),* $(,)?) => { &[$((libc::$call, stringify!($call))),*] };
}

/// System calls that are always refused.
pub(super) const REFUSED: &[NamedCall] = calls![
    // Starting programs.
    SYS_execve,
    SYS_execveat,
    // Accepting connections from other processes. Conditions restrict the kinds of sockets.
    SYS_accept,
    SYS_accept4,
    // Access to other processes.
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_pidfd_getfd,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_kcmp,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    // Namespaces and mounts.
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    // Interfaces of the kernel itself.
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_iopl,
    SYS_ioperm,
    SYS_swapon,
    SYS_swapoff,
    SYS_reboot,
    SYS_syslog,
    SYS_acct,
    SYS_quotactl,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_vhangup,
    SYS_personality,
];

/// System calls that are refused depending on their arguments, or on the configuration.
const SOMETIMES: &[NamedCall] = calls![
    SYS_clone,
    SYS_connect,
    SYS_kill,
    SYS_prlimit64,
    SYS_rt_tgsigqueueinfo,
    SYS_socket,
    SYS_socketpair,
    SYS_tgkill,
];

/// Returns the name of a system call that can be refused. Makes no call itself, so that a signal's handler
/// may use it.
pub(super) fn name(call: libc::c_long) -> Option<&'static str> {
    let mut all = REFUSED.iter().chain(SOMETIMES);
    all.find(|(number, _)| *number == call).and_then(|(_, name)| name.strip_prefix("SYS_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each refused call has a number of its own, so that none was listed twice in place of another.
    #[test]
    fn each_call_is_listed_once() {
        let mut calls: Vec<_> = REFUSED.iter().chain(SOMETIMES).map(|(call, _)| *call).collect();
        let all = calls.len();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), all);
    }

    #[test]
    fn calls_have_the_names_of_their_manuals() {
        assert_eq!(name(libc::SYS_unshare), Some("unshare"));
        assert_eq!(name(libc::SYS_connect), Some("connect"));
        assert_eq!(name(libc::SYS_read), None);
    }
}
