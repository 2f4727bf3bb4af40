//! Walks the chain in order. A link is examined if the links that it needs hold. Each link has a time limit,
//! and so has the whole walk.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};

use vgpu_findings::busy;
use vgpu_findings::child::may_be_filtered;
use vgpu_findings::finding::unmet;

use super::context::CheckContext;
use super::messages::RefusedCalls;
use super::{contention, filter, http, limits, links, obstacles};
use crate::diagnosis::catalogue::{self, LINKS, cause};
use crate::diagnosis::{Finding, LinkId};
use crate::program::find;
use crate::waits;

/// A link with the function that examines it.
struct LinkStep {
    link: LinkId,
    /// Time limit for the link. The operations of the link usually have shorter limits.
    limit: Duration,
    examine: for<'a> fn(&'a mut CheckContext) -> Pin<Box<dyn Future<Output = Finding> + 'a>>,
}

macro_rules! steps {
    ($($link:ident $module:ident $seconds:literal)*) => {
        /// Links that can be examined, in the order of the chain.
        static STEPS: &[LinkStep] = &[$(LinkStep {
            link: LinkId::$link,
            limit: Duration::from_secs($seconds),
            examine: |context| Box::pin(links::$module::examine(context)),
        }),*];
    };
}

steps! {
    Kernel kernel 5
    Pci pci 5
    Permission permission 5
    Device device 20
    Window window 5
    Host host 5
    Shims shims 10
    Environment environment 5
    Loader loader 10
    Ollama ollama 10
    Backend backend 15
    Init init 35
    Agreement agreement 12
    DataPath data_path 25
    Discovery discovery 60
    Service service 20
    Truth truth 65
}

/// Event that a walk reports.
#[derive(Debug)]
pub enum WalkEvent<'a> {
    /// The examination of a link starts.
    Begun(LinkId),
    /// The examination of a link has ended with this finding. The context lists what could not be examined so
    /// far.
    Found(&'a Finding, &'a CheckContext),
}

