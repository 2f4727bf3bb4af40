//! Random changes of what surrounds a server: filters of system calls, namespaces and clocks, files of the
//! system, and files of every kind in the server's home.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result};
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::fs::{CWD, Mode, mkfifoat};

use super::super::plan::{ScenePlan, When};
use super::made::{Made, pick};

/// System calls that Go, the C library, ggml and llama-server make and that filters refuse, with their
/// numbers on x86-64. A process that cannot open or map a file does not start at all, and neither does a
/// check.
const CALLS: &[(&str, u32)] = &[
    ("madvise", 28),
    ("mlock", 149),
    ("mincore", 27),
    ("mbind", 237),
    ("set_mempolicy", 238),
    ("get_mempolicy", 239),
    ("clone3", 435),
    ("vfork", 58),
    ("pidfd_open", 434),
    ("pidfd_send_signal", 424),
    ("waitid", 247),
    ("socket", 41),
    ("bind", 49),
    ("listen", 50),
    ("connect", 42),
    ("accept4", 288),
    ("setsockopt", 54),
    ("getsockname", 51),
    ("epoll_create1", 291),
    ("eventfd2", 290),
    ("sched_getaffinity", 204),
    ("sched_setaffinity", 203),
    ("setpriority", 141),
    ("getrandom", 318),
    ("prlimit64", 302),
    ("uname", 63),
    ("sysinfo", 99),
    ("getcwd", 79),
    ("statx", 332),
    ("getdents64", 217),
    ("mkdirat", 258),
    ("unlinkat", 263),
    ("fsync", 74),
    ("fallocate", 285),
    ("ftruncate", 77),
    ("memfd_create", 319),
    ("prctl", 157),
    ("rseq", 334),
    ("membarrier", 324),
    ("tgkill", 234),
    ("sigaltstack", 131),
    ("ioctl", 16),
    ("setsid", 112),
    ("setpgid", 109),
    ("faccessat2", 439),
    ("openat2", 437),
    ("close_range", 436),
    ("io_uring_setup", 425),
    ("process_vm_readv", 310),
    ("timer_create", 222),
];

/// Calls at which a filter may end a process and a check still runs: its own start makes the others.
const FATAL: &[&str] = &[
    "mlock",
    "mbind",
    "set_mempolicy",
    "get_mempolicy",
    "mincore",
    "pidfd_send_signal",
    "listen",
    "bind",
    "sched_setaffinity",
    "setpriority",
    "io_uring_setup",
    "process_vm_readv",
    "timer_create",
    "setsid",
];

/// Answers of a filter, with the options of the stand-in's sandbox.
const ANSWERS: &[(&str, &[&str])] = &[
    ("EPERM", &["--refuse"]),
    ("ENOSYS", &["--errno", "38", "--refuse"]),
    ("EACCES", &["--errno", "13", "--refuse"]),
    ("the end of the process", &["--kill"]),
];

/// Shell commands that enter other namespaces, in which the rest of the command line runs.
const NAMESPACES: &[(&str, &str)] = &[
    ("a name space of IPC", "exec unshare --ipc -- \"$@\""),
    ("a name space of host names", "exec unshare --uts -- \"$@\""),
    ("a name space of control groups", "exec unshare --cgroup -- \"$@\""),
    ("a clock ten days ahead", "exec unshare --time --boottime 864000 --monotonic 864000 --fork -- \"$@\""),
    ("a user name space with root alone", "exec unshare --user --map-root-user -- \"$@\""),
    ("a session of its own", "exec setsid --wait -- \"$@\""),
    ("the lowest priority", "exec nice -n 19 -- \"$@\""),
    ("one processor", "exec taskset -c 0 \"$@\""),
    ("no group but its own", "exec setpriv --clear-groups -- \"$@\""),
    ("no capability", "exec setpriv --bounding-set -all --inh-caps -all -- \"$@\""),
    ("no new privileges", "exec setpriv --no-new-privs -- \"$@\""),
    ("a umask of 0777", "umask 0777"),
];

