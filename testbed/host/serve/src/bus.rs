//! The name of a bus on a command line.

use std::path::PathBuf;

/// Where devices are put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bus {
    /// A directory that looks like sysfs.
    Sim(PathBuf),
    /// One function behind a socket, for a machine.
    VfioUser(PathBuf),
}

/// Reads `sim:DIR` or `vfio-user:SOCKET`.
pub(crate) fn parse_bus(text: &str) -> Result<Bus, String> {
    match text.split_once(':') {
        Some(("sim", folder)) if !folder.is_empty() => Ok(Bus::Sim(PathBuf::from(folder))),
        Some(("vfio-user", socket)) if !socket.is_empty() => Ok(Bus::VfioUser(PathBuf::from(socket))),
        _ => Err("expected sim:DIR or vfio-user:SOCKET".to_owned()),
    }
}

/// Reads `sim:DIR`, of a bus that has a control socket.
pub fn parse_sim(text: &str) -> Result<PathBuf, String> {
    match parse_bus(text) {
        Ok(Bus::Sim(folder)) => Ok(folder),
        _ => Err("expected sim:DIR".to_owned()),
    }
}
