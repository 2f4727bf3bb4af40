//! What `vgpu-ops` prints of each case, one line of JSON.

use serde::{Deserialize, Serialize};

/// How a case ended.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The device's result is within the limit.
    Passed,
    /// It is not, or there is none.
    Failed,
    /// A backend refuses the operation.
    Unsupported,
}

/// One case and its outcome.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CaseReport {
    /// Its name, unique: operation, types and shape.
    pub case: String,
    /// Operation, as GGML calls it, or the pattern of a fused graph.
    pub op: String,
    /// Types of what it works on.
    pub types: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The worst error of its outputs; none where values cannot be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// The largest error that is accepted.
    pub limit: f64,
    /// What is wrong, or who refuses what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Milliseconds that the device took for it, the copy of the results included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<f64>,
}

/// A case by its names, as `--list` prints it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Listed {
    /// Name of the case.
    pub case: String,
    /// Name of the operation.
    pub op: String,
    /// Types of the operands.
    pub types: String,
    /// The largest error that is accepted.
    pub limit: f64,
}
