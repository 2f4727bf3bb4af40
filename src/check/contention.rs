//! Excuses failures that a running server causes. If a server has all channels, the memory, or the turn of a
//! version 1 device, a check is refused as a second server would be, although the server works. Such findings
//! become warnings that name the server.

use super::context::CheckContext;
use super::facts::RunningServer;
use super::held::{HeldResource, held};
use super::links;
use crate::diagnosis::{Finding, LinkId, Status};
use crate::ollama::models::LoadedModel;

/// Turns findings into warnings if the resources of a running server explain them.
pub async fn excuse(context: &mut CheckContext, findings: &mut [Finding]) {
    if !findings.iter().any(|finding| held(finding).is_some()) {
        return;
    }
    if !findings.iter().any(|finding| finding.link == LinkId::Service) {
        // Only some links were asked for; the server is looked at for what it holds.
        let _ = links::service::examine(context).await;
    }
    let Some(running) = context.running.clone().filter(RunningServer::works) else { return };
    let turns: Vec<u32> =
        context.functions.iter().filter_map(links::device::turn_holder).map(|(process, _)| process).collect();
    let mut any = false;
    for finding in findings.iter_mut() {
        let holds = match held(finding) {
            None => false,
            Some(HeldResource::Session) => running.has_session(),
            Some(HeldResource::Owner) => running.models.iter().flatten().any(|model| model.on_gpu > 0),
            Some(HeldResource::Turn) => turns.iter().any(|process| running.has(*process)),
        };
        if holds {
            *finding = excused(finding, &running);
            any = true;
        }
    }
    // The check started a second server, which had no room. The running server is the evidence instead.
    let truth = findings.iter_mut().find(|finding| finding.link == LinkId::Truth);
    if let Some(truth) = truth.filter(|truth| any && truth.status == Status::Fail) {
        let found = format!("the running Ollama (process {}) works: {}", running.pid, loaded(&running));
        let spoken = Finding::pass(LinkId::Truth, found).detail(format!("beside it {}", truth.found));
        *truth = Finding { elapsed: truth.elapsed, ..spoken.details(std::mem::take(&mut truth.details)) };
    }
}

/// Describes the models that a working server has loaded, for messages.
fn loaded(running: &RunningServer) -> String {
    let models: Vec<String> = running.models.iter().flatten().map(LoadedModel::shown).collect();
    if models.is_empty() { "it found the GPU".to_owned() } else { models.join(", ") }
}

fn excused(finding: &Finding, running: &RunningServer) -> Finding {
    let loaded = loaded(running);
    Finding {
        status: Status::Warn,
        found: format!(
            "{}; the running Ollama (process {}) holds it and works: {loaded}",
            finding.found, running.pid
        ),
        expected: None,
        fix: None,
        ..finding.clone()
    }
    .detail("a second server beside it would find no room; the links after this were not tried")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::facts::HeldSession;
    use crate::cli::{CheckOptions, Options};
    use crate::diagnosis::cause::{device, truth, window};

    fn running(wrapped: bool, alive: bool, on_gpu: u64) -> RunningServer {
        RunningServer {
            pid: 7,
            children: vec![8],
            address: "127.0.0.1:1".parse().unwrap(),
            wrapped: Some(wrapped),
            found: None,
            models: Some(vec![LoadedModel { name: "m".into(), size: 10, on_gpu }]),
            sessions: vec![HeldSession { process: 8, function: "0000:00:05.0".parse().unwrap(), alive }],
        }
    }

    fn excused<const N: usize>(mut findings: [Finding; N], running: Option<RunningServer>) -> [Finding; N] {
        let mut context = CheckContext::new(Options::default(), CheckOptions::default());
        context.running = running;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(excuse(&mut context, &mut findings));
        findings
    }

    fn after(finding: Finding, running: Option<RunningServer>) -> Finding {
        let [finding, _] = excused([finding, Finding::skip(LinkId::Service, "seen")], running);
        finding
    }

    #[test]
    fn what_a_healthy_server_holds_is_a_warning() {
        let fail = || Finding::fail(window::NO_CHANNEL, "all 1 channels are in use");
        let finding = after(fail(), Some(running(true, true, 10)));
        assert_eq!((finding.status, finding.cause), (Status::Warn, Some(window::NO_CHANNEL)));
        assert_eq!(
            finding.found,
            "all 1 channels are in use; the running Ollama (process 7) holds it and works: m with 100 % on the GPU"
        );
        assert_eq!(finding.fix, None);
        for (wrapped, alive, on_gpu) in [(false, true, 10), (true, false, 10), (true, true, 0)] {
            let finding = after(fail(), Some(running(wrapped, alive, on_gpu)));
            assert_eq!(finding.status, Status::Fail, "{wrapped} {alive} {on_gpu}");
        }
        assert_eq!(after(fail(), None).status, Status::Fail);
        let second = || Finding::fail(truth::FOUND_CPU, "a second finds none");
        let service = || Finding::skip(LinkId::Service, "seen");
        let [_, _, spoken] = excused([fail(), service(), second()], Some(running(true, true, 10)));
        assert_eq!(
            (spoken.status, spoken.details),
            (Status::Pass, vec!["beside it a second finds none".into()])
        );
        let [_, _, alone] = excused([fail(), service(), second()], Some(running(true, false, 10)));
        assert_eq!(alone.status, Status::Fail, "its sessions are dead");
        let other = Finding::fail(window::WINDOW_UNMAPPABLE, "no window");
        assert_eq!(after(other, Some(running(true, true, 10))).status, Status::Fail);
        let turn = Finding::fail(device::DEVICE_MUTE, "nobody answers");
        assert_eq!(
            after(turn, Some(running(true, true, 10))).status,
            Status::Fail,
            "it has not got the turn"
        );
    }
}
