//! A release: the shims linked for old guests, a static launcher that embeds them, and a tarball that is the
//! same wherever it is made from the same sources and tools; and a tarball with the program of hosts
//! ([`host`]), and one with the device plugin of Kubernetes ([`plugin`]). Beside them lie SHA256SUMS and the
//! `install.sh` that installs the launcher's.
//!
//! The tarballs are laid out as the directory that they are installed to, `/usr/local` or `~/.local`:
//! `bin/vgpu-run`, and `share/`, of which `install.sh` installs all that is there.

mod error;
mod files;
pub mod host;
mod launcher;
pub mod packages;
pub mod plugin;
pub mod tarball;

use std::path::{Path, PathBuf};

pub use error::DistError;
pub use files::version;
use files::{pages, read, write};

use crate::shims::inspect::Glibc;
use crate::shims::link::Linker;
use crate::shims::manifest::{Entry, Manifest};
use crate::shims::{self, Companion, Options};
use crate::workspace::chain;

/// The oldest supported glibc of a guest.
const OLDEST: Glibc = Glibc(2, 17);

/// SONAMEs on which shims may depend: every glibc has these, and libcuda is one of the shims.
const ALLOWED: &[&str] = &[
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libcuda.so.1",
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];

/// Files for the tarball's `share/doc/vgpu-run`: the README, and where it leads an operator of a guest.
const DOCUMENTS: &[&str] = &[
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "docs/check.md",
    "docs/compatibility.md",
    "docs/guest.md",
];

/// Name of the file with the digests of a release's files, those that are to be published.
pub const SUMS: &str = "SHA256SUMS";

/// Path of the installer's template.
const INSTALLER: &str = "install.sh";
const VERSION_LINE: &str = "release_version=''\n";
const URL_LINE: &str = "release_url=''\n";

/// Paths and properties of a completed release.
#[derive(Debug)]
pub struct Release {
    /// Manifest of the shims in the launcher.
    pub shims: Manifest,
    /// Size of the launcher in bytes, including the shims.
    pub launcher_bytes: u64,
    /// Path of the launcher's archive.
    pub tarball: PathBuf,
    /// SHA-256 of the launcher's archive, in hexadecimal.
    pub sha256: String,
    /// Archive for hosts.
    pub host: host::Packed,
    /// Path of the archive for hosts.
    pub host_tarball: PathBuf,
    /// SHA-256 of the archive for hosts, in hexadecimal.
    pub host_sha256: String,
    /// Archive for Kubernetes.
    pub plugin: host::Packed,
    /// Names of the packages for distributions, in the directory of the archives.
    pub packages: Vec<String>,
}

/// Builds the release of the workspace at `root` in its `target/dist`. `url` is the location from which that
/// directory will be served, and `homepage` what packages name as the project's. The programs of hosts are
/// taken from `built`, if that is given, instead of being compiled.
pub fn build_release(
    root: &Path,
    url: Option<&str>,
    homepage: &str,
    built: Option<&Path>,
) -> Result<Release, DistError> {
    let folder = root.join("target/dist");
    let version = version(root)?;
    let mut documents = Vec::new();
    for name in DOCUMENTS {
        documents.push((format!("share/doc/vgpu-run/{name}"), read(&root.join(name))?));
    }
    let installer = String::from_utf8_lossy(&read(&root.join(INSTALLER))?).into_owned();
    let installer = fill_in(&installer, &version, url)?;
    let shims = build_shims(root, &folder)?;
    let launcher = launcher::build(root, &folder)?;
    let launcher_bytes = launcher.len() as u64;
    documents.extend(pages(&launcher::path(&folder), &folder.join("pages"))?);

    let name = format!("vgpu-run-{version}-x86_64-linux");
    let files = tarball::files("bin/vgpu-run", &launcher, &documents);
    let archive = tarball::pack(&name, files.clone())
        .map_err(|source| DistError::File { path: folder.join(&name), source })?;
    let tarball = folder.join(format!("{name}.tar.gz"));
    let sha256 = shims::sha256(&archive);
    write(&tarball, &archive)?;
    write(&folder.join(INSTALLER), installer.as_bytes())?;
    let program = host::build(root, &folder, built)?;
    let host = host::pack(root, &version, &program, &folder.join("host-pages"))?;
    let host_tarball = folder.join(format!("{}.tar.gz", host.name));
    write(&host_tarball, &host.archive)?;
    let host_sha256 = shims::sha256(&host.archive);
    let plugin = plugin::pack(root, &version, &plugin::build(root, &folder, built)?)?;
    write(&folder.join(format!("{}.tar.gz", plugin.name)), &plugin.archive)?;
    let mut packages = packages::make(root, &folder, packages::GUEST, &version, homepage, &files)?;
    let of_host = tarball::files("bin/vgpu-device", &host.program, &host.documents);
    packages.extend(packages::make(root, &folder, packages::HOST, &version, homepage, &of_host)?);

    let mut sums = vec![
        (INSTALLER.to_owned(), shims::sha256(installer.as_bytes())),
        (format!("{}.tar.gz", host.name), host_sha256.clone()),
        (format!("{}.tar.gz", plugin.name), shims::sha256(&plugin.archive)),
        (format!("{name}.tar.gz"), sha256.clone()),
    ];
    for package in &packages {
        sums.push((package.clone(), shims::sha256(&read(&folder.join(package))?)));
    }
    sums.sort();
    let lines: Vec<String> = sums.into_iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    write(&folder.join(SUMS), lines.concat().as_bytes())?;
    Ok(Release { shims, launcher_bytes, tarball, sha256, host, host_tarball, host_sha256, plugin, packages })
}

