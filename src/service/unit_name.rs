//! Completes the names of systemd units that users type.

use super::error::ServiceError;

/// Returns the full unit name of a service. Fails if `name` is not a valid unit name.
pub fn unit_name(name: &str) -> Result<String, ServiceError> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || ":-_.\\@".contains(letter);
    let whole = if name.ends_with(".service") { name.to_owned() } else { format!("{name}.service") };
    // systemd.unit(5): at most 255 letters of these. A template is no unit, but its instances are.
    let stem = whole.strip_suffix(".service").unwrap_or_default();
    let good = !stem.is_empty() && whole.len() <= 255 && whole.chars().all(plain) && !stem.ends_with('@');
    if good && !stem.contains("..") {
        Ok(whole)
    } else {
        Err(ServiceError::UnitName { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_units() {
        assert_eq!(unit_name("ollama").unwrap(), "ollama.service");
        assert_eq!(unit_name("ollama.service").unwrap(), "ollama.service");
        assert_eq!(unit_name("llm@1").unwrap(), "llm@1.service");
        for name in ["", "../x", "a/b", "a b", ".service", "x@", "a\nb"] {
            assert!(unit_name(name).is_err(), "{name:?}");
        }
    }
}
