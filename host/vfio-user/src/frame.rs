//! Requests of the vfio-user protocol, decoded from a private copy of their bytes. Every size, count and
//! number is checked here, before anything is allocated or touched. Integers are in the host's byte order, as
//! the protocol has them on one host.
//!
//! There are two kinds of errors. [`Refused`] is one request, which is answered by an error. [`Broken`] is a
//! stream in which nobody knows where the next request starts, or that does not speak this protocol: its
//! connection ends.

use std::ffi::CStr;

use rustix::io::Errno;
use vfio_bindings::bindings::vfio::{
    VFIO_DMA_UNMAP_FLAG_ALL, VFIO_DMA_UNMAP_FLAG_GET_DIRTY_BITMAP, VFIO_IRQ_SET_ACTION_TYPE_MASK,
    VFIO_IRQ_SET_DATA_BOOL, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_IRQ_SET_DATA_TYPE_MASK,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, vfio_region_info,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Size in bytes of the header of every message.
pub const HEADER_BYTES: usize = size_of::<Header>();
/// Maximum number of bytes that one request reads or writes. It is announced to the VMM, whose accesses are
/// those of a processor, or read a configuration space.
pub const MAX_DATA: u32 = 4096;
/// Maximum size in bytes of a message: a write of [`MAX_DATA`] bytes. It has to fit a socket's buffer, because
/// a request stays there until it is answered.
pub const MAX_MESSAGE: usize = HEADER_BYTES + size_of::<Access>() + MAX_DATA as usize;
/// Maximum number of descriptors that a VMM passes with one request: those of QEMU.
pub const MAX_DESCRIPTORS: usize = 16;

/// Bits of [`Header::flags`] that hold the type of the message.
const TYPE: u32 = 0xf;
/// Type of a reply. A request's type is 0.
const REPLY: u32 = 1;
/// Flag of a request that is not answered.
const NO_REPLY: u32 = 1 << 4;
/// Flag of a reply that has an errno and no payload.
const ERROR: u32 = 1 << 5;

/// Number of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(transparent)]
pub struct Command(pub u16);

impl Command {
    /// Negotiates the protocol's version. Must be the first request.
    pub const VERSION: Self = Self(1);
    /// Shares memory of the guest.
    pub const DMA_MAP: Self = Self(2);
    /// Ends the sharing of memory.
    pub const DMA_UNMAP: Self = Self(3);
    /// Asks for the numbers of regions and interrupts.
    pub const DEVICE_GET_INFO: Self = Self(4);
    /// Asks for the size of a region, and for its memory.
    pub const DEVICE_GET_REGION_INFO: Self = Self(5);
    /// Asks for a kind of interrupts.
    pub const DEVICE_GET_IRQ_INFO: Self = Self(7);
    /// Sets the effects of interrupts.
    pub const DEVICE_SET_IRQS: Self = Self(8);
    /// Reads from a region.
    pub const REGION_READ: Self = Self(9);
    /// Writes to a region.
    pub const REGION_WRITE: Self = Self(10);
    /// Resets the device.
    pub const DEVICE_RESET: Self = Self(13);
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match *self {
            Self::VERSION => "VERSION",
            Self::DMA_MAP => "DMA_MAP",
            Self::DMA_UNMAP => "DMA_UNMAP",
            Self::DEVICE_GET_INFO => "DEVICE_GET_INFO",
            Self::DEVICE_GET_REGION_INFO => "DEVICE_GET_REGION_INFO",
            Self::DEVICE_GET_IRQ_INFO => "DEVICE_GET_IRQ_INFO",
            Self::DEVICE_SET_IRQS => "DEVICE_SET_IRQS",
            Self::REGION_READ => "REGION_READ",
            Self::REGION_WRITE => "REGION_WRITE",
            Self::DEVICE_RESET => "DEVICE_RESET",
            Self(other) => return write!(f, "command {other}"),
        })
    }
}

/// Reason for which a connection cannot go on: a field of a header that does not belong to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the VMM breaks the protocol: {command} with {field} {value:#x}")]
pub struct Broken {
    /// Command as the header has it.
    pub command: Command,
    /// Name of the field.
    pub field: &'static str,
    /// Value of the field.
    pub value: u64,
}

/// Reason for which a request is answered by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{command} is refused because of its {field}: {errno}")]
pub struct Refused {
    /// Command of the request.
    pub command: Command,
    /// Name of the field that is not as it has to be.
    pub field: &'static str,
    /// Error for the VMM.
    pub errno: Errno,
}

/// Header of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Header {
    /// Number by which the VMM knows the reply. It may be used again at any time.
    pub id: u16,
    /// What is asked for.
    pub command: Command,
    /// Size of the message in bytes, with this header.
    pub bytes: u32,
    /// Type of the message, and flags.
    pub flags: u32,
    /// Errno of a reply that has the error flag. A request has no use for it.
    pub error: u32,
}

