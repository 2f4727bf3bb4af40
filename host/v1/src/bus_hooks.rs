//! What tests change about a device of version 1 on the simulated bus. A product sets none of it.

use std::sync::Arc;
use std::time::Duration;

use super::access::Bar;
use super::hooks::TestHooks;

/// Hooks of a device of version 1.
#[derive(Clone, Debug, Default)]
pub struct BusTestHooks {
    /// Those of the device itself.
    pub device: TestHooks,
    /// How long each access to a BAR takes. A socket answers faster than a virtual machine exits.
    pub access_cost: Duration,
    /// Is shown each access of each guest.
    pub watch: Option<Arc<dyn Watch>>,
}

/// What a guest process is about to do to a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarAccess {
    /// Process id of the guest process.
    pub process: u32,
    /// The BAR that it accesses.
    pub bar: Bar,
    /// Whether the access is a write.
    pub write: bool,
    /// Offset within the BAR, in bytes.
    pub offset: u32,
    /// The value that is written; of BAR1, which is reached in blocks, how many bytes.
    pub value: u32,
}

/// Looks on at each access of each guest, before it is carried out: a test that writes them down, or holds a
/// guest up at one.
pub trait Watch: std::fmt::Debug + Send + Sync {
    /// Is called in the thread that answers the guest, which waits until the call returns. Returns false if
    /// the guest is dead: then nothing that it sent is carried out from here on.
    fn admits(&self, access: BarAccess) -> bool;
}
