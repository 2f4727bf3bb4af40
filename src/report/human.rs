//! The report for people: a line a link, what is to be known of a failure under it, and the sentence last.

use std::fmt::Write as _;

use textwrap::Options;

use super::Report;
use super::style::Style;
use crate::diagnosis::catalogue::{self, LINKS};
use crate::diagnosis::{Finding, Fix, Status, Verdict};

/// Where the second column begins.
const COLUMN: usize = 26;
/// Where what is under a line begins, and where its text does.
const LABEL: usize = 6;
const TEXT: usize = 16;
/// Narrower terminals get lines of this width: one word a line helps nobody.
const NARROWEST: usize = 40;

/// The whole report. `details` of links that hold too where `verbose`.
pub fn whole(report: &Report, style: Style, verbose: bool) -> String {
    let mut text = String::new();
    for finding in &report.findings {
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

/// The sentence, and the command that mends it.
pub fn end(report: &Report, style: Style) -> String {
    let mut text = String::new();
    let headline = style.plain(&report.headline());
    let status = match report.verdict() {
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
    if let Some(failure) = report.first_failure() {
        if let Some(command) = failure.fix.as_ref().and_then(|fix| fix.command.as_ref()) {
            _ = writeln!(text, "  {}", style.plain(command));
        }
        _ = writeln!(
            text,
            "{}",
            style.dim(&format!("More: vgpu-run check --explain {}", failure.link.as_str()))
        );
    }
    text
}

/// `[✓] Title   what was found`
fn line(text: &mut String, finding: &Finding, style: Style) {
    let mark = style.mark(finding.status);
    let title = catalogue::of(finding.link).title;
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

/// What is to be known of a failure.
fn under(text: &mut String, finding: &Finding, style: Style) {
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
            // As it is: what is copied must be whole.
            _ = writeln!(text, "{}{}", " ".repeat(TEXT), style.plain(command));
        }
    }
    details(text, finding, style);
}

/// What to do, and who can.
fn as_root(fix: &Fix) -> String {
    if fix.needs_root { format!("{} (as root)", fix.text) } else { fix.text.clone() }
}

fn details(text: &mut String, finding: &Finding, style: Style) {
    for (index, detail) in finding.details.iter().enumerate() {
        let label = format!("{:<width$}", if index == 0 { "evidence" } else { "" }, width = TEXT - LABEL);
        let wrapped = wrap(&style.plain(detail), style, TEXT, TEXT + 2);
        _ = writeln!(text, "{}{}{}", " ".repeat(LABEL), style.dim(&label), wrapped.trim_start());
    }
}

/// Wraps at the terminal's width, the first line indented by `first`, the others by `rest`.
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

/// The links of the chain, for `--list`; their causes too where `verbose`.
pub fn list(verbose: bool) -> String {
    let mut text = String::new();
    for link in LINKS {
        let needs: Vec<_> = link.needs.iter().map(|need| need.as_str()).collect();
        let needs = if needs.is_empty() { String::new() } else { format!("needs {}", needs.join(", ")) };
        let line = format!("{:<12} {:<22} {needs}", link.id.as_str(), link.title);
        _ = writeln!(text, "{}", line.trim_end());
        for cause in link.causes.iter().filter(|_| verbose) {
            _ = writeln!(text, "    {:<24} {}", cause.id(), cause.why().unwrap_or_default());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::samples;
    use super::*;

    /// Compares with a file of the tests; writes it where UPDATE_SNAPSHOTS is set.
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
