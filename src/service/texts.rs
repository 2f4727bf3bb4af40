//! Texts of the files that `service install` writes: the udev rule, the group, and the drop-in.

use std::path::{Path, PathBuf};

use vgpu_wire::pci;

use crate::device::files::FILES;

/// Name of the group that may use the device.
pub const GROUP: &str = "vgpu";
/// Path of the udev rule. It sorts before 80-drivers.rules, which loads drivers.
pub const RULE: &str = "/etc/udev/rules.d/60-vgpu-run.rules";
/// Path of the group's entry for systemd-sysusers.
pub const SYSUSERS: &str = "/etc/sysusers.d/vgpu-run.conf";
/// Path of the template unit that watches for the death of programs, with one instance for each device.
pub const WATCH: &str = "/etc/systemd/system/vgpu-run-reap@.path";
/// Path of the template unit that it starts.
pub const REAP: &str = "/etc/systemd/system/vgpu-run-reap@.service";
/// Path of the template unit that looks once more when that one has ended.
pub const LOOK: &str = "/etc/systemd/system/vgpu-run-reap-end@.service";
/// Pattern of the names of all instances of these.
pub const WATCHES: &str = "vgpu-run-reap*@*";
/// Name of the device as a systemd unit.
pub const DEVICE_UNIT: &str = "sys-subsystem-vgpu.device";
/// Path that stands for the same unit in udev.
const DEVICE_ALIAS: &str = "/sys/subsystem/vgpu";
/// Name of a driver that does not exist. Overriding a function's driver with it keeps all drivers from
/// binding the function.
pub const NO_DRIVER: &str = "vgpu-run";

/// File name of the drop-ins. It sorts last, so that another drop-in's ExecStart does not override it.
pub const DROP_IN: &str = "zz-vgpu-run.conf";

/// Settings of the services that reap, which only need `/proc` and the device's files.
const CONFINED: &str = "NoNewPrivileges=yes\nProtectSystem=strict\nProtectHome=yes\nPrivateNetwork=yes\n";

/// Returns the path of a unit's drop-in.
pub fn drop_in_path(unit: &str) -> PathBuf {
    Path::new("/etc/systemd/system").join(format!("{unit}.d")).join(DROP_IN)
}

/// Returns the udev rule. It gives VGPU-STUB functions to the group, enables their memory decoding, keeps
/// drivers away, and announces the device to systemd. If `watched` is set, systemd starts [`WATCH`] for each.
pub fn rule(watched: bool) -> String {
    // systemd makes the instance's name of the device's directory in sysfs.
    let watch = if watched {
        "# Programs that are killed leave sessions behind.\nENV{SYSTEMD_WANTS}+=\"vgpu-run-reap@.path\"\n"
    } else {
        ""
    };
    let files: Vec<_> = FILES.iter().filter(|name| !name.ends_with("_ro")).copied().collect();
    format!(
        "# Written by vgpu-run service install; vgpu-run service remove takes it away.\n\
         #\n\
         # VGPU-STUB has the ids of a real GPU, whose registers take megabytes: its own take {} or {} bytes.\n\
         ACTION==\"remove\", GOTO=\"vgpu_run_end\"\n\
         SUBSYSTEM!=\"pci\", GOTO=\"vgpu_run_end\"\n\
         ATTR{{vendor}}!=\"{:#06x}\", GOTO=\"vgpu_run_end\"\n\
         ATTR{{device}}!=\"{:#06x}\", GOTO=\"vgpu_run_end\"\n\
         PROGRAM!=\"/bin/sh -c 'stat -c %%s /sys%p/resource0'\", GOTO=\"vgpu_run_end\"\n\
         RESULT!=\"{}|{}\", GOTO=\"vgpu_run_end\"\n\
         # No driver is called that, so none binds the function: not nouveau, not nvidia.\n\
         ATTR{{driver_override}}=\"{NO_DRIVER}\"\n\
         # Memory decoding. Each 1 written is counted.\n\
         ATTR{{enable}}==\"0\", ATTR{{enable}}=\"1\"\n\
         # To the group and nobody else.\n\
         RUN+=\"/bin/sh -c 'cd /sys%p && for file in {}; do [ ! -e $$file ] || {{ chgrp {GROUP} $$file && chmod 0660 $$file; }}; done'\"\n\
         # {DEVICE_UNIT}, for which a service can wait.\n\
         TAG+=\"systemd\", ENV{{SYSTEMD_ALIAS}}+=\"{DEVICE_ALIAS}\"\n\
         {watch}\
         LABEL=\"vgpu_run_end\"\n",
        pci::V1_BAR0_BYTES,
        pci::V2_BAR0_BYTES,
        pci::VENDOR,
        pci::DEVICE,
        pci::V1_BAR0_BYTES,
        pci::V2_BAR0_BYTES,
        files.join(" "),
    )
}

