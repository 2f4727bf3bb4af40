//! Formats the report for people: one line for each link, the details of a failure below it, and the
//! conclusion at the end.

use vgpu_findings::human::{self, HumanReport};
use vgpu_findings::style::Style;

use super::CheckReport;
use crate::diagnosis::LinkId;

/// Selects the parts of a report that are printed.
fn shown(report: &CheckReport) -> HumanReport<'_, LinkId> {
    HumanReport {
        findings: &report.findings,
        verdict: report.verdict(),
        headline: report.headline(),
        explain: Some("vgpu-run check --explain"),
    }
}

/// Formats the whole report. `verbose` adds the details of links that hold.
pub fn whole(report: &CheckReport, style: Style, verbose: bool) -> String {
    human::whole(&shown(report), style, verbose)
}

/// Formats the conclusion and the command that repairs the failure.
pub fn end(report: &CheckReport, style: Style) -> String {
    human::end(&shown(report), style)
}

/// Lists the links of the chain, for `--list`; `verbose` adds their causes.
pub fn list(verbose: bool) -> String {
    human::list::<LinkId>(verbose)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::samples;
    use super::*;
    use crate::diagnosis::catalogue::LINKS;

    /// Compares a text with a snapshot file of the tests, or writes the file if UPDATE_SNAPSHOTS is set.
    fn compare(name: &str, text: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == expected, "{} is not what was agreed on:\n{text}", path.display());
    }

    const WIDE: Style = Style { unicode: true, colour: false, width: Some(80) };

    #[test]
    fn every_failure_as_it_looks() {
        for finding in samples::failures() {
            let name = format!("{}.txt", finding.issue().unwrap().replace('/', "--"));
            let text = whole(&samples::report(&finding), WIDE, false);
            assert!(text.lines().all(|line| line.chars().count() < 80 || line.starts_with("    ")), "{text}");
            compare(&name, &text);
        }
    }

    #[test]
    fn every_link_has_a_failure_among_the_samples() {
        let failures = samples::failures();
        for link in LINKS {
            assert!(failures.iter().any(|finding| finding.link == link.id), "{}", link.id.as_str());
        }
    }

    #[test]
    fn a_healthy_system_and_one_with_warnings() {
        compare("healthy.txt", &whole(&samples::healthy(), WIDE, false));
        compare("healthy-verbose.txt", &whole(&samples::healthy(), WIDE, true));
        compare("warnings.txt", &whole(&samples::warnings(), WIDE, false));
        compare("incomplete.txt", &whole(&samples::incomplete(), WIDE, false));
    }

    #[test]
    fn other_terminals() {
        let failure = || samples::report(&samples::failures().swap_remove(3));
        compare("ascii.txt", &whole(&failure(), Style { unicode: false, ..WIDE }, false));
        compare("piped.txt", &whole(&failure(), Style { width: None, ..WIDE }, false));
        compare("narrow.txt", &whole(&failure(), Style { width: Some(12), ..WIDE }, false));
        compare("wide.txt", &whole(&failure(), Style { width: Some(200), ..WIDE }, false));
        let coloured = whole(&failure(), Style { colour: true, ..WIDE }, false);
        compare("colour.txt", &coloured.replace('\u{1b}', "ESC"));
        compare("quiet.txt", &end(&failure(), WIDE));
    }

    #[test]
    fn lists() {
        compare("list.txt", &list(false));
        assert!(list(true).contains("    device-absent"));
    }
}
