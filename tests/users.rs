//! Guards against privilege escalation: runs `vgpu-run` as root in directories that the user `nobody` owns
//! and has prepared. Without root, each test places its links in a directory that is open to all, or prints
//! that it needs root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::Uid;
use tempfile::TempDir;

const NOBODY: u32 = 65534;

/// Directory with a secret and an empty directory of this user's, and a directory of `nobody`.
struct Bed(TempDir);

struct Said {
    code: Option<i32>,
    err: String,
}

impl Bed {
    fn new() -> Self {
        let bed = Self(TempDir::with_prefix("vgpu-users-").unwrap());
        let open = |name: &str, mode| {
            fs::set_permissions(bed.path(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        open("", 0o755);
        fs::write(bed.path("secret"), "secret").unwrap();
        open("secret", 0o600);
        for name in ["private", "hostile", "sys", "sys/bus", "sys/bus/pci", "sys/bus/pci/devices"] {
            fs::create_dir(bed.path(name)).unwrap();
            open(name, 0o755);
        }
        open("hostile", 0o777);
        bed.theirs("hostile");
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes `nobody` the owner of a path, if this process may.
    fn theirs(&self, name: &str) {
        if Uid::effective().is_root() {
            lchown(self.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    fn plant(&self, target: &str, name: &str) {
        symlink(self.path(target), self.path(name)).unwrap();
        self.theirs(name);
    }

    fn run(&self, words: &[&str], variables: &[(&str, &Path)]) -> Said {
        let output = Command::new(env!("CARGO_BIN_EXE_vgpu-run"))
            .args(words)
            .env("VGPU_SYSFS", self.path("sys"))
            .env_remove("VGPU_LOG")
            .env_remove("VGPU_LOG_FILE")
            .envs(variables.iter().copied())
            .current_dir(self.path("private"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Said { code: output.status.code(), err: String::from_utf8(output.stderr).unwrap() }
    }

    /// Asserts that the files of this user are unchanged.
    #[track_caller]
    fn unharmed(&self) {
        assert_eq!(fs::read_to_string(self.path("secret")).unwrap(), "secret");
        assert_eq!(fs::read_dir(self.path("private")).unwrap().count(), 0);
        let metadata = fs::metadata(self.path("private")).unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (Uid::effective().as_raw(), 0o755));
    }
}

/// Traces a shell that runs `script`, in which `$P` is the test's directory.
fn trace(bed: &Bed, options: &[&str], output: &str, script: &str) -> Said {
    let output = bed.path(output);
    let words = ["trace", "--output", output.to_str().unwrap(), "--", "/bin/sh", "-euc", script];
    bed.run(&[&["--allow-cpu"], options, &words].concat(), &[("P", bed.0.path())])
}

#[track_caller]
fn refused(said: &Said, sentence: &str, hint: &str) {
    assert_eq!(said.code, Some(125), "{}", said.err);
    let ours: Vec<_> = said.err.lines().filter(|line| !line.contains("warning: ")).collect();
    assert!(ours[0].starts_with("vgpu-run: ") && ours[0].contains(sentence), "{}", said.err);
    assert!(
        ours.get(1).is_some_and(|line| line.starts_with("hint: ") && line.contains(hint)),
        "{}",
        said.err
    );
    assert_eq!(ours.len(), 2, "{}", said.err);
}

fn as_nobody() -> Option<[&'static str; 2]> {
    if Uid::effective().is_root() {
        return Some(["--user", "nobody"]);
    }
    println!("only root can become another user");
    None
}

#[test]
fn a_trace_is_not_made_through_a_planted_link() {
    let bed = Bed::new();
    bed.plant("private", "hostile/link");
    bed.plant("private/none", "hostile/dangling");
    for user in [None, as_nobody()] {
        let options = user.as_ref().map_or(&[][..], |words| &words[..]);
        for (output, link) in
            [("hostile/link", "link"), ("hostile/link/run", "link"), ("hostile/dangling", "dangling")]
        {
            let said = trace(&bed, options, output, ":");
            refused(
                &said,
                &format!("hostile/{link} is a symbolic link in a directory where other users can write"),
                "Name",
            );
            bed.unharmed();
        }
    }
}

#[test]
fn a_trace_is_not_written_into_another_users_directory() {
    let Some(user) = as_nobody() else { return };
    let bed = Bed::new();
    fs::create_dir(bed.path("hostile/run")).unwrap();
    let given = |uid| lchown(bed.path("hostile/run"), Some(uid), Some(uid)).unwrap();
    given(12_345);
    for options in [&[][..], &user] {
        let said = trace(&bed, options, "hostile/run", ":");
        refused(&said, "hostile/run: it belongs to the user 12345", "--output FOLDER");
        assert_eq!(fs::metadata(bed.path("hostile/run")).unwrap().uid(), 12_345);
    }
    // One of the program's own user serves, but not one that others may write to.
    given(NOBODY);
    fs::set_permissions(bed.path("hostile/run"), fs::Permissions::from_mode(0o777)).unwrap();
    refused(&trace(&bed, &user, "hostile/run", ":"), "other users can write there", "--output FOLDER");
    fs::set_permissions(bed.path("hostile/run"), fs::Permissions::from_mode(0o755)).unwrap();
    let said = trace(&bed, &user, "hostile/run", ":");
    assert_eq!(said.code, Some(0), "{}", said.err);
    let summary = fs::metadata(bed.path("hostile/run/summary.txt")).unwrap();
    assert_eq!(summary.uid(), NOBODY, "the reports are written by the user");
}

#[test]
fn a_traced_program_does_not_choose_what_root_writes_or_reads() {
    let Some(user) = as_nobody() else { return };
    for (plant, sentence) in [
        ("ln -s $P/secret $VGPU_TRACE/summary.txt", "summary.txt: File exists"),
        ("ln -s $P/private/x $VGPU_TRACE/trace.json", "trace.json: File exists"),
        ("ln -s $P/secret $VGPU_TRACE/loader.1", "loader.1 is a symbolic link, not a regular file"),
    ] {
        let bed = Bed::new();
        let said = trace(&bed, &user, "hostile/run", plant);
        assert_eq!(said.code, Some(125), "{plant}: {}", said.err);
        assert!(said.err.contains(sentence), "{plant}: {}", said.err);
        bed.unharmed();
    }
}

/// A trace fails on a FIFO in its directory. Opening it for reading would block until a writer opens it.
#[test]
fn a_trace_does_not_wait_for_a_planted_fifo() {
    let bed = Bed::new();
    let options = as_nobody();
    let options = options.as_ref().map_or(&[][..], |words| &words[..]);
    let said = trace(&bed, options, "hostile/run", "mkfifo $VGPU_TRACE/loader.1");
    refused(&said, "hostile/run/loader.1 is a FIFO, not a regular file", "Remove it");
}

#[test]
fn a_directory_that_is_swapped_during_the_run_changes_nothing() {
    let script = "mv $P/hostile/run $P/hostile/away; ln -s $P/private $P/hostile/run; echo \"$VGPU_TRACE\" >$P/hostile/told";
    for user in [None, as_nobody()] {
        let bed = Bed::new();
        let options = user.as_ref().map_or(&[][..], |words| &words[..]);
        let said = trace(&bed, options, "hostile/run", script);
        assert_eq!(said.code, Some(0), "{}", said.err);
        bed.unharmed();
        assert!(bed.path("hostile/away/summary.txt").exists(), "{}", said.err);
        // A program that runs as root is not told a path that somebody else can change.
        let told = fs::read_to_string(bed.path("hostile/told")).unwrap();
        assert_eq!(told.starts_with("/proc/"), user.is_none(), "{told}");
    }
}

#[test]
fn a_log_file_is_opened_by_the_user_and_not_by_root() {
    let Some(user) = as_nobody() else { return };
    let bed = Bed::new();
    let log = |file: &str| {
        bed.run(
            &[&["--allow-cpu"], &user[..], &["/bin/true"]].concat(),
            &[("VGPU_LOG", Path::new("debug")), ("VGPU_LOG_FILE", &bed.path(file))],
        )
    };
    // Where root could write and the user cannot.
    let said = log("private/log");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("the log goes to stderr: failed to open"), "{}", said.err);
    bed.unharmed();
    let said = log("hostile/log");
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(fs::metadata(bed.path("hostile/log")).unwrap().uid(), NOBODY);
}

#[test]
fn a_log_is_not_written_through_what_somebody_planted() {
    let bed = Bed::new();
    bed.plant("secret", "hostile/link");
    bed.plant("private/new", "hostile/dangling");
    bed.plant("private", "hostile/dir");
    fs::hard_link(bed.path("secret"), bed.path("hostile/name")).unwrap();
    nix::unistd::mkfifo(&bed.path("hostile/fifo"), nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
    for (file, why) in [
        ("hostile/link", "is a symbolic link in a directory where other users can write"),
        ("hostile/dangling", "is a symbolic link in a directory where other users can write"),
        ("hostile/dir/log", "is a symbolic link in a directory where other users can write"),
        ("hostile/name", "is one of several names of a file"),
        ("hostile/fifo", "is a FIFO, not a regular file"),
    ] {
        let said = bed.run(
            &["--allow-cpu", "/bin/true"],
            &[("VGPU_LOG", Path::new("debug")), ("VGPU_LOG_FILE", &bed.path(file))],
        );
        assert_eq!(said.code, Some(0), "{}", said.err);
        let warnings: Vec<_> =
            said.err.lines().filter(|line| line.contains("the log goes to stderr")).collect();
        assert_eq!(warnings.len(), 1, "{}", said.err);
        assert!(warnings[0].contains(file) && warnings[0].contains(why), "{}", said.err);
        assert!(said.err.contains("\nhint: "), "{}", said.err);
        bed.unharmed();
    }
}
