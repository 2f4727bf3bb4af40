//! Recognises resource limits that end Ollama's programs, from their last output or from the limits that the
//! kernel shows while they run.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::child::{ChildEnd, ChildOutcome};
use super::facts::OpenedFunction;
use super::messages::Facts;
use crate::device::survey::size;
use crate::diagnosis::cause::kernel as cause;
use crate::diagnosis::{Cause, Finding};
use crate::ollama::evidence;

/// A resource limit of a process (setrlimit(2), a unit's `Limit*=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Limit on address space (RLIMIT_AS), or memory that the machine does not have.
    AddressSpace,
    /// Limit on processes (RLIMIT_NPROC or a control group's pids.max). Threads count too, and a thread's
    /// stack needs address space.
    Processes,
    /// Limit on open files (RLIMIT_NOFILE).
    Descriptors,
    /// Limit on the size of files (RLIMIT_FSIZE).
    FileSize,
    /// Limit on the stack (RLIMIT_STACK).
    Stack,
    /// Limit on private writable memory (RLIMIT_DATA).
    Data,
}

/// Stack limit in bytes below which llama-server crashes when it loads a model. Measured with GGML 0.25.1 and
/// SmolLM2: 128 KiB are too few, 160 KiB are enough.
pub const STACK: u64 = 144 << 10;
/// Data limit in bytes below which no Ollama starts, because Go reserves its heap in units of 64 MiB
/// (`heapArenaBytes`). The releases of all eras crash with 66,000 KiB.
const HEAP: u64 = 64 << 20;
/// Data limit in bytes below which a server of the third era, or its llama-server, crashes when it loads a
/// model, because the stacks of all their threads count. Measured on two processors with SmolLM2, the
/// smallest common model: 152,000 KiB are too few, 156,000 are enough.
pub const DATA: u64 = 150 << 20;
/// Limit on address space in bytes below which no Ollama starts. This program's own file already takes 30
/// MiB.
const ADDRESSES: u64 = 32 << 20;
/// Number of open files that suffices for a server and for a check. Both have failed with 30.
const DESCRIPTORS: u64 = 36;
/// Number of open files below which check reports nothing or wrong findings. With 24 or more, check may fail
/// to start a process, and reports that.
const LOOKING: u64 = 24;

impl Limit {
    /// Returns the name of the limited resource.
    fn what(self) -> &'static str {
        match self {
            Self::AddressSpace => "address space",
            Self::Processes => "processes and threads",
            Self::Descriptors => "open files",
            Self::FileSize => "the size of files",
            Self::Stack => "the stack",
            Self::Data => "data",
        }
    }

    /// Returns the remedy for exceeding the limit, as a complete sentence.
    pub fn fix(self) -> &'static str {
        match self {
            Self::AddressSpace => {
                "Lift the limit on address space (ulimit -v; LimitAS= in a unit), in the script that sets it too."
            }
            Self::Processes => {
                "Lift the limit on processes (ulimit -u; LimitNPROC= and TasksMax= in a unit), or that on address \
                 space (ulimit -v; LimitAS=), of which each thread's stack takes a part."
            }
            Self::Descriptors => "Lift the limit on open files (ulimit -n; LimitNOFILE= in a unit).",
            Self::FileSize => "Lift the limit on the size of files (ulimit -f; LimitFSIZE= in a unit).",
            Self::Stack => "Lift the limit on the stack (ulimit -s; LimitSTACK= in a unit).",
            Self::Data => "Lift the limit on data (ulimit -d; LimitDATA= in a unit).",
        }
    }

    /// Creates a failure with `cause`. `found` names the program that exceeded the limit, and the evidence.
    pub fn finding(self, cause: Cause, found: String) -> Finding {
        Finding::fail(cause, found).expected(format!("no limit on {}", self.what())).fix(self.fix())
    }
}

