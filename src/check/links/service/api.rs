//! What a server answers: the models that it has loaded.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::patience::{self, Silence};
use crate::check::context::Context;
use crate::check::http;
use crate::ollama::models::{self, Model};
use crate::ollama::running::Server;
use crate::waiting;

/// Processes that do nothing for that long, and answer nothing, do not answer.
const QUIET: Duration = Duration::from_secs(2);
/// How long an answer may take in all.
const LIMIT: Duration = Duration::from_secs(8);

/// Why nothing is known of the loaded models.
#[derive(Debug, thiserror::Error)]
pub enum Silent {
    /// The name in OLLAMA_HOST does not resolve.
    #[error("the server's address is not known")]
    NoAddress,
    /// It gives no answer, and its processes do nothing.
    #[error("{0} takes requests and does not answer; its processes do nothing")]
    Idle(SocketAddr),
    /// It gives no answer in time, and its processes are at work.
    #[error("{0} does not answer in time; its processes are at work")]
    Working(SocketAddr),
    /// The connection fails.
    #[error("{0} does not answer: {1}")]
    Mute(SocketAddr, #[source] io::Error),
    /// It answers with an error.
    #[error("{0} answers with status {1}")]
    Refused(SocketAddr, u16),
    /// It answers something else, which is given too.
    #[error("{0} answers, but not with a list of models")]
    Nonsense(SocketAddr, String),
}

/// The models that the server says are loaded.
pub async fn loaded(
    context: &Context,
    server: &Server,
    address: Option<SocketAddr>,
) -> Result<Vec<Model>, Silent> {
    let address = address.ok_or(Silent::NoAddress)?;
    let limit = context.time(LIMIT);
    let ask = move || http::get(address, "/api/ps", limit);
    let _waits = waiting::on(format!("an answer of {address}"));
    let answer = match patience::wait(server, QUIET, limit, ask).await {
        Ok(answer) => answer,
        Err(Silence::Idle) => return Err(Silent::Idle(address)),
        Err(Silence::Working) => return Err(Silent::Working(address)),
    };
    let (status, body) = answer.map_err(|error| Silent::Mute(address, error))?;
    if status != 200 {
        return Err(Silent::Refused(address, status));
    }
    models::parse(&body).ok_or(Silent::Nonsense(address, body))
}
