//! Puts programs in place that are started at once.
//!
//! A file that any process has open for writing cannot be executed (ETXTBSY). A file that this process writes
//! may be open in a child that another thread forks meanwhile, so a child writes it instead, and nobody can
//! inherit its descriptor.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program.
pub fn write(path: &Path, bytes: &[u8]) {
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    install.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(install.wait().unwrap().success(), "{}", path.display());
}
