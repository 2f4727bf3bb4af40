//! A service in a real guest: Debian's systemd and udev, a VGPU-STUB on the PCI bus, and a stand-in for
//! Ollama with the unit of its installer. It is set up, crashes, is upgraded, boots, and is undone; its user
//! gains the device's group and nothing else.
//!
//! systemd is the first process of a PID namespace whose root is a tree in memory: devices, sysfs and udev's
//! events are the guest's own.

use std::collections::BTreeMap;
use std::time::Duration;

use vgpu_testbed::machine::{GuestMachine, Options};

/// Seconds on a machine that has nothing else to do.
const LIMIT: Duration = Duration::from_mins(4);
/// The function of the guest.
const FUNCTION: &str = "/sys/bus/pci/devices/0000:00:04.0";
const UNIT: &str = "/etc/systemd/system/ollama.service";

/// The tree: programs and libraries are the share's, all else is its own. `ollama serve` is a shell that
/// reads the script `serve`.
const TREE: &str = r#"
set -e
share=$1 root=/tree
mkdir $root
mount -t tmpfs -o mode=0755,nosuid=no none $root 2>/dev/null || mount -t tmpfs -o mode=0755 none $root
cd $root
mkdir usr proc sys dev run tmp root serve-state
for name in lib lib64 bin sbin; do mkdir $name; mount -o bind $share/$name $name; done
for path in $share/usr/*; do mkdir usr/${path##*/}; mount -o bind $path usr/${path##*/}; done
cp -a $share/etc $share/var .
mkdir -p usr/local/bin var/lib etc/systemd/system/default.target.wants usr/share/ollama 2>/dev/null || true
cp /usr/local/bin/vgpu-run usr/local/bin/vgpu-run
cp bin/dash usr/local/bin/ollama
chmod 1777 tmp serve-state
cat >serve <<'END'
cat /proc/$$/status /proc/$$/maps >/serve-state/process
if (exec 3<>FUNCTION/resource0); then echo device open; fi >/serve-state/device 2>&1
mv /serve-state/process /serve-state/done
while sleep 1; do :; done
END
sed -i "s,FUNCTION,$FUNCTION," serve
cat >etc/passwd <<'END'
root:x:0:0:root:/root:/bin/sh
ollama:x:998:998::/usr/share/ollama:/bin/false
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
END
cat >etc/group <<'END'
root:x:0:
video:x:44:ollama
render:x:105:ollama
ollama:x:998:
nogroup:x:65534:
END
mkdir -p etc/systemd/system/default.target.wants
ln -s ../ollama.service etc/systemd/system/default.target.wants/ollama.service
# What a guest without a network, disks and terminals has no use for.
for name in systemd-networkd.service systemd-resolved.service systemd-timesyncd.service systemd-logind.service getty.target \
    dev-hugepages.mount dev-mqueue.mount sys-fs-fuse-connections.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-random-seed.service systemd-pstore.service; do
    ln -s /dev/null etc/systemd/system/$name
done
echo 5af1a9b2c3d44e5f8a7b6c5d4e3f2a1b >etc/machine-id
"#;

/// Starts systemd, and prints its number once it does what it is told.
const BOOT: &str = r"
setsid unshare -p -m -f sh -c 'cd /tree && mount --move . / && exec chroot . /lib/systemd/systemd --log-target=console --show-status=no' \
    </dev/null >/systemd.log 2>&1 &
n=0
until pid=$(pidof systemd) && nsenter -t $pid -m -p /bin/systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'; do
    n=$((n + 1)); [ $n -lt 600 ] || { cat /systemd.log >&2; exit 1; }
    sleep 0.2
done
echo $pid
";

struct Guest {
    machine: GuestMachine,
    /// systemd's number in the guest.
    systemd: String,
}

impl Guest {
    fn start() -> Self {
        let share = vgpu_artifacts::fetch("guest-systemd").unwrap();
        let options = Options {
            executor: "null".into(),
            memory_mib: 1536,
            shares: vec![share.clone()],
            ..Options::default()
        };
        let machine = GuestMachine::boot(&options).unwrap();
        let mut guest = Self { machine, systemd: String::new() };
        guest.outside(&format!("FUNCTION={FUNCTION}; set -- {}\n{TREE}", share.display()));
        guest
    }

    /// Runs a script in the guest, outside the tree.
    #[track_caller]
    fn outside(&mut self, script: &str) -> String {
        let (end, out, err) = self.machine.output("root", &["/bin/sh", "-c", script], LIMIT).unwrap();
        assert_eq!(end.code(), 0, "{script}\n{out}\n{err}\n{}", self.machine.console());
        out
    }

    fn boot(&mut self) {
        self.outside(BOOT).trim().clone_into(&mut self.systemd);
    }

    /// Runs a script beside the services: how it ended, and all that it printed.
    fn try_inside(&mut self, script: &str) -> (i32, String) {
        let script = format!("exec 2>&1; PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n{script}");
        let command = ["/bin/nsenter", "-t", &self.systemd, "-m", "-p", "/bin/sh", "-c", &script];
        let (end, out, err) = self.machine.output("root", &command, LIMIT).unwrap();
        (end.code().into(), out + &err)
    }

    #[track_caller]
    fn inside(&mut self, script: &str) -> String {
        let (code, out) = self.try_inside(script);
        assert_eq!(code, 0, "{script}\n{out}\n{}", self.journal());
        out
    }

    fn journal(&mut self) -> String {
        self.try_inside("journalctl --no-pager --lines 60; systemctl status --no-pager ollama").1
    }

    /// Writes the unit as Ollama's installer does.
    fn upgrade(&mut self, program: &str) {
        self.outside(&format!(
            "cat >/tree{UNIT} <<'END'\n[Unit]\nDescription=Ollama Service\nAfter=network-online.target\n\n[Service]\n\
             ExecStart={program} serve\nUser=ollama\nGroup=ollama\nRestart=always\nRestartSec=3\n\
             Environment=\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n\n\
             [Install]\nWantedBy=default.target\nEND"
        ));
    }

    /// Waits until the service has said what it has, anew.
    #[track_caller]
    fn served(&mut self) -> Served {
        let text = self.inside(
            "n=0; until [ -e /serve-state/done ]; do n=$((n + 1)); [ $n -lt 600 ] || exit 1; sleep 0.2; done\n\
             cat /serve-state/*; rm /serve-state/*",
        );
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap_or_else(|| panic!("no {key} in {text}")).trim().to_owned()
        };
        let rights = [
            "Uid:",
            "Gid:",
            "CapInh:",
            "CapPrm:",
            "CapEff:",
            "CapBnd:",
            "CapAmb:",
            "NoNewPrivs:",
            "Seccomp:",
        ];
        Served {
            rights: rights.map(|key| (key, value(key))).into(),
            groups: value("Groups:").split_ascii_whitespace().map(str::to_owned).collect(),
            has_device: text.contains("device open"),
            has_libraries: text.contains("/memfd:libcuda.so.1"),
        }
    }

    /// All below `/etc` that a service's set-up may touch.
    fn etc(&mut self) -> String {
        self.outside(
            "cd /tree/etc; find . \\( -name '*-' -o -name '.*.lock' -o -name '.updated' -o -name .pwd.lock \\) -prune -o -type f -print \
             | sort | xargs md5sum; find . -type d | sort",
        )
    }
}

