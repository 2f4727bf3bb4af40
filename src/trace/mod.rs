//! `vgpu-run trace PROGRAM`: the program is started as ever, by another launcher, which finds `VGPU_TRACE` in its
//! environment and preloads the tracer before the libraries. This process waits, passes signals on, and then
//! turns what was written into a summary, lines of text, and a timeline.

mod calls;
mod event;
mod loader;
mod reader;
mod status;
mod summary;
mod timeline;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
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
use vgpu_trace_format::PREFIX;

use crate::cli::Options;
use crate::env::{Environment, LD_DEBUG, LD_DEBUG_OUTPUT, VGPU_TRACE};
use crate::error::{Failure, Refusal};
use crate::launch::user::{self, User};
use reader::Process;

/// Where the launcher of the program says which file each library is.
const LIBRARIES: &str = "libraries.tsv";
/// How the names of the loader's files begin; a dot and the process id follow.
const LOADER: &str = "loader";

/// Why there is no trace.
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
    #[error("failed to read or write in {}", .0.display())]
    File(PathBuf, #[source] io::Error),
}

impl Refusal for TraceError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Folder(..) => Some("Name another: --output FOLDER.".into()),
            Self::Closed { .. } => Some("Name a place that is open to all: --output /tmp/FOLDER.".into()),
            Self::NotEmpty(_) => Some("Name a new folder: --output FOLDER.".into()),
            _ => None,
        }
    }
}

/// In the launcher of a traced program: what is to be set beside the libraries. Nothing here keeps the program from
/// starting.
pub fn prepare(
    folder: &Path,
    environment: &mut Environment,
    libraries: impl Iterator<Item = (&'static str, PathBuf)>,
) {
    environment.set(LD_DEBUG, "libs,files");
    environment.set(LD_DEBUG_OUTPUT, folder.join(LOADER));
    let lines: Vec<String> =
        libraries.map(|(soname, path)| format!("{soname}\t{}\n", path.display())).collect();
    let lines = lines.concat();
    if let Err(error) = fs::write(folder.join(LIBRARIES), lines) {
        tracing::warn!(%error, "the trace cannot be written");
    }
}

/// Starts `command`, waits for it, and writes the reports. Answers its exit code.
pub fn trace(options: &Options, output: Option<PathBuf>, command: &[OsString]) -> Result<ExitCode, Failure> {
    let folder = make_folder(options, output)?;
    let status = run(options, &folder, command)?;
    let page = report(&folder, status)?;
    // Where its words go is closed: they are in the file.
    let _ = write!(io::stderr(), "{page}\nvgpu-run: the trace is in {}\n", folder.display());
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(code as u8))
}

fn make_folder(options: &Options, output: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let folder = output.unwrap_or_else(|| PathBuf::from(format!("vgpu-trace-{seconds}")));
    let failed = |error| TraceError::Folder(folder.clone(), error);
    fs::create_dir_all(&folder).map_err(failed)?;
    let folder = fs::canonicalize(&folder).map_err(failed)?;
    if fs::read_dir(&folder).map_err(failed)?.next().is_some() {
        return Err(TraceError::NotEmpty(folder).into());
    }
    if let Some(name) = options.user.as_ref().filter(|_| Uid::effective().is_root()) {
        let user = user::find(name)?;
        if let Some(place) = closed_to(&folder, &user) {
            return Err(TraceError::Closed { place, user: user.label() }.into());
        }
        std::os::unix::fs::chown(&folder, Some(user.uid.as_raw()), None).map_err(failed)?;
    }
    Ok(folder)
}

/// The first folder on the way that the user may not pass: its program would write nothing, and say nothing.
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

fn run(options: &Options, folder: &Path, command: &[OsString]) -> Result<ExitStatus, TraceError> {
    // These come to every process of a terminal: the program gets its own. The others are for this process, which passes
    // them on; a program that ends on one is waited for as on any day.
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
    // It ends with the handle, and has nothing to say.
    let _ = forwarder.join();
    status.map_err(TraceError::Start)
}

/// The launcher's options as words.
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

/// Reads what was written and writes the reports; answers the summary.
fn report(folder: &Path, status: ExitStatus) -> Result<String, TraceError> {
    let ours = libraries(folder);
    let (mut processes, mut loaders): (Vec<Process>, BTreeMap<u32, loader::Decisions>) = Default::default();
    let entries = fs::read_dir(folder).map_err(|error| TraceError::File(folder.into(), error))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let bytes = || fs::read(&path).map_err(|error| TraceError::File(path.clone(), error));
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
        let path = folder.join(name);
        let done = File::create(&path).and_then(|file| {
            let mut out = BufWriter::new(file);
            write(&mut out)?;
            out.flush()
        });
        done.map_err(|error| TraceError::File(path, error))
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

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal().map(Signal::try_from)) {
        (Some(code), _) => format!("the program ended with {code}"),
        (None, Some(Ok(signal))) => format!("the program was ended by {signal}"),
        (None, _) => "the program ended".to_owned(),
    }
}

/// Sonames of the preloaded files, by path.
fn libraries(folder: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(folder.join(LIBRARIES)).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    pairs.map(|(soname, path)| (path.to_owned(), soname.to_owned())).collect()
}
