//! Derives the finding about a running server from the observations.

use crate::check::facts::HeldSession;
use crate::check::unit::Unit;
use crate::diagnosis::cause::service as cause;
use crate::diagnosis::fix::service as fix;
use crate::diagnosis::{Cause, Finding, LinkId};
use crate::ollama::log::FoundDevice;
use crate::ollama::models::LoadedModel;
use crate::ollama::processes::{OllamaServer, RunningProcess};
use crate::service;

const LINK: LinkId = LinkId::Service;

/// Observations of a running Ollama.
pub struct ObservedServer<'a> {
    /// Server and the processes that it started.
    pub server: &'a OllamaServer,
    /// Unit that runs the server, if one was named.
    pub unit: Option<&'a Unit>,
    /// Devices that the server's log lists. Empty if they are unknown.
    pub found: Vec<FoundDevice>,
    /// Latest refusal by the host since the server's start, according to its log.
    pub refused: Option<String>,
    /// Models that the server has loaded. `None` if it does not report them.
    pub models: Option<Vec<LoadedModel>>,
    /// Whether the server gave no answer in time although its processes were busy.
    pub busy: bool,
    /// Sessions of the server's processes, as far as they could be examined.
    pub sessions: Vec<HeldSession>,
}

impl ObservedServer<'_> {
    /// Returns the server's log lines about the devices that it found.
    fn lines(&self) -> impl Iterator<Item = &str> {
        self.found.iter().map(|found| found.line.as_str())
    }

    /// Returns the processes with a session that the device no longer has.
    fn dead(&self) -> impl Iterator<Item = &RunningProcess> {
        let dead = |process: &&RunningProcess| {
            self.sessions.iter().any(|session| session.process == process.pid && !session.alive)
        };
        self.server.processes().filter(dead)
    }

    /// Describes the models that belong to ended sessions, and returns their names. The names are empty if it
    /// is unknown which of several models are concerned.
    fn lost_sessions(&self, who: &str) -> Option<(String, Vec<String>)> {
        let dead: Vec<&RunningProcess> = self.dead().collect();
        let first = dead.first()?;
        let holding = self.server.runners.iter().filter(|process| process.holds_model()).count();
        let all = dead.iter().filter(|process| process.holds_model()).count() == holding;
        let loaded = self.models.iter().flatten().filter(|model| model.on_gpu > 0);
        let names: Vec<String> =
            loaded.map(|model| model.name.clone()).filter(|_| all && holding > 0).collect();
        let over = "the device was restarted since, and the next use fails";
        let found = match &names[..] {
            [] => format!("{who}: the session of its process {} is over: {over}", first.pid),
            [name] => format!("{who}: the session that holds the model {name} is over: {over}"),
            names => {
                format!("{who}: the sessions that hold the models {} are over: {over}", names.join(", "))
            }
        };
        Some((found, names))
    }

    /// Returns the finding for the first problem that applies.
    pub fn judge(&self) -> Finding {
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
                .with("restart", restart);
            }
            Some(false) => {
                let finding = broken(cause::NOT_WRAPPED, format!("{who} was not started by vgpu-run"));
                return match self.unit {
                    Some(unit) => {
                        finding.fix(fix::WRAP).with("command", service::install_command(&unit.name))
                    }
                    None => finding,
                };
            }
            _ => {}
        }
        if self.unit.is_some_and(|unit| unit.on("NeedDaemonReload")) {
            return broken(cause::STALE, format!("{who} was changed, but systemd has not reloaded it"))
                .with("restart", restart);
        }
        // Without our libraries the backend's own opening fails, so that it need not be there.
        let bare = |runner: &&RunningProcess| {
            (runner.holds_model() || runner.backend().is_some()) && runner.has_shims() == Some(false)
        };
        if let Some(runner) = self.server.runners.iter().find(bare) {
            return broken(
                cause::RUNNER_WITHOUT_SHIMS,
                format!(
                    "{who}: its process {} holds a model and has not loaded vgpu-run's libraries",
                    runner.pid
                ),
            )
            .with("restart", restart)
            .detail(runner.shown());
        }
        if let Some((found, models)) = self.lost_sessions(&who) {
            let finding = broken(cause::SESSION_DEAD, found)
                .expected("a session that the device knows")
                .details(self.dead().map(|process| format!("its session has ended: {}", process.shown())));
            return match &models[..] {
                [] => finding.with("restart", restart),
                models => {
                    let stop: Vec<String> = models.iter().map(|name| format!("ollama stop {name}")).collect();
                    finding.fix(fix::UNLOAD_DEAD).with("stop", stop.join("; "))
                }
            };
        }
        if self.found.iter().any(FoundDevice::is_cpu) {
            return broken(cause::FOUND_CPU, format!("{who} found no GPU when it started"))
                .with("restart", restart)
                .details(self.lines());
        }
        if let Some(refused) = &self.refused {
            return broken(cause::KERNELS_REFUSED, format!("{who}: {refused}"));
        }
        let models = self.models.as_deref().unwrap_or_default();
        let on_cpu: Vec<&str> =
            models.iter().filter(|model| model.on_cpu()).map(|model| model.name.as_str()).collect();
        if let [first, more @ ..] = &on_cpu[..] {
            let what = match more {
                [] => format!("the model {first} is"),
                _ => format!("the models {} are", on_cpu.join(", ")),
            };
            let stop: Vec<String> = on_cpu.iter().map(|name| format!("ollama stop {name}")).collect();
            return broken(cause::MODEL_ON_CPU, format!("{who}: {what} in the CPU's memory"))
                .fix(fix::UNLOAD)
                .with("stop", stop.join("; "));
        }
        if self.busy {
            return Finding::skip(LINK, format!("{who} did not answer in time; its processes are at work"));
        }
        if self.models.is_none() {
            let finding = broken(cause::NOT_ANSWERING, format!("{who} does not answer at its address"));
            return match self.unit {
                Some(unit) => finding.fix(fix::READ_LOG).with("unit", &unit.name),
                None => finding,
            };
        }
        let unseen = self.server.process.wrapped().is_none();
        let loaded = match models {
            [] => "no model is loaded".to_owned(),
            models => models.iter().map(LoadedModel::shown).collect::<Vec<_>>().join(", "),
        };
        if unseen {
            return Finding::skip(
                LINK,
                format!("{who} answers ({loaded}); this user may not see its environment"),
            );
        }
        let mut libraries: Vec<&str> = self.found.iter().map(|found| found.library.as_str()).collect();
        libraries.dedup();
        let found =
            if libraries.is_empty() { String::new() } else { format!(", found {}", libraries.join(", ")) };
        Finding::pass(LINK, format!("{who} was started by vgpu-run{found}; {loaded}")).details(self.lines())
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::ServerLog;
    use super::*;
    use crate::diagnosis::Status;
    use crate::env::Environment;
    use crate::ollama::models;

    fn process(preload: Option<&str>, mapped: &[&str]) -> RunningProcess {
        let environment = preload.map(|preload| Environment::from_iter([("LD_PRELOAD", preload)]));
        let mapped = Some(mapped.iter().map(|file| (*file).to_owned()).collect());
        RunningProcess {
            pid: 7,
            parent: 1,
            user: 0,
            words: vec!["ollama".into(), "serve".into()],
            environment,
            mapped,
        }
    }

    const OURS: &str = "/proc/7/fd/900";

    fn judged(
        process: RunningProcess,
        runners: Vec<RunningProcess>,
        unit: Option<&Unit>,
        journal: Option<&str>,
        models: Option<&str>,
    ) -> Finding {
        let server = OllamaServer { process, runners, listens: None };
        let models = models.map(|models| models::parse(models).unwrap());
        let ServerLog { found, refused, .. } = journal.map(ServerLog::read).unwrap_or_default();
        ObservedServer { server: &server, unit, found, refused, models, busy: false, sessions: Vec::new() }
            .judge()
    }

    #[test]
    fn a_service_that_is_right() {
        let unit = Unit::with(&[("ExecStart", "/usr/bin/vgpu-run -- /usr/bin/ollama serve")]);
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
        let plain = Unit::with(&[("ExecStart", "/usr/bin/ollama serve")]);
        let wrapped = Unit::with(&[("ExecStart", "/usr/bin/vgpu-run /usr/bin/ollama serve")]);
        let reload = Unit::with(&[("ExecStart", "/usr/bin/vgpu-run x"), ("NeedDaemonReload", "yes")]);
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
        let start = "msg=\"Listening on 127.0.0.1:1\"\nmsg=\"inference compute\" id=0 library=CUDA";
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
        let wrapped = Unit::with(&[("ExecStart", "/usr/bin/vgpu-run /usr/bin/ollama serve")]);
        let words = ["llama-server", "--model", "/m"].map(str::to_owned).to_vec();
        let runner = RunningProcess { words, ..process(Some(""), &["/lib/libc.so.6"]) };
        let found =
            judged(process(Some(OURS), &[]), vec![runner], Some(&wrapped), None, Some(r#"{"models":[]}"#));
        assert_eq!(found.cause, Some(cause::RUNNER_WITHOUT_SHIMS));
    }
}
