//! What all owners share and no call changes: the executor, the memory for areas and payloads, and the source
//! of handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use vgpu_image::Target;
use vgpu_wire::area;
use vgpu_wire::facts::DeviceFacts;

use super::port::Port;
use super::slots::{SLOT_BYTES, Slots};
use super::status;
use crate::charges::charge::{Charges, DeviceCharges};
use crate::charges::limits::Limits;
use crate::dispatch::dispatcher::Greeting;
use crate::executor::Executor;
use crate::memory::shares::Shares;
use crate::memory::window::{Window, WindowError};
use crate::session::host::{Guest, SessionHost};
use crate::session::published::Published;

/// The most owners of all machines together: 16 times what one machine may have. Existing hosts serve 16
/// machines.
pub(super) const OWNERS_OF_ALL: u32 = 16 * vgpu_wire::v1::call::OWNERS_MAX as u32;
/// The most calls with a long payload that are executed at a time.
const SLOTS: u32 = 256;
/// Number of bytes of an owner's area that are used. It ends before the ring, which the mediator does not
/// need.
const USED_OF_AREA: u64 = area::RING;

/// Source of handles. A handle is never used again, and looks like a pointer of the host: a guest that keeps
/// only 32 bits of one cannot use it.
#[derive(Debug)]
pub(super) struct Mint(AtomicU64);

impl Mint {
    const FIRST: u64 = 0x5560_0000_0020;
    const STEP: u64 = 0x10;

    pub(super) fn handle(&self) -> u64 {
        self.0.fetch_add(Self::STEP, Ordering::Relaxed)
    }
}

/// What all owners of a mediator share.
pub(super) struct Core {
    pub(super) executor: Arc<dyn Executor>,
    pub(super) facts: Box<DeviceFacts>,
    window: Arc<Window>,
    shares: Arc<Shares>,
    published: Arc<Published>,
    limits: Limits,
    charges: Arc<DeviceCharges>,
    greeting: Arc<Greeting>,
    slots: Arc<Slots>,
    epoch: Instant,
    pub(super) mint: Mint,
    /// The handle of the only context.
    pub(super) context: u64,
}

impl Core {
    pub(super) fn new(
        executor: Arc<dyn Executor>,
        limits: Limits,
        charges: Arc<DeviceCharges>,
    ) -> Result<Self, WindowError> {
        let facts = Box::new(executor.facts());
        let areas = u64::from(OWNERS_OF_ALL) * area::AREA_BYTES;
        // This reserves addresses. Memory is allocated where it is first used.
        let window = Arc::new(Window::private(areas + u64::from(SLOTS) * SLOT_BYTES)?);
        let greeting = Greeting { generation: 1, window_bytes: 0, pages: false, facts: facts.clone() };
        let mint = Mint(AtomicU64::new(Mint::FIRST));
        Ok(Self {
            shares: Arc::new(Shares::new(Arc::clone(&window), window.bytes())),
            published: Arc::new(Published::new(
                facts.total_bytes,
                Box::new(Arc::clone(&executor)),
                Vec::new(),
            )),
            // No call reserves addresses. The executor may keep as few for each owner as allocations need.
            limits: Limits { reservations: 0, ..limits },
            charges,
            greeting: Arc::new(greeting),
            slots: Slots::new(Arc::clone(&window), areas, SLOTS),
            facts,
            epoch: Instant::now(),
            context: mint.handle(),
            mint,
            executor,
            window,
        })
    }

    /// The architecture and versions that the executor's code must have.
    pub(super) fn target(&self) -> Target {
        Target { sm: 10 * self.facts.cc_major + self.facts.cc_minor, abilities: self.facts.abilities }
    }

    /// The host's side of a new session that uses this area.
    pub(super) fn host(&self, area: u32, session: u32) -> SessionHost {
        SessionHost::new(
            Arc::clone(&self.window),
            Some(Arc::clone(&self.shares)),
            area,
            self.epoch,
            Arc::clone(&self.published),
            Charges::new(session, self.limits, Arc::clone(&self.charges)),
            Guest { wakes: true, ..Guest::default() },
        )
    }

    /// Opens a session.
    pub(super) fn open(&self, host: &SessionHost) -> Result<Port, u32> {
        if !self.window.reserve(host.area(), USED_OF_AREA) {
            return Err(status::OUT_OF_MEMORY);
        }
        let port = Port::open(host.clone(), &*self.executor, &self.greeting, Arc::clone(&self.slots));
        port.map_err(|error| {
            tracing::warn!("failed to {error}");
            status::OUT_OF_MEMORY
        })
    }

    /// Clears an area that no owner uses any more.
    pub(super) fn clear(&self, area: u32) {
        self.window.clear(u64::from(area) * area::AREA_BYTES, area::AREA_BYTES);
    }
}
