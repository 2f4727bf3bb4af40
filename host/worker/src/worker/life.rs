//! The life of a worker: it receives its setup, confines itself, makes the executor, and carries out messages
//! until it is told to stop.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd, IntoRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tracing::level_filters::LevelFilter;
use vgpu_device::threads::{self, panic_message};
use vgpu_device::{Executor, SessionError, SessionHost, SessionInWorker, Window};

use crate::shared::frame::RING_BYTES;
use crate::shared::packet;
use crate::shared::protocol::{self, OtherProtocol};
use crate::shared::report::WorkerReport;
use crate::shared::setup::{Numbered, SETUP_MAX, Setup};
use crate::shared::status_page::{STATUS_PAGE_BYTES, StatusPage};
use crate::worker::carry::{MessageLoop, MessageLoopParts, SessionEnd};
use crate::worker::confine::{NotConfined, confine};
use crate::worker::control::ControlChannel;
use crate::worker::reporter::Reporter;
use crate::worker::window_mapping::{Reservation, close_inherited};

/// Reason for which a worker does not start.
#[derive(Debug, thiserror::Error)]
enum NotStarted {
    #[error("read what the session is: {0}")]
    Setup(String),
    #[error(transparent)]
    Protocol(#[from] OtherProtocol),
    #[error(transparent)]
    Confine(#[from] NotConfined),
    #[error("map the session's memory: {0}")]
    Map(String),
    #[error("start a thread: {0}")]
    Thread(io::Error),
    #[error("make the executor: {0}")]
    Executor(String),
}

/// Runs a worker process, whose standard input is the socket of the device's process. `make` makes the
/// executor from [`WorkerConfig::executor`](crate::WorkerConfig::executor) after the process was confined.
///
/// The program must call this first. It closes all descriptors except the standard three, because inherited
/// ones may belong to the device's process.
pub fn main(make: impl FnOnce(&Value) -> Result<Arc<dyn Executor>, String>) -> ExitCode {
    close_inherited();
    let failed = |error: &NotStarted| {
        eprintln!("vgpu-worker: {error}");
        ExitCode::FAILURE
    };
    let socket = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => socket,
        Err(error) => return failed(&NotStarted::Setup(error.to_string())),
    };
    let told = match setup(&socket) {
        Ok(told) => told,
        Err(error) => {
            report(&socket, &error);
            // Also printed, because the program may have been started by hand.
            return failed(&error);
        }
    };
    // The end of this process tells the device's process that the session is lost. A missing thread would
    // not.
    threads::on_panic(|panic| {
        eprintln!("vgpu-worker: {panic}");
        std::process::abort();
    });
    let level = told.0.log.parse().unwrap_or(LevelFilter::WARN);
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_ansi(colours).with_writer(io::stderr).with_max_level(level).init();
    match live(told, &socket, make) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&socket, &error);
            ExitCode::FAILURE
        }
    }
}

/// Tells the device's process why the session is lost.
fn report(socket: &OwnedFd, error: &NotStarted) {
    let record = WorkerReport::Lost(0, error.to_string());
    // If nobody receives the packet, nobody needs it.
    let _ = packet::send(socket, &record.encode(), &[], rustix::net::SendFlags::empty());
}

fn setup(socket: &OwnedFd) -> Result<(Setup, Vec<File>), NotStarted> {
    let error = |error: &dyn std::fmt::Display| NotStarted::Setup(error.to_string());
    let received = packet::receive(socket, SETUP_MAX).map_err(|it| error(&it))?;
    let (packet, files) = received.ok_or_else(|| error(&"nobody says"))?;
    // Of a setup of another protocol only the number is known.
    let Numbered { protocol } = serde_json::from_slice(&packet).map_err(|it| error(&it))?;
    protocol::accept(protocol)?;
    let setup: Setup = serde_json::from_slice(&packet).map_err(|it| error(&it))?;
    if files.len() != 3 + usize::from(setup.returns.is_some()) + usize::from(setup.lock) {
        return Err(error(&format_args!("{} files came with it", files.len())));
    }
    Ok((setup, files))
}