/// Returns the limit that a failed process exceeded, from how it ended or from its last output, and the
/// evidence.
pub fn hit(outcome: &ChildOutcome) -> Option<(Limit, String)> {
    let trouble = outcome.trouble()?;
    match outcome.end {
        ChildEnd::Signal(nix::libc::SIGXFSZ) => return Some((Limit::FileSize, trouble)),
        ChildEnd::Signal(nix::libc::SIGSEGV) if scarce() == Some(Limit::Stack) => {
            return Some((Limit::Stack, trouble));
        }
        // It did not run into anything: it waits.
        ChildEnd::TimedOut(_) => return None,
        ChildEnd::Signal(_) | ChildEnd::Exit(_) => {}
    }
    let (limit, words) = said(&outcome.stderr)?;
    Some((limit, format!("{trouble}: {words}")))
}

/// Returns the limit that a program's output mentions first, and the line.
pub fn said(text: &str) -> Option<(Limit, &str)> {
    let (limit, line) = text.lines().find_map(|line| Some((named(line)?, line.trim())))?;
    Some((meant(limit, scarce()), line))
}

/// Returns the limit that words name where `scarce` is low. A process that may have no more data says the
/// same words as one that may have no more addresses.
pub fn meant(named: Limit, scarce: Option<Limit>) -> Limit {
    match (named, scarce) {
        (Limit::AddressSpace | Limit::Processes, Some(Limit::Data)) => Limit::Data,
        _ => named,
    }
}

/// Returns the limit of this process, which its children inherit, that is lower than what a server is known
/// to need.
pub fn scarce() -> Option<Limit> {
    let known = [
        (Limit::Data, Resource::RLIMIT_DATA, DATA),
        (Limit::Descriptors, Resource::RLIMIT_NOFILE, DESCRIPTORS),
        (Limit::Stack, Resource::RLIMIT_STACK, STACK),
    ];
    known.into_iter().find_map(|(limit, resource, least)| lower(resource, least).map(|_| limit))
}

/// Returns the soft limit of this process if it is below `least`.
fn lower(resource: Resource, least: u64) -> Option<u64> {
    getrlimit(resource).ok().map(|(soft, _)| soft).filter(|soft| *soft < least)
}

/// Returns the limit on address space of this process in bytes, if there is one.
pub fn address_space() -> Option<u64> {
    lower(Resource::RLIMIT_AS, RLIM_INFINITY)
}

/// Returns why nothing can be examined if the limit on open files is below what a check needs.
pub fn too_few() -> Option<String> {
    let files = lower(Resource::RLIMIT_NOFILE, LOOKING)?;
    Some(format!("the limit on open files is {files}, and check needs {LOOKING}"))
}

/// Returns a finding for limits under which no Ollama starts. Further links are not examined, because the
/// check itself would exceed them.
pub fn too_low() -> Option<Finding> {
    let lowest =
        [(Limit::Data, Resource::RLIMIT_DATA, HEAP), (Limit::AddressSpace, Resource::RLIMIT_AS, ADDRESSES)];
    lowest.into_iter().find_map(|(limit, resource, least)| {
        let (what, soft, least) = (limit.what(), size(lower(resource, least)?), size(least));
        let found = format!("the limit on {what} is {soft}, and Ollama's server needs {least}");
        Some(limit.finding(cause::RESOURCE_LIMIT, found))
    })
}

/// Returns the line in which a program gives the reason of its end: one that mentions a limit, or otherwise
/// the first of its last lines.
pub fn fatal(stderr: &str) -> Option<String> {
    said(stderr).map(|(_, line)| line.to_owned()).or_else(|| evidence::last_words(stderr))
}

/// Returns the limit that a line mentions. Device memory does not count, because it is not a limit of the
/// system.
pub fn named(line: &str) -> Option<Limit> {
    const ADDRESS_SPACE: [&str; 8] = [
        "cannot allocate memory",
        "failed to reserve page summary memory",
        "runtime: cannot reserve arena",
        "runtime: out of memory",
        "fatal error: out of memory",
        // Rust's.
        "memory allocation of",
        "std::bad_alloc",
        "cannot be reserved",
    ];
    const PROCESSES: [&str; 5] = [
        "newosproc",
        "failed to create new os thread",
        "pthread_create failed",
        "failed to spawn thread",
        "resource temporarily unavailable",
    ];
    let line = line.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|words| line.contains(words));
    if line.contains("cuda") && line.contains("out of memory") {
        None
    } else if has(&PROCESSES) {
        Some(Limit::Processes)
    } else if has(&["too many open files"]) {
        Some(Limit::Descriptors)
    } else if has(&["file too large"]) {
        Some(Limit::FileSize)
    } else {
        has(&ADDRESS_SPACE).then_some(Limit::AddressSpace)
    }
}