struct Served {
    rights: BTreeMap<&'static str, String>,
    groups: Vec<String>,
    has_device: bool,
    has_libraries: bool,
}

impl Served {
    /// Whether it has the GPU, and what it had `before`.
    #[track_caller]
    fn has_the_gpu(&self, before: &Self, group: &str) {
        assert!(self.has_device && self.has_libraries, "{} {}", self.has_device, self.has_libraries);
        assert_eq!(self.rights, before.rights, "the same rights");
        let more: Vec<_> = self.groups.iter().filter(|group| !before.groups.contains(group)).collect();
        assert_eq!(more, [group], "one group more");
        assert_eq!(self.groups.len(), before.groups.len() + 1);
    }
}

#[test]
fn a_service_from_its_first_day_to_its_last() {
    let mut guest = Guest::start();
    guest.upgrade("/usr/local/bin/ollama");
    // As the kernel leaves it: the guest's own first process gave it away.
    guest.outside(&format!("cd {FUNCTION}; chown 0:0 resource*; chmod 600 resource?*; echo 0 >enable"));
    guest.boot();
    let before = guest.served();
    assert!(!before.has_device && !before.has_libraries);
    let etc = guest.etc();

    let said = guest.inside("vgpu-run service install --yes --user nobody");
    assert!(said.contains("ollama.service was started anew, by vgpu-run."), "{said}");
    let groups = guest.inside("cat /etc/group");
    let line = groups.lines().find_map(|line| line.strip_prefix("vgpu:x:")).unwrap();
    let (group, members) = line.split_once(':').unwrap();
    assert_eq!(members, "nobody", "who may use it by hand; the service has it from its unit");
    guest.served().has_the_gpu(&before, group);
    let files = guest.inside(&format!(
        "cd {FUNCTION}; stat -c '%a %U %G %n' resource0 resource2 resource2_wc; cat enable driver_override"
    ));
    assert_eq!(
        files,
        "660 root vgpu resource0\n660 root vgpu resource2\n660 root vgpu resource2_wc\n1\nvgpu-run\n"
    );
    let status = guest.inside("vgpu-run service status");
    assert!(status.contains("ollama.service is active (running)"), "{status}");

    // A crash.
    guest.inside("kill -9 $(systemctl show --value --property MainPID ollama)");
    guest.served().has_the_gpu(&before, group);
    assert_eq!(guest.inside("systemctl show --value --property NRestarts ollama").trim(), "1");

    // Ollama's installer: the unit, daemon-reload, restart.
    guest.upgrade("/usr/local/bin/ollama");
    guest.inside("systemctl daemon-reload && systemctl restart ollama");
    guest.served().has_the_gpu(&before, group);
    guest.outside("mkdir /tree/opt; cp /tree/usr/local/bin/ollama /tree/opt/ollama");
    guest.upgrade("/opt/ollama");
    let (code, said) = guest.try_inside("systemctl daemon-reload; vgpu-run service status");
    assert!(code == 1 && said.contains("starts /opt/ollama serve by now"), "{code} {said}");
    guest.inside("vgpu-run service install --yes");
    guest.served().has_the_gpu(&before, group);
    guest.inside("vgpu-run service status");
    assert!(
        guest
            .inside("readlink /proc/$(systemctl show --value --property MainPID ollama)/exe")
            .contains("/opt/ollama")
    );

    // The next boot, with the device as the kernel leaves it: the service waits until udev is done with it.
    guest.outside(&format!(
        "kill -9 $(pidof systemd); while pidof systemd; do sleep 0.1; done\n\
         cd {FUNCTION}; chown 0:0 resource*; chmod 600 resource?*; echo 0 >enable; echo >driver_override; rm -f /tree/serve-state/*"
    ));
    guest.boot();
    guest.served().has_the_gpu(&before, group);
    let times = guest.inside(
        "systemctl show --value --property ActiveEnterTimestampMonotonic sys-subsystem-vgpu.device\n\
         systemctl show --value --property ExecMainStartTimestampMonotonic ollama\n\
         systemctl show --value --property NRestarts ollama",
    );
    let numbers: Vec<u64> = times.lines().map(|line| line.parse().unwrap()).collect();
    assert!(0 < numbers[0] && numbers[0] <= numbers[1] && numbers[2] == 0, "{times}");

    // And as if it had never been.
    guest.upgrade("/usr/local/bin/ollama");
    guest.inside("vgpu-run service remove --yes");
    let after = guest.served();
    assert_eq!((after.rights, after.groups), (before.rights, before.groups));
    assert!(!after.has_device && !after.has_libraries);
    assert_eq!(guest.etc(), etc, "byte for byte");
    let files =
        guest.inside(&format!("cd {FUNCTION}; stat -c '%a %U %G' resource0 resource2; cat driver_override"));
    assert_eq!(files, "600 root root\n600 root root\n(null)\n");
}
