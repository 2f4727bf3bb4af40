//! Where a package's files go: those of the archive, which is laid out for /usr/local, and those that only
//! packages have.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};

use super::super::error::DistError;
use super::super::files::read;
use super::super::tarball::File;
use super::kinds::{Format, Package};

/// Hook of libvirt, which it may only run from there where AppArmor confines it. A package for distributions
/// with SELinux does not place it: their libvirt may run it only with the policy's module, and starts no
/// domain otherwise.
const HOOK: &str = "/etc/libvirt/hooks/qemu.d/vgpu-device";
/// Name of the hook in the archive.
const ARCHIVED_HOOK: &str = "share/vgpu-device/libvirt-hook";
/// Directory of the archive's program in the units and in the hook.
const LOCAL: &str = "/usr/local/bin/";

/// A file or directory of a package.
#[derive(Debug)]
pub(super) struct Content {
    pub path: String,
    pub mode: u32,
    /// Content of the file; a directory has none.
    pub bytes: Option<Vec<u8>>,
}

impl Content {
    fn file(path: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { path: path.into(), mode: 0o644, bytes: Some(bytes) }
    }

    /// Returns nFPM's word for a file that a format tells from others.
    pub(super) fn kind(&self, format: Format) -> Option<&'static str> {
        let is_below = |folder: &str| format == Format::Rpm && self.path.starts_with(folder);
        if self.path == HOOK {
            Some("config|noreplace")
        } else if is_below("/usr/share/licenses/") {
            Some("license")
        } else if is_below("/usr/share/doc/") || is_below("/usr/share/man/") {
            Some("doc")
        } else {
            None
        }
    }
}

/// Returns the content of a package for a file of the archive. A licence is where each format wants it.
pub(super) fn content(package: Package, format: Format, file: &File<'_>) -> Option<Content> {
    let bytes = file.content.to_vec();
    let documents = format!("share/doc/{}/", package.name);
    let zsh = "share/zsh/site-functions/";
    let (name, bytes) = if let Some(document) = file.name.strip_prefix(&documents) {
        match (document, format) {
            // Debian's are in the file `copyright`.
            ("LICENSE-APACHE" | "LICENSE-MIT", Format::Deb) => return None,
            ("LICENSE-APACHE" | "LICENSE-MIT", Format::Rpm) => {
                (format!("share/licenses/{}/{document}", package.name), bytes)
            }
            ("CHANGELOG.md", _) => (format!("{documents}changelog.gz"), compressed(&bytes)),
            ("vm1.toml", _) => (format!("{documents}examples/{document}"), bytes),
            _ => (file.name.to_owned(), bytes),
        }
    } else if file.name.starts_with("share/man/") {
        (format!("{}.gz", file.name), compressed(&bytes))
    } else if let Some(function) = file.name.strip_prefix(zsh).filter(|_| format == Format::Deb) {
        (format!("share/zsh/vendor-completions/{function}"), bytes)
    } else if file.name.starts_with("lib/systemd/") || file.name == ARCHIVED_HOOK {
        (file.name.to_owned(), String::from_utf8_lossy(&bytes).replace(LOCAL, "/usr/bin/").into_bytes())
    } else {
        (file.name.to_owned(), bytes)
    };
    if file.name == ARCHIVED_HOOK {
        let path = if format == Format::Deb { HOOK.to_owned() } else { format!("/usr/{name}") };
        return Some(Content { path, mode: 0o755, bytes: Some(bytes) });
    }
    let mode = if file.executable { 0o755 } else { 0o644 };
    Some(Content { path: format!("/usr/{name}"), mode, bytes: Some(bytes) })
}

/// Returns what a package has beside the archive's files.
pub(super) fn own(
    root: &Path,
    package: Package,
    format: Format,
    version: &str,
    maintainer: &str,
) -> Result<Vec<Content>, DistError> {
    let mut contents = Vec::new();
    if package.host {
        contents.push(Content { path: "/etc/vgpu-device".to_owned(), mode: 0o755, bytes: None });
    }
    if format == Format::Deb {
        let documents = format!("/usr/share/doc/{}", package.name);
        contents
            .push(Content::file(format!("{documents}/copyright"), read(&root.join("packaging/copyright"))?));
        let log = format!(
            "{} ({}-1) unstable; urgency=medium\n\n  * The changes are in changelog.gz.\n\n -- {maintainer}  Tue, 01 Jan 1980 00:00:00 +0000\n",
            package.name,
            version.replace('-', "~")
        );
        contents.push(Content::file(format!("{documents}/changelog.Debian.gz"), compressed(log.as_bytes())));
        let all = read(&root.join("packaging/lintian.overrides"))?;
        let own = overrides(&String::from_utf8_lossy(&all), package.name);
        contents
            .push(Content::file(format!("/usr/share/lintian/overrides/{}", package.name), own.into_bytes()));
    }
    Ok(contents)
}

