//! Device memory of a session: its allocations in the address range that was announced to its guest.
//!
//! Allocations above half a megabyte have physical memory of their own. Smaller ones share blocks of the
//! device's granularity, so that they need no call. Copies stay within the allocations that this module
//! knows.

mod virtual_memory;

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use vgpu_abi::CUresult;
use vgpu_device::{
    AddressSpace, Charge, Granularity, NoAddresses, OutOfMemory, OverLimit, PoolCharge, Quota, Resource,
    SessionHost, TrackedGuard, lock_tracked,
};

use crate::driver::context::DriverContext;
use crate::driver::error::DriverError;
use crate::driver::range::{DeviceMapping, DeviceRange, PhysicalMemory, Reserved};
use crate::gpu::block::SharedBlock;
use crate::shared_gpu::Occupied;
use virtual_memory::VirtualMemory;

pub(crate) use virtual_memory::MapOutcome;

/// Size of the largest allocation that shares a block, in bytes.
const SMALL_MOST: u64 = 512 << 10;

/// Time between two checks whether a wait for the end of a mapping is still useful.
const PATIENCE: Duration = Duration::from_millis(20);

/// Reason for which memory is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    /// The session or the device has no more memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// No addresses are left for a reservation.
    #[error(transparent)]
    NoAddresses(#[from] NoAddresses),
    /// The session has reached its limit of reservations.
    #[error(transparent)]
    TooMany(#[from] OverLimit),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The driver refuses the call.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl MemoryError {
    /// Returns the `CUresult` for the guest.
    pub(crate) const fn code(&self) -> u32 {
        match self {
            Self::OutOfMemory(_) | Self::NoAddresses(_) | Self::TooMany(_) => CUresult::OUT_OF_MEMORY.0,
            Self::Invalid(_) => CUresult::INVALID_VALUE.0,
            Self::Driver(error) => error.code.0,
        }
    }
}

/// An allocation of device memory.
#[derive(Debug)]
struct DeviceAllocation {
    bytes: u64,
    place: Backing,
    _count: Charge,
}

impl DeviceAllocation {
    /// Returns the number of bytes that are returned to the device when the allocation is freed. Those of a
    /// block may be kept for the next small allocation.
    fn own_bytes(&self) -> u64 {
        match &self.place {
            Backing::Block(_) => 0,
            Backing::Own(own) => own.mapping.range().bytes(),
        }
    }
}

#[derive(Debug)]
enum Backing {
    /// The allocation shares the block at this address.
    Block(u64),
    Own(OwnMapping),
}

/// Physical memory of a single allocation.
#[derive(Debug)]
struct OwnMapping {
    mapping: DeviceMapping,
    _taken: PoolCharge,
}

/// State of the session's memory, protected by a mutex.
#[derive(Debug)]
struct MemoryState {
    /// Free addresses of the range, in granules.
    space: AddressSpace,
    allocations: BTreeMap<u64, DeviceAllocation>,
    /// Blocks of small allocations, by address.
    blocks: BTreeMap<u64, SharedBlock>,
    /// Variables of modules that the guest has looked up, by address, each with its module.
    globals: BTreeMap<u64, (DeviceRange, u32)>,
    /// State of the memory that the guest manages by the virtual memory calls.
    own: VirtualMemory,
}

/// The device memory of a session.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    context: Arc<DriverContext>,
    share: Quota,
    host: SessionHost,
    reserved: Arc<Reserved>,
    /// Use of the device's addresses. It is dropped after the reservation, which must end before another
    /// session's starts.
    _occupied: Occupied,
    granule: u64,
    state: Mutex<MemoryState>,
    /// Number of times that memory was taken from the session.
    changes: AtomicU64,
    /// Condition that is notified when a mapping that the guest has ended is unmapped.
    unmapped: Condvar,
}

