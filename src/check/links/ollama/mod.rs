//! Link `ollama`: determines which Ollama gets the GPU and whether it can use it. With `check PROGRAM`,
//! examines that program instead.

mod files;
mod server;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;

use super::home;
use super::unable;
use crate::check::child;
use crate::check::context::CheckContext;
use crate::check::rights;
use crate::check::unit::Unit;
use crate::diagnosis::cause::ollama as cause;
use crate::diagnosis::fix::ollama as fix;
use crate::diagnosis::{Cause, Finding, LinkId};
use crate::embedded::OBJECTS;
use crate::env::{Environment, HOME, LD_LIBRARY_PATH, PATH};
use crate::error::{Failure, LauncherError, chain};
use crate::ollama::backends;
use crate::ollama::era::{self, Era};
use crate::ollama::installer;
use crate::ollama::version;
use crate::program::find::{self, NotFound};
use crate::program::private::{self, Asker, SEEN};
use crate::program::search::Search;
use crate::program::{Program, Unfound};
use crate::waits;
use server::InstalledServer;

const LINK: LinkId = LinkId::Ollama;
/// Paths to try when PATH has no Ollama.
const USUAL: [&str; 4] =
    ["/usr/local/bin/ollama", "/usr/bin/ollama", "/opt/ollama/bin/ollama", "/snap/bin/ollama"];
/// Address without a listener. `ollama -v` also asks the server for its version, and gets no answer there.
const NOWHERE: &str = "127.0.0.1:9";
const LIMIT: Duration = Duration::from_secs(5);

/// Examines the link and returns its finding.
pub async fn examine(context: &mut CheckContext) -> Finding {
    context.target();
    let Some(target) = &context.target else { return Finding::skip(LINK, "not looked for") };
    let program = match &target.program {
        Ok(program) => program,
        Err(Unfound::Program(NotFound::Denied { path, errno })) => return not_executable(path, *errno),
        Err(Unfound::Program(NotFound::Missing(_))) => return missing(context),
        Err(other) => {
            let cause = match other {
                Unfound::Read(..) => Cause::unknown(LINK),
                _ => cause::NOT_EXECUTABLE,
            };
            return Finding::fail(cause, chain(other)).fix(fix::PROGRAM_ITSELF);
        }
    };
    let real = std::fs::canonicalize(&program.path).unwrap_or_else(|_| program.path.clone());
    let shown = program.path.display();
    let evidence = |finding: Finding| {
        finding.details((real != program.path).then(|| format!("{shown} is {}", real.display())))
    };
    if let Some(finding) = confined(program).or_else(|| unsuitable(program)) {
        return evidence(finding);
    }
    let Some(ollama) = &target.ollama else {
        let asked_for = context.options.program.is_some();
        let followed = context.followed.as_deref();
        return evidence(if asked_for {
            other(program, &context.environment)
        } else {
            not_ollama(program, followed)
        });
    };
    let looks = waits::on(ollama.libraries.display().to_string());
    let server = InstalledServer::examine(ollama);
    let refused = match files::refused(context, ollama, &real, server.as_ref()).await {
        Ok(refused) => refused,
        Err(error) => return unable(context, LINK, "look at its files as its user", &error),
    };
    let files = refused.or_else(|| files::incomplete(ollama, &real)).or_else(|| files::damaged(ollama));
    if let Some(finding) = files.or_else(|| server.as_ref().and_then(InstalledServer::unfit)) {
        return evidence(finding);
    }
    drop(looks);
    match home::refused(context).await {
        Ok(Some(finding)) => return evidence(finding),
        Ok(None) => {}
        Err(error) => return unable(context, LINK, "look at Ollama's home as its user", &error),
    }
    let version = if context.options.no_ollama { None } else { ask(program, context).await };
    let era = ollama.era;
    let mut details = vec![format!("libraries in {}", ollama.libraries.display())];
    if let Some(version) = &version
        && let Some(said) = version::era(version)
        && said != era
    {
        details.push(format!(
            "it says that it is {version}, but looks for GPUs as releases of era {era:?} do, not {said:?}"
        ));
    }
    let others = others(&real, &context.environment);
    let mixed = files::leftovers(ollama);
    let name = version.as_ref().map_or_else(|| "Ollama".to_owned(), |version| format!("Ollama {version}"));
    let found = format!("{name} at {shown}, {}", way(era));
    if let Some(version) = version {
        context.versions.insert("ollama", version);
    }
    let finding = if let Some(other) = mixed.first() {
        Finding::warn(cause::MIXED_INSTALL, format!("{name} at {shown} is beside files of another release"))
            .fix(fix::CLEAN)
            .with("folder", ollama.libraries.display())
            .with("install", installer::command())
            .detail(other.clone())
    } else if let Some(other) = others.first() {
        second(&found, other, context.unit.as_ref())
    } else {
        Finding::pass(LINK, found)
    };
    evidence(finding.details(details))
}

