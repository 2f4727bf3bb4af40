//! Link `shims`: checks that this system's loader accepts the libraries. They are delivered as for PROGRAM,
//! and the loader lists what it would load: it maps and binds the libraries without running anything.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Uid;

use super::{permission, unable};
use crate::check::child::{self, ChildOutcome};
use crate::check::context::CheckContext;
use crate::check::identity::Become;
use crate::check::staging::StagedShims;
use crate::check::subject::Subject;
use crate::device::survey::size;
use crate::diagnosis::cause::shims as cause;
use crate::diagnosis::{Finding, LinkId};
use crate::inject::{DeliveryMode, DeliveryPlan};
use crate::launch::user;
use crate::ollama;
use crate::program::elf::Elf;

const LINK: LinkId = LinkId::Shims;
const LIMIT: Duration = Duration::from_secs(8);
/// Common programs for the loader to list if PROGRAM cannot be listed.
const COMMON: [&str; 4] = ["/bin/true", "/usr/bin/env", "/bin/sh", "/usr/bin/sleep"];
/// Common paths of the loader that the shims are made for.
pub(super) const LOADERS: [&str; 3] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    "/usr/lib64/ld-linux-x86-64.so.2",
];

/// Examines the link and returns its finding.
pub async fn examine(context: &mut CheckContext) -> Finding {
    ensure_user(context).await;
    let plan = plan(context);
    let staged = match &context.runs_as {
        None => StagedShims::here(&plan, &context.environment),
        Some(user) => StagedShims::by(user, &plan, &context.environment).await,
    };
    let staged = match staged {
        Ok(staged) => staged,
        Err(finding) => return *finding,
    };
    let bytes: usize = plan.objects.iter().map(|object| object.bytes.len()).sum();
    let way = match (staged.libraries.mode, &staged.libraries.folder) {
        (DeliveryMode::Folder, Some(folder)) => format!("in {}", folder.display()),
        _ => "in memory".to_owned(),
    };
    let paths = staged.libraries.objects.clone();
    let who = context.runs_as.as_ref().map(|user| format!(", of {}", user.user)).unwrap_or_default();
    let found = format!("{} libraries, {}, {way}{who}", paths.len(), size(bytes as u64));
    context.plain = Some(context.environment.clone());
    staged.libraries.apply(&mut context.environment);
    context.staged = Some(staged);

    let Some((loader, program)) = subject(context) else {
        return Finding::pass(LINK, format!("{found}; not tried, because there is no loader of glibc"))
            .detail(LOADERS.join(", "));
    };
    let mut command = context.program(&loader);
    command.arg("--list").arg(&program);
    let mut listed = context.environment.clone();
    // As with `ldd -r`, every symbol is bound and missing ones are printed.
    listed.set("LD_WARN", "yes");
    listed.set("LD_BIND_NOW", "yes");
    let outcome = match child::run_limited(command, &listed, context.time(LIMIT)).await {
        Ok(outcome) => outcome,
        Err(error) => return unable(context, LINK, "start the dynamic loader", &error),
    };
    judge(&outcome, &paths, found)
        .detail(format!("asked {} about {}", loader.display(), program.display()))
        .details(context.reservation.clone())
}

/// Determines the user that Ollama runs as, and makes the environment that user's. Only the first call, by
/// the first link that starts a process for Ollama, has an effect.
pub(super) async fn ensure_user(context: &mut CheckContext) {
    if !context.user_chosen {
        context.user_chosen = true;
        context.reservation = choose_user(context).await;
    }
}

/// Chooses the user for Ollama's processes. Returns a remark if they have to run as the caller instead.
async fn choose_user(context: &mut CheckContext) -> Option<String> {
    let Subject { name, become_by, given_to, .. } = context.subject().ok()?.clone();
    let other = given_to.as_deref().map(Become::user).or(become_by)?;
    let found = user::find(&other.user.parse().ok()?).ok().filter(|found| found.uid != Uid::effective())?;
    if !Uid::effective().is_root() {
        return Some(format!("as the caller: only root can become {name}"));
    }
    if given_to.is_some() && !permission::may_open(context, &other).await {
        return Some(format!("as root: vgpu-run gives the device to {} when it starts", other.user));
    }
    context.dress(&found);
    context.runs_as = Some(other);
    None
}

/// Returns the delivery plan for the program that is to get the GPU.
fn plan(context: &mut CheckContext) -> DeliveryPlan {
    let via = context.launch.via;
    let target = context.target();
    let by_path = target.ollama.as_ref().is_some_and(|ollama| ollama.era.by_path());
    let majors = match &target.program {
        Ok(program) => program
            .preloadable()
            .map(|elf| ollama::majors(program, &elf, target.ollama.as_ref()))
            .unwrap_or_default(),
        Err(_) => BTreeSet::new(),
    };
    DeliveryPlan::new(via, by_path, &majors)
}

/// Returns a loader of glibc, and a dynamic program for it to list: one of the system's, or the probe.
pub(super) fn subject(context: &mut CheckContext) -> Option<(PathBuf, PathBuf)> {
    let target = context.target();
    let theirs = target.program.as_ref().ok().map(|program| program.binary.clone());
    let programs = COMMON.iter().map(PathBuf::from).chain(theirs);
    for program in programs {
        let Ok(file) = vgpu_paths::open_regular(&program) else { continue };
        let Ok(elf) = Elf::read(&file) else { continue };
        let Some(loader) = elf.interpreter.map(PathBuf::from) else { continue };
        let glibc = loader.file_name().is_some_and(|name| name == "ld-linux-x86-64.so.2");
        if elf.x86_64 && glibc && executable(&loader) {
            return Some((loader, program));
        }
    }
    let probe = context.staged.as_ref()?.probe.clone();
    let loader = LOADERS.iter().map(PathBuf::from).find(|path| executable(path))?;
    Some((loader, probe))
}