impl DeviceMemory {
    /// Creates the memory of a session that has none. `reserved` is its address range, and `granule` the unit
    /// of mappings in it.
    pub(crate) fn new(
        context: &Arc<DriverContext>,
        share: Quota,
        host: SessionHost,
        (reserved, occupied): (Reserved, Occupied),
        granule: u64,
    ) -> Arc<Self> {
        let range = reserved.range();
        // A granule stays free after each allocation, so that an overrun is a fault.
        let grain = Granularity { least: granule, gap: granule, large: granule };
        let state = MemoryState {
            space: AddressSpace::new(range.address(), range.bytes(), grain),
            allocations: BTreeMap::new(),
            blocks: BTreeMap::new(),
            globals: BTreeMap::new(),
            own: VirtualMemory::default(),
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

    fn state(&self) -> TrackedGuard<'_, MemoryState> {
        lock_tracked(&self.state)
    }

    /// Allocates `bytes`, which must not be 0. Returns the address, a multiple of 512.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64, MemoryError> {
        let count = self.share.charge(Resource::Allocations, 1)?;
        if bytes > SMALL_MOST.min(self.granule / 2) {
            let whole = self.whole(bytes)?;
            return self.allocate_own(self.share.allocate(whole)?, whole, bytes, count);
        }
        let (block, address) = self.allocate_small(bytes)?;
        Ok(self.add(address, DeviceAllocation { bytes, place: Backing::Block(block), _count: count }))
    }

    /// Allocates memory that no message requests, such as a workspace, in whole granules.
    pub(crate) fn allocate_unrequested(&self, bytes: u64) -> Result<u64, MemoryError> {
        let count = self.share.charge(Resource::Allocations, 1)?;
        let whole = self.whole(bytes)?;
        // Other requests wait until this one is charged, so the driver is called afterwards.
        let taken = self.host.with_reserved(whole, || {
            let taken = self.share.allocate(whole);
            self.report_bytes();
            taken
        });
        let allocated = self.allocate_own(taken.ok_or(OutOfMemory)??, whole, bytes, count);
        allocated.inspect_err(|_| {
            self.report_bytes();
            self.host_changed();
        })
    }

    /// Returns the number of bytes of the granules that `bytes` take.
    fn whole(&self, bytes: u64) -> Result<u64, OutOfMemory> {
        bytes.checked_next_multiple_of(self.granule).ok_or(OutOfMemory)
    }

    /// Adds an allocation to the session's memory.
    fn add(&self, address: u64, allocation: DeviceAllocation) -> u64 {
        let mut state = self.state();
        state.allocations.insert(address, allocation);
        self.report(&state);
        address
    }

    /// Allocates in a block. Returns the block's address and the allocation's.
    fn allocate_small(&self, bytes: u64) -> Result<(u64, u64), MemoryError> {
        for (&start, block) in self.state().blocks.iter_mut().rev() {
            if let Some(address) = block.carve(bytes) {
                return Ok((start, address));
            }
        }
        let mapped = self.map_physical(self.share.allocate(self.granule)?, self.granule)?;
        let OwnMapping { mapping, _taken: taken } = mapped;
        let start = mapping.range().address();
        let mut state = self.state();
        let block = state.blocks.entry(start).or_insert(SharedBlock::new(mapping, taken));
        block.carve(bytes).map(|address| (start, address)).ok_or(OutOfMemory.into())
    }

    /// Allocates memory of `whole` bytes for an allocation of `bytes`.
    fn allocate_own(
        &self,
        taken: PoolCharge,
        whole: u64,
        bytes: u64,
        count: Charge,
    ) -> Result<u64, MemoryError> {
        let own = self.map_physical(taken, whole)?;
        let address = own.mapping.range().address();
        Ok(self.add(address, DeviceAllocation { bytes, place: Backing::Own(own), _count: count }))
    }

    /// Maps physical memory of `bytes` bytes at free addresses. The calls take time, and other threads free
    /// memory meanwhile, so no lock is held.
    fn map_physical(&self, taken: PoolCharge, bytes: u64) -> Result<OwnMapping, MemoryError> {
        let address = self.state().space.allocate(bytes).ok_or(OutOfMemory)?;
        let mapped = PhysicalMemory::create(&self.context, bytes)
            .and_then(|physical| DeviceMapping::map_whole(&self.reserved, address, &Arc::new(physical)));
        match mapped {
            Ok(mapping) => Ok(OwnMapping { mapping, _taken: taken }),
            Err(error) => {
                self.state().space.free(address, bytes);
                Err(error.into())
            }
        }
    }

