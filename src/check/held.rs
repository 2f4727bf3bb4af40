//! Failures that a running server may explain, because it holds what a second one would need.

use crate::diagnosis::cause::{device, host, window};
use crate::diagnosis::{Cause, Finding, Status};

/// Resource that a running server can hold exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldResource {
    /// Channels or memory, which belong to the server's sessions on the device.
    Session,
    /// A place for an owner on a version 1 host. Only the server's loaded models show that it holds one.
    Owner,
    /// The turn at a version 1 device.
    Turn,
}

const HELD: [(Cause, HeldResource); 4] = [
    (window::NO_CHANNEL, HeldResource::Session),
    (host::NO_MEMORY, HeldResource::Session),
    (host::OWNERS_TAKEN, HeldResource::Owner),
    (device::DEVICE_MUTE, HeldResource::Turn),
];

/// Returns the resource for want of which a finding failed, if a server can hold it.
pub fn held(finding: &Finding) -> Option<HeldResource> {
    let cause = finding.cause.filter(|_| finding.status == Status::Fail)?;
    HELD.iter().find(|(known, _)| *known == cause).map(|(_, held)| *held)
}
