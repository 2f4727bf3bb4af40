//! Link `truth`: starts Ollama's own server as PROGRAM would be started, and reads which devices it computes
//! on. Earlier links predict what Ollama will do; this link observes it, and overrides them if they disagree
//! ([`reconcile`]).

mod holder;
mod judge;
mod reconcile;
mod start;
mod transient;
mod values;

use std::time::Duration;

pub use reconcile::{hold_to_account, reconcile};

use super::loader::follow;
use super::shims::ensure_user;
use crate::check::child::ChildEnd;
use crate::check::context::CheckContext;
use crate::check::limits::{self, Limit};
use crate::check::messages::{Facts, Serve};
use crate::check::steps::Steps;
use crate::check::{child, words};
use crate::diagnosis::{Cause, Finding, Fix, LinkId, Status};
use judge::{Devices, judge};

const LINK: LinkId = LinkId::Truth;
/// Time limit for the worker on a very slow machine. Normally the worker itself decides how long it waits.
const LIMIT: Duration = Duration::from_secs(55);
/// Time for the worker to end all processes and remove its files.
const GRACE: Duration = Duration::from_secs(6);

/// Examines the link and returns its finding.
pub async fn examine(context: &mut CheckContext) -> Finding {
    if context.options.no_ollama {
        return Finding::skip(LINK, "not asked for (--no-ollama)");
    }
    ensure_user(context).await;
    if context.target().ollama.is_none() {
        // The program may be a script that becomes an Ollama.
        follow(context).await;
    }
    let Some(ollama) = context.target().ollama.clone() else {
        return Finding::skip(LINK, "there is no Ollama to ask");
    };
    if let Some(error) = &context.unit_error {
        return Finding::skip(LINK, error.to_string());
    }
    let (command, environment) = match start::command(context) {
        Ok(started) => started,
        Err(why) => return not_known(context, &why),
    };
    let outcome = match child::run_until_closed(command, &environment, context.time(LIMIT), GRACE).await {
        Ok(outcome) => outcome,
        Err(error) => return not_known(context, &error.to_string()),
    };
    if matches!(outcome.end, ChildEnd::TimedOut(_)) {
        context.unanswered.push("ollama serve".to_owned());
    }
    let served = Steps::read(&outcome.stdout).said::<Serve>().unwrap_or_default();
    context.calls.clone_from(&served.calls);
    match judge(&outcome, &devices(context)) {
        Ok(finding) => {
            let finding = values::consider(context, &served, finding, &outcome.stderr).await;
            let unit = context.unit.as_ref();
            let finding = words::blamed(finding, &context.environment, Some(&ollama.libraries), unit);
            let finding = finding.details(context.reservation.clone());
            // A unit has limits of its own.
            if context.unit.is_some() {
                return finding;
            }
            match limits::scarce() {
                Some(limit) => limited(finding, limit),
                None => finding,
            }
        }
        Err(why) => not_known(context, &why),
    }
}

/// Returns the finding with the remedy for a limit of this process, if it is a failure that the limit may
/// explain: one whose words are those of this limit, or one that has no reason and no remedy but that of its
/// cause.
fn limited(finding: Finding, limit: Limit) -> Finding {
    let explains = match limits::named(&finding.found) {
        Some(named) => limits::meant(named, Some(limit)) == limit,
        None => without_reason(&finding),
    };
    if finding.status == Status::Fail && explains { finding.fix(limit.fix()) } else { finding }
}

/// Returns whether a finding is a failure that has no reason and no remedy but that of its cause.
fn without_reason(finding: &Finding) -> bool {
    let usual = finding.cause.and_then(Cause::remedy).map(Fix::from);
    finding.status == Status::Fail && reconcile::is_unexplained(finding) && finding.fix == usual
}

/// Skips the link because the server's answer is unknown. The check is then incomplete.
fn not_known(context: &mut CheckContext, why: &str) -> Finding {
    context.incomplete.push(LINK.as_str().to_owned());
    Finding::skip(LINK, format!("not known: {why}"))
}

/// Returns the VGPU-STUB devices with all names that a server's log may use for them.
fn devices(context: &CheckContext) -> Devices {
    let functions = if context.functions.is_empty() {
        vgpu_transport::scan(&context.root).unwrap_or_default()
    } else {
        context.functions.clone()
    };
    let facts: Vec<Facts> = context.opened.iter().filter_map(|opened| opened.steps.said()).collect();
    Devices {
        addresses: functions.iter().map(|function| function.address.to_string()).collect(),
        uuids: facts.iter().map(|facts| facts.uuid.clone()).collect(),
        names: facts.into_iter().map(|facts| facts.name).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::cause::truth as cause;
    use crate::diagnosis::fix::truth as fix;

    #[test]
    fn a_low_limit_is_no_remedy_for_a_failure_with_a_reason() {
        let of = |finding: Finding| limited(finding, Limit::Stack).fix.unwrap_or_else(|| "none".into()).text;
        let lift = Limit::Stack.fix();
        assert_eq!(
            of(Finding::fail(cause::SERVER_DIED, "ended by signal 11")),
            lift,
            "nothing else says why"
        );
        let scarce = || Finding::fail(cause::SERVER_DIED, "x: newosproc").fix(fix::SCARCE);
        assert_ne!(of(scarce()), lift, "its words name another limit");
        assert_eq!(limited(scarce(), Limit::Data).fix, scarce().fix(Limit::Data.fix()).fix);
        let taken = || Finding::fail(cause::ADDRESS_TAKEN, "process 7 listens at 127.0.0.1:11434");
        assert_ne!(of(taken()), lift);
        let locked = Finding::fail(cause::SERVER_SILENT, "it waits for a lock").fix(fix::LOCKED);
        assert_ne!(of(locked), lift);
        assert_eq!(of(Finding::pass(LINK, "fine")), "none");
    }
}
