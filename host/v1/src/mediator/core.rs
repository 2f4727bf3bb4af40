//! State that all owners share and that no call changes: the executor, the memory for areas and payloads, and
//! the source of handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vgpu_device::{DeviceCharges, Executor, Limits, LocalSessions, SessionHost, WindowError};
use vgpu_image::Target;
use vgpu_wire::area;

use super::port::Port;
use super::slots::{PayloadSlots, SLOT_BYTES};
use super::status;

/// Largest number of owners of all machines together: 16 times the limit of one machine. Existing hosts serve
/// 16 machines.
pub(super) const OWNERS_OF_ALL: u32 = 16 * vgpu_wire::v1::call::OWNERS_MAX as u32;
/// Largest number of calls with a long payload that are executed at a time.
const SLOTS: u32 = 256;
/// Source of handles. A handle is never used again, and has the form of a pointer of the host: a guest that
/// keeps only 32 bits of one cannot use it.
#[derive(Debug)]
pub(super) struct Mint(AtomicU64);

impl Mint {
    const FIRST: u64 = 0x5560_0000_0020;
    const STEP: u64 = 0x10;

    pub(super) fn handle(&self) -> u64 {
        self.0.fetch_add(Self::STEP, Ordering::Relaxed)
    }
}

/// State that all owners of a mediator share.
pub(super) struct Core {
    pub(super) executor: Arc<dyn Executor>,
    pub(super) sessions: LocalSessions,
    slots: Arc<PayloadSlots>,
    pub(super) mint: Mint,
    /// Handle of the only context, which all owners get.
    pub(super) context: u64,
}

impl Core {
    pub(super) fn new(
        executor: Arc<dyn Executor>,
        limits: Limits,
        charges: Arc<DeviceCharges>,
    ) -> Result<Self, WindowError> {
        // No call reserves addresses. The executor may keep as few for each owner as allocations need.
        let limits = Limits { reservations: 0, ..limits };
        let payloads = u64::from(SLOTS) * SLOT_BYTES;
        let sessions = LocalSessions::new(Arc::clone(&executor), limits, charges, OWNERS_OF_ALL, payloads)?;
        let areas = u64::from(OWNERS_OF_ALL) * area::AREA_BYTES;
        let mint = Mint(AtomicU64::new(Mint::FIRST));
        Ok(Self {
            slots: PayloadSlots::new(Arc::clone(sessions.window()), areas, SLOTS),
            sessions,
            context: mint.handle(),
            mint,
            executor,
        })
    }

    /// Returns the target for which the code of an image is chosen: the executor's architecture, and what it
    /// accepts.
    pub(super) fn target(&self) -> Target {
        let facts = self.sessions.facts();
        Target { sm: 10 * facts.cc_major + facts.cc_minor, abilities: facts.abilities }
    }

    /// Opens a session of the executor for an owner. The error is the `CUresult` of the owner's call.
    pub(super) fn open(&self, host: &SessionHost) -> Result<Port, u32> {
        let session = self.sessions.open(host);
        session.and_then(|session| Port::open(session, Arc::clone(&self.slots))).map_err(|error| {
            tracing::warn!("failed to {error}");
            status::OUT_OF_MEMORY
        })
    }
}
