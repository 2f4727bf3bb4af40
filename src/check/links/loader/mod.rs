//! Link `loader`: determines which file the loader selects for each name, from the loader's own answer, and
//! which other files have that name.

mod script;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::{major, minor};
use vgpu_probe_steps::{Fault, Resolved};

pub use script::follow;

use super::discovery::{self, FoundDriver};
use super::shims::{LOADERS, subject};
use super::unable;
use crate::check::child::ChildOutcome;
use crate::check::context::CheckContext;
use crate::check::facts::{Loser, ResolvedLibrary};
use crate::check::steps::{StepReport, Steps};
use crate::check::{probe, words};
use crate::diagnosis::cause::loader as cause;
use crate::diagnosis::fix::loader as fix;
use crate::diagnosis::{Finding, LinkId};
use crate::embedded::OBJECTS;
use crate::env::{Environment, LD_LIBRARY_PATH, LD_PRELOAD};
use crate::ollama::variant::Variant;
use crate::program::search::Search;

const LINK: LinkId = LinkId::Loader;
const LIMIT: Duration = Duration::from_secs(5);
/// Path of the file with libraries that the loader loads into every process, before those of LD_PRELOAD.
const GLOBAL: &str = "/etc/ld.so.preload";
/// Maximum size of that file in bytes.
const PRELOAD_MOST: u64 = 1 << 20;
/// Variable with another path for that file, for tests.
const GLOBAL_OVERRIDE: &str = "VGPU_LD_SO_PRELOAD";

/// Examines the link in three programs: one that is started as Ollama is, one that Ollama starts to load its
/// backend, and one that is started without LD_PRELOAD, because a script in between removed it.
pub async fn examine(context: &mut CheckContext) -> Finding {
    if context.staged.is_some() && subject(context).is_none() {
        return without_glibc();
    }
    let Some(staged) = &context.staged else {
        return Finding::skip(LINK, "the libraries are not in place");
    };
    let ours: BTreeMap<&'static str, PathBuf> = staged.libraries.objects.iter().cloned().collect();
    let ollama = context.target().ollama.clone();
    let variant = ollama.as_ref().and_then(|ollama| {
        let all = Variant::all(&ollama.libraries);
        all.into_iter().find(|variant| variant.backend().exists())
    });
    let mut kinds = vec![("a program", context.environment.clone())];
    if let (Some(ollama), Some(variant)) = (&ollama, &variant) {
        kinds.push(("Ollama's process for the backend", variant.environment(ollama, &context.environment)));
    }
    let mut stripped = context.environment.clone();
    stripped.remove(LD_PRELOAD);
    kinds.push(("a program without LD_PRELOAD", stripped));

    let names: Vec<&str> = OBJECTS.iter().map(|object| object.soname).collect();
    let mut asked = Vec::new();
    for (kind, environment) in kinds {
        match probe::run_probe(
            context,
            std::iter::once("resolve").chain(names.iter().copied()),
            &environment,
            LIMIT,
        )
        .await
        {
            Ok(outcome) => asked.push(Asked { kind, outcome, environment }),
            Err(why) => return unable(context, LINK, "start vgpu-probe", &why),
        }
    }
    let global = std::env::var_os(GLOBAL_OVERRIDE).map_or_else(|| PathBuf::from(GLOBAL), PathBuf::from);
    let global = entries(&vgpu_paths::read_to_string(&global, PRELOAD_MOST).unwrap_or_default());
    let run_path = variant.map(|variant| variant.folder);
    context.libraries = table(&asked[0], &ours, &global, run_path.as_deref());
    let finding = judge(&asked, &ours, &global, &context.libraries);
    if !finding.holds() {
        let libraries = ollama.as_ref().map(|ollama| ollama.libraries.as_path());
        return words::blamed(finding, &context.environment, libraries, context.unit.as_ref());
    }
    if let Some(other) = by_path(context, &ours) {
        return other.details(finding.details);
    }
    match script::follow(context).await {
        Some(followed) if !followed.holds() => followed.details(finding.details),
        Some(followed) => finding.details(followed.details),
        None => finding,
    }
}

