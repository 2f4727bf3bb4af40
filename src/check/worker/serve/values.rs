//! Tries the values that the server would start with, as its user and in its sandbox: the address in
//! OLLAMA_HOST, the key in HOME, the models, and the directory for temporary files. Nothing is created: rights
//! are asked for, and room is tried with a file that has no name.
//!
//! A value that the server cannot use is left to it, so that it says so itself. The others are replaced by
//! private ones ([`super::home`]), because the server of a check must leave nothing behind.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{AccessFlags, faccessat};

use crate::check::messages::{RefusedValue, ValueTrouble};
use crate::env::{Environment, HOME, OLLAMA_HOST, TMPDIR};
use crate::ollama::address;

/// Variable that moves the models out of the home directory.
pub const MODELS: &str = "OLLAMA_MODELS";
/// Variable that keeps the server from removing unused parts of models when it starts.
const NO_PRUNE: &str = "OLLAMA_NOPRUNE";
/// Time limit for resolving the host name in OLLAMA_HOST.
const RESOLVING: Duration = Duration::from_millis(1500);
/// Maximum number of directories of manifests that are examined.
const DIRECTORIES: usize = 4096;
/// Number of bytes by which room is tried: a block, which is more than a key takes.
const BLOCK: [u8; 4096] = [0; 4096];

/// Path that prevents an operation, with the error.
type Obstacle = (PathBuf, Errno);

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
    let given = environment.get(MODELS).filter(|models| !models.is_empty()).map(PathBuf::from);
    let variable = if given.is_some() { MODELS } else { HOME };
    let models = given.or_else(|| home.as_ref().map(|home| home.join(".ollama/models")));
    let prunes = !environment.get(NO_PRUNE).is_some_and(|value| said_yes(&value.to_string_lossy()));
    let models = models.and_then(|models| self::models(variable, &models, prunes));
    let given = environment.get(TMPDIR).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let temporary = temporary(&given.unwrap_or_else(|| "/tmp".into()));
    [address(environment), key, models, temporary].into_iter().flatten().collect()
}

/// Returns whether Go's `strconv.ParseBool`, or Ollama for any other text, takes the value for true.
fn said_yes(value: &str) -> bool {
    let value = value.trim().trim_matches(['"', '\'']);
    !["", "0", "f", "F", "false", "FALSE", "False"].contains(&value)
}

fn of_path(trouble: ValueTrouble, variable: &str, value: &Path, (at, errno): Obstacle) -> RefusedValue {
    let trouble = match errno {
        Errno::ENOSPC | Errno::EDQUOT => ValueTrouble::NoRoom,
        _ => trouble,
    };
    let value = value.display().to_string();
    RefusedValue { trouble, variable: variable.to_owned(), value, at, errno: Some(errno as i32), left: false }
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
    let Some(addresses) = resolve(host.clone(), port) else {
        return refused(ValueTrouble::AddressUnknown, None);
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
        errno @ (Errno::EACCES | Errno::EPERM) => refused(ValueTrouble::AddressPrivileged, Some(errno)),
        errno => refused(ValueTrouble::AddressUnusable, Some(errno)),
    }
}

/// Returns the addresses to bind, in the order in which Go tries them. `None` if the name does not resolve.
fn resolve(host: String, port: u16) -> Option<Vec<SocketAddr>> {
    let literal = if host.is_empty() { Some(Ipv4Addr::UNSPECIFIED.into()) } else { host.parse().ok() };
    if let Some(ip) = literal {
        // Go binds a wildcard address of either family for both families.
        let both = [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()];
        let addresses: Vec<IpAddr> = if both.contains(&ip) { both.to_vec() } else { vec![ip] };
        return Some(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect());
    }
    let (send, coming) = mpsc::channel();
    // A name server that does not answer blocks the thread, which ends with the process.
    let resolve = move || send.send((host, port).to_socket_addrs().map(Iterator::collect::<Vec<_>>));
    thread::Builder::new().spawn(resolve).ok()?;
    let addresses = coming.recv_timeout(RESOLVING).ok()?.ok()?;
    let first = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first())?;
    Some(vec![*first])
}

/// Tries whether the server would find its key or could create it. Ollama takes every error but a missing
/// file for a key that is there.
fn key(home: &Path) -> Option<RefusedValue> {
    let key = home.join(".ollama/id_ed25519");
    let refused = |obstacle| {
        let refused = of_path(ValueTrouble::KeyRefused, HOME, &key, obstacle);
        Some(RefusedValue { left: refused.trouble == ValueTrouble::KeyRefused, ..refused })
    };
    match fs::metadata(&key) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Ok(_) | Err(_) => return None,
    }
    match creatable(&home.join(".ollama")) {
        Err(obstacle) => refused(obstacle),
        Ok(folder) => match room(&folder) {
            Err(errno) => refused((folder, errno)),
            Ok(()) => writable(&folder).err().and_then(|errno| refused((folder, errno))),
        },
    }
}

