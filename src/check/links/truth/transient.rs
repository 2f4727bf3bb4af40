//! Builds a transient unit with the properties of a service, so that the server gets the service's user,
//! environment, sandbox and limits.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::check::sandbox::{self, CALL_ERROR, DIRECTORIES, SANDBOX};
use crate::check::unit::Unit;
use crate::env::Environment;

/// Values that stand for an unset property. `~` is an empty list of forbidden calls.
const UNSET: [&str; 5] = ["", "no", "~", "[not set]", "default"];
/// Highest error number of the kernel.
const ERRNO_MOST: u32 = 4095;

/// Returns the arguments of systemd-run, without the command. The values of vgpu-run's own variables are the
/// caller's, as everywhere in a check of a service. `root` is the root of the file system.
pub fn arguments(unit: &Unit, environment: &Environment, root: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["--pipe", "--wait", "--collect", "--quiet"].iter().map(Into::into).collect();
    let mut property =
        |name: &str, value: &str| words.extend(["-p".into(), format!("{name}={value}").into()]);
    for name in SANDBOX {
        let value = unit.get(name);
        if !UNSET.contains(&value) {
            property(name, &written(unit, name, value));
        }
    }
    let dynamic = unit.on("DynamicUser") && unit.get("User").is_empty();
    let user = if dynamic { unit_user(&unit.name) } else { None };
    if let Some(user) = user {
        property("User", user);
    }
    // Directories get the unit's user and mode, which must be the service's.
    if !dynamic || user.is_some() {
        for (name, place) in DIRECTORIES {
            let there = existing(&root.join(place), unit.get(name));
            if there.is_empty() {
                continue;
            }
            property(name, &there);
            let mode = sandbox::mode(name);
            if !UNSET.contains(&unit.get(&mode)) {
                property(&mode, unit.get(&mode));
            }
            if name == "RuntimeDirectory" {
                // The running service has the same one, which must outlive this unit.
                property("RuntimeDirectoryPreserve", "yes");
            }
        }
    }
    if let number @ 1..=ERRNO_MOST = unit.get(CALL_ERROR).parse().unwrap_or(0) {
        property(CALL_ERROR, &number.to_string());
    }
    for file in environment_files(unit) {
        property("EnvironmentFile", &file);
    }
    let own = environment.iter().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"VGPU_"));
    words.extend(
        own.map(|(name, value)| [OsStr::new("--setenv="), name, OsStr::new("="), value].join(OsStr::new(""))),
    );
    words
}

/// Returns those of a service's own directories in `place` that exist: systemd would create the others, and
/// they would stay. An entry is `NAME` or `NAME:LINK`.
fn existing(place: &Path, directories: &str) -> String {
    let there = |entry: &&str| entry.split(':').all(|name| place.join(name).exists());
    directories.split_ascii_whitespace().filter(there).collect::<Vec<_>>().join(" ")
}

/// Returns the user that systemd makes for a service without `User=`, if it is named like the service.
fn unit_user(unit: &str) -> Option<&str> {
    let name = unit.strip_suffix(".service")?;
    let plain =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_-".contains(letter);
    let valid = name.len() <= 31 && name.starts_with(|first: char| first.is_ascii_lowercase());
    (valid && name.chars().all(plain)).then_some(name)
}

/// Formats a property as a unit file has it: systemctl shows the soft part of a limit separately.
fn written(unit: &Unit, name: &str, hard: &str) -> String {
    if name == "WorkingDirectory" {
        // systemctl's mark of a directory that may be missing.
        return hard.replacen('!', "-", 1);
    }
    match unit.get(&sandbox::soft(name)) {
        soft if name.starts_with("Limit") && !soft.is_empty() && soft != hard => format!("{soft}:{hard}"),
        _ => hard.to_owned(),
    }
}

