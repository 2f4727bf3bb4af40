//! Link `kernel`: checks by trying that this system, and the service's sandbox, permit the injection of
//! libraries.

use std::path::{Path, PathBuf};

use nix::unistd::Uid;

use super::broken;
use crate::check::context::CheckContext;
use crate::check::http;
use crate::check::unit::Unit;
use crate::diagnosis::cause::kernel as cause;
use crate::diagnosis::fix::kernel as fix;
use crate::diagnosis::{Finding, LinkId};
use crate::embedded::EmbeddedObject;
use crate::inject::InjectError;
use crate::inject::folder::{self, Content, PrivateFolder};
use crate::inject::memfd::{self, MemfdError};
use crate::inject::owner::Owner;

const LINK: LinkId = LinkId::Kernel;
/// Object of one page that is delivered in place of a library, as a test.
static PAGE: EmbeddedObject = EmbeddedObject { soname: "vgpu-run-check", bytes: &[0; 4096] };

/// Examines the link and returns its finding.
pub async fn examine(context: &mut CheckContext) -> Finding {
    let owner = match Owner::this() {
        Ok(owner) => owner,
        Err(error) => {
            return broken(LINK, InjectError::Process(error)).detail("/proc/self/stat was looked for");
        }
    };
    // Of a system without a loopback interface, `obstacles` tells at the end of the walk.
    let _ = http::free_port();
    let mut evidence = Vec::new();
    let memory = memfd::all(&[&PAGE], owner.pid());
    if memory.as_ref().is_err_and(MemfdError::too_large) {
        // Nothing can be tried without a page. The link shims says what is wrong.
        return Finding::pass(LINK, "not tried: the limit on the size of files is less than a page");
    }
    if let Err(error) = &memory {
        evidence.push(format!("memory files: {}", crate::error::chain(error)));
    }
    let mut place = None;
    for candidate in folder::candidates(&context.environment, Uid::effective()) {
        match PrivateFolder::create(&candidate, owner, Content::Files(&[&PAGE])) {
            Ok(_) => {
                place = Some(candidate);
                break;
            }
            Err(unfit) => evidence.push(format!("{}: {unfit}", candidate.display())),
        }
    }
    let sandbox =
        context.unit.as_ref().map(|unit| Sandbox::from_unit(unit, &context.environment)).unwrap_or_default();
    let places = folder::candidates(&context.environment, Uid::effective());
    let finding = judge(memory.is_ok(), place.as_deref(), &sandbox, context.unit.as_ref(), &places);
    evidence.extend(sandbox.reasons);
    let lsm = vgpu_paths::read_to_string(&context.root.join("kernel/security/lsm"), 4096).unwrap_or_default();
    if !lsm.trim().is_empty() {
        tracing::debug!(lsm = lsm.trim(), "security modules");
    }
    finding.details(evidence)
}

/// Judges what the unit's sandbox leaves of the two ways that the system permits: memory files, and files in
/// the directory `place`. The unit is blamed only for what the system itself permits. `places` are the
/// directories that were tried.
fn judge(
    memory: bool,
    place: Option<&Path>,
    sandbox: &Sandbox,
    unit: Option<&Unit>,
    places: &[PathBuf],
) -> Finding {
    if memory && !sandbox.memory {
        return Finding::pass(LINK, "libraries can be mapped from memory");
    }
    if let Some(place) = place.filter(|_| !sandbox.folders) {
        return Finding::pass(LINK, format!("libraries can be mapped from {}", place.display()));
    }
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    let found =
        format!("neither memory files nor files in {} can be mapped for execution", places.join(", "));
    let fail = |found: String| {
        Finding::fail(cause::NO_EXECUTABLE_MAPPING, found)
            .expected("memory files, or one directory on a file system that is not mounted noexec")
    };
    // What is left is taken away by the sandbox.
    match unit.filter(|_| memory || place.is_some()) {
        Some(unit) => fail(format!("in {} {found}", unit.name)).fix(fix::IN_UNIT).with("unit", &unit.name),
        None => fail(found),
    }
}

