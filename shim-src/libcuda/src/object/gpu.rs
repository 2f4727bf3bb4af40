//! A device of the process: its queue, its facts as the program sees them, and its memory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use vgpu_abi::driver::{STREAM_NON_BLOCKING, attribute};
use vgpu_abi::{CUresult, log, table};
use vgpu_transport::{AddressRefusal, Reservation, Session};
use vgpu_wire::body::memory::{MemInfo, MemInfoReply};
use vgpu_wire::body::stream::StreamCreate;
use vgpu_wire::facts::{AbsentAttributes, DeviceFacts, NOT_IN_A_GUEST};
use vgpu_wire::{JOIN_ALL, pci};

use crate::Result;
use crate::object::memory::{Memory, Source};
use crate::queue::submission::{Minted, Queue};
use crate::queue::timeline::Timeline;
use crate::sync::Mutex;

/// A device of this process. Lives as long as the process.
pub struct Gpu {
    /// Queue of the work that is submitted to the device.
    pub queue: Queue,
    /// The device as the other shims see it: the host's facts, corrected for the guest.
    pub shown: table::Device,
    /// Whether the device has refused a cubin and accepted the PTX of the same image.
    pub refuses_cubins: AtomicBool,
    /// Index among the functions on the bus.
    pub index: usize,
    /// Ranges of device memory that the process owns.
    pub memory: Memory,
    /// Timeline of all streams together, for calls that wait for all work.
    pub everything: Timeline,
    /// Handle of the device's default memory pool; 0 until `pool::create_default`.
    pub default_pool: AtomicUsize,
    /// Handle of the memory pool from which `cuMemAllocAsync` allocates; 0 until `pool::create_default`.
    pub current_pool: AtomicUsize,
    /// Handle of the primary context; 0 until `context::create_primary`.
    pub primary: AtomicUsize,
    /// Addresses of the device memory for sums that no call is using.
    pub sums: Mutex<Vec<u64>>,
    /// Abilities that the host lacks and that the log has already named.
    told_missing: AtomicU32,
    /// The peer-copy stream, which [`Gpu::peer_copy_timeline`] creates.
    peer_copy: OnceLock<Timeline>,
    /// Held while the peer-copy stream is created.
    peer_copy_create: Mutex<()>,
    ordinal: AtomicI32,
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu({})", self.queue.session.function().address)
    }
}

/// Returns the host's facts, with the guest's own values where the two differ.
fn corrected(facts: &DeviceFacts, pci: [u32; 4], subsystem: u32) -> DeviceFacts {
    let mut facts = *facts;
    let mut set = |id: usize, value: u32| facts.attributes[id] = i32::try_from(value).unwrap_or(0);
    for id in NOT_IN_A_GUEST.iter().flat_map(AbsentAttributes::in_any_guest) {
        set(id, 0);
    }
    set(attribute::PCI_DOMAIN_ID as usize, pci[0]);
    set(attribute::PCI_BUS_ID as usize, pci[1]);
    set(attribute::PCI_DEVICE_ID as usize, pci[2]);
    set(attribute::COMPUTE_CAPABILITY_MAJOR as usize, facts.cc_major);
    set(attribute::COMPUTE_CAPABILITY_MINOR as usize, facts.cc_minor);
    // CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID and ..._SUBSYSTEM_ID: device in the high half, vendor in the low.
    facts.attributes[139] = (u32::from(pci::DEVICE) << 16 | u32::from(pci::VENDOR)) as i32;
    facts.attributes[140] = subsystem as i32;
    facts
}

