//! Tries the values that the server would start with, as its user and in its sandbox: the address in
//! OLLAMA_HOST, the key in HOME, the models, and the directory for temporary files. Nothing is created:
//! rights are asked for, and room is tried with a file that has no name.
//!
//! A value that the server cannot use is left to it, so that it says so itself. The others are replaced by
//! private ones ([`super::home`]), because the server of a check must leave nothing behind.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;

use super::store;
use super::tried::{self, creatable, errno, room, writable};
use crate::check::messages::{RefusedValue, ValueTrouble};
use crate::env::{Environment, HOME, OLLAMA_HOST, TMPDIR};
use crate::ollama::address;
use crate::ollama::variable::{is_on, var};

/// Variable that moves the models out of the home directory.
pub const MODELS: &str = "OLLAMA_MODELS";
/// Variable that keeps the server from removing unused parts of models when it starts.
pub const NO_PRUNE: &str = "OLLAMA_NOPRUNE";
/// File with the first port at which every user may listen.
const UNPRIVILEGED: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
/// Time limit for resolving the host name in OLLAMA_HOST.
const RESOLVING: Duration = Duration::from_millis(1500);

/// Tries all values of `environment`.
pub fn refused(environment: &Environment) -> Vec<RefusedValue> {
    let home = environment.get(HOME).filter(|home| !home.is_empty()).map(PathBuf::from);
    let key = match &home {
        Some(home) => key(home),
        None => Some(RefusedValue {
            trouble: ValueTrouble::HomeUnset,
            variable: HOME.to_owned(),
            value: String::new(),
            at: PathBuf::new(),
            errno: None,
            left: true,
        }),
    };
    let settings = home.as_deref().and_then(settings);
    let prunes = !is_on(environment, NO_PRUNE);
    let models =
        store_of(environment).and_then(|(variable, models)| store::models(variable, &models, prunes));
    let given = environment.get(TMPDIR).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let temporary = temporary(&given.unwrap_or_else(|| "/tmp".into()));
    [address(environment), key, settings, models, temporary].into_iter().flatten().collect()
}

/// Returns the directory of models, and the variable that sets it.
pub fn store_of(environment: &Environment) -> Option<(&'static str, PathBuf)> {
    let given = var(environment, MODELS).map(|models| (MODELS, PathBuf::from(models)));
    // Go reads the home directory, which keeps its blanks and quotes.
    let home = environment.get(HOME).filter(|home| !home.is_empty());
    given.or_else(|| Some((HOME, Path::new(home?).join(".ollama/models"))))
}

/// Tries to bind the address at which the server would listen, as Go's `net.Listen` does.
fn address(environment: &Environment) -> Option<RefusedValue> {
    let given = environment.get(OLLAMA_HOST).map(|host| host.to_string_lossy().into_owned());
    let (host, port) = address::listens(given.as_deref());
    let refused = |trouble, errno: Option<Errno>| {
        let value = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let (errno, left) = (errno.map(|errno| errno as i32), trouble != ValueTrouble::AddressTaken);
        Some(RefusedValue {
            trouble,
            variable: OLLAMA_HOST.to_owned(),
            value,
            at: PathBuf::new(),
            errno,
            left,
        })
    };
    let addresses = match resolve(host.clone(), port) {
        Resolved::Addresses(addresses) => addresses,
        Resolved::Unknown => return refused(ValueTrouble::AddressUnknown, None),
        // The server may get an answer later, so that it must not have this address.
        Resolved::Unanswered => return None,
    };
    // A system without IPv6 has the second only.
    let mut last = None;
    for address in addresses {
        let Err(error) = TcpListener::bind(address) else { return None };
        let errno = errno(&error);
        last = Some(errno);
        if errno != Errno::EAFNOSUPPORT {
            break;
        }
    }
    match last? {
        Errno::EADDRINUSE => refused(ValueTrouble::AddressTaken, Some(Errno::EADDRINUSE)),
        errno @ (Errno::EACCES | Errno::EPERM) if port < unprivileged() => {
            refused(ValueTrouble::AddressPrivileged, Some(errno))
        }
        errno => refused(ValueTrouble::AddressUnusable, Some(errno)),
    }
}

