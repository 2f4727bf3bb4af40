//! `vgpu-device libvirt-hook` and `attach-domain`, with scripts in the place of systemctl, journalctl and virsh.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::host::Host;
use crate::program::program;

const UUID: &str = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0";
const OTHER: &str = "5dea22b3-1d52-d8f3-2516-782e98ab3fa0";

/// Plays systemd: a unit is active while there is a file of that name. Its runtime directory goes with it. A
/// stop that is not waited for is a job.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >>"$PLAY/log"
case $1 in
show)
    if [ -e "$PLAY/active" ]; then echo ActiveState=active; else echo ActiveState=inactive; fi
    [ ! -e "$PLAY/job" ] || echo Job=7 ;;
start)
    if [ -e "$PLAY/refuses" ]; then echo "Job for $2 failed." >&2; exit 1; fi
    if [ -e "$PLAY/active" ]; then exit 0; fi
    mkdir -p "$PLAY/root/run/vgpu-device/vm1"
    cat "$PLAY/root/run/vgpu-device/libvirt/vm1.toml" >"$PLAY/served.toml"
    : >"$PLAY/active" ;;
stop)
    if [ "$2" = --no-block ]; then : >"$PLAY/job"; exit 0; fi
    rm -rf "$PLAY/active" "$PLAY/job" "$PLAY/root/run/vgpu-device/vm1" ;;
esac
"#;
/// Plays the journal, which has old lines, too.
const JOURNALCTL: &str = r#"#!/bin/sh
case "$*" in *"--since=@"*) ;; *) echo 'vgpu-device: an old error'; exit 0 ;; esac
echo 'started'
[ -e "$PLAY/silent" ] || echo 'vgpu-device: no room is left'
echo 'systemd: failed'
"#;
/// Plays libvirt, which writes the XML of a domain in its own way, as far as anybody could tell.
const VIRSH: &str = r#"#!/bin/sh
echo "$1" >>"$PLAY/log"
case "$*" in
"dumpxml --inactive --security-info --domain vm1") cat "$PLAY/domain.xml" ;;
define*) sed "s/'8G'/\"8G\"/" "$2" >"$PLAY/defined.xml" && mv "$PLAY/defined.xml" "$PLAY/domain.xml" ;;
*) echo "error: failed to get domain '$5'" >&2; exit 1 ;;
esac
"#;

/// Programs of a host that are played, and what stands for its `/`.
struct Played {
    folder: TempDir,
    host: Host,
}

