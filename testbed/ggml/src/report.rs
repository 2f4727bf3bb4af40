//! Report of `vgpu-ops` on each case, one line of JSON.

use serde::{Deserialize, Serialize};

/// Result category of a case.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The device's result is within the error limit.
    Passed,
    /// The device's result exceeds the limit, or the case produced no result.
    Failed,
    /// A backend does not support the operation, so nothing was compared.
    Unsupported,
}

/// Result of one case, as it is reported.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CaseReport {
    /// Unique name of the case: operation, types and shape.
    pub case: String,
    /// GGML's name of the operation, or the name of a fused pattern.
    pub op: String,
    /// Names of the operands' types, separated by commas.
    pub types: String,
    /// Result category of the case.
    pub outcome: Outcome,
    /// Largest normalised error of its outputs; null where values cannot be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Largest accepted error.
    pub limit: f64,
    /// Reason for a failure, or the operations that a backend refuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Milliseconds that the device took, including the download of the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<f64>,
}

/// Names of a case, as `--list` prints them.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Listed {
    /// Unique name of the case, as `vgpu-ops --serve` accepts it.
    pub case: String,
    /// Name of the operation.
    pub op: String,
    /// Names of the operands' types, separated by commas.
    pub types: String,
    /// Largest accepted error.
    pub limit: f64,
}
