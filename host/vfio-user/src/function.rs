//! A PCI function, independent of the bus that presents it: its ids, its BARs, and the effects of accesses.

use std::os::fd::OwnedFd;

use vgpu_wire::pci;

/// Ids that a function shows in its configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// PCI subsystem vendor id.
    pub subsystem_vendor: u16,
    /// PCI subsystem device id.
    pub subsystem_device: u16,
    /// Base class, subclass and programming interface, in the low 24 bits.
    pub class: u32,
    /// PCI revision id.
    pub revision: u8,
}

/// Ids of VGPU-STUB, which are the same in both versions.
pub const IDENTITY: Identity = Identity {
    vendor: pci::VENDOR,
    device: pci::DEVICE,
    subsystem_vendor: pci::SUBSYSTEM_VENDOR,
    subsystem_device: pci::SUBSYSTEM_DEVICE,
    class: pci::CLASS,
    revision: pci::REVISION,
};

/// Address decoding of a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decode {
    /// The BAR decodes memory below 4 GiB that is not prefetchable, for registers.
    Memory32,
    /// The BAR decodes prefetchable memory at any address, and occupies the next BAR's register too.
    Memory64Prefetchable,
}

/// A base address register (BAR) of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Size in bytes, a power of two, at least a page.
    pub bytes: u64,
    /// Address decoding of the BAR.
    pub decode: Decode,
}

/// A PCI function, independent of the bus that presents it. Accesses come from one thread, in the guest's
/// order. Each has had its effect when the call returns.
pub trait Function: Send + Sync {
    /// Returns the ids of its configuration space.
    fn identity(&self) -> Identity;

    /// Returns the BARs of the function, with `None` for numbers without a BAR.
    fn bars(&self) -> [Option<Bar>; 6];

    /// Returns the key at [`vgpu_wire::pci::PAGES_KEY`], or 0 if the function takes no guest pages.
    fn pages_key(&self) -> u64;

    /// Returns the memory of a BAR that the guest maps, or `None` if accesses are passed to
    /// [`Function::read`] and [`Function::write`].
    fn memory(&self, bar: usize) -> Option<OwnedFd>;

    /// Reads from a BAR. `offset` and the length of `data` lie within it.
    fn read(&self, bar: usize, offset: u64, data: &mut [u8]);

    /// Writes to a BAR. `offset` and the length of `data` lie within it.
    fn write(&self, bar: usize, offset: u64, data: &[u8]);

    /// Is called when the function was reset, or when its machine is gone.
    fn reset(&self);
}
