//! Implements `--model NAME`, which requests one token of a model from the running server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vgpu_findings::time;

use super::judge::ObservedServer;
use super::patience::{self, Silence};
use super::{api, log};
use crate::check::context::CheckContext;
use crate::check::http;
use crate::check::links::environment::API_PREFIX;
use crate::check::words;
use crate::diagnosis::cause::service as cause;
use crate::diagnosis::fix::service as fix;
use crate::diagnosis::{Finding, LinkId, Status};
use crate::ollama::era::Era;
use crate::ollama::models::LoadedModel;
use crate::ollama::processes::OllamaServer;
use crate::waits;

const LINK: LinkId = LinkId::Service;

/// Maximum time reserved for the links after the answer, which start Ollama itself.
const AFTER: Duration = Duration::from_secs(6);
/// Maximum number of characters that are shown of an answer that is not JSON.
const SHOWN: usize = 300;

/// Completes the finding if there is no server to ask; `finding` explains why. A model that was requested and
/// could not be tried makes the check incomplete.
pub fn nobody(context: &mut CheckContext, finding: Finding) -> Finding {
    match &context.options.model {
        Some(name) if finding.status != Status::Fail => {
            context.incomplete.push(format!("the model {name}"));
            Finding { found: format!("{name} was not tried: {}", finding.found), ..finding }
        }
        _ => finding,
    }
}

/// Requests the token, unless `finding` already reports a failure of the server.
pub async fn model(context: &mut CheckContext, state: &ObservedServer<'_>, finding: Finding) -> Finding {
    let Some(name) = context.options.model.clone() else { return finding };
    let address = match (&context.running, finding.status) {
        (Some(running), status) if status != Status::Fail => running.address,
        (None, status) if status != Status::Fail => return nobody(context, finding),
        _ => return finding.detail(format!("{name} was not tried")),
    };
    if let Some(prefix) = prefix(context, state.server) {
        let found = format!(
            "{name} was not asked for a token: the server has {API_PREFIX}={prefix}, so that every load fails after minutes"
        );
        return Finding::fail(cause::MODEL_FAILED, found)
            .expected(format!("no {API_PREFIX}: Ollama asks llama-server at /health"))
            .fix(fix::PREFIX)
            .with("variable", API_PREFIX)
            .details(finding.details);
    }
    let _waits = waits::on(format!("a token of {name} from {address}"));
    let start = Instant::now();
    let answer = generate(context, state.server, address, &name).await;
    let elapsed = start.elapsed();
    match answer {
        TokenAnswer::Token => {}
        TokenAnswer::Refused(status, error) => {
            let fail = Finding::fail(cause::MODEL_FAILED, format!("{name} gave no token: {error}"));
            return match status {
                404 => fail.fix(fix::FETCH).with("model", name),
                _ => words::mended(fail, &error),
            }
            .detail(format!("{address} answers /api/generate with status {status}"))
            .details(evidence(state, context).await)
            .details(finding.details);
        }
        TokenAnswer::Broken(error) => {
            return Finding::fail(cause::MODEL_FAILED, format!("{name} gave no token: {error}"))
                .fix(fix::ENDED)
                .details(evidence(state, context).await)
                .details(finding.details);
        }
        TokenAnswer::Idle => {
            return Finding::fail(
                cause::MODEL_FAILED,
                format!(
                    "{name} gave no token in {}, and the server's processes do nothing",
                    time(elapsed.as_secs_f64())
                ),
            )
            .fix(fix::IDLE)
            .details(finding.details);
        }
        TokenAnswer::Working => {
            context.incomplete.push(format!("the model {name}"));
            context.unanswered.push(format!("the model {name}"));
            let found = format!(
                "{name} gave no token in {}, but its processes are at work; give them more by --timeout",
                time(elapsed.as_secs_f64())
            );
            return Finding::skip(LINK, found).details(finding.details);
        }
    }
    let models = api::loaded(context, state.server, Some(address)).await.unwrap_or_default();
    let model = models.iter().find(|model| model.is_called(&name));
    placed(finding, &name, elapsed, model)
}

/// Returns the path prefix under which llama-server answers, if one is set; Ollama does not use it. An Ollama
/// without llama-server ignores the variable.
fn prefix(context: &mut CheckContext, server: &OllamaServer) -> Option<String> {
    let era = context.target().ollama.as_ref().map(|ollama| ollama.era);
    let prefix = server.process.value(API_PREFIX)?;
    (era.is_none_or(|era| era == Era::C) && !prefix.is_empty()).then_some(prefix)
}

