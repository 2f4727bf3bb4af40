//! Test environment of the installer: a machine with selected tools, a home directory, and three shells.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::unistd::Uid;
use tempfile::TempDir;
use vgpu_artifacts::executable;
pub use xtask::shims::sha256;

/// Text of the installer script under test.
pub const SCRIPT: &str = include_str!("../../install.sh");
/// User id for the script when the tests run as root.
const NOBODY: u32 = 65534;
/// Tools that the script may use, besides those for downloads and digests.
const TOOLS: [&str; 14] = [
    "cat", "chmod", "cp", "find", "getconf", "grep", "gzip", "id", "mkdir", "mktemp", "mv", "readlink", "rm",
    "rmdir",
];
/// Tools that tests replace by scripts of their own.
const OTHERS: [&str; 4] = ["tar", "uname", "curl", "sha256sum"];

/// A shell that can run the script, with its command line.
#[derive(Clone, Debug)]
pub struct Shell {
    pub name: &'static str,
    words: Vec<OsString>,
    /// Path of BusyBox if all tools are BusyBox's.
    busybox: Option<PathBuf>,
}

/// Returns the tested shells: dash, bash and BusyBox's.
pub fn shells() -> Vec<Shell> {
    let plain = |name| {
        let path = tool(name).unwrap_or_else(|| panic!("this test needs {name}"));
        Shell { name, words: vec![path.into()], busybox: None }
    };
    let busybox = vgpu_artifacts::fetch("guest-kernel").unwrap().join("bin/busybox");
    let words = vec![busybox.clone().into(), "sh".into()];
    vec![plain("dash"), plain("bash"), Shell { name: "busybox", words, busybox: Some(busybox) }]
}

