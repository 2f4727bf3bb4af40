//! What tells the releases of Ollama apart.

/// A release, as far as it looks for GPUs.
#[derive(Debug)]
pub struct Era {
    /// The process that looks for GPUs.
    pub way: Way,
    /// What `ollama -v` says.
    pub version: &'static str,
    /// The texts by which the eras are told apart: they stand in the binaries of their eras alone, so each
    /// binary brings its own.
    pub lines: Lines,
}

/// Who looks for GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The server itself.
    OwnProcess,
    /// A process of `ollama runner`.
    Runner,
    /// `llama-server` and `ollama gpu-discover`.
    LlamaServer,
}

/// Texts of log lines.
#[derive(Debug)]
pub struct Lines {
    /// When the search begins.
    pub looking: &'static str,
    /// When llama-server fails to list its devices.
    pub listing: &'static str,
}
