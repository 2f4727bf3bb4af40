//! Remembers what kept check from starting a child or from listening at the loopback interface. It keeps
//! Ollama from that too, and is a fault of the system with a name of its own, however many links could not be
//! examined because of it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::discriminant;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use vgpu_findings::child::may_be_filtered;

use crate::diagnosis::cause::kernel as cause;
use crate::diagnosis::fix::kernel as fix;
use crate::diagnosis::{Finding, Fix, LinkId, Status};
use crate::program::find::errno;

/// Program that is started to try whether one can be.
const TRIED: &str = "/proc/self/exe";
/// The obstacles so far, the first of each kind.
static MET: Mutex<Vec<Obstacle>> = Mutex::new(Vec::new());

/// What no process can do here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Obstacle {
    /// `/dev/null` cannot be opened.
    NullDevice(Errno),
    /// No process can be started.
    Process(String, Errno),
    /// No address of the loopback interface can be bound and reached.
    Loopback(String),
}

impl Obstacle {
    /// Returns whether it is still in the way: the act is tried once more, that with the loopback interface
    /// by `reached`.
    fn persists(&self, reached: fn() -> bool) -> bool {
        match self {
            Self::NullDevice(_) => null_device().is_err(),
            Self::Process(..) => {
                let mut command = Command::new(TRIED);
                command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn().and_then(|mut child| child.wait()).is_err()
            }
            Self::Loopback(_) => !reached(),
        }
    }

    /// Returns the finding about it.
    fn finding(self) -> Finding {
        match self {
            Self::NullDevice(errno) => {
                let found = format!("/dev/null cannot be opened: {}", io::Error::from(errno));
                let finding = Finding::fail(cause::NO_NULL_DEVICE, found);
                match errno {
                    Errno::EMFILE | Errno::ENFILE => finding.fix(fix::FILE_LIMIT),
                    Errno::EPERM | Errno::EACCES => finding.fix(fix::NULL_REFUSED),
                    _ => finding,
                }
            }
            Self::Process(name, errno) => {
                let remedy = match errno {
                    errno if may_be_filtered(errno) => Some(fix::CALL_REFUSED),
                    Errno::ENOMEM => Some(fix::NO_MEMORY),
                    _ => None,
                };
                let found = format!("no further process can be started: {name}: {}", errno.desc());
                let finding = Finding::fail(cause::NO_PROCESS, found);
                match remedy {
                    Some(remedy) => finding.fix(remedy),
                    None => finding,
                }
            }
            Self::Loopback(why) => {
                Finding::fail(cause::NO_LOOPBACK, format!("no connection to 127.0.0.1 is possible: {why}"))
            }
        }
    }
}

fn remember(obstacle: Obstacle) {
    let mut met = MET.lock().unwrap_or_else(PoisonError::into_inner);
    if met.iter().all(|known| discriminant(known) != discriminant(&obstacle)) {
        met.push(obstacle);
    }
}

/// Returns whether there has been none so far.
pub fn none() -> bool {
    MET.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}

fn null_device() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

/// Remembers that a child could not be started, unless that is its program's own fault.
pub fn unstarted(name: &str, error: &io::Error) {
    let null = null_device().err();
    if let Some(obstacle) = of_start(name, error, null.as_ref()) {
        remember(obstacle);
    }
}

/// Returns the obstacle to a start that failed with `error`, where `/dev/null` opens with the error `null`.
fn of_start(name: &str, error: &io::Error, null: Option<&io::Error>) -> Option<Obstacle> {
    if let Some(null) = null {
        return Some(Obstacle::NullDevice(errno(null)));
    }
    let errno = error.raw_os_error().map(Errno::from_raw)?;
    let of_system = [Errno::EAGAIN, Errno::ENOMEM, Errno::ENOSYS, Errno::EPERM];
    // This program may be executed, since it runs.
    let own = name.starts_with("vgpu-run ") && errno == Errno::EACCES;
    (own || of_system.contains(&errno)).then(|| Obstacle::Process(name.to_owned(), errno))
}

/// Remembers that no address of the loopback interface could be bound and reached.
pub fn without_loopback(error: &io::Error) {
    if shows_no_loopback(error.kind()) {
        remember(Obstacle::Loopback(error.to_string()));
    }
}

