//! BAR0: 32-bit registers, aligned 32-bit accesses only. Unknown offsets read 0 and ignore writes.
//!
//! The first page keeps version 1's map as far as both generations share it; the names are those
//! of `vgpu_protocol.h` and `cuda_protocol.h`.

/// Read: [`PROTOCOL_V1`] or [`PROTOCOL_V2`] (version 1: `VGPU_REG_PROTOCOL_VER`).
pub const PROTOCOL_VER: u32 = 0x020;
/// Read: capability bits (version 1: `VGPU_REG_CAPABILITIES`).
pub const CAPABILITIES: u32 = 0x024;
/// Read: the id of the virtual machine, for log lines (version 1: `VGPU_REG_VM_ID`).
pub const VM_ID: u32 = 0x010;

/// [`PROTOCOL_VER`] of a device that speaks version 1 only.
pub const PROTOCOL_V1: u32 = 0x0001_0000;
/// [`PROTOCOL_VER`] of a device that speaks version 2.
pub const PROTOCOL_V2: u32 = 0x0002_0000;

/// Capability: basic requests (version 1, bit 0).
pub const CAP_BASIC: u32 = 1 << 0;
/// Capability: version 1 CUDA remoting (bit 4).
pub const CAP_CUDA: u32 = 1 << 4;
/// Capability: version 1 BAR1 data window (bit 5).
pub const CAP_BAR1: u32 = 1 << 5;
/// Capability: version 1 shared memory window (bit 6).
pub const CAP_SHMEM: u32 = 1 << 6;
/// Capability: this contract. Unused by every version 1 device.
pub const CAP_V2: u32 = 1 << 8;
/// Capability: the host takes guest pages beside the window (`RegisterPages`, `RETURN_GPA`).
pub const CAP_PAGES: u32 = 1 << 9;
/// Capability: registers from [`V2_USAGE`] on tell what each session uses.
pub const CAP_USAGE: u32 = 1 << 10;

/// Read: the host's [`crate::WIRE_VERSION`].
pub const V2_WIRE_VERSION: u32 = 0x950;
/// Read: low half of the host's [`crate::TABLE_DIGEST`].
pub const V2_DIGEST_LO: u32 = 0x954;
/// Read: high half of the host's [`crate::TABLE_DIGEST`].
pub const V2_DIGEST_HI: u32 = 0x958;
/// Read: how many channels there are, 1 to [`MAX_CHANNELS`].
pub const V2_CHANNELS: u32 = 0x95c;
/// Read: offset in BAR2 of the first channel's area, low half.
pub const V2_AREA_BASE_LO: u32 = 0x960;
/// Read: the same, high half.
pub const V2_AREA_BASE_HI: u32 = 0x964;
/// Read: bytes from one channel's area to the next; whole pages, at least [`crate::area::AREA_BYTES`].
pub const V2_AREA_STRIDE: u32 = 0x968;
/// Read: a number that is never 0 and never all ones, another one each time the host's device
/// starts. A guest that reads another number than at attach, or all ones, has lost its device.
pub const V2_GENERATION: u32 = 0x96c;
/// Read: how the host can wake a guest that sleeps: [`WAKE_FUTEX`] or nothing.
pub const V2_WAKE: u32 = 0x970;
/// Read: channels 0 to 31 that are not in [`channel::STATE_FREE`], a bit each.
pub const V2_ATTACHED_LO: u32 = 0x974;
/// Read: channels 32 to 63 that are not free.
pub const V2_ATTACHED_HI: u32 = 0x978;
/// Read: state of the executor behind the device: [`EXECUTOR_READY`] or not.
pub const V2_EXECUTOR: u32 = 0x97c;
/// Read: size of BAR2 in MiB, as the host mapped it.
pub const V2_WINDOW_MIB: u32 = 0x980;

/// Read: device memory that is free now, in whole MiB.
pub const V2_FREE_MIB: u32 = 0x984;

/// Read: what the session of channel 0 uses, and from [`usage::base`] on that of each other channel. Zeros
/// where a channel is free. Only with [`CAP_USAGE`].
pub const V2_USAGE: u32 = 0x400;

/// Read: the device's facts ([`crate::facts::DeviceFacts`], from here on in 32-bit words), where a bus shows the registers as a
/// page of memory: who looks then needs nothing but that page. Read zeros: they are in BAR2 alone
/// ([`crate::area::FACTS`]), where they always are.
pub const V2_FACTS: u32 = 0xa00;

/// [`V2_WAKE`]: guest and host share the window's pages in one kernel: futexes reach across.
pub const WAKE_FUTEX: u32 = 1 << 0;

/// [`V2_EXECUTOR`]: sessions can be opened.
pub const EXECUTOR_READY: u32 = 1;

/// No device has more channels.
pub const MAX_CHANNELS: u32 = 64;

/// The device's own registers lie below this offset and have no side effects when they are read, so that a bus can
/// show them as a page of memory.
pub const V2_PAGE_BYTES: u32 = channel::FIRST;

/// What any register reads when the function is gone.
pub const ALL_ONES: u32 = u32::MAX;

/// What one channel's session uses, offsets from [`usage::base`].
pub mod usage {
    /// Bytes of registers a channel has.
    pub const USAGE_STRIDE: u32 = 0x10;

