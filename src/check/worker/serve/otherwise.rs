//! Asks a server that says nothing in another way. What starts a server may send its output elsewhere, close
//! it, or start the server as a daemon: it is then found among the descendants of this process, its output is
//! read where it goes, its API is asked, and what its processes have mapped is observed.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vgpu_transport::{holders, scan, sysfs_root};

use crate::check::worker::family;
use crate::check::{http, locks};
use crate::device::alive::TICK;
use crate::ollama::processes::{self, RunningProcess};

/// Time without output after which the server is asked otherwise. A server writes its settings first.
const QUIET: Duration = Duration::from_millis(500);
/// Time limit for an answer of the API. A server that still looks for GPUs accepts a connection and does not
/// answer.
const ANSWER: Duration = Duration::from_millis(20);
/// Time after which the loader has mapped what a library needs.
const LOADED: Duration = Duration::from_millis(250);
/// Time between two looks for a session. Those of a server that looks for GPUs lasted 0.4 to 2 ms where
/// nothing delayed them.
const SHORT: Duration = Duration::from_micros(250);
/// Time between two looks at all processes, in which no session is seen. The processes that load the backend
/// live for 24 ms and longer.
const BETWEEN: Duration = Duration::from_millis(20);
/// Number of bytes that are read at the end of a file with the server's output.
const TAIL: u64 = 1 << 20;
/// Start of the message with which a server logs its address when it starts.
const LISTENS: &str = "msg=\"Listening on ";

/// What was observed of a server that says nothing here.
#[derive(Debug, Default)]
pub struct Otherwise {
    /// Whether the server is observed from the start, because a script starts it.
    always: bool,
    /// File that the server's output goes to.
    pub output: Option<PathBuf>,
    file: Option<File>,
    /// Name in /proc of the pipe in which the server's log is waited for.
    pipe: Option<PathBuf>,
    /// Port that the server was given and that no earlier run had.
    port: Option<u16>,
    /// Whether a process had mapped the CUDA backend together with vgpu-run's libraries.
    pub with_shims: bool,
    /// Whether a process had mapped the CUDA backend without them.
    pub without_shims: bool,
    /// When each process was first seen with the backend and without them.
    bare: BTreeMap<u32, Instant>,
    /// Directories of the devices in sysfs, once they have been listed.
    devices: Option<Vec<PathBuf>>,
    /// Whether a process had a session on a device.
    pub session: bool,
    /// Time of the last look at all processes.
    looked: Option<Instant>,
    /// Whether the server itself has mapped vgpu-run's libraries, which its processes inherit.
    pub inherits: bool,
    /// Address at which the server's API answered.
    pub answered: Option<SocketAddr>,
    /// Process that held a lock for which a descendant waited at the last look, and since when.
    blocked: Option<(u32, Instant)>,
    /// Process outside the family that has held such a lock for a while, so that no server starts.
    pub waits_for: Option<u32>,
}

impl Otherwise {
    /// Creates the state for a server that was given `port`, which no earlier run had, and whose log is
    /// waited for in the pipe of that name. With `always` its processes are observed from the start.
    pub fn new(always: bool, port: Option<u16>, pipe: Option<PathBuf>) -> Self {
        Self { always, pipe, port, ..Self::default() }
    }

    /// Returns the time until the next look.
    pub fn pause(&self) -> Duration {
        if self.always && !self.session { SHORT } else { TICK }
    }

    /// Looks at the server once. `silent` tells whether its output has ended or never begun, `begun` is the
    /// time of its start. Returns new output that was read elsewhere.
    pub fn look(&mut self, silent: bool, begun: Instant) -> Vec<u8> {
        let nothing_said = silent;
        // What is read elsewhere has to be read to its end, and what a script says is not the server's.
        let silent = silent || self.always || self.file.is_some();
        let quiet = silent && begun.elapsed() > QUIET;
        if !self.always && !quiet {
            return Vec::new();
        }
        self.session = self.session || self.has_session();
        if self.looked.is_some_and(|looked| looked.elapsed() < BETWEEN) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        let family = family::descendants();
        let proc = Path::new("/proc");
        let processes: Vec<RunningProcess> =
            family.iter().filter_map(|pid| processes::process(proc, *pid)).collect();
        for process in processes.iter().filter(|process| process.backend().is_some()) {
            self.loaded(process, Instant::now());
        }
        if !silent {
            self.blocked(None, Instant::now());
            return Vec::new();
        }
        let server = processes.iter().find(|process| process.serves());
        // A server that runs has what it waited for, and takes locks of its own.
        let holder = if server.is_none() { locks::holder(&family) } else { None };
        self.blocked(holder, Instant::now());
        let Some(server) = server else { return Vec::new() };
        if self.comes_here(server.pid, nothing_said) {
            return Vec::new();
        }
        if self.file.is_none() {
            self.follow(server.pid);
        }
        self.inherits = server.has_shims() == Some(true);
        if self.file.is_none() && quiet {
            let answers = |address: &SocketAddr| {
                http::get(*address, "/api/version", ANSWER).is_ok_and(|(status, _)| status == 200)
            };
            self.answered = family::listening().into_iter().map(reachable).find(answers);
        }
        self.more()
    }

