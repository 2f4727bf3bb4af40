//! A line of output: a step that starts or has ended.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Results that a step reports.
pub trait Message: Serialize + DeserializeOwned {
    /// The name of the step.
    const STEP: &'static str;
}

/// A line of output about a step.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Line<T> {
    /// Name of the step.
    pub step: String,
    /// Whether the step starts. Absent from a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<bool>,
    /// Whether the step succeeded. Absent from an announcement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// Results of the step.
    #[serde(flatten)]
    pub body: T,
}

impl Line<()> {
    /// Returns the line that announces a step.
    pub fn begin(step: &str) -> Self {
        Self { step: step.to_owned(), begin: Some(true), ok: None, body: () }
    }
}

impl<T> Line<T> {
    /// Returns the line that reports a step that has ended.
    pub fn end(step: &str, ok: bool, body: T) -> Self {
        Self { step: step.to_owned(), begin: None, ok: Some(ok), body }
    }
}

/// Declares types of results, each with the name of its step.
#[macro_export]
macro_rules! messages {
    ($($(#[$about:meta])* $step:literal $name:ident { $($(#[$field_about:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Deserialize, ::serde::Serialize)]
        #[serde(default)]
        pub struct $name { $($(#[$field_about])* pub $field: $kind,)* }

        impl $crate::Message for $name {
            const STEP: &'static str = $step;
        }
    )*};
}