/// Returns the finding for another Ollama beside the examined one. A service starts the one that its unit
/// names, whatever PATH has.
fn second(found: &str, other: &Path, unit: Option<&Unit>) -> Finding {
    let other = other.display();
    let finding = Finding::warn(cause::MIXED_INSTALL, format!("{found}; there is another at {other}"));
    match unit {
        Some(unit) => finding.fix(fix::OTHER_THAN_THE_SERVICES).with("unit", &unit.name),
        None => finding.fix(fix::ONE_OF_TWO),
    }
}

/// Describes how an Ollama of this era looks for GPUs.
fn way(era: Era) -> &'static str {
    match era {
        Era::A => "looks for GPUs in its server",
        Era::B => "looks for GPUs in a runner",
        Era::C => "looks for GPUs in llama-server",
    }
}

fn missing(context: &CheckContext) -> Finding {
    if let Some(path) = &context.options.ollama {
        return Finding::fail(cause::OLLAMA_MISSING, format!("there is no program {}", path.display()))
            .fix(fix::OPTION);
    }
    if let Some(path) = &context.options.program {
        return Finding::unknown(LINK, format!("there is no program {}", path.display())).fix(fix::PROGRAM);
    }
    if let Some(pid) = elsewhere() {
        return Finding::fail(
            cause::OLLAMA_CONFINED,
            format!("Ollama runs in a container (process {pid}), and none is on PATH"),
        )
        .detail(format!("/proc/{pid}/root is not this program's root"));
    }
    absent(&context.environment, &USUAL)
}

/// Returns the finding for an Ollama that is neither on PATH nor in another root directory, but may be in one
/// of the `usual` places.
fn absent(environment: &Environment, usual: &[&str]) -> Finding {
    if let Some(path) = usual.iter().find(|path| Path::new(path).exists()) {
        return Finding::fail(cause::OLLAMA_MISSING, format!("ollama is not on PATH, but there is {path}"))
            .fix(fix::PATH)
            .with("path", path);
    }
    let found = match leading_nowhere(environment) {
        Some((link, target)) => {
            format!("{} leads to {}, which does not exist", link.display(), target.display())
        }
        None => "there is no ollama on PATH".to_owned(),
    };
    Finding::fail(cause::OLLAMA_MISSING, found)
        .with("install", installer::command())
        .detail(format!("looked at {} and in PATH", usual.join(", ")))
}

/// Returns the first link called ollama on PATH whose target does not exist, and the target.
fn leading_nowhere(environment: &Environment) -> Option<(PathBuf, PathBuf)> {
    let path = environment.get(PATH)?;
    let mut links = std::env::split_paths(path).map(|folder| folder.join("ollama"));
    links.find_map(|link| {
        let target = find::led_to(&link, &std::fs::read_link(&link).ok()?);
        rights::missing(&link).then_some((link, target))
    })
}

