//! The lines that the probe prints.

use std::io::Write;
use std::time::Instant;

use serde_json::{Map, Value, json};

/// Why a step failed: a call with its code, or anything else in words.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call that failed, as its library names it.
    pub call: String,
    /// Its code, where it has one.
    pub code: Option<i32>,
    /// In words: the library's own, or ours.
    pub words: String,
}

impl Fault {
    /// A failure that is no call's: a wrong result.
    pub fn wrong(call: &str, words: impl Into<String>) -> Self {
        Self { call: call.into(), code: None, words: words.into() }
    }
}

/// Fields of a line.
pub type Fields = Map<String, Value>;

/// Says what is done, and remembers whether anything failed.
#[derive(Debug, Default)]
pub struct Say {
    failed: bool,
}

impl Say {
    /// No step has failed.
    pub fn all_well(&self) -> bool {
        !self.failed
    }

    /// Does a step: says its beginning, then its end. What it returns is given on if it went well.
    pub fn step<T>(&mut self, name: &str, work: impl FnOnce(&mut Fields) -> Result<T, Fault>) -> Option<T> {
        line(&json!({ "step": name, "begin": true }));
        let mut fields = Fields::new();
        let start = Instant::now();
        let result = work(&mut fields);
        let elapsed = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        fields.insert("step".into(), name.into());
        fields.insert("elapsed_us".into(), elapsed.into());
        fields.insert("ok".into(), result.is_ok().into());
        let value = match result {
            Ok(value) => Some(value),
            Err(fault) => {
                self.failed = true;
                fields.insert("call".into(), fault.call.into());
                fields.insert("code".into(), fault.code.into());
                fields.insert("error".into(), fault.words.into());
                None
            }
        };
        line(&Value::Object(fields));
        value
    }
}

/// One line, written at once: what was said before a crash has been said.
fn line(value: &Value) {
    let mut text = value.to_string();
    text.push('\n');
    // Nobody listens: then nobody is to be told.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_remembered_and_its_value_is_none() {
        let mut say = Say::default();
        assert_eq!(say.step("a", |_| Ok(1)), Some(1));
        assert!(say.all_well());
        let fault = || Fault { call: "cuInit".into(), code: Some(100), words: "no device".into() };
        assert_eq!(say.step::<()>("b", |_| Err(fault())), None);
        assert_eq!(say.step("c", |_| Ok(2)), Some(2));
        assert!(!say.all_well());
    }
}
