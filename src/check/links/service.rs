//! Link `service`: the Ollama that is running already. Was it started by vgpu-run, do its processes have the
//! libraries, what did it find, and where are its models?

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::check::child;
use crate::check::context::Context;
use crate::check::http;
use crate::check::refusals;
use crate::check::unit::Unit;
use crate::diagnosis::cause::service as cause;
use crate::diagnosis::{Cause, Finding, LinkId};
use crate::env::Environment;
use crate::ollama::running::{self, Process, Server};
use crate::service;

const LINK: LinkId = LinkId::Service;
/// How long the journal may take; it can be large and cold.
const JOURNAL_LIMIT: Duration = Duration::from_secs(3);
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The journal is read this many lines back.
const JOURNAL_LINES: &str = "3000";
/// The line in which Ollama says what it found.
const FOUND: &str = "inference compute";

/// Examines the link. With `--service` it must be right; without, what runs is not what is to be started, and
/// only told.
pub async fn examine(context: &mut Context) -> Finding {
    if let Some(error) = &context.unit_error {
        return Finding::fail(cause::NOT_ANSWERING, error.to_string())
            .fix("Name the service after --service, or install it.")
            .command("systemctl list-units --type=service --all '*ollama*'");
    }
    let servers = running::servers(Path::new("/proc"));
    let unit = context.unit.clone();
    let Some(server) = pick(&servers, unit.as_ref()) else {
        return match &unit {
            Some(unit) => not_running(unit),
            None => Finding::skip(LINK, "no Ollama is running"),
        };
    };
    let mut details = vec![format!("process {}: {}", server.process.pid, server.process.words.join(" "))];
    let journal = match &unit {
        Some(unit) => journal(unit, &context.environment, context.time(JOURNAL_LIMIT)).await,
        None => Err("its log is not known: it was not named as a service with --service".to_owned()),
    };
    let host = server.process.value("OLLAMA_HOST");
    let models = models(host.as_deref(), context.time(ANSWER_LIMIT));
    details.extend(journal.as_ref().err().cloned());
    details.extend(models.as_ref().err().map(ToString::to_string));
    if let Err(Silent::Nonsense(address, answer)) = &models {
        let begin: String = answer.chars().take(200).collect();
        return Finding::unknown(LINK, format!("{address} answers /api/ps, but not with a list of models"))
            .fix("Is it Ollama that listens there?")
            .detail(begin)
            .details(details);
    }
    let Journal { found, refused } = journal.unwrap_or_default();
    let state = State { server, unit: unit.as_ref(), journal: found, refused, models: models.ok() };
    state.judge().details(details)
}

/// The server that the unit says is its own; without a unit the first one.
fn pick<'a>(servers: &'a [Server], unit: Option<&Unit>) -> Option<&'a Server> {
    let main = unit.map(|unit| unit.get("MainPID").parse::<u32>().unwrap_or_default());
    match main {
        Some(pid) if pid > 0 => {
            servers.iter().find(|server| server.process.pid == pid || server.process.parent == pid)
        }
        Some(_) => None,
        None => servers.first(),
    }
}

fn not_running(unit: &Unit) -> Finding {
    let state = unit.get("ActiveState");
    if state.is_empty() {
        return Finding::skip(LINK, format!("systemd does not say whether {} runs", unit.name));
    }
    Finding::fail(cause::NOT_ANSWERING, format!("{} is {state}", unit.name))
        .fix("Start it, and read its log.")
        .command(format!("systemctl start {0}; journalctl -u {0} -n 50", unit.name))
        .as_root()
}

/// What is in the service's log.
#[derive(Debug, Default, PartialEq, Eq)]
struct Journal {
    /// The last line in which Ollama says what it found.
    found: Option<String>,
    /// What the host refused since then, where the libraries say so: with VGPU_LOG=error, and no
    /// VGPU_LOG_FILE.
    refused: Option<String>,
}

impl Journal {
    fn read(text: &str) -> Self {
        let start = text.rfind(FOUND).map(|at| text[..at].rfind('\n').map_or(0, |end| end + 1));
        let since = &text[start.unwrap_or(0)..];
        let found = start.and_then(|_| since.lines().next()).map(str::to_owned);
        Self { found, refused: refusals::latest(since) }
    }
}

