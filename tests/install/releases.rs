//! Releases for the installer to download, from a directory or a local server.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tiny_http::{Response, Server};
use xtask::dist::tarball::{self, File};

use super::bed::{open, sha256};

/// Returns a script that is used as the launcher of a release in tests that do not concern the launcher.
pub fn stand_in(version: &str) -> String {
    format!(
        "#!/bin/sh\ncase $1 in\n--version) echo 'vgpu-run {version}' ;;\n\
         service) echo \"$@\" >>\"$HOME/service.log\"; [ ! -e \"$HOME/refuse\" ] ;;\n*) exit 9 ;;\nesac\n"
    )
}

/// A directory with the files of a release.
pub struct Releases {
    folder: TempDir,
}

impl Releases {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("vgpu-run-release.").tempdir().unwrap();
        open(folder.path());
        let releases = Self { folder };
        fs::write(releases.path("SHA256SUMS"), format!("{}  install.sh\n", "0".repeat(64))).unwrap();
        releases
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds a release with these documents and this launcher, and its digest to SHA256SUMS.
    pub fn add(&self, version: &str, launcher: &[u8], documents: &[&str]) -> PathBuf {
        let name = format!("vgpu-run-{version}-x86_64-linux");
        let documents: Vec<_> = documents.iter().map(|name| format!("share/doc/vgpu-run/{name}")).collect();
        let mut files: Vec<_> = documents
            .iter()
            .map(|name| File { name, content: version.as_bytes(), executable: false })
            .collect();
        files.push(File { name: "bin/vgpu-run", content: launcher, executable: true });
        let bytes = tarball::pack(&name, files).unwrap();
        let path = self.path(&format!("{name}.tar.gz"));
        fs::write(&path, &bytes).unwrap();
        let mut sums = fs::OpenOptions::new().append(true).open(self.path("SHA256SUMS")).unwrap();
        writeln!(sums, "{}  {name}.tar.gz", sha256(&bytes)).unwrap();
        path
    }

    /// Creates the release that most tests install.
    pub fn one() -> Self {
        let releases = Self::new();
        releases.add("1.0.0", stand_in("1.0.0").as_bytes(), &["README.md", "LICENSE-MIT"]);
        releases
    }

    pub fn file_url(&self) -> String {
        format!("file://{}", self.folder.path().display())
    }

    pub fn serve(&self) -> Served {
        Served::new(self.folder.path())
    }
}

/// A directory that is served on the loopback address. The transfer of a file called `stall` never ends.
pub struct Served {
    pub url: String,
    /// Whether a client has requested the file whose transfer never ends.
    pub stalled: Arc<AtomicBool>,
    server: Arc<Server>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Served {
    fn new(folder: &Path) -> Self {
        let server = Arc::new(Server::http("127.0.0.1:0").unwrap());
        let url = format!("http://{}", server.server_addr());
        let stalled = Arc::new(AtomicBool::new(false));
        let (folder, source, flag) = (folder.to_owned(), server.clone(), stalled.clone());
        let thread = thread::spawn(move || {
            let mut held = Vec::new();
            for request in source.incoming_requests() {
                let name = request.url().trim_start_matches('/').to_owned();
                if folder.join("stall").exists() && name != "SHA256SUMS" {
                    held.push(request);
                    flag.store(true, Ordering::Release);
                    continue;
                }
                // Whoever asked may be gone.
                let _ = match fs::read(folder.join(name)) {
                    Ok(bytes) => request.respond(Response::from_data(bytes)),
                    Err(_) => request.respond(Response::from_string("no such file").with_status_code(404)),
                };
            }
        });
        Self { url, stalled, server, thread: Some(thread) }
    }

    /// Waits until a client has requested the file whose transfer never ends.
    pub fn wait_for_stall(&self) {
        while !self.stalled.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.unblock();
        // A panic of it has been printed.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}
