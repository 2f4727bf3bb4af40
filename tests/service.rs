//! Tests `vgpu-run service` on directory trees of other systems: the written files, the refusals, and that
//! removal restores every byte.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const UNIT: &str = "/etc/systemd/system/ollama.service";
const DROP_IN: &str = "/etc/systemd/system/ollama.service.d/zz-vgpu-run.conf";
const RULE: &str = "/etc/udev/rules.d/60-vgpu-run.rules";
const LAUNCHER: &str = "/usr/local/bin/vgpu-run";

/// Returns the unit of Ollama's own installer.
fn stock(program: &str) -> String {
    format!(
        "[Unit]\nDescription=Ollama Service\nAfter=network-online.target\n\n[Service]\nExecStart={program} serve\nUser=ollama\n\
         Group=ollama\nRestart=always\nRestartSec=3\nEnvironment=\"PATH=/usr/local/sbin:/usr/local/bin:/usr/bin:/bin\"\n\n\
         [Install]\nWantedBy=default.target\n"
    )
}

/// A simulated system in a directory tree.
struct Tree(TempDir);

struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::Builder::new().prefix("vgpu-run-service.").tempdir().unwrap());
        tree.write(LAUNCHER, "the launcher");
        tree.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n");
        tree
    }

    fn with_ollama() -> Self {
        let tree = Self::new();
        tree.write(UNIT, stock("/usr/local/bin/ollama"));
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Returns the content of the tree: directories, files and link targets.
    fn all(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn walk(folder: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                let content = if metadata.is_dir() {
                    walk(&path, all);
                    b"folder".to_vec()
                } else if metadata.is_symlink() {
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                } else {
                    fs::read(&path).unwrap()
                };
                all.insert(path, content);
            }
        }
        let mut all = BTreeMap::new();
        walk(self.0.path(), &mut all);
        all
    }

    fn service(&self, words: &[&str]) -> Said {
        let output = Command::new(env!("CARGO_BIN_EXE_vgpu-run"))
            .args(words)
            .arg("--root")
            .arg(self.0.path())
            .env_remove("VGPU_LOG")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn install(&self, more: &[&str]) -> String {
        let words = [&["service", "install", "--yes", "--launcher", LAUNCHER], more].concat();
        let said = self.service(&words);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
        said.out
    }

    #[track_caller]
    fn refused(&self, words: &[&str], sentence: &str, hint: &str) {
        let before = self.all();
        let said = self.service(words);
        assert_eq!(said.code, 125, "{}{}", said.out, said.err);
        let lines: Vec<_> = said.err.lines().collect();
        assert!(lines[0].starts_with("vgpu-run: ") && lines[0].contains(sentence), "{}", said.err);
        assert!(lines.get(1).copied().unwrap_or("").contains(hint), "{}", said.err);
        assert_eq!(self.all(), before, "something was changed");
    }
}

const INSTALL: [&str; 5] = ["service", "install", "--yes", "--launcher", LAUNCHER];
const REMOVE: [&str; 3] = ["service", "remove", "--yes"];
const STATUS: [&str; 2] = ["service", "status"];

