//! Implements `__worker serve`: tries the values of the server's environment ([`values`]), starts a server
//! with private ones in place of those that it could use, waits until it has logged its compute devices, and
//! then ends it with everything that it started. The log is forwarded to stderr.
//!
//! Everything is also ended when the worker's input ends or a signal asks for it. The input is a pipe from
//! `check`, so that nothing is left behind however `check` ends.

mod copies;
mod home;
mod otherwise;
mod progress;
mod store;
mod tried;
mod values;
mod watch;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, PipeReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use vgpu_findings::busy;

use super::{family, say};
use crate::check::messages::{RefusedValue, Serve, ValueTrouble};
use crate::check::{filter, http};
use crate::device::alive::{Patience, TICK};
use crate::env::{Environment, HOME, OLLAMA_HOST, TMPDIR};
use crate::ollama::address;
use home::Home;
use otherwise::Otherwise;
use progress::Devices;
use watch::Watch;

/// Maximum time without log output while the devices are idle.
const SILENCE: Duration = Duration::from_secs(5);
/// Time limit for killed processes to end.
const ENDING: Duration = Duration::from_secs(5);
/// Maximum number of starts, if another program takes the port in between, or a session may have been missed.
const TRIES: usize = 4;
/// Time after the end of what starts a server, in which a process that it left may become the server.
const DAEMON: Duration = Duration::from_millis(500);
/// Time limit for the answer of a server that has reported its compute devices.
const ANSWER: Duration = Duration::from_secs(1);
/// Time after which a server that waits for a lock is not waited for.
const LOCKED: Duration = Duration::from_secs(1);
/// Go's message for a port in use.
const TAKEN: &str = "address already in use";

/// Runs the server in `environment` and reports the step.
pub fn serve(words: &[OsString], environment: &Environment) {
    say::begin::<Serve>(SILENCE);
    match run_server(words, environment) {
        Ok(served) => say::outcome(!served.lines.is_empty(), &served),
        Err(error) => say::failed::<Serve>(&error.to_string().into()),
    }
}

fn run_server(words: &[OsString], environment: &Environment) -> io::Result<Serve> {
    // From here on this process is the parent of every orphan among its descendants.
    let adopted = family::adopt();
    let script = is_script(words);
    may_start(script, adopted)?;
    let stop = Stop::new()?;
    let mut refused = values::refused(environment);
    for value in refused.iter_mut().filter(|value| script && value.trouble == ValueTrouble::KeyRefused) {
        // A script may write into its home, whatever the server can do there.
        value.left = false;
    }
    let home = Home::new(environment, script)?;
    if values::store_of(environment).is_some_and(|(_, store)| store.join("blobs").is_dir()) {
        // The server does not have to create what is there.
        fs::create_dir_all(home.models().join("blobs"))?;
    }
    let mut served = Ok(Serve::default());
    for _ in 0..TRIES {
        let mut watch = Watch::default();
        let own = private(environment, &home, &refused)?;
        served = attempt(words, &own, &refused, &stop, &mut watch);
        let left = family::end(ENDING);
        if let Ok(served) = &mut served {
            served.left.extend(left);
        }
        let address = own.get(OLLAMA_HOST).unwrap_or_default().to_string_lossy();
        let taken = watch.lines().is_empty() && watch.saw(&format!("{address}: bind: {TAKEN}"));
        if !taken && !served.as_ref().is_ok_and(missed) {
            break;
        }
    }
    home.remove(environment);
    served.map(|served| Serve { refused, calls: filter::refused(), ..served })
}

/// Returns an error if what is started could leave a server behind that is not found: a script may start it
/// as a daemon, and `adopted` tells whether orphans become this process's children.
fn may_start(script: bool, adopted: Result<(), Errno>) -> io::Result<()> {
    match adopted {
        Err(error) if script => Err(io::Error::other(format!(
            "the script is not started, because what it leaves behind could not be ended (prctl: {})",
            error.desc()
        ))),
        _ => Ok(()),
    }
}

/// Returns whether a server that says nothing may have had a session that no look met. A session may last
/// less than a millisecond, in which this process may not have run.
fn missed(served: &Serve) -> bool {
    served.answered.is_some() && !served.without_shims && !served.session
}

