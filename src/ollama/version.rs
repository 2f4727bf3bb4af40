//! Determines Ollama's version from the output of `ollama -v`. The binary does not contain its version at a
//! known position.

use super::era::Era;

/// Returns the version in the output of `ollama -v`. Without a reachable server the output is a warning and
/// `client version is 0.12.3`. With a server it is `ollama version is 0.12.3`, which is the server's version,
/// and a second line with the client's version if that differs.
pub fn parse(output: &str) -> Option<&str> {
    let after = |text: &str| {
        let at = output.find(text)? + text.len();
        output[at..].split_whitespace().next()
    };
    let version = after("client version is ").or_else(|| after("ollama version is "))?;
    version.starts_with(|first: char| first.is_ascii_digit()).then_some(version)
}

/// Returns the era of a release. Versions that belong to no release, such as 0.0.0 of a local build, give
/// `None`.
pub fn era(version: &str) -> Option<Era> {
    let core = version.split(['-', '+']).next()?;
    let mut numbers = core.split('.').map(|number| number.parse::<u32>().ok());
    let version = (numbers.next()??, numbers.next()??, numbers.next()??);
    match version {
        (0, 0, 0) => None,
        version if version < (0, 12, 4) => Some(Era::A),
        version if version < (0, 30, 0) => Some(Era::B),
        _ => Some(Era::C),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_ollama_prints() {
        let alone =
            "Warning: could not connect to a running Ollama instance\nWarning: client version is 0.12.3\n";
        assert_eq!(parse(alone), Some("0.12.3"));
        assert_eq!(parse("ollama version is 0.30.1\n"), Some("0.30.1"));
        let both = "ollama version is 0.30.1\nWarning: client version is 0.33.0-rc2\n";
        assert_eq!(parse(both), Some("0.33.0-rc2"));
        for other in ["", "ollama version is", "ollama version is unknown", "usage: x"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn eras_begin_where_releases_changed() {
        for (version, expected) in [
            ("0.5.8", Some(Era::A)),
            ("0.12.3", Some(Era::A)),
            ("0.12.4", Some(Era::B)),
            ("0.24.0", Some(Era::B)),
            ("0.30.0-rc1", Some(Era::C)),
            ("0.33.0", Some(Era::C)),
            ("1.0.0", Some(Era::C)),
            ("0.0.0", None),
            ("0.12", None),
            ("x", None),
        ] {
            assert_eq!(era(version), expected, "{version}");
        }
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(text in ".{0,80}", rest in ".{0,20}") {
            let _ = parse(&text);
            let text = format!("client version is {rest}");
            let _ = parse(&text).map(era);
        }
    }
}
