//! Implements `vgpu-run trace PROGRAM`. A second launcher starts the program, finds `VGPU_TRACE` in its
//! environment, and preloads the tracer before the libraries. This process waits, forwards signals, and then
//! turns the recorded files into a summary, lines of text, and a timeline.
//!
//! Other users may be able to write to the parent directory, and this process may be root. Therefore the
//! directory is opened once and used through its descriptor; files in it are created and never overwritten;
//! and with `--user` this process becomes that user before it reads or writes anything in the directory.

mod calls;
mod event;
mod flight;
mod loader;
mod reader;
mod status;
mod summary;
mod timeline;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use vgpu_paths::{Access, Dir};
use vgpu_trace_format::{FILE_MOST, PREFIX};

use crate::cli::Options;
use crate::diagnosis::Fix;
use crate::env::{Environment, LD_DEBUG, LD_DEBUG_OUTPUT, VGPU_TRACE};
use crate::error::{Failure, LauncherError};
use crate::launch::user::{self, User};
use reader::TracedProcess;

/// Name of the file in which the program's launcher lists the path of each library.
const LIBRARIES: &str = "libraries.tsv";
/// Start of the names of the loader's files. A dot and the process id follow.
const LOADER: &str = "loader";

/// Reason why no trace was made.
#[derive(Debug, thiserror::Error)]
enum TraceError {
    #[error("failed to make the folder {}", .0.display())]
    Folder(PathBuf, #[source] io::Error),
    #[error("failed to write the trace into {}: there is something in it", .0.display())]
    NotEmpty(PathBuf),
    #[error("failed to let {user} write the trace: {user} may not pass {}", place.display())]
    Closed { place: PathBuf, user: String },
    #[error("failed to start the launcher of the program")]
    Start(#[source] io::Error),
    #[error("failed to write the trace into {}: it belongs to the user {owner}", folder.display())]
    Foreign { folder: PathBuf, owner: u32 },
    #[error("failed to write the trace into {}: other users can write there", .0.display())]
    Shared(PathBuf),
    #[error("failed to read or write {}", .0.display())]
    File(PathBuf, #[source] io::Error),
}

impl LauncherError for TraceError {
    fn fix(&self) -> Option<Fix> {
        let fix = match self {
            Self::Folder(_, error) | Self::File(_, error) if vgpu_paths::hint(error).is_some() => {
                vgpu_paths::hint(error)?
            }
            Self::Folder(..) => "Name another: --output FOLDER.",
            Self::Closed { .. } => "Name a place that is open to all: --output /tmp/FOLDER.",
            Self::NotEmpty(_) | Self::Foreign { .. } | Self::Shared(_) => {
                "Name a new folder: --output FOLDER."
            }
            _ => return None,
        };
        Some(fix.into())
    }
}

/// Sets the variables for a trace. The traced program's launcher calls this as the program's user. Failures
/// do not prevent the program's start.
pub fn prepare(
    folder: &Path,
    environment: &mut Environment,
    libraries: impl Iterator<Item = (&'static str, PathBuf)>,
) {
    let lines: Vec<String> =
        libraries.map(|(soname, path)| format!("{soname}\t{}\n", path.display())).collect();
    let written = private(folder).and_then(|dir| dir.replace(LIBRARIES, lines.concat().as_bytes()));
    match written {
        Ok(()) => {
            environment.set(LD_DEBUG, "libs,files");
            // The loader follows links in the directory, so it gets only a directory in which nobody else can
            // create links.
            environment.set(LD_DEBUG_OUTPUT, folder.join(LOADER));
        }
        Err(error) => {
            environment.remove(VGPU_TRACE);
            // An error of printing must not keep the program from starting.
            let _ = writeln!(
                io::stderr(),
                "vgpu-run: warning: there is no trace: failed to write into {}: {error}",
                folder.display()
            );
        }
    }
}

/// Opens the directory. Fails if another user could put files into it or replace it.
fn private(folder: &Path) -> io::Result<Dir> {
    let dir = Dir::open(folder)?;
    if dir.is_shared()? {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "other users can write there"));
    }
    // By a descriptor it is this directory, whatever happens to its path.
    if !folder.starts_with("/proc") {
        vgpu_paths::reject_replaceable(folder)?;
    }
    Ok(dir)
}

/// Directory that receives a trace, open.
struct TraceFolder {
    dir: Dir,
    /// Path of the directory when the trace started, for messages.
    path: PathBuf,
    /// User that runs the program, if this process has to become that user.
    user: Option<User>,
}

impl TraceFolder {
    /// Creates the error for a file in the directory that cannot be read or written.
    fn failed(&self, name: &str) -> impl FnOnce(io::Error) -> TraceError {
        let path = self.path.join(name);
        move |error| TraceError::File(path, error)
    }

    /// Returns the path for the program's processes. If the program runs as this process's user and another
    /// user could replace a directory of the path, this is a path through the descriptor.
    fn told(&self) -> PathBuf {
        let same =
            self.user.is_none() && vgpu_paths::replaceable(&self.path).is_ok_and(|place| place.is_some());
        if same {
            format!("/proc/{}/fd/{}", std::process::id(), self.dir.as_fd().as_raw_fd()).into()
        } else {
            self.path.clone()
        }
    }
}

/// Starts `command`, waits until it ends, and writes the reports. Returns the program's exit code.
pub fn trace(options: &Options, output: Option<PathBuf>, command: &[OsString]) -> Result<ExitCode, Failure> {
    let folder = make_folder(options, output)?;
    let status = run_program(options, &folder.told(), command)?;
    if let Some(user) = &folder.user {
        // For good, and before anything that the user's program wrote is read.
        user::become_user(user, &mut Environment::default())?;
    }
    let page = report(&folder, status)?;
    // Where its words go is closed: they are in the file.
    let _ = write!(io::stderr(), "{page}\nvgpu-run: the trace is in {}\n", folder.path.display());
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(code as u8))
}

fn make_folder(options: &Options, output: Option<PathBuf>) -> Result<TraceFolder, Failure> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let asked = output.unwrap_or_else(|| PathBuf::from(format!("vgpu-trace-{seconds}")));
    let failed = |error| TraceError::Folder(asked.clone(), error);
    let user = options.user.as_ref().filter(|_| Uid::effective().is_root()).map(user::find).transpose()?;
    let (dir, _) = Dir::make(&asked).map_err(failed)?;
    let path = dir.path();
    if !dir.entries().map_err(failed)?.is_empty() {
        return Err(TraceError::NotEmpty(path).into());
    }
    let owner = dir.owner().map_err(failed)?;
    let ours = Uid::effective().as_raw();
    let theirs = user.as_ref().map(|user| user.uid.as_raw());
    if owner != ours && Some(owner) != theirs {
        return Err(TraceError::Foreign { folder: path, owner }.into());
    }
    if let Some(user) = &user {
        if let Some(place) = closed_to(&path, user) {
            return Err(TraceError::Closed { place, user: user.label() }.into());
        }
        dir.set_owner(user.uid.as_raw()).map_err(failed)?;
    }
    if dir.mode().map_err(failed)? & 0o022 != 0 {
        return Err(TraceError::Shared(path).into());
    }
    Ok(TraceFolder { dir, path, user })
}

