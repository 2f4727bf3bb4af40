//! A session's device memory: what it has allocated, in one range of addresses that was announced to its
//! guest.
//!
//! Allocations above half a megabyte are physical memory of their own; smaller ones share blocks of the
//! device's granularity, so that they cost no call. Which memory lives is known here, and no copy goes
//! elsewhere.

mod virtual_memory;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vgpu_abi::CUresult;
use vgpu_device::{
    AddressSpace, Charge, Grain, NoAddresses, OutOfMemory, OverLimit, Resource, SessionHost, Share, Taken,
};

use crate::driver::context::Context;
use crate::driver::error::DriverError;
use crate::driver::range::{DeviceRange, Mapping, Physical, Reserved};
use crate::gpu::block::Block;
use crate::shared::Occupied;
use virtual_memory::Virtual;

pub(crate) use virtual_memory::MapOutcome;

/// The largest allocation that shares a block.
const SMALL_MOST: u64 = 512 << 10;

/// How long a wait for a mapping's end lasts before its caller looks whether it still makes sense.
const PATIENCE: Duration = Duration::from_millis(20);

/// Why memory is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    /// The session or the device has no more.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// There are no addresses for a reservation.
    #[error(transparent)]
    NoAddresses(#[from] NoAddresses),
    /// The session has as many reservations as it may have.
    #[error(transparent)]
    TooMany(#[from] OverLimit),
    /// What is asked for makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// The driver refuses.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl MemoryError {
    /// The `CUresult` for the guest.
    pub(crate) const fn code(&self) -> u32 {
        match self {
            Self::OutOfMemory(_) | Self::NoAddresses(_) | Self::TooMany(_) => CUresult::OUT_OF_MEMORY.0,
            Self::Invalid(_) => CUresult::INVALID_VALUE.0,
            Self::Driver(error) => error.code.0,
        }
    }
}

/// An allocation.
#[derive(Debug)]
struct Allocation {
    bytes: u64,
    place: Place,
    _count: Charge,
}

#[derive(Debug)]
enum Place {
    /// In the block at this address.
    Block(u64),
    Own(Own),
}

/// Memory that shares nothing.
#[derive(Debug)]
struct Own {
    mapping: Mapping,
    _taken: Taken,
}

/// What lives.
#[derive(Debug)]
struct State {
    /// Addresses in granules.
    space: AddressSpace,
    allocations: BTreeMap<u64, Allocation>,
    /// Blocks that small allocations share, by address.
    blocks: BTreeMap<u64, Block>,
    /// Variables of modules that the guest has asked for: bytes and module by address.
    globals: BTreeMap<u64, (DeviceRange, u32)>,
    /// What the guest manages itself.
    own: Virtual,
}

/// The device memory of a session.
#[derive(Debug)]
pub(crate) struct Memory {
    context: Arc<Context>,
    share: Share,
    host: SessionHost,
    reserved: Arc<Reserved>,
    /// Behind the reservation, which ends before another session's starts.
    _occupied: Occupied,
    granule: u64,
    state: Mutex<State>,
    /// How often memory was taken from the session.
    changes: AtomicU64,
    /// Told when a mapping that the guest has ended is gone.
    unmapped: Condvar,
}

impl Memory {
    /// A session without memory. `reserved` are its addresses, `granule` divides them.
    pub(crate) fn new(
        context: &Arc<Context>,
        share: Share,
        host: SessionHost,
        (reserved, occupied): (Reserved, Occupied),
        granule: u64,
    ) -> Arc<Self> {
        let range = reserved.range();
        // A granule stays free behind each allocation: what runs over its end is found.
        let grain = Grain { least: granule, gap: granule, large: granule };
        let state = State {
            space: AddressSpace::new(range.address(), range.bytes(), grain),
            allocations: BTreeMap::new(),
            blocks: BTreeMap::new(),
            globals: BTreeMap::new(),
            own: Virtual::default(),
        };
        Arc::new(Self {
            context: Arc::clone(context),
            share,
            host,
            reserved: Arc::new(reserved),
            _occupied: occupied,
            granule,
            state: Mutex::new(state),
            changes: AtomicU64::new(0),
            unmapped: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates `bytes`, which are not 0: the address, at a multiple of 512.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64, MemoryError> {
        let count = self.share.charge(Resource::Allocations, 1)?;
        let mut state = self.state();
        let (address, place) = if bytes <= SMALL_MOST.min(self.granule / 2) {
            let (block, address) = self.allocate_small(&mut state, bytes)?;
            (address, Place::Block(block))
        } else {
            let own = self.allocate_own(&mut state, bytes)?;
            (own.mapping.range().address(), Place::Own(own))
        };
        state.allocations.insert(address, Allocation { bytes, place, _count: count });
        self.report(&state);
        Ok(address)
    }

    /// A place in a block: the block's address, and the allocation's.
    fn allocate_small(&self, state: &mut State, bytes: u64) -> Result<(u64, u64), MemoryError> {
        for (&start, block) in state.blocks.iter_mut().rev() {
            if let Some(address) = block.take(bytes) {
                return Ok((start, address));
            }
        }
        let Own { mapping, _taken: taken } = self.allocate_own(state, self.granule)?;
        let start = mapping.range().address();
        let block = state.blocks.entry(start).or_insert(Block::new(mapping, taken));
        block.take(bytes).map(|address| (start, address)).ok_or(OutOfMemory.into())
    }

    fn allocate_own(&self, state: &mut State, bytes: u64) -> Result<Own, MemoryError> {
        let whole = bytes.checked_next_multiple_of(self.granule).ok_or(OutOfMemory)?;
        let taken = self.share.take(whole)?;
        let address = state.space.take(whole).ok_or(OutOfMemory)?;
        let mapped = Physical::create(&self.context, whole)
            .and_then(|physical| Mapping::map_whole(&self.reserved, address, &Arc::new(physical)));
        match mapped {
            Ok(mapping) => Ok(Own { mapping, _taken: taken }),
            Err(error) => {
                state.space.give_back(address, whole);
                Err(error.into())
            }
        }
    }

    /// Takes the allocation that starts at `address` from the session: no copy may name it any more, and it
    /// is free when what is returned is dropped. `None`: there is none.
    pub(crate) fn take(self: &Arc<Self>, address: u64) -> Option<Freed> {
        let allocation = self.state().allocations.remove(&address)?;
        self.note_change();
        Some(Freed { memory: Arc::clone(self), address, allocation: Some(allocation) })
    }

    /// The `bytes` at `address`, if all of them are memory of the session's.
    pub(crate) fn find(&self, address: u64, bytes: u64) -> Option<DeviceRange> {
        let range = self.reserved.range().part(address, bytes);
        let state = self.state();
        if let Some(range) = range {
            let allocation = state.allocations.range(..=address).next_back();
            let within = allocation.is_some_and(|(&start, allocation)| {
                address - start <= allocation.bytes && bytes <= allocation.bytes - (address - start)
            });
            return (within || state.own.is_mapped(range)).then_some(range);
        }
        let (_, (global, _)) = state.globals.range(..=address).next_back()?;
        global.part(address, bytes)
    }

    /// A variable of a module is the session's from now on, until the module goes.
    pub(crate) fn add_global(&self, range: DeviceRange, module: u32) {
        self.state().globals.insert(range.address(), (range, module));
    }

    /// The variables of a module are not the session's any more.
    pub(crate) fn forget_globals(&self, module: u32) {
        self.state().globals.retain(|_, (_, of)| *of != module);
        self.note_change();
    }

    /// A number that is another whenever memory was taken from the session. What [`Self::find`] found stays
    /// found while it is the same.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Free and total bytes of the device.
    pub(crate) fn info(share: &Share) -> (u64, u64) {
        let device = share.device();
        (device.total().saturating_sub(device.used()), device.total())
    }

    /// Brings the status report up to date.
    fn report(&self, state: &State) {
        let gauges = self.host.gauges();
        gauges.allocated.store(self.share.used(), Ordering::Relaxed);
        gauges.allocations.store((state.allocations.len() + state.own.count()) as u32, Ordering::Relaxed);
    }

    /// Waits until a mapping that the guest has ended is gone, but not for long. There may be none.
    pub(crate) fn wait_for_unmapped(&self) {
        let state = self.state();
        if state.own.is_settled() {
            return;
        }
        drop(self.unmapped.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner));
    }

    /// Device memory was given back: who looks at the device sees it.
    fn host_changed(&self) {
        self.host.memory_changed();
    }

    /// Frees all that is left. No work may be under way.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.allocations.clear();
        state.blocks.clear();
        state.own = Virtual::default();
    }
}

/// An allocation that the guest has freed. Dropping it frees the memory: no work may use it any more.
#[derive(Debug)]
pub(crate) struct Freed {
    memory: Arc<Memory>,
    address: u64,
    /// Taken when it is dropped.
    allocation: Option<Allocation>,
}

impl Drop for Freed {
    fn drop(&mut self) {
        let Some(Allocation { bytes, place, .. }) = self.allocation.take() else { return };
        let memory = &self.memory;
        match place {
            Place::Own(own) => {
                let range = own.mapping.range();
                // Unmapped before the addresses can be another's; that takes the driver's time, and no lock.
                drop(own);
                let mut state = memory.state();
                state.space.give_back(range.address(), range.bytes());
                memory.report(&state);
            }
            Place::Block(start) => {
                let mut state = memory.state();
                let Some(block) = state.blocks.get_mut(&start) else { return };
                block.give_back(self.address, bytes);
                let spare = state.blocks.values().filter(|block| block.is_empty()).count() > 1;
                if spare && let Some(block) = state.blocks.remove(&start) {
                    let range = block.range();
                    drop(block);
                    state.space.give_back(range.address(), range.bytes());
                }
                memory.report(&state);
            }
        }
        memory.host_changed();
    }
}