/// Walks the chain. Calls `tell` before and after it examines a link.
pub async fn walk(context: &mut CheckContext, mut tell: impl FnMut(WalkEvent<'_>)) -> Vec<Finding> {
    let wanted = wanted(&context.options.only);
    let steps: Vec<&LinkStep> = STEPS.iter().filter(|step| wanted.contains(&step.link)).collect();
    let mut findings: Vec<Finding> = limits::too_low().into_iter().collect();
    if !findings.is_empty() {
        // Further links would exceed the same limit.
        let others = steps.iter().map(|step| step.link).filter(|link| *link != LinkId::Kernel);
        findings.extend(others.map(|link| Finding::skip(link, "not reached (no room)")));
        return findings;
    }
    if let Some(why) = limits::too_few() {
        context.incomplete.extend(steps.iter().map(|step| step.link.as_str().to_owned()));
        return steps.iter().map(|step| Finding::skip(step.link, why.clone())).collect();
    }
    // Number of gaps from before any start failed.
    let mut gaps = 0;
    for step in &steps {
        if obstacles::none() {
            gaps = context.incomplete.len();
        }
        let finding = match unmet(step.link, &findings) {
            Some(need) => Finding::skip(step.link, format!("not reached (needs {})", need.as_str())),
            None => measured(step, context, &mut tell).await,
        };
        tell(WalkEvent::Found(&finding, context));
        findings.push(finding);
    }
    if context.script.is_some() {
        links::host::reconsider(context, &mut findings);
    }
    contention::excuse(context, &mut findings).await;
    // A unit has a filter of its own.
    if context.unit.is_none() && context.calls == RefusedCalls::default() {
        context.calls = filter::refused();
    }
    let unit = context.unit.as_ref().map(|unit| unit.name.as_str());
    filter::tell(&mut findings, &context.calls.calls, unit);
    let started = findings.iter().any(|finding| finding.link == LinkId::Truth && finding.holds());
    if !context.calls.complete && (started || unit.is_none()) && filter::tell_unknown(&mut findings) {
        context.incomplete.push(LinkId::Kernel.as_str().to_owned());
    }
    if obstacles::tell(&mut findings, || http::free_port().is_ok()) {
        // What was not examined since has this name.
        context.incomplete.truncate(gaps);
    }
    if context.held {
        links::truth::hold_to_account(&mut findings);
    }
    let mut unreached: BTreeSet<LinkId> = steps.iter().map(|step| step.link).collect();
    unreached.retain(|link| unmet(*link, &findings).is_some());
    // A failure that the server disproves is in no other link's way.
    let era = context.target().ollama.as_ref().map(|ollama| ollama.era);
    while era.is_some_and(|era| links::truth::reconcile(&mut findings, era)) {
        for (at, step) in steps.iter().enumerate() {
            if unreached.contains(&step.link) && unmet(step.link, &findings).is_none() {
                findings[at] = measured(step, context, &mut tell).await;
                tell(WalkEvent::Found(&findings[at], context));
                unreached.remove(&step.link);
            }
        }
    }
    findings
}

/// Returns the findings of a walk that cannot begin, because a filter refuses the calls by which a process
/// waits for events. Go's runtime makes them too, and ends where they are refused. Other errors are check's
/// own.
pub fn without_events(only: &[LinkId], error: &io::Error) -> Option<Vec<Finding>> {
    let errno = find::errno(error);
    if !may_be_filtered(errno) {
        return None;
    }
    let found = format!("a filter of system calls refuses epoll_create1 or eventfd2: {}", errno.desc());
    Some(stopped(only, Finding::fail(cause::kernel::EVENTS_REFUSED, found)))
}

/// Returns the findings of a walk that cannot begin because of this failure of the link `kernel`.
pub fn stopped(only: &[LinkId], failure: Finding) -> Vec<Finding> {
    let others = wanted(only).into_iter().filter(|link| *link != LinkId::Kernel);
    let skipped = others.map(|link| Finding::skip(link, "not reached (needs kernel)"));
    std::iter::once(failure).chain(skipped).collect()
}

/// Examines a link and records how long that takes.
async fn measured(
    step: &LinkStep,
    context: &mut CheckContext,
    tell: &mut impl FnMut(WalkEvent<'_>),
) -> Finding {
    tell(WalkEvent::Begun(step.link));
    let begin = Instant::now();
    let finding = examine(step, context).await;
    let elapsed = begin.elapsed();
    tracing::debug!(link = step.link.as_str(), status = ?finding.status, ?elapsed, "examined");
    Finding { elapsed, ..finding }
}

/// Examines a link within its time limit. The limit is extended on a busy machine, as are the limits of the
/// link's operations.
async fn examine(step: &LinkStep, context: &mut CheckContext) -> Finding {
    let left = context.time(Duration::MAX);
    if left.is_zero() {
        context.incomplete.push(step.link.as_str().to_owned());
        return Finding::skip(step.link, "not reached (no time left)");
    }
    // How long a model takes to load and answer is the user's to bound, by --timeout.
    let asks = step.link == LinkId::Service && context.options.model.is_some();
    let begin = Instant::now();
    let mut examined = (step.examine)(context);
    let finding = tokio::time::timeout(left, async {
        if asks { Some(examined.as_mut().await) } else { busy::within(step.limit, examined.as_mut()).await }
    });
    if let Ok(Some(finding)) = finding.await {
        return finding;
    }
    // Before what is waited for goes with it.
    let waits = waits::now();
    drop(examined);
    context.incomplete.push(step.link.as_str().to_owned());
    context.unanswered.extend(waits.clone());
    Finding::skip(step.link, unfinished(begin.elapsed(), waits.as_deref()))
}

/// Describes an examination that did not end in time.
pub fn unfinished(elapsed: Duration, waits: Option<&str>) -> String {
    let waits = waits.map(|name| format!(": {name} did not answer")).unwrap_or_default();
    format!("not finished in {:.1} s{waits}", elapsed.as_secs_f64())
}

/// Completes the findings of a walk that is abandoned at the link `at`, which comes with the reason and the
/// time that its examination took, while it was waiting for `waits`. Every link that was not reached gets a
/// finding, and is added to the links that could not be examined.
pub fn given_up(
    context: &mut CheckContext,
    mut findings: Vec<Finding>,
    at: Option<&(LinkId, String, Duration)>,
    waits: Option<&str>,
) -> Vec<Finding> {
    let wanted = wanted(&context.options.only);
    for step in STEPS.iter().filter(|step| wanted.contains(&step.link)) {
        if findings.iter().any(|finding| finding.link == step.link) {
            continue;
        }
        if let Some(need) = unmet(step.link, &findings) {
            findings.push(Finding::skip(step.link, format!("not reached (needs {})", need.as_str())));
            continue;
        }
        context.incomplete.push(step.link.as_str().to_owned());
        findings.push(match at {
            Some((link, why, elapsed)) if *link == step.link => {
                Finding { elapsed: *elapsed, ..Finding::skip(step.link, why.clone()) }
            }
            _ => Finding::skip(step.link, "not reached (no time left)"),
        });
    }
    context.unanswered.extend(waits.map(str::to_owned));
    findings
}

/// Returns the links in `only` and those that they need, or all links if `only` is empty.
fn wanted(only: &[LinkId]) -> Vec<LinkId> {
    let mut wanted: Vec<LinkId> = only.to_vec();
    if wanted.is_empty() {
        wanted.extend(LINKS.iter().map(|link| link.id));
    }
    let mut next = 0;
    while let Some(link) = wanted.get(next).copied() {
        for need in catalogue::entry(link).needs {
            if !wanted.contains(need) {
                wanted.push(*need);
            }
        }
        next += 1;
    }
    wanted
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::cli::{CheckOptions, Options};

    #[test]
    fn steps_are_in_the_order_of_the_chain() {
        assert!(STEPS.is_sorted_by_key(|step| step.link));
    }

    #[test]
    fn a_walk_without_events_names_the_filter() {
        let error = |errno: Errno| io::Error::from_raw_os_error(errno as i32);
        let findings = without_events(&[], &error(Errno::ENOSYS)).unwrap();
        assert_eq!(findings.len(), LINKS.len());
        assert_eq!(findings[0].cause, Some(cause::kernel::EVENTS_REFUSED));
        assert!(without_events(&[], &error(Errno::EMFILE)).is_none(), "a limit of check itself");
    }

    #[test]
    fn what_is_wanted_brings_what_it_needs() {
        assert_eq!(wanted(&[]).len(), LINKS.len());
        let window = wanted(&[LinkId::Window]);
        assert_eq!(window, [LinkId::Window, LinkId::Device, LinkId::Permission, LinkId::Pci]);
    }

    #[test]
    fn a_walk_that_is_given_up_says_where() {
        let mut context = CheckContext::new(Options::default(), CheckOptions::default());
        let before = vec![Finding::pass(LinkId::Kernel, "fine"), Finding::pass(LinkId::Pci, "there")];
        let (elapsed, waits) = (Duration::from_secs(9), Some("/mnt/dead/ollama"));
        let at = Some((LinkId::Permission, unfinished(elapsed, waits), elapsed));
        let findings = given_up(&mut context, before, at.as_ref(), waits);
        assert_eq!(findings.len(), LINKS.len());
        assert_eq!(findings[2].found, "not finished in 9.0 s: /mnt/dead/ollama did not answer");
        assert_eq!(findings[3].found, "not reached (needs permission)");
        assert_eq!(context.unanswered, ["/mnt/dead/ollama"]);
        assert!(context.incomplete.contains(&"permission".to_owned()));
        assert!(context.incomplete.contains(&"ollama".to_owned()), "it needs none of them");
        assert!(!context.incomplete.contains(&"device".to_owned()), "{:?}", context.incomplete);
    }

    #[test]
    fn what_a_failed_link_is_needed_for_is_not_reached() {
        let findings = [Finding::fail(cause::pci::DEVICE_ABSENT, "none")];
        assert_eq!(unmet(LinkId::Permission, &findings), Some(LinkId::Pci));
        assert_eq!(unmet(LinkId::Kernel, &findings), None);
        assert_eq!(unmet(LinkId::Device, &findings), None, "permission is not among the findings");
        let warned = [Finding::warn(cause::pci::DRIVER_BOUND, "nouveau")];
        assert_eq!(unmet(LinkId::Permission, &warned), None);
    }
}