/// Returns the finding for a system without glibc, such as Alpine, whose programs use musl.
fn without_glibc() -> Finding {
    Finding::fail(cause::NO_GLIBC, "this system has no dynamic loader of glibc")
        .expected(LOADERS[0])
        .detail(format!("looked for {}", LOADERS.join(", ")))
}

/// Checks the driver of an Ollama of the first era, which selects the first file called libcuda.so* of its
/// own search.
fn by_path(context: &mut CheckContext, ours: &BTreeMap<&'static str, PathBuf>) -> Option<Finding> {
    let ollama = context.target().ollama.clone().filter(|ollama| ollama.era.by_path())?;
    let taken = discovery::driver_by_path(&discovery::driver_folders(&ollama, &context.environment))?;
    let own = ours.get("libcuda.so.1").and_then(|path| identity(path));
    if own.is_some() && identity(&taken.file) == own {
        return None;
    }
    Some(other_driver(&taken, &ollama.libraries))
}

/// Returns the finding for another driver that an Ollama of the first era opens. Only an entry of Ollama's
/// own directory is moved away: other directories belong to the system or to other programs.
fn other_driver(taken: &FoundDriver, libraries: &Path) -> Finding {
    let found = format!("Ollama's server opens {}, not vgpu-run's libcuda.so.1", taken.file.display());
    let finding = Finding::fail(cause::OTHER_LIBRARY_WINS, found).expected("vgpu-run's");
    match taken.entry.parent() {
        Some(folder) if folder != libraries => finding.fix(fix::PATH_DRIVER).with("folder", folder.display()),
        _ => finding.fix(fix::OTHER_DRIVER).with("path", taken.entry.display()),
    }
}

/// Outcome of asking the loader in one kind of process.
struct Asked {
    kind: &'static str,
    outcome: ChildOutcome,
    environment: Environment,
}

/// Parses the paths of the libraries in `/etc/ld.so.preload`. A `#` starts a comment.
fn entries(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines
        .flat_map(|line| line.split([' ', '\t', ':']))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Returns the loader's answer for a name.
fn resolved(steps: &Steps, soname: &str) -> Option<Resolved> {
    steps.get(soname)?.said()
}

/// Returns whether the file that the loader selected for a name is the delivered one.
fn is_ours(steps: &Steps, soname: &str, ours: &BTreeMap<&'static str, PathBuf>) -> bool {
    let (Some(resolved), Some(path)) = (resolved(steps, soname), ours.get(soname)) else { return false };
    if Path::new(&resolved.path) == path {
        return true;
    }
    let Some((device, inode)) = identity(path) else { return false };
    let Some(file) = resolved.file else { return false };
    let device = format!("{:02x}:{:02x}", major(device), minor(device));
    file.inode == inode && file.device == device
}

/// Returns device and inode of a file, which identify it independently of its path.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Returns the path of the file that was selected for a name: the mapped file's path if it is known.
fn winner(steps: &Steps, soname: &str) -> Option<String> {
    let Resolved { path, file } = steps.get(soname).filter(|report| report.ok)?.said()?;
    let mapped = file.map(|file| file.path).unwrap_or_default();
    Some(if mapped.is_empty() { path } else { mapped })
}

/// Lists the file that is loaded for each name, and the files that are not, with the reason.
fn table(
    asked: &Asked,
    ours: &BTreeMap<&'static str, PathBuf>,
    global: &[String],
    run_path: Option<&Path>,
) -> Vec<ResolvedLibrary> {
    let steps = Steps::read(&asked.outcome.stdout);
    let search = Search::new(
        asked.environment.get(LD_LIBRARY_PATH),
        run_path.map(Path::to_owned).into_iter().collect(),
    );
    let library = |soname: &'static str| {
        let winner = winner(&steps, soname);
        let won_by_preload = is_ours(&steps, soname, ours);
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let own = ours.get(soname).and_then(|path| identity(path));
        let won = winner.as_deref().map(|path| real(Path::new(path)));
        let mut losers = Vec::new();
        for (path, reason) in search.files(soname) {
            if won.as_deref() == Some(&real(&path)) || (own.is_some() && identity(&path) == own) {
                continue;
            }
            let why = if won_by_preload {
                format!("{}; a preloaded library of that name comes first", reason.words())
            } else {
                format!("{}, behind the one that won", reason.words())
            };
            losers.push(Loser { path: path.display().to_string(), why });
        }
        let named =
            |entry: &&String| Path::new(entry.as_str()).file_name().is_some_and(|name| name == soname);
        losers.extend(
            global
                .iter()
                .filter(named)
                .filter(|entry| winner.as_deref() != Some(entry.as_str()))
                .map(|entry| Loser { path: entry.clone(), why: format!("in {GLOBAL}, and not loaded") }),
        );
        ResolvedLibrary { soname: soname.to_owned(), winner, losers }
    };
    OBJECTS.iter().map(|object| library(object.soname)).collect()
}

