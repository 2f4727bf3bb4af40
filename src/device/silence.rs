//! What of a device does not answer. The launcher and `check` report it in the same words.

use crate::diagnosis::{Cause, cause};

/// What does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The registers.
    Registers,
    /// The mediator behind a device of version 1.
    Mediator,
    /// The host, a new session's greeting.
    Greeting,
    /// The host, an echo.
    Echo,
}

impl Silence {
    /// Its cause in the catalogue.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Registers | Self::Mediator => cause::device::DEVICE_MUTE,
            Self::Greeting | Self::Echo => cause::host::NO_ECHO,
        }
    }

    /// What was found of the device `name`.
    pub fn found(self, name: &str) -> String {
        match self {
            Self::Registers => format!("the registers of {name} do not answer"),
            Self::Mediator => format!("the mediator behind {name} does not answer its first call"),
            Self::Greeting => "the host did not answer a new session's greeting".into(),
            Self::Echo => "the host did not answer an echo".into(),
        }
    }

    /// What mends it.
    pub const fn fix(self) -> &'static str {
        match self {
            Self::Registers => {
                "Is the VM's host overloaded, or its device process stopped or hung? Restart it."
            }
            Self::Mediator => "Is the mediator on the device's host stopped or hung? Restart it.",
            Self::Greeting | Self::Echo => {
                "Look at the device's host: its executor hangs, or is overloaded. Restart it."
            }
        }
    }
}
