//! VGPU-STUB on the PCI bus. Source: facts of the version 1 device model (`vgpu-stub-enhanced.c`), kept by
//! version 2 unless stated otherwise.

mod address;

pub use address::{AddressError, PciAddress};

/// Vendor id, which is NVIDIA's.
pub const VENDOR: u16 = 0x10de;
/// Device id: that of an H100 PCIe. A real one has other BAR sizes and registers.
pub const DEVICE: u16 = 0x2331;
/// Class code: display controller, 3D controller.
pub const CLASS: u32 = 0x03_0200;
/// Bits of the class that a guest compares: base class and subclass.
pub const CLASS_MASK: u32 = 0xff_ff00;
/// Subsystem vendor id: NVIDIA's.
pub const SUBSYSTEM_VENDOR: u16 = 0x10de;
/// Subsystem device id, the same in both versions; a guest does not rely on it.
pub const SUBSYSTEM_DEVICE: u16 = 0x16c1;
/// Revision id, the same in both versions; a guest does not rely on it.
pub const REVISION: u8 = 0xa1;

/// Length in bytes of BAR0 of a version 1 device: one page of registers.
pub const V1_BAR0_BYTES: u64 = 0x1000;
/// Length in bytes of BAR1, the data window of a version 1 device. Version 2 has no BAR1.
pub const V1_BAR1_BYTES: u64 = 0x100_0000;
/// Length in bytes of BAR0 of a version 2 device: version 1's page, then a page of channel registers.
pub const V2_BAR0_BYTES: u64 = 0x2000;
/// Default length in bytes of BAR2 of a version 2 device, which is 64-bit and prefetchable.
pub const V2_BAR2_BYTES: u64 = 256 << 20;

/// Offset in configuration space, behind the standard header, of a key of 8 bytes that the host draws at each
/// start of a device with [`crate::registers::CAP_PAGES`]; zeros without. An operating system shows this part
/// of configuration space only to its administrator, who can access all memory of the guest anyway. A process
/// that may merely open the device's BARs cannot read the key, and so cannot have the host write to guest
/// memory: [`crate::registers::channel::PAGES_KEY_LO`].
pub const PAGES_KEY: u64 = 0x40;
