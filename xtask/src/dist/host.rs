//! The release for hosts: `vgpu-device` with its manual page, completions, template unit, an example
//! configuration and the guide.
//!
//! The program loads NVIDIA's libraries, which are built for glibc, so it is linked dynamically. It needs
//! what every distribution with glibc has: that library, not older than [`OLDEST`], and libgcc.

use std::path::{Path, PathBuf};

use goblin::elf::Elf;

use super::error::DistError;
use super::files::{pages, read};
use super::tarball::{self, files};
use crate::shims::ShimError;
use crate::shims::compile::{self, TARGET};
use crate::shims::inspect::{Glibc, Object};

/// The oldest supported glibc of a host. RHEL 9 has 2.34, Ubuntu 22.04 has 2.35, and Debian 12 has 2.36.
pub const OLDEST: Glibc = Glibc(2, 34);

/// Path of the loader on x86-64 systems with glibc.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// SONAMEs on which the host's program may depend.
const ALLOWED: &[&str] = &["ld-linux-x86-64.so.2", "libc.so.6", "libgcc_s.so.1", "libm.so.6"];

/// Additional files of the archive: their paths in it and in the workspace.
const FILES: &[(&str, &str)] = &[
    ("lib/systemd/system/vgpu-device@.service", "host/serve/share/vgpu-device@.service"),
    ("lib/systemd/system/vgpu-device-node.service", "host/serve/share/vgpu-device-node.service"),
    ("lib/tmpfiles.d/vgpu-device.conf", "host/serve/share/vgpu-device.tmpfiles"),
    ("lib/sysusers.d/vgpu-device.conf", "host/serve/share/vgpu-device.sysusers"),
    ("share/doc/vgpu-device/CHANGELOG.md", "CHANGELOG.md"),
    ("share/doc/vgpu-device/LICENSE-APACHE", "LICENSE-APACHE"),
    ("share/doc/vgpu-device/LICENSE-MIT", "LICENSE-MIT"),
    ("share/doc/vgpu-device/grafana-dashboard.json", "host/serve/share/grafana-dashboard.json"),
    ("share/doc/vgpu-device/host.md", "docs/host.md"),
    ("share/doc/vgpu-device/vm1.toml", "host/serve/share/vm1.toml"),
    ("share/vgpu-device/libvirt-hook", "packaging/libvirt/hook"),
    ("share/vgpu-device/libvirt-qemu.apparmor", "packaging/libvirt/apparmor"),
    ("share/vgpu-device/vgpu-device.cil", "packaging/libvirt/selinux.cil"),
];

/// The packed archive of the host's program.
#[derive(Debug)]
pub struct Packed {
    /// Name of the archive without `.tar.gz`, which is also that of its top directory.
    pub name: String,
    /// Content of the archive.
    pub archive: Vec<u8>,
    /// Newest glibc version that the program requires.
    pub glibc: Glibc,
    /// SONAMEs on which the program depends.
    pub needed: Vec<String>,
    /// Size of the program in bytes.
    pub program_bytes: u64,
    /// Names and contents of the archive's files besides the program.
    pub documents: Vec<(String, Vec<u8>)>,
    /// Content of the program.
    pub program: Vec<u8>,
}

/// Compiles the program into `folder`, unless it lies in `built`, and returns its path.
pub fn build(root: &Path, folder: &Path, built: Option<&Path>) -> Result<PathBuf, DistError> {
    cargo(root, folder, built, "vgpu-serve", "vgpu-device")
}

/// Compiles a program of hosts, the member `package` of the workspace, into `folder`, unless it lies in
/// `built`, and returns its path.
pub(super) fn cargo(
    root: &Path,
    folder: &Path,
    built: Option<&Path>,
    package: &str,
    program: &'static str,
) -> Result<PathBuf, DistError> {
    if let Some(built) = built {
        return Ok(built.join(program));
    }
    // Not the launcher's: flags of the compiler are of a whole target directory.
    let target = folder.join("cargo-host");
    let mut command = compile::cargo(root, &[]);
    command
        .args(["build", "--release", "--locked", "--package", package, "--bin", program])
        .args(["--config", "profile.release.strip='symbols'"])
        .args(["--target", TARGET, "--target-dir"])
        .arg(&target);
    let status = command.status().map_err(DistError::Cargo)?;
    if !status.success() {
        return Err(DistError::Compile { program, status });
    }
    Ok(target.join(TARGET).join("release").join(program))
}

/// Packs the program with its accompanying files. `prefix` is a directory for its manual page.
pub fn pack(root: &Path, version: &str, program: &Path, prefix: &Path) -> Result<Packed, DistError> {
    let bytes = read(program)?;
    let (glibc, needed) = check(program, &bytes)?;
    let mut documents = pages(program, prefix)?;
    for (name, source) in FILES {
        documents.push(((*name).to_owned(), read(&root.join(source))?));
    }
    let name = format!("vgpu-device-{version}-x86_64-linux-gnu");
    let archive = tarball::pack(&name, files("bin/vgpu-device", &bytes, &documents))
        .map_err(|source| DistError::File { path: PathBuf::from(&name), source })?;
    let program_bytes = bytes.len() as u64;
    Ok(Packed { name, archive, glibc, needed, program_bytes, documents, program: bytes })
}

/// Returns the newest glibc version that a program of hosts requires, and the libraries that it needs, if it
/// runs on every supported host.
pub(super) fn check(program: &Path, bytes: &[u8]) -> Result<(Glibc, Vec<String>), DistError> {
    let unread = |source| ShimError::Object { path: program.to_owned(), source };
    let loader = Elf::parse(bytes).map_err(unread)?.interpreter.map(str::to_owned);
    let object = Object::parse(bytes).map_err(unread)?;
    let glibc = fits(loader.as_deref(), &object.needed, object.glibc).map_err(|problem| {
        let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        DistError::Host { program, problem }
    })?;
    Ok((glibc, object.needed))
}

/// Returns the newest glibc version that a program with this loader and these libraries requires, or the
/// reason why it would not run on every host.
fn fits(loader: Option<&str>, needed: &[String], glibc: Option<Glibc>) -> Result<Glibc, String> {
    match loader {
        Some(LOADER) => {}
        Some(other) => return Err(format!("its loader is {other}, not {LOADER}")),
        None => return Err("it is static, and could not load NVIDIA's libraries".to_owned()),
    }
    if let Some(other) = needed.iter().find(|needed| !ALLOWED.contains(&needed.as_str())) {
        return Err(format!("it needs {other}, which a host may lack"));
    }
    let glibc = glibc.ok_or("it asks for no version of glibc")?;
    if glibc > OLDEST {
        return Err(format!("it needs glibc {glibc}, later than {OLDEST}"));
    }
    Ok(glibc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_for_newer_hosts_is_refused() {
        let libraries = ["libgcc_s.so.1", "libc.so.6"].map(str::to_owned);
        assert_eq!(fits(Some(LOADER), &libraries, Some(OLDEST)), Ok(OLDEST));
        let refused = |loader, needed: &[String], glibc| fits(loader, needed, glibc).unwrap_err();
        assert!(refused(Some(LOADER), &libraries, Some(Glibc(2, 35))).contains("glibc 2.35"));
        assert!(refused(Some(LOADER), &libraries, None).contains("no version"));
        assert!(refused(Some(LOADER), &["libssl.so.3".to_owned()], Some(OLDEST)).contains("libssl.so.3"));
        assert!(refused(Some("/lib/ld-musl-x86_64.so.1"), &[], None).contains("ld-musl"));
        assert!(refused(None, &[], None).contains("static"));
    }
}