impl Header {
    /// Decodes the header of a request at the start of `bytes`, or returns `None` if it has not arrived
    /// wholly.
    ///
    /// # Errors
    /// It is not a request, or its size is none of a request's.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Broken> {
        let Ok((header, _)) = Self::read_from_prefix(bytes) else { return Ok(None) };
        let broken = |field, value: u32| Broken { command: header.command, field, value: value.into() };
        if header.flags & TYPE != 0 {
            return Err(broken("flags", header.flags));
        }
        if !(HEADER_BYTES..=MAX_MESSAGE).contains(&(header.bytes as usize)) {
            return Err(broken("size", header.bytes));
        }
        Ok(Some(header))
    }

    /// Returns whether the request is to be answered.
    #[must_use]
    pub fn wants_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }

    /// Returns the header of the reply to this request, with a payload of `payload` bytes.
    #[must_use]
    pub fn reply(&self, payload: usize) -> Self {
        Self { bytes: (HEADER_BYTES + payload) as u32, flags: REPLY, error: 0, ..*self }
    }

    /// Returns the header of the reply that is an error, and the whole of that reply.
    #[must_use]
    pub fn error(&self, errno: Errno) -> Self {
        Self { flags: REPLY | ERROR, error: errno.raw_os_error().unsigned_abs(), ..self.reply(0) }
    }
}

/// Versions in a request and in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Version {
    /// Versions with different major numbers do not understand each other.
    pub major: u16,
    /// A version understands all lower ones.
    pub minor: u16,
}

/// Memory that the VMM shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DmaMap {
    /// Size of this structure in bytes.
    pub argsz: u32,
    /// `VFIO_DMA_MAP_FLAG_*`.
    pub flags: u32,
    /// Offset of the memory in its file.
    pub offset: u64,
    /// Guest-physical address of the memory.
    pub address: u64,
    /// Size of the memory in bytes.
    pub bytes: u64,
}

/// Memory that the VMM no longer shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct DmaUnmap {
    /// Room in bytes for the reply's payload, which is this structure.
    pub argsz: u32,
    /// `VFIO_DMA_UNMAP_FLAG_*`.
    pub flags: u32,
    /// Guest-physical address of the memory.
    pub address: u64,
    /// Size of the memory in bytes.
    pub bytes: u64,
}

impl DmaUnmap {
    /// Returns whether all memory is unmapped, whatever the address.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.flags & VFIO_DMA_UNMAP_FLAG_ALL != 0
    }
}

/// Facts about a device or a kind of interrupts, in their requests and replies. The last two fields are
/// numbers of regions and interrupts of the one, and index and count of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Info {
    /// In a request the room in bytes for the reply's payload, and in a reply what the payload needs.
    pub argsz: u32,
    /// `VFIO_DEVICE_FLAGS_*` or `VFIO_IRQ_INFO_*`.
    pub flags: u32,
    /// Number of regions, or index of the kind.
    pub first: u32,
    /// Number of kinds, or of interrupts.
    pub second: u32,
}

/// Facts about a region, in the layout of `vfio_region_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct RegionInfo {
    /// In a request the room in bytes for the reply's payload, and in a reply what the payload needs.
    pub argsz: u32,
    /// `VFIO_REGION_INFO_FLAG_*`.
    pub flags: u32,
    /// Index of the region.
    pub index: u32,
    /// Offset of the first capability from the start of this structure.
    pub cap_offset: u32,
    /// Size of the region in bytes.
    pub size: u64,
    /// Offset of the region in the file that is passed for it.
    pub offset: u64,
}

const _: () = assert!(size_of::<RegionInfo>() == size_of::<vfio_region_info>());

/// Effects of interrupts, in the layout of `vfio_irq_set`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SetIrqs {
    /// Size in bytes of this structure and of the data that follow it.
    pub argsz: u32,
    /// `VFIO_IRQ_SET_*`.
    pub flags: u32,
    /// Index of the kind.
    pub index: u32,
    /// First interrupt.
    pub start: u32,
    /// Number of interrupts.
    pub count: u32,
}

/// Place of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Access {
    /// Offset in the region.
    pub offset: u64,
    /// Index of the region.
    pub region: u32,
    /// Number of bytes.
    pub count: u32,
}

