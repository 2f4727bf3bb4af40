//! Prints the lines of the steps.

use std::io::Write;
use std::time::Instant;

use serde::Serialize;
use vgpu_probe_steps::{Elapsed, Ended, Fault, Line, Message};

/// Prints the steps, and records whether any has failed.
#[derive(Debug, Default)]
pub struct Say {
    failed: bool,
}

impl Say {
    /// Returns whether no step has failed.
    pub fn all_well(&self) -> bool {
        !self.failed
    }

    /// Runs the step of the message `M` as [`Say::named`] does.
    pub fn step<M: Message + Default, T>(
        &mut self,
        work: impl FnOnce(&mut M) -> Result<T, Fault>,
    ) -> Option<T> {
        self.named(M::STEP, work)
    }

    /// Runs a step that reports nothing but its outcome.
    pub fn silent<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T, Fault>) -> Option<T> {
        self.named(name, |(): &mut ()| work())
    }

    /// Runs a step: announces it, then reports its outcome with what `work` has stored by then. Returns the
    /// result of `work` if it succeeded.
    pub fn named<S: Serialize + Default, T>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut S) -> Result<T, Fault>,
    ) -> Option<T> {
        print(&Line::begin(name));
        let mut said = S::default();
        let start = Instant::now();
        let result = work(&mut said);
        let elapsed_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.failed |= result.is_err();
        let (value, fault) = match result {
            Ok(value) => (Some(value), None),
            Err(fault) => (None, Some(fault)),
        };
        print(&Line::end(name, fault.is_none(), Ended { elapsed: Elapsed { elapsed_us }, said, fault }));
        value
    }
}

/// Prints one line at once, so that it is not lost in a crash.
fn print(line: &impl Serialize) {
    // None of the types can fail to be written: their keys are strings.
    let Ok(mut text) = serde_json::to_string(line) else { return };
    text.push('\n');
    // If nobody reads the output, errors of writing it do not matter.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vgpu_probe_steps::{Resolved, Started};

    use super::*;

    #[test]
    fn a_failure_is_remembered_and_its_value_is_none() {
        let mut say = Say::default();
        assert_eq!(say.silent("a", || Ok(1)), Some(1));
        assert!(say.all_well());
        let fault = || Fault { call: "cuInit".into(), code: Some(100), error: "no device".into() };
        assert_eq!(say.silent::<()>("b", || Err(fault())), None);
        assert_eq!(say.step(|said: &mut Started| Ok(said.count)), Some(0));
        assert!(!say.all_well());
    }

    #[test]
    fn lines_are_as_they_have_been() {
        let elapsed = Elapsed { elapsed_us: 7 };
        let fault = Fault { call: "cuInit".into(), code: Some(100), error: "no device".into() };
        let line = Line::end("init", false, Ended { elapsed, said: (), fault: Some(fault) });
        assert_eq!(
            serde_json::to_value(&line).unwrap(),
            json!({"step": "init", "ok": false, "elapsed_us": 7, "call": "cuInit", "code": 100, "error": "no device"})
        );
        let said = Resolved { path: "/lib/x.so".into(), file: None };
        let line = Line::end("x.so", true, Ended { elapsed, said, fault: None });
        assert_eq!(
            serde_json::to_value(&line).unwrap(),
            json!({"step": "x.so", "ok": true, "elapsed_us": 7, "path": "/lib/x.so"})
        );
        assert_eq!(serde_json::to_value(Line::begin("x")).unwrap(), json!({"step": "x", "begin": true}));
    }
}