/// Returns whether an error of this kind is that of a loopback interface that is down. One that never was
/// up has no address. One that was taken down keeps its address, and drops what is sent to it.
fn shows_no_loopback(kind: ErrorKind) -> bool {
    use ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable, PermissionDenied, TimedOut};
    matches!(kind, AddrNotAvailable | HostUnreachable | NetworkUnreachable | PermissionDenied | TimedOut)
}

/// Makes the first obstacle that is still there the finding of the link `kernel`. `reached` tries whether an
/// address of the loopback interface can be bound and reached. Returns whether there is such an obstacle.
pub fn tell(findings: &mut [Finding], reached: fn() -> bool) -> bool {
    let met = MET.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(obstacle) = met.into_iter().find(|obstacle| obstacle.persists(reached)) else { return false };
    place(findings, obstacle.finding())
}

/// Puts the finding about an obstacle in the place of that of the link `kernel`, unless that has failed for a
/// reason of its own. The one that is not the finding becomes evidence of the other, with its remedy. Returns
/// whether there is such a link.
pub fn place(findings: &mut [Finding], obstacle: Finding) -> bool {
    let Some(kernel) = findings.iter_mut().find(|finding| finding.link == LinkId::Kernel) else {
        return false;
    };
    if kernel.status == Status::Fail {
        kernel.details.extend(evidence(&obstacle));
        return true;
    }
    let before = std::mem::replace(kernel, obstacle);
    kernel.elapsed = before.elapsed;
    if before.cause.is_some() {
        kernel.details.extend(evidence(&before));
    }
    kernel.details.extend(before.details);
    true
}

/// Returns what is wrong and what mends it, as lines of evidence.
fn evidence(finding: &Finding) -> Vec<String> {
    let mends = finding.fix.as_ref().map(Fix::sentence);
    std::iter::once(finding.found.clone()).chain(mends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_told_from_the_program() {
        let error = |errno: Errno| io::Error::from_raw_os_error(errno as i32);
        assert_eq!(of_start("x", &error(Errno::ENOENT), None), None);
        assert_eq!(of_start("x", &error(Errno::EACCES), None), None);
        assert!(of_start("vgpu-run __worker", &error(Errno::EACCES), None).is_some(), "it runs already");
        let no_process = of_start("x", &error(Errno::EAGAIN), None);
        assert!(matches!(no_process, Some(Obstacle::Process(name, Errno::EAGAIN)) if name == "x"));
        let null = error(Errno::ENOENT);
        assert!(matches!(of_start("x", &error(Errno::ENOENT), Some(&null)), Some(Obstacle::NullDevice(_))));
    }

    #[test]
    fn the_null_device_is_created_only_where_it_is_missing() {
        let command = |errno| Obstacle::NullDevice(errno).finding().fix.unwrap().command;
        let creates = command(Errno::ENOENT).unwrap();
        assert!(creates.contains("mknod") && !creates.contains("rm "), "never without one: {creates}");
        assert_eq!(command(Errno::EMFILE), None);
        assert_eq!(command(Errno::EPERM).as_deref(), Some("ls -l /dev/null"));
    }

    #[test]
    fn a_loopback_interface_that_was_taken_down_drops_what_is_sent() {
        assert!(shows_no_loopback(ErrorKind::TimedOut) && shows_no_loopback(ErrorKind::AddrNotAvailable));
        assert!(!shows_no_loopback(ErrorKind::AddrInUse));
    }

    #[test]
    fn what_has_passed_and_what_has_failed_before() {
        let refused = || Obstacle::NullDevice(Errno::ENOENT);
        assert!(!refused().persists(|| false), "/dev/null opens");
        assert!(
            !Obstacle::Process("x".into(), Errno::EAGAIN).persists(|| false),
            "this test starts a process"
        );
        assert!(Obstacle::Loopback("x".into()).persists(|| false));
        let mut findings = [Finding::pass(LinkId::Kernel, "fine")];
        assert!(place(&mut findings, refused().finding()));
        assert_eq!(findings[0].cause, Some(cause::NO_NULL_DEVICE));
        assert!(place(&mut findings, Obstacle::Process("y".into(), Errno::EAGAIN).finding()));
        assert_eq!(findings[0].cause, Some(cause::NO_NULL_DEVICE), "the first failure");
        assert!(findings[0].details.iter().any(|detail| detail.contains("started: y")));
        let filtered = Obstacle::Process("x".into(), Errno::EPERM).finding();
        assert!(filtered.fix.unwrap().text.contains("clone"), "not a limit");
        assert!(!place(&mut [], refused().finding()));
    }
}
