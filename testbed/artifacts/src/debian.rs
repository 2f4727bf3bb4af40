//! Packages of Debian: fetched from the archive that this machine's apt is configured for, by apt's own
//! downloader, checked by digest, and unpacked side by side into one directory. Nothing is installed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::hashing::digest;
use crate::progress::Progress;
use crate::spec::Deb;

/// Path of apt's downloader, which honours the machine's proxies, certificates and retries.
const DOWNLOADER: &str = "/usr/lib/apt/apt-helper";

/// Reasons why Debian's packages cannot be fetched.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum DebianError {
    #[error("run {program}, which Debian and its descendants have")]
    Run { program: &'static str, source: io::Error },
    #[error("find an archive of Debian: apt has no source with the component main")]
    NoArchive,
    #[error(
        "fetch packages of Debian (a version that the archive has dropped wants a new line in debian.toml): {0}"
    )]
    Client(String),
    #[error("read {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("take {pool} from the archive: its SHA-256 is {found}")]
    Digest { pool: String, found: String },
    #[error("unpack {pool}: dpkg-deb ended with {status}")]
    Unpack { pool: String, status: ExitStatus },
}

/// Fetches `debs` into `temporary` and unpacks all of them into `folder`.
pub fn unpack(name: &str, debs: &[Deb], temporary: &Path, folder: &Path) -> Result<(), DebianError> {
    let _progress = Progress::begin(format!("fetching {name}"), debs.iter().map(|deb| deb.bytes).sum());
    let mut refused = DebianError::NoArchive;
    // Use the first archive that has everything. A machine may have a mirror, and sources of other vendors.
    let fetched = archives()?.iter().find_map(|archive| match fetch(archive, debs, temporary) {
        Ok(files) => Some(files),
        Err(error) => {
            refused = error;
            None
        }
    });
    for (deb, file) in debs.iter().zip(fetched.ok_or(refused)?) {
        let mut command = Command::new("dpkg-deb");
        let status = command.arg("--extract").arg(&file).arg(folder).status();
        let status = status.map_err(|source| DebianError::Run { program: "dpkg-deb", source })?;
        if !status.success() {
            return Err(DebianError::Unpack { pool: deb.pool.clone(), status });
        }
    }
    Ok(())
}

/// Returns the archive URLs of apt's sources that have a component `main`, without duplicates and in apt's
/// order.
fn archives() -> Result<Vec<String>, DebianError> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(COMPONENT) $(REPO_URI)", "Created-By: Packages"]);
    let output = command.output().map_err(|source| DebianError::Run { program: "apt-get", source })?;
    Ok(places(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns the URLs that apt lists for its index targets.
fn places(targets: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let main = targets.lines().filter_map(|line| line.strip_prefix("main "));
    main.filter(|uri| seen.insert((*uri).to_owned())).map(str::to_owned).collect()
}

/// Downloads all packages from one archive, verifies their digests, and returns the files.
fn fetch(archive: &str, debs: &[Deb], temporary: &Path) -> Result<Vec<PathBuf>, DebianError> {
    let files: Vec<PathBuf> = (0..debs.len()).map(|number| temporary.join(format!("{number}.deb"))).collect();
    let mut command = Command::new(DOWNLOADER);
    // Run as the caller, because apt's own user may not be able to write to the cache.
    command.args(["-o", "APT::Sandbox::User=root", "download-file"]);
    for (deb, file) in debs.iter().zip(&files) {
        command.arg(format!("{}/{}", archive.trim_end_matches('/'), deb.pool));
        command.arg(file).arg(format!("SHA256:{}", deb.sha256));
    }
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| DebianError::Run { program: "apt-helper", source })?;
    if !output.status.success() {
        return Err(DebianError::Client(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    for (deb, file) in debs.iter().zip(&files) {
        let found = digest(file).map_err(|source| DebianError::File { path: file.clone(), source })?;
        if found != deb.sha256 {
            return Err(DebianError::Digest { pool: deb.pool.clone(), found });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_archive_is_asked_once() {
        let targets = "main http://a/debian/\nmain http://a/debian/\ncontrib http://b/\nmain http://c/\n";
        assert_eq!(places(targets), ["http://a/debian/", "http://c/"]);
    }
}
