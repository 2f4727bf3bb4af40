//! `vgpu-testbed distributions`: installs a release in root file systems of several distributions as a user
//! would, and runs its check there. The launcher must start, and with glibc its libraries must load. The
//! packages are tried in some of them (`packages`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;
use vgpu_artifacts as artifacts;
use vgpu_testbed::bed::{Bed, random_facts};

use crate::packages::{Manager, Packages, PackagesReport, Root};

/// Names of the artifacts that are root file systems, and whether their C library is glibc.
const ROOTS: [(&str, bool); 4] =
    [("root-debian11", true), ("root-debian12", true), ("root-debian13", true), ("root-musl", false)];
/// Directories to create in a root besides those of its packages.
const FOLDERS: [&str; 7] = ["dev", "etc", "proc", "release", "root", "tmp", "vgpu"];
/// Directories that are symlinks into /usr on distributions with a merged /usr.
const MERGED: [&str; 3] = ["bin", "lib", "lib64"];
/// Links of the chain that must hold wherever there is glibc. Those before them need no C library.
const LOADED: [&str; 4] = ["device", "shims", "environment", "loader"];

/// Options of `distributions`.
#[derive(clap::Args)]
pub struct DistributionsArgs {
    /// The directory that `cargo xtask dist` wrote [default: target/dist].
    #[arg(long)]
    release: Option<PathBuf>,
    /// An additional root with glibc and a static /bin/busybox, such as that of a distribution outside
    /// Debian's archive.
    #[arg(long, value_name = "FOLDER")]
    root: Vec<PathBuf>,
    /// Print the reports as JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Result for one root file system.
#[derive(Debug, Serialize)]
struct DistributionReport {
    root: String,
    /// Name and version of the C library, as it reports them.
    libc: String,
    /// First line of the output of `vgpu-run --version`.
    version: String,
    /// Names of the links that hold.
    held: Vec<String>,
    /// First link that fails, with its cause; without an Ollama that is `ollama/ollama-missing`.
    broken: String,
    ok: bool,
}

/// Installs the release in each root file system and prints the reports.
pub fn run_distributions(arguments: &DistributionsArgs) -> Result<ExitCode> {
    let release = match &arguments.release {
        Some(folder) => folder.clone(),
        None => Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/dist")).to_owned(),
    };
    ensure!(
        release.join("install.sh").is_file(),
        "there is no release in {}; make one: cargo xtask dist",
        release.display()
    );
    let release = fs::canonicalize(release)?;
    let bed = Bed::start("null", &[random_facts(&["6.1"])])?;
    let mut reports = Vec::new();
    let packages = check_packages(&release)?;
    for (name, glibc) in ROOTS {
        reports.push(check_release_in(name, &artifacts::fetch(name)?, glibc, &release, &bed)?);
    }
    for folder in &arguments.root {
        reports.push(check_release_in(&folder.display().to_string(), folder, true, &release, &bed)?);
    }
    if arguments.json {
        let all = serde_json::json!({ "archives": reports, "packages": packages });
        println!("{all:#}");
    } else {
        for DistributionReport { root, libc, version, held, broken, ok } in &reports {
            let sign = if *ok { "ok" } else { "NOT OK" };
            println!("{root}: {sign}: {libc}; {version}; {} links hold, then {broken}", held.len());
        }
        for PackagesReport { root, manager, steps } in &packages {
            println!("{root}: packages by {manager:?}: {}", steps.join(", "));
        }
    }
    Ok(if reports.iter().all(|report| report.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Installs, upgrades, rolls back and removes the packages of a release, each time in a fresh copy of a root. What
/// does not hold is an error.
fn check_packages(release: &Path) -> Result<Vec<PackagesReport>> {
    let packages = Packages::of(release)?;
    let in_root = |name: &'static str, act: &dyn Fn(&Root<'_>) -> Result<PackagesReport>| {
        let root = copy(&artifacts::fetch(name)?)?;
        act(&Root { name, path: root.path(), made_of: made_of(name)? })
    };
    let mut reports = vec![in_root("root-debian11", &|root| root.refuses_the_host(&packages))?];
    for (name, manager) in
        [("root-debian12", Manager::Dpkg), ("root-debian13", Manager::Dpkg), ("root-debian12", Manager::Rpm)]
    {
        reports.push(in_root(name, &|root| root.try_packages(manager, &packages))?);
    }
    Ok(reports)
}

/// Returns the names and versions of the Debian packages that an artifact is made of.
fn made_of(name: &str) -> Result<Vec<String>> {
    let cache = artifacts::Cache::open()?;
    let debs = cache.spec().artifacts.get(name).map(|artifact| &artifact.debian).into_iter().flatten();
    let files = debs.filter_map(|deb| deb.pool.rsplit('/').next());
    Ok(files.filter_map(|file| Some(file.rsplit_once('_')?.0.to_owned())).collect())
}

/// Installs the release in a copy of a root and reports what `check` finds there.
fn check_release_in(
    name: &str,
    source: &Path,
    glibc: bool,
    release: &Path,
    bed: &Bed,
) -> Result<DistributionReport> {
    let root = copy(source).with_context(|| format!("make a root of {name}"))?;
    let inside = |script: &str| enter(root.path(), release, bed.sysfs(), script);
    // The applets are installed first, because a root of two packages has no tools of its own.
    inside("/bin/busybox mkdir /tools && /bin/busybox --install -s /tools")?;
    let installed = inside("sh /release/install.sh")?;
    if !installed.status.success() {
        bail!("{name}: install.sh ended with {}: {}", installed.status, text(&installed.stderr));
    }
    let version = inside("vgpu-run --version")?;
    let libc = inside(if glibc {
        // The C library prints its version when it is run as a program.
        "for file in /lib/x86_64-linux-gnu/libc.so.6 /lib64/libc.so.6; do [ ! -e $file ] || { $file; break; }; done"
    } else {
        "for file in /lib/ld-musl-x86_64.so.1 /usr/lib/ld-musl-x86_64.so.1; do [ ! -e $file ] || { $file 2>&1 | sed 2q | tr '\\n' ' '; break; }; done"
    })?;
    let checked = inside("vgpu-run check --no-ollama --json")?;
    let report: Value = serde_json::from_slice(&checked.stdout)
        .with_context(|| format!("{name}: read what check printed: {}", text(&checked.stderr)))?;
    let links = report["checks"].as_array().context("check printed no links")?;
    let status = |link: &Value, wanted: &str| link["status"] == wanted;
    let id = |link: &Value| link["id"].as_str().unwrap_or_default().to_owned();
    let held: Vec<String> =
        links.iter().filter(|link| status(link, "pass") || status(link, "warn")).map(id).collect();
    let first = links.iter().find(|link| status(link, "fail"));
    let broken = first.map_or_else(String::new, |link| {
        format!("{}/{}", id(link), link["cause"].as_str().unwrap_or_default())
    });
    let wanted = if glibc { "ollama/ollama-missing" } else { "loader/no-glibc" };
    let needed = if glibc { &LOADED[..] } else { &LOADED[..3] };
    let ok = version.status.success()
        && broken == wanted
        && needed.iter().all(|link| held.iter().any(|other| other == link));
    let first_line =
        |output: &Output| text(&output.stdout).lines().next().unwrap_or_default().trim().to_owned();
    Ok(DistributionReport {
        root: name.to_owned(),
        libc: first_line(&libc),
        version: first_line(&version),
        held,
        broken,
        ok,
    })
}

/// Copies a root file system to a writable directory.
fn copy(source: &Path) -> Result<TempDir> {
    let root = TempDir::with_prefix("vgpu-root-")?;
    let mut command = Command::new("cp");
    command.args(["--archive", "--no-target-directory"]).arg(source).arg(root.path());
    ensure!(command.status()?.success(), "copy {}", source.display());
    for name in FOLDERS {
        fs::create_dir_all(root.path().join(name))?;
    }
    for name in MERGED {
        let link = root.path().join(name);
        if !link.exists() && root.path().join("usr").join(name).exists() {
            symlink(Path::new("usr").join(name), link)?;
        }
    }
    // In a root with packages that still have a directory of their own there.
    let busybox = root.path().join("bin/busybox");
    if !busybox.exists() {
        symlink("../usr/bin/busybox", busybox)?;
    }
    Ok(root)
}

/// Runs a script in the root with busybox, as root of a mount namespace of its own.
fn enter(root: &Path, release: &Path, bus: &Path, script: &str) -> Result<Output> {
    const MOUNT: &str = "mount --bind /proc \"$1/proc\" && mount --bind /dev \"$1/dev\" && \
                         mount --bind \"$2\" \"$1/release\" && mount --bind \"$3\" \"$1/vgpu\" && \
                         exec chroot \"$1\" /bin/busybox sh -c \"$4\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", MOUNT, "sh"])
        .args([root, release, bus])
        .arg(script)
        .env_clear()
        .env("PATH", "/usr/local/bin:/tools:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", "/root")
        .env("VGPU_SYSFS", "/vgpu")
        .env("VGPU_RUN_BASE_URL", "file:///release")
        .output()
        .context("run unshare, of util-linux")?;
    Ok(output)
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
