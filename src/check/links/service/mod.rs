//! Link `service`: examines the Ollama that is already running. The server must answer, must have been
//! started by vgpu-run and must have found a GPU. Its processes must have loaded the shims, and the device
//! must still have their sessions. No loaded model may be in the CPU's memory alone.

mod api;
mod ask;
mod choose;
mod judge;
mod log;
mod patience;
mod sessions;

use std::path::Path;

use crate::check::context::CheckContext;
use crate::check::facts::RunningServer;
use crate::diagnosis::cause::service as cause;
use crate::diagnosis::fix::service as fix;
use crate::diagnosis::{Finding, LinkId, Status};
use crate::env::OLLAMA_HOST;
use crate::ollama::processes::Running;
use api::Silent;
use choose::{Chosen, choose};
use judge::ObservedServer;
use log::ServerLog;

const LINK: LinkId = LinkId::Service;
/// Maximum number of characters that are shown of an unexpected answer.
const SHOWN: usize = 200;

/// Examines the link. With `--service`, problems of the service are failures. Otherwise another server is
/// about to be started, so problems of the running one are warnings.
pub async fn examine(context: &mut CheckContext) -> Finding {
    if let Some(error) = &context.unit_error {
        return Finding::fail(cause::NOT_ANSWERING, error.to_string()).fix(fix::UNKNOWN_SERVICE);
    }
    let running = Running::scan(Path::new("/proc"));
    let unit = context.unit.clone();
    let host = context.environment.get(OLLAMA_HOST).map(|host| host.to_string_lossy().into_owned());
    let chosen = match choose(&running, unit.as_ref(), host.as_deref()) {
        Ok(chosen) => chosen,
        Err(finding) => return ask::nobody(context, *finding),
    };
    let Chosen { server, address, instead, notes } = chosen;
    let log = log::read_log(context, unit.as_ref(), &server).await;
    let models = api::loaded(context, &server, address).await;
    let (held, unexamined) = sessions::examine(context, &server).await;
    let mut details = vec![server.process.shown()];
    details.extend(log.as_ref().err().cloned());
    details.extend(models.as_ref().err().map(ToString::to_string));
    details.extend(unexamined);
    details.extend(notes);
    if let (Some(process), Some(address)) = (&instead, address) {
        let who = unit.as_ref().map(|unit| unit.name.as_str()).unwrap_or_default();
        let answer = match &models {
            Err(Silent::Nonsense(_, answer)) => Some(answer.chars().take(SHOWN).collect::<String>()),
            _ => None,
        };
        return choose::taken(who, address, process, &format!("{who} is process {}", server.process.pid))
            .details(answer)
            .details(details);
    }
    if let Err(Silent::Nonsense(address, answer)) = &models {
        return Finding::unknown(LINK, format!("{address} answers /api/ps, but not with a list of models"))
            .fix(fix::OTHER_PROGRAM)
            .detail(answer.chars().take(SHOWN).collect::<String>())
            .details(details);
    }
    let ServerLog { found, refused, .. } = log.unwrap_or_default();
    let busy = matches!(models, Err(Silent::Working(_)));
    let models = models.ok();
    if let Some(address) = address {
        context.running = Some(RunningServer {
            pid: server.process.pid,
            children: server.runners.iter().map(|process| process.pid).collect(),
            address,
            wrapped: server.process.wrapped(),
            found: (!found.is_empty()).then(|| found.clone()),
            models: models.clone(),
            sessions: held.clone(),
        });
    }
    let state =
        ObservedServer { server: &server, unit: unit.as_ref(), found, refused, models, busy, sessions: held };
    let finding = state.judge().details(details);
    if busy && finding.status == Status::Skip {
        context.incomplete.push(LINK.as_str().to_owned());
    }
    ask::model(context, &state, finding).await
}