/// Finds a program of this machine in its usual directories.
pub fn tool(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    folders.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

/// A simulated machine with a user's home directory and selected tools.
pub struct Bed {
    folder: TempDir,
    pub shell: Shell,
    /// Shell functions by tool name. They replace tools in BusyBox's shell, which prefers its own tools to
    /// those on the PATH, but functions to both.
    functions: RefCell<BTreeMap<String, String>>,
}

impl Bed {
    pub fn new(shell: &Shell) -> Self {
        let folder = tempfile::Builder::new().prefix("vgpu-run-install.").tempdir().unwrap();
        open(folder.path());
        let mut shell = shell.clone();
        if let Some(busybox) = &mut shell.busybox {
            // The cache is in a home that the user may not enter.
            let near = folder.path().join("busybox");
            executable::write(&near, &fs::read(&*busybox).unwrap()).unwrap();
            shell.words[0] = near.clone().into();
            *busybox = near;
        }
        let bed = Self { folder, shell, functions: RefCell::default() };
        for name in ["home", "tools", "sys", "tmp"] {
            fs::create_dir(bed.path(name)).unwrap();
        }
        fs::create_dir_all(bed.path("sys/bus/pci/devices")).unwrap();
        for name in ["home", "tmp"] {
            give(&bed.path(name));
        }
        for name in TOOLS.iter().chain(&OTHERS) {
            bed.link(name);
        }
        bed
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// Returns the path of the installed program.
    pub fn program(&self) -> PathBuf {
        self.path("home/.local/bin/vgpu-run")
    }

    /// Adds a tool of this machine to the PATH: BusyBox's version if the shell is BusyBox's and has the tool.
    pub fn link(&self, name: &str) {
        let busybox =
            self.shell.busybox.as_deref().filter(|_| !["curl", "getconf", "openssl"].contains(&name));
        let real = busybox.map(Path::to_owned).or_else(|| tool(name));
        let real = real.unwrap_or_else(|| panic!("this test needs {name}"));
        symlink(real, self.path("tools").join(name)).unwrap();
    }

    /// Adds a tool of this machine to the PATH, also where BusyBox has one of this name.
    pub fn link_real(&self, name: &str) {
        let real = tool(name).unwrap_or_else(|| panic!("this test needs {name}"));
        symlink(real, self.path("tools").join(name)).unwrap();
    }

    /// Returns whether all tools are BusyBox's, so that none can be removed.
    pub fn has_all(&self) -> bool {
        self.shell.busybox.is_some()
    }

    /// Removes a tool from the PATH.
    pub fn without(&self, name: &str) -> &Self {
        self.functions.borrow_mut().remove(name);
        fs::remove_file(self.path("tools").join(name)).unwrap();
        self
    }

    /// Replaces a tool by a script.
    pub fn tool(&self, name: &str, text: &str) {
        let path = self.path("tools").join(name);
        let _ = fs::remove_file(&path);
        program(&path, &format!("#!/bin/sh\n{text}\n"));
        if self.has_all() && !name.contains('-') {
            self.functions.borrow_mut().insert(name.to_owned(), format!("{name}() (\n{text}\n)\n"));
        }
    }

    /// Creates a PCI function with the device's ids and a BAR0 of `bytes` bytes.
    pub fn function(&self, bytes: u64) -> PathBuf {
        let folder = self.path("sys/bus/pci/devices/0000:00:05.0");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("vendor"), "0x10de\n").unwrap();
        fs::write(folder.join("device"), "0x2331\n").unwrap();
        let line = format!("0x0000380000000000 {:#018x} 0x000000000014220c\n", 0x3800_0000_0000 + bytes - 1);
        fs::write(folder.join("resource"), line).unwrap();
        folder
    }

    /// Starts the script as `curl | sh` does, as an unprivileged user with only this environment.
    pub fn start(&self, script: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Child {
        let mut command = self.command(arguments, environment);
        if Uid::effective().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        feed(&mut command, script)
    }

    /// Starts the script with its stdout redirected.
    pub fn start_to(&self, script: &str, stdout: Stdio, environment: &[(&str, &str)]) -> Child {
        let mut command = self.command(&[], environment);
        if Uid::effective().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        feed(command.stdout(stdout), script)
    }

    /// Starts the script as the user who runs the tests, which is faster.
    pub fn start_fast(&self, script: &str, environment: &[(&str, &str)]) -> Child {
        feed(&mut self.command_of(&self.shell.words, &[], environment), script)
    }

    /// Starts the script like [`Bed::start_fast`], with a file as the shell's stdin.
    pub fn start_from_file(&self, script: &str, environment: &[(&str, &str)]) -> Child {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(script.as_bytes()).unwrap();
        file.rewind().unwrap();
        self.command_of(&self.shell.words, &[], environment).stdin(file).spawn().unwrap()
    }

    /// Returns the command that starts the shell with default signal handling, because a shell cannot trap a
    /// signal that was ignored at its start.
    pub fn words(&self) -> Vec<OsString> {
        let env = tool("env").expect("this test needs env");
        let signals = "--default-signal=HUP,INT,PIPE,TERM".into();
        [env.into(), signals].into_iter().chain(self.shell.words.iter().cloned()).collect()
    }

    fn command(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
        self.command_of(&self.words(), arguments, environment)
    }

    fn command_of(&self, words: &[OsString], arguments: &[&str], environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("-s")
            .arg("--")
            .args(arguments)
            .env_clear()
            .env("PATH", self.path("tools"))
            .env("HOME", self.home())
            .env("TMPDIR", self.path("tmp"))
            .env("VGPU_SYSFS", self.path("sys"))
            .envs(environment.iter().copied())
            .current_dir(self.home())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // As a shell does with what it starts: a terminal's signals go to all of it.
            .process_group(0);
        command
    }

    /// Runs the script as an unprivileged user and returns its output.
    pub fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Said {
        let functions: String = self.functions.borrow().values().map(String::as_str).collect();
        Said::of(self.start(&(functions + SCRIPT), arguments, environment).wait_with_output().unwrap())
    }

    /// Runs shell commands as root in a new mount namespace. In them, `run` executes the script with its
    /// arguments.
    pub fn as_root(&self, lines: &str, environment: &[(&str, &str)]) -> Said {
        let mut command = Command::new(tool("unshare").expect("this test needs unshare"));
        if !Uid::effective().is_root() {
            command.arg("-r");
        }
        let script = self.path("install.sh");
        fs::write(&script, SCRIPT).unwrap();
        let words: Vec<_> = self.shell.words.iter().map(|word| format!("'{}'", word.display())).collect();
        let run =
            format!("run() {{ PATH=$TOOLS {} -s -- \"$@\" <'{}'; }}", words.join(" "), script.display());
        command
            .args(["-m", "/bin/sh", "-c"])
            .arg(format!("set -eu\n{run}\n{lines}"))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("TOOLS", self.path("tools"))
            .env("HOME", self.home())
            .env("VGPU_SYSFS", self.path("sys"))
            .envs(environment.iter().copied())
            .current_dir(self.home());
        Said::of(command.output().unwrap())
    }

    /// Describes every path below the home directory, so that two descriptions are equal if nothing has
    /// changed.
    pub fn tree(&self) -> BTreeMap<PathBuf, String> {
        let mut tree = BTreeMap::new();
        walk(&self.home(), &mut tree);
        tree
    }
}

fn feed(command: &mut Command, script: &str) -> Child {
    let mut child = command.spawn().unwrap();
    // A shell that found an error reads no further.
    let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
    child
}

fn walk(folder: &Path, tree: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        let content = if metadata.is_dir() { "folder".to_owned() } else { sha256(&fs::read(&path).unwrap()) };
        if metadata.is_dir() {
            walk(&path, tree);
        }
        tree.insert(path, format!("{mode:o} {content}"));
    }
}

/// Permits other users to enter or read a path.
pub fn open(path: &Path) {
    let mode = if path.is_dir() { 0o755 } else { 0o644 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Makes the unprivileged user the owner of a path.
pub fn give(path: &Path) {
    if Uid::effective().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// Writes an executable program.
pub fn program(path: &Path, text: &str) {
    executable::write(path, text.as_bytes()).unwrap();
}

/// Output and exit status of the script.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Asserts that the script succeeded with this text on stdout.
    #[track_caller]
    pub fn well(&self, parts: &[&str]) -> &Self {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        for part in parts {
            assert!(self.out.contains(part), "no {part:?} in {}", self.out);
        }
        self
    }

    /// Asserts that the script failed and printed exactly this text on stderr, once.
    #[track_caller]
    pub fn badly(&self, sentence: &str) -> &Self {
        assert_eq!(self.code, Some(1), "{}\n{}", self.out, self.err);
        let lines: Vec<_> = self.err.lines().filter(|line| !line.starts_with("hint: ")).collect();
        assert!(lines.len() == 1 && lines[0].starts_with("install.sh: "), "{}", self.err);
        assert!(lines[0].contains(sentence), "no {sentence:?} in {}", self.err);
        self
    }
}
