//! Names of the properties that determine what a service's processes may do. Link `truth` gives them to the
//! unit in which it starts the server, so `systemctl show` is asked for all of them.

/// Properties, as a unit file names them.
pub const SANDBOX: [&str; 53] = [
    "User",
    "Group",
    "SupplementaryGroups",
    "DynamicUser",
    "Environment",
    "UnsetEnvironment",
    "WorkingDirectory",
    "UMask",
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
    "NetworkNamespacePath",
    "IPAddressAllow",
    "IPAddressDeny",
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
/// Properties that name directories of a service's own, which systemd creates for the service's user, each
/// with the directory in which they are.
pub const DIRECTORIES: [(&str, &str); 4] = [
    ("StateDirectory", "var/lib"),
    ("CacheDirectory", "var/cache"),
    ("LogsDirectory", "var/log"),
    ("RuntimeDirectory", "run"),
];
/// Error number of a forbidden system call. Another number stands for the end of the process.
pub const CALL_ERROR: &str = "SystemCallErrorNumber";

/// Returns the name under which `systemctl show` has the soft part of a limit.
pub fn soft(limit: &str) -> String {
    format!("{limit}Soft")
}

/// Returns the name of the property with the mode of a service's own directories. systemd gives that mode to
/// directories that exist as well.
pub fn mode(directory: &str) -> String {
    format!("{directory}Mode")
}

/// Returns the names of all properties here, separated by commas.
pub fn shown() -> String {
    let directories = DIRECTORIES.map(|(name, _)| name);
    let plain = SANDBOX.into_iter().chain(directories).chain([CALL_ERROR]).map(str::to_owned);
    let soft = SANDBOX.into_iter().filter(|name| name.starts_with("Limit")).map(soft);
    plain.chain(soft).chain(directories.map(mode)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemctl_is_asked_for_what_a_sandbox_is_made_of() {
        let shown = shown();
        let names: Vec<&str> = shown.split(',').collect();
        for name in [
            "ReadWritePaths",
            "StateDirectory",
            "StateDirectoryMode",
            "UMask",
            "LimitNOFILE",
            "LimitNOFILESoft",
            "SystemCallErrorNumber",
        ] {
            assert!(names.contains(&name), "{name}");
        }
    }
}