    /// Returns whether the log of a server comes through the pipe, however late. Where it goes is not shown
    /// of some: then it does unless nothing was said.
    fn comes_here(&self, server: u32, nothing_said: bool) -> bool {
        match std::fs::read_link(format!("/proc/{server}/fd/2")) {
            Ok(output) => self.pipe.as_ref() == Some(&output),
            Err(error) => error.kind() == ErrorKind::PermissionDenied && !nothing_said,
        }
    }

    /// Notes whether a process that has mapped the CUDA backend at the time `now` has vgpu-run's libraries.
    /// The loader maps the backend before what it needs, so the process lacks them for a moment.
    fn loaded(&mut self, process: &RunningProcess, now: Instant) {
        match process.has_shims() {
            Some(true) => self.with_shims = true,
            Some(false) => {
                let since = *self.bare.entry(process.pid).or_insert(now);
                self.without_shims |= process.has_another_driver() || now - since >= LOADED;
            }
            None => {}
        }
    }

    /// Notes the stranger for whose lock a descendant waits at the time `now`. Everybody waits for a moment.
    fn blocked(&mut self, holder: Option<u32>, now: Instant) {
        let since = self.blocked.filter(|(before, _)| holder == Some(*before)).map(|(_, since)| since);
        self.blocked = holder.map(|holder| (holder, since.unwrap_or(now)));
        self.waits_for = holder.filter(|_| since.is_some_and(|since| now - since >= QUIET));
    }

    /// Returns whether a descendant has a session on a device. What cannot be read is not known.
    fn has_session(&mut self) -> bool {
        let listed = || {
            let functions = scan(&sysfs_root()).unwrap_or_default();
            functions.into_iter().map(|function| function.dir).collect()
        };
        let devices = self.devices.get_or_insert_with(listed);
        let mut held = devices.iter().filter_map(|device| holders(device).ok()).flatten();
        // Strangers hold sessions, too.
        let family = LazyCell::new(family::descendants);
        held.any(|holder| family.contains(&holder.process))
    }

    /// Reads what is new in the file with the server's output.
    fn more(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        if let Some(file) = &mut self.file {
            // What cannot be read is not known.
            let _ = file.take(TAIL).read_to_end(&mut output);
        }
        output
    }

    /// Opens the file that a server's output goes to, where this run begins in it.
    fn follow(&mut self, pid: u32) {
        for descriptor in [2, 1] {
            let link = format!("/proc/{pid}/fd/{descriptor}");
            let Ok(path) = std::fs::read_link(&link) else { continue };
            let regular = std::fs::metadata(&link).is_ok_and(|metadata| metadata.is_file());
            if !regular {
                self.output.get_or_insert(path);
                continue;
            }
            let Ok(mut file) = File::open(&link) else { continue };
            let length = file.metadata().map_or(0, |metadata| metadata.len());
            let mut at = length.saturating_sub(TAIL);
            let mut text = Vec::new();
            if file.seek(SeekFrom::Start(at)).and_then(|_| (&file).take(TAIL).read_to_end(&mut text)).is_err()
            {
                continue;
            }
            // An earlier run may stand in the file, and its port is another one. Until this run's first line
            // is there, or if what starts the server gives it another port, only what follows is known to be
            // of this run.
            let start = self.port.and_then(|port| start_at(&text, port));
            at += start.unwrap_or(text.len()) as u64;
            if file.seek(SeekFrom::Start(at)).is_err() {
                continue;
            }
            (self.output, self.file) = (Some(path), Some(file));
            return;
        }
    }
}