/// Returns the group's entry for systemd-sysusers. It lists no members, because systemd-sysusers would create
/// a group of the same name for each.
pub fn sysusers() -> String {
    format!(
        "# Written by vgpu-run service install; vgpu-run service remove takes it away.\n\
         # Who may open the VGPU-STUB device.\ng {GROUP} -\n"
    )
}

/// Returns the text of a drop-in that starts `command` instead of `own`, in the group, once the device is
/// present.
pub fn drop_in(own: &str, command: &str) -> String {
    format!(
        "# Written by vgpu-run service install; vgpu-run service remove takes it away.\n\
         # The unit itself starts: {own}\n\
         # (vgpu-run service status tells when that has changed.)\n\
         [Unit]\n\
         # At boot the device may come later. Without one, the start goes on after DefaultDeviceTimeoutSec=, 90 seconds.\n\
         Wants={DEVICE_UNIT}\n\
         After={DEVICE_UNIT}\n\
         \n\
         [Service]\n\
         SupplementaryGroups={GROUP}\n\
         ExecStart=\n\
         ExecStart={command}\n"
    )
}

/// Returns the text of [`WATCH`]. The kernel closes the file with the locks of a process's channels when the
/// process dies, however it dies, and nothing runs until then.
pub fn watch() -> String {
    "# Written by vgpu-run service install; vgpu-run service remove takes it away.\n\
     [Unit]\n\
     Description=Watch for the death of programs that use the GPU in %f\n\
     BindsTo=%i.device\n\
     After=%i.device\n\
     \n\
     [Path]\n\
     PathChanged=%f/resource2\n"
        .to_owned()
}

/// Returns the text of [`REAP`]. A machine may start and end any number of programs, so nothing limits how
/// often it starts.
pub fn reap(launcher: &str) -> String {
    format!(
        "# Written by vgpu-run service install; vgpu-run service remove takes it away.\n\
         [Unit]\n\
         Description=Free what killed programs hold of the GPU in %f\n\
         StartLimitIntervalSec=0\n\
         # The path is watched again when this unit has ended. Whoever died just before that is found after it.\n\
         OnSuccess=vgpu-run-reap-end@%i.service\n\
         OnFailure=vgpu-run-reap-end@%i.service\n\
         \n\
         [Service]\n\
         # The path is not watched while the service runs, so it watches itself for a while: programs that start\n\
         # and end one after the other do so within it.\n\
         ExecStart={launcher} reap --linger 5\n\
         RuntimeMaxSec=60\n\
         {CONFINED}"
    )
}

/// Returns the text of [`LOOK`].
pub fn look(launcher: &str) -> String {
    format!(
        "# Written by vgpu-run service install; vgpu-run service remove takes it away.\n\
         [Unit]\n\
         Description=Look once more for what killed programs hold of the GPU in %f\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         ExecStart={launcher} reap\n\
         {CONFINED}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systemd::settings;

    #[test]
    fn the_rule_is_for_the_device_alone() {
        let rule = rule(true);
        for part in
            ["\"0x10de\"", "\"0x2331\"", "\"4096|8192\"", "resource0 resource1 resource2 resource2_wc;"]
        {
            assert!(rule.contains(part), "no {part} in {rule}");
        }
        assert!(!rule.contains("resource0_ro"), "the simulated bus has no udev");
        let watch = "ENV{SYSTEMD_WANTS}+=\"vgpu-run-reap@.path\"\n";
        assert!(rule.contains(watch) && !super::rule(false).contains("SYSTEMD_WANTS"), "{rule}");
        assert_eq!(rule.lines().last(), Some("LABEL=\"vgpu_run_end\""));
    }

    #[test]
    fn the_drop_in_says_what_systemd_reads() {
        let text = drop_in("/bin/ollama serve", "/bin/vgpu-run -- /bin/ollama serve");
        let service: Vec<_> = settings(&text, "Service").collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            service,
            [
                pair("SupplementaryGroups", "vgpu"),
                pair("ExecStart", ""),
                pair("ExecStart", "/bin/vgpu-run -- /bin/ollama serve")
            ]
        );
        assert_eq!(sysusers().lines().last(), Some("g vgpu -"));
    }
}
