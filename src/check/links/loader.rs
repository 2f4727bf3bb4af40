//! Link `loader`: which file a process gets for each name, found out by asking the loader itself, and which other files bear the name.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use nix::sys::stat::{major, minor};
use tokio::process::Command;

use super::{discovery, unable};
use crate::check::catalogue::{LinkId, UNKNOWN};
use crate::check::child::{self, Outcome, Report, Steps};
use crate::check::context::{Context, Library, Loser, Target};
use crate::check::finding::Finding;
use crate::check::probe;
use crate::embedded::OBJECTS;
use crate::env::{Environment, LD_LIBRARY_PATH, LD_PRELOAD};
use crate::ollama::variant::Variant;
use crate::program::Program;
use crate::program::elf::Elf;
use crate::program::search::Search;

const LINK: LinkId = LinkId::Loader;
const LIMIT: Duration = Duration::from_secs(5);
/// Names libraries that enter every process, before LD_PRELOAD does.
const GLOBAL: &str = "/etc/ld.so.preload";
/// Another place for it: for tests.
const GLOBAL_OVERRIDE: &str = "VGPU_LD_SO_PRELOAD";

/// Looks at the link: in a program that is started as Ollama is, in one that Ollama starts to load its backend, and in one from which something
/// on the way took LD_PRELOAD.
pub async fn look(context: &mut Context) -> Finding {
    let Some(injection) = &context.injection else {
        return Finding::skip(LINK, "the libraries are not in place");
    };
    let ours: BTreeMap<&'static str, PathBuf> = injection.objects().collect();
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
        match probe::run(
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
    let global = entries(&std::fs::read_to_string(global).unwrap_or_default());
    let run_path = variant.map(|variant| variant.folder);
    context.libraries = table(&asked[0], &ours, &global, run_path.as_deref());
    let finding = judge(&asked, &ours, &global, &context.libraries);
    if !finding.holds() {
        return finding;
    }
    if let Some(other) = by_path(context, &ours) {
        return other.details(finding.details);
    }
    match follow(context).await {
        Some(followed) if !followed.holds() => followed.details(finding.details),
        Some(followed) => finding.details(followed.details),
        None => finding,
    }
}

/// An Ollama of the first era takes the first file called libcuda.so* of its own search.
fn by_path(context: &mut Context, ours: &BTreeMap<&'static str, PathBuf>) -> Option<Finding> {
    let ollama = context.target().ollama.clone().filter(|ollama| ollama.era.by_path())?;
    let taken = discovery::driver_by_path(&discovery::driver_folders(&ollama, &context.environment))?;
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let own = ours.get("libcuda.so.1").and_then(|path| identity(path));
    if own.is_some() && identity(&taken) == own {
        return None;
    }
    let found = format!("Ollama's server opens {}, not vgpu-run's libcuda.so.1", taken.display());
    let fix = "Take that file away: an Ollama before 0.12.4 looks into its own folder first, then into those of LD_LIBRARY_PATH.";
    Some(Finding::fail(LINK, "other-library-wins", found).expected("vgpu-run's").fix(fix))
}

/// A script that starts Ollama is followed to the program that it becomes: it may take LD_PRELOAD away, or close what that names.
async fn follow(context: &mut Context) -> Option<Finding> {
    let script = context.target().program.as_ref().ok().filter(|program| !program.is_binary())?;
    if super::ollama::confined(script).is_some() {
        return None;
    }
    let script = script.path.clone();
    let mut command = Command::new("/proc/self/exe");
    command.arg0("vgpu-run");
    if let Some(way) = context.launch.via.and_then(|way| way.to_possible_value()) {
        command.args(["--via", way.get_name()]);
    }
    command.args(["__look", "follow", "--"]).arg(&script).arg("-v");
    let environment = super::ollama::alone(&context.environment);
    let outcome = match child::run(command, &environment, context.time(LIMIT)).await {
        Ok(outcome) => outcome,
        Err(error) => return Some(unable(context, LINK, "follow the program", &error)),
    };
    let (finding, program) = judge_script(&script, &outcome);
    if let Some(program) = program
        && let Ok(program) = Program::find(program.as_os_str(), None)
        && let Some(ollama) = crate::ollama::recognise(&program)
    {
        // From here on it is the program itself that is looked at.
        context.target = Some(Target { program: Ok(program), ollama: Some(ollama) });
    }
    Some(finding)
}

/// What the programs got that came of a script, and the last of them.
fn judge_script(script: &Path, outcome: &Outcome) -> (Finding, Option<PathBuf>) {
    let steps = outcome.steps();
    let programs: Vec<_> = steps.done.iter().filter(|report| report.step == "exec" && report.ok).collect();
    let is_ollama = |name: &str| {
        Path::new(name).file_name().is_some_and(|name| name.to_string_lossy().starts_with("ollama"))
    };
    let last = programs.iter().rev().find(|report| is_ollama(report.text("program"))).or(programs.last());
    let script = script.display();
    let (Some(first), Some(last)) = (programs.first(), last) else {
        let why = steps.failed().map(|report| report.text("error").to_owned()).or_else(|| outcome.trouble());
        let why = why.unwrap_or_else(|| "it starts nothing".into());
        return (
            Finding::pass(LINK, "").detail(format!("{script} is a script, and could not be followed: {why}")),
            None,
        );
    };
    let number = |report: &Report, field: &str| report.whole(field).unwrap_or_default();
    let program = last.text("program");
    let details: Vec<String> = programs
        .iter()
        .map(|report| {
            let (named, reached) = (number(report, "named"), number(report, "reached"));
            format!("{script} starts {}: LD_PRELOAD names {named} of vgpu-run's libraries, {reached} can be reached", report.text("program"))
        })
        .collect();
    let expected = format!("{} libraries", number(first, "named"));
    let finding = if number(last, "named") < number(first, "named") {
        Finding::fail(LINK, "preload-stripped", format!("{script} starts {program} without what LD_PRELOAD named"))
            .expected(expected)
            .fix("Have vgpu-run start the program itself, or take out of the script what sets or clears LD_PRELOAD.")
            .command(format!("vgpu-run {program} serve"))
    } else if number(last, "reached") < number(last, "named") {
        Finding::fail(
            LINK,
            "descriptors-closed",
            format!("{script} closes the descriptors of the libraries before it starts {program}"),
        )
        .expected(expected)
        .fix("Have the libraries put into a folder, or take out of the script what closes descriptors.")
        .command(format!("vgpu-run --via folder {script} serve"))
    } else if let Some((file, soname)) = ahead(last) {
        let found = format!("{script} starts {program} with {file} before vgpu-run's {soname}");
        Finding::fail(LINK, "other-library-wins", found)
            .expected("vgpu-run's libraries first")
            .fix("Have vgpu-run start the program itself, or take out of the script what changes LD_PRELOAD.")
            .command(format!("vgpu-run {program} serve"))
    } else {
        Finding::pass(LINK, "")
    };
    (finding.details(details), Some(program.into()))
}

/// A library of one of our names that the loader takes before ours.
fn ahead(report: &Report) -> Option<(String, &'static str)> {
    let before = report.fields.get("before")?.as_array()?;
    before.iter().filter_map(|entry| entry.as_str()).find_map(|entry| {
        let soname = Elf::read(&std::fs::File::open(entry).ok()?).ok()?.soname?;
        let object = OBJECTS.iter().find(|object| object.soname == soname)?;
        Some((entry.to_owned(), object.soname))
    })
}

/// What one kind of process answered.
struct Asked {
    kind: &'static str,
    outcome: Outcome,
    environment: Environment,
}

/// The libraries in `/etc/ld.so.preload`; `#` begins a comment.
fn entries(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines
        .flat_map(|line| line.split([' ', '\t', ':']))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Whether the file that a name got is the one that we put there.
fn is_ours(steps: &Steps, soname: &str, ours: &BTreeMap<&'static str, PathBuf>) -> bool {
    let (Some(report), Some(path)) = (steps.get(soname), ours.get(soname)) else { return false };
    if Path::new(report.text("path")) == path {
        return true;
    }
    let Ok(metadata) = std::fs::metadata(path) else { return false };
    let Some(file) = report.fields.get("file") else { return false };
    let device = format!("{:02x}:{:02x}", major(metadata.dev()), minor(metadata.dev()));
    file["inode"].as_u64() == Some(metadata.ino()) && file["device"].as_str() == Some(&device)
}

/// The file that a name got, as a person knows it.
fn winner(steps: &Steps, soname: &str) -> Option<String> {
    let report = steps.get(soname).filter(|report| report.ok)?;
    let mapped = report.fields.get("file").and_then(|file| file["path"].as_str()).unwrap_or_default();
    let shown = if mapped.is_empty() { report.text("path") } else { mapped };
    Some(shown.to_owned())
}

/// Who won for each name, who lost, and why.
fn table(
    asked: &Asked,
    ours: &BTreeMap<&'static str, PathBuf>,
    global: &[String],
    run_path: Option<&Path>,
) -> Vec<Library> {
    let steps = asked.outcome.steps();
    let search = Search::new(
        asked.environment.get(LD_LIBRARY_PATH),
        run_path.map(Path::to_owned).into_iter().collect(),
    );
    let library = |soname: &'static str| {
        let winner = winner(&steps, soname);
        let won_by_preload = is_ours(&steps, soname, ours);
        let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let own = ours
            .get(soname)
            .and_then(|path| std::fs::metadata(path).ok())
            .map(|file| (file.dev(), file.ino()));
        let won = winner.as_deref().map(|path| real(Path::new(path)));
        let mut losers = Vec::new();
        for (path, reason) in search.files(soname) {
            let file = std::fs::metadata(&path).ok().map(|file| (file.dev(), file.ino()));
            if won.as_deref() == Some(&real(&path)) || file == own {
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
        Library { soname: soname.to_owned(), winner, losers }
    };
    OBJECTS.iter().map(|object| library(object.soname)).collect()
}

fn judge(
    asked: &[Asked],
    ours: &BTreeMap<&'static str, PathBuf>,
    global: &[String],
    libraries: &[Library],
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
        let steps = asked.outcome.steps();
        if steps.done.len() < OBJECTS.len() {
            let how = asked.outcome.trouble().unwrap_or_else(|| "ended without an answer".into());
            let at = steps.open.map(|step| format!(" at {step}")).unwrap_or_default();
            return Finding::fail(LINK, UNKNOWN, format!("the process that asked the loader {how}{at}"))
                .details(super::init::lines(&asked.outcome.stderr))
                .details(details);
        }
        // ld.so says so of a name in LD_PRELOAD that it cannot open, and goes on.
        if let Some(line) = asked.outcome.stderr.lines().find(|line| line.contains("cannot be preloaded")) {
            return Finding::fail(
                LINK,
                "descriptors-closed",
                format!("in {} a library could not be preloaded", asked.kind),
            )
            .fix("Put the libraries into a folder.")
            .command("vgpu-run --via folder ollama serve")
            .detail(line)
            .details(details);
        }
        if let Some(object) = OBJECTS.iter().find(|object| !is_ours(&steps, object.soname, ours)) {
            return other_wins(asked, &steps, object.soname, global).details(details);
        }
    }
    if let Some(stripped) = stripped {
        let steps = stripped.outcome.steps();
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
    Finding::warn(LINK, "global-preload", format!("{GLOBAL} brings {} into every process", global.join(", ")))
        .expected("an empty or missing file")
        .fix("Take out what you do not need there.")
        .command(format!("editor {GLOBAL}"))
        .as_root()
        .detail(found)
        .details(details)
}

/// Another file won for a name.
fn other_wins(asked: &Asked, steps: &Steps, soname: &str, global: &[String]) -> Finding {
    let Some(path) = winner(steps, soname) else {
        let why = steps.get(soname).map(|report| report.text("error").to_owned()).unwrap_or_default();
        return Finding::fail(LINK, UNKNOWN, format!("in {} {soname} gets no file: {why}", asked.kind));
    };
    let real = |path: &str| std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let listed = |entries: &[String]| entries.iter().any(|entry| real(entry) == real(&path));
    // One that is brought into every process may also change what the loader answers.
    if listed(global) || global.iter().any(|entry| Path::new(entry).is_file()) {
        let found =
            format!("{soname} is {path}, and {GLOBAL} brings {} into every process", global.join(", "));
        return Finding::fail(LINK, "global-preload", found)
            .fix("Take out of that file what you do not need there.")
            .command(format!("editor {GLOBAL}"))
            .as_root();
    }
    let preload = asked.environment.get(LD_PRELOAD).unwrap_or_default().to_string_lossy().into_owned();
    let preload: Vec<String> = preload.split([':', ' ']).map(str::to_owned).collect();
    let finding = Finding::fail(
        LINK,
        "other-library-wins",
        format!("in {} {soname} is {path}, not vgpu-run's", asked.kind),
    )
    .expected("vgpu-run's");
    if listed(&preload) {
        finding.fix("Take it out of LD_PRELOAD.").command("unset LD_PRELOAD")
    } else {
        finding.fix("Start Ollama through vgpu-run and nothing that changes LD_PRELOAD or LD_LIBRARY_PATH.")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::check::child::End;
    use crate::check::finding::Status;
    use crate::scratch::Scratch;

    fn asked(kind: &'static str, files: &BTreeMap<&str, PathBuf>, stderr: &str) -> Asked {
        let lines: Vec<String> = files
            .iter()
            .map(|(soname, path)| json!({"step": soname, "ok": true, "path": path, "file": {"path": path, "inode": 0, "device": ""}}).to_string())
            .collect();
        let outcome = Outcome {
            end: End::Exit(0),
            stdout: lines.join("\n"),
            stderr: stderr.into(),
            elapsed: Duration::ZERO,
        };
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
        assert_eq!(judge(&all(), &ours, &["/x.so".into()], &[]).cause, Some("global-preload"));

        let mut other = ours.clone();
        other.insert("libcuda.so.1", "/usr/lib/libcuda.so.1".into());
        let lost = |global: &[String]| {
            judge(&[asked("a program", &other, ""), asked("s", &ours, "")], &ours, global, &[])
        };
        let finding = lost(&[]);
        assert_eq!(finding.cause, Some("other-library-wins"));
        assert_eq!(finding.found, "in a program libcuda.so.1 is /usr/lib/libcuda.so.1, not vgpu-run's");
        let global = lost(&["/usr/lib/libcuda.so.1".into()]);
        assert_eq!((global.status, global.cause), (Status::Fail, Some("global-preload")));
    }

    #[test]
    fn scripts_are_judged_by_what_their_program_gets() {
        let of = |last: &str| {
            let first = r#"{"step":"exec","ok":true,"program":"/bin/sh","named":8,"reached":8}"#;
            let stdout = format!("{first}\n{last}\n");
            let outcome =
                Outcome { end: End::Exit(0), stdout, stderr: String::new(), elapsed: Duration::ZERO };
            judge_script(Path::new("/x/ollama"), &outcome)
        };
        let program = |named: u32, reached: u32| {
            format!(
                r#"{{"step":"exec","ok":true,"program":"/o/ollama","named":{named},"reached":{reached}}}"#
            )
        };
        let (finding, found) = of(&program(8, 8));
        assert_eq!((finding.status, found), (Status::Pass, Some("/o/ollama".into())));
        assert_eq!(of(&program(0, 0)).0.cause, Some("preload-stripped"));
        assert_eq!(of(&program(8, 0)).0.cause, Some("descriptors-closed"));
        let (nothing, found) = judge_script(
            Path::new("/x"),
            &Outcome {
                end: End::Exit(1),
                stdout: String::new(),
                stderr: String::new(),
                elapsed: Duration::ZERO,
            },
        );
        assert!(nothing.holds() && found.is_none() && nothing.details[0].contains("could not be followed"));
    }

    #[test]
    fn what_the_loader_could_not_open_is_told() {
        let scratch = Scratch::new();
        let ours = ours(&scratch);
        let said = "ERROR: ld.so: object '/proc/1/fd/900' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.";
        let finding = judge(&[asked("a program", &ours, said), asked("s", &ours, "")], &ours, &[], &[]);
        assert_eq!(finding.cause, Some("descriptors-closed"));
        let crashed =
            judge(&[asked("a program", &BTreeMap::new(), ""), asked("s", &ours, "")], &ours, &[], &[]);
        assert_eq!(crashed.cause, Some(UNKNOWN));
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