/// Returns the lines about GPUs in the server's current log.
async fn evidence(state: &ObservedServer<'_>, context: &CheckContext) -> Vec<String> {
    log::read_log(context, state.unit, state.server).await.map(|log| log.about_gpus).unwrap_or_default()
}

/// Returns the finding for a model that answered, with the memory that the model is in.
fn placed(finding: Finding, name: &str, elapsed: Duration, model: Option<&LoadedModel>) -> Finding {
    let said = format!("{name} gave a token after {}", time(elapsed.as_secs_f64()));
    match model {
        Some(model) if model.on_cpu() && finding.status == Status::Warn => {
            // Why it is there is what the finding says.
            Finding { status: Status::Fail, ..finding }.detail(format!("{said}, from the CPU's memory"))
        }
        Some(model) if model.on_cpu() => {
            Finding::fail(cause::MODEL_ON_CPU, format!("{said}, from the CPU's memory"))
                .expected("a model in the device's memory")
                .details(finding.details)
        }
        Some(model) => Finding { found: format!("{}; {said}, {}", finding.found, model.shown()), ..finding },
        None => Finding { found: format!("{}; {said}", finding.found), ..finding }
            .detail("the server does not say where it lies: it is not loaded any more"),
    }
}

/// Outcome of the request for a token.
enum TokenAnswer {
    Token,
    /// The server refused the request, with this status and message.
    Refused(u16, String),
    /// The connection failed with this error.
    Broken(String),
    /// No answer arrived, and the server's processes are idle.
    Idle,
    /// No answer arrived before the end of the check.
    Working,
}

/// Requests one token and waits until the check must end.
async fn generate(
    context: &CheckContext,
    server: &OllamaServer,
    address: SocketAddr,
    name: &str,
) -> TokenAnswer {
    let left = context.time(Duration::MAX);
    let limit = left.saturating_sub(AFTER.min(left / 4));
    let body = json!({
        "model": name, "prompt": "Hello", "stream": false, "options": { "num_predict": 1 },
    })
    .to_string();
    let ask = move || http::post(address, "/api/generate", &body, limit);
    match patience::wait(server, limit / 2, limit, ask).await {
        Ok(Ok((200, body))) if said_error(&body).is_none() => TokenAnswer::Token,
        Ok(Ok((status, body))) => {
            let text = said_error(&body).unwrap_or_else(|| body.chars().take(SHOWN).collect());
            TokenAnswer::Refused(status, text)
        }
        Ok(Err(error)) => TokenAnswer::Broken(error.to_string()),
        Err(Silence::Idle) => TokenAnswer::Idle,
        Err(Silence::Working) => TokenAnswer::Working,
    }
}

/// Returns Ollama's error message, if an answer is an error. The message of a process that died has several
/// lines, which are joined.
fn said_error(body: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(body).ok()?;
    let mut lines: Vec<&str> =
        answer["error"].as_str()?.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.dedup();
    Some(lines.join("; "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed() -> Finding {
        Finding::pass(LINK, "it was started by vgpu-run")
    }

    fn model(on_gpu: u64) -> LoadedModel {
        LoadedModel { name: "m:latest".into(), size: 10, on_gpu }
    }

    #[test]
    fn where_the_model_lies() {
        let second = Duration::from_secs(1);
        let finding = placed(passed(), "m", second, Some(&model(5)));
        assert_eq!(finding.status, Status::Pass);
        assert!(
            finding.found.ends_with("m gave a token after 1.0 s, m:latest with 50 % on the GPU"),
            "{finding:?}"
        );
        let finding = placed(passed(), "m", second, Some(&model(0)));
        assert_eq!((finding.status, finding.cause), (Status::Fail, Some(cause::MODEL_ON_CPU)));
        let bare = Finding::warn(cause::NOT_WRAPPED, "it was not started by vgpu-run");
        let finding = placed(bare, "m", second, Some(&model(0)));
        assert_eq!((finding.status, finding.cause), (Status::Fail, Some(cause::NOT_WRAPPED)));
        assert_eq!(placed(passed(), "m", second, None).status, Status::Pass);
    }

    #[test]
    fn ollamas_own_words() {
        assert_eq!(said_error(r#"{"error":"model 'x' not found"}"#).as_deref(), Some("model 'x' not found"));
        assert_eq!(said_error(r#"{"error":"a\n\nb\nb\n"}"#).as_deref(), Some("a; b"));
        assert_eq!(said_error(r#"{"response":""}"#), None);
    }

    proptest! {
        #[test]
        fn no_answer_breaks_the_reader(text in ".{0,60}") {
            let _ = said_error(&text);
        }
    }
}
