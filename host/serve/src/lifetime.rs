//! Lifetime of a command that serves: until a signal, the end of stdin, or the end of a thread that it needs.
//!
//! A process that has lost a thread does not work, even if it appears to. It ends in order, with an error, so
//! that its service manager restarts it.

use std::io::{IsTerminal as _, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing_subscriber::EnvFilter;
use vgpu_device::threads;
use vgpu_vfio_user::VM_EVENTS;

use crate::figures::ReadFigures;
use crate::signals::EndingSignals;
use crate::takeover::Past;
use crate::values::{Level, WARN};

/// Time limit for an orderly end after a thread has ended, which may have left any lock held. After it the
/// process ends at once.
const ENDING_MOST: Duration = Duration::from_secs(5);

/// Why a command is not reloaded that serves no device to a VMM.
const NOT_RELOADED: &str = "only a device of version 2 on the bus vfio-user can be reloaded: restart it";

/// Returns what has been done so far, as JSON. It can be called at any time and from any thread.
pub(crate) type Status = Arc<dyn Fn() -> Value + Send + Sync>;

/// Asks the process that serves to be reloaded. Returns why it is not; a process that is reloaded never
/// answers.
pub(crate) type Reload = Arc<dyn Fn() -> String + Send + Sync>;

/// Ends the session of a number, by the given time. Returns whether it has ended, or `None` if there is none.
pub(crate) type EndSession = Arc<dyn Fn(u32, Instant) -> Option<bool> + Send + Sync>;

/// What can be asked of that which is served, at any time and from any thread.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) status: Status,
    pub(crate) end_session: EndSession,
    pub(crate) reload: Reload,
    /// Number of reloads, and the last one.
    pub(crate) reloaded: Reloaded,
    /// Figures of a device of version 2.
    pub(crate) figures: Option<ReadFigures>,
    /// How it came to its VM.
    pub(crate) past: Past,
}

impl Served {
    /// Returns what can be asked of a function that has no sessions.
    pub(crate) fn without_sessions(status: Status, lifetime: &Lifetime) -> Self {
        let (end_session, reloaded) = (Arc::new(|_, _| None), Reloaded::default());
        Self { status, end_session, reload: lifetime.reloader(), reloaded, figures: None, past: Past::None }
    }
}

/// The reloads of a device since it was started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reloaded {
    pub(crate) reloads: u32,
    pub(crate) last: Option<ReloadReport>,
}

/// A reload, as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ReloadReport {
    /// Version of the program before.
    pub(crate) from: String,
    /// Time for which no access of the VM was answered, in microseconds.
    pub(crate) pause_us: u64,
}

/// Logs events of `level` and above to stderr. At the default level, the lines that say when a VM connects
/// and leaves are logged too.
pub(crate) fn log(level: Level) {
    let filter = if level == WARN { format!("{level},{VM_EVENTS}=info") } else { level.to_string() };
    let filter = EnvFilter::new(filter);
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_ansi(colours).with_writer(std::io::stderr).with_env_filter(filter).init();
}

/// Reason for which a command stops serving: `Ok` if it was told to stop.
type End = Result<()>;

/// What a command that serves is asked for.
#[derive(Debug)]
pub(crate) enum Asked {
    End(End),
    /// To be reloaded. Whoever asks is told why that is not possible.
    Reload(Sender<String>),
}

/// The lifetime of a command that serves.
#[derive(Debug)]
pub(crate) struct Lifetime {
    to: Sender<Asked>,
    asked: Receiver<Asked>,
    signals: Arc<EndingSignals>,
}

impl Lifetime {
    /// Starts to watch the process's threads. From now on a panic of any thread ends the command, and so do
    /// SIGINT and SIGTERM, once they are watched for. No other thread may have been started.
    pub(crate) fn begin() -> Result<Self> {
        let signals = Arc::new(EndingSignals::block().context("watch for signals")?);
        let (to, asked) = channel();
        let panicked = to.clone();
        // A send fails only when the command has stopped serving already, here and below.
        threads::on_panic(move |panic| drop(panicked.send(Asked::End(Err(panic.into())))));
        Ok(Self { to, asked, signals })
    }

    /// Tells the command to stop.
    pub(crate) fn stopper(&self) -> impl Fn() + Clone + Send + use<> {
        let to = self.to.clone();
        move || drop(to.send(Asked::End(Ok(()))))
    }

    /// Tells the command to stop with an error.
    pub(crate) fn failer(&self) -> impl Fn(anyhow::Error) + Send + use<> {
        let to = self.to.clone();
        move |error| drop(to.send(Asked::End(Err(error))))
    }

    /// Returns what asks for a reload, and waits for the reason why there is none.
    pub(crate) fn reloader(&self) -> Reload {
        let to = self.to.clone();
        Arc::new(move || {
            let (answer, reason) = channel();
            // The process that serves may be ending.
            let _ = to.send(Asked::Reload(answer));
            reason.recv().unwrap_or_else(|_| "the device is ending".to_owned())
        })
    }