/// Returns the id of a process called ollama that runs in another mount namespace.
fn elsewhere() -> Option<u32> {
    let own = std::fs::read_link("/proc/self/ns/mnt").ok()?;
    let entries = std::fs::read_dir("/proc").ok()?;
    entries.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        let namespace = std::fs::read_link(entry.path().join("ns/mnt")).ok()?;
        (name.trim() == "ollama" && namespace != own).then_some(pid)
    })
}

/// Names of programs that start others in a root directory of their own.
const CONFINERS: [&str; 9] =
    ["docker", "podman", "nerdctl", "snap", "flatpak", "kubectl", "lxc", "systemd-nspawn", "chroot"];
/// Number of bytes at the start of a file from which a text is told.
const HEAD: u64 = 256;
/// Maximum number of bytes of a script that are read.
const SCRIPT: u64 = 64 << 10;

/// Returns a finding for a program that starts Ollama in a root directory of its own, such as a snap or a
/// container. Neither memory files nor directories of this system are visible there.
pub fn confined(program: &Program) -> Option<Finding> {
    let path = &program.path;
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    let in_snap = [path.as_path(), real.as_path()]
        .iter()
        .any(|path| path.starts_with("/snap") || path.starts_with("/var/lib/snapd"));
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    let through = CONFINERS.iter().copied().find(|confiner| *confiner == name);
    let through = through.or_else(|| if program.is_binary() { None } else { confiner(&script(&real)) });
    let shown = path.display();
    if in_snap || through == Some("snap") {
        return Some(
            Finding::fail(cause::OLLAMA_CONFINED, format!("{shown} is a snap"))
                .fix(fix::SNAP)
                .with("install", installer::command()),
        );
    }
    through.map(|through| {
        Finding::fail(cause::OLLAMA_CONFINED, format!("{shown} starts Ollama through {through}"))
    })
}

