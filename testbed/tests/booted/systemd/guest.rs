//! A booted guest, the tree in it, and the systemd that runs there.

use std::path::PathBuf;
use std::time::Duration;

use vgpu_testbed::machine::{GuestMachine, Options};

/// Limit of a command, which takes seconds on an idle machine.
const LIMIT: Duration = Duration::from_mins(4);

/// Script that creates the tree: programs and libraries come from the share, all other files are its own.
const TREE: &str = r"
set -e
share=$1 root=/tree
mkdir $root
mount -t tmpfs -o mode=0755,nosuid=no none $root 2>/dev/null || mount -t tmpfs -o mode=0755 none $root
cd $root
mkdir usr proc sys dev run tmp root
for name in lib lib64 bin sbin; do mkdir $name; mount -o bind $share/$name $name; done
for path in $share/usr/*; do mkdir usr/${path##*/}; mount -o bind $path usr/${path##*/}; done
cp -a $share/etc $share/var .
mkdir -p usr/local/bin var/lib etc/systemd/system/default.target.wants usr/share/ollama 2>/dev/null || true
cp /usr/local/bin/vgpu-run usr/local/bin/vgpu-run
chmod 1777 tmp
cat >etc/passwd <<'END'
root:x:0:0:root:/root:/bin/sh
ollama:x:998:998::/usr/share/ollama:/bin/false
messagebus:x:100:107::/nonexistent:/bin/false
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
END
cat >etc/group <<'END'
root:x:0:
video:x:44:ollama
render:x:105:ollama
ollama:x:998:
messagebus:x:107:
nogroup:x:65534:
END
mkdir -p etc/systemd/system/default.target.wants
# What a guest without a network, disks and terminals has no use for.
for name in systemd-networkd.service systemd-resolved.service systemd-timesyncd.service systemd-logind.service getty.target \
    dev-hugepages.mount dev-mqueue.mount sys-fs-fuse-connections.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-random-seed.service systemd-pstore.service; do
    ln -s /dev/null etc/systemd/system/$name
done
echo 5af1a9b2c3d44e5f8a7b6c5d4e3f2a1b >etc/machine-id
";

/// Script that starts systemd, and prints its process ID once it accepts commands.
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

pub struct SystemdGuest {
    machine: GuestMachine,
    /// Process ID of systemd in the guest.
    systemd: String,
}

impl SystemdGuest {
    /// Boots a guest whose device has this executor and which sees these directories of the host, and creates
    /// the tree.
    pub fn start(executor: &str, shares: &[PathBuf]) -> Self {
        let tree = vgpu_artifacts::fetch("guest-systemd").unwrap();
        let options = Options {
            executor: executor.to_owned(),
            memory_mib: 1536,
            shares: [std::slice::from_ref(&tree), shares].concat(),
            ..Options::default()
        };
        let machine = GuestMachine::boot(&options).unwrap();
        let mut guest = Self { machine, systemd: String::new() };
        guest.outside(&format!("set -- {}\n{TREE}", tree.display()));
        guest
    }

    /// Runs a script in the guest as root, outside the tree of systemd.
    #[track_caller]
    pub fn outside(&mut self, script: &str) -> String {
        let (end, out, err) = self.machine.output("root", &["/bin/sh", "-c", script], LIMIT).unwrap();
        assert_eq!(end.code(), 0, "{script}\n{out}\n{err}\n{}", self.machine.console());
        out
    }

    /// Starts systemd in the tree and waits until it accepts commands.
    pub fn boot(&mut self) {
        self.outside(BOOT).trim().clone_into(&mut self.systemd);
    }

    /// Runs a script beside the services, and returns its exit code and its output.
    pub fn try_inside(&mut self, script: &str) -> (i32, String) {
        let script = format!("exec 2>&1; PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n{script}");
        let command = ["/bin/nsenter", "-t", &self.systemd, "-m", "-p", "/bin/sh", "-c", &script];
        let (end, out, err) = self.machine.output("root", &command, LIMIT).unwrap();
        (end.code().into(), out + &err)
    }

    /// Runs a script beside the services, which must succeed, and returns its output.
    #[track_caller]
    pub fn inside(&mut self, script: &str) -> String {
        let (code, out) = self.try_inside(script);
        assert_eq!(code, 0, "{script}\n{out}\n{}", self.journal());
        out
    }

    /// Runs a command every 0.2 s until it succeeds, 300 times at most.
    #[track_caller]
    pub fn until(&mut self, command: &str) {
        self.inside(&format!(
            "n=0; until {command}; do n=$((n + 1)); [ $n -lt 300 ] || exit 1; sleep 0.2; done"
        ));
    }

    /// Returns the number of sessions that the guest's device has, as its host counts them.
    #[track_caller]
    pub fn sessions(&mut self) -> usize {
        let status = self.machine.device_status().unwrap();
        status["sessions"].as_array().unwrap().len()
    }

    fn journal(&mut self) -> String {
        self.try_inside("journalctl --no-pager --lines 80; systemctl --failed --no-pager").1
    }

    /// Writes Ollama's unit as its installer does.
    pub fn ollama_unit(&mut self, program: &str) {
        self.outside(&format!(
            "cat >/tree/etc/systemd/system/ollama.service <<'END'\n[Unit]\nDescription=Ollama Service\nAfter=network-online.target\n\n[Service]\n\
             ExecStart={program} serve\nUser=ollama\nGroup=ollama\nRestart=always\nRestartSec=3\n\
             Environment=\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"\n\n\
             [Install]\nWantedBy=default.target\nEND"
        ));
    }
}