/// Returns the first port at which every user may listen.
fn unprivileged() -> u16 {
    let start = vgpu_paths::read_to_string(UNPRIVILEGED.as_ref(), 64).ok();
    start.and_then(|start| start.trim().parse().ok()).unwrap_or(1024)
}

/// What the system's resolver says of a host.
#[derive(Debug, PartialEq, Eq)]
enum Resolved {
    /// Addresses to bind, in the order in which Go tries them.
    Addresses(Vec<SocketAddr>),
    /// The name does not resolve.
    Unknown,
    /// The resolver has not answered in time, or could not be asked.
    Unanswered,
}

/// Resolves a host.
fn resolve(host: String, port: u16) -> Resolved {
    let literal = if host.is_empty() { Some(Ipv4Addr::UNSPECIFIED.into()) } else { host.parse().ok() };
    if let Some(ip) = literal {
        // Go binds a wildcard address of either family for both families.
        let both = [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()];
        let addresses: Vec<IpAddr> = if both.contains(&ip) { both.to_vec() } else { vec![ip] };
        return Resolved::Addresses(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect());
    }
    let (send, coming) = mpsc::channel();
    // A name server that does not answer blocks the thread, which ends with the process.
    let resolve = move || send.send((host, port).to_socket_addrs().map(Iterator::collect::<Vec<_>>));
    match thread::Builder::new().spawn(resolve) {
        Ok(_) => answer(&coming, RESOLVING),
        Err(_) => Resolved::Unanswered,
    }
}

/// Waits for the resolver's answer. Go takes the first IPv4 address, or the first of all.
fn answer(coming: &Receiver<io::Result<Vec<SocketAddr>>>, limit: Duration) -> Resolved {
    let Ok(answer) = coming.recv_timeout(limit) else { return Resolved::Unanswered };
    let addresses = answer.unwrap_or_default();
    match addresses.iter().find(|address| address.is_ipv4()).or(addresses.first()) {
        Some(first) => Resolved::Addresses(vec![*first]),
        None => Resolved::Unknown,
    }
}

/// Tries whether the server would find its key or could create it. Ollama takes every error but a missing
/// file for a key that is there.
fn key(home: &Path) -> Option<RefusedValue> {
    let key = home.join(".ollama/id_ed25519");
    match fs::metadata(&key) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Ok(_) | Err(_) => return None,
    }
    let public = home.join(".ollama/id_ed25519.pub");
    let kind = fs::metadata(&public).map(|metadata| metadata.file_type());
    if let Ok(kind) = kind.as_ref()
        && !kind.is_file()
    {
        // Before it ends, or waits for a reader, the server would leave its private key behind.
        let errno = if kind.is_dir() { Errno::EISDIR } else { Errno::ENXIO };
        return Some(tried::refused(ValueTrouble::KeyRefused, HOME, &public, false, (public.clone(), errno)));
    }
    let made = creatable(&home.join(".ollama")).and_then(|folder| {
        let made = room(&folder).and_then(|()| writable(&folder));
        made.map_err(|errno| (folder, errno))
    });
    Some(tried::refused(ValueTrouble::KeyRefused, HOME, &key, true, made.err()?))
}

