//! Examination of the links, with a module for each link: `pub async fn examine(context: &mut CheckContext)
//! -> Finding`.

#![allow(clippy::unused_async, reason = "the walk has them all alike, and most wait for something")]

pub mod agreement;
pub mod backend;
pub mod data_path;
pub mod device;
pub mod discovery;
pub mod environment;
pub mod home;
pub mod host;
pub mod init;
pub mod kernel;
pub mod loader;
pub mod ollama;
pub mod pci;
pub mod permission;
pub mod service;
pub mod shims;
pub mod truth;
pub mod window;

use std::time::Duration;

use super::child::ChildOutcome;
use super::context::CheckContext;
use super::held::held;
use super::probe;
use crate::diagnosis::{Cause, Finding, LinkId, Status};
use crate::env::{CUDA_VISIBLE_DEVICES, VGPU_LOG};
use crate::error::{Failure, LauncherError};

/// Converts an error of the launcher to a finding of `link`. An error that belongs to another link counts as
/// unknown here, because that link held.
fn broken<R: LauncherError + 'static>(link: LinkId, error: R) -> Finding {
    let failure = Failure::from(error);
    match failure.finding() {
        Some(finding) if finding.link == link => finding,
        Some(finding) => Finding { link, cause: Some(Cause::unknown(link)), ..finding },
        None => Finding::unknown(link, failure.sentence()),
    }
}

/// Combines the findings of several devices, given with their addresses, into one: a failure that names every
/// device that fails and how many these are, otherwise the first warning, with the findings of the other
/// devices as details. Returns `None` if there is no finding.
fn together(mut findings: Vec<(String, Finding)>) -> Option<Finding> {
    if findings.len() < 2 {
        return findings.into_iter().next().map(|(_, finding)| finding);
    }
    if let Some(failure) = failures(&findings) {
        return Some(failure);
    }
    // What was not examined is not hidden by a warning.
    if let Some(at) = findings.iter().position(|(_, finding)| !finding.holds()) {
        let (_, skipped) = findings.remove(at);
        return Some(skipped.details(findings.iter().map(with_address)));
    }
    let found: Vec<String> = findings.iter().map(with_address).collect();
    let details = findings.iter().flat_map(|(_, finding)| finding.details.clone()).collect();
    let warns = findings.iter().find(|(_, finding)| finding.cause.is_some());
    let (_, worst) = warns.or(findings.first())?.clone();
    Some(Finding { found: found.join("; "), details, ..worst })
}

/// Returns what was found, behind the address of the device.
fn with_address((address, finding): &(String, Finding)) -> String {
    format!("{address}: {}", finding.found)
}

/// Combines the failures of several devices: the cause and the remedy are those of the first device that
/// fails and that no running server explains, or else of the first. Other remedies are details. Returns
/// `None` if no device fails.
fn failures(findings: &[(String, Finding)]) -> Option<Finding> {
    let failed = || findings.iter().filter(|(_, finding)| finding.status == Status::Fail);
    let decides = failed().find(|(_, finding)| held(finding).is_none());
    let (_, first) = decides.or_else(|| failed().next())?;
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for (address, finding) in failed() {
        match said.iter_mut().find(|(found, _)| *found == finding.found) {
            Some((_, addresses)) => addresses.push(address),
            None => said.push((&finding.found, vec![address])),
        }
    }
    let said: Vec<String> = said
        .into_iter()
        .map(|(found, addresses)| {
            let named = addresses.iter().all(|address| found.contains(address));
            if named { found.to_owned() } else { format!("{}: {found}", addresses.join(", ")) }
        })
        .collect();
    let others = findings.iter().filter(|(_, finding)| finding.status != Status::Fail);
    let others = others.map(with_address);
    let remedies = failed().filter_map(|(address, finding)| {
        let fix = finding.fix.as_ref().filter(|_| finding.fix != first.fix)?;
        let as_root = if fix.needs_root { " (as root)" } else { "" };
        Some(format!("remedy for {address}{as_root}: {}", fix.sentence()))
    });
    let evidence = failed().flat_map(|(address, finding)| {
        finding.details.iter().map(move |detail| format!("{address}: {detail}"))
    });
    let details = remedies.chain(others).chain(evidence).collect();
    // The words must not be those of a part that works.
    let found = match (failed().count(), findings.len()) {
        (1, all) => format!("1 device of {all} fails: {}", said.join("; ")),
        (count, all) => format!("{count} devices of {all} fail: {}", said.join("; ")),
    };
    Some(Finding { found, details, ..first.clone() })
}

