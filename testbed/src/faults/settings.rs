//! What can be chosen of a scene: the Ollama, its service, and when a step is taken.

/// The name of the model that a server is asked for.
pub const MODEL: &str = "bench";

/// A way in which Ollama looks for GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Releases up to 0.12.3.
    A,
    /// Releases up to 0.24.
    B,
    /// Releases from 0.30 on.
    C,
}

impl Era {
    /// Returns the stand-in's file.
    pub const fn program(self) -> &'static str {
        match self {
            Self::A => "ollama-era-a",
            Self::B => "ollama-era-b",
            Self::C => "ollama-era-c",
        }
    }
}

/// Time at which a step is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Ollama's files are there.
    Installed,
    /// The device is there.
    Served,
    /// The service runs, if there is one.
    Running,
}

/// A model that a service is to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// No model is asked for.
    None,
    /// One, wherever the service puts it.
    Usual,
    /// One with no layer on the device.
    OffDevice,
}

/// Ollama as a service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Started by the launcher.
    pub wrapped: bool,
    /// What the unit says, if something else than how it was started.
    pub unit_wrapped: bool,
    /// Whether the service runs.
    pub running: bool,
    /// What model is asked for.
    pub model: Model,
    /// Properties of the unit, and their values.
    pub properties: Vec<(&'static str, String)>,
    /// Variables of its process, besides the usual ones.
    pub environment: Vec<(&'static str, String)>,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            wrapped: true,
            unit_wrapped: true,
            running: true,
            model: Model::None,
            properties: Vec::new(),
            environment: Vec::new(),
        }
    }
}
