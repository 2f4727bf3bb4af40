//! Corrects the findings of earlier links by what the server did. The links predict the server's behaviour,
//! so the server's own report is authoritative.

use crate::diagnosis::catalogue::{self, cause};
use crate::diagnosis::fix::truth as fix;
use crate::diagnosis::{Cause, Finding, Fix, LinkId, Status};
use crate::ollama::era::Era;

/// Links that only predict what a server finds at its start. The other links concern what a server does
/// later, or hold independently of it.
const PREDICT: [LinkId; 5] =
    [LinkId::Kernel, LinkId::Permission, LinkId::Shims, LinkId::Loader, LinkId::Discovery];
/// Links that predict the discovery of a server that loads its backends for it. A server of the first era
/// uses only the driver.
const PREDICT_BACKEND: [LinkId; 5] =
    [LinkId::Environment, LinkId::Ollama, LinkId::Backend, LinkId::Init, LinkId::Agreement];

/// Causes that have an effect only when a model is loaded, so that a successful discovery does not disprove
/// them.
const LATER: [Cause; 18] = [
    // It is told where it is not disproved.
    cause::kernel::CALLS_REFUSED,
    cause::environment::API_KEY,
    cause::environment::API_PREFIX,
    cause::environment::CONTEXT_TOO_SMALL,
    cause::environment::MODEL_FILE,
    cause::environment::NUM_GPU_ZERO,
    cause::environment::SPLIT_MODE,
    cause::environment::TLS,
    cause::environment::UNIFIED_MEMORY,
    cause::loader::RESOURCE_LIMIT,
    cause::ollama::IMPORT_MISSING,
    cause::backend::NO_ARCHITECTURE,
    cause::backend::PTX_TOO_NEW,
    cause::agreement::UUID,
    cause::discovery::RESOURCE_LIMIT,
    cause::discovery::KILLED_BY_FILTER,
    cause::discovery::NO_CPU_BACKEND,
    cause::discovery::SETTING_REFUSED,
];

/// Causes that name no reason, so that the last link that holds is of use.
const UNEXPLAINED: [Cause; 3] =
    [cause::truth::FOUND_CPU, cause::truth::SERVER_DIED, cause::truth::SERVER_SILENT];

/// Returns whether a finding names no reason.
pub fn is_unexplained(finding: &Finding) -> bool {
    finding.cause.is_some_and(|cause| UNEXPLAINED.contains(&cause))
}

/// Returns whether a failure is disproved by a server of that era that found the GPU.
fn disproved(finding: &Finding, era: Era) -> bool {
    let link = &finding.link;
    let predicts = PREDICT.contains(link)
        || !era.by_path() && PREDICT_BACKEND.contains(link)
        // The real home directory is tried beside the server's run.
        || finding.cause == Some(cause::ollama::HOME_REFUSED);
    let later = finding.cause.is_some_and(|cause| LATER.contains(&cause));
    finding.status == Status::Fail && predicts && !later
}

/// Makes the findings agree with the report of the server, if a server of that era was started. Returns
/// whether a failure was disproved.
pub fn reconcile(findings: &mut [Finding], era: Era) -> bool {
    let Some((truth, before)) = findings.split_last_mut().filter(|(last, _)| last.link == LinkId::Truth)
    else {
        return false;
    };
    match truth.status {
        // A server that works with a reservation has found the GPU, too.
        Status::Pass | Status::Warn => {
            let mut any = false;
            for finding in before.iter_mut().filter(|finding| disproved(finding, era)) {
                finding.status = Status::Warn;
                finding.found.push_str("; Ollama's server finds the GPU all the same");
                any = true;
            }
            any
        }
        Status::Fail => {
            if let Some(broken) = before.iter().find(|finding| finding.status == Status::Fail) {
                // What refuses a link also refuses the launcher, which says so in words of its own.
                let refused = truth.cause == Some(cause::truth::LAUNCHER_REFUSED);
                // The running service is not the server that was started here.
                if (is_unexplained(truth) || refused) && broken.link != LinkId::Service {
                    truth.details.insert(0, format!("the broken link {} predicts it", title(broken.link)));
                    let usual = truth.cause.and_then(Cause::remedy).map(Fix::from);
                    if refused || truth.fix == usual {
                        truth.fix = Some(Fix::from(fix::PREDICTED).with("link", title(broken.link)));
                    }
                }
                return false;
            }
            if !is_unexplained(truth) {
                return false;
            }
            let mut chain = before.iter().filter(|finding| finding.link != LinkId::Service);
            if let Some(last) = chain.rfind(|finding| finding.holds()) {
                let shown = format!("; the last link that holds is {}", title(last.link));
                truth.found.push_str(&shown);
            }
            false
        }
        Status::Skip => false,
    }
}