impl Gpu {
    /// Creates a device with an open session, without default pool and primary context. It is never freed.
    pub fn new(session: Session, index: usize) -> &'static Self {
        let address = session.function().address;
        let subsystem = session.function().subsystem;
        let pci =
            [address.domain, u32::from(address.bus), u32::from(address.device), u32::from(address.function)];
        let facts = corrected(session.facts(), pci, subsystem);
        Box::leak(Box::new(Self {
            queue: Queue::new(session, index),
            shown: table::Device { facts, pci, subsystem, reserved: 0 },
            refuses_cubins: AtomicBool::new(false),
            index,
            memory: Memory::default(),
            everything: Timeline::new(JOIN_ALL),
            default_pool: AtomicUsize::new(0),
            current_pool: AtomicUsize::new(0),
            primary: AtomicUsize::new(0),
            sums: Mutex::default(),
            told_missing: AtomicU32::new(0),
            peer_copy: OnceLock::new(),
            peer_copy_create: Mutex::default(),
            ordinal: AtomicI32::new(-1),
        }))
    }

    /// Refuses a feature that only hosts with an ability ([`vgpu_wire::facts::exec`]) have. Each missing
    /// ability is logged once.
    pub fn needs(&self, ability: u32, what: &str) -> Result {
        if self.shown.facts.abilities & ability != 0 {
            return Ok(());
        }
        if self.told_missing.fetch_or(ability, Ordering::Relaxed) & ability == 0 {
            log::warn(format_args!("device {}: its host does not do {what}: not supported", self.index));
        }
        Err(CUresult::NOT_SUPPORTED)
    }

    /// Returns the CUDA ordinal, or -1 for a device that the process does not see.
    pub fn ordinal(&self) -> i32 {
        self.ordinal.load(Ordering::Relaxed)
    }

    /// Sets the device's CUDA ordinal.
    pub fn set_ordinal(&self, ordinal: usize) {
        self.ordinal.store(i32::try_from(ordinal).unwrap_or(-1), Ordering::Relaxed);
    }

    /// Returns the stream on which streams of other devices access this device's memory. It belongs to no
    /// context, and neither it nor the legacy stream waits for the other. Created at the first call.
    pub fn peer_copy_timeline(&self) -> Result<&Timeline> {
        if let Some(timeline) = self.peer_copy.get() {
            return Ok(timeline);
        }
        let _create = self.peer_copy_create.lock();
        if let Some(timeline) = self.peer_copy.get() {
            return Ok(timeline);
        }
        let stream = self.queue.mint(Minted::Stream);
        self.queue
            .send(&StreamCreate { stream, flags: STREAM_NON_BLOCKING, priority: 0, reserved: 0 }, &[])?;
        Ok(self.peer_copy.get_or_init(|| Timeline::new(stream)))
    }

    /// Returns a `CUdevice_attribute`, or 0 for an id beyond those of the contract.
    pub fn attribute(&self, id: i32) -> i32 {
        usize::try_from(id).ok().and_then(|id| self.shown.facts.attributes.get(id)).copied().unwrap_or(0)
    }

    /// Returns free and total memory of the device in bytes. Free memory is read from a register until the
    /// session attaches, and requested from the host after that.
    pub fn memory_info(&self) -> Result<MemInfoReply> {
        match self.queue.session.free_memory().map_err(|lost| self.queue.report(&lost))? {
            Some(free) => Ok(MemInfoReply { free, total: self.shown.facts.total_bytes }),
            None => self.queue.ask(MemInfo { reply: 0, reserved: 0 }, &[]),
        }
    }

    /// Records a range that the host returned as the program's. Fails with `UNKNOWN` if it is outside the
    /// range that the device announces, because it could then be another device's, or the program's own
    /// memory.
    pub fn add_memory(&self, start: u64, bytes: u64, source: Source, context: usize) -> Result {
        let announced = self.queue.session.facts().addresses();
        if let Some(range) = announced.filter(|range| !range.holds(start, bytes)) {
            log::error(format_args!(
                "{self:?}: the host returned {bytes:#x} bytes at {start:#x}, outside of the device's addresses, {range}"
            ));
            return Err(CUresult::UNKNOWN);
        }
        self.memory.add(start, bytes, source, context);
        Ok(())
    }

    /// Records a variable of a module. A GPU's driver places it anywhere: outside the announced range its
    /// pages are reserved in this process for as long as the returned value exists. Fails with `MAP_FAILED`
    /// if the process has mapped something there.
    pub fn add_variable(
        &self,
        start: u64,
        bytes: u64,
        module: u32,
        context: usize,
    ) -> Result<Option<Reservation>> {
        let session = &self.queue.session;
        let outside = session.facts().addresses().is_some_and(|range| !range.holds(start, bytes));
        let reservation = outside.then(|| session.reserve_outside(start, bytes)).transpose();
        let reservation = reservation.map_err(|refusal| {
            log::error(format_args!("{self:?}: a variable of {bytes} bytes cannot be used: {refusal}"));
            match refusal {
                AddressRefusal::Impossible { .. } => CUresult::UNKNOWN,
                _ => CUresult::MAP_FAILED,
            }
        })?;
        self.memory.add(start, bytes, Source::Variable(module), context);
        Ok(reservation)
    }

    /// Waits until all work of all streams has completed, and returns its error if it failed.
    pub fn drain(&self) -> Result {
        if self.queue.session.number() == 0 {
            // Nothing was sent to the host, so there is nothing to wait for and no reason to attach.
            return self.queue.async_error();
        }
        let (word, value) = self.everything.signal_always(&self.queue)?;
        self.queue.wait(word, value)?;
        self.queue.pending.forget_done(&self.queue.session);
        self.queue.async_error()
    }

    /// Performs what CUDA calls an implicit synchronization: orders all later work after all earlier work,
    /// and ensures that the host uses none of the program's memory any more. Waits only while the host uses
    /// some.
    pub fn quiesce_pinned(&self) -> Result {
        if self.queue.pending.forget_done(&self.queue.session) {
            self.queue.join(JOIN_ALL);
            self.queue.async_error()
        } else {
            self.drain()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn the_guests_own_facts_replace_the_hosts() {
        let mut host = DeviceFacts::new_zeroed();
        host.attributes = [7; 192];
        host.cc_major = 8;
        host.cc_minor = 9;
        let seen = corrected(&host, [2, 3, 5, 0], 0x16c1_10de);
        assert_eq!(seen.attributes[50], 2);
        assert_eq!(seen.attributes[33], 3);
        assert_eq!(seen.attributes[34], 5);
        assert_eq!((seen.attributes[75], seen.attributes[76]), (8, 9));
        assert_eq!(seen.attributes[139], 0x2331_10de);
        assert_eq!(seen.attributes[140], 0x16c1_10de);
        assert_eq!(seen.attributes[19], 0);
        assert_eq!(seen.attributes[83], 0);
        assert_eq!(seen.attributes[16], 7, "multiprocessors are the host's");
        assert_eq!(seen.attributes[102], 7, "so is virtual memory management");
    }
}