/// Returns the paths of a unit's environment files, in the form of a unit file. systemctl's form is `PATH
/// (ignore_errors=yes)`.
fn environment_files(unit: &Unit) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    for word in [unit.get("EnvironmentFiles"), unit.get("EnvironmentFile")].join(" ").split_ascii_whitespace()
    {
        if word.trim_start_matches('-').starts_with('/') {
            files.push(word.to_owned());
        } else if word == "(ignore_errors=yes)"
            && let Some(last) = files.last_mut()
        {
            last.insert(0, '-');
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// Returns the arguments on a system on which the services' own directories `directories` exist.
    fn words_with(
        directories: &[&str],
        properties: &[(&str, &str)],
        environment: &[(&str, &str)],
    ) -> Vec<String> {
        let environment = environment.iter().copied().collect();
        let root = Scratch::new();
        for directory in directories {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        arguments(&Unit::with(properties), &environment, root.path())
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    fn words(properties: &[(&str, &str)], environment: &[(&str, &str)]) -> Vec<String> {
        words_with(&[], properties, environment)
    }

    #[test]
    fn a_unit_without_settings() {
        let plain = words(
            &[
                ("User", ""),
                ("PrivateDevices", "no"),
                ("SystemCallFilter", "~"),
                ("ExecStart", "/bin/x"),
                ("MainPID", "7"),
            ],
            &[("PATH", "/bin")],
        );
        assert_eq!(plain, ["--pipe", "--wait", "--collect", "--quiet"]);
    }

    #[test]
    fn directories_are_shared_with_the_service_and_survive() {
        let said = words_with(
            &["var/lib/ollama", "var/lib/old", "run/ollama"],
            &[
                ("UMask", "0077"),
                ("StateDirectory", "ollama ollama/new old:link"),
                ("StateDirectoryMode", "0700"),
                ("RuntimeDirectory", "ollama"),
                ("LogsDirectory", "ollama"),
                ("LogsDirectoryMode", "0755"),
                ("SystemCallErrorNumber", "1"),
                ("CacheDirectory", ""),
            ],
            &[],
        );
        let expected = [
            "UMask=0077",
            "StateDirectory=ollama",
            "StateDirectoryMode=0700",
            "RuntimeDirectory=ollama",
            "RuntimeDirectoryPreserve=yes",
            "SystemCallErrorNumber=1",
        ];
        let properties: Vec<&String> = said.iter().filter(|word| word.contains('=')).collect();
        assert_eq!(properties, expected);
        let dynamic = words_with(&["var/lib/o"], &[("DynamicUser", "yes"), ("StateDirectory", "o")], &[]);
        let user = dynamic.iter().position(|word| word == "User=ollama");
        assert!(user.is_some() && dynamic.contains(&"StateDirectory=o".to_owned()), "{dynamic:?}");
        assert_eq!(unit_user("Ollama.service"), None);
        assert_eq!(written(&Unit::default(), "WorkingDirectory", "!/x"), "-/x");
        assert!(words(&[("SystemCallErrorNumber", "2147483646")], &[]).len() == 4, "the process ends");
    }

    #[test]
    fn user_variables_sandbox_and_limits_are_the_services() {
        let said = words(
            &[
                ("User", "ollama"),
                ("Environment", "OLLAMA_HOST=:1 \"A=two words\""),
                ("EnvironmentFiles", "/etc/a (ignore_errors=no) /etc/b (ignore_errors=yes)"),
                ("ProtectKernelTunables", "yes"),
                ("SystemCallFilter", "~memfd_create"),
                ("LimitAS", "8589934592"),
                ("LimitASSoft", "4294967296"),
                ("LimitNOFILE", "524288"),
            ],
            &[("VGPU_SYSFS", "/bus"), ("HOME", "/root")],
        );
        let expected = [
            "--pipe",
            "--wait",
            "--collect",
            "--quiet",
            "-p",
            "User=ollama",
            "-p",
            "Environment=OLLAMA_HOST=:1 \"A=two words\"",
            "-p",
            "ProtectKernelTunables=yes",
            "-p",
            "SystemCallFilter=~memfd_create",
            "-p",
            "LimitAS=4294967296:8589934592",
            "-p",
            "LimitNOFILE=524288",
            "-p",
            "EnvironmentFile=/etc/a",
            "-p",
            "EnvironmentFile=-/etc/b",
            "--setenv=VGPU_SYSFS=/bus",
        ];
        assert_eq!(said, expected);
    }
}
