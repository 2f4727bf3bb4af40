//! Parses the steps that a child process reported on its stdout: see [`vgpu_probe_steps`].

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use vgpu_probe_steps::{Line, Message};

use super::messages::StepFailure;
use crate::diagnosis::LinkId;

/// Report of a step that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Name of the step.
    pub step: String,
    /// Whether the step succeeded.
    pub ok: bool,
    /// Fields of the step's message.
    pub fields: Map<String, Value>,
}

/// All steps that a child reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// Reports of the steps that have ended, in order.
    pub done: Vec<StepReport>,
    /// Name of the step that was announced and has not ended.
    pub open: Option<String>,
}

impl Steps {
    /// Parses the output of a child. Other lines are ignored, because libraries print too.
    pub fn read(stdout: &str) -> Self {
        let mut steps = Self::default();
        for line in stdout.lines() {
            let Ok(line) = serde_json::from_str::<Line<Map<String, Value>>>(line) else { continue };
            let Line { step, begin, ok, body } = line;
            if begin == Some(true) {
                steps.open = Some(step);
            } else {
                steps.open = steps.open.filter(|open| *open != step);
                steps.done.push(StepReport { step, ok: ok == Some(true), fields: body });
            }
        }
        steps
    }

    /// Returns the report of the step with that name.
    pub fn get(&self, step: &str) -> Option<&StepReport> {
        self.done.iter().find(|report| report.step == step)
    }

    /// Returns the report of the step `M`.
    pub fn report_of<M: Message>(&self) -> Option<&StepReport> {
        self.get(M::STEP)
    }

    /// Returns the message of the step `M`, whether or not the step succeeded, or `None` if it has not ended.
    pub fn said<M: Message>(&self) -> Option<M> {
        self.report_of::<M>().and_then(StepReport::said)
    }

    /// Returns the message of the step `M` if it succeeded.
    pub fn succeeded<M: Message>(&self) -> Option<M> {
        self.report_of::<M>().filter(|report| report.ok).and_then(StepReport::said)
    }

    /// Returns the report of the first step that failed.
    pub fn failed(&self) -> Option<&StepReport> {
        self.done.iter().find(|report| !report.ok)
    }

    /// Returns the first failure at a link that `concerned` accepts.
    pub fn broken(&self, concerned: impl Fn(LinkId) -> bool) -> Option<StepFailure> {
        let failures =
            self.done.iter().filter(|report| !report.ok).filter_map(StepReport::said::<StepFailure>);
        failures.into_iter().find(|failure| failure.link.is_some_and(&concerned))
    }
}

impl StepReport {
    /// Parses the message as a `T`. Returns `None` if it is of another type.
    pub fn said<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_value(Value::Object(self.fields.clone())).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Default, Deserialize, Serialize)]
    #[serde(default)]
    struct Open {
        mib: Option<u64>,
        name: String,
    }

    impl Message for Open {
        const STEP: &'static str = "open";
    }

    #[test]
    fn the_step_that_was_begun_last_is_the_open_one() {
        let steps = Steps::read(
            "noise\n{\"step\":\"open\",\"begin\":true}\n{\"step\":\"open\",\"ok\":true,\"mib\":256,\"name\":\"x\"}\n\
             {\"step\":\"call\",\"begin\":true}\n{\"broken",
        );
        assert_eq!(steps.open.as_deref(), Some("call"));
        let open: Open = steps.succeeded().unwrap();
        assert!(open.mib == Some(256) && open.name == "x");
        assert!(steps.failed().is_none());
        let steps = Steps::read("{\"step\":\"a\",\"begin\":true}\n{\"step\":\"a\",\"ok\":false}\n");
        assert_eq!(
            (steps.open.clone(), steps.failed().map(|report| report.step.as_str())),
            (None, Some("a"))
        );
    }

    proptest! {
        #[test]
        fn no_output_breaks_the_reader(text in "[\\x00-\\x7f]{0,80}", fields in "[{}\":,a-z\\n]{0,60}") {
            let _ = Steps::read(&text);
            let _ = Steps::read(&fields);
        }
    }
}