/// Returns the first directory of the path that the user may not enter. A program of that user would record
/// nothing, without an error.
fn closed_to(folder: &Path, user: &User) -> Option<PathBuf> {
    let (_, groups) = user.groups();
    let closed = |place: &&Path| {
        let Ok(metadata) = fs::metadata(place) else { return true };
        let rights = if metadata.uid() == user.uid.as_raw() {
            metadata.mode() >> 6
        } else if groups.iter().any(|group| group.as_raw() == metadata.gid()) {
            metadata.mode() >> 3
        } else {
            metadata.mode()
        };
        !user.uid.is_root() && rights & 1 == 0
    };
    let ways: Vec<&Path> = folder.ancestors().skip(1).collect();
    ways.into_iter().rev().find(closed).map(Path::to_owned)
}

fn run_program(options: &Options, folder: &Path, command: &[OsString]) -> Result<ExitStatus, TraceError> {
    // These come to every process of a terminal: the program gets its own. The others are for this process,
    // which passes them on; a program that ends on one is waited for as on any day.
    let terminal = [SIGINT, SIGQUIT];
    let mut signals = Signals::new([SIGHUP, SIGTERM, SIGUSR1, SIGUSR2].iter().chain(&terminal))
        .map_err(TraceError::Start)?;
    let mut launcher = Command::new("/proc/self/exe");
    launcher.arg0("vgpu-run").env(VGPU_TRACE, folder).args(words(options)).arg("--").args(command);
    let mut child = launcher.spawn().map_err(TraceError::Start)?;
    let pid = Pid::from_raw(child.id() as i32);
    let handle = signals.handle();
    let forwarder = std::thread::spawn(move || {
        for signal in signals.forever().filter(|signal| !terminal.contains(signal)) {
            // It may have just ended; it has not been waited for longer than this thread runs.
            let _ = Signal::try_from(signal).and_then(|signal| kill(pid, signal));
        }
    });
    let status = child.wait();
    handle.close();
    // The thread ends with the handle, and has no result.
    let _ = forwarder.join();
    status.map_err(TraceError::Start)
}

