//! Names the parts of a device that may not answer, so that the launcher and `check` report them in the same
//! words.

use crate::diagnosis::{Cause, cause};

/// Part of a device that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The device's registers do not answer.
    Registers,
    /// The mediator of a version 1 device does not answer.
    Mediator,
    /// The host does not answer a new session's greeting.
    Greeting,
    /// The host does not answer an echo.
    Echo,
}

impl Silence {
    /// Returns the matching cause in the catalogue.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Registers | Self::Mediator => cause::device::DEVICE_MUTE,
            Self::Greeting | Self::Echo => cause::host::NO_ECHO,
        }
    }

    /// Returns a sentence that reports the silence of the device `name`.
    pub fn found(self, name: &str) -> String {
        match self {
            Self::Registers => format!("the registers of {name} do not answer"),
            Self::Mediator => format!("the mediator behind {name} does not answer its first call"),
            Self::Greeting => format!("the host behind {name} did not answer a new session's greeting"),
            Self::Echo => format!("the host behind {name} did not answer an echo"),
        }
    }
}
