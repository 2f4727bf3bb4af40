//! The report for people: a line for each link, the details of a failure below it, and the headline last.

use std::fmt::Write as _;

use textwrap::Options;

use crate::catalogue::{self, Chain};
use crate::finding::{Finding, Fix, Status};
use crate::style::Style;
use crate::verdict::Verdict;

/// Column at which the text of a finding starts.
const COLUMN: usize = 26;
/// Column at which the labels below a finding start; their texts follow at `TEXT`.
const LABEL: usize = 6;
const TEXT: usize = 16;
/// Minimum width to which lines are wrapped, even on narrower terminals.
const NARROWEST: usize = 40;

/// A report that is shown to people.
#[derive(Clone, Debug)]
pub struct HumanReport<'a, L> {
    /// The links that were examined, in the order of the chain.
    pub findings: &'a [Finding<L>],
    /// Overall result of the check.
    pub verdict: Verdict,
    /// Overall result as one sentence.
    pub headline: String,
    /// The command that explains a link, such as `vgpu-run check --explain`, to which the link's name is
    /// added.
    pub explain: Option<&'a str>,
}

/// Returns the first link that is broken.
pub fn first_failure<L>(findings: &[Finding<L>]) -> Option<&Finding<L>> {
    findings.iter().find(|finding| finding.status == Status::Fail)
}

/// Returns one line with what is wrong at a link, why it matters, and what to do. The command is left out.
pub fn broken<L: Chain>(failure: &Finding<L>) -> String {
    let title = catalogue::entry(failure.link).title;
    let mut line = format!("Broken: {title}: {}.", failure.found.trim_end_matches('.'));
    let fix = failure.fix.as_ref().map(|fix| fix.text.as_str());
    for sentence in failure.why().into_iter().chain(fix) {
        line.push(' ');
        line.push_str(sentence);
    }
    line
}

/// Returns a sentence that counts the warnings, to follow another sentence. It is empty if there are none.
pub fn warnings<L>(findings: &[Finding<L>]) -> String {
    match findings.iter().filter(|finding| finding.status == Status::Warn).count() {
        0 => String::new(),
        1 => " There is 1 warning.".into(),
        many => format!(" There are {many} warnings."),
    }
}

/// Returns the whole report. With `verbose` it includes the details of links that work.
pub fn whole<L: Chain>(report: &HumanReport<'_, L>, style: Style, verbose: bool) -> String {
    let mut text = String::new();
    for finding in report.findings {
        line(&mut text, finding, style);
        if matches!(finding.status, Status::Warn | Status::Fail) {
            under(&mut text, finding, style);
        } else if verbose {
            details(&mut text, finding, style);
        }
    }
    text.push('\n');
    text.push_str(&end(report, style));
    text
}

/// Returns the headline, and the command that fixes the first failure.
pub fn end<L: Chain>(report: &HumanReport<'_, L>, style: Style) -> String {
    let mut text = String::new();
    let headline = style.plain(&report.headline);
    let status = match report.verdict {
        Verdict::Works => Status::Pass,
        Verdict::Broken => Status::Fail,
        Verdict::Incomplete => Status::Warn,
    };
    let (word, rest) = headline
        .split_once([':', '.'])
        .map_or((headline.as_str(), ""), |(word, _)| headline.split_at(word.len() + 1));
    let wrapped = wrap(&format!("{word}{rest}"), style, 0, 0);
    let mut lines = wrapped.lines();
    if let Some(first) = lines.next() {
        let rest = first.strip_prefix(word).unwrap_or_default();
        _ = writeln!(text, "{}{}", style.coloured(status, word), style.bold(rest));
    }
    for line in lines {
        _ = writeln!(text, "{}", style.bold(line));
    }
    if let Some(failure) = first_failure(report.findings) {
        if let Some(command) = failure.fix.as_ref().and_then(|fix| fix.command.as_ref()) {
            _ = writeln!(text, "  {}", style.plain(command));
        }
        if let Some(explain) = report.explain {
            _ = writeln!(text, "{}", style.dim(&format!("More: {explain} {}", failure.link.name())));
        }
    }
    text
}