impl Played {
    fn new() -> Self {
        let played = Self { folder: tempfile::tempdir().unwrap(), host: Host::new() };
        fs::create_dir_all(played.path("root/etc/vgpu-device")).unwrap();
        fs::create_dir(played.path("bin")).unwrap();
        for (name, text) in [("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL), ("virsh", VIRSH)] {
            // Another process writes it, so that no thread of this one holds it open while it is started.
            let written = Command::new("sh")
                .args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", text])
                .arg(played.path("bin").join(name))
                .status()
                .unwrap();
            assert!(written.success());
        }
        // The check of a host needs no GPU for this executor.
        fs::write(played.path("root/etc/vgpu-device/vm1.toml"), "executor = \"soft\"\n").unwrap();
        played
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns what the programs were told since this was last asked.
    fn told(&self) -> String {
        let told = self.text("log");
        fs::write(self.path("log"), "").unwrap();
        told
    }

    fn command(&self, name: &str) -> Command {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = program();
        command.arg(name).arg("--root").arg(self.path("root"));
        command.env("PATH", path).env("PLAY", self.folder.path());
        command
    }

    fn hook(&self, words: &[&str], xml: &str) -> Output {
        let mut child = self
            .command("libvirt-hook")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // For other operations the hook ends without reading the domain, which closes the pipe.
        let _ = child.stdin.take().unwrap().write_all(xml.as_bytes());
        let output = child.wait_with_output().unwrap();
        assert!(output.stdout.is_empty(), "libvirt would take it for XML: {output:?}");
        output
    }

    fn prepare(&self, xml: &str) -> (bool, String) {
        let output = self.hook(&["vm1", "prepare", "begin", "-"], xml);
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }

    /// Returns the names of the hook's files.
    fn kept(&self) -> Vec<String> {
        let files = fs::read_dir(self.path("root/run/vgpu-device/libvirt")).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn release(&self, xml: &str) {
        assert!(self.hook(&["vm1", "release", "end", "destroyed"], xml).status.success());
    }

    /// Returns the XML of a domain that libvirt is about to start.
    fn domain(&self, uuid: &str, attributes: &str, emulator: &str) -> String {
        let socket = self.path("root/run/vgpu-device/vm1/device");
        format!(
            "<domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>vm1</name><uuid>{uuid}</uuid>\
             <metadata><v:device xmlns:v='urn:vgpu-run:device:1' {attributes}/></metadata>\
             <devices><emulator>{emulator}</emulator></devices>\
             <seclabel type='dynamic' model='dac'><label>+1000:+4242</label></seclabel>\
             <qemu:commandline><qemu:arg value='-device'/><qemu:arg value='{{\"driver\":\"vfio-user-pci\",\
             \"socket\":{{\"path\":\"{}\"}}}}'/></qemu:commandline></domain>",
            socket.display()
        )
    }
}

#[test]
fn an_instance_starts_before_its_domain_and_stops_after_it() {
    let played = Played::new();
    let xml = played.domain(UUID, "memory='2G' weight='3'", "/bin/false");
    assert_eq!(played.prepare(&xml), (true, String::new()));
    assert!(played.told().ends_with("reset-failed vgpu-device@vm1.service\nstart vgpu-device@vm1.service\n"));
    let served = played.text("served.toml");
    for line in [
        "memory = \"2G\"\n".to_owned(),
        "weight = 3\n".to_owned(),
        "group = \"4242\"\n".to_owned(),
        format!("bus = \"vfio-user:{}\"\n", played.path("root/run/vgpu-device/vm1/device").display()),
    ] {
        assert!(served.contains(&line), "{line} is not in {served}");
    }
    // The domain's other operations, and other domains.
    for words in [["vm1", "start", "begin"], ["vm1", "started", "begin"], ["vm1", "reconnect", "begin"]] {
        assert!(played.hook(&words, &xml).status.success());
    }
    let plain = xml.replace("urn:vgpu-run:device:1", "urn:of-others");
    assert_eq!(played.prepare(&plain), (true, String::new()));
    played.release(&plain);
    let migrate = |xml| played.hook(&["vm1", "migrate", "begin", "-"], xml);
    assert!(migrate(&plain).status.success());
    assert!(played.hook(&[], "").status.success());
    let refused = migrate(&xml);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("vm1 cannot migrate"), "{said}");
    assert_eq!(played.told(), "");

    let (taken, said) = played.prepare(&played.domain(OTHER, "", "/bin/false"));
    assert!(!taken && said.contains(&format!("in use by the domain {UUID}")), "{said}");
    played.release(&played.domain(OTHER, "", "/bin/false"));
    assert!(!played.told().contains("stop "), "another domain's instance was stopped");

    played.release(&xml);
    assert!(played.told().contains("stop --no-block vgpu-device@vm1.service\n"));
    assert_eq!(played.kept(), ["vm1.lock"]);
    assert_eq!(played.prepare(&xml), (true, String::new()), "it starts again");
    assert!(played.told().contains("stop vgpu-device@vm1.service\n"), "the stop that was not waited for");
    assert_eq!(played.prepare(&xml), (true, String::new()), "its end was not told");
    assert!(
        played.told().contains("stop vgpu-device@vm1.service\nreset-failed vgpu-device@vm1.service\nstart ")
    );
}

/// systemd gives a unit up that fails again and again, and removes its runtime directory while the VM runs
/// on.
#[test]
fn an_instance_that_systemd_gives_up_stays_its_domains() {
    let played = Played::new();
    let xml = played.domain(UUID, "memory='2G'", "/bin/false");
    assert_eq!(played.prepare(&xml), (true, String::new()));
    let given_up = || {
        fs::remove_file(played.path("active")).unwrap();
        fs::remove_dir_all(played.path("root/run/vgpu-device/vm1")).unwrap();
        fs::remove_file(played.path("served.toml")).unwrap();
    };
    given_up();
    assert_eq!(played.kept(), ["vm1.domain", "vm1.lock", "vm1.toml"]);
    // The operator starts it again: it has the domain's settings, and is the domain's.
    let mut start = Command::new(played.path("bin/systemctl"));
    assert!(start.args(["start", "x"]).env("PLAY", played.folder.path()).status().unwrap().success());
    assert!(played.text("served.toml").contains("memory = \"2G\""));
    let (taken, said) = played.prepare(&played.domain(OTHER, "", "/bin/false"));
    assert!(!taken && said.contains(&format!("in use by the domain {UUID}")), "{said}");
    given_up();
    played.told();
    played.release(&xml);
    assert!(played.told().contains("stop --no-block vgpu-device@vm1.service\n"));
    assert_eq!(played.kept(), ["vm1.lock"]);
}

#[test]
fn an_instance_of_the_operators_is_used_and_left() {
    let played = Played::new();
    fs::write(played.path("active"), "").unwrap();
    let xml = played.domain(UUID, "", "/bin/false");
    assert_eq!(played.prepare(&xml), (true, String::new()));
    played.release(&xml);
    let told = played.told();
    assert!(!told.contains("start ") && !told.contains("stop "), "{told}");
    let (ready, said) = played.prepare(&played.domain(UUID, "memory='2G'", "/bin/false"));
    assert!(!ready && said.contains("was not started for this domain") && said.contains("memory"), "{said}");
}

#[test]
fn a_domain_whose_device_is_not_ready_does_not_start() {
    let played = Played::new();
    fs::write(played.path("refuses"), "").unwrap();
    let (ready, said) = played.prepare(&played.domain(UUID, "memory='2G'", "/does/not/exist"));
    assert!(!ready && said.starts_with("vgpu-device: the domain vm1 does not get its GPU: "), "{said}");
    assert!(said.contains("vgpu-device@vm1.service is not ready. Broken: QEMU: there is no /does"), "{said}");
    let told = played.told();
    assert!(told.contains("stop vgpu-device@vm1.service\nreset-failed vgpu-device@vm1.service\n"), "{told}");
    assert_eq!(played.kept(), ["vm1.lock"]);

    // A host on which the check finds nothing: what the program said is told.
    let qemu = played.host.path("qemu");
    let (ready, said) = played.prepare(&played.domain(UUID, "memory='2G'", qemu.to_str().unwrap()));
    assert!(!ready && said.ends_with("is not ready. no room is left\n"), "{said}");
    // A program that said nothing: what systemctl said is told.
    fs::write(played.path("silent"), "").unwrap();
    let (ready, said) = played.prepare(&played.domain(UUID, "memory='2G'", qemu.to_str().unwrap()));
    assert!(!ready && said.contains("vgpu-device@vm1.service is not ready: "), "{said}");
    assert!(said.ends_with("Job for vgpu-device@vm1.service failed.\n"), "{said}");

    fs::remove_file(played.path("refuses")).unwrap();
    played.told();
    for (attributes, why) in [
        ("memory='2X'", "for example: memory = \"8G\""),
        ("colour='red'", "no attribute `colour`"),
        ("instance='../x'", "cannot name an instance"),
        ("instance='vm2'", "has no device at"),
    ] {
        let (ready, said) = played.prepare(&played.domain(UUID, attributes, "/bin/false"));
        assert!(!ready && said.contains(why), "{attributes}: {said}");
    }
    assert!(!played.told().contains("start "), "nothing was to be started");
}

#[test]
fn a_domain_gets_a_device_once_and_is_shown_what_would_change() {
    let played = Played::new();
    let before = "<domain type='kvm'>\n  <name>vm1</name>\n  <os><type machine='pc-q35-9.0'/></os>\n\
                  \x20 <devices>\n    <graphics type='vnc' passwd='secret'/>\n  </devices>\n</domain>\n";
    fs::write(played.path("domain.xml"), before).unwrap();
    let attach = |more: &[&str]| {
        let output = played.command("attach-domain").args(more).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout), text(output.stderr))
    };
    let (shown, diff, _) = attach(&["vm1", "--memory", "8G", "--dry-run"]);
    assert!(
        shown && diff.contains("\n+    <vgpu:device xmlns:vgpu='urn:vgpu-run:device:1' memory='8G'/>\n"),
        "{diff}"
    );
    assert!(diff.contains("\n+  <qemu:commandline>\n") && diff.contains("\n     <graphics"), "{diff}");
    assert!(!played.told().contains("define"));

