//! Descriptors that this process was started with: those that a service manager passes (sd_listen_fds(3)),
//! and those that an earlier program of this process has left open for this one. It is the only module of
//! this crate with unsafe code, because a number in a variable says nothing of who owns the descriptor.
//!
//! [`Inherited::at_start`] is the first thing that `main` does. The process has one thread then and has
//! opened nothing itself, so whatever number the variables name is nobody else's.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use vgpu_device::RaisedPriority;

/// First number that a service manager passes.
const FIRST: RawFd = 3;
/// Maximum number of descriptors that are taken.
pub(crate) const MOST: usize = 1024;
/// Name of a descriptor for which the manager has given none.
const UNNAMED: &str = "unknown";
/// Variables of a service manager. They are removed, because a program that this process executes under its
/// own number would take them for its own.
const MANAGER: [&str; 4] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"];
/// Variable by which a program of this process names descriptors to the next one, in the form of
/// [`named_numbers`].
pub const HANDED_OVER: &str = "VGPU_DEVICE_DESCRIPTORS";

/// Variable by which a program of this process tells the next one that it has a raised priority.
pub(crate) const HURRIED: &str = "VGPU_DEVICE_HURRIED";

/// Reason for which the descriptors cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum InheritedError {
    /// A variable is not what its author writes.
    #[error("take over the descriptors of {variable}: {value:?} is not its form")]
    Form {
        /// Name of the variable.
        variable: &'static str,
        /// Value of the variable.
        value: String,
    },
    /// A number is one of standard input, output and error, or is named twice.
    #[error("take over descriptor {number} ({name}): it is not one that can be passed, or is passed twice")]
    Number {
        /// The number.
        number: RawFd,
        /// Its name.
        name: String,
    },
    /// A descriptor is not open.
    #[error("take over descriptor {number} ({name})")]
    Closed {
        /// The number.
        number: RawFd,
        /// Its name.
        name: String,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// They have been taken, or this process has other threads, which may have opened descriptors.
    #[error("take over descriptors: it is too late for that")]
    Late,
}

/// Descriptors by name, in the order in which they were passed. A name may occur more than once.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Those of the service manager.
    pub kept: Vec<(String, OwnedFd)>,
    /// Those of the program that ran before in this process.
    pub handed_over: Vec<(String, OwnedFd)>,
    /// The raised priority of that program.
    pub priority: Option<RaisedPriority>,
}

impl Inherited {
    /// Takes all descriptors that the variables of this process name, and removes the variables. `main` calls
    /// it before anything else. From then on no program that this process starts inherits them.
    ///
    /// # Errors
    /// A variable is wrong, or this is not the first call.
    pub fn at_start() -> Result<Self, InheritedError> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let variable = |name: &str| std::env::var_os(name);
        let kept = of_manager(std::process::id(), variable)?;
        let handed_over = variable(HANDED_OVER).map(numbers_of).transpose()?.unwrap_or_default();
        if kept.is_empty() && handed_over.is_empty() {
            return Ok(Self::default());
        }
        if TAKEN.swap(true, Ordering::AcqRel) || threads() != Some(1) {
            return Err(InheritedError::Late);
        }
        let priority = variable(HURRIED).map(|_| RaisedPriority::inherited());
        for name in MANAGER.into_iter().chain([HANDED_OVER, HURRIED]) {
            // SAFETY: This process has one thread, so that nobody reads the environment meanwhile.
            unsafe { std::env::remove_var(name) };
        }
        let mut seen = BTreeSet::new();
        let mut adopt_all = |numbers: Vec<(RawFd, String)>| {
            let adopted = numbers.into_iter().map(|(number, name)| adopt(&mut seen, number, name));
            adopted.collect::<Result<Vec<_>, _>>()
        };
        Ok(Self { kept: adopt_all(kept)?, handed_over: adopt_all(handed_over)?, priority })
    }
}

/// Takes a descriptor by its number.
fn adopt(
    seen: &mut BTreeSet<RawFd>,
    number: RawFd,
    name: String,
) -> Result<(String, OwnedFd), InheritedError> {
    if number < FIRST || !seen.insert(number) {
        return Err(InheritedError::Number { number, name });
    }
    // SAFETY: The value lives for this call. If the number is not open, the first use says so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(borrowed).and_then(|flags| fcntl_setfd(borrowed, flags | FdFlags::CLOEXEC));
    if let Err(error) = flags {
        return Err(InheritedError::Closed { number, name, source: error.into() });
    }
    // SAFETY: The descriptor is open, and nobody else owns it: it was named to this process as its own, each
    // number is taken once, and this process has opened nothing before (see the module's documentation).
    Ok((name, unsafe { OwnedFd::from_raw_fd(number) }))
}

