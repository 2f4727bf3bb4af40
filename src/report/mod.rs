//! The report of `check`. All output of `check` is made here: a [`CheckReport`] is the result of a walk, and
//! [`human`], [`json`] and [`bundle`] format it.

pub mod bundle;
pub mod human;
pub mod json;

pub mod pages;
pub mod redact;

use std::collections::BTreeMap;

use vgpu_findings::human::{broken, first_failure, warnings};

use crate::check::context::CheckContext;
use crate::check::facts::{DeviceReport, Loser, ResolvedLibrary};
use crate::check::limits::{self, Limit};
use crate::device::survey::size;
use crate::diagnosis::{Cause, Finding, Fix, LinkId, Status, Verdict, cause, fix};
use redact::Redaction;

/// Result of a walk of the chain of links.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// Findings about the links, in the order of the chain.
    pub findings: Vec<Finding>,
    /// Links that could not be examined.
    pub incomplete: Vec<String>,
    /// Names of the operations that were still pending when time ran out.
    pub unanswered: Vec<String>,
    /// Resource limit that may have kept `check` itself from examining everything.
    pub scarce: Option<Limit>,
    /// Devices that the walk reached and that a program would see.
    pub devices: Vec<DeviceReport>,
    /// File that the loader selects for each library name.
    pub libraries: Vec<ResolvedLibrary>,
    /// Versions of all components that have one, by component.
    pub versions: BTreeMap<&'static str, String>,
    /// Links that the user selected; empty if all links were requested.
    pub only: Vec<LinkId>,
}

impl CheckReport {
    /// Creates the report of a walk with `context`.
    pub fn new(context: &CheckContext, findings: Vec<Finding>) -> Self {
        let only = context.options.only.clone();
        // Links that were not requested are examined because others need them. They are shown only if they do
        // not hold.
        let shown = |finding: &Finding| only.is_empty() || only.contains(&finding.link) || !finding.holds();
        Self {
            findings: findings.into_iter().filter(shown).map(explained).collect(),
            incomplete: context.incomplete.clone(),
            unanswered: context.unanswered.clone(),
            scarce: limits::scarce(),
            devices: context.devices.clone(),
            libraries: context.libraries.clone(),
            versions: context.versions.clone(),
            only,
        }
    }

    /// Removes private texts from the report. Names of links stay, even if a user or host has the same name.
    pub fn redacted(&self, redaction: &Redaction) -> Self {
        let text = |text: &String| redaction.text(text);
        let finding = |finding: &Finding| Finding {
            found: text(&finding.found),
            expected: finding.expected.as_ref().map(text),
            fix: finding.fix.as_ref().map(|fix| Fix {
                text: text(&fix.text),
                command: fix.command.as_ref().map(text),
                needs_root: fix.needs_root,
            }),
            details: finding.details.iter().map(text).collect(),
            ..finding.clone()
        };
        let loser = |loser: &Loser| Loser { path: text(&loser.path), why: text(&loser.why) };
        let library = |library: &ResolvedLibrary| ResolvedLibrary {
            winner: library.winner.as_ref().map(text),
            losers: library.losers.iter().map(loser).collect(),
            ..library.clone()
        };
        Self {
            findings: self.findings.iter().map(finding).collect(),
            unanswered: self.unanswered.iter().map(text).collect(),
            libraries: self.libraries.iter().map(library).collect(),
            versions: self.versions.iter().map(|(name, version)| (*name, text(version))).collect(),
            ..self.clone()
        }
    }

    /// Returns the first broken link.
    pub fn first_failure(&self) -> Option<&Finding> {
        first_failure(&self.findings)
    }

    /// Returns the number of links with this status.
    pub fn count(&self, status: Status) -> usize {
        self.findings.iter().filter(|finding| finding.status == status).count()
    }

    /// Returns whether Ollama's own processes have found the device.
    fn proven(&self) -> bool {
        let proof = [LinkId::Discovery, LinkId::Truth];
        self.findings.iter().any(|finding| proof.contains(&finding.link) && finding.holds())
    }

    /// Returns the overall result of the check.
    pub fn verdict(&self) -> Verdict {
        if self.first_failure().is_some() {
            Verdict::Broken
        } else if self.incomplete.is_empty() {
            Verdict::Works
        } else {
            Verdict::Incomplete
        }
    }

    /// Returns the exit code. With `strict`, warnings count as failures.
    pub fn exit(&self, strict: bool) -> u8 {
        match self.verdict() {
            Verdict::Works if strict && self.count(Status::Warn) > 0 => Verdict::Broken as u8,
            verdict => verdict as u8,
        }
    }

    /// Returns the reason why links could not be examined: the one of all, or else the first link's, with its
    /// name.
    fn gap(&self) -> Option<String> {
        if let Some(name) = self.unanswered.first() {
            return Some(format!("{name} did not answer in time"));
        }
        let of = |finding: &&Finding| self.incomplete.iter().any(|link| link == finding.link.as_str());
        let mut skipped = self.findings.iter().filter(|finding| finding.status == Status::Skip).filter(of);
        let first = skipped.next()?;
        let why = reason(&first.found);
        if skipped.all(|other| reason(&other.found) == why) {
            return Some(why.to_owned());
        }
        Some(format!("{}: {why}", first.link.as_str()))
    }

