//! Messages from the process that walks the chain to the process that waits for it, as one JSON object a
//! line.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::diagnosis::{Cause, Finding, Fix, LinkId, Status, catalogue};

/// Message of the process that walks the chain.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WalkMessage {
    /// The examination of a link has started.
    Begun(LinkId),
    /// The name of the pending operation has changed; `None` if there is none.
    Waits(Option<String>),
    /// The examination of a link has ended.
    Found {
        /// Finding of the link.
        finding: FindingRecord,
        /// Links that could not be examined so far.
        incomplete: Vec<String>,
        /// Names of the operations that were pending when the time of a link ran out.
        unanswered: Vec<String>,
    },
    /// The walk has ended with this output.
    Done(PrintedReport),
}

/// Output and exit code of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct PrintedReport {
    /// Text for standard output.
    pub out: String,
    /// Text for standard error.
    pub err: String,
    /// Exit code of the check.
    pub code: u8,
}

impl PrintedReport {
    /// Prints both texts and returns the exit code.
    pub fn print(&self) -> ExitCode {
        // Standard output and standard error may be closed. The exit code is then enough.
        let _ = io::stdout().lock().write_all(self.out.as_bytes());
        let _ = io::stderr().write_all(self.err.as_bytes());
        ExitCode::from(self.code)
    }
}

/// A serialisable [`Finding`], with the cause's id instead of the cause.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct FindingRecord {
    link: LinkId,
    status: Status,
    found: String,
    expected: Option<String>,
    cause: Option<String>,
    fix: Option<Fix>,
    details: Vec<String>,
    elapsed: Duration,
}

impl From<&Finding> for FindingRecord {
    fn from(finding: &Finding) -> Self {
        let Finding { link, status, found, expected, cause, fix, details, elapsed } = finding.clone();
        let cause = cause.map(|cause| Cause::id(cause).to_owned());
        Self { link, status, found, expected, cause, fix, details, elapsed }
    }
}

impl From<FindingRecord> for Finding {
    fn from(record: FindingRecord) -> Self {
        let FindingRecord { link, status, found, expected, cause, fix, details, elapsed } = record;
        let cause = cause.map(|id| catalogue::find_cause(link, &id));
        Self { link, status, found, expected, cause, fix, details, elapsed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::cause;

    #[test]
    fn a_finding_comes_back_as_it_was() {
        let findings = [
            Finding::fail(cause::pci::SYSFS_MISSING, "none").detail("x"),
            Finding::unknown(LinkId::Host, "odd").expected("even"),
            Finding { elapsed: Duration::from_micros(7), ..Finding::pass(LinkId::Kernel, "fine") },
        ];
        for finding in findings {
            let told = WalkMessage::Found {
                finding: FindingRecord::from(&finding),
                incomplete: vec!["truth".into()],
                unanswered: Vec::new(),
            };
            let line = serde_json::to_string(&told).unwrap();
            let WalkMessage::Found { finding: record, .. } = serde_json::from_str(&line).unwrap() else {
                panic!("{line}")
            };
            assert_eq!(Finding::from(record), finding);
        }
    }
}