/// Returns numbers and names of what a service manager has passed to the process with this id.
fn of_manager(
    process: u32,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(RawFd, String)>, InheritedError> {
    let number = |name: &'static str| {
        let Some(value) = variable(name) else { return Ok(None) };
        let text = value.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match text.and_then(|text| text.parse::<u32>().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(InheritedError::Form { variable: name, value: lossy(value) }),
        }
    };
    // What was passed to a process before this one is none of this one's.
    if number("LISTEN_PID")? != Some(process) {
        return Ok(Vec::new());
    }
    let Some(count) = number("LISTEN_FDS")? else { return Ok(Vec::new()) };
    if count as usize > MOST {
        return Err(InheritedError::Form { variable: "LISTEN_FDS", value: count.to_string() });
    }
    let names: Vec<String> = match variable("LISTEN_FDNAMES") {
        // Where there are no names, as many unnamed ones.
        None => vec![UNNAMED.to_owned(); count as usize],
        Some(value) => lossy(value).split(':').map(str::to_owned).collect(),
    };
    if count > 0 && names.len() != count as usize {
        return Err(InheritedError::Form { variable: "LISTEN_FDNAMES", value: names.join(":") });
    }
    Ok((FIRST..).zip(names).take(count as usize).collect())
}

/// Returns the value of [`HANDED_OVER`] that names these descriptors, which must survive the execution.
#[must_use]
pub fn named_numbers<'a>(files: impl IntoIterator<Item = (&'a str, BorrowedFd<'a>)>) -> String {
    let named = files.into_iter().map(|(name, file)| format!("{}={name}", file.as_fd().as_raw_fd()));
    named.collect::<Vec<_>>().join(":")
}

/// Parses a value of [`named_numbers`].
fn numbers_of(value: OsString) -> Result<Vec<(RawFd, String)>, InheritedError> {
    let text = lossy(value);
    let pair = |pair: &str| {
        let (number, name) = pair.split_once('=')?;
        Some((number.parse().ok()?, name.to_owned()))
    };
    let parts = text.split(':').filter(|part| !part.is_empty());
    let numbers: Option<Vec<_>> = parts.take(MOST + 1).map(pair).collect();
    match numbers {
        Some(numbers) if numbers.len() <= MOST => Ok(numbers),
        _ => Err(InheritedError::Form { variable: HANDED_OVER, value: text }),
    }
}

/// Returns the number of this process's threads, or `None` if it is not known.
fn threads() -> Option<usize> {
    std::fs::read_dir("/proc/self/task").ok().map(Iterator::count)
}

fn lossy(value: OsString) -> String {
    String::from_utf8_lossy(&value.into_vec()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(process: u32, variables: &[(&str, &str)]) -> Result<Vec<(RawFd, String)>, InheritedError> {
        of_manager(process, |name| {
            let found = variables.iter().find(|(known, _)| *known == name)?;
            Some(OsString::from(found.1))
        })
    }

    #[test]
    fn what_a_manager_passes_has_its_names() {
        let pid = ("LISTEN_PID", "7");
        let two = passed(7, &[pid, ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "record:ram-1-2")]).unwrap();
        assert_eq!(two, [(3, "record".to_owned()), (4, "ram-1-2".to_owned())]);
        assert_eq!(passed(7, &[pid, ("LISTEN_FDS", "1")]).unwrap(), [(3, UNNAMED.to_owned())]);
        assert!(passed(8, &[pid, ("LISTEN_FDS", "2")]).unwrap().is_empty(), "another process's");
        assert!(passed(7, &[("LISTEN_FDS", "2")]).unwrap().is_empty());
        assert!(passed(7, &[pid]).unwrap().is_empty());
        for wrong in [
            &[pid, ("LISTEN_FDS", "-1")][..],
            &[pid, ("LISTEN_FDS", "1025")],
            &[pid, ("LISTEN_FDS", "4294967296")],
            &[pid, ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "one")],
            &[("LISTEN_PID", "7x"), ("LISTEN_FDS", "2")],
        ] {
            assert!(matches!(passed(7, wrong), Err(InheritedError::Form { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_handed_over_is_read_as_it_was_written() {
        let (one, two) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let text = named_numbers([("state", one.as_fd()), ("window", two.as_fd())]);
        let numbers = numbers_of(text.into()).unwrap();
        assert_eq!(numbers, [(one.as_raw_fd(), "state".to_owned()), (two.as_raw_fd(), "window".to_owned())]);
        assert!(numbers_of(OsString::new()).unwrap().is_empty());
        for wrong in ["state", "x=state", "=state", "5000000000=state"] {
            assert!(matches!(numbers_of(wrong.into()), Err(InheritedError::Form { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_descriptor_is_taken_once_and_closed_on_execution() {
        let file = tempfile::tempfile().unwrap();
        let number = rustix::io::fcntl_dupfd_cloexec(&file, 500).unwrap();
        fcntl_setfd(&number, FdFlags::empty()).unwrap();
        let number = std::os::fd::IntoRawFd::into_raw_fd(number);
        let mut seen = BTreeSet::new();
        let (name, taken) = adopt(&mut seen, number, "window".to_owned()).unwrap();
        assert_eq!((name.as_str(), taken.as_raw_fd()), ("window", number));
        assert!(fcntl_getfd(&taken).unwrap().contains(FdFlags::CLOEXEC));
        let again = adopt(&mut seen, number, "window".to_owned());
        assert!(matches!(again, Err(InheritedError::Number { .. })), "{again:?}");
        for number in [-1, 0, 2] {
            let wrong = adopt(&mut seen, number, "x".to_owned());
            assert!(matches!(wrong, Err(InheritedError::Number { .. })), "{number}");
        }
        let closed = adopt(&mut seen, 1_000_000, "x".to_owned());
        assert!(matches!(closed, Err(InheritedError::Closed { .. })), "{closed:?}");
    }
}