/// A decoded request. Nothing of it remains to be checked without the connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Versions, and the capabilities' JSON, which is empty where the VMM sends none.
    Version(Version, &'a str),
    /// Shares memory.
    DmaMap(DmaMap),
    /// Ends the sharing of memory.
    DmaUnmap(DmaUnmap),
    /// Asks about the device.
    DeviceInfo,
    /// Asks about a region, with room in bytes for the reply's payload.
    RegionInfo {
        /// Index below [`VFIO_PCI_NUM_REGIONS`].
        index: u32,
        /// At least the size of [`RegionInfo`].
        argsz: u32,
    },
    /// Asks about a kind of interrupts below [`VFIO_PCI_NUM_IRQS`].
    IrqInfo(u32),
    /// Sets effects of interrupts.
    SetIrqs(SetIrqs),
    /// Reads at most [`MAX_DATA`] bytes.
    Read(Access),
    /// Writes bytes, whose number is that of the access.
    Write(Access, &'a [u8]),
    /// Resets the device.
    Reset,
}

impl<'a> Request<'a> {
    /// Decodes the `payload` that follows a header, which came with a number of descriptors.
    ///
    /// # Errors
    /// The request is none that can be carried out.
    pub fn decode(header: &Header, payload: &'a [u8], descriptors: usize) -> Result<Self, Refused> {
        let command = header.command;
        let refused = |field| Refused { command, field, errno: Errno::INVAL };
        let unless = |good: bool, field| if good { Ok(()) } else { Err(refused(field)) };
        let size = || refused("size");
        unless(header.flags & !NO_REPLY == 0, "flags")?;
        let most = match command {
            Command::DMA_MAP => 1,
            Command::DEVICE_SET_IRQS => MAX_DESCRIPTORS,
            _ => 0,
        };
        unless(descriptors <= most, "descriptors")?;
        Ok(match command {
            Command::VERSION => {
                let (version, text) = Version::read_from_prefix(payload).map_err(|_| size())?;
                let text = if text.is_empty() { Some("") } else { text_of(text) };
                Self::Version(version, text.ok_or_else(|| refused("text"))?)
            }
            Command::DMA_MAP => {
                let map = DmaMap::read_from_bytes(payload).map_err(|_| size())?;
                unless(map.argsz as usize == size_of::<DmaMap>(), "argsz")?;
                Self::DmaMap(map)
            }
            Command::DMA_UNMAP => {
                // The bitmap would follow the structure.
                let (unmap, rest) = DmaUnmap::read_from_prefix(payload).map_err(|_| size())?;
                if unmap.flags & VFIO_DMA_UNMAP_FLAG_GET_DIRTY_BITMAP != 0 {
                    return Err(Refused { command, field: "flags", errno: Errno::OPNOTSUPP });
                }
                unless(rest.is_empty(), "size")?;
                unless(unmap.argsz as usize >= size_of::<DmaUnmap>(), "argsz")?;
                Self::DmaUnmap(unmap)
            }
            Command::DEVICE_GET_INFO | Command::DEVICE_GET_IRQ_INFO => {
                let info = Info::read_from_bytes(payload).map_err(|_| size())?;
                unless(info.argsz as usize >= size_of::<Info>(), "argsz")?;
                if command == Command::DEVICE_GET_INFO {
                    return Ok(Self::DeviceInfo);
                }
                unless(info.first < VFIO_PCI_NUM_IRQS, "index")?;
                Self::IrqInfo(info.first)
            }
            Command::DEVICE_GET_REGION_INFO => {
                let info = RegionInfo::read_from_bytes(payload).map_err(|_| size())?;
                unless(info.argsz as usize >= size_of::<RegionInfo>(), "argsz")?;
                unless(info.index < VFIO_PCI_NUM_REGIONS, "index")?;
                Self::RegionInfo { index: info.index, argsz: info.argsz }
            }
            Command::DEVICE_SET_IRQS => {
                let (set, data) = SetIrqs::read_from_prefix(payload).map_err(|_| size())?;
                unless(set.argsz as usize == payload.len(), "argsz")?;
                unless(set.index < VFIO_PCI_NUM_IRQS, "index")?;
                unless(set.start.checked_add(set.count).is_some(), "count")?;
                unless((set.flags & VFIO_IRQ_SET_ACTION_TYPE_MASK).is_power_of_two(), "flags")?;
                let (bytes, files) = match set.flags & VFIO_IRQ_SET_DATA_TYPE_MASK {
                    VFIO_IRQ_SET_DATA_NONE => (0, 0),
                    VFIO_IRQ_SET_DATA_BOOL => (set.count as usize, 0),
                    VFIO_IRQ_SET_DATA_EVENTFD => (0, set.count as usize),
                    _ => return Err(refused("flags")),
                };
                unless(data.len() == bytes, "size")?;
                // Without descriptors, those that were set are forgotten.
                unless(descriptors == 0 || descriptors == files, "descriptors")?;
                Self::SetIrqs(set)
            }
            Command::REGION_READ | Command::REGION_WRITE => {
                let (access, data) = Access::read_from_prefix(payload).map_err(|_| size())?;
                unless(access.count <= MAX_DATA, "count")?;
                unless(access.region < VFIO_PCI_NUM_REGIONS, "region")?;
                unless(access.offset.checked_add(access.count.into()).is_some(), "offset")?;
                let reads = command == Command::REGION_READ;
                unless(data.len() == if reads { 0 } else { access.count as usize }, "size")?;
                if reads { Self::Read(access) } else { Self::Write(access, data) }
            }
            Command::DEVICE_RESET => {
                unless(payload.is_empty(), "size")?;
                Self::Reset
            }
            // Among them what is only for devices that migrate, and what must be negotiated first.
            _ => return Err(Refused { command, field: "command", errno: Errno::OPNOTSUPP }),
        })
    }
}

/// Returns a text that ends with its only NUL.
fn text_of(bytes: &[u8]) -> Option<&str> {
    CStr::from_bytes_with_nul(bytes).ok()?.to_str().ok()
}
