//! Extracts files from packages.

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use zip::ZipArchive;

use crate::hashing::Hashing;
use crate::progress::Progress;
use crate::spec::{Package, Registry};

/// Reasons why a package cannot be unpacked.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum UnpackError {
    #[error("read or write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("read the zip archive {path}")]
    Zip { path: PathBuf, source: zip::result::ZipError },
    #[error("find {member} in {package}")]
    Absent { member: String, package: String },
    #[error("take {member} out of {package}: its SHA-256 is {found}")]
    Digest { member: String, package: String, found: String },
}

/// Extracts the members of an archive that `wanted` names. Its values are the members' digests and also their
/// file names in `folder`.
pub fn members(
    package: &Package,
    archive: &Path,
    wanted: &BTreeMap<String, String>,
    folder: &Path,
) -> Result<(), UnpackError> {
    let progress = Progress::begin(format!("unpacking {} {}", package.name, package.version), package.bytes);
    let fail = |source| UnpackError::File { path: archive.to_owned(), source };
    let file = File::open(archive).map_err(fail)?;
    // Counted behind the buffer: a zip is read with seeks, so the buffer reads more than is used.
    let file = progress.counted(io::BufReader::with_capacity(1 << 16, file));
    let mut found = 0;
    let mut take = |member: &str, reader: &mut dyn Read| -> Result<(), UnpackError> {
        let Some(digest) = wanted.get(member) else { return Ok(()) };
        found += 1;
        save(package, member, digest, reader, folder)
    };
    match package.registry {
        Registry::Npm => {
            let mut tar = tar::Archive::new(GzDecoder::new(file));
            for entry in tar.entries().map_err(fail)? {
                let mut entry = entry.map_err(fail)?;
                let member = entry.path().map_err(fail)?.to_string_lossy().into_owned();
                take(&member, &mut entry)?;
            }
        }
        Registry::Pypi => {
            let fail = |source| UnpackError::Zip { path: archive.to_owned(), source };
            let mut zip = ZipArchive::new(file).map_err(fail)?;
            for member in wanted.keys() {
                let Some(index) = zip.index_for_name(member) else { continue };
                take(member, &mut zip.by_index(index).map_err(fail)?)?;
            }
        }
    }
    if found < wanted.len() {
        let absent = wanted.iter().find(|(_, digest)| !folder.join(digest).exists());
        let member = absent.map_or("a file", |(member, _)| member).to_owned();
        return Err(UnpackError::Absent { member, package: package.name.clone() });
    }
    Ok(())
}

/// Unpacks a complete wheel into `folder`.
pub fn whole(package: &Package, archive: &Path, folder: &Path) -> Result<(), UnpackError> {
    let progress = Progress::begin(format!("unpacking {} {}", package.name, package.version), package.bytes);
    let file =
        File::open(archive).map_err(|source| UnpackError::File { path: archive.to_owned(), source })?;
    let fail = |source| UnpackError::Zip { path: archive.to_owned(), source };
    let mut zip = ZipArchive::new(progress.counted(io::BufReader::new(file))).map_err(fail)?;
    zip.extract(folder).map_err(fail)
}

/// Writes a member to `folder` under the name of its digest. Fails if the content has another digest.
fn save(
    package: &Package,
    member: &str,
    digest: &str,
    reader: &mut dyn Read,
    folder: &Path,
) -> Result<(), UnpackError> {
    let path = folder.join(digest);
    let part = folder.join(format!("{digest}.part"));
    let fail = |source| UnpackError::File { path: part.clone(), source };
    let mut file = Hashing::new(File::create(&part).map_err(fail)?);
    io::copy(reader, &mut file).map_err(fail)?;
    let found = file.finish();
    if found != digest {
        return Err(UnpackError::Digest { member: member.to_owned(), package: package.name.clone(), found });
    }
    fs::rename(&part, &path).map_err(fail)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use zip::write::SimpleFileOptions;

    use super::*;
    use crate::hashing::sha256;

    const CONTENT: &[u8] = b"an object";

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("vgpu-unpack-{name}-{}", std::process::id()));
        // Fails if the directory exists, because other users may write to the temporary directory.
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn package(registry: Registry) -> Package {
        Package {
            registry,
            name: "p".into(),
            version: "1".into(),
            file: "p".into(),
            bytes: 1,
            sha256: String::new(),
        }
    }

    fn tarball(path: &Path) {
        let mut tar = tar::Builder::new(GzEncoder::new(File::create(path).unwrap(), Compression::fast()));
        for (name, content) in [("package/README", &b"text"[..]), ("package/lib/x.so", CONTENT)] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, content).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
    }

    fn wheel(path: &Path) {
        let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
        zip.start_file("lib/x.so", SimpleFileOptions::default().unix_permissions(0o755)).unwrap();
        zip.write_all(CONTENT).unwrap();
        zip.finish().unwrap();
    }

    #[test]
    fn takes_only_what_is_wanted_from_either_kind() {
        for (registry, member, make) in [
            (Registry::Npm, "package/lib/x.so", tarball as fn(&Path)),
            (Registry::Pypi, "lib/x.so", wheel as fn(&Path)),
        ] {
            let folder = folder(&format!("{registry:?}"));
            let archive = folder.join("archive");
            make(&archive);
            let package = package(registry);
            let digest = sha256(CONTENT);
            members(&package, &archive, &[(member.to_owned(), digest.clone())].into(), &folder).unwrap();
            assert_eq!(fs::read(folder.join(&digest)).unwrap(), CONTENT);
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);

            let absent = BTreeMap::from([("package/lib/y.so".to_owned(), sha256(b"y"))]);
            let error = members(&package, &archive, &absent, &folder).unwrap_err();
            assert!(matches!(error, UnpackError::Absent { member, .. } if member == "package/lib/y.so"));

            let other = sha256(b"other");
            let error = members(&package, &archive, &[(member.to_owned(), other.clone())].into(), &folder);
            assert!(matches!(error, Err(UnpackError::Digest { found, .. }) if found == digest));
            assert!(!folder.join(other).exists());
            fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_whole_wheel_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = folder("whole");
        let archive = folder.join("archive");
        wheel(&archive);
        whole(&package(Registry::Pypi), &archive, &folder.join("out")).unwrap();
        let mode = fs::metadata(folder.join("out/lib/x.so")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        fs::remove_dir_all(&folder).unwrap();
    }
}
