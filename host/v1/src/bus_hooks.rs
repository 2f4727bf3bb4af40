//! Changes that tests make to a device of version 1 on the simulated bus. Products make none.

use std::sync::Arc;
use std::time::Duration;

use super::access::Bar;
use super::hooks::TestHooks;

/// Hooks of a device of version 1.
#[derive(Clone, Debug, Default)]
pub struct BusTestHooks {
    /// Hooks of the device itself.
    pub device: TestHooks,
    /// Time that each access to a BAR takes at least. A socket answers faster than a virtual machine exits.
    pub access_cost: Duration,
    /// Observer that is shown each access of each guest.
    pub watch: Option<Arc<dyn Watch>>,
}

/// An access that a guest process is about to make to a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarAccess {
    /// Process id of the guest process.
    pub process: u32,
    /// BAR that the process accesses.
    pub bar: Bar,
    /// Whether the access is a write.
    pub write: bool,
    /// Offset within the BAR, in bytes.
    pub offset: u32,
    /// Value that is written, or for BAR1, which is accessed in blocks, the number of bytes.
    pub value: u32,
}

/// Observes each access of each guest before it is carried out, for a test that records accesses or delays a
/// guest.
pub trait Watch: std::fmt::Debug + Send + Sync {
    /// Is called in the thread that answers the guest, which waits until the call returns. Returns false if
    /// the guest is dead: then nothing that it sent is carried out from here on.
    fn admits(&self, access: BarAccess) -> bool;
}
