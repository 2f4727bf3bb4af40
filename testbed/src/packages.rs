//! The packages of a release in root file systems: installed, upgraded, rolled back, removed and purged, by the
//! dpkg and the rpm of this machine. An earlier version is made of the same files. A stand-in for systemctl
//! says which devices run, and writes down what it is told, for nothing that runs may be stopped.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use tempfile::TempDir;
use vgpu_artifacts::executable;
use xtask::dist::packages::{self, GUEST, HOST, Package};
use xtask::dist::tarball::File;

/// Version of the packages that are upgraded.
const EARLIER: &str = "0.0.1";
/// Configuration that an operator writes.
const CONFIGURATION: &str = "/etc/vgpu-device/vm1.toml";
/// Where dpkg and rpm keep what they know.
const DATABASES: [&str; 3] = ["var/lib/dpkg", "var/lib/rpm", "var/log"];

/// Directories that other packages of a distribution own. RPM removes none that a package only puts files into.
const SHARED: [&str; 10] = [
    "usr/lib/systemd/system",
    "usr/lib/sysusers.d",
    "usr/lib/tmpfiles.d",
    "usr/share/bash-completion/completions",
    "usr/share/fish/vendor_completions.d",
    "usr/share/licenses",
    "usr/share/man/man1",
    "usr/share/man/man8",
    "usr/share/zsh/site-functions",
    "var/tmp",
];

/// Stand-in for systemctl. Two devices run, of which one can be reloaded.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >>/systemctl.log
case "$*" in
list-units*) printf 'vgpu-device@vm1.service loaded active running x\nvgpu-device@vm2.service loaded active running x\n' ;;
show*vm1*) echo yes ;;
show*vm2*) echo no ;;
esac
"#;

/// Package manager, by which packages are of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Manager {
    Dpkg,
    Rpm,
}

impl Manager {
    const ALL: [Self; 2] = [Self::Dpkg, Self::Rpm];

    /// Returns whether a file is a package of this manager's, by its name.
    fn takes(self, name: &str) -> bool {
        let end = if self == Self::Dpkg { "deb" } else { "rpm" };
        Path::new(name).extension().is_some_and(|extension| extension == end)
    }
}

/// Result for a package manager in one root file system.
#[derive(Debug, Serialize)]
pub struct PackagesReport {
    pub root: String,
    pub manager: Manager,
    /// What was done, in this order.
    pub steps: Vec<&'static str>,
}

/// Packages of a release and of an earlier version, by their managers.
pub struct Packages {
    earlier: TempDir,
    release: PathBuf,
    /// Names of both versions' files: the earlier one's, and the release's.
    names: [Vec<String>; 2],
}

impl Packages {
    /// Finds the packages in a release's directory, and makes those of an earlier version from its archives.
    pub fn of(release: &Path) -> Result<Self> {
        let sums = fs::read_to_string(release.join("SHA256SUMS")).context("read SHA256SUMS")?;
        let names: Vec<&str> = sums.lines().filter_map(|line| Some(line.split_once("  ")?.1)).collect();
        let earlier = TempDir::with_prefix("vgpu-packages-")?;
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut made = Vec::new();
        for package in [GUEST, HOST] {
            let archive =
                names.iter().find(|name| name.starts_with(package.name) && name.ends_with(".tar.gz"));
            let archive =
                archive.with_context(|| format!("find the archive of {} in SHA256SUMS", package.name))?;
            made.extend(make_earlier(root, earlier.path(), package, &release.join(archive))?);
        }
        let packages = names.iter().filter(|name| Manager::ALL.iter().any(|manager| manager.takes(name)));
        let names = [made, packages.map(|&name| name.to_owned()).collect()];
        ensure!(
            names.iter().all(|names| names.len() == 4),
            "there are four packages of a version: {names:?}"
        );
        Ok(Self { earlier, release: release.to_owned(), names })
    }

    /// Returns the paths of a version's packages for a manager: the guest's and the host's.
    fn files(&self, manager: Manager, earlier: bool) -> [PathBuf; 2] {
        let (folder, names) = if earlier {
            (self.earlier.path(), &self.names[0])
        } else {
            (self.release.as_path(), &self.names[1])
        };
        [GUEST, HOST].map(|package| {
            let name = names.iter().find(|name| name.starts_with(package.name) && manager.takes(name));
            folder.join(name.expect("four packages of a version"))
        })
    }
}

