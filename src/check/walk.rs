//! Walks the chain in order. A link is examined when those that it needs hold. Each has a time limit, and so
//! has the whole walk.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use vgpu_findings::finding::unmet;

use super::context::Context;
use super::links;
use crate::diagnosis::catalogue::{self, LINKS};
use crate::diagnosis::{Finding, LinkId};

/// How a link is examined.
struct Step {
    link: LinkId,
    /// Its time limit. What it waits for usually has a shorter one.
    limit: Duration,
    examine: for<'a> fn(&'a mut Context) -> Pin<Box<dyn Future<Output = Finding> + 'a>>,
}

macro_rules! steps {
    ($($link:ident $module:ident $seconds:literal)*) => {
        /// The links that can be examined, in the order of the chain.
        static STEPS: &[Step] = &[$(Step {
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
    Service service 10
}

/// Walks the chain. Calls `begun` before it examines a link.
pub async fn walk(context: &mut Context, mut begun: impl FnMut(LinkId)) -> Vec<Finding> {
    let wanted = wanted(&context.options.only);
    let mut findings: Vec<Finding> = Vec::new();
    for step in STEPS.iter().filter(|step| wanted.contains(&step.link)) {
        let begin = Instant::now();
        let mut finding = if let Some(need) = unmet(step.link, &findings) {
            Finding::skip(step.link, format!("not reached (needs {})", need.as_str()))
        } else {
            begun(step.link);
            examine(step, context).await
        };
        finding.elapsed = begin.elapsed();
        tracing::debug!(link = step.link.as_str(), status = ?finding.status, elapsed = ?finding.elapsed, "examined");
        findings.push(finding);
    }
    findings
}

/// Examines a link within its time limit.
async fn examine(step: &Step, context: &mut Context) -> Finding {
    let limit = context.time(step.limit);
    if limit.is_zero() {
        context.incomplete.push(step.link.as_str().to_owned());
        return Finding::skip(step.link, "not reached (no time left)");
    }
    if let Ok(finding) = tokio::time::timeout(limit, (step.examine)(context)).await {
        return finding;
    }
    context.incomplete.push(step.link.as_str().to_owned());
    Finding::skip(step.link, format!("not finished in {:.1} s", limit.as_secs_f64()))
}

/// The links in `only` and those that they need; all links if `only` is empty.
fn wanted(only: &[LinkId]) -> Vec<LinkId> {
    let mut wanted: Vec<LinkId> = only.to_vec();
    if wanted.is_empty() {
        wanted.extend(LINKS.iter().map(|link| link.id));
    }
    let mut next = 0;
    while let Some(link) = wanted.get(next).copied() {
        for need in catalogue::of(link).needs {
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
    use super::*;
    use crate::diagnosis::cause;

    #[test]
    fn steps_are_in_the_order_of_the_chain() {
        assert!(STEPS.is_sorted_by_key(|step| step.link));
    }

    #[test]
    fn what_is_wanted_brings_what_it_needs() {
        assert_eq!(wanted(&[]).len(), LINKS.len());
        let window = wanted(&[LinkId::Window]);
        assert_eq!(window, [LinkId::Window, LinkId::Device, LinkId::Permission, LinkId::Pci]);
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