/// Returns whether the program in `LAUNCHER [OPTIONS] -- PROGRAM serve` is a script.
fn is_script(words: &[OsString]) -> bool {
    let program = words.iter().rev().nth(1);
    let mut head = [0; 2];
    let read = program.map(|path| {
        vgpu_paths::open_regular(Path::new(path)).and_then(|mut file| file.read_exact(&mut head))
    });
    matches!(read, Some(Ok(()))) && &head == b"#!"
}

/// Returns the server's environment, with private values in place of those that it could use. A value that
/// it cannot use does no harm, and the server says best what is wrong with it; an address that is taken is
/// in use by others.
fn private(environment: &Environment, home: &Home, refused: &[RefusedValue]) -> io::Result<Environment> {
    let left = |variable: &str, troubles: &[ValueTrouble]| {
        let mut left = refused.iter().filter(|value| value.left && value.variable == variable);
        left.any(|value| troubles.contains(&value.trouble))
    };
    let mut environment = environment.clone();
    if !left(
        OLLAMA_HOST,
        &[ValueTrouble::AddressUnknown, ValueTrouble::AddressUnusable, ValueTrouble::AddressPrivileged],
    ) {
        environment.set(OLLAMA_HOST, format!("127.0.0.1:{}", http::free_port()?));
    }
    match refused.iter().find(|value| value.left && value.trouble == ValueTrouble::ModelsRefused) {
        Some(models) => {
            environment.set(values::MODELS, &models.value);
            // Where the server gets along with them after all, it must not remove what is unused.
            environment.set(values::NO_PRUNE, "1");
        }
        None => environment.set(values::MODELS, home.models()),
    }
    if !left(HOME, &[ValueTrouble::HomeUnset, ValueTrouble::KeyRefused]) {
        environment.set(HOME, home.path());
    }
    if !left(TMPDIR, &[ValueTrouble::TemporaryRefused]) {
        environment.set(TMPDIR, home.temporary());
    }
    environment.set("OLLAMA_NO_CLOUD", "1");
    if environment.get("OLLAMA_DEBUG").is_none() {
        environment.set("OLLAMA_DEBUG", "2");
    }
    Ok(environment)
}

/// Starts the server once and watches it until its log is complete, it ends, or it is silent for too long.
fn attempt(
    words: &[OsString],
    environment: &Environment,
    refused: &[RefusedValue],
    stop: &Stop,
    watch: &mut Watch,
) -> io::Result<Serve> {
    let begin = Instant::now();
    let mut child = start(words, environment)?;
    let mut patience = Patience::new(SILENCE);
    let devices = Devices::watch();
    let mut served = Serve::default();
    // An address that the server keeps may be that of earlier runs, too.
    let keeps =
        |value: &RefusedValue| value.variable == OLLAMA_HOST && value.trouble != ValueTrouble::AddressTaken;
    let host = environment.get(OLLAMA_HOST).and_then(OsStr::to_str);
    let port = (!refused.iter().any(keeps)).then(|| address::listens(host).1);
    let pipe = fs::read_link(format!("/proc/self/fd/{}", child.log.as_raw_fd())).ok();
    let mut otherwise = Otherwise::new(is_script(words), port, pipe);
    let (mut open, mut ended, mut last) = (true, None, begin);
    while !stop.asked() && !watch.complete(Instant::now()) && otherwise.answered.is_none() {
        if wait(open.then_some(&child.log), stop, otherwise.pause())? {
            open = child.relay(watch)?;
            continue;
        }
        let elsewhere = otherwise.look(!open || watch.seen() == 0, begin);
        forward(watch, &elsewhere);
        if ended.is_none() && child.has_ended(stop, watch, &mut served)? {
            ended = Some(Instant::now());
        }
        // What starts a server may end while the server goes on.
        if let Some(ended) = ended
            && (family::reap() || ended.elapsed() > DAEMON && !otherwise::serves())
        {
            break;
        }
        let locked = otherwise.waits_for.is_some() && begin.elapsed() > LOCKED;
        // Patience counts whole ticks.
        if last.elapsed() < TICK && !locked {
            continue;
        }
        last = Instant::now();
        if locked || !patience.tick(watch.seen() + devices.count(), busy::share()) {
            served.silent = true;
            break;
        }
    }
    served.address = environment.get(OLLAMA_HOST).and_then(|host| host.to_str()?.parse().ok());
    if let Some(address) = served.address
        && ended.is_none()
        && !watch.lines().is_empty()
        && !stop.asked()
    {
        served.unanswered = ends_when_asked(address, &mut child, stop, watch, &mut served)?;
    }
    if refused.iter().any(|value| value.trouble == ValueTrouble::AddressTaken) {
        served.listened = family::listening();
    }
    served.lines = watch.lines().to_vec();
    served.stopped = stop.asked();
    served.output = otherwise.output;
    served.answered = otherwise.answered;
    served.with_shims = otherwise.with_shims;
    served.without_shims = otherwise.without_shims;
    served.inherits = otherwise.inherits;
    served.session = otherwise.session;
    served.waits_for = otherwise.waits_for;
    served.ms = begin.elapsed().as_millis() as u64;
    Ok(served)
}