fn judge(
    asked: &[Asked],
    ours: &BTreeMap<&'static str, PathBuf>,
    global: &[String],
    libraries: &[ResolvedLibrary],
) -> Finding {
    let mut details: Vec<String> = Vec::new();
    for library in libraries {
        let losers = library
            .losers
            .iter()
            .map(|loser| format!("{}: not {} ({})", library.soname, loser.path, loser.why));
        details.extend(losers);
    }
    let (stripped, kept) = asked.split_last().map_or((None, asked), |(last, rest)| (Some(last), rest));
    for asked in kept {
        let steps = Steps::read(&asked.outcome.stdout);
        if steps.done.len() < OBJECTS.len() {
            let how = asked.outcome.trouble().unwrap_or_else(|| "ended without an answer".into());
            let at = steps.open.map(|step| format!(" at {step}")).unwrap_or_default();
            let why = words::of_unsuitable(&asked.outcome.stderr).map(|line| format!(": {line}"));
            let found = format!("the process that asked the loader {how}{at}{}", why.unwrap_or_default());
            return Finding::unknown(LINK, found)
                .details(super::init::lines(&asked.outcome.stderr))
                .details(details);
        }
        // ld.so says so of a name in LD_PRELOAD that it cannot open, and goes on: another's is no harm.
        let named = |line: &str| ours.values().any(|path| line.contains(&format!("'{}'", path.display())));
        let lost = asked.outcome.stderr.lines().filter(|line| line.contains("cannot be preloaded"));
        let (lost, others): (Vec<&str>, Vec<&str>) = lost.partition(|line| named(line));
        details.extend(
            others
                .iter()
                .map(|line| (*line).to_owned())
                .filter(|line| !details.contains(line))
                .collect::<Vec<_>>(),
        );
        if let Some(line) = lost.first() {
            let name = ours.iter().find(|(_, path)| line.contains(&format!("'{}'", path.display())));
            let name = name.map_or("library", |(soname, _)| *soname);
            let found = format!("the loader cannot preload vgpu-run's {name} into {}", asked.kind);
            return Finding::fail(cause::DESCRIPTORS_CLOSED, found).detail(*line).details(details);
        }
        if let Some(object) = OBJECTS.iter().find(|object| !is_ours(&steps, object.soname, ours)) {
            return other_wins(asked, &steps, object.soname, global).details(details);
        }
    }
    if let Some(stripped) = stripped {
        let steps = Steps::read(&stripped.outcome.stdout);
        let lost: Vec<_> = OBJECTS
            .iter()
            .map(|object| object.soname)
            .filter(|soname| !is_ours(&steps, soname, ours))
            .collect();
        if !lost.is_empty() {
            details.push(format!("{} would not get {}", stripped.kind, lost.join(", ")));
        }
    }
    let others: usize = libraries.iter().map(|library| library.losers.len()).sum();
    let found = match others {
        0 => format!("all {} names get vgpu-run's libraries", ours.len()),
        others => format!(
            "all {} names get vgpu-run's libraries; {others} other files of these names lose",
            ours.len()
        ),
    };
    if global.is_empty() {
        return Finding::pass(LINK, found).details(details);
    }
    Finding::warn(cause::GLOBAL_PRELOAD, format!("{GLOBAL} brings {} into every process", global.join(", ")))
        .expected("an empty or missing file")
        .detail(found)
        .details(details)
}