fn live(
    (setup, files): (Setup, Vec<File>),
    socket: &OwnedFd,
    make: impl FnOnce(&Value) -> Result<Arc<dyn Executor>, String>,
) -> Result<(), NotStarted> {
    confine(setup.identity, setup.connects, setup.explains)?;
    let map = |error: &dyn std::fmt::Display| NotStarted::Map(error.to_string());
    let mut files = files.into_iter();
    let mut file = || files.next().ok_or_else(|| map(&"a file is missing"));
    let page = Window::from_file_range(file()?, 0, STATUS_PAGE_BYTES).map_err(|error| map(&error))?;
    let page = Arc::new(StatusPage::new(page));
    let ring = Window::from_file_range(file()?, 0, RING_BYTES).map_err(|error| map(&error))?;
    let reservation = Reservation::new(file()?, setup.window.offset, setup.window.bytes);
    let reservation = Arc::new(reservation.map_err(|error| map(&error))?);
    reservation.map(setup.area.offset, setup.area.bytes).map_err(|error| map(&error))?;
    let returns = match setup.returns {
        Some(place) => {
            Some(Window::from_file_range(file()?, place.offset, place.bytes).map_err(|error| map(&error))?)
        }
        None => None,
    };
    if setup.lock {
        // It stays open until the process has ended, when the driver has freed all memory.
        let _ = file()?.into_raw_fd();
    }
    let dup = || socket.try_clone().map_err(|error| map(&error));
    let control = Arc::new(ControlChannel::default());
    let reporter = Reporter::new(dup()?, Arc::clone(&page), Arc::clone(&reservation), Arc::clone(&control));
    let reporter = Arc::new(reporter);
    let known = SessionInWorker {
        session: setup.session,
        channel: setup.channel,
        process: setup.process,
        wakes: setup.wakes,
        window: reservation.window().map_err(|error| map(&error))?,
        returns,
        now: Duration::from_nanos(setup.now),
        limits: setup.limits,
    };
    let host = SessionHost::in_worker(known, Arc::clone(&reporter) as _);
    reporter.set_host(&host);
    let listener = {
        let (control, socket, host, page) = (Arc::clone(&control), dup()?, host.clone(), Arc::clone(&page));
        let listen = move || control.receive_orders(socket, &host, &page);
        threads::spawn("control", listen).map_err(NotStarted::Thread)?
    };
    drop(listener);
    let executor = make(&setup.executor).map_err(NotStarted::Executor)?;
    let session = executor.open(host.clone()).map_err(|error| NotStarted::Executor(error.to_string()))?;
    let parts = MessageLoopParts {
        host: host.clone(),
        page,
        reporter: Arc::clone(&reporter),
        control: Arc::clone(&control),
        reservation,
    };
    let mut carrier = MessageLoop::new(parts, ring, session);
    let served = catch_unwind(AssertUnwindSafe(|| carrier.serve())).unwrap_or_else(|payload| {
        let error = SessionError::Lost(format!("panic: {}", panic_message(&*payload)));
        Err(SessionEnd { number: 0, error })
    });
    if let Err(SessionEnd { number, error }) = served {
        reporter.report(&match error {
            SessionError::Violation(violation) => WorkerReport::Violation(number, violation.to_string()),
            SessionError::Lost(text) | SessionError::OutOfMemory(text) => WorkerReport::Lost(number, text),
            // No worker pauses.
            error @ SessionError::Paused => WorkerReport::Lost(number, error.to_string()),
        });
    }
    // Marks of work that was not completed are not stored.
    host.end();
    drop(carrier);
    drop(executor);
    control.end();
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

    use super::*;

    /// Nothing of another protocol's setup is understood, and nothing of it need be.
    #[test]
    fn a_setup_of_another_protocol_is_refused_by_its_number() {
        let refused = |text: &str| {
            let kind = SocketType::SEQPACKET;
            let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            packet::send(&theirs, text.as_bytes(), &[], SendFlags::empty()).unwrap();
            setup(&ours).unwrap_err()
        };
        let other = refused(r#"{"protocol":9,"session":"a text by now","new":[1]}"#);
        assert!(matches!(other, NotStarted::Protocol(OtherProtocol(9))), "{other}");
        // One of a known protocol is read.
        for text in [r#"{"protocol":1}"#, "{}", r#"{"protocol":"9"}"#] {
            let wrong = refused(text);
            assert!(matches!(wrong, NotStarted::Setup(_)), "{text}: {wrong}");
        }
    }
}