#[test]
fn installed_and_undone_byte_for_byte() {
    for extra in [
        None,
        Some("/etc/udev/rules.d/99-other.rules"),
        Some("/etc/systemd/system/ollama.service.d/override.conf"),
    ] {
        let tree = Tree::with_ollama();
        if let Some(path) = extra {
            tree.write(path, "# mine\n[Service]\nEnvironment=A=1\n");
        }
        let before = tree.all();
        let said = tree.install(&[]);
        assert!(said.contains(&format!("+++ {DROP_IN}\n")) && said.contains("--- /dev/null\n"), "{said}");
        assert!(
            said.contains("+ExecStart=/usr/local/bin/vgpu-run -- /usr/local/bin/ollama serve\n"),
            "{said}"
        );
        assert!(tree.read(DROP_IN).ends_with(
            "[Service]\nSupplementaryGroups=vgpu\nExecStart=\nExecStart=/usr/local/bin/vgpu-run -- /usr/local/bin/ollama serve\n"
        ));
        assert!(tree.read(RULE).contains("chgrp vgpu") && tree.read(RULE).contains("vgpu-run-reap@.path"));
        assert!(tree.read("/etc/systemd/system/vgpu-run-reap@.path").contains("PathChanged=%f/resource2\n"));
        assert!(
            tree.read("/etc/systemd/system/vgpu-run-reap@.service")
                .contains(&format!("ExecStart={LAUNCHER} reap --linger 5\n"))
        );
        let look = tree.read("/etc/systemd/system/vgpu-run-reap-end@.service");
        assert!(look.contains(&format!("ExecStart={LAUNCHER} reap\n")), "{look}");
        assert!(tree.read("/etc/sysusers.d/vgpu-run.conf").contains("\ng vgpu -\n"));
        assert_eq!(tree.service(&STATUS).code, 0);

        let installed = tree.all();
        assert!(tree.install(&[]).contains("Everything is written already."));
        assert_eq!(tree.all(), installed, "again changes nothing");

        let said = tree.service(&REMOVE);
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        assert!(said.out.contains(&format!("--- {DROP_IN}\n+++ /dev/null\n")), "{}", said.out);
        assert_eq!(tree.all(), before, "with {extra:?}");
        let again = tree.service(&REMOVE);
        assert!(again.code == 0 && again.out.contains("nothing to take away"), "{}", again.out);
        assert_eq!(tree.service(&STATUS).code, 3);
    }
}

/// Guards against privilege escalation: links in a tree of another user do not lead out of it.
#[test]
fn links_of_a_tree_do_not_lead_out_of_it() {
    for (link, absolute) in [
        ("/etc/systemd/system/ollama.service.d", true),
        ("/etc/udev/rules.d", false),
        ("/etc/udev", true),
        ("/var/lib/vgpu-run", false),
        ("/var", true),
    ] {
        let tree = Tree::with_ollama();
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path(link).parent().unwrap()).unwrap();
        let up = "../".repeat(32);
        let target = outside.path().to_str().unwrap();
        symlink(if absolute { target.to_owned() } else { up + &target[1..] }, tree.path(link)).unwrap();
        let said = tree.service(&INSTALL);
        assert_eq!(said.code, 125, "{link}: {}", said.out);
        assert!(said.err.starts_with("vgpu-run: failed to read or write "), "{}", said.err);
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "{link}");
    }
    // A link of the tree that stays in it is followed.
    let tree = Tree::with_ollama();
    fs::create_dir_all(tree.path("/usr/lib/rules")).unwrap();
    fs::create_dir_all(tree.path("/etc/udev")).unwrap();
    symlink("/usr/lib/rules", tree.path("/etc/udev/rules.d")).unwrap();
    tree.install(&[]);
    assert_eq!(fs::read_dir(tree.path("/usr/lib/rules")).unwrap().count(), 1);
    assert_eq!(tree.service(&REMOVE).code, 0);
    assert_eq!(fs::read_dir(tree.path("/usr/lib/rules")).unwrap().count(), 0);
}

#[test]
fn what_was_planted_in_a_tree_is_not_written_through() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let tree = Tree::with_ollama();
    // The name under which a file is written before it gets its own.
    fs::create_dir_all(tree.path(RULE).parent().unwrap()).unwrap();
    symlink(&secret, tree.path(&format!("{RULE}.new"))).unwrap();
    tree.install(&[]);
    assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
    assert!(tree.read(RULE).contains("chgrp vgpu"));
    // A unit that would make root wait for ever.
    fs::remove_file(tree.path(UNIT)).unwrap();
    let fifo = Command::new("mkfifo").arg(tree.path(UNIT)).status().unwrap();
    assert!(fifo.success());
    let said = tree.service(&STATUS);
    assert!(said.code == 1 && said.out.contains("is a FIFO, not a regular file"), "{}{}", said.out, said.err);
}