/// Reads the service's journal.
async fn journal(unit: &Unit, environment: &Environment, limit: Duration) -> Result<Journal, String> {
    let mut command = Command::new("journalctl");
    command.args([
        "--unit",
        &unit.name,
        "--lines",
        JOURNAL_LINES,
        "--no-pager",
        "--output",
        "cat",
        "--quiet",
    ]);
    let outcome = child::run(command, environment, limit)
        .await
        .map_err(|error| format!("its log cannot be read: journalctl: {error}"))?;
    match outcome.trouble() {
        Some(trouble) => Err(format!("its log cannot be read: journalctl {trouble}")),
        None => Ok(Journal::read(&outcome.stdout)),
    }
}

/// A loaded model: its name, its bytes, and those of them on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    name: String,
    size: u64,
    on_gpu: u64,
}

/// Why nothing is known of the loaded models.
#[derive(Debug, thiserror::Error)]
enum Silent {
    #[error("the server's address is not known")]
    NoAddress,
    #[error("{0} does not answer: {1}")]
    Mute(SocketAddr, #[source] io::Error),
    #[error("{0} answers with status {1}")]
    Refused(SocketAddr, u16),
    #[error("{0} answers, but not with a list of models")]
    Nonsense(SocketAddr, String),
}

/// The models that the server says are loaded.
fn models(host: Option<&str>, limit: Duration) -> Result<Vec<Model>, Silent> {
    let address = http::ollama_address(host).ok_or(Silent::NoAddress)?;
    let (status, body) =
        http::get(address, "/api/ps", limit).map_err(|error| Silent::Mute(address, error))?;
    if status != 200 {
        return Err(Silent::Refused(address, status));
    }
    parse(&body).ok_or(Silent::Nonsense(address, body))
}

fn parse(body: &str) -> Option<Vec<Model>> {
    let answer: Value = serde_json::from_str(body).ok()?;
    let list = match &answer["models"] {
        Value::Null => return answer.is_object().then(Vec::new),
        list => list.as_array()?,
    };
    let model = |model: &Value| Model {
        name: model["name"].as_str().unwrap_or_default().to_owned(),
        size: model["size"].as_u64().unwrap_or_default(),
        on_gpu: model["size_vram"].as_u64().unwrap_or_default(),
    };
    Some(list.iter().map(model).collect())
}

/// The value behind `key=` of a log line.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let at = line.find(&format!(" {key}="))? + key.len() + 2;
    let rest = &line[at..];
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split_whitespace().next(),
    }
}

/// All that was seen of a running Ollama.
struct State<'a> {
    server: &'a Server,
    unit: Option<&'a Unit>,
    journal: Option<String>,
    refused: Option<String>,
    models: Option<Vec<Model>>,
}