/// Writes the line of a finding: `[✓] Title   what was found`.
fn line<L: Chain>(text: &mut String, finding: &Finding<L>, style: Style) {
    let mark = style.mark(finding.status);
    let title = catalogue::entry(finding.link).title;
    let head = format!("{mark} {title}");
    let found = wrap(&style.plain(&finding.found), style, COLUMN, COLUMN);
    let space = " ".repeat(COLUMN.saturating_sub(head.chars().count()));
    let found = found.trim_start();
    let (mark, title, found) = match finding.status {
        Status::Skip => (style.dim(mark), style.dim(title), style.dim(found)),
        Status::Fail => (style.coloured(Status::Fail, mark), style.bold(title), found.to_owned()),
        status => (style.coloured(status, mark), title.to_owned(), found.to_owned()),
    };
    _ = writeln!(text, "{mark} {title}{space}{found}");
}

/// Writes the expectation, cause, remedy and evidence of a failure below its line.
fn under<L: Chain>(text: &mut String, finding: &Finding<L>, style: Style) {
    let mut put = |label: &str, what: &str| {
        let wrapped = wrap(&style.plain(what), style, TEXT, TEXT);
        let label = format!("{:<width$}", label, width = TEXT - LABEL);
        _ = writeln!(text, "{}{}{}", " ".repeat(LABEL), style.dim(&label), wrapped.trim_start());
    };
    if let Some(expected) = &finding.expected {
        put("expected", expected);
    }
    if let Some(issue) = finding.issue() {
        put("cause", &issue);
    }
    if let Some(why) = finding.why() {
        put("matters", why);
    }
    if let Some(fix) = &finding.fix {
        put("fix", &as_root(fix));
        if let Some(command) = &fix.command {
            // The command is not wrapped, because users copy it.
            _ = writeln!(text, "{}{}", " ".repeat(TEXT), style.plain(command));
        }
    }
    details(text, finding, style);
}

/// Returns the text of the remedy, marked if it needs root.
fn as_root(fix: &Fix) -> String {
    if fix.needs_root { format!("{} (as root)", fix.text) } else { fix.text.clone() }
}

fn details<L>(text: &mut String, finding: &Finding<L>, style: Style) {
    for (index, detail) in finding.details.iter().enumerate() {
        let label = format!("{:<width$}", if index == 0 { "evidence" } else { "" }, width = TEXT - LABEL);
        let wrapped = wrap(&style.plain(detail), style, TEXT, TEXT + 2);
        _ = writeln!(text, "{}{}{}", " ".repeat(LABEL), style.dim(&label), wrapped.trim_start());
    }
}

/// Wraps a text at the terminal's width. The first line is indented by `first`, the others by `rest`.
fn wrap(text: &str, style: Style, first: usize, rest: usize) -> String {
    let (first, rest) = (" ".repeat(first), " ".repeat(rest));
    match style.width {
        None => format!("{first}{text}"),
        Some(width) => {
            // The last column stays free: some terminals break the line there.
            let options = Options::new(width.max(NARROWEST).saturating_sub(1))
                .initial_indent(&first)
                .subsequent_indent(&rest)
                .break_words(false);
            textwrap::fill(text, options)
        }
    }
}

/// Returns the links of the chain, for `--list`, with their causes if `verbose`.
pub fn list<L: Chain>(verbose: bool) -> String {
    let mut text = String::new();
    for link in L::links() {
        let needs: Vec<_> = link.needs.iter().map(|need| need.name()).collect();
        let needs = if needs.is_empty() { String::new() } else { format!("needs {}", needs.join(", ")) };
        let line = format!("{:<12} {:<22} {needs}", link.id.name(), link.title);
        _ = writeln!(text, "{}", line.trim_end());
        for cause in link.causes.iter().filter(|_| verbose) {
            _ = writeln!(text, "    {:<24} {}", cause.id(), cause.why().unwrap_or_default());
        }
    }
    text
}
