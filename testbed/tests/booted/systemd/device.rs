//! The template unit of `vgpu-device`: started, used, killed and stopped by systemd, within the sandbox that
//! the unit describes. The executor is that for real GPUs. In the place of a GPU it has this project's own
//! libcuda on a soft device, which a second service serves.

use std::path::Path;

use vgpu_serve::Facts;
use vgpu_testbed::bed::{random_facts, reservable};

use super::guest::SystemdGuest;

/// Text of the systemd unit in a release.
const UNIT: &str = include_str!("../../../../host/serve/share/vgpu-device@.service");
/// Text of the unit of the node process.
const NODE: &str = include_str!("../../../../host/serve/share/vgpu-device-node.service");
/// Text of the directories that devices share, in a release.
const DIRECTORIES: &str = include_str!("../../../../host/serve/share/vgpu-device.tmpfiles");

/// Script of an operator's installation and of what the stand-in needs in addition: it is found by a
/// variable, and its bus is writable.
const INSTALL: &str = r#"
set -e
cd /tree
for program in vgpu-device vgpu-testbed vgpu-standin; do cp $PROGRAMS/$program usr/local/bin/; done
mkdir -p opt/shims gpu etc/vgpu-device etc/systemd/system/vgpu-device@.service.d
cp $SHIMS/lib*.so.* opt/shims/
echo 'vgpu-worker:x:997:997::/nonexistent:/bin/false' >>etc/passwd
echo 'vgpu-worker:x:997:' >>etc/group
cat >etc/systemd/system/vgpu-device@.service.d/stand-in.conf <<'END'
[Service]
Environment=VGPU_SYSFS=/gpu
ReadWritePaths=/gpu
END
cat >etc/vgpu-device/vm1.toml <<END
bus = "sim:/run/vgpu-device/vm1/bus"
memory = "1G"
libcuda = "/opt/shims/libcuda.so.1"
libcublas = "/opt/shims/libcublas.so.13"
address-range = 44
address-part = "$PART"
worker-connects = true
END
cat >etc/vgpu-device/vm2.toml <<'END'
bus = "vfio-user:/run/vgpu-device/vm2/device"
memory = "1G"
executor = "soft"
window = "64M"
channels = 16
END
sed 's,/vm2/,/vm3/,' etc/vgpu-device/vm2.toml >etc/vgpu-device/vm3.toml
# More than the GPU has beside vm1.
sed -e 's,/vm1/,/vm4/,' -e 's/"1G"/"3G"/' etc/vgpu-device/vm1.toml >etc/vgpu-device/vm4.toml
"#;

/// Script that starts the soft device used as the GPU. The workers' user may access it, like the device files
/// of a real GPU.
const GPU: &str = r"
systemd-run --quiet --unit gpu vgpu-testbed device --bus sim:/gpu --executor soft --address-range 44 --memory 4G --context-memory 300M
n=0; until [ -e /gpu/control ]; do n=$((n + 1)); [ $n -lt 300 ] || exit 1; sleep 0.2; done
chmod -R a+rwX /gpu
";

/// Script that starts a program of the VM, which runs until its stdin is closed.
const PROGRAM: &str = r"
mkfifo /tmp/go
VGPU_SYSFS=/run/vgpu-device/vm1/bus vgpu-run -- vgpu-standin state working </tmp/go >/tmp/said 2>/tmp/errors &
sleep 600 >/tmp/go 2>/dev/null &
n=0; until [ -s /tmp/said ]; do n=$((n + 1)); [ $n -lt 300 ] || { cat /tmp/errors; exit 1; }; sleep 0.2; done
";

/// Script that prints the processes of the unit, the device's first, with their relevant attributes.
const PROCESSES: &str = r"
main=$(systemctl show -P MainPID vgpu-device@vm1)
group=/sys/fs/cgroup$(systemctl show -P ControlGroup vgpu-device@vm1)
for process in $main $(cat $group/cgroup.procs); do
    if [ $process != $main ] || [ -z $first ]; then
        first=no
        while read key value rest; do
            case $key in Uid:|CapEff:|NoNewPrivs:|Seccomp:) printf '%s%s ' $key $value;; esac
        done </proc/$process/status
        readlink /proc/$process/ns/net
    fi
done
readlink /proc/1/ns/net
";