    /// Returns one line with the result and, if a link is broken, what to do. The command is left out.
    pub fn headline(&self) -> String {
        if let Some(failure) = self.first_failure() {
            return broken(failure);
        }
        if !self.incomplete.is_empty() {
            let lift = self.scarce.map(|limit| format!(" {}", limit.fix())).unwrap_or_default();
            return match self.findings.first() {
                Some(first) if self.incomplete.len() == self.findings.len() => {
                    format!("Not finished: nothing was examined: {}.{lift}", first.found)
                }
                _ => format!(
                    "Not finished: nothing is known to be broken, but {} could not be examined{}.{lift}",
                    self.incomplete.join(", "),
                    self.gap().map(|why| format!(": {why}")).unwrap_or_default()
                ),
            };
        }
        let warnings = warnings(&self.findings);
        if !self.only.is_empty() {
            let names: Vec<_> = self.only.iter().map(|link| link.as_str()).collect();
            return format!("Holds: {}.{warnings}", names.join(", "));
        }
        if let Some(part) = self.findings.iter().find(|finding| says_less(finding)) {
            return format!("Works in part: {}.{warnings}", part.found.trim_end_matches('.'));
        }
        match gpus(&self.devices) {
            Some(gpus) => format!(
                "{} {gpus}.{warnings}",
                if self.proven() { "Works: Ollama gets" } else { "Works, as far as was examined: there is" },
            ),
            None => format!("Works, as far as was examined.{warnings}"),
        }
    }
}

/// Returns the reason in the words of a finding about a link that was not examined.
fn reason(found: &str) -> &str {
    let named = ["not examined: ", "not known: "].iter().find_map(|start| found.strip_prefix(start));
    let bracketed = || found.strip_prefix("not reached (")?.strip_suffix(')');
    named.or_else(bracketed).unwrap_or(found)
}

/// Returns the finding with a request for a report, if it is a failure that nothing explains.
fn explained(finding: Finding) -> Finding {
    let unknown = finding.cause == Some(Cause::unknown(finding.link));
    let unexplained = finding.status == Status::Fail && unknown && finding.fix.is_none();
    if unexplained { finding.fix(fix::discovery::BUG) } else { finding }
}

/// Causes whose warnings say that a part of the devices works.
const OF_A_PART: [Cause; 3] =
    [cause::host::NO_MEMORY, cause::data_path::ALLOCATION, cause::truth::SOME_DEVICES];

/// Returns whether a finding says that less works than there is.
fn says_less(finding: &Finding) -> bool {
    let part = finding.cause.is_some_and(|cause| OF_A_PART.contains(&cause));
    finding.in_part() || finding.status == Status::Warn && part
}

/// Describes the devices: a single device with its properties, several devices with their total and one by
/// one.
fn gpus(devices: &[DeviceReport]) -> Option<String> {
    let of = |device: &DeviceReport| {
        let DeviceReport { name, total, capability: (major, minor), .. } = device;
        format!("{name} with {}, compute capability {major}.{minor}", size(*total))
    };
    let first = devices.first()?;
    let driver = &first.driver;
    if devices.len() == 1 {
        return Some(format!("{}, driver {driver}", of(first)));
    }
    let total = devices.iter().map(|device| device.total).sum();
    let each = devices.iter().map(of).collect::<Vec<_>>().join("; ");
    Some(format!("{} GPUs with {} together, driver {driver}: {each}", devices.len(), size(total)))
}

#[cfg(test)]
pub mod samples;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::catalogue::LINKS;

    /// Returns the headline of a healthy system in which one link has this finding.
    fn headline(finding: &Finding) -> String {
        let mut report = samples::healthy();
        for own in &mut report.findings {
            if own.link == finding.link {
                *own = finding.clone();
            }
        }
        report.headline()
    }

    #[test]
    fn a_reason_that_links_do_not_share_is_that_of_the_first() {
        let mut report = samples::incomplete();
        assert!(report.headline().ends_with("could not be examined: no time left."), "{}", report.headline());
        for finding in &mut report.findings {
            if finding.link == LinkId::Discovery {
                finding.found = "not examined: failed to start Ollama's processes: x".into();
            }
        }
        let headline = report.headline();
        assert!(
            headline.ends_with("examined: discovery: failed to start Ollama's processes: x."),
            "{headline}"
        );
    }

    #[test]
    fn only_what_nothing_explains_asks_for_a_report() {
        let sentence = |finding: Finding| explained(finding).fix.map(|fix| fix.text).unwrap_or_default();
        assert!(sentence(Finding::unknown(LinkId::Host, "x")).starts_with("Please report it"));
        assert_eq!(sentence(Finding::unknown(LinkId::Host, "x").fix("Restart it.")), "Restart it.");
        assert_eq!(sentence(Finding::pass(LinkId::Host, "x")), "");
    }

    #[test]
    fn no_finding_says_less_than_the_headline() {
        let less = ["1 of 2 devices: the other is too new", "m gave a token, m with 40 % on the GPU"];
        for link in LINKS {
            for words in less {
                let passed = headline(&Finding::pass(link.id, words));
                assert!(passed.starts_with("Works in part: ") && passed.contains(words), "{passed}");
                for cause in link.causes {
                    let warned = headline(&Finding::warn(*cause, words));
                    assert!(warned.starts_with("Works in part: ") && warned.contains(words), "{warned}");
                    let failed = headline(&Finding::fail(*cause, words));
                    assert!(failed.starts_with("Broken: "), "{failed}");
                }
            }
            let whole = headline(&Finding::pass(link.id, "2 of 2 devices"));
            assert!(whole.starts_with("Works: "), "{whole}");
            for cause in link.causes {
                let warned = headline(&Finding::warn(*cause, "x"));
                let part = OF_A_PART.contains(cause);
                assert_eq!(warned.starts_with("Works in part: x"), part, "{warned}");
                assert!(warned.ends_with("There is 1 warning."), "{warned}");
            }
        }
    }
}