/// Files of the system that a server's start opens, which some systems lack.
const SYSTEM_FILES: &[&str] = &[
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/localtime",
    "/etc/os-release",
    "/etc/mime.types",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/ssl/openssl.cnf",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/version",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/kernel/cap_last_cap",
    "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/possible",
];
/// Directories of the system that a server's start opens.
const SYSTEM_FOLDERS: &[&str] = &[
    "/sys/fs/cgroup",
    "/sys/class/drm",
    "/sys/class/kfd",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/module",
    "/proc/driver",
    "/run",
    "/var/tmp",
    "/etc/ssl",
    "/usr/share/zoneinfo",
    "/usr/lib/locale",
];

/// Files in the home that a server or llama-server opens.
const HOME_FILES: &[&str] = &[
    ".ollama/id_ed25519",
    ".ollama/id_ed25519.pub",
    ".ollama/server.json",
    ".ollama/config.json",
    ".ollama/history",
    ".ollama/cache",
    ".ollama/logs",
    ".cache",
    ".cache/llama.cpp",
    ".config",
    ".local",
];

/// Adds a filter that answers one system call.
pub fn call(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    let (name, number) = *pick(rng, CALLS);
    let answers = if FATAL.contains(&name) { ANSWERS } else { &ANSWERS[..ANSWERS.len() - 1] };
    let (answer, options) = *pick(rng, answers);
    made.record(format!("{name} is answered by {answer}"));
    plan.sandbox.extend(options.iter().map(|option| (*option).to_owned()));
    plan.sandbox.push(number.to_string());
}

/// Starts check and server in another namespace, or changes files of the system for them.
pub fn system(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    match rng.random_range(0..6) {
        0 | 1 => {
            let (what, command) = *pick(rng, NAMESPACES);
            made.record(what);
            plan.limits.push(command.to_owned());
        }
        2 => {
            made.record("a name space of processes");
            plan.pid_namespace = true;
        }
        3 => {
            let folder = pick(rng, SYSTEM_FOLDERS);
            made.record(format!("{folder} is empty and read-only"));
            plan.mounts.push(format!("[ ! -d {folder} ] || mount -t tmpfs -o ro none {folder}"));
        }
        _ => {
            let file = pick(rng, SYSTEM_FILES);
            made.record(format!("{file} is empty"));
            plan.mounts.push(format!("[ ! -e {file} ] || mount --bind /dev/null {file}"));
        }
    }
}

/// Puts something else in the place of a file in the home.
pub fn home(plan: &mut ScenePlan, made: &Made, rng: &mut StdRng) {
    let (name, kind) = (*pick(rng, HOME_FILES), rng.random_range(0..7));
    let what =
        ["empty", "damaged", "a directory", "a FIFO", "a link that leads nowhere", "of mode 0", "large"];
    made.record(format!("{name} is {}", what[kind]));
    plan.step(When::Served, move |scene| {
        let path = scene.path("home").join(name);
        let folder = path.parent().context("a file of the home")?;
        fs::create_dir_all(folder)?;
        // Any user of a scene may write in its home.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777))?;
        if path.symlink_metadata().is_ok() {
            fs::rename(&path, path.with_extension("away"))?;
        }
        put(&path, kind)
    });
}

fn put(path: &Path, kind: usize) -> Result<()> {
    match kind {
        0 => fs::write(path, "")?,
        1 => fs::write(path, [0xff, 0, b'{'])?,
        2 => fs::create_dir(path)?,
        3 => mkfifoat(CWD, path, Mode::RWXU | Mode::RWXG | Mode::RWXO)?,
        4 => symlink("/nonexistent/file", path)?,
        5 => {
            fs::write(path, "x")?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o000))?;
        }
        _ => fs::File::create(path)?.set_len(1 << 40)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fatal_calls_are_known() {
        assert!(FATAL.iter().all(|name| CALLS.iter().any(|(known, _)| known == name)));
        assert_eq!(ANSWERS.last().unwrap().1, ["--kill"]);
    }

    #[test]
    fn a_file_of_each_kind() {
        let folder = tempfile::tempdir().unwrap();
        for kind in 0..7 {
            let path = folder.path().join(kind.to_string());
            put(&path, kind).unwrap();
            assert!(path.symlink_metadata().is_ok(), "{kind}");
        }
    }
}
