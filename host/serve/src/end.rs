//! The command `end`: ends one session of a running device.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::ask;
use crate::control::{EndReply, socket_of};

/// Options of the command `end`.
#[derive(Debug, clap::Args)]
pub struct EndArguments {
    /// Name of the device, as `status` shows it.
    name: String,
    /// Number of the session, as `status` shows it.
    session: u32,
    /// Control socket of the device, if it is not in one of the usual directories.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

/// Ends the session. Returns exit code 0 if it has ended, and 1 if it is still ending or does not exist.
pub fn end_session(arguments: &EndArguments) -> Result<ExitCode> {
    let EndArguments { name, session, control } = arguments;
    let socket = socket_of(name, control.as_deref())?;
    match ask::end(&socket, *session)? {
        EndReply::Ended => println!("session {session} of {name} has ended"),
        EndReply::Ending => {
            bail!("session {session} of {name} is ending: its executor is in the middle of work")
        }
        EndReply::Absent => bail!("{name} has no session {session}"),
    }
    Ok(ExitCode::SUCCESS)
}