/// Returns the name of a link in the report for people.
fn title(link: LinkId) -> &'static str {
    catalogue::entry(link).title
}

/// Makes failures of the warnings about the running server. No other server can be started beside one that
/// has the address, so that its clients get what it is.
pub fn hold_to_account(findings: &mut [Finding]) {
    let service = findings.iter_mut().filter(|finding| finding.link == LinkId::Service);
    for finding in service.filter(|finding| finding.status == Status::Warn && finding.cause.is_some()) {
        finding.status = Status::Fail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reconciled(mut findings: Vec<Finding>) -> Vec<Finding> {
        let _ = reconcile(&mut findings, Era::C);
        findings
    }

    fn issues(findings: &[Finding]) -> Vec<(Status, String)> {
        findings.iter().filter_map(|finding| Some((finding.status, finding.issue()?))).collect()
    }

    #[test]
    fn a_server_that_finds_the_gpu_disproves_predictions_alone() {
        let found = reconciled(vec![
            Finding::fail(cause::environment::NUM_GPU_ZERO, "layers"),
            Finding::fail(cause::discovery::CRASHED, "died"),
            Finding::fail(cause::data_path::COPY_WRONG, "wrong"),
            Finding::fail(cause::service::NOT_WRAPPED, "bare"),
            Finding::fail(cause::discovery::NO_CPU_BACKEND, "no load succeeds"),
            Finding::pass(LinkId::Truth, "CUDA"),
        ]);
        let status = |at: usize| found[at].status;
        assert_eq!(
            [status(0), status(1), status(2), status(3), status(4)],
            [Status::Fail, Status::Warn, Status::Fail, Status::Fail, Status::Fail]
        );
        assert_eq!(found[1].issue().as_deref(), Some("discovery/crashed"));
        assert!(found[1].found.ends_with("the GPU all the same"), "{}", found[1].found);
        assert!(!reconcile(&mut found.clone(), Era::C), "once");
    }

    #[test]
    fn a_server_of_the_first_era_has_not_loaded_its_backend() {
        let mut found = [
            Finding::fail(cause::backend::NEEDED_MISSING, "no libggml-base.so"),
            Finding::fail(cause::discovery::NO_DEVICE, "none"),
            Finding::pass(LinkId::Truth, "cuda"),
        ];
        assert!(reconcile(&mut found, Era::A));
        assert_eq!([found[0].status, found[1].status], [Status::Fail, Status::Warn]);
    }

    #[test]
    fn a_server_that_finds_none_is_the_headline_where_all_else_holds() {
        let truth = || Finding::fail(cause::truth::FOUND_CPU, "cpu");
        let found = reconciled(vec![
            Finding::pass(LinkId::Discovery, "CUDA0"),
            Finding::pass(LinkId::Service, "fine"),
            truth(),
        ]);
        assert_eq!(found[2].found, "cpu; the last link that holds is Ollama's discovery");
        let found = reconciled(vec![Finding::fail(cause::backend::BACKEND_MISSING, "none"), truth()]);
        assert_eq!(found[1].details, ["the broken link CUDA backend predicts it"]);
        assert!(
            found[1].fix.as_ref().unwrap().text.starts_with("Mend the link CUDA backend"),
            "{:?}",
            found[1]
        );
        assert_eq!(issues(&found)[0], (Status::Fail, "backend/backend-missing".into()));
    }

    #[test]
    fn a_server_that_has_the_address_answers_for_itself() {
        let mut found = [
            Finding::warn(cause::environment::LOADER_DEBUG, "debug"),
            Finding::warn(cause::service::FOUND_CPU, "cpu"),
            Finding::pass(LinkId::Truth, "CUDA"),
        ];
        hold_to_account(&mut found);
        assert_eq!(found.map(|finding| finding.status), [Status::Warn, Status::Fail, Status::Pass]);
    }

    #[test]
    fn without_the_servers_word_nothing_changes() {
        let found =
            vec![Finding::fail(cause::discovery::CRASHED, "died"), Finding::skip(LinkId::Truth, "no time")];
        assert_eq!(reconciled(found.clone()), found);
        assert_eq!(reconciled(found[..1].to_vec()), found[..1]);
    }
}