/// Makes packages of an earlier version from the files of an archive.
fn make_earlier(root: &Path, folder: &Path, package: Package, archive: &Path) -> Result<Vec<String>> {
    let bytes = fs::read(archive).with_context(|| format!("read {}", archive.display()))?;
    let mut entries = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
    let mut files = Vec::new();
    for entry in entries.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let name: PathBuf = path.components().skip(1).collect();
        if entry.header().entry_type().is_file() {
            let executable = entry.header().mode()? & 0o100 != 0;
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            files.push((name.display().to_string(), content, executable));
        }
    }
    let files: Vec<File<'_>> = files
        .iter()
        .map(|(name, content, executable)| File { name, content, executable: *executable })
        .collect();
    Ok(packages::make(root, folder, package, EARLIER, "https://vgpu-run.invalid", &files)?)
}

/// A root file system in which packages are installed.
pub struct Root<'a> {
    pub name: &'a str,
    pub path: &'a Path,
    /// Debian packages that the root is made of, as `NAME_VERSION`.
    pub made_of: Vec<String>,
}

impl Root<'_> {
    /// Installs, upgrades, rolls back and removes both packages, and returns what was done.
    pub fn try_packages(&self, manager: Manager, packages: &Packages) -> Result<PackagesReport> {
        self.lives_and_dies(manager, packages)
            .map(|steps| PackagesReport { root: self.name.to_owned(), manager, steps })
            .with_context(|| format!("packages in {} by {manager:?}", self.name))
    }

    fn lives_and_dies(&self, manager: Manager, packages: &Packages) -> Result<Vec<&'static str>> {
        self.prepare(manager)?;
        let before = self.tree()?;
        let mut steps = Vec::new();

        self.manage(manager, &["install"], &packages.files(manager, true))?;
        ensure!(self.version(manager)? == EARLIER, "the earlier version is not installed");
        for program in ["vgpu-run", "vgpu-device"] {
            self.run(&format!("/usr/bin/{program} --version"))?;
        }
        for path in [
            "usr/lib/systemd/system/vgpu-device@.service",
            "usr/lib/sysusers.d/vgpu-device.conf",
            "etc/vgpu-device",
        ] {
            ensure!(self.path.join(path).exists(), "/{path} is not there");
        }
        let unit = fs::read_to_string(self.path.join("usr/lib/systemd/system/vgpu-device@.service"))?;
        ensure!(unit.contains("ExecStart=/usr/bin/vgpu-device "), "the unit starts another program: {unit}");
        if self.path.join("bin/systemd-sysusers").exists() {
            self.run("grep '^vgpu-worker:' /etc/passwd")?;
        }
        steps.push("installed");

        fs::write(self.path.join(&CONFIGURATION[1..]), "memory = \"1G\"\n")?;
        self.devices_run(true)?;
        let said = self.manage(manager, &["upgrade"], &packages.files(manager, false))?;
        ensure!(self.version(manager)? != EARLIER, "it is not upgraded");
        ensure!(
            said.contains("vgpu-device@vm2.service cannot be reloaded")
                && !said.contains("vm1.service cannot"),
            "what cannot be reloaded is not said: {said}"
        );
        let told = self.told()?;
        ensure!(told.contains("reload vgpu-device@vm1.service") && told.contains("daemon-reload"), "{told}");
        ensure!(
            told.find("show").is_some_and(|asked| asked < told.find("daemon-reload").unwrap_or(0)),
            "{told}"
        );
        ensure!(!told.contains("reload vgpu-device@vm2") && nothing_stopped(&told), "{told}");
        self.is_kept()?;
        steps.push("upgraded");

        self.manage(manager, &["downgrade"], &packages.files(manager, true))?;
        ensure!(self.version(manager)? == EARLIER, "it is not rolled back");
        self.told()?;
        self.is_kept()?;
        steps.push("rolled back");

        let said = self.manage(manager, &["remove"], &[])?;
        ensure!(said.contains("vgpu-device@vm1.service goes on"), "what goes on is not said: {said}");
        let told = self.told()?;
        ensure!(nothing_stopped(&told), "{told}");
        ensure!(!self.path.join("usr/bin/vgpu-device").exists(), "the program is left");
        self.is_kept()?;
        steps.push("removed");

        self.devices_run(false)?;
        if manager == Manager::Dpkg {
            self.manage(manager, &["purge"], &[])?;
            self.is_kept()?;
            steps.push("purged");
        }
        fs::remove_dir_all(self.path.join("etc/vgpu-device"))?;
        let left: Vec<_> = self.tree()?.difference(&before).cloned().collect();
        // A user is not removed, so that no other one gets its number and its files.
        let users = [
            "etc/passwd",
            "etc/group",
            "etc/shadow",
            "etc/gshadow",
            "etc/passwd-",
            "etc/group-",
            "etc/.pwd.lock",
        ];
        let left: Vec<_> = left.into_iter().filter(|path| !users.contains(&path.as_str())).collect();
        ensure!(left.is_empty(), "left over: {left:?}");
        Ok(steps)
    }

    /// Checks that dpkg refuses the host's package where the C library is too old, and takes the guest's.
    pub fn refuses_the_host(&self, packages: &Packages) -> Result<PackagesReport> {
        self.prepare(Manager::Dpkg)?;
        let [guest, host] = packages.files(Manager::Dpkg, false);
        self.manage(Manager::Dpkg, &["install"], &[guest])?;
        self.run("/usr/bin/vgpu-run --version")?;
        let refused = self.dpkg(&["--install".as_ref(), host.as_os_str()])?;
        let said = String::from_utf8_lossy(&refused.stderr);
        ensure!(
            !refused.status.success() && said.contains("depends on libc6 (>= 2.34)"),
            "{}: the host's package is not refused: {said}",
            self.name
        );
        let steps = vec!["the guest's installed", "the host's refused, for its C library"];
        Ok(PackagesReport { root: self.name.to_owned(), manager: Manager::Dpkg, steps })
    }

    /// Gives the root a shell, and a database in which the packages that it is made of are installed.
    fn prepare(&self, manager: Manager) -> Result<()> {
        let shell = self.path.join("bin/sh");
        if !shell.exists() {
            symlink("busybox", shell)?;
        }
        for name in ["grep", "rm", "rmdir"] {
            let applet = self.path.join("usr/bin").join(name);
            if !applet.exists() {
                symlink("/bin/busybox", applet)?;
            }
        }
        let stub = self.path.join("usr/bin/systemctl");
        executable::write(&stub, SYSTEMCTL.as_bytes())?;
        for name in [
            "etc",
            "run",
            "var/cache",
            "var/log",
            "var/lib/rpm",
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/dpkg/triggers",
        ] {
            fs::create_dir_all(self.path.join(name))?;
        }
        if manager == Manager::Rpm {
            for name in SHARED {
                fs::create_dir_all(self.path.join(name))?;
            }
        }
        fs::write(self.path.join("systemctl.log"), "")?;
        // Scripts write to it, and the root has no devices.
        fs::write(self.path.join("dev/null"), "")?;
        if manager == Manager::Dpkg {
            let mut installed = self.made_of.clone();
            if !installed.iter().any(|made_of| made_of.starts_with("systemd-standalone-sysusers_")) {
                // A whole distribution has systemd, whose version does not matter.
                installed.push("systemd_1".to_owned());
            }
            let mut status = String::new();
            for package in &installed {
                let (name, version) = package.split_once('_').context("a package has a version")?;
                let provides = if name == "systemd" { "Provides: systemd-sysusers\n" } else { "" };
                write!(
                    status,
                    "Package: {name}\nStatus: install ok installed\nMaintainer: x <x@x.invalid>\nArchitecture: amd64\n\
                     Multi-Arch: same\nVersion: {version}\n{provides}Description: x\n\n"
                )?;
            }
            fs::write(self.path.join("var/lib/dpkg/status"), status)?;
        }
        Ok(())
    }

    /// Has devices run, or none, and a systemd that manages them.
    fn devices_run(&self, run: bool) -> Result<()> {
        let mark = self.path.join("run/systemd/system");
        if run {
            fs::create_dir_all(mark)?;
        } else {
            fs::remove_dir_all(self.path.join("run/systemd"))?;
        }
        Ok(())
    }

    /// Returns what the stand-in for systemctl was told since this was last asked.
    fn told(&self) -> Result<String> {
        let path = self.path.join("systemctl.log");
        let told = fs::read_to_string(&path)?;
        fs::write(&path, "")?;
        Ok(told)
    }

    fn is_kept(&self) -> Result<()> {
        let kept =
            fs::read_to_string(self.path.join(&CONFIGURATION[1..])).context("the configuration is gone")?;
        ensure!(kept == "memory = \"1G\"\n", "the configuration was changed: {kept}");
        Ok(())
    }

    /// Has a package manager carry out a step for packages, or for those that are installed, and returns
    /// what it and the packages' scripts said.
    fn manage(&self, manager: Manager, step: &[&str], files: &[PathBuf]) -> Result<String> {
        let words: Vec<&std::ffi::OsStr> = match (manager, step[0]) {
            (Manager::Dpkg, "remove") => vec!["--remove".as_ref(), GUEST.name.as_ref(), HOST.name.as_ref()],
            (Manager::Dpkg, "purge") => vec!["--purge".as_ref(), GUEST.name.as_ref(), HOST.name.as_ref()],
            (Manager::Dpkg, _) => vec!["--install".as_ref()],
            (Manager::Rpm, "remove") => vec!["--erase".as_ref(), GUEST.name.as_ref(), HOST.name.as_ref()],
            // The root has no database of RPM's that says which packages it is made of.
            (Manager::Rpm, _) => vec!["--upgrade".as_ref(), "--oldpackage".as_ref(), "--nodeps".as_ref()],
        };
        let words: Vec<_> = words.into_iter().chain(files.iter().map(|path| path.as_os_str())).collect();
        let output = match manager {
            Manager::Dpkg => self.dpkg(&words)?,
            Manager::Rpm => {
                let mut command = Command::new("rpm");
                command.arg("--root").arg(self.path).args(["--dbpath", "/var/lib/rpm"]).args(words);
                command.output().context("run rpm")?
            }
        };
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            bail!("{} ended with {}: {said}", step[0], output.status);
        }
        Ok(said)
    }

    fn dpkg(&self, words: &[&std::ffi::OsStr]) -> Result<Output> {
        let mut command = Command::new("dpkg");
        command
            .arg(format!("--root={}", self.path.display()))
            // It looks for programs of a whole distribution.
            .args(["--force-bad-path", "--log=/dev/null"])
            .args(words)
            .env("LC_ALL", "C")
            .env("DPKG_FRONTEND_LOCKED", "");
        command.output().context("run dpkg")
    }

    /// Returns the version of the host's package, which is installed.
    fn version(&self, manager: Manager) -> Result<String> {
        let output = match manager {
            Manager::Dpkg => Command::new("dpkg-query")
                .arg(format!("--admindir={}", self.path.join("var/lib/dpkg").display()))
                .args(["--show", "--showformat=${Version}", HOST.name])
                .output()?,
            Manager::Rpm => Command::new("rpm")
                .arg("--root")
                .arg(self.path)
                .args([
                    "--dbpath",
                    "/var/lib/rpm",
                    "--query",
                    "--queryformat",
                    "%{VERSION}-%{RELEASE}",
                    HOST.name,
                ])
                .output()?,
        };
        let version = String::from_utf8(output.stdout)?;
        Ok(version.strip_suffix("-1").with_context(|| format!("{version:?} is no version"))?.to_owned())
    }

    /// Runs a command in the root, which must succeed.
    fn run(&self, script: &str) -> Result<()> {
        let output = Command::new("chroot").arg(self.path).args(["/bin/sh", "-c", script]).output()?;
        ensure!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Returns the paths of all files and directories but those of the package managers.
    fn tree(&self) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(self.path.join(&folder))? {
                let entry = entry?;
                let path = folder.join(entry.file_name());
                if DATABASES.iter().any(|database| path.starts_with(database)) {
                    continue;
                }
                found.insert(path.display().to_string());
                if entry.file_type()?.is_dir() {
                    open.push(path);
                }
            }
        }
        Ok(found)
    }
}

/// Returns whether systemctl was told to end nothing but the node process, which devices can do without.
fn nothing_stopped(told: &str) -> bool {
    told.lines().all(|line| {
        let ends = ["stop", "restart", "try-restart", "kill"]
            .iter()
            .any(|word| line.split(' ').any(|told| told == *word));
        !ends || line == "try-restart vgpu-device-node.service"
    })
}
