//! Differences between the releases of Ollama.

/// Properties of a release that concern the discovery of GPUs.
#[derive(Debug)]
pub struct Era {
    /// Process that searches for GPUs.
    pub way: Way,
    /// Version that `ollama -v` prints.
    pub version: &'static str,
    /// Log texts that identify the era. They occur only in the binaries of their era, so each binary brings
    /// its own.
    pub lines: Lines,
}

/// Process that searches for GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The server itself searches.
    OwnProcess,
    /// A process of `ollama runner` searches.
    Runner,
    /// The processes `llama-server` and `ollama gpu-discover` search.
    LlamaServer,
}

/// Texts of log lines that identify an era.
#[derive(Debug)]
pub struct Lines {
    /// Text at the start of the search.
    pub looking: &'static str,
    /// Text if llama-server fails to list its devices.
    pub listing: &'static str,
}