/// Script that plays a VM with the device of vm2, which says the generation of its device.
const VMM: &str = r"
systemd-run --quiet --unit vmm vgpu-testbed __vmm /run/vgpu-device/vm2/device
";
/// Script that counts the generations that the VM has seen.
const GENERATIONS: &str = "journalctl --no-pager --output cat --unit vmm \
     | { n=0; while read line; do case $line in generation*) n=$((n + 1));; esac; done; echo $n; }";

/// Number of times that a device is killed under its VM.
const DEATHS: u32 = 5;

/// Script that lists the address ranges which devices have.
const RANGES: &str = r"
cd /run/vgpu-device/address-ranges
for range in *; do flock --nonblock $range true || echo $range; done
";

/// Script that runs random operations and compares their results with the expected ones.
const SOAK: &str =
    "VGPU_SYSFS=/run/vgpu-device/vm1/bus vgpu-run -- vgpu-standin soak --seed 7 --operations 200";

pub fn from_its_start_to_its_end(guest: &mut SystemdGuest, programs: &Path, shims: &Path) {
    let part = reservable(&Facts { memory_mib: 4096, ..random_facts(&["6.1"]) }).unwrap();
    guest.inside("systemctl stop ollama");
    guest.outside(&format!(
        "PROGRAMS={} SHIMS={} PART={part}\n{INSTALL}",
        programs.display(),
        shims.display()
    ));
    guest.outside(&format!("cat >/tree/etc/systemd/system/vgpu-device@.service <<'END'\n{UNIT}END"));
    guest.outside(&format!("mkdir -p /tree/usr/local/lib/tmpfiles.d; cat >/tree/usr/local/lib/tmpfiles.d/vgpu-device.conf <<'END'\n{DIRECTORIES}END"));
    guest.inside(GPU);

    // It is ready when systemctl returns, and prints what the VM needs.
    guest.inside("systemctl start vgpu-device@vm1 vgpu-device@vm2 && systemctl is-active vgpu-device@vm1 vgpu-device@vm2");
    let journal = guest.inside("journalctl --no-pager --output cat --unit vgpu-device@vm2");
    assert!(
        journal.contains("\"path\":\"/run/vgpu-device/vm2/device\"") && journal.ends_with("ready\n"),
        "{journal}"
    );
    let status = guest.inside("vgpu-device status");
    assert!(status.contains("vm1  sim:") && status.contains("vm2  vfio-user:"), "{status}");
    assert_eq!(status.matches("no session").count(), 2, "{status}");
    let said = guest.inside(SOAK);
    assert!(said.contains("operations"), "{said}");
    shares_the_host(guest);

    // The device is in a network namespace of its own and gains nothing; a worker has no rights at all.
    guest.inside(PROGRAM);
    let processes = guest.inside(PROCESSES);
    let [main, worker, system] = &processes.lines().collect::<Vec<_>>()[..] else { panic!("{processes}") };
    let network = |line: &str| line.rsplit_once("net:").map(|(_, inode)| inode.to_owned()).unwrap();
    assert!(main.starts_with("Uid:0 ") && main.contains("NoNewPrivs:1 Seccomp:2 "), "{processes}");
    assert!(worker.starts_with("Uid:997 CapEff:0000000000000000 NoNewPrivs:1 Seccomp:2 "), "{processes}");
    assert_ne!(network(main), network(system), "{processes}");
    assert_eq!(network(main), network(worker), "{processes}");

    // Killed, it takes its workers with it. The program has lost the device, and the unit starts anew.
    guest.inside("kill -9 $(systemctl show -P MainPID vgpu-device@vm1)");
    guest.until(
        "[ $(systemctl show -P NRestarts vgpu-device@vm1) = 1 ] && systemctl -q is-active vgpu-device@vm1",
    );
    let processes = guest.inside(PROCESSES);
    assert_eq!(processes.lines().count(), 2, "no worker is left: {processes}");
    guest.until("[ -s /tmp/errors ]");
    let errors = guest.inside("cat /tmp/errors");
    assert!(errors.contains("the device is gone"), "{errors}");
    guest.inside(SOAK);

    a_vm_outlives_its_device(guest);

    // A VMM that breaks the protocol loses its connection, and the process serves the next one.
    guest.inside("vgpu-standin vmm /run/vgpu-device/vm2/device");
    guest.inside("vgpu-standin vmm /run/vgpu-device/vm2/device");
    let journal = guest.inside("journalctl --no-pager --output cat --unit vgpu-device@vm2");
    assert_eq!(journal.matches("VERSION is refused because of its text").count(), 2, "{journal}");
    let restarts = guest.inside("systemctl show -P NRestarts vgpu-device@vm2");
    assert_eq!(restarts.trim(), DEATHS.to_string(), "{journal}");
    assert!(guest.inside("vgpu-device status").contains("vm2  vfio-user:"), "{journal}");

    // Stopped, it leaves nothing in /run. Its cache stays.
    guest.inside("systemctl stop vgpu-device@vm1 vgpu-device@vm2");
    let result = guest.inside("systemctl show -P Result -P ActiveState vgpu-device@vm1");
    assert_eq!(result.split_whitespace().collect::<Vec<_>>(), ["success", "inactive"]);
    assert_eq!(guest.inside("ls /run/vgpu-device"), "address-ranges\ngpus\n");
    assert_eq!(guest.inside("stat -c '%a %U' /var/cache/vgpu-device/vm1"), "711 root\n");
}

