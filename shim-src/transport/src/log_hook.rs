//! Notices: events that an operator should read in a log. The transport has no log, so the library that links
//! it listens.

use std::sync::OnceLock;
use std::time::Duration;

use vgpu_wire::pci::PciAddress;

use crate::session_error::SessionError;

/// An event to be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A session was lost, which is reported once.
    Lost {
        /// PCI address of the device.
        function: PciAddress,
        /// What ended the session.
        lost: SessionError,
    },
    /// The registers have not answered for a while, because the device is stopped or its machine is paused.
    /// The call continues to wait.
    Silent {
        /// PCI address of the device.
        function: PciAddress,
        /// Time that the call has waited so far.
        waited: Duration,
    },
    /// The registers answer again after a silence.
    Back {
        /// PCI address of the device.
        function: PciAddress,
        /// Time during which the registers did not answer.
        waited: Duration,
    },
    /// The mediator rejected a call because this virtual machine makes too many. The call is tried again.
    Limited {
        /// PCI address of the device.
        function: PciAddress,
    },
    /// The program closed a descriptor of the transport, which was reopened.
    Reopened {
        /// PCI address of the device.
        function: PciAddress,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lost { function, lost } => write!(f, "{function}: {lost}"),
            Self::Silent { function, waited } => {
                write!(f, "{function}: the device has not answered for {} s, waiting", waited.as_secs())
            }
            Self::Back { function, waited } => {
                write!(f, "{function}: the device answers again, after {} s", waited.as_secs())
            }
            Self::Limited { function } => {
                write!(f, "{function}: the host limits the calls of this virtual machine, trying again")
            }
            Self::Reopened { function } => {
                write!(f, "{function}: the program closed a descriptor of the device, opened it again")
            }
        }
    }
}

static LISTENER: OnceLock<fn(&Notice)> = OnceLock::new();

/// Sets the listener of the process; a second one is ignored. It is called from any thread, at times with
/// locks of a session held, and must not call into a session.
pub fn listen(listener: fn(&Notice)) {
    // The first listener stays.
    let _ = LISTENER.set(listener);
}

/// Passes an event to the listener.
pub fn notify(notice: &Notice) {
    if let Some(listener) = LISTENER.get() {
        listener(notice);
    }
}
