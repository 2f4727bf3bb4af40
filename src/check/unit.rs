//! Determines systemd's configuration of a service: its user, command, environment and sandbox. The source is
//! `systemctl show`, or the unit's files and drop-ins if that does not answer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::child::{self, ChildEnd};
use super::sandbox;
use crate::env::Environment;
use crate::systemd::{PLACES, UnitFiles, settings};
use crate::waits;

/// Time limit for `systemctl show`.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum size in bytes of a unit file or an environment file. systemd reads no more than a MiB of a line.
const MOST: u64 = 4 << 20;
/// Properties that `systemctl show` is asked for, beside those of the sandbox.
const PROPERTIES: &str = "LoadState,ActiveState,MainPID,ExecStart,EnvironmentFiles,FragmentPath,DropInPaths,NeedDaemonReload,\
    ControlGroup,ExecMainStartTimestamp";

/// A unit's properties, as `systemctl show` names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Name of the unit, with the suffix `.service`.
    pub name: String,
    /// Properties by name.
    pub properties: BTreeMap<String, String>,
    /// Paths of the files with the properties, if systemctl did not answer; empty otherwise.
    pub files: Vec<PathBuf>,
}

/// Reason why the properties of a unit are unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The unit does not exist.
    #[error("there is no service {0}")]
    Missing(String),
}

/// Determines the properties of the unit `name`; the suffix may be omitted.
pub async fn find(name: &str, environment: &Environment) -> Result<Unit, UnitError> {
    let name = if name.contains('.') { name.to_owned() } else { format!("{name}.service") };
    if let Some(properties) = ask(&name, environment).await {
        let unit = Unit { name, properties, files: Vec::new() };
        return if unit.get("LoadState") == "not-found" {
            Err(UnitError::Missing(unit.name))
        } else {
            Ok(unit)
        };
    }
    let places: Vec<PathBuf> = PLACES.iter().map(PathBuf::from).collect();
    read(&name, &places).ok_or(UnitError::Missing(name))
}

async fn ask(name: &str, environment: &Environment) -> Option<BTreeMap<String, String>> {
    let mut command = Command::new("systemctl");
    command.args(["show", "--no-pager", &format!("--property={PROPERTIES},{}", sandbox::shown()), name]);
    let outcome = child::run_limited(command, environment, LIMIT).await.ok()?;
    if outcome.end != ChildEnd::Exit(0) {
        tracing::debug!(stderr = outcome.stderr, end = ?outcome.end, "systemctl does not answer");
        return None;
    }
    let properties: BTreeMap<String, String> = outcome
        .stdout
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    (!properties.is_empty()).then_some(properties)
}

/// Reads a unit's file. A file that is a link to /dev/null is masked and counts as empty.
fn content(path: &Path) -> std::io::Result<String> {
    let _waits = waits::on(path.display().to_string());
    if std::fs::canonicalize(path).is_ok_and(|real| real == Path::new("/dev/null")) {
        return Ok(String::new());
    }
    vgpu_paths::read_to_string(path, MOST)
}

/// Reads a unit and its drop-ins from `places`.
fn read(name: &str, places: &[PathBuf]) -> Option<Unit> {
    let files = UnitFiles::find(name, places);
    let main = files.main.as_ref()?;
    let mut unit = Unit { name: name.to_owned(), ..Unit::default() };
    unit.properties.insert("FragmentPath".into(), main.display().to_string());
    let shown: Vec<_> = files.drop_ins.iter().map(|path| path.display().to_string()).collect();
    unit.properties.insert("DropInPaths".into(), shown.join(" "));
    for path in files.iter() {
        let text = match content(path) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a unit's file cannot be read");
                continue;
            }
        };
        apply(&mut unit.properties, &text);
        unit.files.push(path.to_owned());
    }
    Some(unit)
}

/// Settings whose values accumulate. An empty value clears the list.
const LISTS: [&str; 10] = [
    "Environment",
    "EnvironmentFile",
    "SupplementaryGroups",
    "SystemCallFilter",
    "ReadOnlyPaths",
    "InaccessiblePaths",
    "NoExecPaths",
    "ExecPaths",
    "RestrictFileSystems",
    "ExecStart",
];

/// Applies the `[Service]` section of a unit file.
fn apply(properties: &mut BTreeMap<String, String>, text: &str) {
    for (key, value) in settings(text, "Service") {
        let adds = LISTS.contains(&key.as_str());
        let known = properties.entry(key).or_default();
        if adds && !value.is_empty() && !known.is_empty() {
            known.push(' ');
            known.push_str(&value);
        } else {
            *known = value;
        }
    }
}

#[cfg(test)]
impl Unit {
    /// Creates the unit `ollama.service` with these properties.
    pub fn with(properties: &[(&str, &str)]) -> Self {
        let owned = properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Self { name: "ollama.service".into(), properties: owned.collect(), files: Vec::new() }
    }
}

impl Unit {
    /// Returns a property, or an empty text if it is not set or not known.
    pub fn get(&self, key: &str) -> &str {
        self.properties.get(key).map_or("", String::as_str)
    }

    /// Returns whether a boolean property is on.
    pub fn on(&self, key: &str) -> bool {
        matches!(self.get(key), "yes" | "true" | "1" | "on")
    }

    /// Returns the service's user, unless it is root.
    pub fn user(&self) -> Option<&str> {
        Some(self.get("User")).filter(|user| !user.is_empty() && !["root", "0"].contains(user))
    }

