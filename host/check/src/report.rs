//! Result of a check, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use vgpu_findings::catalogue::entry;
use vgpu_findings::human::{HumanReport, broken, first_failure, warnings};
use vgpu_findings::json::{self, Check, FirstFailure};
use vgpu_findings::style::Style;
use vgpu_findings::{Status, Verdict, human, size};

use crate::catalogue::{Finding, LinkId};
use crate::subject::{HostFacts, Subject};

/// Schema name in the object that `--json` prints.
const SCHEMA: &str = "vgpu-device.check/1";

/// Result of a check of this host.
#[derive(Clone, Debug)]
pub struct HostReport {
    findings: Vec<Finding>,
    /// Sentence for a host on which no link is broken.
    ready: String,
    versions: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
struct JsonReport<'a> {
    schema: &'static str,
    verdict: &'static str,
    headline: String,
    first_failure: Option<FirstFailure>,
    issues: Vec<String>,
    checks: Vec<Check<'a>>,
    versions: &'a BTreeMap<&'static str, String>,
}

impl HostReport {
    /// Creates the report of a walk.
    pub fn new(subject: &Subject, known: &HostFacts, findings: Vec<Finding>, version: &str) -> Self {
        let memory = size(subject.memory);
        let ready = match &known.gpu {
            Some(gpu) => format!("Ready: a VM can get {memory} of {}.", gpu.name),
            None => format!("Ready: a VM can get a device with {memory}, which needs no GPU."),
        };
        let cuda = known.cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10));
        let versions = [
            ("vgpu-device", Some(version.to_owned())),
            ("driver", known.driver.clone()),
            ("cuda", cuda),
            ("qemu", known.qemu.clone()),
        ];
        let versions = versions.into_iter().filter_map(|(name, version)| Some((name, version?))).collect();
        Self { findings, ready, versions }
    }

    /// Returns the overall result of the check.
    pub fn verdict(&self) -> Verdict {
        if first_failure(&self.findings).is_some() { Verdict::Broken } else { Verdict::Works }
    }

    /// Returns whether a link is broken.
    pub fn is_broken(&self) -> bool {
        self.verdict() == Verdict::Broken
    }

    /// Returns the exit code of the program. With `strict`, warnings count as failures.
    pub fn exit(&self, strict: bool) -> u8 {
        let warned = self.findings.iter().any(|finding| finding.status == Status::Warn);
        match self.verdict() {
            Verdict::Works if strict && warned => Verdict::Broken as u8,
            verdict => verdict as u8,
        }
    }

    /// Returns the overall result in a line: what is wrong at each broken link, and what to do.
    pub fn headline(&self) -> String {
        let mut failures = self.findings.iter().filter(|finding| finding.status == Status::Fail);
        let Some(first) = failures.next() else {
            return format!("{}{}", self.ready, warnings(&self.findings));
        };
        let mut line = broken(first);
        for (index, failure) in failures.enumerate() {
            let word = if index == 0 { "Also broken: " } else { "" };
            let title = entry(failure.link).title;
            _ = write!(line, " {word}{title}: {}.", failure.found.trim_end_matches('.'));
            if let Some(fix) = &failure.fix {
                _ = write!(line, " {}", fix.text);
            }
        }
        line
    }

    /// Renders the report for people.
    pub fn human(&self, style: Style, verbose: bool) -> String {
        let shown = HumanReport::<LinkId> {
            findings: &self.findings,
            verdict: self.verdict(),
            headline: self.headline(),
            explain: None,
        };
        human::whole(&shown, style, verbose)
    }

    /// Returns one line of JSON for programs. Later versions only add keys.
    pub fn json(&self) -> String {
        let object = JsonReport {
            schema: SCHEMA,
            verdict: json::verdict(self.verdict()),
            headline: json::headline(self.headline(), &self.findings),
            first_failure: FirstFailure::first(&self.findings),
            issues: self.findings.iter().filter_map(Finding::issue).collect(),
            checks: self.findings.iter().map(Check::from_finding).collect(),
            versions: &self.versions,
        };
        // The object consists of texts and numbers, so writing it does not fail.
        serde_json::to_string(&object).unwrap_or_default()
    }
}
