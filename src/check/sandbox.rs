//! Names of the properties that determine what a service's processes may do. Link `truth` gives them to the unit
//! in which it starts the server, so `systemctl show` is asked for all of them.

/// Properties, as a unit file names them.
pub const SANDBOX: [&str; 52] = [
    "User",
    "Group",
    "SupplementaryGroups",
    "DynamicUser",
    "Environment",
    "UnsetEnvironment",
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
/// Properties that name directories of a service's own, which systemd creates for the service's user.
pub const DIRECTORIES: [&str; 4] = ["StateDirectory", "CacheDirectory", "LogsDirectory", "RuntimeDirectory"];
/// Error number of a forbidden system call. Another number stands for the end of the process.
pub const CALL_ERROR: &str = "SystemCallErrorNumber";

/// Returns the name under which `systemctl show` has the soft part of a limit.
pub fn soft(limit: &str) -> String {
    format!("{limit}Soft")
}

/// Returns the names of all properties here, separated by commas.
pub fn shown() -> String {
    let plain = SANDBOX.into_iter().chain(DIRECTORIES).chain([CALL_ERROR]).map(str::to_owned);
    let soft = SANDBOX.into_iter().filter(|name| name.starts_with("Limit")).map(soft);
    plain.chain(soft).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemctl_is_asked_for_what_a_sandbox_is_made_of() {
        let shown = shown();
        let names: Vec<&str> = shown.split(',').collect();
        for name in
            ["ReadWritePaths", "StateDirectory", "LimitNOFILE", "LimitNOFILESoft", "SystemCallErrorNumber"]
        {
            assert!(names.contains(&name), "{name}");
        }
    }
}