    /// Returns the program and arguments that the unit starts. systemctl's form is `{ path=… ; argv[]=… ; …
    /// }`.
    pub fn command(&self) -> Vec<String> {
        let text = self.get("ExecStart");
        let argv =
            text.split_once("argv[]=").map_or(text, |(_, rest)| rest.split(" ; ").next().unwrap_or(rest));
        let mut words = words(argv);
        if let Some(first) = words.first_mut() {
            // Prefixes that change how it is started.
            *first = first.trim_start_matches(['@', '-', ':', '+', '!', '|']).to_owned();
        }
        words
    }

    /// Returns the paths of the unit's environment files.
    fn variable_files(&self) -> impl Iterator<Item = &str> {
        let files = [self.get("EnvironmentFiles"), self.get("EnvironmentFile")];
        let paths = files.into_iter().flat_map(str::split_ascii_whitespace);
        paths.map(|path| path.trim_start_matches('-')).filter(|path| path.starts_with('/'))
    }

    /// Returns the environment files that exist and cannot be read, with the errors. The variables in them
    /// are unknown.
    pub fn unread(&self) -> Vec<(String, std::io::Error)> {
        let read = |path: &str| content(Path::new(path)).err();
        let failed = self.variable_files().filter_map(|path| Some((path.to_owned(), read(path)?)));
        failed.filter(|(_, error)| error.kind() != std::io::ErrorKind::NotFound).collect()
    }

    /// Returns the variables that the unit sets, in order. Those of environment files come last, because they
    /// take precedence.
    pub fn environment(&self) -> Vec<(String, String)> {
        let mut variables: Vec<(String, String)> =
            words(self.get("Environment")).iter().filter_map(|word| variable(word)).collect();
        for path in self.variable_files() {
            // See `unread`.
            let text = content(Path::new(path)).unwrap_or_default();
            variables.extend(
                text.lines()
                    .map(str::trim)
                    .filter(|line| !line.starts_with(['#', ';']))
                    .filter_map(|line| variable(&words(line).join(" "))),
            );
        }
        variables
    }

    /// Returns whether an entry of the list property `key`, without its prefixes `-` and `+`, is `path` or a
    /// directory above it.
    pub fn covers(&self, key: &str, path: &Path) -> bool {
        self.get(key)
            .split_ascii_whitespace()
            .map(|entry| entry.trim_start_matches(['-', '+']))
            .any(|entry| path.starts_with(entry))
    }
}

fn variable(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

/// Splits a text into words as systemd does: on spaces, with quotes of both kinds.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (_, '\\') => word.get_or_insert_default().extend(letters.next()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_unit_with_drop_ins() {
        let scratch = Scratch::new();
        let (etc, lib) = (scratch.join("etc"), scratch.join("lib"));
        std::fs::create_dir_all(etc.join("ollama.service.d")).unwrap();
        std::fs::create_dir_all(lib.join("ollama.service.d")).unwrap();
        std::fs::write(
            lib.join("ollama.service"),
            "[Unit]\nUser=nobody\n[Service]\n# a comment\nUser=ollama\nExecStart=/usr/local/bin/ollama serve\n\
             Environment=\"PATH=/usr/bin:/bin\" A=1\n",
        )
        .unwrap();
        std::fs::write(
            etc.join("ollama.service.d/vgpu.conf"),
            "[Service]\nExecStart=\nExecStart=-/usr/bin/vgpu-run \\\n  ollama serve\nEnvironment='B=two words'\n\
             ProtectKernelTunables=yes\n",
        )
        .unwrap();
        std::fs::write(lib.join("ollama.service.d/vgpu.conf"), "[Service]\nUser=never\n").unwrap();
        std::os::unix::fs::symlink("/dev/null", etc.join("ollama.service.d/masked.conf")).unwrap();
        let unit = read("ollama.service", &[etc, lib]).unwrap();
        assert_eq!(unit.user(), Some("ollama"));
        assert_eq!(unit.files.len(), 3, "a masked file is read, and empty");
        assert_eq!(unit.command(), ["/usr/bin/vgpu-run", "ollama", "serve"]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            unit.environment(),
            [pair("PATH", "/usr/bin:/bin"), pair("A", "1"), pair("B", "two words")]
        );
        assert!(unit.on("ProtectKernelTunables") && !unit.on("PrivateDevices"));
        assert_eq!(read("other.service", &[scratch.join("etc")]), None);
    }

    #[test]
    fn what_systemctl_says_of_a_command() {
        let shown =
            "{ path=/usr/bin/vgpu-run ; argv[]=/usr/bin/vgpu-run ollama serve ; ignore_errors=no ; pid=7 }";
        let unit = Unit::with(&[("ExecStart", shown)]);
        assert_eq!(unit.command(), ["/usr/bin/vgpu-run", "ollama", "serve"]);
        assert_eq!(unit.user(), None);
    }

    #[test]
    fn lists_of_paths() {
        let unit = Unit::with(&[("ReadOnlyPaths", "/boot -/sys")]);
        assert!(unit.covers("ReadOnlyPaths", Path::new("/sys/bus/pci")));
        assert!(!unit.covers("ReadOnlyPaths", Path::new("/system")));
        assert!(!unit.covers("InaccessiblePaths", Path::new("/sys")));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_readers(text in "[\\[\\]a-zA-Z=\"'\\\\ \n/-]{0,120}") {
            let mut properties = BTreeMap::new();
            apply(&mut properties, &text);
            let unit = Unit { properties, ..Unit::default() };
            let _ = (unit.command(), unit.environment());
        }

        #[test]
        fn plain_words_are_split_as_they_stand(list in prop::collection::vec("[a-z/=]{1,8}", 0..6)) {
            prop_assert_eq!(words(&list.join(" ")), list);
        }
    }
}
