//! Values of variables as Ollama reads them: `envconfig.Var` removes blanks and then quotes at both ends, in
//! all eras.

use std::ffi::OsStr;

use crate::env::Environment;

/// Returns the value of a variable. An empty one counts as not set, as in Ollama.
pub fn var<'a>(environment: &'a Environment, name: &str) -> Option<&'a OsStr> {
    let value = environment.get(name)?;
    // A value that is no text is taken as it is.
    let value = value.to_str().map_or(value, |text| OsStr::new(bare(text)));
    (!value.is_empty()).then_some(value)
}

/// Removes blanks and then quotes at both ends of a value.
pub fn bare(value: &str) -> &str {
    value.trim().trim_matches(['"', '\''])
}

/// Returns whether a variable is on: whether Go's `strconv.ParseBool`, or Ollama for any other text, takes
/// its value for true.
pub fn is_on(environment: &Environment, name: &str) -> bool {
    let off = ["0", "f", "F", "false", "FALSE", "False"];
    var(environment, name).is_some_and(|value| !off.iter().any(|word| value == *word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> Environment {
        Environment::from_iter([("A", value)])
    }

    #[test]
    fn blanks_and_quotes_are_no_part_of_a_value() {
        for (value, expected) in
            [("q8_0", Some("q8_0")), (" \"q8_0\" ", Some("q8_0")), ("'/m'", Some("/m")), (" '' ", None)]
        {
            assert_eq!(var(&with(value), "A"), expected.map(OsStr::new), "{value}");
        }
        assert_eq!(var(&with("1"), "B"), None);
    }

    #[test]
    fn the_words_for_yes() {
        for (value, on) in
            [("1", true), ("'true'", true), ("anything", true), ("", false), ("0", false), (" false ", false)]
        {
            assert_eq!(is_on(&with(value), "A"), on, "{value}");
        }
    }
}
