//! Implements `__worker serve`: starts a server with a home directory of its own, waits until it has logged
//! its compute devices, and then ends it with everything that it started. The log is forwarded to stderr.
//!
//! Everything is also ended when the worker's input ends or a signal asks for it. The input is a pipe from
//! `check`, so that nothing is left behind however `check` ends.

mod home;
mod progress;
mod watch;

use std::ffi::OsString;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_child_subreaper;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use vgpu_findings::busy;

use super::{family, say};
use crate::check::http;
use crate::check::messages::Serve;
use crate::device::alive::{Patience, TICK};
use crate::env::{Environment, HOME, TMPDIR};
use home::Home;
use progress::Devices;
use watch::Watch;

/// Maximum time without log output while the devices are idle.
const SILENCE: Duration = Duration::from_secs(5);
/// Time limit for killed processes to end.
const ENDING: Duration = Duration::from_secs(5);
/// Maximum number of starts, if another program takes the port in between.
const TRIES: usize = 3;
/// Go's message for a port in use.
const TAKEN: &str = "address already in use";

/// Runs the server and reports the step.
pub fn serve(words: &[OsString]) {
    say::begin::<Serve>(SILENCE);
    match run_server(words) {
        Ok(served) => say::outcome(!served.lines.is_empty(), &served),
        Err(error) => say::failed::<Serve>(&error.to_string().into()),
    }
}

fn run_server(words: &[OsString]) -> io::Result<Serve> {
    // From here on this process is the parent of every orphan among its descendants.
    set_child_subreaper(true)?;
    let stop = Stop::new()?;
    let environment = Environment::inherited();
    let home = Home::new(&environment)?;
    let mut served = Ok(Serve::default());
    for _ in 0..TRIES {
        let mut watch = Watch::default();
        served = attempt(words, &environment, &home, &stop, &mut watch);
        let left = family::end(ENDING);
        if let Ok(served) = &mut served {
            served.left.extend(left);
        }
        if !watch.lines().is_empty() || !watch.saw(TAKEN) {
            break;
        }
    }
    home.remove(&environment);
    served
}

/// Starts the server once and watches it until its log is complete, it ends, or it is silent for too long.
fn attempt(
    words: &[OsString],
    environment: &Environment,
    home: &Home,
    stop: &Stop,
    watch: &mut Watch,
) -> io::Result<Serve> {
    let begin = Instant::now();
    let mut child = start(words, environment, home)?;
    let mut patience = Patience::new(SILENCE);
    let devices = Devices::watch();
    let mut served = Serve::default();
    let mut open = true;
    while !stop.asked() && !watch.complete(Instant::now()) {
        if wait(open.then_some(&child.log), stop)? {
            open = child.relay(watch)?;
        } else if let Some(status) = child.process.try_wait()? {
            // The server's last output may still be in the pipe.
            while open && wait(Some(&child.log), stop)? {
                open = child.relay(watch)?;
            }
            (served.code, served.signal) = (status.code(), status.signal());
            break;
        } else if !patience.tick(watch.seen() + devices.count(), busy::share()) {
            served.silent = true;
            break;
        }
    }
    served.lines = watch.lines().to_vec();
    served.stopped = stop.asked();
    served.ms = begin.elapsed().as_millis() as u64;
    Ok(served)
}

/// A running server and the pipe with its output.
struct ServerChild {
    process: Child,
    log: PipeReader,
}

/// Starts the server with its own address and home directory.
fn start(words: &[OsString], environment: &Environment, home: &Home) -> io::Result<ServerChild> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let mut environment = environment.clone();
    environment.set("OLLAMA_HOST", format!("127.0.0.1:{}", http::free_port()?));
    environment.set("OLLAMA_MODELS", home.models());
    environment.set(HOME, home.path());
    environment.set(TMPDIR, home.temporary());
    environment.set("OLLAMA_NO_CLOUD", "1");
    if environment.get("OLLAMA_DEBUG").is_none() {
        environment.set("OLLAMA_DEBUG", "2");
    }
    let (log, end) = io::pipe()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment.iter());
    command.stdin(Stdio::null()).stdout(end.try_clone()?).stderr(end);
    // The command keeps the pipe's other end open: it goes with it.
    let process = command.spawn()?;
    Ok(ServerChild { process, log })
}

impl ServerChild {
    /// Reads from the pipe and forwards the content. Returns whether more may follow.
    fn relay(&mut self, watch: &mut Watch) -> io::Result<bool> {
        let mut buffer = [0; 16 << 10];
        let bytes = match self.log.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        watch.feed(&buffer[..bytes], Instant::now());
        // Nobody may want to know any more.
        let _ = io::stderr().write_all(&buffer[..bytes]);
        Ok(true)
    }
}

/// Waits for more of the log or for the end of the input, up to one tick. Returns whether there is more of
/// the log.
fn wait(log: Option<&PipeReader>, stop: &Stop) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut fds = vec![PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
    fds.extend(log.map(|log| PollFd::from_borrowed_fd(log.as_fd(), PollFlags::IN)));
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    match poll(&mut fds, Some(&tick)) {
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
