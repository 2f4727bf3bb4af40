//! Tests of the unpacked release for hosts: the program runs as it is installed, with the system's own
//! loader.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use xtask::dist::host;
use xtask::workspace;

const PROGRAM: &str = env!("CARGO_BIN_EXE_vgpu-device");

/// Requests and macros of man(7) that the manual page may use, all of which groff and mandoc know.
const REQUESTS: [&str; 13] = ["TH", "SH", "SS", "TP", "IP", "PP", "RS", "RE", "nf", "fi", "br", "ie", "el"];
/// Escapes in its text: a backslash, fonts, a dash, a position of zero width, an apostrophe.
const ESCAPES: [&str; 7] = ["\\", "fB", "fI", "fR", "-", "&", "*(Aq"];

#[test]
fn every_line_of_the_manual_is_text_or_a_request_that_man_knows() {
    let folder = tempfile::tempdir().unwrap();
    let written = Command::new(PROGRAM).arg("__pages").arg(folder.path()).status().unwrap();
    assert!(written.success());
    let manual = fs::read_to_string(folder.path().join(vgpu_serve::pages::MANUAL)).unwrap();
    assert!(manual.is_ascii(), "{manual}");
    for line in manual.lines() {
        if let Some(request) = line.strip_prefix(['.', '\'']) {
            let name = request.split_whitespace().next().unwrap_or_default();
            assert!(REQUESTS.contains(&name), "{line:?}");
            continue;
        }
        let mut rest = line;
        while let Some((_, escape)) = rest.split_once('\\') {
            let found = ESCAPES.iter().find_map(|known| escape.strip_prefix(known));
            rest = found.unwrap_or_else(|| panic!("{line:?}"));
        }
    }
}

#[test]
fn an_unpacked_release_runs() {
    let (root, folder) = (workspace::root().unwrap(), tempfile::tempdir().unwrap());
    let pack =
        |prefix: &str| host::pack(&root, "1.2.3", Path::new(PROGRAM), &folder.path().join(prefix)).unwrap();
    let packed = pack("pages");
    assert_eq!(packed.archive, pack("others").archive, "the same each time it is made");
    assert!(packed.glibc <= host::OLDEST, "{}", packed.glibc);
    let archive = folder.path().join("release.tar.gz");
    fs::write(&archive, &packed.archive).unwrap();
    let unpacked =
        Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()).status().unwrap();
    assert!(unpacked.success());
    let release = folder.path().join("vgpu-device-1.2.3-x86_64-linux-gnu");
    for file in [
        "lib/systemd/system/vgpu-device-node.service",
        "lib/systemd/system/vgpu-device@.service",
        "lib/tmpfiles.d/vgpu-device.conf",
        "share/bash-completion/completions/vgpu-device",
        "share/doc/vgpu-device/LICENSE-MIT",
        "share/doc/vgpu-device/grafana-dashboard.json",
        "share/doc/vgpu-device/host.md",
        "share/doc/vgpu-device/vm1.toml",
        "share/man/man8/vgpu-device.8",
        "share/vgpu-device/libvirt-hook",
        "share/vgpu-device/libvirt-qemu.apparmor",
        "share/vgpu-device/vgpu-device.cil",
    ] {
        assert!(release.join(file).is_file(), "{file}");
    }

    let program = release.join("bin/vgpu-device");
    // The system's loader lists what it loads; a static program has no list.
    let list = Command::new("/lib64/ld-linux-x86-64.so.2").arg("--list").arg(&program).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("libc.so.6 => /") && !list.contains("not found"), "{list}");
    let said = Command::new(&program).arg("--version").output().unwrap();
    assert!(said.status.success());
    assert_eq!(
        String::from_utf8(said.stdout).unwrap(),
        concat!("vgpu-device ", env!("CARGO_PKG_VERSION"), "\n")
    );
    // Whatever this host lacks is a finding, and the example is understood.
    let example = release.join("share/doc/vgpu-device/vm1.toml");
    let check = Command::new(&program).args(["check", "--json", "--config"]).arg(example).output().unwrap();
    let report: Value = serde_json::from_slice(&check.stdout).unwrap_or_else(|_| panic!("{check:?}"));
    let broken = report["verdict"] == "broken";
    assert_eq!(check.status.code(), Some(i32::from(broken)), "{report:#}");
}
