//! Servers on the loopback address that speak TLS, with a certificate of their own: `openssl s_server`, which
//! answers a path with the response that a file of that name holds.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::bed::{open, tool};

/// A certificate for this machine's names, and its key.
pub struct Site {
    folder: TempDir,
}

impl Site {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("vgpu-run-tls.").tempdir().unwrap();
        open(folder.path());
        let site = Self { folder };
        let made = Command::new(openssl())
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-days", "2", "-subj", "/CN=vgpu-run tests"])
            .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
            .arg("-keyout")
            .arg(site.key())
            .arg("-out")
            .arg(site.certificate())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        site
    }

    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// Starts a server whose address has this name of this machine.
    pub fn serve(&self, name: &str) -> Server {
        let folder = tempfile::Builder::new().prefix("vgpu-run-site.").tempdir().unwrap();
        let mut child = Command::new(openssl())
            .args(["s_server", "-accept", "127.0.0.1:0", "-HTTP", "-cert"])
            .arg(self.certificate())
            .arg("-key")
            .arg(self.key())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // It says where it listens once it does.
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            Some(line.strip_prefix("ACCEPT ")?.rsplit_once(':')?.1.to_owned())
        });
        let port = port.expect("openssl s_server said nowhere that it listens");
        // What it says of each connection must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Server { url: format!("https://{name}:{port}"), folder, child }
    }
}

/// A server. It ends with this value.
pub struct Server {
    /// Address of its directory, without a slash at its end.
    pub url: String,
    folder: TempDir,
    child: Child,
}

impl Server {
    /// Answers a path with these bytes.
    pub fn add(&self, path: &str, bytes: &[u8]) {
        let mut response = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len()).into_bytes();
        response.extend(bytes);
        self.put(path, &response);
    }

    /// Answers a path by a redirection.
    pub fn redirect(&self, path: &str, to: &str) {
        self.put(
            path,
            format!("HTTP/1.0 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").as_bytes(),
        );
    }

    /// Answers that a path does not exist.
    pub fn missing(&self, path: &str) {
        self.put(path, b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }

    fn put(&self, path: &str, response: &[u8]) {
        let file = self.folder.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, response).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended by itself has failed its test already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn openssl() -> PathBuf {
    tool("openssl").expect("this test needs openssl")
}