/// Tries what the server does with the models when it starts: it creates and reads two directories, and
/// removes directories of manifests that are empty.
fn models(variable: &str, models: &Path, prunes: bool) -> Option<RefusedValue> {
    let refused = |trouble, obstacle| Some(of_path(trouble, variable, models, obstacle));
    let folders = ["blobs", "manifests"].map(|name| models.join(name));
    for folder in &folders {
        let nearest = match creatable(folder) {
            Ok(nearest) => nearest,
            Err(obstacle) => {
                // The first that the server creates.
                let left = folder == &folders[0];
                let refused = of_path(ValueTrouble::ModelsRefused, variable, models, obstacle);
                return Some(RefusedValue { left, ..refused });
            }
        };
        if nearest == *folder {
            if let Err(error) = fs::read_dir(folder) {
                return refused(ValueTrouble::ModelsRefused, (nearest, errno(&error)));
            }
        } else if let Err(errno @ (Errno::ENOSPC | Errno::EDQUOT)) = room(&nearest) {
            return refused(ValueTrouble::ModelsRefused, (nearest, errno));
        }
    }
    let mut left = DIRECTORIES;
    if let Err(obstacle) = if prunes { prunable(&folders[1], &mut left) } else { Ok(false) } {
        return refused(ValueTrouble::ModelsRefused, obstacle);
    }
    let there = folders.iter().filter(|folder| folder.is_dir());
    let read_only = there.into_iter().find_map(|folder| Some((folder.clone(), writable(folder).err()?)));
    read_only.and_then(|obstacle| refused(ValueTrouble::ModelsReadOnly, obstacle))
}

fn temporary(folder: &Path) -> Option<RefusedValue> {
    let errno = match fs::metadata(folder) {
        Ok(metadata) if !metadata.is_dir() => Err(Errno::ENOTDIR),
        Ok(_) => writable(folder).and_then(|()| room(folder)),
        Err(error) => Err(errno(&error)),
    };
    let obstacle = (folder.to_owned(), errno.err()?);
    Some(RefusedValue {
        trouble: ValueTrouble::TemporaryRefused,
        left: true,
        ..of_path(ValueTrouble::TemporaryRefused, TMPDIR, folder, obstacle)
    })
}

/// Tries whether a directory exists or could be created with its parents, as Go's `os.MkdirAll` does. Returns
/// the directory itself or its nearest ancestor that exists.
fn creatable(path: &Path) -> Result<PathBuf, Obstacle> {
    let here = |errno| Err((path.to_owned(), errno));
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Ok(path.to_owned()),
        Ok(_) => return here(Errno::ENOTDIR),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return here(errno(&error)),
    }
    if fs::symlink_metadata(path).is_ok() {
        // A link that leads nowhere.
        return here(Errno::EEXIST);
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return here(Errno::ENOENT),
    };
    let nearest = creatable(parent)?;
    if nearest == parent
        && let Err(errno) = writable(parent)
    {
        return Err((nearest, errno));
    }
    Ok(nearest)
}

/// Tries whether the server may remove those directories at and below `path` that are empty. Returns whether
/// it would remove `path`.
fn prunable(path: &Path, left: &mut usize) -> Result<bool, Obstacle> {
    let at = |error: io::Error| (path.to_owned(), errno(&error));
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() && *left > 0 => *left -= 1,
        Ok(_) | Err(_) => return Ok(false),
    }
    let mut empty = true;
    for entry in fs::read_dir(path).map_err(at)? {
        empty &= prunable(&entry.map_err(at)?.path(), left)?;
    }
    if empty && let Some(parent) = path.parent() {
        writable(parent).map_err(|errno| (path.to_owned(), errno))?;
    }
    Ok(empty)
}

/// Asks whether files may be created in a directory.
fn writable(folder: &Path) -> Result<(), Errno> {
    faccessat(AT_FDCWD, folder, AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS)
}

/// Tries whether there is room for a key in the directory's file system, with a file that has no name. Where
/// the file system has no such files, its own figures count.
fn room(folder: &Path) -> Result<(), Errno> {
    let unnamed = OpenOptions::new().write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(folder);
    match unnamed.and_then(|mut file| file.write_all(&BLOCK)) {
        Ok(()) => Ok(()),
        Err(error) => match errno(&error) {
            errno @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EROFS) => Err(errno),
            _ => match File::open(folder).map(fstatvfs) {
                Ok(Ok(system)) if system.blocks() > 0 && system.blocks_available() == 0 => Err(Errno::ENOSPC),
                _ => Ok(()),
            },
        },
    }
}

fn errno(error: &io::Error) -> Errno {
    crate::program::find::errno(error)
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
    fn empty_directories_of_manifests_are_removed_at_a_start() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.join("manifests/a/b")).unwrap();
        assert_eq!(prunable(&scratch.join("manifests"), &mut 9), Ok(true));
        fs::write(scratch.join("manifests/a/b/c"), "{}").unwrap();
        assert_eq!(prunable(&scratch.join("manifests"), &mut 9), Ok(false));
        assert_eq!(prunable(&scratch.join("absent"), &mut 9), Ok(false));
    }

    #[test]
    fn the_words_for_yes() {
        assert!(said_yes("1") && said_yes("'true'") && said_yes("anything"));
        assert!(!said_yes("") && !said_yes("0") && !said_yes(" false "));
    }
}
