//! Ollama's service, of which vgpu-run becomes a part: a stand-in for Ollama with the unit of its installer.
//! It is set up, crashes, is upgraded, boots, and is undone; its user gains the device's group and nothing
//! else.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::guest::SystemdGuest;

/// Sysfs directory of the device in the guest.
const FUNCTION: &str = "/sys/bus/pci/devices/0000:00:04.0";

/// Script that installs a stand-in for `ollama serve`: a shell that executes the script `serve`.
const OLLAMA: &str = r#"
set -e
cd /tree
cp bin/dash usr/local/bin/ollama
mkdir serve-state
chmod 1777 serve-state
cat >serve <<'END'
cat /proc/$$/status /proc/$$/maps >/serve-state/process
if (exec 3<>FUNCTION/resource0); then echo device open; fi >/serve-state/device 2>&1
mv /serve-state/process /serve-state/done
while sleep 1; do :; done
END
sed -i "s,FUNCTION,$FUNCTION," serve
ln -s ../ollama.service etc/systemd/system/default.target.wants/ollama.service
"#;

impl SystemdGuest {
    /// Waits for the service's report on its process, and removes it so that the next call waits for a new
    /// one.
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

    /// Returns a listing of all files below `/etc` that the set-up of a service may change.
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
    /// Checks that the service has the GPU, and otherwise only the rights that it had `before`.
    #[track_caller]
    fn has_the_gpu(&self, before: &Self, group: &str) {
        assert!(self.has_device && self.has_libraries, "{} {}", self.has_device, self.has_libraries);
        assert_eq!(self.rights, before.rights, "the same rights");
        let more: Vec<_> = self.groups.iter().filter(|group| !before.groups.contains(group)).collect();
        assert_eq!(more, [group], "one group more");
        assert_eq!(self.groups.len(), before.groups.len() + 1);
    }
}

pub fn from_its_first_day_to_its_last(guest: &mut SystemdGuest, standin: &Path) {
    guest.outside(&format!("FUNCTION={FUNCTION}\n{OLLAMA}"));
    guest.ollama_unit("/usr/local/bin/ollama");
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
    guest.inside("systemctl -q is-active 'vgpu-run-reap@*.path'");
    guest.outside(&format!("cp {} /tree/usr/local/bin/", standin.display()));

    everything_is_free_soon_after_a_kill(guest);

    // A crash.
    guest.inside("kill -9 $(systemctl show --value --property MainPID ollama)");
    guest.served().has_the_gpu(&before, group);
    assert_eq!(guest.inside("systemctl show --value --property NRestarts ollama").trim(), "1");

    // Ollama's installer: the unit, daemon-reload, restart.
    guest.ollama_unit("/usr/local/bin/ollama");
    guest.inside("systemctl daemon-reload && systemctl restart ollama");
    guest.served().has_the_gpu(&before, group);
    guest.outside("mkdir /tree/opt; cp /tree/usr/local/bin/ollama /tree/opt/ollama");
    guest.ollama_unit("/opt/ollama");
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
    guest.ollama_unit("/usr/local/bin/ollama");
    guest.inside("vgpu-run service remove --yes");
    let after = guest.served();
    assert_eq!((after.rights, after.groups), (before.rights, before.groups));
    assert!(!after.has_device && !after.has_libraries);
    let left = guest.inside("systemctl list-units --all --no-legend 'vgpu-run-reap*'");
    assert_eq!(left, "", "nothing watches any more");
    assert_eq!(guest.etc(), etc, "byte for byte");
    let files =
        guest.inside(&format!("cd {FUNCTION}; stat -c '%a %U %G' resource0 resource2; cat driver_override"));
    assert_eq!(files, "600 root root\n600 root root\n(null)\n");
}

/// Script that starts a program whose kernel never ends, and prints the program's number.
const ENDLESS: &str = r"
rm -f /tmp/said
vgpu-run -- vgpu-standin state launching >/tmp/said 2>/tmp/errors &
n=0; until [ -s /tmp/said ]; do n=$((n + 1)); [ $n -lt 600 ] || { cat /tmp/errors; exit 1; }; sleep 0.1; done
echo $!
";

/// Time after which nothing that a killed program had may be left. One of several kills has to keep to it:
/// other tests take the processors of the emulated guest meanwhile.
const FREE_BY: Duration = Duration::from_secs(2);
/// Time after which nothing may be left in any case. Nobody else would end the session.
const LATEST: Duration = Duration::from_mins(1);

/// Kills programs in the middle of an endless kernel, which systemd notices, and nobody else.
fn everything_is_free_soon_after_a_kill(guest: &mut SystemdGuest) {
    let (mut best, mut kills) = (Duration::MAX, 0);
    while kills < 3 || (kills < 10 && best >= FREE_BY) {
        kills += 1;
        let program = guest.inside(ENDLESS);
        assert_eq!(guest.sessions(), 1);
        guest.inside(&format!("kill -9 {program}"));
        let killed = Instant::now();
        while guest.sessions() > 0 {
            assert!(killed.elapsed() < LATEST, "{}", guest.inside("systemctl status 'vgpu-run-reap@*'"));
            std::thread::sleep(Duration::from_millis(10));
        }
        best = best.min(killed.elapsed());
        eprintln!("free {:?} after the kill", killed.elapsed());
    }
    assert!(best < FREE_BY, "{best:?} at best");
    // A death that the service does not see any more, while nobody else watches.
    let program = guest.inside(ENDLESS);
    guest.inside(&format!(
        "path=$(systemctl list-units --plain --no-legend 'vgpu-run-reap@*.path' | cut -d' ' -f1)\n\
         service=${{path%.path}}.service\n\
         systemctl start $service && systemctl kill -s STOP $service && kill -9 {program}\n\
         while grep -qs ') [RSD] ' /proc/{program}/stat; do sleep 0.01; done\n\
         systemctl kill -s KILL $service"
    ));
    let ended = Instant::now();
    while guest.sessions() > 0 {
        assert!(ended.elapsed() < LATEST, "{}", guest.inside("systemctl status 'vgpu-run-reap*'"));
        std::thread::sleep(Duration::from_millis(10));
    }
    eprintln!("free {:?} after the end of the service", ended.elapsed());
}