    /// Stops the command on SIGINT or SIGTERM and, if `watch_stdin` is set, when stdin closes. A line
    /// `status` on stdin is answered with one line from `status` on stdout.
    pub(crate) fn watch(&self, watch_stdin: bool, status: Status) -> Result<()> {
        let (stop, fail, signals) = (self.stopper(), self.failer(), Arc::clone(&self.signals));
        threads::spawn("signals", move || {
            if let Err(error) = signals.wait(stop) {
                fail(anyhow::Error::from(error).context("wait for a signal"));
            }
        })
        .context("watch for signals")?;
        if watch_stdin {
            let stop = self.stopper();
            threads::spawn("stdin", move || {
                // Errors of either stream stop the command as the end of stdin does. Other lines are ignored.
                for line in std::io::stdin().lines().map_while(Result::ok) {
                    if line == "status" && writeln!(std::io::stdout(), "{}", status()).is_err() {
                        break;
                    }
                }
                stop();
            })
            .context("watch stdin")?;
        }
        Ok(())
    }

    /// Waits until the command is to stop. The caller then ends in order; after an error it has
    /// [`ENDING_MOST`] for that.
    ///
    /// # Errors
    /// A thread has ended.
    pub(crate) fn wait(&self) -> Result<()> {
        self.wait_or_reload(Self::not_reloaded)
    }

    /// Has signals wait as long as the value lives: for the program that this process executes meanwhile.
    pub(crate) fn hold_signals(&self) -> MutexGuard<'_, ()> {
        self.signals.hold()
    }

    /// Returns whether the command is to stop. It still does so by [`Lifetime::wait`].
    pub(crate) fn is_ending(&self) -> bool {
        while let Ok(asked) = self.asked.try_recv() {
            match asked {
                end @ Asked::End(_) => {
                    drop(self.to.send(end));
                    return true;
                }
                // Whoever has asked may be gone.
                Asked::Reload(answer) => drop(answer.send("it is being reloaded".to_owned())),
            }
        }
        false
    }

    /// Returns why a command is not reloaded.
    pub(crate) fn not_reloaded() -> String {
        NOT_RELOADED.to_owned()
    }

    /// Waits like [`Lifetime::wait`], and calls `reload` when a reload is asked for. It returns only if that
    /// fails, with the reason.
    pub(crate) fn wait_or_reload(&self, mut reload: impl FnMut() -> String) -> Result<()> {
        loop {
            // The receiver does not fail, because this value has a sender itself.
            match self.asked.recv().context("wait for the end")? {
                Asked::End(end) => return Self::ended(end),
                Asked::Reload(answer) => {
                    let reason = reload();
                    tracing::warn!("not reloaded: {reason}");
                    // Whoever has asked may be gone.
                    let _ = answer.send(reason);
                }
            }
        }
    }

    /// Waits like [`Lifetime::wait`], but at most for `limit`. Returns whether the command is to stop.
    ///
    /// # Errors
    /// A thread has ended.
    pub(crate) fn wait_for(&self, limit: Duration) -> Result<bool> {
        match self.asked.recv_timeout(limit) {
            Ok(Asked::End(end)) => Self::ended(end).map(|()| true),
            Ok(Asked::Reload(answer)) => {
                // Whoever has asked may be gone.
                let _ = answer.send(NOT_RELOADED.to_owned());
                Ok(false)
            }
            Err(_) => Ok(false),
        }
    }

    /// Limits the time of an end that has this reason.
    fn ended(end: End) -> Result<()> {
        if let Err(error) = &end {
            let told = format!("vgpu-device: {error:#}");
            let limit = move || {
                thread::sleep(ENDING_MOST);
                eprintln!("{told}\nvgpu-device: what is left after {ENDING_MOST:?} is abandoned");
                std::process::exit(1);
            };
            // If the thread cannot be started, the end has no time limit.
            let _ = threads::spawn("end", limit);
        }
        end
    }
}

/// Prints `ready`, which means that guests can connect from now on.
pub(crate) fn ready() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    out.flush().map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Makes a thread of this process panic and then does not end. The test below runs it in a process of its
    /// own.
    #[test]
    #[ignore = "does not end by itself"]
    fn hangs_after_a_panic() {
        let lifetime = Lifetime::begin().unwrap();
        threads::spawn("some", || panic!("of a test")).unwrap();
        let error = lifetime.wait().unwrap_err();
        println!("told: {error:#}");
        loop {
            thread::park();
        }
    }

    #[test]
    fn a_panic_ends_the_process_even_if_the_end_hangs() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lifetime::tests::hangs_after_a_panic", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let (out, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{out}{errors}");
        assert!(out.contains("told: the thread `some` panicked: of a test"), "{out}{errors}");
        assert!(errors.contains("vgpu-device: the thread `some` panicked: of a test\n"), "{errors}");
        assert!(errors.trim_end().ends_with("after 5s is abandoned"), "{errors}");
    }
}