/// Restrictions of a unit's sandbox on the delivery of libraries.
#[derive(Debug, Default)]
struct Sandbox {
    memory: bool,
    folders: bool,
    reasons: Vec<String>,
}

impl Sandbox {
    fn from_unit(unit: &Unit, environment: &crate::env::Environment) -> Self {
        let mut sandbox = Self::default();
        let filter = unit.get("SystemCallFilter");
        if refuses(filter, "memfd_create") {
            sandbox.memory = true;
            sandbox.reasons.push(format!("SystemCallFilter={} leaves no memfd_create", shorten(filter)));
        }
        let places = folder::candidates(environment, Uid::effective());
        let no_exec = |place: &Path| unit.covers("NoExecPaths", place) && !unit.covers("ExecPaths", place);
        if !unit.get("NoExecPaths").is_empty()
            && places.iter().filter(|place| place.exists()).all(|place| no_exec(place))
        {
            sandbox.folders = true;
            sandbox.reasons.push(format!("NoExecPaths={} covers every folder", unit.get("NoExecPaths")));
        }
        sandbox
    }
}

/// Returns whether a filter of system calls forbids a call: `~a b` forbids these calls, and `a b` permits
/// only these. Groups (`@system-service`) contain memfd_create; systemctl itself prints the expanded list of
/// calls.
fn refuses(filter: &str, call: &str) -> bool {
    let mut names = filter.split_ascii_whitespace();
    let Some(first) = names.next() else { return false };
    let (denies, first) = match first.strip_prefix('~') {
        Some(first) => (true, first),
        None => (false, first),
    };
    let listed = std::iter::once(first).chain(names).any(|name| {
        let name = name.trim_start_matches('~').split(':').next().unwrap_or_default();
        name == call || (!denies && ["@system-service", "@known", "@default-all"].contains(&name))
    });
    listed == denies
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_call_filters() {
        assert!(!refuses("", "memfd_create"));
        assert!(refuses("~memfd_create", "memfd_create"));
        assert!(refuses("~@mount memfd_create:EPERM", "memfd_create"));
        assert!(!refuses("~@mount", "memfd_create"));
        assert!(!refuses("@system-service", "memfd_create"));
        assert!(!refuses("read memfd_create write", "memfd_create"));
        assert!(refuses("read write", "memfd_create"));
    }

    #[test]
    fn a_unit_is_blamed_for_what_the_system_permits() {
        let unit = Unit::with(&[]);
        let sandbox = Sandbox { memory: true, folders: true, reasons: Vec::new() };
        let place = Path::new("/dev/shm");
        let of = |memory, place| judge(memory, place, &sandbox, Some(&unit), &["/dev/shm".into()]);
        for (memory, place) in [(true, None), (false, Some(place)), (true, Some(place))] {
            let finding = of(memory, place);
            assert!(finding.found.starts_with("in ollama.service neither "), "{}", finding.found);
            assert_eq!(finding.fix.unwrap().command.as_deref(), Some("systemctl edit ollama.service"));
        }
        let system = of(false, None);
        assert!(system.found.starts_with("neither "), "{}", system.found);
        assert_eq!(system.fix, Finding::fail(cause::NO_EXECUTABLE_MAPPING, "").fix);
        let open = judge(false, Some(place), &Sandbox::default(), Some(&unit), &[]);
        assert_eq!(open.found, "libraries can be mapped from /dev/shm");
    }

    #[test]
    fn a_sandbox_without_folders() {
        let environment = crate::env::Environment::default();
        let sandbox = |exec: &str| {
            let unit = Unit::with(&[("NoExecPaths", "/"), ("ExecPaths", exec)]);
            Sandbox::from_unit(&unit, &environment)
        };
        assert!(sandbox("/usr").folders && !sandbox("/usr").memory);
        assert!(!sandbox("/usr /dev/shm").folders);
    }
}