    /// Offset in BAR0 of what the session of channel `index` uses.
    #[must_use]
    pub const fn base(index: u32) -> u32 {
        super::V2_USAGE + index * USAGE_STRIDE
    }

    /// Read: the process id that the guest wrote to `PROCESS` when it attached.
    pub const USAGE_PROCESS: u32 = 0x0;
    /// Read: device memory that the session has, in KiB, rounded up.
    pub const USAGE_MEMORY_KIB: u32 = 0x4;
    /// Read: time that the device has worked for the session, in microseconds, low half. Work counts when it
    /// ends. A reader takes [`USAGE_BUSY_HI`] before and after, and reads again where the two differ.
    pub const USAGE_BUSY_LO: u32 = 0x8;
    /// Read: the high half.
    pub const USAGE_BUSY_HI: u32 = 0xc;
}

/// One channel's registers, offsets from [`channel::base`].
pub mod channel {
    /// Where the first channel's registers are.
    pub const FIRST: u32 = 0x1000;
    /// Bytes of registers a channel has.
    pub const STRIDE: u32 = 0x40;

    /// Offset in BAR0 of the registers of channel `index`.
    #[must_use]
    pub const fn base(index: u32) -> u32 {
        FIRST + index * STRIDE
    }

    /// Write: [`ATTACH`]. The answer is in [`STATE`] and [`ERROR`] when the write has been answered.
    pub const CONTROL: u32 = 0x00;
    /// Read: [`STATE_FREE`], [`STATE_ATTACHED`], [`STATE_FAILED`] or [`STATE_ENDING`].
    pub const STATE: u32 = 0x04;
    /// Write anything: look at the ring. Needed only when the host says that it sleeps.
    pub const DOORBELL: u32 = 0x08;
    /// Read: why the last attach was refused or the session ended; 0 or one of [`super::Refusal`].
    pub const ERROR: u32 = 0x0c;
    /// Read: the session's number, unique while the device lives, until all that it held is freed; 0 when free.
    pub const SESSION: u32 = 0x10;
    /// Write before attach: the guest's [`crate::WIRE_VERSION`].
    pub const GUEST_VERSION: u32 = 0x14;
    /// Write before attach: low half of the guest's [`crate::TABLE_DIGEST`].
    pub const GUEST_DIGEST_LO: u32 = 0x18;
    /// Write before attach: the high half.
    pub const GUEST_DIGEST_HI: u32 = 0x1c;
    /// Write before attach: the guest's process id, for log lines and process lists.
    pub const PROCESS: u32 = 0x20;
    /// Write before attach: guest-physical address of the return area, low half. 0 with
    /// [`RETURN_GPA_HI`] 0: the return area lies in the channel's own area of BAR2.
    pub const RETURN_GPA_LO: u32 = 0x24;
    /// Write before attach: the high half.
    pub const RETURN_GPA_HI: u32 = 0x28;
    /// Write before attach: the key at [`crate::pci::PAGES_KEY`], low half. A session that did not give it has no pages: a
    /// return area outside BAR2 is refused, and so is every `PagesRegister`.
    pub const PAGES_KEY_LO: u32 = 0x2c;
    /// Write before attach: the high half.
    pub const PAGES_KEY_HI: u32 = 0x30;
    /// Write: the number of the session to end, as [`SESSION`] reads it. A number that is not the channel's is ignored: a
    /// write that arrives late never ends the session of a later owner. The write is answered at once, with the channel in
    /// [`STATE_ENDING`]; the guest polls.
    pub const DETACH_SESSION: u32 = 0x34;

    /// [`CONTROL`]: start a session. Refused with [`super::Refusal::Busy`] unless the channel is free; the session that is
    /// there goes on.
    pub const ATTACH: u32 = 1;

    /// [`STATE`]: nobody is attached.
    pub const STATE_FREE: u32 = 0;
    /// [`STATE`]: a session is open.
    pub const STATE_ATTACHED: u32 = 1;
    /// [`STATE`]: the host ended the session; what it held is freed; the guest has not detached.
    pub const STATE_FAILED: u32 = 2;
    /// [`STATE`]: the session was told to end, and the host frees what it holds, after which the channel is free. Takes as
    /// long as the work that the executor is in the middle of.
    pub const STATE_ENDING: u32 = 3;
}

/// Why the host refused an attach or ended a session: values of [`channel::ERROR`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// The guest's wire version is not the host's.
    Version = 1,
    /// The versions agree, the tables do not: different builds of one version.
    Digest = 2,
    /// The host has no room for another session.
    NoRoom = 3,
    /// The return area cannot be reached at the guest-physical address given, is another's, or the guest may not say where it lies.
    ReturnArea = 4,
    /// The guest broke this contract.
    Violation = 5,
    /// The executor died or is not ready.
    Executor = 6,
    /// The channel is not free: a session is attached, has failed, or is ending.
    Busy = 7,
}

impl TryFrom<u32> for Refusal {
    type Error = u32;

    fn try_from(value: u32) -> Result<Self, u32> {
        Ok(match value {
            1 => Self::Version,
            2 => Self::Digest,
            3 => Self::NoRoom,
            4 => Self::ReturnArea,
            5 => Self::Violation,
            6 => Self::Executor,
            7 => Self::Busy,
            other => return Err(other),
        })
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