/// Limits of a process in bytes; `u64::MAX` stands for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Limit on address space in bytes (RLIMIT_AS).
    pub address_space: u64,
    /// Limit on data in bytes (RLIMIT_DATA).
    pub data: u64,
    /// Limit on the stack in bytes (RLIMIT_STACK).
    pub stack: u64,
}

impl ProcessLimits {
    /// Limits of a process without limits.
    pub const NONE: Self = Self { address_space: u64::MAX, data: u64::MAX, stack: u64::MAX };

    /// Reads the limits of a process. Returns `None` if the process has ended.
    pub fn of_process(pid: u32) -> Option<Self> {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let limit = |name| parse(&limits, name).unwrap_or(u64::MAX);
        Some(Self {
            address_space: limit("Max address space"),
            data: limit("Max data size"),
            stack: limit("Max stack size"),
        })
    }

    /// Returns the lower of each pair of limits.
    pub fn min(self, other: Self) -> Self {
        Self {
            address_space: self.address_space.min(other.address_space),
            data: self.data.min(other.data),
            stack: self.stack.min(other.stack),
        }
    }
}

/// Parses the soft limit in a line such as `Max address space   102400000000   unlimited   bytes`.
fn parse(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the address space in bytes that a process reserves for these devices when it first uses them.
pub fn needed(opened: &[OpenedFunction]) -> u64 {
    let facts = opened.iter().filter_map(|opened| opened.steps.succeeded::<Facts>());
    facts.map(|facts| facts.address_bytes).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::check::child::ended;

    #[test]
    fn the_line_that_says_why_comes_before_the_dump() {
        let dump = "goroutine 1 [idle]:\nruntime.goexit({})\n".repeat(40);
        let said = format!("fatal error: failed to reserve page summary memory\n\nruntime stack:\n{dump}");
        let (limit, found) = hit(&ended(ChildEnd::Exit(2), "", &said)).unwrap();
        assert_eq!(limit, Limit::AddressSpace);
        assert_eq!(found, "ended with exit code 2: fatal error: failed to reserve page summary memory");
        assert_eq!(fatal("a\npanic: nil map\nb").as_deref(), Some("panic: nil map"));
        assert_eq!(hit(&ended(ChildEnd::Exit(2), "", "panic: nil map")), None);
        assert_eq!(hit(&ended(ChildEnd::Exit(0), "", &said)), None);
    }

    #[test]
    fn words_of_each_limit() {
        for (line, limit) in [
            ("runtime/cgo: pthread_create failed: Resource temporarily unavailable", Some(Limit::Processes)),
            ("fatal error: newosproc", Some(Limit::Processes)),
            (
                "Error: dlopen /l/x.so: cannot open shared object file: Too many open files",
                Some(Limit::Descriptors),
            ),
            (
                "libx.so: cannot create shared object descriptor: Cannot allocate memory",
                Some(Limit::AddressSpace),
            ),
            ("write: file too large", Some(Limit::FileSize)),
            ("CUDA error: out of memory", None),
            ("load_backend: loaded CUDA backend", None),
        ] {
            assert_eq!(named(line), limit, "{line}");
        }
        let (limit, _) = hit(&ended(ChildEnd::Signal(nix::libc::SIGXFSZ), "", "")).unwrap();
        assert_eq!(limit, Limit::FileSize);
    }

    #[test]
    fn limits_of_processes() {
        let line = |value: &str| {
            format!(
                "Max cpu time  unlimited  unlimited  seconds\nMax address space         {value}  unlimited  bytes\n"
            )
        };
        let address_space = |value: &str| parse(&line(value), "Max address space");
        assert_eq!(address_space("102400"), Some(102_400));
        assert_eq!(address_space("unlimited"), None);
        assert_eq!(ProcessLimits::of_process(u32::MAX), None);
        assert!(ProcessLimits::of_process(std::process::id()).is_some());
    }

    proptest! {
        #[test]
        fn any_output_is_read(text in ".{0,80}") {
            let _ = (fatal(&text), named(&text), parse(&text, "a"));
        }
    }
}
