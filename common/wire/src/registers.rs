//! BAR0: 32-bit registers, aligned 32-bit accesses only. Unknown offsets read 0 and ignore writes.
//!
//! The first page keeps version 1's map as far as both generations share it; the names are those
//! of `vgpu_protocol.h` and `cuda_protocol.h`.

/// Read: generation of the contract, [`PROTOCOL_V1`] or [`PROTOCOL_V2`] (version 1: `VGPU_REG_PROTOCOL_VER`).
pub const PROTOCOL_VER: u32 = 0x020;
/// Read: combination of the `CAP_` bits below (version 1: `VGPU_REG_CAPABILITIES`).
pub const CAPABILITIES: u32 = 0x024;
/// Read: the id of the virtual machine, for log lines (version 1: `VGPU_REG_VM_ID`).
pub const VM_ID: u32 = 0x010;

/// [`PROTOCOL_VER`] of a device that speaks only version 1.
pub const PROTOCOL_V1: u32 = 0x0001_0000;
/// [`PROTOCOL_VER`] of a device that speaks version 2.
pub const PROTOCOL_V2: u32 = 0x0002_0000;

/// Capability, bit 0: basic requests, the legacy path of version 1 that no CUDA call takes.
pub const CAP_BASIC: u32 = 1 << 0;
/// Capability, bit 4: the device speaks version 1 ([`crate::v1`]).
pub const CAP_CUDA: u32 = 1 << 4;
/// Capability, bit 5: a version 1 device has its data window, BAR1.
pub const CAP_BAR1: u32 = 1 << 5;
/// Capability, bit 6: a version 1 device takes a shared window of guest pages.
pub const CAP_SHMEM: u32 = 1 << 6;
/// Capability, bit 8: the device speaks this contract. Version 1 devices never set it.
pub const CAP_V2: u32 = 1 << 8;
/// Capability, bit 9: the host takes guest pages beside the window
/// ([`PagesRegister`](crate::body::pages::PagesRegister), [`channel::RETURN_GPA_LO`]).
pub const CAP_PAGES: u32 = 1 << 9;
/// Capability, bit 10: the registers from [`V2_USAGE`] on report the resource usage of each session.
pub const CAP_USAGE: u32 = 1 << 10;
/// Capability, bit 11: the registers from [`V2_SHARE`] on state the VM's share of the GPU's time.
pub const CAP_SHARE: u32 = 1 << 11;

/// Read: the host's [`crate::WIRE_VERSION`], which must equal the guest's.
pub const V2_WIRE_VERSION: u32 = 0x950;
/// Read: low half of the host's [`crate::TABLE_DIGEST`].
pub const V2_DIGEST_LO: u32 = 0x954;
/// Read: high half of the host's [`crate::TABLE_DIGEST`].
pub const V2_DIGEST_HI: u32 = 0x958;
/// Read: number of channels, 1 to [`MAX_CHANNELS`].
pub const V2_CHANNELS: u32 = 0x95c;
/// Read: offset in BAR2 of the first channel's area, low half.
pub const V2_AREA_BASE_LO: u32 = 0x960;
/// Read: high half of [`V2_AREA_BASE_LO`].
pub const V2_AREA_BASE_HI: u32 = 0x964;
/// Read: bytes from one channel's area to the next; whole pages, at least [`crate::area::AREA_BYTES`].
pub const V2_AREA_STRIDE: u32 = 0x968;
/// Read: a number drawn at each start of the host's device, never 0 or all ones. A guest that reads another
/// number than at its attach, or all ones, has lost its device.
pub const V2_GENERATION: u32 = 0x96c;
/// Read: [`WAKE_FUTEX`] if the host can wake a guest that sleeps, otherwise 0.
pub const V2_WAKE: u32 = 0x970;
/// Read: one bit for each of channels 0 to 31, set unless its state is [`channel::STATE_FREE`].
pub const V2_ATTACHED_LO: u32 = 0x974;
/// Read: the same bits for channels 32 to 63.
pub const V2_ATTACHED_HI: u32 = 0x978;
/// Read: [`EXECUTOR_READY`] once the executor behind the device accepts sessions, otherwise 0.
pub const V2_EXECUTOR: u32 = 0x97c;
/// Read: size of BAR2 in MiB, as the host mapped it.
pub const V2_WINDOW_MIB: u32 = 0x980;

/// Read: device memory that is free now, in MiB, rounded down.
pub const V2_FREE_MIB: u32 = 0x984;

