//! The device that a domain asks for in its metadata: an element of a namespace of its own, whose attributes
//! are settings of `serve`.
//!
//! ```text
//! <metadata>
//!   <vgpu:device xmlns:vgpu='urn:vgpu-run:device:1' memory='8G' weight='2'/>
//! </metadata>
//! ```

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::config::{EXAMPLES, explained};
use crate::control::NOT_NAMES;
use crate::settings::Settings;
use crate::vm::escaped;

/// Namespace of the element.
pub(super) const NAMESPACE: &str = "urn:vgpu-run:device:1";
/// Name of the element, and its usual prefix.
pub(super) const ELEMENT: &str = "device";
pub(super) const PREFIX: &str = "vgpu";
/// Attribute that names the instance of the unit, which has the domain's name otherwise.
pub(super) const INSTANCE: &str = "instance";
/// Settings that attributes can be. The others concern the host, and stand in the instance's file.
pub(super) const SETTINGS: [&str; 6] = ["gpu", "memory", "weight", "window", "channels", "group"];

/// Reason for which a request cannot be met.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    /// An attribute is no setting that a domain can have.
    #[error(
        "{PREFIX}:{ELEMENT} has no attribute `{0}`: there are {INSTANCE}, {settings}; other settings stand in \
         /etc/vgpu-device/NAME.toml",
        settings = SETTINGS.join(", ")
    )]
    Unknown(String),
    /// An attribute has a value that its setting cannot have.
    #[error("{PREFIX}:{ELEMENT} {0}")]
    Value(String),
    /// The instance's name is none of a unit.
    #[error(
        "`{0}` cannot name an instance of vgpu-device@.service: a name has 1 to 64 letters, digits and `-`, `_`, `.`, \
         does not begin with `-` or `.`, and is none of {refused}; the attribute {INSTANCE} of \
         {PREFIX}:{ELEMENT} gives another one",
        refused = NOT_NAMES.join(", ")
    )]
    Name(String),
}

/// The attributes of a request, by name. A value is the text that a command line has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request(pub(super) BTreeMap<String, String>);

impl Request {
    /// Returns the name of the instance of a domain's unit.
    pub(super) fn instance(&self, domain: &str) -> Result<String, RequestError> {
        let name = self.0.get(INSTANCE).map_or(domain, String::as_str);
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let fits = (1..=64).contains(&name.len()) && name.chars().all(plain) && !name.starts_with(['-', '.']);
        if !fits || NOT_NAMES.contains(&name) {
            return Err(RequestError::Name(name.to_owned()));
        }
        Ok(name.to_owned())
    }

    /// Returns the settings, as text of a configuration file and as values.
    pub(super) fn settings(&self) -> Result<(String, Settings), RequestError> {
        let mut table = Table::new();
        for (name, value) in self.0.iter().filter(|(name, _)| *name != INSTANCE) {
            if !SETTINGS.contains(&name.as_str()) {
                return Err(RequestError::Unknown(name.clone()));
            }
            let quoted = EXAMPLES.iter().any(|(known, example)| known == name && example.starts_with('"'));
            // Text in place of a number is refused by the parser of the file, which names the setting.
            let number = value.parse().ok().filter(|_| !quoted).map(Value::Integer);
            table.insert(name.clone(), number.unwrap_or_else(|| Value::String(value.clone())));
        }
        let text = table.to_string();
        match toml::from_str(&text) {
            Ok(settings) => Ok((text, settings)),
            Err(error) => Err(RequestError::Value(explained(&text, &error).1)),
        }
    }

    /// Returns the element.
    pub(super) fn element(&self) -> String {
        let attributes = self
            .0
            .iter()
            .map(|(name, value)| format!(" {name}='{}'", escaped(value)))
            .collect::<Vec<_>>()
            .concat();
        format!("<{PREFIX}:{ELEMENT} xmlns:{PREFIX}='{NAMESPACE}'{attributes}/>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(attributes: &[(&str, &str)]) -> Request {
        Request(attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn attributes_are_settings() {
        let all = request(&[("memory", "8G"), ("weight", "2"), ("group", "0"), ("instance", "x")]);
        let (text, settings) = all.settings().unwrap();
        assert_eq!(settings.given(), ["memory", "weight", "group"]);
        assert_eq!(toml::from_str::<Settings>(&text).unwrap(), settings);
        for (name, value, why) in [
            ("memory", "8X", "for example: memory = \"8G\""),
            ("weight", "0", "1 to 1000"),
            ("weight", "many", "a number without quotation marks"),
        ] {
            let error = request(&[(name, value)]).settings().unwrap_err().to_string();
            assert!(error.starts_with("vgpu:device ") && error.contains(why), "{name} {value}: {error}");
        }
        let error = request(&[("libcuda", "/x")]).settings().unwrap_err();
        assert_eq!(error, RequestError::Unknown("libcuda".to_owned()));
    }

    #[test]
    fn an_instance_has_a_name_that_a_unit_can_have() {
        assert_eq!(request(&[]).instance("vm-1.a_b"), Ok("vm-1.a_b".to_owned()));
        assert_eq!(request(&[("instance", "vm2")]).instance("my vm"), Ok("vm2".to_owned()));
        for bad in
            ["", "my vm", "../x", ".x", "-x", "a/b", "a@b", "a\\x2d", "gpus", "address-ranges", "libvirt"]
        {
            assert!(request(&[]).instance(bad).is_err(), "{bad}");
        }
        assert!(request(&[]).instance(&"x".repeat(65)).is_err());
    }

    #[test]
    fn the_element_is_xml() {
        let element = request(&[("memory", "8G"), ("gpu", "a'&<")]).element();
        let document = roxmltree::Document::parse(&element).unwrap();
        let root = document.root_element();
        assert!(root.has_tag_name((NAMESPACE, ELEMENT)));
        assert_eq!((root.attribute("memory"), root.attribute("gpu")), (Some("8G"), Some("a'&<")));
    }
}