fn executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

/// Interprets the loader's output.
fn judge(outcome: &ChildOutcome, paths: &[(&'static str, PathBuf)], found: String) -> Finding {
    let said = format!("{}\n{}", outcome.stdout, outcome.stderr);
    let name = |path: &str| {
        paths
            .iter()
            .find(|(_, ours)| ours.as_os_str() == path)
            .map_or_else(|| path.to_owned(), |(name, _)| (*name).to_owned())
    };
    let ours = |line: &&str| paths.iter().any(|(_, path)| line.contains(&path.display().to_string()));
    let evidence = || said.lines().filter(ours).map(|line| line.trim().to_owned()).take(8);
    for line in said.lines() {
        if let Some((path, why)) = refused(line)
            && paths.iter().any(|(_, ours)| ours.as_os_str() == path)
        {
            let cause =
                if why.contains("map segment") || why.contains("shared object") && why.contains("failed") {
                    cause::MAP_REFUSED
                } else {
                    cause::HANDOVER_REFUSED
                };
            return Finding::fail(cause, format!("the loader does not take {}: {why}", name(path)))
                .details(evidence());
        }
        if let Some((what, path)) = unresolved(line)
            && paths.iter().any(|(_, ours)| ours.as_os_str() == path)
        {
            return Finding::fail(
                cause::SHIM_UNRESOLVED,
                format!("{} needs {what}, which this system's C library lacks", name(path)),
            )
            .expected("glibc 2.17 or newer")
            .details(evidence());
        }
    }
    let missing = paths.iter().find(|(_, path)| !outcome.stdout.contains(&path.display().to_string()));
    if let Some(trouble) = outcome.trouble() {
        return Finding::unknown(LINK, format!("the loader {trouble} when asked to list the libraries"))
            .details(outcome.stderr.lines().take(8));
    }
    match missing {
        Some((name, path)) => {
            Finding::unknown(LINK, format!("the loader did not load {name}, and did not say why"))
                .detail(format!("it was given to the loader as {}", path.display()))
                .details(outcome.stdout.lines().take(8))
        }
        None => Finding::pass(LINK, found),
    }
}

/// Parses the library and the reason from `ERROR: ld.so: object 'X' from LD_PRELOAD cannot be preloaded
/// (why): ignored.`
fn refused(line: &str) -> Option<(&str, &str)> {
    let (path, rest) = line.split_once("object '")?.1.split_once('\'')?;
    let why = rest.split_once("cannot be preloaded")?.1.trim_start_matches([' ', '(']);
    let end = why.rfind("): ignored").or_else(|| why.rfind(": ignored")).unwrap_or(why.len());
    Some((path, &why[..end]))
}

/// Parses the missing name and the file from `P: L: version `V' not found (required by X)`, `undefined
/// symbol: S (X)`, or `symbol S version V not defined in file F with link time reference (X)`.
fn unresolved(line: &str) -> Option<(String, &str)> {
    let (_, file) = line.rsplit_once('(')?;
    let file = file.trim_end().strip_suffix(')')?.trim_start_matches("required by ").trim();
    if let Some((_, rest)) = line.split_once("version `") {
        return Some((rest.split_once('\'')?.0.to_owned(), file));
    }
    for begin in ["undefined symbol: ", "symbol "] {
        if let Some(at) = line.find(begin) {
            let symbol = line[at + begin.len()..].split([',', '\t', ' ']).next()?;
            return Some((symbol.to_owned(), file));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::check::child::ChildEnd;
    use crate::check::child::ended;

    fn issue(end: ChildEnd, stdout: &str, stderr: &str) -> Option<String> {
        let paths = [("libcuda.so.1", PathBuf::from("/proc/7/fd/900"))];
        judge(&ended(end, stdout, stderr), &paths, "all".into()).issue()
    }

    #[test]
    fn what_the_loader_says() {
        let mapped = "\t/proc/7/fd/900 (0x7f)\n";
        let lost = |path: &str, why: &str| {
            format!("ERROR: ld.so: object '{path}' from LD_PRELOAD cannot be preloaded ({why}): ignored.\n")
        };
        let ours = |why: &str| lost("/proc/7/fd/900", why);
        let node = "/bin/true: /lib/libc.so.6: version `GLIBC_2.99' not found (required by /proc/7/fd/900)\n";
        let unresolved = |file: &str| format!("{mapped}undefined symbol: frobnicate\t({file})\n");
        let (fine, failed) = (ChildEnd::Exit(0), ChildEnd::Exit(1));
        for (end, stdout, stderr, expected) in [
            (fine, mapped, "", None),
            (
                fine,
                "\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n",
                &ours("failed to map segment from shared object"),
                Some("shims/map-refused"),
            ),
            (fine, "", &ours("cannot open shared object file"), Some("shims/handover-refused")),
            (failed, "", node, Some("shims/shim-unresolved")),
            (fine, &unresolved("/proc/7/fd/900"), "", Some("shims/shim-unresolved")),
            (ChildEnd::Signal(11), "", "", Some("shims/unknown")),
            (fine, "", "", Some("shims/unknown")),
            // Messages about other libraries do not count.
            (
                fine,
                &unresolved("/usr/lib/libother.so"),
                &lost("/usr/lib/libfoo.so", "cannot open shared object file"),
                None,
            ),
        ] {
            assert_eq!(issue(end, stdout, stderr).as_deref(), expected, "{stdout} {stderr}");
        }
    }

    proptest! {
        #[test]
        fn no_line_breaks_the_readers(line in "[ a-z'`():,/.\t]{0,80}") {
            let _ = (refused(&line), unresolved(&line));
        }
    }
}