/// Read: resource usage of the session on channel 0; [`usage::base`] gives the offset for other channels.
/// Zeros where a channel is free. Only with [`CAP_USAGE`].
pub const V2_USAGE: u32 = 0x400;

/// Read: [`SHARE_ENFORCED`] while the host divides the GPU's time among its VMs by their shares, otherwise 0.
/// This register and the next five are there only with [`CAP_SHARE`], and are decoded by
/// [`VmShare`](crate::share::VmShare).
pub const V2_SHARE: u32 = 0x988;
/// Read: the VM's share of the GPU's time in parts per million, 0 to 1,000,000.
pub const V2_SHARE_PPM: u32 = 0x98c;
/// Read: microseconds of the GPU's time that the VM was charged while others had work too, low half. A reader
/// takes [`V2_CHARGED_HI`] before and after, and reads again where the two differ.
pub const V2_CHARGED_LO: u32 = 0x990;
/// Read: high half of [`V2_CHARGED_LO`].
pub const V2_CHARGED_HI: u32 = 0x994;
/// Read: microseconds for which the VM had work while another VM had the GPU, low half. It is read as
/// [`V2_CHARGED_LO`] is.
pub const V2_WAITED_LO: u32 = 0x998;
/// Read: high half of [`V2_WAITED_LO`].
pub const V2_WAITED_HI: u32 = 0x99c;

/// [`V2_SHARE`]: the host divides the GPU's time now.
pub const SHARE_ENFORCED: u32 = 1;

/// Read: [`crate::facts::DeviceFacts`] in 32-bit words, where a bus shows the registers as a page of memory,
/// so that a process without a session maps no other page. Where they read zeros, the facts are at
/// [`crate::area::FACTS`], which always holds them.
pub const V2_FACTS: u32 = 0xa00;

/// [`V2_WAKE`]: guest and host are processes of one kernel that share the window's pages, so a futex of one
/// wakes the other.
pub const WAKE_FUTEX: u32 = 1 << 0;

/// [`V2_EXECUTOR`]: the host accepts sessions.
pub const EXECUTOR_READY: u32 = 1;

/// Maximum number of channels of a device.
pub const MAX_CHANNELS: u32 = 64;

/// End of the device's own registers. Reading them has no side effects, so that a bus can show them as a page
/// of memory.
pub const V2_PAGE_BYTES: u32 = channel::FIRST;

/// Value that every register reads once the function is gone.
pub const ALL_ONES: u32 = u32::MAX;

/// Registers for the resource usage of a channel's session, as offsets from [`usage::base`].
pub mod usage {
    /// Bytes from one channel's usage registers to the next channel's.
    pub const USAGE_STRIDE: u32 = 0x10;

    /// Returns the offset in BAR0 of the usage registers of channel `index`.
    #[must_use]
    pub const fn base(index: u32) -> u32 {
        super::V2_USAGE + index * USAGE_STRIDE
    }

    /// Read: the process id that the guest wrote to [`channel::PROCESS`](super::channel::PROCESS) before it
    /// attached.
    pub const USAGE_PROCESS: u32 = 0x0;
    /// Read: device memory of the session in KiB, rounded up.
    pub const USAGE_MEMORY_KIB: u32 = 0x4;
    /// Read: microseconds that the device has worked for the session, low half. Work is counted when it ends.
    /// A reader takes [`USAGE_BUSY_HI`] before and after, and reads again where the two differ.
    pub const USAGE_BUSY_LO: u32 = 0x8;
    /// Read: high half of [`USAGE_BUSY_LO`].
    pub const USAGE_BUSY_HI: u32 = 0xc;
}

/// Registers of one channel, as offsets from [`channel::base`].
pub mod channel {
    /// Offset in BAR0 of the registers of channel 0.
    pub const FIRST: u32 = 0x1000;
    /// Bytes from one channel's registers to the next channel's.
    pub const STRIDE: u32 = 0x40;

    /// Returns the offset in BAR0 of the registers of channel `index`.
    #[must_use]
    pub const fn base(index: u32) -> u32 {
        FIRST + index * STRIDE
    }

