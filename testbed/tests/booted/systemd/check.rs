//! `vgpu-run check --service` beside a real systemd: it reads the unit's properties and the journal, and
//! starts Ollama's server in a transient unit with the sandbox of the service. Ollama is the stand-in of a
//! release, with GGML's own backend.

use std::path::Path;

use serde_json::Value;

use super::guest::SystemdGuest;

/// Script that installs the libraries of a release, and a home directory for its user.
const LIBRARIES: &str = r"
set -e
cd /tree
libraries=usr/local/lib/ollama
mkdir -p $libraries/cuda_v12
# /usr/share is read-only here.
sed -i s,/usr/share/ollama,/var/lib/ollama, etc/passwd
mkdir var/lib/ollama
chown 998:998 var/lib/ollama
cp $PROGRAMS/ollama-llama-server $libraries/llama-server
cp $BACKEND/libggml-base* $BACKEND/libggml-cpu-x64* $BACKEND/libggml-cpu-haswell* $libraries/
cp $BACKEND/libggml.* $libraries/libggml.so
cp $BACKEND/libllama.* $libraries/libllama.so
touch $libraries/cuda_v12/libggml-cuda.so
mount -o bind $BACKEND/libggml-cuda.so $libraries/cuda_v12/libggml-cuda.so
";

/// Drop-in with a sandbox as distributions and administrators configure it. One of its settings hides the
/// device.
const HARDENED: &str = "[Service]\nNoNewPrivileges=yes\nPrivateDevices=yes\nPrivateTmp=yes\nProtectHome=yes\n\
     ProtectKernelTunables=yes\nProtectSystem=strict\nReadWritePaths=/var/lib/ollama\n\
     SystemCallFilter=@system-service\n";

/// Returns the report of a check with this verdict.
#[track_caller]
fn check(guest: &mut SystemdGuest, verdict: &str) -> Value {
    // The guest's processors are emulated, by those of a machine that may be busy.
    let (code, out) = guest.try_inside("vgpu-run check --service --json --timeout 300");
    let line = out.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{code} {out}"));
    let report: Value = serde_json::from_str(line).unwrap();
    assert_eq!(report["verdict"], verdict, "{report:#}");
    assert_eq!(code, i32::from(verdict != "works"), "{report:#}");
    report
}

fn link<'a>(report: &'a Value, id: &str) -> &'a Value {
    let mut links = report["checks"].as_array().unwrap().iter();
    links.find(|link| link["id"] == id).unwrap()
}

/// Applies the remedy of the first broken link.
fn mend(guest: &mut SystemdGuest, report: &Value) {
    let first = link(report, report["first_failure"]["link"].as_str().unwrap());
    let command = first["fix"]["command"].as_str().unwrap();
    guest.inside(&command.replace("service install", "service install --yes"));
}

/// Returns a script that puts the libraries of a release into the tree. It must run before systemd, which
/// does not see later mounts.
pub fn release(programs: &Path, backend: &Path) -> String {
    format!("PROGRAMS={} BACKEND={}\n{LIBRARIES}", programs.display(), backend.display())
}

pub fn examines_the_service_and_its_remedies_mend_it(guest: &mut SystemdGuest, programs: &Path) {
    guest.inside("systemctl stop ollama");
    guest.outside(&format!(
        "cd /tree/usr/local/bin; rm ollama; cp {}/ollama-era-c ollama",
        programs.display()
    ));
    guest.ollama_unit("/usr/local/bin/ollama");
    guest.inside("systemctl daemon-reload; systemctl start ollama");

    // As Ollama's installer leaves it.
    let report = check(guest, "broken");
    let found: Vec<&str> =
        report["issues"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!(found, ["permission/device-permission", "service/not-wrapped", "truth/launcher-refused"]);
    mend(guest, &report);

    // The server of the last link ran in a transient unit, of which nothing is left.
    guest.until("journalctl --unit ollama | { while read line; do case $line in *library=CUDA*) exit 0;; esac; done; exit 1; }");
    let report = check(guest, "works");
    let said = link(&report, "truth")["found"].as_str().unwrap();
    assert!(said.starts_with("ollama serve finds VGPU-STUB soft"), "{said}");
    assert_eq!(link(&report, "service")["status"], "pass", "{report:#}");
    let units = guest.inside("systemctl list-units --all --no-legend --no-pager 'run-u*' 'run-r*'");
    assert_eq!(units, "", "transient units are left");

    // A sandbox that takes sysfs away is named, and the rest of it does no harm.
    guest.inside(&format!(
        "printf '{}' >/etc/systemd/system/ollama.service.d/hardened.conf\nsystemctl daemon-reload && systemctl restart ollama || true",
        HARDENED.replace('\n', "\\n")
    ));
    let report = check(guest, "broken");
    assert_eq!(report["first_failure"]["cause"], "sysfs-read-only", "{report:#}");
    assert_eq!(link(&report, "truth")["cause"], "launcher-refused", "{report:#}");
    mend(guest, &report);
    guest.until("journalctl --unit ollama --since \"$(systemctl show -P ActiveEnterTimestamp ollama | cut -d' ' -f2,3)\" \
                 | { while read line; do case $line in *library=CUDA*) exit 0;; esac; done; exit 1; }");
    check(guest, "works");
}