    /// Removes the allocation at `address` from the session, so that no copy may name it. Dropping the result
    /// frees it. Returns `None` if there is no such allocation.
    pub(crate) fn remove_allocation(self: &Arc<Self>, address: u64) -> Option<Freed> {
        let mut freed = self.hide_allocation(address)?;
        freed.counted = freed.allocation.as_ref().map_or(0, DeviceAllocation::own_bytes);
        self.host.gauges().freeing.fetch_add(freed.counted, Ordering::Relaxed);
        self.host_changed();
        Some(freed)
    }

    /// Hides the allocation at `address` from the guest, which the executor goes on to use. Dropping the
    /// result frees it.
    pub(crate) fn hide_allocation(self: &Arc<Self>, address: u64) -> Option<Freed> {
        let allocation = self.state().allocations.remove(&address)?;
        self.note_change();
        Some(Freed { memory: Arc::clone(self), address, allocation: Some(allocation), counted: 0 })
    }

    /// Returns the range of `bytes` at `address`, if the session owns all of it.
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

    /// Adds a variable of a module to the session's memory, until the module is unloaded.
    pub(crate) fn add_global(&self, range: DeviceRange, module: u32) {
        self.state().globals.insert(range.address(), (range, module));
    }

    /// Removes the variables of a module from the session's memory.
    pub(crate) fn forget_globals(&self, module: u32) {
        self.state().globals.retain(|_, (_, of)| *of != module);
        self.note_change();
    }

    /// Returns a counter that changes whenever memory is removed from the session. Ranges from [`Self::find`]
    /// are valid while it does not change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of free bytes of the device, and of all bytes.
    pub(crate) fn info(share: &Quota) -> (u64, u64) {
        let device = share.pool();
        (device.total().saturating_sub(device.used()), device.total())
    }

    /// Updates the status report.
    fn report(&self, state: &MemoryState) {
        self.report_bytes();
        let count = (state.allocations.len() + state.own.count()) as u32;
        self.host.gauges().allocations.store(count, Ordering::Relaxed);
    }

    /// Updates the number of bytes in the status report.
    fn report_bytes(&self) {
        self.host.gauges().set_allocated(|| self.share.used());
    }

    /// Waits until a mapping that the guest has ended is unmapped, but at most for `PATIENCE`. Returns at
    /// once if there is none.
    pub(crate) fn wait_for_unmapped(&self) {
        let state = self.state();
        if state.own.is_settled() {
            return;
        }
        drop(state.wait_timeout(&self.unmapped, PATIENCE));
    }

    /// Reports that device memory was returned.
    fn host_changed(&self) {
        self.host.memory_changed();
    }

    /// Frees all memory. No work may be in progress.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        let all =
            (mem::take(&mut state.allocations), mem::take(&mut state.blocks), mem::take(&mut state.own));
        drop(state);
        drop(all);
    }
}

/// An allocation that the guest has freed. Dropping it frees the memory; no work may use it by then.
#[derive(Debug)]
pub(crate) struct Freed {
    memory: Arc<DeviceMemory>,
    address: u64,
    /// The allocation, which is `None` only while this is dropped.
    allocation: Option<DeviceAllocation>,
    /// Number of its bytes that the gauges count as being freed.
    counted: u64,
}

impl Drop for Freed {
    fn drop(&mut self) {
        let Some(DeviceAllocation { bytes, place, .. }) = self.allocation.take() else { return };
        let memory = &self.memory;
        match place {
            Backing::Own(own) => {
                let range = own.mapping.range();
                // Unmapped before the addresses can be reused. The driver takes time for it, so no lock is
                // held.
                drop(own);
                let mut state = memory.state();
                state.space.free(range.address(), range.bytes());
                memory.report(&state);
            }
            Backing::Block(start) => {
                let mut state = memory.state();
                let Some(block) = state.blocks.get_mut(&start) else { return };
                block.give_back(self.address, bytes);
                let spare = state.blocks.values().filter(|block| block.is_empty()).count() > 1;
                let block = if spare { state.blocks.remove(&start) } else { None };
                if let Some(block) = block {
                    let range = block.range();
                    drop(state);
                    drop(block);
                    state = memory.state();
                    state.space.free(range.address(), range.bytes());
                }
                memory.report(&state);
            }
        }
        memory.host.gauges().freeing.fetch_sub(self.counted, Ordering::Relaxed);
        memory.host_changed();
    }
}
