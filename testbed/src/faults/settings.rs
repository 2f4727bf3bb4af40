//! Settings of a scene: the Ollama release, its service, and the time of a step.

/// Name of the model that a server is asked to load.
pub const MODEL: &str = "bench";

/// Range of Ollama releases that search for GPUs in the same manner.
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
    /// Returns the file name of the stand-in for this era.
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
    /// After Ollama's files were installed.
    Installed,
    /// After the device was served.
    Served,
    /// After the service was started, if there is one.
    Running,
}

/// Model that a service has to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// No model is loaded.
    None,
    /// A model with default options, so that the service decides where its layers go.
    Usual,
    /// A model with no layer on the device.
    OffDevice,
}

/// Ollama as a service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Whether the service was started by the launcher.
    pub wrapped: bool,
    /// Whether the unit names the launcher, if that differs from how the service was started.
    pub unit_wrapped: bool,
    /// Whether the service's process is started.
    pub running: bool,
    /// Model that the service has to load.
    pub model: Model,
    /// Properties of the unit with their values.
    pub properties: Vec<(&'static str, String)>,
    /// Environment variables of the service in addition to the usual ones.
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
