//! The catalogue of faults, testbed/faults/catalogue.toml: the name of each fault and the diagnosis it must
//! get.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

const TEXT: &str = include_str!("../../faults/catalogue.toml");

/// The content of `catalogue.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    fault: Vec<Fault>,
    pair: Vec<Pair>,
    unforeseen: Vec<Unforeseen>,
    healthy: Vec<Healthy>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    name: String,
    made: String,
    link: String,
    cause: String,
    /// Texts that the report on the link must contain.
    #[serde(default)]
    evidence: Vec<String>,
    /// Whether no other link may be reported as broken.
    #[serde(default)]
    alone: bool,
    /// Privilege that the fault requires: `root`.
    #[serde(default)]
    needs: Option<String>,
    /// Rows of the predecessor's catalogue that this case covers.
    #[serde(default)]
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers, and README.md"))]
    met: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    name: String,
    of: [String; 2],
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unforeseen {
    name: String,
    made: String,
    link: String,
    evidence: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Healthy {
    name: String,
    made: String,
    /// All warnings of the check, as links with causes.
    #[serde(default)]
    warns: Vec<String>,
    /// Texts that the report must contain.
    #[serde(default)]
    evidence: Vec<String>,
    #[serde(default)]
    needs: Option<String>,
}

/// Result that the check must report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Every link holds and the report contains these texts.
    Works {
        /// The warnings, links with causes, in the order of the chain.
        warns: Vec<String>,
        /// Texts that the report must contain.
        evidence: Vec<String>,
    },
    /// This link is the first broken one, for this cause, and the report on it contains these texts.
    Broken {
        /// Id of the link.
        link: String,
        /// Id of the cause.
        cause: String,
        /// Texts that the report on the link must contain.
        evidence: Vec<String>,
        /// Whether no other link may be reported as broken.
        alone: bool,
    },
}

/// One run of the bench.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name of the case, by which it can be selected.
    pub name: String,
    /// Description of the fault and of how it is created.
    pub made: String,
    /// Names of the makers that create the fault.
    pub makes: Vec<String>,
    /// Expected result of the check.
    pub expected: Expected,
    /// Whether only root can create the fault.
    pub needs_root: bool,
}

/// Reads all cases of the catalogue.
pub fn cases() -> Result<Vec<Case>> {
    let File { fault, pair, unforeseen, healthy } = toml::from_str(TEXT).context("read the catalogue")?;
    let broken = |fault: &Fault| Expected::Broken {
        link: fault.link.clone(),
        cause: fault.cause.clone(),
        evidence: fault.evidence.clone(),
        alone: fault.alone,
    };
    // A second fault must be reported too.
    let beside = |expected: Expected| match expected {
        Expected::Broken { link, cause, evidence, .. } => {
            Expected::Broken { link, cause, evidence, alone: false }
        }
        works @ Expected::Works { .. } => works,
    };
    let mut cases: Vec<Case> = fault
        .iter()
        .map(|fault| Case {
            name: fault.name.clone(),
            made: fault.made.clone(),
            makes: vec![fault.name.clone()],
            expected: broken(fault),
            needs_root: fault.needs.is_some(),
        })
        .collect();
    for pair in pair {
        let find = |name: &String| {
            fault.iter().find(|fault| fault.name == *name).with_context(|| format!("find {name}"))
        };
        let [first, second] = [find(&pair.of[0])?, find(&pair.of[1])?];
        cases.push(Case {
            name: pair.name,
            made: format!("{}; and {}", first.made, second.made),
            makes: pair.of.to_vec(),
            expected: beside(broken(first)),
            needs_root: first.needs.is_some() || second.needs.is_some(),
        });
    }
    cases.extend(unforeseen.into_iter().map(|one| Case {
        makes: vec![one.name.clone()],
        name: one.name,
        made: one.made,
        expected: Expected::Broken {
            link: one.link,
            cause: "unknown".to_owned(),
            evidence: one.evidence,
            alone: false,
        },
        needs_root: false,
    }));
    cases.extend(healthy.into_iter().map(|one| Case {
        makes: vec![one.name.clone()],
        name: one.name,
        made: one.made,
        expected: Expected::Works { warns: one.warns, evidence: one.evidence },
        needs_root: one.needs.is_some(),
    }));
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    if names.len() != cases.len() {
        bail!("the catalogue has a name twice");
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::faults::makers;

    #[test]
    fn the_catalogue_is_as_large_as_was_asked_for() {
        let File { fault, pair, unforeseen, healthy } = toml::from_str(TEXT).unwrap();
        assert!(fault.len() >= 50 && pair.len() >= 10 && unforeseen.len() >= 5 && healthy.len() >= 6);
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for fault in &fault {
            *counts.entry((&fault.link, &fault.cause)).or_default() += 1;
        }
        assert!(counts.values().all(|count| *count <= 3), "{counts:?}");
    }

    /// Returns the row names of the predecessor's catalogue of failures.
    fn rows() -> Vec<String> {
        let numbered = |letter: char, last: u32| (1..=last).map(move |number| format!("{letter}{number}"));
        let lettered = ('a'..='n').map(|letter| format!("E-{letter}"));
        let rows = [('A', 11), ('B', 11), ('C', 11), ('D', 7)].into_iter();
        rows.flat_map(|(letter, last)| numbered(letter, last))
            .chain(lettered)
            .chain(numbered('F', 23))
            .collect()
    }

    #[test]
    fn each_failure_seen_before_is_made_or_said_to_be_impossible() {
        let File { fault, .. } = toml::from_str(TEXT).unwrap();
        let made: BTreeSet<String> = fault.iter().flat_map(|fault| fault.met.clone()).collect();
        let readme = include_str!("../../faults/README.md");
        let said = |row: &String| readme.lines().any(|line| line.starts_with(&format!("| {row} |")));
        let rows = rows();
        let missing: Vec<_> = rows.iter().filter(|row| !made.contains(*row) && !said(row)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let both: Vec<_> = rows.iter().filter(|row| made.contains(*row) && said(row)).collect();
        assert!(both.is_empty(), "{both:?}");
        assert!(made.iter().all(|row| rows.contains(row)), "{made:?}");
    }

    #[test]
    fn everything_can_be_made() {
        for case in cases().unwrap() {
            for name in &case.makes {
                assert!(makers::maker(name).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn links_and_causes_are_those_of_the_check() {
        let source = include_str!("../../../src/diagnosis/catalogue.rs");
        for case in cases().unwrap() {
            let Expected::Broken { link, cause, .. } = case.expected else { continue };
            let at = source.find(&format!(" \"{link}\" \"")).unwrap_or_else(|| panic!("{link}"));
            let end = source[at..].find("\n    }").unwrap();
            assert!(
                cause == "unknown" || source[at..at + end].contains(&format!("\"{cause}\" \"")),
                "{link}/{cause}"
            );
        }
    }
}