/// Returns the offset of the last start in a log, if the server listens at `port` since then.
fn start_at(log: &[u8], port: u16) -> Option<usize> {
    let at = memchr::memmem::rfind(log, LISTENS.as_bytes())?;
    let address = log[at + LISTENS.len()..].split(|byte| b" \"\n".contains(byte)).next()?;
    let listens = str::from_utf8(address).ok()?.rsplit(':').next()?.parse::<u16>().ok()?;
    let begin = log[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    (listens == port).then_some(begin)
}

/// Returns whether a descendant is a server.
pub fn serves() -> bool {
    let mut family = family::descendants().into_iter();
    family.any(|pid| processes::process(Path::new("/proc"), pid).is_some_and(|process| process.serves()))
}

/// Returns the address at which a listening socket is reached.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        ip if ip.is_ipv4() => std::net::Ipv4Addr::LOCALHOST.into(),
        _ => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::scratch::Scratch;

    const OLD: &str =
        "msg=\"Listening on 127.0.0.1:11434 (version 1)\"\nmsg=\"inference compute\" library=CUDA\n";
    const NEW: &str =
        "msg=\"Listening on 127.0.0.1:4711 (version 1)\"\nmsg=\"inference compute\" library=cpu\n";

    #[test]
    fn a_log_comes_where_its_server_writes() {
        let (mut log, end) = std::io::pipe().unwrap();
        let name = std::fs::read_link(format!("/proc/self/fd/{}", log.as_raw_fd())).unwrap();
        let otherwise = Otherwise::new(true, None, Some(name));
        let comes = |output: Stdio| {
            let mut server = Command::new("cat").stdin(Stdio::piped()).stderr(output).spawn().unwrap();
            let comes = otherwise.comes_here(server.id(), false);
            drop(server.stdin.take());
            server.wait().unwrap();
            comes
        };
        assert!(comes(end.try_clone().unwrap().into()));
        // What starts it may have said something there, whatever its words.
        (&end).write_all(b"time=x level=INFO msg=starting\n").unwrap();
        assert!(!comes(Stdio::null()), "its log goes elsewhere");
        drop(end);
        log.read_to_end(&mut Vec::new()).unwrap();
    }

    /// Returns what is read of a run that appends to a file with an earlier one: `before` it is looked at,
    /// and `after`.
    fn appended(before: &str, after: &str) -> String {
        let scratch = Scratch::new();
        let path = scratch.join("log");
        std::fs::write(&path, format!("{OLD}{before}")).unwrap();
        let append = || File::options().append(true).open(&path).unwrap();
        // It waits for the end of its input.
        let mut server = Command::new("cat").stdin(Stdio::piped()).stderr(append()).spawn().unwrap();
        let mut otherwise = Otherwise::new(true, Some(4711), None);
        otherwise.follow(server.id());
        append().write_all(after.as_bytes()).unwrap();
        let output = otherwise.more();
        drop(server.stdin.take());
        server.wait().unwrap();
        assert_eq!(otherwise.output, Some(path));
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn an_earlier_run_in_the_same_file_is_not_this_one() {
        assert_eq!(appended("", NEW), NEW, "this run has said nothing yet");
        assert_eq!(appended(NEW, ""), NEW);
        assert_eq!(appended(&NEW[..NEW.len() - 9], &NEW[NEW.len() - 9..]), NEW);
        let elsewhere = NEW.replace("4711", "4712");
        assert_eq!(appended(&elsewhere, "more\n"), "more\n", "of which run it is, is not known");
    }

    #[test]
    fn a_lock_that_is_free_after_a_moment_is_not_waited_for() {
        let (mut otherwise, begin) = (Otherwise::new(true, None, None), Instant::now());
        let mut waits = |holder, after| {
            otherwise.blocked(holder, begin + after);
            otherwise.waits_for
        };
        assert_eq!(waits(Some(712), Duration::ZERO), None, "one look");
        assert_eq!(waits(Some(712), QUIET / 2), None);
        assert_eq!(waits(Some(713), QUIET), None, "another process");
        assert_eq!(waits(Some(713), QUIET * 2), Some(713));
        assert_eq!(waits(None, QUIET * 3), None);
        assert_eq!(waits(Some(713), QUIET * 4), None, "again");
    }

    #[test]
    fn a_backend_that_is_just_loaded_does_not_lack_the_libraries() {
        let process = |files: &[&str]| RunningProcess {
            mapped: Some(files.iter().map(|file| (*file).to_owned()).collect()),
            ..RunningProcess::default()
        };
        let backend = "/usr/lib/ollama/cuda_v12/libggml-cuda.so";
        let shims = process(&[backend, "/memfd:libcuda.so.1 (deleted)"]);
        let begin = Instant::now();
        let seen = |looks: &[(&RunningProcess, Duration)]| {
            let mut otherwise = Otherwise::new(true, None, None);
            for (process, after) in looks {
                otherwise.loaded(process, begin + *after);
            }
            (otherwise.with_shims, otherwise.without_shims)
        };
        let bare = process(&[backend]);
        assert_eq!(seen(&[(&bare, Duration::ZERO), (&shims, LOADED)]), (true, false));
        assert_eq!(seen(&[(&bare, Duration::ZERO), (&bare, LOADED)]), (false, true));
        let another = process(&[backend, "/usr/lib/libcuda.so.580.65.06"]);
        assert_eq!(seen(&[(&another, Duration::ZERO)]), (false, true));
    }

    #[test]
    fn wildcards_are_reached_by_loopback() {
        let of = |address: &str| reachable(address.parse().unwrap()).to_string();
        assert_eq!(of("0.0.0.0:1"), "127.0.0.1:1");
        assert_eq!(of("[::]:1"), "[::1]:1");
        assert_eq!(of("127.0.0.2:1"), "127.0.0.2:1");
    }
}