/// Asks a server that has reported its compute devices for its version, because it takes connections only
/// then. Returns whether it ended instead.
fn ends_when_asked(
    address: SocketAddr,
    child: &mut ServerChild,
    stop: &Stop,
    watch: &mut Watch,
    served: &mut Serve,
) -> io::Result<bool> {
    if http::get(address, "/api/version", ANSWER).is_ok() {
        return Ok(false);
    }
    // A script may have given it another address, where it goes on.
    let deadline = Instant::now() + DAEMON;
    while Instant::now() < deadline && !stop.asked() {
        if child.has_ended(stop, watch, served)? {
            return Ok(!otherwise::serves());
        }
        wait(None, stop, TICK)?;
    }
    Ok(false)
}

/// A running server and the pipe with its output.
struct ServerChild {
    process: Child,
    log: PipeReader,
}

/// Starts the server.
fn start(words: &[OsString], environment: &Environment) -> io::Result<ServerChild> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let (log, end) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment.iter());
    command.stdin(Stdio::null()).stdout(end.try_clone()?).stderr(end);
    // The command keeps the pipe's other end open: it goes with it.
    let process = command.spawn()?;
    Ok(ServerChild { process, log })
}

impl ServerChild {
    /// Returns whether the server has ended, whose end and last output are then in `served` and `watch`.
    fn has_ended(&mut self, stop: &Stop, watch: &mut Watch, served: &mut Serve) -> io::Result<bool> {
        let Some(status) = self.process.try_wait()? else { return Ok(false) };
        // The last output may still be in the pipe.
        while wait(Some(&self.log), stop, TICK)? && self.relay(watch)? {}
        (served.code, served.signal) = (status.code(), status.signal());
        Ok(true)
    }

    /// Reads from the pipe and forwards the content. Returns whether more may follow.
    fn relay(&mut self, watch: &mut Watch) -> io::Result<bool> {
        let mut buffer = [0; 16 << 10];
        let bytes = match self.log.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        forward(watch, &buffer[..bytes]);
        Ok(true)
    }
}

/// Adds output of the server, wherever it was read.
fn forward(watch: &mut Watch, bytes: &[u8]) {
    watch.feed(bytes, Instant::now());
    // Nobody may want to know any more.
    let _ = io::stderr().write_all(bytes);
}

/// Waits for more of the log or for the end of the input, for up to `pause`. Returns whether there is more of
/// the log.
fn wait(log: Option<&PipeReader>, stop: &Stop, pause: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut fds = vec![PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
    fds.extend(log.map(|log| PollFd::from_borrowed_fd(log.as_fd(), PollFlags::IN)));
    let pause = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
    match poll(&mut fds, Some(&pause)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    if !fds[0].revents().is_empty() {
        stop.input();
    }
    Ok(fds.get(1).is_some_and(|log| !log.revents().is_empty()))
}

/// Flag that is set when the input has ended or a signal has arrived.
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn new() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Self(stop))
    }

    fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Reads the input and sets the flag at its end. Nobody writes to the input.
    fn input(&self) {
        let mut byte = [0];
        if !matches!(io::stdin().read(&mut byte), Ok(1)) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_not_started_where_its_orphans_are_not_found() {
        let refused = Err(Errno::EPERM);
        assert!(may_start(true, refused).unwrap_err().to_string().contains("prctl: Operation not permitted"));
        assert!(may_start(false, refused).is_ok(), "a server has children, and leaves none");
        assert!(may_start(true, Ok(())).is_ok());
    }
}