#[test]
fn nothing_is_written_unasked() {
    let tree = Tree::with_ollama();
    let before = tree.all();
    let said = tree.service(&["service", "install", "--dry-run", "--launcher", LAUNCHER]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(said.out.contains("+ExecStart=/usr/local/bin/vgpu-run -- "), "{}", said.out);
    assert_eq!(tree.all(), before);
    tree.refused(
        &["service", "install", "--launcher", LAUNCHER],
        "there is nobody to ask, and no --yes",
        "--dry-run",
    );
    tree.install(&[]);
    let installed = tree.all();
    assert_eq!(tree.service(&["service", "remove", "--dry-run"]).code, 0);
    tree.refused(&["service", "remove"], "there is nobody to ask", "--yes");
    assert_eq!(tree.all(), installed);
}

#[test]
fn ollama_upgrades_leave_it_alone_and_a_new_command_is_recognised() {
    let tree = Tree::with_ollama();
    tree.install(&[]);
    let installed = tree.all();
    // What its installer does: it writes the unit, and nothing else in that folder.
    tree.write(UNIT, stock("/usr/local/bin/ollama"));
    assert_eq!(tree.all(), installed);
    assert_eq!(tree.service(&STATUS).code, 0);

    // With another PATH it chooses another folder.
    tree.write(UNIT, stock("/usr/bin/ollama"));
    let said = tree.service(&STATUS);
    assert_eq!(said.code, 1);
    assert!(
        said.out.contains(
            "starts /usr/bin/ollama serve by now, and the drop-in still /usr/local/bin/ollama serve"
        ),
        "{}",
        said.out
    );
    let diff = tree.install(&[]);
    assert!(diff.contains("-ExecStart=/usr/local/bin/vgpu-run -- /usr/local/bin/ollama serve\n"), "{diff}");
    assert!(diff.contains("+ExecStart=/usr/local/bin/vgpu-run -- /usr/bin/ollama serve\n"), "{diff}");
    assert_eq!(tree.service(&STATUS).code, 0);
    let before: Vec<_> = Tree::with_ollama().all().into_keys().collect();
    assert_eq!(tree.service(&REMOVE).code, 0);
    assert_eq!(tree.all().len(), before.len());
}

#[test]
fn an_administrators_own_command_is_kept() {
    let tree = Tree::with_ollama();
    tree.write(
        "/usr/lib/systemd/system/ollama.service.d/50-site.conf",
        "[Service]\nExecStart=\nExecStart=-/opt/ollama \\\n  serve --verbose \"a b\"\n",
    );
    tree.install(&["--allow-cpu", "--via", "folder"]);
    assert!(
        tree.read(DROP_IN).contains(
            "\nExecStart=-/usr/local/bin/vgpu-run --allow-cpu --via folder -- /opt/ollama    serve --verbose \"a b\"\n"
        ),
        "{}",
        tree.read(DROP_IN)
    );
    // One that counts after ours undoes it.
    tree.write(
        "/etc/systemd/system/ollama.service.d/zzz.conf",
        "[Service]\nExecStart=\nExecStart=/bin/other\n",
    );
    let said = tree.service(&STATUS);
    assert!(said.code == 1 && said.out.contains("zzz.conf counts after ours"), "{}", said.out);
}

#[test]
fn units_of_other_names_and_places() {
    let tree = Tree::new();
    tree.write("/usr/lib/systemd/system/llm.service", "[Service]\nExecStart=/opt/llm/ollama serve\n");
    fs::create_dir_all(tree.path("/etc/systemd/system")).unwrap();
    symlink("/usr/lib/systemd/system/llm.service", tree.path("/etc/systemd/system/alias.service")).unwrap();
    let before = tree.all();
    tree.install(&["--unit", "llm"]);
    tree.install(&["--unit", "alias.service"]);
    let text = tree.read("/etc/systemd/system/alias.service.d/zz-vgpu-run.conf");
    assert!(text.contains("-- /opt/llm/ollama serve\n"), "{text}");
    assert_eq!(tree.service(&["service", "status", "--unit", "llm"]).code, 0);
    let none = tree.service(&STATUS);
    assert!(none.code == 3 && none.out.contains("Set up: alias.service, llm.service."), "{}", none.out);
    // The device stays as long as a unit needs it.
    assert_eq!(tree.service(&["service", "remove", "--yes", "--unit", "llm"]).code, 0);
    assert!(tree.path(RULE).exists() && !tree.path("/etc/systemd/system/llm.service.d").exists());
    assert_eq!(tree.service(&["service", "remove", "--yes", "--unit", "alias"]).code, 0);
    assert_eq!(tree.all(), before);
    for name in ["../evil", "a b", ""] {
        tree.refused(
            &[&INSTALL[..], &["--unit", name]].concat(),
            "is no name of a service",
            "ollama.service",
        );
    }
}

#[test]
fn what_others_changed_is_named_and_left() {
    for path in [DROP_IN, RULE] {
        let tree = Tree::with_ollama();
        tree.install(&[]);
        let text = tree.read(path);
        tree.write(path, format!("{text}# mine\n"));
        let sentence = format!("{path} was changed since vgpu-run wrote it");
        tree.refused(&REMOVE, &sentence, "Take back the change");
        tree.write(UNIT, stock("/usr/bin/ollama"));
        tree.refused(&INSTALL, &sentence, "Take back the change");
        let said = tree.service(&STATUS);
        assert!(said.code == 1 && said.out.contains(&format!("{path} was changed")), "{}", said.out);
        // Gone is as good as taken away.
        fs::remove_file(tree.path(path)).unwrap();
        assert_eq!(tree.service(&REMOVE).code, 0);
    }
    let tree = Tree::with_ollama();
    tree.write(DROP_IN, "[Service]\nEnvironment=B=2\n");
    tree.refused(&INSTALL, "zz-vgpu-run.conf: it is there, and vgpu-run did not write it", "move it away");
}

#[test]
fn units_that_cannot_be_set_up() {
    let unit = |text: &str| {
        let tree = Tree::new();
        tree.write(UNIT, text);
        tree
    };
    for (text, sentence, hint) in [
        ("", "is masked", "systemctl unmask ollama.service"),
        ("[Service]\nUser=x\n", "has no ExecStart=", "Mend the file"),
        ("\u{0}\u{0}garbage", "has no ExecStart=", "Mend the file"),
        ("[Service]\nExecStart=/usr/bin/podman run ollama\n", "starts a container", "--privileged"),
        ("[Service]\nExecStart=/usr/bin/snap run ollama.listener\n", "starts a snap", "snap remove ollama"),
        (
            "[Service]\nExecStart=/opt/vgpu-run ollama serve\n",
            "with vgpu-run already",
            "Take vgpu-run out of",
        ),
        ("[Service]\nExecStart=/a\nExecStart=/b\n", "starts 2 commands", "by hand"),
    ] {
        unit(text).refused(&INSTALL, sentence, hint);
    }
    let tree = Tree::new();
    tree.write(UNIT, b"[Service]\nExecStart=/\xff\n");
    tree.refused(&INSTALL, "it is not UTF-8", "Mend the file");
    let tree = Tree::new();
    fs::create_dir_all(tree.path("/etc/systemd/system")).unwrap();
    symlink("/dev/null", tree.path(UNIT)).unwrap();
    tree.refused(&INSTALL, "is masked", "unmask");
    for (path, hint) in [
        ("/snap/bin/ollama", "snap remove ollama"),
        ("/.dockerenv", "--privileged"),
        ("/etc/init.d/ollama", "vgpu-run --user ollama ollama serve"),
    ] {
        let tree = Tree::new();
        tree.write(path, "");
        tree.refused(&INSTALL, "there is no ollama.service", hint);
    }
    Tree::new().refused(
        &[&INSTALL[..], &["--unit", "llm"]].concat(),
        "there is no llm.service",
        "--unit NAME",
    );
    let tree = Tree::with_ollama();
    tree.refused(
        &["service", "install", "--yes", "--launcher", "/opt/my programs/vgpu-run"],
        "has letters that systemd reads as something else",
        "/usr/local/bin",
    );
}

#[test]
fn before_ollama_is_there() {
    let tree = Tree::new();
    let before = tree.all();
    let said = tree.install(&[]);
    assert!(said.contains("note: ollama.service is not here yet."), "{said}");
    assert!(tree.service(&STATUS).out.contains("ollama.service is not here yet"));
    tree.write(UNIT, stock("/usr/local/bin/ollama"));
    assert_eq!(tree.service(&STATUS).code, 0, "as its installer makes it");
    tree.write(UNIT, stock("/usr/bin/ollama"));
    assert_eq!(tree.service(&STATUS).code, 1);
    fs::remove_file(tree.path(UNIT)).unwrap();
    assert_eq!(tree.service(&REMOVE).code, 0);
    fs::remove_dir_all(tree.path("/etc/systemd")).unwrap_or_default();
    let left: Vec<_> = tree.all().into_keys().filter(|path| path.is_file()).collect();
    assert_eq!(left, before.into_keys().filter(|path| path.is_file()).collect::<Vec<_>>());
}

#[test]
fn by_hand() {
    let tree = Tree::new();
    let before = tree.all();
    tree.install(&["--device-only"]);
    assert!(tree.path(RULE).exists() && !tree.path(DROP_IN).exists());
    assert_eq!(tree.service(&REMOVE).code, 0);
    assert_eq!(tree.all(), before);
    let me = [&INSTALL[..], &["--device-only", "--user", "me"]].concat();
    tree.refused(&me, "failed to put me into the group", "usermod --append --groups vgpu me");
    assert_eq!(
        tree.service(&["service", "install", "--device-only", "--unit", "x"]).code,
        125,
        "one or the other"
    );
}

#[test]
fn what_the_unit_keeps_from_the_device_is_told() {
    let tree = Tree::new();
    tree.write(UNIT, "[Service]\nExecStart=/bin/ollama serve\nProtectKernelTunables=yes\n");
    let said = tree.install(&[]);
    assert!(said.contains("has ProtectKernelTunables=yes, which makes /sys read-only"), "{said}");
    assert!(!tree.read(DROP_IN).contains("ProtectKernelTunables"), "that right is not for us to give");
}

#[test]
fn the_launcher_must_be_there() {
    let tree = Tree::with_ollama();
    tree.install(&[]);
    fs::remove_file(tree.path(LAUNCHER)).unwrap();
    let said = tree.service(&STATUS);
    assert!(said.code == 1 && said.out.contains("/usr/local/bin/vgpu-run is gone"), "{}", said.out);
}

#[test]
fn a_receipt_of_another_kind_is_refused() {
    let tree = Tree::with_ollama();
    tree.install(&[]);
    let path = "/var/lib/vgpu-run/service.json";
    let mut receipt: Value = serde_json::from_str(&tree.read(path)).unwrap();
    receipt["schema"] = "vgpu-run.service/2".into();
    for text in [receipt.to_string(), "{".into(), "null".into()] {
        tree.write(path, text);
        tree.refused(&REMOVE, "service.json", "");
    }
}

/// `systemd-analyze verify` accepts the written drop-in.
#[test]
fn systemd_takes_the_drop_in() {
    let Some(analyze) =
        ["/usr/bin/systemd-analyze", "/bin/systemd-analyze"].iter().find(|path| Path::new(path).exists())
    else {
        println!("no systemd-analyze on this machine");
        return;
    };
    let tree = Tree::new();
    // Programs that are there, for it looks.
    tree.write(UNIT, stock("/bin/cat"));
    let words = ["service", "install", "--yes", "--launcher", "/bin/echo"];
    assert_eq!(tree.service(&words).code, 0);
    let output = Command::new(analyze).args(["verify", "--man=no"]).arg(tree.path(UNIT)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours: Vec<_> = said.lines().filter(|line| line.contains("ollama")).collect();
    assert!(ours.is_empty(), "{said}");
    // And it would say so.
    let text = tree.read(DROP_IN);
    tree.write(
        DROP_IN,
        text.replace("ExecStart=\n", "ExecStart=\nExecStrt=/bin/x\n").replace("/bin/echo", "echo/"),
    );
    let output = Command::new(analyze).args(["verify", "--man=no"]).arg(tree.path(UNIT)).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("zz-vgpu-run.conf"), "{said}");
}