impl State<'_> {
    fn judge(&self) -> Finding {
        let broken = |cause: Cause, found: String| match self.unit {
            Some(_) => Finding::fail(cause, found),
            // It may be meant to be so: what check looks at is what vgpu-run would start.
            None => Finding::warn(cause, found),
        };
        let (who, restart) = match self.unit {
            Some(unit) => {
                (unit.name.clone(), format!("systemctl daemon-reload && systemctl restart {}", unit.name))
            }
            None => (
                format!("the running Ollama (process {})", self.server.process.pid),
                format!("kill {}", self.server.process.pid),
            ),
        };
        let started_by_us =
            self.unit.is_some_and(|unit| unit.command().iter().any(|word| word.ends_with("vgpu-run")));
        match self.server.process.wrapped() {
            Some(false) if started_by_us => {
                return broken(
                    cause::STALE,
                    format!("{who} was changed to start through vgpu-run, but runs as it was before"),
                )
                .fix("Have systemd reload it, and restart it.")
                .command(restart)
                .as_root();
            }
            Some(false) => {
                let finding = broken(cause::NOT_WRAPPED, format!("{who} was not started by vgpu-run"));
                return match self.unit {
                    Some(unit) => finding
                        .fix("Have vgpu-run start it.")
                        .command(service::install_command(&unit.name))
                        .as_root(),
                    None => finding.fix(
                        "End it, and start it through vgpu-run; or check it as a service with --service.",
                    ),
                };
            }
            _ => {}
        }
        if self.unit.is_some_and(|unit| unit.on("NeedDaemonReload")) {
            return broken(cause::STALE, format!("{who} was changed, but systemd has not reloaded it"))
                .fix("Have systemd reload it, and restart it.")
                .command(restart)
                .as_root();
        }
        // Without our libraries the backend's own opening fails, so that it need not be there.
        let holds_model = |runner: &Process| runner.words.iter().any(|word| word == "--model");
        let bare = |runner: &&Process| {
            (holds_model(runner) || runner.backend().is_some()) && runner.has_shims() == Some(false)
        };
        if let Some(runner) = self.server.runners.iter().find(bare) {
            return broken(
                cause::RUNNER_WITHOUT_SHIMS,
                format!(
                    "{who}: its process {} holds a model and has not loaded vgpu-run's libraries",
                    runner.pid
                ),
            )
            .fix("Restart it.")
            .command(restart)
            .as_root()
            .detail(format!("process {}: {}", runner.pid, runner.words.join(" ")));
        }
        let library = self.journal.as_deref().and_then(|line| value(line, "library"));
        if library == Some("cpu") {
            return broken(cause::FOUND_CPU, format!("{who} found no GPU when it started"))
                .fix("Mend what else check finds, then restart it.")
                .command(restart)
                .as_root()
                .details(self.journal.clone());
        }
        if let Some(refused) = &self.refused {
            return broken(cause::KERNELS_REFUSED, format!("{who}: {refused}"))
                .fix("Update the device's host, or look at what it says; please report it, with what check found.")
                .command("vgpu-run check --service --bundle vgpu-run-check.tar.gz")
                .as_root();
        }
        let models = self.models.as_deref().unwrap_or_default();
        if let Some(model) = models.iter().find(|model| model.on_gpu == 0 && model.size > 0) {
            return broken(cause::MODEL_ON_CPU, format!("{who}: the model {} is in the CPU's memory", model.name))
                .fix("Unload it, and read the log when it is loaded again: it may be larger than the device's memory.")
                .command(format!("ollama stop {}", model.name));
        }
        if self.models.is_none() {
            return broken(cause::NOT_ANSWERING, format!("{who} does not answer at its address"))
                .fix("Read its log, and check the value of OLLAMA_HOST.");
        }
        let unseen = self.server.process.wrapped().is_none();
        let loaded = match models {
            [] => "no model is loaded".to_owned(),
            models => {
                let share = |model: &Model| {
                    format!("{} with {} % on the GPU", model.name, model.on_gpu * 100 / model.size.max(1))
                };
                models.iter().map(share).collect::<Vec<_>>().join(", ")
            }
        };
        if unseen {
            return Finding::skip(
                LINK,
                format!("{who} answers ({loaded}); this user may not see its environment"),
            );
        }
        let found = library.map(|library| format!(", found {library}")).unwrap_or_default();
        Finding::pass(LINK, format!("{who} was started by vgpu-run{found}; {loaded}"))
            .details(self.journal.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::diagnosis::Status;

    fn process(preload: Option<&str>, mapped: &[&str]) -> Process {
        let environment = preload.map(|preload| Environment::from_iter([("LD_PRELOAD", preload)]));
        let mapped = Some(mapped.iter().map(|file| (*file).to_owned()).collect());
        Process { pid: 7, parent: 1, words: vec!["ollama".into(), "serve".into()], environment, mapped }
    }

    const OURS: &str = "/proc/7/fd/900";

    fn unit(properties: &[(&str, &str)]) -> Unit {
        let properties =
            properties.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Unit { name: "ollama.service".into(), properties, ..Unit::default() }
    }

    fn judged(
        process: Process,
        runners: Vec<Process>,
        unit: Option<&Unit>,
        journal: Option<&str>,
        models: Option<&str>,
    ) -> Finding {
        let server = Server { process, runners };
        let models = models.map(|models| parse(models).unwrap());
        let Journal { found, refused } = journal.map(Journal::read).unwrap_or_default();
        State { server: &server, unit, journal: found, refused, models }.judge()
    }

    #[test]
    fn a_service_that_is_right() {
        let unit = unit(&[("ExecStart", "/usr/bin/vgpu-run -- /usr/bin/ollama serve")]);
        let line = "msg=\"inference compute\" id=0 library=CUDA compute=6.1 name=CUDA0";
        let models = r#"{"models":[{"name":"m","size":200,"size_vram":150}]}"#;
        let finding = judged(process(Some(OURS), &[]), Vec::new(), Some(&unit), Some(line), Some(models));
        assert_eq!(finding.status, Status::Pass);
        assert_eq!(
            finding.found,
            "ollama.service was started by vgpu-run, found CUDA; m with 75 % on the GPU"
        );
    }

    #[test]
    fn each_thing_that_can_be_wrong() {
        let plain = unit(&[("ExecStart", "/usr/bin/ollama serve")]);
        let wrapped = unit(&[("ExecStart", "/usr/bin/vgpu-run /usr/bin/ollama serve")]);
        let reload = unit(&[("ExecStart", "/usr/bin/vgpu-run x"), ("NeedDaemonReload", "yes")]);
        let none = Some(r#"{"models":[]}"#);
        let bare = || process(Some(""), &[]);
        let good = || process(Some(OURS), &[]);
        let of = |process, unit, journal, models| judged(process, Vec::new(), unit, journal, models);
        assert_eq!(of(bare(), Some(&plain), None, none).cause, Some(cause::NOT_WRAPPED));
        assert_eq!(of(bare(), Some(&wrapped), None, none).cause, Some(cause::STALE));
        assert_eq!(of(good(), Some(&reload), None, none).cause, Some(cause::STALE));
        assert_eq!(of(bare(), None, None, none).status, Status::Warn, "it is not what was asked about");
        let cpu = Some("msg=\"inference compute\" id=cpu library=cpu compute=\"\"");
        assert_eq!(of(good(), Some(&wrapped), cpu, none).cause, Some(cause::FOUND_CPU));
        let on_cpu = Some(r#"{"models":[{"name":"m","size":5,"size_vram":0}]}"#);
        assert_eq!(of(good(), Some(&wrapped), None, on_cpu).cause, Some(cause::MODEL_ON_CPU));
        assert_eq!(of(good(), Some(&wrapped), None, None).cause, Some(cause::NOT_ANSWERING));
        // A refusal by the host is reported with the host's explanation, unless it is older than the last
        // start.
        let words = "device 0: FunctionGet is refused with CUDA_ERROR_INVALID_PTX: kernel k: no frobnicate";
        let start = "msg=\"inference compute\" id=0 library=CUDA";
        let refused = format!("{start}\nvgpu[7] error: {words}\n");
        let finding = of(good(), Some(&wrapped), Some(&refused), none);
        assert_eq!(finding.cause, Some(cause::KERNELS_REFUSED));
        assert!(finding.found.ends_with("kernel k: no frobnicate"), "{}", finding.found);
        let over = format!("{refused}{start}\n");
        assert_eq!(of(good(), Some(&wrapped), Some(&over), none).cause, None);
        let runner = process(Some(""), &["/l/cuda_v12/libggml-cuda.so"]);
        assert_eq!(
            judged(good(), vec![runner], Some(&wrapped), None, none).cause,
            Some(cause::RUNNER_WITHOUT_SHIMS)
        );
        assert_eq!(of(process(None, &[]), None, None, none).status, Status::Skip);
    }

    #[test]
    fn a_runner_with_a_model_must_have_the_libraries() {
        let wrapped = unit(&[("ExecStart", "/usr/bin/vgpu-run /usr/bin/ollama serve")]);
        let words = ["llama-server", "--model", "/m"].map(str::to_owned).to_vec();
        let runner = Process { words, ..process(Some(""), &["/lib/libc.so.6"]) };
        let found =
            judged(process(Some(OURS), &[]), vec![runner], Some(&wrapped), None, Some(r#"{"models":[]}"#));
        assert_eq!(found.cause, Some(cause::RUNNER_WITHOUT_SHIMS));
    }

    #[test]
    fn values_of_log_lines() {
        let line = "time=x msg=\"inference compute\" library=CUDA name=\"a b\" id=";
        assert_eq!((value(line, "library"), value(line, "name")), (Some("CUDA"), Some("a b")));
        assert_eq!((value(line, "id"), value(line, "rary")), (None, None));
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_readers(text in ".{0,80}", key in "[a-z]{1,4}") {
            let _ = (parse(&text), value(&text, &key), value(&format!(" {key}={text}"), &key));
        }
    }
}
