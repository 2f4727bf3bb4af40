//! Asks a server for the models that it has loaded.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::patience::{self, Silence};
use crate::check::context::CheckContext;
use crate::check::http;
use crate::ollama::models::{self, LoadedModel};
use crate::ollama::processes::OllamaServer;
use crate::waits;

/// Time without an answer after which an idle server counts as not answering.
const QUIET: Duration = Duration::from_secs(2);
/// Maximum time to wait for an answer.
const LIMIT: Duration = Duration::from_secs(8);

/// Reason why the loaded models are unknown.
#[derive(Debug, thiserror::Error)]
pub enum Silent {
    /// The host name in OLLAMA_HOST does not resolve.
    #[error("the server's address is not known")]
    NoAddress,
    /// The server gives no answer, and its processes are idle.
    #[error("{0} takes requests and does not answer; its processes do nothing")]
    Idle(SocketAddr),
    /// The server gives no answer in time, but its processes are busy.
    #[error("{0} does not answer in time; its processes are at work")]
    Working(SocketAddr),
    /// The connection fails.
    #[error("{0} does not answer: {1}")]
    Mute(SocketAddr, #[source] io::Error),
    /// The server answers with an error status.
    #[error("{0} answers with status {1}")]
    Refused(SocketAddr, u16),
    /// The server answers with something other than a list of models.
    #[error("{0} answers, but not with a list of models")]
    Nonsense(SocketAddr, String),
}

/// Asks the server for its loaded models.
pub async fn loaded(
    context: &CheckContext,
    server: &OllamaServer,
    address: Option<SocketAddr>,
) -> Result<Vec<LoadedModel>, Silent> {
    let address = address.ok_or(Silent::NoAddress)?;
    let limit = context.time(LIMIT);
    let ask = move || http::get(address, "/api/ps", limit);
    let _waits = waits::on(format!("an answer of {address}"));
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