/// Finds settings that a server of the third era would wait for: it opens the file when it starts, and a FIFO
/// opens only when somebody writes.
fn settings(home: &Path) -> Option<RefusedValue> {
    let path = home.join(".ollama/server.json");
    let blocks = fs::metadata(&path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    let obstacle = (path.clone(), Errno::ENXIO);
    blocks.then(|| tried::refused(ValueTrouble::SettingsBlock, HOME, &path, false, obstacle))
}

/// Tries whether the server could create a temporary file.
fn temporary(folder: &Path) -> Option<RefusedValue> {
    let made = match fs::metadata(folder) {
        Ok(metadata) if !metadata.is_dir() => Err(Errno::ENOTDIR),
        Ok(_) => writable(folder).and_then(|()| room(folder)),
        Err(error) => Err(errno(&error)),
    };
    let obstacle = (folder.to_owned(), made.err()?);
    Some(RefusedValue {
        left: true,
        ..tried::refused(ValueTrouble::TemporaryRefused, TMPDIR, folder, true, obstacle)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::scratch::Scratch;

    fn troubles(entries: &[(&str, &str)]) -> Vec<(ValueTrouble, String)> {
        let refused = refused(&entries.iter().copied().collect());
        refused.into_iter().map(|refused| (refused.trouble, refused.variable)).collect()
    }

    fn names(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn an_empty_home_is_fine_and_stays_empty() {
        let scratch = Scratch::new();
        let home = scratch.path().display().to_string();
        assert_eq!(troubles(&[("HOME", &home), ("OLLAMA_HOST", "127.0.0.1:0"), ("TMPDIR", &home)]), []);
        assert!(names(scratch.path()).is_empty());
    }

    #[test]
    fn each_value_that_a_server_cannot_use() {
        let scratch = Scratch::new();
        let file = scratch.join("file");
        fs::write(&file, "").unwrap();
        symlink("/nonexistent", scratch.join(".ollama")).unwrap();
        let (home, file) = (scratch.path().display().to_string(), file.display().to_string());
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = held.local_addr().unwrap().to_string();
        // Never given to a machine: RFC 5737.
        let foreign = "203.0.113.7:1";
        let of = |host: &str, home: &str, models: &str, temporary: &str| {
            troubles(&[
                ("OLLAMA_HOST", host),
                ("HOME", home),
                ("OLLAMA_MODELS", models),
                ("TMPDIR", temporary),
            ])
        };
        let own = |trouble, variable: &str| (trouble, variable.to_owned());
        assert_eq!(
            of("127.0.0.1:0", "", &file, "/nonexistent"),
            [
                own(ValueTrouble::HomeUnset, "HOME"),
                own(ValueTrouble::ModelsRefused, "OLLAMA_MODELS"),
                own(ValueTrouble::TemporaryRefused, "TMPDIR")
            ]
        );
        // A home that is a file passes for one with a key.
        assert_eq!(of("127.0.0.1:0", &file, "", "/tmp"), [own(ValueTrouble::ModelsRefused, "HOME")]);
        assert_eq!(of("127.0.0.1:0", &home, &home, "/tmp"), [own(ValueTrouble::KeyRefused, "HOME")]);
        fs::remove_file(scratch.join(".ollama")).unwrap();
        assert_eq!(of(foreign, &home, &home, "/tmp"), [own(ValueTrouble::AddressUnusable, "OLLAMA_HOST")]);
        assert_eq!(of(&taken, &home, &home, "/tmp"), [own(ValueTrouble::AddressTaken, "OLLAMA_HOST")]);
        drop(held);
    }

    #[test]
    fn what_lies_in_the_place_of_a_file_of_the_home() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.join(".ollama/id_ed25519.pub")).unwrap();
        nix::unistd::mkfifo(&scratch.join(".ollama/server.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let home = scratch.path().display().to_string();
        let found = troubles(&[("HOME", &home), ("OLLAMA_HOST", "127.0.0.1:0"), ("TMPDIR", &home)]);
        let own = |trouble| (trouble, "HOME".to_owned());
        assert_eq!(found, [own(ValueTrouble::KeyRefused), own(ValueTrouble::SettingsBlock)]);
    }

    #[test]
    fn a_resolver_that_does_not_answer_says_nothing_of_a_name() {
        let (send, coming) = mpsc::channel();
        assert_eq!(answer(&coming, Duration::from_millis(1)), Resolved::Unanswered);
        send.send(Err(ErrorKind::NotFound.into())).unwrap();
        assert_eq!(answer(&coming, RESOLVING), Resolved::Unknown);
        let [v6, v4] = ["[::1]:1", "127.0.0.1:1"].map(|address| address.parse().unwrap());
        send.send(Ok(vec![v6, v4])).unwrap();
        assert_eq!(answer(&coming, RESOLVING), Resolved::Addresses(vec![v4]));
    }

    #[test]
    fn models_are_where_the_server_looks_for_them() {
        let of =
            |models: &str| store_of(&Environment::from_iter([("HOME", "/h"), ("OLLAMA_MODELS", models)]));
        assert_eq!(of(" \"/m\" "), Some((MODELS, "/m".into())));
        assert_eq!(of("''"), Some((HOME, "/h/.ollama/models".into())));
    }
}