/// Returns the finding for a name for which another file was selected.
fn other_wins(asked: &Asked, steps: &Steps, soname: &str, global: &[String]) -> Finding {
    let Some(path) = winner(steps, soname) else {
        let fault: Fault = steps.get(soname).and_then(StepReport::said).unwrap_or_default();
        let why = fault.error;
        return Finding::unknown(
            LINK,
            format!("the loader gives {} no file for {soname}: {why}", asked.kind),
        );
    };
    let real = |path: &str| std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let listed = |entries: &[String]| entries.iter().any(|entry| real(entry) == real(&path));
    // One that is brought into every process may also change what the loader answers.
    if listed(global) || global.iter().any(|entry| Path::new(entry).is_file()) {
        let found =
            format!("{soname} is {path}, and {GLOBAL} brings {} into every process", global.join(", "));
        return Finding::fail(cause::GLOBAL_PRELOAD, found);
    }
    let preload = asked.environment.get(LD_PRELOAD).unwrap_or_default().to_string_lossy().into_owned();
    let preload: Vec<String> = preload.split([':', ' ']).map(str::to_owned).collect();
    let finding = Finding::fail(
        cause::OTHER_LIBRARY_WINS,
        format!("the loader gives {} {path} for {soname}, not vgpu-run's library", asked.kind),
    )
    .expected("vgpu-run's");
    if listed(&preload) { finding.fix(fix::PRELOADED) } else { finding }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::check::child::ChildEnd;
    use crate::check::child::ended;
    use crate::diagnosis::{Cause, Status};
    use crate::scratch::Scratch;

    fn asked(kind: &'static str, files: &BTreeMap<&str, PathBuf>, stderr: &str) -> Asked {
        let lines: Vec<String> = files
            .iter()
            .map(|(soname, path)| json!({"step": soname, "ok": true, "path": path, "file": {"path": path, "inode": 0, "device": ""}}).to_string())
            .collect();
        let outcome = ended(ChildEnd::Exit(0), &lines.join("\n"), stderr);
        Asked { kind, outcome, environment: Environment::default() }
    }

    fn ours(scratch: &Scratch) -> BTreeMap<&'static str, PathBuf> {
        OBJECTS
            .iter()
            .map(|object| {
                let path = scratch.join(object.soname);
                std::fs::write(&path, "").unwrap();
                (object.soname, path)
            })
            .collect()
    }

    #[test]
    fn ours_win_or_another_is_named() {
        let scratch = Scratch::new();
        let ours = ours(&scratch);
        let all = || vec![asked("a program", &ours, ""), asked("stripped", &BTreeMap::new(), "")];
        let finding = judge(&all(), &ours, &[], &[]);
        assert_eq!(
            (finding.status, finding.found.as_str()),
            (Status::Pass, "all 8 names get vgpu-run's libraries")
        );
        assert!(finding.details[0].starts_with("stripped would not get libcuda.so.1, "), "{finding:?}");
        assert_eq!(judge(&all(), &ours, &["/x.so".into()], &[]).cause, Some(cause::GLOBAL_PRELOAD));

        let mut other = ours.clone();
        other.insert("libcuda.so.1", "/usr/lib/libcuda.so.1".into());
        let lost = |global: &[String]| {
            judge(&[asked("a program", &other, ""), asked("s", &ours, "")], &ours, global, &[])
        };
        let finding = lost(&[]);
        assert_eq!(finding.cause, Some(cause::OTHER_LIBRARY_WINS));
        let found =
            "the loader gives a program /usr/lib/libcuda.so.1 for libcuda.so.1, not vgpu-run's library";
        assert_eq!(finding.found, found);
        let global = lost(&["/usr/lib/libcuda.so.1".into()]);
        assert_eq!((global.status, global.cause), (Status::Fail, Some(cause::GLOBAL_PRELOAD)));
    }

    #[test]
    fn only_what_lies_in_ollamas_directory_is_moved_away() {
        let of = |entry: &str| {
            let taken = FoundDriver { entry: entry.into(), file: "/usr/lib/libcuda.so.580".into() };
            other_driver(&taken, Path::new("/x/lib/ollama")).fix.unwrap()
        };
        let command = of("/x/lib/ollama/libcuda.so.1").command;
        assert_eq!(command.as_deref(), Some("mv /x/lib/ollama/libcuda.so.1 /root/"), "the link alone");
        let brought = of("/usr/lib/libcuda.so");
        assert!(brought.command.is_none() && brought.text.starts_with("Remove /usr/lib from"), "{brought:?}");
    }

    #[test]
    fn what_the_loader_could_not_open_is_told() {
        let scratch = Scratch::new();
        let ours = ours(&scratch);
        let said = |path: &Path| {
            format!(
                "ERROR: ld.so: object '{}' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.",
                path.display()
            )
        };
        let of = |path: &Path| {
            judge(&[asked("a program", &ours, &said(path)), asked("s", &ours, "")], &ours, &[], &[])
        };
        assert_eq!(of(&ours["libcuda.so.1"]).cause, Some(cause::DESCRIPTORS_CLOSED));
        let foreign = of(Path::new("/nonexistent/libforeign.so"));
        assert!(foreign.status == Status::Pass && foreign.details[0].contains("libforeign"), "{foreign:?}");
        let crashed =
            judge(&[asked("a program", &BTreeMap::new(), ""), asked("s", &ours, "")], &ours, &[], &[]);
        assert_eq!(crashed.cause, Some(Cause::unknown(LINK)));
    }

    /// A library of LD_LIBRARY_PATH that ends every program was taken for a fault of this program.
    #[test]
    fn who_brought_a_library_that_ends_the_probe_is_named() {
        let scratch = Scratch::new();
        let ours = ours(&scratch);
        let environment = Environment::from_iter([("LD_LIBRARY_PATH", "/fds:/opt/old")]);
        let said = "vgpu-probe: error while loading shared libraries: /opt/old/libm.so.6: file too short\n";
        let probe = Asked {
            outcome: ended(ChildEnd::Exit(127), "", said),
            ..asked("a program", &BTreeMap::new(), "")
        };
        let finding = judge(&[probe, asked("s", &ours, "")], &ours, &[], &[]);
        let finding = words::blamed(finding, &environment, None, None);
        assert!(finding.found.contains("/opt/old/libm.so.6: file too short"), "{}", finding.found);
        assert_eq!(finding.fix.unwrap().command.as_deref(), Some("unset LD_LIBRARY_PATH"));
    }

    #[test]
    fn losers_are_told_with_the_reason() {
        let scratch = Scratch::new();
        let ours = ours(&scratch);
        let elsewhere = scratch.join("bundled");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("libcudart.so.12"), "").unwrap();
        let table = table(&asked("a program", &ours, ""), &ours, &[], Some(&elsewhere));
        let runtime = table.iter().find(|library| library.soname == "libcudart.so.12").unwrap();
        assert_eq!(runtime.losers.len(), 1);
        assert_eq!(runtime.losers[0].why, "beside the backend; a preloaded library of that name comes first");
    }

    #[test]
    fn entries_of_the_global_file() {
        assert_eq!(entries("/a.so /b.so\n# all\n/c.so # one\n\n"), ["/a.so", "/b.so", "/c.so"]);
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_global_file(text in ".{0,60}") {
            let _ = entries(&text);
        }
    }
}
