//! Remembers what kept check from starting a child or from listening at the loopback interface. It keeps
//! Ollama from that too, and is a fault of the system with a name of its own, however many links could not be
//! examined because of it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;

use crate::diagnosis::cause::kernel as cause;
use crate::diagnosis::{Finding, LinkId};

/// The first obstacle.
static FIRST: Mutex<Option<Obstacle>> = Mutex::new(None);

/// What no process can do here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Obstacle {
    /// `/dev/null` cannot be opened.
    NullDevice(String),
    /// No process can be started.
    Process(String),
    /// No address of the loopback interface can be bound and reached.
    Loopback(String),
}

fn remember(obstacle: Obstacle) {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(obstacle);
}

/// Remembers that a child could not be started, unless that is its program's own fault.
pub fn unstarted(name: &str, error: &io::Error) {
    let null = File::options().read(true).write(true).open("/dev/null").err();
    if let Some(obstacle) = of_start(name, error, null.as_ref()) {
        remember(obstacle);
    }
}

/// Returns the obstacle to a start that failed with `error`, where `/dev/null` opens with the error `null`.
fn of_start(name: &str, error: &io::Error, null: Option<&io::Error>) -> Option<Obstacle> {
    if let Some(null) = null {
        return Some(Obstacle::NullDevice(null.to_string()));
    }
    let errno = error.raw_os_error().map(Errno::from_raw)?;
    let of_system = [Errno::EAGAIN, Errno::ENOMEM, Errno::ENOSYS, Errno::EPERM];
    of_system.contains(&errno).then(|| Obstacle::Process(format!("{name}: {}", errno.desc())))
}

/// Remembers that no address of the loopback interface could be bound and reached.
pub fn without_loopback(error: &io::Error) {
    use ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable, PermissionDenied};
    if matches!(error.kind(), AddrNotAvailable | HostUnreachable | NetworkUnreachable | PermissionDenied) {
        remember(Obstacle::Loopback(error.to_string()));
    }
}

/// Makes the first obstacle the finding of the link `kernel`. Returns whether there was one.
pub fn tell(findings: &mut [Finding]) -> bool {
    let Some(first) = FIRST.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return false };
    let Some(kernel) = findings.iter_mut().find(|finding| finding.link == LinkId::Kernel) else {
        return false;
    };
    let finding = match first {
        Obstacle::NullDevice(why) => {
            Finding::fail(cause::NO_NULL_DEVICE, format!("/dev/null cannot be opened: {why}"))
        }
        Obstacle::Process(why) => {
            Finding::fail(cause::NO_PROCESS, format!("no further process can be started: {why}"))
        }
        Obstacle::Loopback(why) => {
            Finding::fail(cause::NO_LOOPBACK, format!("no connection to 127.0.0.1 is possible: {why}"))
        }
    };
    let before = std::mem::replace(kernel, finding);
    kernel.elapsed = before.elapsed;
    kernel.details = before.details;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_told_from_the_program() {
        let error = |errno: Errno| io::Error::from_raw_os_error(errno as i32);
        assert_eq!(of_start("x", &error(Errno::ENOENT), None), None);
        assert_eq!(of_start("x", &error(Errno::EACCES), None), None);
        let no_process = of_start("x", &error(Errno::EAGAIN), None);
        assert!(matches!(no_process, Some(Obstacle::Process(why)) if why.starts_with("x: ")));
        let null = error(Errno::ENOENT);
        assert!(matches!(of_start("x", &error(Errno::ENOENT), Some(&null)), Some(Obstacle::NullDevice(_))));
    }
}