fn script(path: &Path) -> String {
    let mut text = Vec::new();
    // A script that cannot be read counts as one without a confiner.
    let _ = vgpu_paths::open_regular(path).and_then(|file| file.take(SCRIPT).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the confiner that a script calls, as a word outside comments.
fn confiner(script: &str) -> Option<&'static str> {
    let lines = script.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words =
        lines.flat_map(|line| line.split(|byte: char| byte.is_whitespace() || ";|&()`\"'".contains(byte)));
    words.find_map(|word| {
        let name = word.rsplit('/').next().unwrap_or_default();
        CONFINERS.iter().copied().find(|confiner| *confiner == name)
    })
}

fn unsuitable(program: &Program) -> Option<Finding> {
    let unsuitable = program.preloadable().err()?;
    let (cause, fix) = (unsuitable.diagnosis().unwrap_or(Cause::unknown(LINK)), unsuitable.fix());
    Some(Finding { fix, ..Finding::fail(cause, Failure::from(unsuitable).sentence()) })
}

/// Examines a program that is not an Ollama: whether it requests tables that only NVIDIA's own driver has. A
/// statically linked runtime always does; a library may, and whether it is called is unknown.
fn other(program: &Program, environment: &Environment) -> Finding {
    let mut files = vec![program.binary.clone()];
    let beside = std::fs::canonicalize(&program.binary).map(|real| backends::beside(&real));
    files.extend(beside.unwrap_or_default().into_iter().filter(|path| path.exists()));
    let own: Vec<Asker> = files.iter().cloned().map(Asker::Runtime).collect();
    let ours = OBJECTS.iter().map(|object| object.soname).collect();
    let found =
        private::find_askers(files, &Search::new(environment.get(LD_LIBRARY_PATH), Vec::new()), &ours);
    let breaks = found.askers.iter().find(|asker| own.contains(asker));
    let finding = match (breaks, found.askers.first()) {
        (Some(asker), _) => Finding::fail(cause::PRIVATE_TABLES, asker.to_string()).fix(asker.remedy()),
        (None, Some(asker)) => Finding::warn(cause::PRIVATE_TABLES, asker.to_string()).fix(asker.remedy()),
        (None, None) => {
            let found = "nothing asks for NVIDIA's private export tables";
            Finding::pass(LINK, format!("{} is no Ollama, and {found}", program.path.display()))
        }
    };
    let linked_in = found.askers.iter().any(|asker| matches!(asker, Asker::Runtime(_)));
    finding
        .details(found.askers.iter().map(Asker::to_string))
        .details(linked_in.then(|| format!("linked in: {SEEN}")))
        .details(found.unseen.iter().map(|line| format!("not examined: {line}")))
        .details((!program.is_binary()).then(|| format!("it is a script for {}", program.binary.display())))
        .detail("libraries that it opens while it runs, as Python opens its modules, cannot be known before")
}

/// Returns the finding for a program that is no Ollama. `followed` says how it ended, if it is a script
/// that was started.
fn not_ollama(program: &Program, followed: Option<&str>) -> Finding {
    let path = program.path.display();
    if !program.is_binary() && !is_text(&program.path) {
        return files::broken(&program.path, &"it is neither a program nor a script");
    }
    if let Some(Err(error)) = program.file().filter(|_| program.is_binary()).map(era::recognise) {
        return files::broken(&program.path, &error);
    }
    let interpreter = program.binary.display();
    let finding = if program.is_binary() {
        Finding::fail(cause::NOT_OLLAMA, format!("{path} is not a known Ollama"))
    } else if let Some(how) = followed {
        let found = format!("{path} is a script for {interpreter} {how}");
        Finding::fail(cause::NOT_OLLAMA, found).fix(fix::SCRIPT)
    } else {
        let found = format!("{path} is a script for {interpreter}, not Ollama's program");
        Finding::fail(cause::NOT_OLLAMA, found)
    };
    finding.detail("releases of Ollama from 0.5.8 on are recognised, by texts in their binary")
}

/// Returns whether a file without an interpreter may be a script: the shell takes any text for one.
fn is_text(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = vgpu_paths::open_regular(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    // What cannot be read is told elsewhere.
    read.is_err() || head.starts_with(b"#!") || !head.contains(&0)
}

/// Returns the finding for a program that exists and may not be executed.
fn not_executable(path: &Path, errno: Errno) -> Finding {
    if path.is_dir() {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let found = if path.is_symlink() {
            format!("{} leads to {}, which is a directory", path.display(), real.display())
        } else {
            format!("{} is a directory", path.display())
        };
        return Finding::fail(cause::NOT_OLLAMA, found).fix(fix::AGAIN).with("install", installer::command());
    }
    if std::fs::metadata(path).is_ok_and(|file| file.len() == 0) {
        return files::broken(path, &"it is empty");
    }
    let found = format!("{} may not be executed: {}", path.display(), errno.desc());
    let finding = Finding::fail(cause::NOT_EXECUTABLE, found);
    files::searched(finding, path, &rights::own_rights(path).at)
}

/// Returns the paths of other Ollamas on PATH and in the usual locations.
fn others(real: &Path, environment: &Environment) -> Vec<PathBuf> {
    let folders =
        environment.get(PATH).map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
    let places = folders.into_iter().map(|folder| folder.join("ollama")).chain(USUAL.map(PathBuf::from));
    let mut seen = vec![real.to_owned()];
    places
        .filter(|place| {
            let Ok(real) = std::fs::canonicalize(place) else { return false };
            let new = real.is_file() && !seen.contains(&real) && !is_script(&real);
            seen.push(real);
            new
        })
        .collect()
}

/// Returns whether the file is a script. A script that starts an Ollama does not count as a second one.
fn is_script(path: &Path) -> bool {
    let mut head = [0; 2];
    vgpu_paths::open_regular(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && &head == b"#!"
}

/// Returns an environment in which `ollama -v` contacts no server.
pub fn alone(environment: &Environment) -> Environment {
    let mut environment = environment.clone();
    environment.set("OLLAMA_HOST", NOWHERE);
    if environment.get(HOME).is_none() {
        // Ollama ends at once without one.
        environment.set(HOME, "/");
    }
    environment
}

/// Runs `ollama -v` and returns the version that it prints.
async fn ask(program: &Program, context: &CheckContext) -> Option<String> {
    let environment = alone(&context.environment);
    let mut command = context.program(&program.path);
    command.arg("-v");
    let outcome = child::run_limited(command, &environment, context.time(LIMIT)).await.ok()?;
    version::parse(&format!("{}\n{}", outcome.stdout, outcome.stderr)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_second_ollama_beside_a_service_is_named_with_the_unit() {
        let other = Path::new("/usr/bin/ollama");
        let sentence = |unit: Option<&Unit>| second("Ollama", other, unit).fix.unwrap().sentence();
        let unit = Unit::with(&[]);
        let text = sentence(Some(&unit));
        assert!(text.contains(&unit.name) && !text.contains("systemctl"), "{text}");
        assert!(sentence(None).contains("by its path"), "a shell takes the first on PATH");
    }

    #[test]
    fn what_is_called_ollama_and_is_none() {
        let scratch = Scratch::new();
        let path = scratch.join("ollama");
        // Looked at, never started.
        let of = |content: &[u8], followed: Option<&str>| {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            not_ollama(&Program::find(path.as_os_str(), None).unwrap(), followed)
        };
        assert_eq!(of(b"\xff\0garbage", None).cause, Some(cause::OLLAMA_DAMAGED), "no shell reads that");
        assert_eq!(of(b"exit 1\n", None).cause, Some(cause::NOT_OLLAMA));
        let failed = of(b"#!/bin/sh\nexit 1\n", Some("that starts no Ollama: it ended"));
        assert!(failed.found.ends_with("that starts no Ollama: it ended"), "{}", failed.found);
        assert!(failed.fix.unwrap().text.starts_with("Correct the script"));
    }

    #[test]
    fn links_that_lead_elsewhere_are_named() {
        let scratch = Scratch::new();
        let [folder, nowhere] = ["to-folder", "nowhere"].map(|name| scratch.join(name));
        std::os::unix::fs::symlink("/proc", &folder).unwrap();
        let finding = not_executable(&folder, Errno::EACCES);
        assert!(finding.found.ends_with("leads to /proc, which is a directory"), "{}", finding.found);
        std::fs::create_dir(&nowhere).unwrap();
        std::os::unix::fs::symlink("../no/such/file", nowhere.join("ollama")).unwrap();
        let path = nowhere.display().to_string();
        let environment = Environment::from_iter([("PATH", path.as_str())]);
        let stale = absent(&environment, &["/no/such/ollama"]);
        let target = std::fs::canonicalize(scratch.path()).unwrap().join("no/such/file");
        let found = format!("ollama leads to {}, which does not exist", target.display());
        assert!(stale.found.ends_with(&found), "{}", stale.found);
        let usual = absent(&environment, &["/proc/self/exe"]);
        assert!(usual.found.contains("but there is /proc/self/exe"), "no link hides it: {}", usual.found);
    }

    #[test]
    fn scripts_that_confine() {
        assert_eq!(confiner("#!/bin/sh\nexec docker exec -it ollama ollama \"$@\"\n"), Some("docker"));
        assert_eq!(confiner("/usr/bin/podman run x"), Some("podman"));
        assert_eq!(confiner("# not docker\nexec /opt/ollama \"$@\" # docker-like"), None);
        assert_eq!(confiner("x=$(snap list)"), Some("snap"));
    }

    #[test]
    fn a_program_called_snap_is_one() {
        let scratch = Scratch::new();
        let snap = scratch.join("snap");
        // Looked at, never started.
        std::fs::write(&snap, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&snap, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink(&snap, scratch.join("ollama")).unwrap();
        let program = Program::find(scratch.join("ollama").as_os_str(), None).unwrap();
        assert_eq!(confined(&program).unwrap().cause, Some(cause::OLLAMA_CONFINED));
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_reader(text in ".{0,120}") {
            let _ = confiner(&text);
        }
    }
}