/// Returns the installer with the release's version and, if given, its `url` filled in.
pub fn fill_in(installer: &str, version: &str, url: Option<&str>) -> Result<String, DistError> {
    for line in [VERSION_LINE, URL_LINE] {
        if installer.matches(line).count() != 1 {
            return Err(DistError::Installer(line));
        }
    }
    let filled = installer.replace(VERSION_LINE, &format!("release_version='{version}'\n"));
    let Some(url) = url else { return Ok(filled) };
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._~:/%+@".contains(letter);
    if !url.starts_with("https://") || !url.chars().all(plain) {
        return Err(DistError::Url(url.to_owned()));
    }
    Ok(filled.replace(URL_LINE, &format!("release_url='{}'\n", url.trim_end_matches('/'))))
}

fn build_shims(root: &Path, folder: &Path) -> Result<Manifest, DistError> {
    let zig = vgpu_artifacts::fetch("zig")?.join("ziglang/zig");
    let options = Options {
        out: folder.join("shims"),
        linker: Linker::Zig { program: zig, cache: folder.join("zig-cache") },
        locked: true,
        ..Options::embedded(root)
    };
    let report = shims::update(&options)?;
    if let Some((soname, error)) = report.failed.first() {
        return Err(DistError::Shim { soname: (*soname).into(), problem: chain(error) });
    }
    for entry in &report.manifest.shims {
        if let Some(problem) = problem(entry) {
            return Err(DistError::Shim { soname: entry.soname.clone(), problem });
        }
    }
    for companion in Companion::ALL {
        if let Some(program) = companion.entry(&report.manifest)
            && let Some(problem) = misfit(program.glibc.as_deref(), &program.needed)
        {
            return Err(DistError::Shim { soname: companion.file().into(), problem });
        }
    }
    Ok(report.manifest)
}

/// Returns the reason why a shim would not load in every guest, if there is one.
fn problem(entry: &Entry) -> Option<String> {
    misfit(entry.glibc.as_deref(), &entry.needed)
}

fn misfit(glibc: Option<&str>, needed: &[String]) -> Option<String> {
    let glibc = glibc.and_then(Glibc::parse);
    if let Some(glibc) = glibc.filter(|glibc| *glibc > OLDEST) {
        return Some(format!("it needs glibc {glibc}, later than {OLDEST}"));
    }
    let other = needed.iter().find(|needed| !ALLOWED.contains(&needed.as_str()))?;
    Some(format!("it needs {other}, which a guest may lack"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(glibc: &str, needed: &[&str]) -> Entry {
        Entry {
            soname: "libcuda.so.1".into(),
            major: None,
            sha256: String::new(),
            bytes: 0,
            exports: 0,
            glibc: Some(glibc.into()),
            needed: needed.iter().map(|&name| name.to_owned()).collect(),
            rustc: String::new(),
            linker: String::new(),
            inputs: String::new(),
            implemented: Vec::new(),
        }
    }

    #[test]
    fn the_installer_knows_its_release() {
        let own = include_str!("../../../install.sh");
        let filled = fill_in(own, "1.2.3", Some("https://example.org/vgpu-run/")).unwrap();
        assert!(filled.contains("\nrelease_version='1.2.3'\nrelease_url='https://example.org/vgpu-run'\n"));
        assert!(fill_in(own, "1.2.3", None).unwrap().contains("\nrelease_url=''\n"));
        assert!(matches!(fill_in("x", "1", None), Err(DistError::Installer(_))));
        for url in ["http://example.org", "https://example.org/';id;'"] {
            assert!(matches!(fill_in(own, "1", Some(url)), Err(DistError::Url(_))), "{url}");
        }
    }

    #[test]
    fn a_shim_for_newer_guests_is_refused() {
        assert_eq!(problem(&entry("2.14", &["libc.so.6", "libcuda.so.1"])), None);
        assert_eq!(problem(&entry("2.17", &[])), None);
        assert!(problem(&entry("2.18", &[])).is_some_and(|text| text.contains("2.18")));
        assert!(problem(&entry("2.9", &["libgcc_s.so.1"])).is_some_and(|text| text.contains("libgcc_s")));
    }
}