/// Runs the probe with `words`, which depend on the CUDA major version, in the environment of the backend
/// that started. CUDA_VISIBLE_DEVICES limits the probe to the device `only`, if given. Returns the outcome
/// with the CUDA major version, or the finding of a link that cannot be examined without a backend.
async fn ask_with_backend(
    context: &mut CheckContext,
    link: LinkId,
    words: impl FnOnce(Option<u32>) -> [String; 3],
    only: Option<&str>,
    limit: Duration,
) -> Result<(ChildOutcome, Option<u32>), Finding> {
    let Some((variant, major)) = context.started.clone() else {
        return Err(Finding::skip(link, "no backend started"));
    };
    let Some(installed) = context.target().ollama.clone() else {
        return Err(Finding::skip(link, "there is no Ollama"));
    };
    let mut environment = variant.environment(&installed, &context.environment);
    environment.set(VGPU_LOG, "warn");
    if let Some(only) = only {
        environment.set(CUDA_VISIBLE_DEVICES, only);
    }
    match probe::run_probe(context, words(major), &environment, limit).await {
        Ok(outcome) => Ok((outcome, major)),
        Err(why) => Err(unable(context, link, "start vgpu-probe", &why)),
    }
}

/// Returns the finding for a link that could not be examined because check itself failed.
fn unable(context: &mut CheckContext, link: LinkId, what: &str, why: &dyn std::fmt::Display) -> Finding {
    context.incomplete.push(link.as_str().to_owned());
    Finding::skip(link, format!("not examined: failed to {what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::cause;

    #[test]
    fn several_devices_are_all_described() {
        let pass = || ("5".to_owned(), Finding::pass(LinkId::Host, "a"));
        let warned = || ("6".to_owned(), Finding::warn(cause::host::ECHO_SLOW, "b").detail("slow"));
        let broken = || ("7".to_owned(), Finding::fail(cause::host::BAD_FACTS, "c"));
        let both = together(vec![pass(), warned()]).unwrap();
        assert_eq!((both.found.as_str(), both.cause), ("5: a; 6: b", Some(cause::host::ECHO_SLOW)));
        assert_eq!(together(vec![pass()]).unwrap().found, "a");
        assert_eq!(together(vec![broken()]).unwrap().found, "c", "of one device nothing is counted");
        assert_eq!(together(Vec::new()), None);
    }

    #[test]
    fn each_device_that_fails_is_named() {
        let of = |address: &str, finding: Finding| (address.to_owned(), finding);
        let mute = |address: &str| {
            of(address, Finding::fail(cause::device::DEVICE_MUTE, format!("{address} is silent")))
        };
        let facts =
            |address: &str| of(address, Finding::fail(cause::host::BAD_FACTS, "bad facts").detail("0"));
        let pass = of("8", Finding::pass(LinkId::Host, "fine"));
        let one = together(vec![pass.clone(), facts("7")]).unwrap();
        assert_eq!((one.status, &*one.found), (Status::Fail, "1 device of 2 fails: 7: bad facts"));
        assert_eq!(one.details, ["8: fine", "7: 0"], "what works is said too");
        let all = together(vec![facts("6"), facts("7")]).unwrap();
        assert_eq!(all.found, "2 devices of 2 fail: 6, 7: bad facts");
        let two = together(vec![facts("6"), mute("7"), pass]).unwrap();
        assert_eq!(two.found, "2 devices of 3 fail: 6: bad facts; 7 is silent");
        assert_eq!(two.cause, Some(cause::host::BAD_FACTS), "the first one's");
        assert!(two.details[0].starts_with("remedy for 7"), "the other's remedy: {:?}", two.details);
        let two = together(vec![mute("5"), facts("6")]).unwrap();
        assert_eq!(
            two.cause,
            Some(cause::host::BAD_FACTS),
            "a server that holds the turn excuses no bad facts"
        );
        assert!(!Finding { status: Status::Warn, ..two }.in_part());
    }

    #[test]
    fn what_was_not_examined_hides_no_failure() {
        let skip = || ("6".to_owned(), Finding::skip(LinkId::Window, "not reached"));
        let broken = ("7".to_owned(), Finding::fail(cause::window::NO_CHANNEL, "full"));
        assert_eq!(together(vec![skip(), broken]).unwrap().found, "1 device of 2 fails: 7: full");
        let pass = ("5".to_owned(), Finding::pass(LinkId::Window, "fine"));
        let skipped = together(vec![pass, skip()]).unwrap();
        assert_eq!((skipped.status, &*skipped.details), (Status::Skip, &["5: fine".to_owned()][..]));
    }
}
