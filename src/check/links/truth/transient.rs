//! Builds a transient unit with the properties of a service, so that the server gets the service's user,
//! environment, sandbox and limits.

use std::ffi::{OsStr, OsString};

use crate::check::unit::Unit;
use crate::env::Environment;

/// Properties, as a unit file names them, that determine what a unit's processes may do.
const COPIED: [&str; 48] = [
    "User",
    "Group",
    "SupplementaryGroups",
    "DynamicUser",
    "Environment",
    "WorkingDirectory",
    "RootDirectory",
    "RootImage",
    "NoNewPrivileges",
    "CapabilityBoundingSet",
    "AmbientCapabilities",
    "ProtectKernelTunables",
    "ProtectKernelModules",
    "ProtectControlGroups",
    "ProtectSystem",
    "ProtectHome",
    "ProtectProc",
    "ProcSubset",
    "PrivateDevices",
    "PrivateTmp",
    "PrivateUsers",
    "PrivateNetwork",
    "MemoryDenyWriteExecute",
    "RestrictAddressFamilies",
    "RestrictNamespaces",
    "RestrictFileSystems",
    "SystemCallFilter",
    "SystemCallArchitectures",
    "LockPersonality",
    "NoExecPaths",
    "ExecPaths",
    "ReadOnlyPaths",
    "ReadWritePaths",
    "InaccessiblePaths",
    "BindPaths",
    "BindReadOnlyPaths",
    "TemporaryFileSystem",
    "DevicePolicy",
    "MemoryMax",
    "TasksMax",
    "LimitAS",
    "LimitDATA",
    "LimitFSIZE",
    "LimitMEMLOCK",
    "LimitNOFILE",
    "LimitNPROC",
    "LimitSTACK",
    "LimitCPU",
];
/// Values that stand for an unset property. `~` is an empty list of forbidden calls.
const UNSET: [&str; 5] = ["", "no", "~", "[not set]", "default"];

/// Returns the arguments of systemd-run, without the command. The values of vgpu-run's own variables are the
/// caller's, as everywhere in a check of a service.
pub fn arguments(unit: &Unit, environment: &Environment) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["--pipe", "--wait", "--collect", "--quiet"].iter().map(Into::into).collect();
    let mut property =
        |name: &str, value: &str| words.extend(["-p".into(), format!("{name}={value}").into()]);
    for name in COPIED {
        let value = unit.get(name);
        if !UNSET.contains(&value) {
            property(name, &limit(unit, name, value));
        }
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

/// Formats a limit with its soft and hard part, because systemctl shows the soft part separately.
fn limit(unit: &Unit, name: &str, hard: &str) -> String {
    match unit.get(&format!("{name}Soft")) {
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

    fn words(properties: &[(&str, &str)], environment: &[(&str, &str)]) -> Vec<String> {
        let environment = environment.iter().copied().collect();
        arguments(&Unit::with(properties), &environment)
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
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
