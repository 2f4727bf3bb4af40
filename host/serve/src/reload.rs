//! The command `reload`: has a running device execute the program that is installed now, while its VM goes on.
//!
//! ```text
//!  reload ── control socket ──► the device's process
//!                                 start    the new program, as a child, gets ready to judge
//!                                 rest     threads stop between two messages, requests wait in their socket
//!                                 state    everything that its successor needs, in a sealed memory file
//!                                 judge    the child says whether it can go on with that
//!                                 exec     the same process executes the new program, which takes over
//!                                          the state and the descriptors
//! ```
//!
//! If the new program refuses, or anything fails before it is executed, the old one goes on.

mod handover;
mod judge;
mod running;
mod saved;
mod socket;
mod successor;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

pub(crate) use handover::{Handover, keep_machine};
pub(crate) use judge::judge_state;
pub(crate) use running::{CONTROL, Identity, RunningDevice};
pub use saved::STATE_VERSION;
pub(crate) use saved::SavedProcess;
pub(crate) use socket::SocketThread;

use crate::ask::{self, AskError};
use crate::control::{Instance, socket_of};

/// Time within which the device answers after it has executed the new program.
const BACK_MOST: Duration = Duration::from_secs(30);
/// Pause between two questions to a device that does not answer yet.
const PAUSE: Duration = Duration::from_millis(20);

/// Remembers the path of this program, before an upgrade replaces the file.
pub(crate) fn remember_program() -> Result<()> {
    successor::program().context("find this program")?;
    Ok(())
}

/// Options of the command `reload`.
#[derive(Debug, clap::Args)]
pub struct ReloadArguments {
    /// Name of the device, as `status` shows it.
    name: String,
    /// Control socket of the device, if it is not in one of the usual directories.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

/// Reloads a device, and waits until it serves again.
pub fn reload_device(arguments: &ReloadArguments) -> Result<ExitCode> {
    let ReloadArguments { name, control } = arguments;
    let socket = socket_of(name, control.as_deref())?;
    let before = ask::status(&socket)?;
    // A device that is reloaded closes the connection, and answers the next question.
    ask::reload(&socket)?;
    let end = Instant::now() + BACK_MOST;
    let after = loop {
        match ask::status(&socket) {
            Err(AskError::Talk { .. } | AskError::Ended { .. } | AskError::Silent { .. })
                if Instant::now() < end =>
            {
                thread::sleep(PAUSE);
            }
            Err(error) => bail!(
                "{name} does not answer after its reload ({error}): its log says why, and its VM has lost the GPU \
                 if it has ended"
            ),
            Ok(after) => break after,
        }
    };
    println!("{}", told(name, &before, &after)?);
    Ok(ExitCode::SUCCESS)
}

/// Returns what has become of a device.
fn told(name: &str, before: &Instance, after: &Instance) -> Result<String> {
    let Some(reload) = after.reload.as_ref().filter(|_| after.reloads > before.reloads) else {
        bail!(
            "{name} was started anew instead of reloaded (process {}, before {}): its log says why",
            after.process,
            before.process
        );
    };
    let sessions: usize = after.devices.iter().map(|device| device.sessions.len()).sum();
    Ok(format!(
        "{name} reloaded: version {} instead of {}, sessions kept: {sessions}, paused for {:.1} ms",
        after.version,
        reload.from,
        Duration::from_micros(reload.pause_us).as_secs_f64() * 1000.0
    ))
}