/// Converts the launcher's options to command-line arguments.
fn words(options: &Options) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut put = |word: &str| words.push(OsString::from(word));
    if options.allow_cpu {
        put("--allow-cpu");
    }
    if options.verbose {
        put("--verbose");
    }
    if let Some(user) = &options.user {
        put(&format!("--user={user}"));
    }
    if let Some(way) = options.via.and_then(|way| way.to_possible_value()) {
        put(&format!("--via={}", way.get_name()));
    }
    words
}

/// Reads the recorded files, writes the reports, and returns the summary.
fn report(folder: &TraceFolder, status: ExitStatus) -> Result<String, TraceError> {
    let ours = libraries(folder);
    let (mut processes, mut loaders): (Vec<TracedProcess>, BTreeMap<u32, loader::Decisions>) =
        Default::default();
    for name in folder.dir.entries().map_err(folder.failed("."))? {
        let Some(name) = name.to_str() else { continue };
        let bytes = || read(folder, name).map_err(folder.failed(name));
        if name.starts_with(PREFIX) {
            match reader::read(&bytes()?) {
                Ok(process) => processes.push(process),
                Err(error) => tracing::warn!(file = name, %error, "left out"),
            }
        } else if let Some(pid) =
            name.strip_prefix(LOADER).and_then(|rest| rest.strip_prefix('.')?.parse().ok())
        {
            loaders.insert(pid, loader::read(&String::from_utf8_lossy(&bytes()?), &ours));
        }
    }
    processes.sort_by_key(|process| (process.opened, process.pid));
    let write = |name: &str, write: &dyn Fn(&mut dyn Write) -> io::Result<()>| {
        let done = folder.dir.create(name, Access::Write, 0o644).and_then(|file| {
            let mut out = BufWriter::new(file);
            write(&mut out)?;
            out.flush()
        });
        done.map_err(folder.failed(name))
    };
    let mut seen = BTreeMap::<u32, u32>::new();
    for process in &processes {
        // A process that becomes another program keeps its number.
        let count = seen.entry(process.pid).or_default();
        *count += 1;
        let more = if *count > 1 { format!("-{count}") } else { String::new() };
        write(&format!("calls-{}{more}.txt", process.pid), &|out| calls::write(out, process))?;
    }
    write("trace.json", &|out| timeline::write(out, &processes))?;
    let page = summary::summary(&processes, &loaders, &ended(status));
    write("summary.txt", &|out| out.write_all(page.as_bytes()))?;
    Ok(page)
}

/// Reads a regular file of the directory, up to the maximum size of a trace.
fn read(folder: &TraceFolder, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    folder.dir.read(name)?.take(FILE_MOST as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal().map(Signal::try_from)) {
        (Some(code), _) => format!("the program ended with {code}"),
        (None, Some(Ok(signal))) => format!("the program was ended by {signal}"),
        (None, _) => "the program ended".to_owned(),
    }
}

/// Returns the SONAMEs of the preloaded files, by path.
fn libraries(folder: &TraceFolder) -> BTreeMap<String, String> {
    // There is none where the program did not start.
    let bytes = read(folder, LIBRARIES).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    pairs.map(|(soname, path)| (path.to_owned(), soname.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::scratch::Scratch;

    fn prepared(folder: &Path) -> bool {
        let mut environment = Environment::from_iter([(VGPU_TRACE, folder.as_os_str())]);
        prepare(folder, &mut environment, [("libx.so.1", PathBuf::from("/x"))].into_iter());
        let told = environment.get(LD_DEBUG_OUTPUT).is_some();
        assert_eq!(told, environment.get(VGPU_TRACE).is_some(), "all or nothing");
        told
    }

    /// Guards against privilege escalation: a trace directory in which other users could place links, which
    /// the loader would follow, is refused.
    #[test]
    fn a_program_is_traced_only_where_nobody_else_can_put_links() {
        let scratch = Scratch::new();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let (hostile, own) = (scratch.join("hostile"), scratch.join("hostile/own"));
        fs::create_dir_all(&own).unwrap();
        assert!(prepared(&own));
        assert_eq!(fs::read_to_string(own.join(LIBRARIES)).unwrap(), "libx.so.1\t/x\n");
        assert!(prepared(&own), "a launcher that the program starts");
        set(&hostile, 0o777);
        assert!(!prepared(&own), "others can replace it");
        assert!(!prepared(&hostile), "others can write there");
        assert!(fs::read_dir(&hostile).unwrap().count() == 1);
        let open = Dir::open(&own).unwrap();
        let by_descriptor = format!("/proc/self/fd/{}", open.as_fd().as_raw_fd());
        assert!(prepared(Path::new(&by_descriptor)), "by its descriptor it is that one");
        set(&hostile, 0o1777);
        assert!(prepared(&own), "only who made it can replace it");
        symlink(&own, hostile.join("link")).unwrap();
        assert!(!prepared(&hostile.join("link")));
    }
}