/// Returns the directories that only a package's files are in. RPM leaves those that no package lists.
pub(super) fn folders(package: Package, contents: &[Content]) -> Vec<Content> {
    let own = ["doc/", "licenses/", ""].map(|name| format!("/usr/share/{name}{}", package.name));
    let mut paths = BTreeSet::new();
    for content in contents {
        let above = Path::new(&content.path).ancestors().skip(1);
        paths.extend(above.filter(|path| own.iter().any(|own| path.starts_with(own))).map(Path::to_owned));
    }
    let folder = |path: PathBuf| Content { path: path.display().to_string(), mode: 0o755, bytes: None };
    paths.into_iter().map(folder).collect()
}

/// Returns the overrides of a package, with the remarks above them, from those of all packages.
fn overrides(all: &str, package: &str) -> String {
    let blocks = all.split("\n\n").filter(|block| {
        block.lines().any(|line| line.strip_prefix(package).is_some_and(|rest| rest.starts_with(": ")))
    });
    let mut text = String::new();
    for block in blocks {
        let lines =
            block.lines().filter(|line| line.starts_with('#') || line.starts_with(&format!("{package}: ")));
        lines.for_each(|line| text.extend([line, "\n"]));
    }
    text
}

/// Compresses a document in the same way wherever it is done.
fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    gzip.write_all(bytes).and_then(|()| gzip.finish()).expect("a vector takes all bytes")
}

#[cfg(test)]
mod tests {
    use super::super::kinds::{GUEST, HOST};
    use super::*;

    fn placed(package: Package, format: Format, name: &str) -> Option<String> {
        content(package, format, &File { name, content: b"x /usr/local/bin/y", executable: false })
            .map(|content| content.path)
    }

    #[test]
    fn each_distribution_has_its_places() {
        let at = |package, format, name| placed(package, format, name).unwrap_or_default();
        for (format, zsh) in [(Format::Deb, "vendor-completions"), (Format::Rpm, "site-functions")] {
            assert_eq!(at(GUEST, format, "bin/vgpu-run"), "/usr/bin/vgpu-run");
            assert_eq!(at(GUEST, format, "share/man/man1/vgpu-run.1"), "/usr/share/man/man1/vgpu-run.1.gz");
            assert_eq!(
                at(GUEST, format, "share/zsh/site-functions/_vgpu-run"),
                format!("/usr/share/zsh/{zsh}/_vgpu-run")
            );
            assert_eq!(
                at(HOST, format, "share/doc/vgpu-device/vm1.toml"),
                "/usr/share/doc/vgpu-device/examples/vm1.toml"
            );
        }
        assert_eq!(placed(GUEST, Format::Deb, "share/doc/vgpu-run/LICENSE-MIT"), None);
        let license = at(GUEST, Format::Rpm, "share/doc/vgpu-run/LICENSE-MIT");
        assert_eq!(license, "/usr/share/licenses/vgpu-run/LICENSE-MIT");
    }

    #[test]
    fn rpm_is_told_which_directories_are_the_packages_own() {
        let file = |path: &str| Content::file(path, Vec::new());
        let contents =
            [file("/usr/share/doc/vgpu-run/docs/guest.md"), file("/usr/share/man/man1/vgpu-run.1.gz")];
        let paths: Vec<_> = folders(GUEST, &contents).into_iter().map(|folder| folder.path).collect();
        assert_eq!(paths, ["/usr/share/doc/vgpu-run", "/usr/share/doc/vgpu-run/docs"]);
    }

    #[test]
    fn units_start_the_packages_program() {
        let name = "lib/systemd/system/vgpu-device@.service";
        let unit = File { name, content: b"ExecStart=/usr/local/bin/vgpu-device serve", executable: false };
        let placed = content(HOST, Format::Deb, &unit).unwrap();
        assert_eq!(placed.bytes.unwrap(), b"ExecStart=/usr/bin/vgpu-device serve");
    }

    #[test]
    fn the_hook_of_libvirt_is_active_where_libvirt_may_run_it() {
        let hook =
            File { name: ARCHIVED_HOOK, content: b"exec /usr/local/bin/vgpu-device", executable: false };
        let [deb, rpm] = [Format::Deb, Format::Rpm].map(|format| content(HOST, format, &hook).unwrap());
        assert_eq!((deb.path.as_str(), deb.kind(Format::Deb)), (HOOK, Some("config|noreplace")));
        assert_eq!((rpm.path.as_str(), rpm.kind(Format::Rpm)), ("/usr/share/vgpu-device/libvirt-hook", None));
        for placed in [deb, rpm] {
            assert_eq!(
                (placed.mode, placed.bytes.unwrap().as_slice()),
                (0o755, &b"exec /usr/bin/vgpu-device"[..])
            );
        }
    }

    #[test]
    fn a_package_has_its_own_overrides() {
        let all = "# Why.\nvgpu-run: one\nvgpu-device: one\n\n# Other.\nvgpu-device: two\n";
        assert_eq!(overrides(all, "vgpu-run"), "# Why.\nvgpu-run: one\n");
        assert_eq!(overrides(all, "vgpu-device"), "# Why.\nvgpu-device: one\n# Other.\nvgpu-device: two\n");
    }
}