/// systemd keeps what the next process needs: the VM goes on with its connection each time that its device is
/// killed.
fn a_vm_outlives_its_device(guest: &mut SystemdGuest) {
    const HELD: &str = "set -- /proc/$(systemctl show -P MainPID vgpu-device@vm2)/fd/*; echo $#";
    guest.inside(VMM);
    let mut held = String::new();
    for death in 1..=DEATHS {
        guest.inside("kill -9 $(systemctl show -P MainPID vgpu-device@vm2)");
        guest.until(&format!(
            "[ $(systemctl show -P NRestarts vgpu-device@vm2) = {death} ] && systemctl -q is-active vgpu-device@vm2"
        ));
        // Each time it is another device, at the same connection.
        guest.until(&format!("[ $({GENERATIONS}) = {} ]", death + 1));
        guest.inside("systemctl -q is-active vmm");
        let status = guest.inside("vgpu-device status vm2");
        let said =
            format!("({death} since the VM connected): the VM was kept, and nothing need be restarted");
        assert!(status.contains(&said), "{status}");
        let now = guest.inside(HELD);
        assert_eq!(*if held.is_empty() { &now } else { &held }, now, "descriptors after death {death}");
        held = now;
        let kept = guest.inside("systemctl show -P NFileDescriptorStore vgpu-device@vm2");
        assert_eq!(kept.trim(), "6", "record, window, listener, connection, and two files of memory");
    }
    // The connection ends with the machine, and nothing of it is left.
    guest.inside("systemctl stop vmm");
    guest.until("[ $(systemctl show -P NFileDescriptorStore vgpu-device@vm2) = 3 ]");
}

/// Devices in sandboxes of their own know of each other: those without a number of addresses have different
/// ones, and the GPU's memory is promised once.
fn shares_the_host(guest: &mut SystemdGuest) {
    guest.inside("systemctl start vgpu-device@vm3");
    assert_eq!(guest.inside(RANGES), "00\n01\n44\n", "vm2 and vm3 have drawn theirs, vm1 was told");
    let status = guest.inside("vgpu-device status");
    assert!(status.contains("1 VM promised 1 GiB, 2.5 GiB free"), "{status}");

    let (code, said) = guest.try_inside("systemctl start vgpu-device@vm4");
    assert_ne!(code, 0, "{said}");
    let journal = guest.inside("journalctl --no-pager --output cat --unit vgpu-device@vm4");
    let refusal =
        "cannot promise 3072 MiB: of 3584 MiB for VMs 2560 MiB are free, because vm1 holds 1024 MiB";
    assert!(journal.contains(refusal), "{journal}");
    guest.inside("systemctl stop vgpu-device@vm3 vgpu-device@vm4");
    shares_the_time(guest);
    assert_eq!(guest.inside(RANGES), "00\n44\n");
}

/// The node process finds in its sandbox what devices share, and listens for whoever asks for metrics.
fn shares_the_time(guest: &mut SystemdGuest) {
    guest.outside(&format!("cat >/tree/etc/systemd/system/vgpu-device-node.service <<'END'\n{NODE}END"));
    guest.inside("systemctl daemon-reload && systemctl start vgpu-device-node");
    let status = guest.inside("vgpu-device status");
    assert!(status.contains("the node process shares its time"), "{status}");
    // The port is 19400, in the state of a socket that listens.
    let sockets = guest.inside("cat /proc/net/tcp");
    assert!(sockets.contains(":4BC8 00000000:0000 0A"), "{sockets}");
    guest.inside("systemctl stop vgpu-device-node");
}
