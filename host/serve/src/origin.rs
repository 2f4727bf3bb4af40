//! Where a device comes from: this start, or the program before this one.

use std::sync::Arc;

use vgpu_vfio_user::record::Record;

use crate::reload::Handover;
use crate::takeover::Takeover;

/// What a device comes from.
pub(crate) enum Origin {
    /// It is made anew, or takes the place of one whose process has died.
    Start(Box<Takeover>),
    /// The program before this one has handed it over.
    Handover(Box<Handover>),
}

impl Origin {
    /// Returns the record of worker processes, if the service manager keeps one.
    pub(crate) fn record(&self) -> Option<&Arc<Record>> {
        match self {
            Self::Start(takeover) => takeover.record(),
            Self::Handover(handover) => handover.record(),
        }
    }

    /// Returns whether a crash of this process does not cost the VM its GPU.
    pub(crate) fn is_kept(&self) -> bool {
        self.record().is_some()
    }
}

impl Default for Origin {
    fn default() -> Self {
        Self::Start(Box::default())
    }
}