    let (done, said, error) = attach(&["vm1", "--memory", "8G"]);
    assert!(
        done && said.starts_with("vm1 has a device at ") && said.contains("promised 8G"),
        "{said}{error}"
    );
    assert!(played.told().contains("define\n"));
    let after = played.text("domain.xml");
    assert!(after.contains("passwd='secret'") && after.contains("/run/vgpu-device/vm1/device"), "{after}");
    let (done, said, _) = attach(&["vm1"]);
    assert!(done && said.contains("already"), "{said}");
    assert!(!played.told().contains("define") && played.text("domain.xml") == after);
    // What the hook is given by this domain.
    let xml = after.replace("</domain>", &format!("<uuid>{UUID}</uuid></domain>"));
    assert_eq!(played.prepare(&xml), (true, String::new()));
    assert!(played.text("served.toml").contains("memory = \"8G\""));

    let (done, said, _) = attach(&["vm1", "--memory", "4G", "--window", "64M"]);
    let after = played.text("domain.xml");
    assert!(done && after.contains("memory='4G'") && after.contains("134217728"), "{said}{after}");
    for (arguments, why) in [
        (&["vm2"][..], "failed to get domain 'vm2'"),
        (&["vm1", "--memory", "lots"], "for example: memory = \"8G\""),
        (&["vm1", "--window", "3M"], "power of two"),
        (&["vm1", "--instance", "gpus"], "cannot name an instance"),
    ] {
        let (done, _, error) = attach(arguments);
        assert!(!done && error.contains(why), "{arguments:?}: {error}");
    }
    assert_eq!(played.text("domain.xml"), after);

    // The hook is no longer in charge, and what only the metadata said no longer counts.
    let (done, said, error) = attach(&["vm1", "--by-hand"]);
    assert!(done && said.contains("systemctl enable --now vgpu-device@vm1.service"), "{said}{error}");
    let after = played.text("domain.xml");
    assert!(!after.contains("vgpu:device") && !after.contains("134217728"), "{after}");
    let (done, said, _) = attach(&["vm1", "--by-hand"]);
    assert!(done && said.contains("already"), "{said}");
}
