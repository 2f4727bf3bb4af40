//! The change log: the section of a version, which becomes the text of the release's page.

use super::error::ReleaseError;

/// Heading of the section with changes that no release has.
const UNRELEASED: &str = "Unreleased";

/// Changes of a release.
#[derive(Debug)]
pub(super) struct Changes {
    /// The section's text, without its heading.
    pub text: String,
    /// Whether the section is that of unreleased changes.
    pub unreleased: bool,
}

/// Returns the changes of `version` from the text of a change log. With `dated` they must have a section of
/// their own with a date, as for a release that is published; without, they may still be unreleased.
pub(super) fn read(log: &str, version: &str, dated: bool) -> Result<Changes, ReleaseError> {
    let wrong = |problem: String| ReleaseError::Changes { version: version.to_owned(), problem };
    let sections: Vec<(&str, &str)> =
        log.split("\n## ").skip(1).filter_map(|section| section.split_once('\n')).collect();
    let named = |name: &str| sections.iter().position(|(title, _)| title.starts_with(&format!("[{name}]")));
    let (at, unreleased) = match named(version) {
        Some(at) => (at, false),
        None if dated => return Err(wrong(format!("it has no section [{version}] - YYYY-MM-DD"))),
        None => (named(UNRELEASED).ok_or_else(|| wrong(format!("it has no section [{UNRELEASED}]")))?, true),
    };
    let (title, text) = sections[at];
    if !unreleased {
        let date = title.strip_prefix(&format!("[{version}] - ")).unwrap_or_default();
        if !is_date(date) {
            return Err(wrong(format!("the section's heading {title:?} has no date YYYY-MM-DD")));
        }
        // A later section would be of a version that this release does not know.
        if let Some((newer, _)) = sections[..at].iter().find(|(title, _)| !title.starts_with("[Unreleased]"))
        {
            return Err(wrong(format!("{newer:?} stands above it")));
        }
    }
    let text = text.trim();
    if text.is_empty() {
        return Err(wrong("the section is empty".to_owned()));
    }
    Ok(Changes { text: format!("{text}\n"), unreleased })
}

/// Returns whether a text is a date as ISO 8601 writes it.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let number = |text: &str, digits: usize| -> Option<u32> {
        (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
    };
    let [year, month, day] = parts[..] else { return false };
    number(year, 4).is_some()
        && number(month, 2).is_some_and(|month| (1..=12).contains(&month))
        && number(day, 2).is_some_and(|day| (1..=31).contains(&day))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [1.1.0] - 2026-02-28\n\n### Added\n- a\n\n\
                       ## [1.0.0] - 2026-01-31\n\n- first\n";

    #[test]
    fn a_version_has_its_own_section() {
        let changes = read(LOG, "1.1.0", true).unwrap();
        assert_eq!((changes.text.as_str(), changes.unreleased), ("### Added\n- a\n", false));
        let changes = read(LOG, "1.2.0", false).unwrap();
        assert_eq!((changes.text.as_str(), changes.unreleased), ("- new\n", true));
    }

    #[test]
    fn a_log_that_disagrees_is_refused() {
        let refused = |log: &str, version, dated| match read(log, version, dated) {
            Err(ReleaseError::Changes { problem, .. }) => problem,
            other => panic!("{other:?}"),
        };
        assert!(refused(LOG, "1.2.0", true).contains("no section [1.2.0]"));
        assert!(refused(LOG, "1.0.0", true).contains("[1.1.0] - 2026-02-28"));
        assert!(refused("# x\n## [1.0.0]\n- a\n", "1.0.0", true).contains("no date"));
        assert!(refused("# x\n## [1.0.0] - 2026-13-01\n- a\n", "1.0.0", true).contains("no date"));
        assert!(refused("# x\n## [1.0.0] - 2026-01-01\n\n", "1.0.0", true).contains("empty"));
        assert!(refused("# x\n", "1.0.0", false).contains("[Unreleased]"));
    }
}
