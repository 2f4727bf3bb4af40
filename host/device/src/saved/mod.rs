//! What one process hands to the next so that the sessions of a device go on: the state as text, the
//! descriptors that stay open, and the reasons for which either is refused.
//!
//! ```text
//!  old process                                        new process, same pid
//!  ───────────                                        ─────────────────────
//!  Device::pause ─► DeviceState ── JSON ────────────► DeviceState::parse, check ─► Device::restore
//!               └─► KeptDescriptors ── inherited ───► KeptDescriptors ─────────────┘
//! ```
//!
//! The state is checked as if a stranger had written it, although only this program writes it: it may be of
//! another version, and nobody can ask the old process once the new one has found an error.

pub(crate) mod bytes;
pub(crate) mod descriptors;
pub(crate) mod error;
pub(crate) mod state;