    /// Write: [`ATTACH`]. [`STATE`] and [`ERROR`] hold the outcome once the write has been answered.
    pub const CONTROL: u32 = 0x00;
    /// Read: state of the channel: [`STATE_FREE`], [`STATE_ATTACHED`], [`STATE_FAILED`] or [`STATE_ENDING`].
    pub const STATE: u32 = 0x04;
    /// Write any value: wakes the host, which then reads the ring. Needed only while
    /// [`crate::area::RETURN_HOST_SLEEPS`] is 1.
    pub const DOORBELL: u32 = 0x08;
    /// Read: why the host refused the last attach or ended the session, a [`super::Refusal`]; otherwise 0.
    pub const ERROR: u32 = 0x0c;
    /// Read: number of the session, unique for the life of the device and kept until the host has freed all
    /// that the session held; 0 while the channel is free.
    pub const SESSION: u32 = 0x10;
    /// Write before attach: the guest's [`crate::WIRE_VERSION`], which the host compares with its own.
    pub const GUEST_VERSION: u32 = 0x14;
    /// Write before attach: low half of the guest's [`crate::TABLE_DIGEST`], which the host compares with its
    /// own.
    pub const GUEST_DIGEST_LO: u32 = 0x18;
    /// Write before attach: high half of the guest's [`crate::TABLE_DIGEST`].
    pub const GUEST_DIGEST_HI: u32 = 0x1c;
    /// Write before attach: the guest's process id, for log lines and process lists.
    pub const PROCESS: u32 = 0x20;
    /// Write before attach: guest-physical address of the return area, low half. An address of 0 leaves the
    /// return area in the channel's own area of BAR2.
    pub const RETURN_GPA_LO: u32 = 0x24;
    /// Write before attach: high half of [`RETURN_GPA_LO`].
    pub const RETURN_GPA_HI: u32 = 0x28;
    /// Write before attach: the key at [`crate::pci::PAGES_KEY`], low half. A session without it has no
    /// pages: the host refuses a return area outside BAR2, and every `PagesRegister`.
    pub const PAGES_KEY_LO: u32 = 0x2c;
    /// Write before attach: high half of [`PAGES_KEY_LO`].
    pub const PAGES_KEY_HI: u32 = 0x30;
    /// Write: number of the session to end, as [`SESSION`] reads it. Another number is ignored, so that a
    /// write that arrives late never ends the session of a later owner. The write is answered at once, with
    /// the channel in [`STATE_ENDING`]; the guest polls.
    pub const DETACH_SESSION: u32 = 0x34;

    /// [`CONTROL`]: start a session. Refused with [`super::Refusal::Busy`] unless the channel is free; the
    /// session on the channel continues.
    pub const ATTACH: u32 = 1;

    /// [`STATE`]: no session owns the channel; an attach can succeed.
    pub const STATE_FREE: u32 = 0;
    /// [`STATE`]: a session owns the channel, and the host reads its ring.
    pub const STATE_ATTACHED: u32 = 1;
    /// [`STATE`]: the host ended the session and freed what the executor held for it. Window memory and the
    /// area stay the guest's until it detaches.
    pub const STATE_FAILED: u32 = 2;
    /// [`STATE`]: the session was told to end. The channel is free once the host has freed what it held,
    /// which takes as long as the work that the executor is in the middle of.
    pub const STATE_ENDING: u32 = 3;
}

register_enum! {
    /// Why the host refused an attach or ended a session: values of [`channel::ERROR`].
    pub enum Refusal {
        /// The guest's [`crate::WIRE_VERSION`] differs from the host's.
        Version = 1,
        /// The versions are equal but the [`crate::TABLE_DIGEST`]s are not: different builds of one version.
        Digest = 2,
        /// The host has no room for another session. It may have once another session has ended.
        NoRoom = 3,
        /// The host cannot use the guest-physical address of the return area: it is not the guest's memory,
        /// it belongs to another session, or the guest did not give the key.
        ReturnArea = 4,
        /// The guest broke this contract, and the host ended its session.
        Violation = 5,
        /// The executor is not ready, or has lost the session.
        Executor = 6,
        /// The channel is not free: a session is attached, has failed, or is ending.
        Busy = 7,
    }
}

const _: () = assert!(
    V2_FACTS as usize + size_of::<crate::facts::DeviceFacts>() <= V2_PAGE_BYTES as usize,
    "the facts end before the channels' registers"
);

const _: () =
    assert!(usage::base(MAX_CHANNELS) <= V2_FREE_MIB, "what sessions use lies before the other registers");

const _: () = assert!(
    channel::base(MAX_CHANNELS) as u64 == crate::pci::V2_BAR0_BYTES,
    "the channel page holds exactly the channels that the attached bitmap can name"
);
