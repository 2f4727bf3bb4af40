//! A function that is opened and mapped: not yet a session.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use thiserror::Error;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::{area, registers as reg};
use zerocopy::{FromZeros, IntoBytes};

use crate::fork::{Home, forked};
use crate::lost::{GoneReason, Lost};
use crate::mapping::MemoryType;
use crate::page::{Page, Values};
use crate::pages::Keeper;
use crate::reach::{Reach, map};
use crate::reading;
use crate::registers::{BarRegisters, DataBar, RegisterError, Registers};
use crate::sim::SimRegisters;
use crate::sysfs::PciFunction;
use crate::v1::{Bridge, BridgeError, Failure, Places};

/// A function whose registers are open. Its identity is known; nothing is attached. The window is mapped and the lock file
/// open once [`Device::reach`] was called: most processes only look.
#[derive(Debug)]
pub struct Device {
    pub(crate) function: PciFunction,
    pub(crate) registers: Arc<dyn Registers>,
    pub(crate) areas: Areas,
    /// What the registers said when it was opened.
    pub(crate) identity: Probe,
    /// The facts, of a device that has them beside its registers.
    facts: Option<Box<DeviceFacts>>,
    /// What [`Device::reach`] opens.
    pub(crate) reach: OnceLock<Reach>,
    /// Of a device of version 1: the same as `registers`.
    pub(crate) bridge: Option<Arc<Bridge>>,
    /// Of a device that takes guest pages: where those of its sessions are kept.
    pub(crate) keeper: Option<Keeper>,
}

/// Where the channels' areas lie in the window; checked to lie within.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Areas {
    pub(crate) base: u64,
    pub(crate) stride: u64,
    pub(crate) channels: u32,
}

impl Areas {
    /// Offset in the window of a channel's area.
    pub(crate) fn of(&self, channel: u32) -> u64 {
        self.base + u64::from(channel) * self.stride
    }

    /// Offset behind the last area.
    pub(crate) fn end(&self) -> u64 {
        self.base + u64::from(self.channels) * self.stride
    }
}

/// What a device's registers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// `PROTOCOL_VER`.
    pub protocol: u32,
    /// Capability bits.
    pub capabilities: u32,
    /// The host's wire version.
    pub wire_version: u32,
    /// The host's table digest.
    pub digest: u64,
    /// Generation.
    pub generation: u32,
    /// The executor accepts sessions.
    pub executor_ready: bool,
    /// Size of the window in MiB.
    pub window_mib: u32,
    /// How many channels there are.
    pub channels: u32,
    /// Attached channels, a bit each.
    pub attached: u64,
    /// The host wakes sleepers by futex.
    pub wake_futex: bool,
    /// The id of the virtual machine.
    pub vm_id: u32,
}

/// Why a function cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A file of the function cannot be opened. `source.kind()` is `PermissionDenied` where the user may not,
    /// `ConnectionRefused` or `NotFound` where the simulated bus has no device process.
    #[error("failed to open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file of the function cannot be mapped.
    #[error("failed to map {}", path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Memory decoding is off (`enable` reads 0): the launcher, as root, turns it on.
    #[error("memory decoding of {function} is off")]
    Disabled {
        /// The function.
        function: String,
    },
    /// The registers do not answer.
    #[error("failed to read the registers of {function}: the device is gone")]
    Gone {
        /// The function.
        function: String,
    },
    /// A file cannot be opened by which the processes of this machine take turns at a device of version 1.
    #[error("failed to open {}, by which processes take turns at the device", path.display())]
    Turn {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The device answers, what carries calls out for it does not, or not for this machine.
    #[error("{function} has nothing behind it: {reason}")]
    NoHost {
        /// The function.
        function: String,
        /// What says so.
        reason: GoneReason,
    },
    /// The registers say version 1 of the contract, the BARs version 2.
    #[error(
        "{function} says version 1 of the VGPU-STUB contract (capabilities {capabilities:#x}), and has BARs of version 2"
    )]
    Version1 {
        /// The function.
        function: String,
        /// Its capability bits.
        capabilities: u32,
    },
    /// The registers are not those of a VGPU-STUB device, or contradict each other.
    #[error("{function} is no usable VGPU-STUB device: {what}")]
    Strange {
        /// The function.
        function: String,
        /// What is wrong.
        what: String,
    },
    /// The window's file is shorter than the window that the registers announce.
    #[error("{} holds {holds} bytes of a window of {announced}", path.display())]
    ShortWindow {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        holds: u64,
        /// The window's.
        announced: u64,
    },
    /// The device says nothing of itself: no memory, or no driver version.
    #[error("the facts of {function} are empty")]
    NoFacts {
        /// The function.
        function: String,
    },
    /// This process is a forked child of one that opened a device.
    #[error("a forked child cannot open {function} after its parent did")]
    Forked {
        /// The function.
        function: String,
    },
}

/// Registers that say what the device is; a version 1 device has the first two alone.
const IDENTITY: [u32; 13] = [
    reg::PROTOCOL_VER,
    reg::CAPABILITIES,
    reg::V2_WIRE_VERSION,
    reg::V2_DIGEST_LO,
    reg::V2_DIGEST_HI,
    reg::V2_GENERATION,
    reg::V2_EXECUTOR,
    reg::V2_WINDOW_MIB,
    reg::V2_CHANNELS,
    reg::V2_ATTACHED_LO,
    reg::V2_ATTACHED_HI,
    reg::V2_WAKE,
    reg::VM_ID,
];
/// Registers that say where the channels' areas are.
const PLACE: [u32; 3] = [reg::V2_AREA_BASE_LO, reg::V2_AREA_BASE_HI, reg::V2_AREA_STRIDE];

pub(crate) fn wide(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl Device {
    /// Opens a function whole: [`Device::look`], and then `resource2` once and the window's mapping (`resource2_wc` of a real
    /// BAR where there is one).
    ///
    /// # Errors
    /// Which file cannot be opened or mapped, or why the device cannot be used.
    pub fn open(function: &PciFunction) -> Result<Self, OpenError> {
        let device = Self::look(function)?;
        device.reach()?;
        Ok(device)
    }

    /// Opens a function's registers and reads its identity: `resource0_ro` and, when it is needed, `resource0` as the simulated
    /// bus has them, or maps `resource0`.
    ///
    /// # Errors
    /// Which file cannot be opened or mapped, or why the device cannot be used.
    pub fn look(function: &PciFunction) -> Result<Self, OpenError> {
        let name = || function.address.to_string();
        if forked() {
            return Err(OpenError::Forked { function: name() });
        }
        // From here on a child of this process knows that it is one.
        let _ = Home::get();

        // A device whose registers nobody could reach later is not there, whatever its page says.
        let path = function.dir.join("resource0");
        let metadata =
            std::fs::metadata(&path).map_err(|source| OpenError::Open { path: path.clone(), source })?;
        let registers: Arc<dyn Registers> = if metadata.file_type().is_socket() {
            let mut values = Values::new();
            let page = Page::open(&function.dir, &mut values);
            if let Some(page) = page.map_err(|source| OpenError::Open { path: path.clone(), source })? {
                let registers = Arc::new(SimRegisters::with_page(function.address, path, page));
                let (identity, areas) = identify(function, |offsets| {
                    let values = offsets.map(|offset| values.at(offset));
                    let gone = || OpenError::Gone { function: name() };
                    if values[0] == reg::ALL_ONES { Err(gone()) } else { Ok(values) }
                })?;
                return Ok(Self::new(function, registers, identity, areas, values.facts()));
            }
            let registers = SimRegisters::connect(function.address, path.clone());
            Arc::new(registers.map_err(|source| OpenError::Open { path, source })?)
        } else {
            let enable = std::fs::read_to_string(function.dir.join("enable"));
            if enable.is_ok_and(|enable| enable.trim() == "0") {
                return Err(OpenError::Disabled { function: name() });
            }
            Arc::new(BarRegisters(map(&path, function.bars[0].bytes, MemoryType::Uncached)?))
        };
        if function.bars[0].bytes < vgpu_wire::pci::V2_BAR0_BYTES {
            return Self::look_at_version_1(function, registers, metadata.file_type().is_socket());
        }
        let (identity, areas) = identify(function, |offsets| read(registers.as_ref(), function, offsets))?;
        Ok(Self::new(function, registers, identity, areas, None))
    }

    /// The same for a function whose BAR0 is one page: asks what a device of version 1 has in its stead.
    fn look_at_version_1(
        function: &PciFunction,
        registers: Arc<dyn Registers>,
        simulated: bool,
    ) -> Result<Self, OpenError> {
        let [protocol, capabilities] = read(registers.as_ref(), function, [IDENTITY[0], IDENTITY[1]])?;
        let [bar0, bar1, ..] = function.bars;
        if !vgpu_wire::v1::is_device(bar0.bytes, bar1.bytes, protocol, capabilities) {
            let what =
                format!("protocol {protocol:#x}, capabilities {capabilities:#x}, in BARs of version 1");
            return Err(OpenError::Strange { function: function.address.to_string(), what });
        }
        let data = function.dir.join("resource1");
        let data: Option<Box<dyn DataBar>> = match (bar1.bytes, simulated) {
            (0, _) => None,
            (_, true) => Some(Box::new(SimRegisters::unconnected(function.address, data))),
            (bytes, false) => Some(Box::new(BarRegisters(map(&data, bytes, MemoryType::Uncached)?))),
        };
        let places = Places::of(&function.dir, simulated);
        let bridge = Bridge::open(function.address, registers, data, places, capabilities);
        let bridge = Arc::new(bridge.map_err(|error| match error {
            BridgeError::Place(path, source) => OpenError::Turn { path, source },
            BridgeError::Failed(Failure::Lost(Lost::Gone {
                reason:
                    reason @ (GoneReason::Mediator
                    | GoneReason::Quarantined
                    | GoneReason::Context
                    | GoneReason::Owners),
            })) => OpenError::NoHost { function: function.address.to_string(), reason },
            BridgeError::Failed(Failure::Lost(Lost::Gone { .. })) => {
                OpenError::Gone { function: function.address.to_string() }
            }
            BridgeError::Failed(failure) => {
                let what = match failure {
                    Failure::Status(code) => format!("it answers the first call with error {code}"),
                    Failure::Lost(lost) => lost.to_string(),
                };
                OpenError::Strange { function: function.address.to_string(), what }
            }
        })?);
        let registers = Arc::clone(&bridge) as Arc<dyn Registers>;
        let (identity, areas) = probe(|offsets| read(registers.as_ref(), function, offsets))?;
        let facts = Some(bridge.facts());
        Ok(Self {
            bridge: Some(bridge),
            keeper: None,
            ..Self::new(function, registers, identity, areas, facts)
        })
    }

    fn new(
        function: &PciFunction,
        registers: Arc<dyn Registers>,
        identity: Probe,
        areas: Areas,
        facts: Option<Box<DeviceFacts>>,
    ) -> Self {
        let keeper = reading::keeper(function, identity.capabilities);
        let function = function.clone();
        Self { function, registers, areas, identity, facts, reach: OnceLock::new(), bridge: None, keeper }
    }

    /// The window and the lock file, opened at the first call.
    ///
    /// # Errors
    /// Which file cannot be opened or mapped.
    pub(crate) fn reach(&self) -> Result<&Reach, OpenError> {
        if let Some(reach) = self.reach.get() {
            return Ok(reach);
        }
        let reach = match &self.bridge {
            Some(bridge) => Reach::of_bridge(bridge)?,
            None => Reach::open(&self.function, self.identity.window_mib, &self.areas)?,
        };
        // Of two threads that come at once one's is dropped: the lock file is a handle to the process's one descriptor.
        Ok(self.reach.get_or_init(|| reach))
    }

    /// The function that was opened.
    pub fn function(&self) -> &PciFunction {
        &self.function
    }

    /// The device's facts, as the host keeps them beside the registers or in the window. Texts end, whatever the device says.
    ///
    /// # Errors
    /// The window cannot be mapped, or the facts are empty.
    pub fn facts(&self) -> Result<Box<DeviceFacts>, OpenError> {
        let mut facts = if let Some(facts) = &self.facts {
            facts.clone()
        } else {
            let mut facts = Box::new(DeviceFacts::new_zeroed());
            self.reach()?.facts(self.areas.of(0))?.get(0, facts.as_mut_bytes());
            facts
        };
        facts.name[255] = 0;
        facts.driver_text[79] = 0;
        if facts.total_bytes == 0 || facts.driver_version == 0 {
            return Err(OpenError::NoFacts { function: self.function.address.to_string() });
        }
        Ok(facts)
    }

    /// Reads what the device says of itself, now.
    ///
    /// # Errors
    /// The device is gone.
    pub fn probe(&self) -> Result<Probe, OpenError> {
        probe(|offsets| read(self.registers.as_ref(), &self.function, offsets)).map(|(probe, _)| probe)
    }
}

fn read<const N: usize>(
    registers: &dyn Registers,
    function: &PciFunction,
    offsets: [u32; N],
) -> Result<[u32; N], OpenError> {
    let name = || function.address.to_string();
    match registers.read(offsets) {
        Ok(values) if values[0] == reg::ALL_ONES => Err(OpenError::Gone { function: name() }),
        Ok(values) => Ok(values),
        Err(RegisterError::Forked) => Err(OpenError::Forked { function: name() }),
        Err(RegisterError::Refused(status)) => Err(OpenError::Strange {
            function: name(),
            what: format!("a register read failed with {status}"),
        }),
        Err(RegisterError::Closed(_) | RegisterError::TimedOut | RegisterError::Lost(_)) => {
            Err(OpenError::Gone { function: name() })
        }
    }
}

/// How many registers [`probe`] reads.
const ALL: usize = IDENTITY.len() + PLACE.len();

/// Reads what the device is, and where its areas are, in one go.
fn probe(
    read: impl FnOnce([u32; ALL]) -> Result<[u32; ALL], OpenError>,
) -> Result<(Probe, Areas), OpenError> {
    let mut offsets = [0; ALL];
    offsets[..IDENTITY.len()].copy_from_slice(&IDENTITY);
    offsets[IDENTITY.len()..].copy_from_slice(&PLACE);
    let values = read(offsets)?;
    let probe = Probe {
        protocol: values[0],
        capabilities: values[1],
        wire_version: values[2],
        digest: wide(values[3], values[4]),
        generation: values[5],
        executor_ready: values[6] == reg::EXECUTOR_READY,
        window_mib: values[7],
        channels: values[8],
        attached: wide(values[9], values[10]),
        wake_futex: values[11] & reg::WAKE_FUTEX != 0,
        vm_id: values[12],
    };
    let areas =
        Areas { base: wide(values[13], values[14]), stride: u64::from(values[15]), channels: probe.channels };
    Ok((probe, areas))
}

/// Reads the same, and believes none of it unchecked.
fn identify(
    function: &PciFunction,
    read: impl FnOnce([u32; ALL]) -> Result<[u32; ALL], OpenError>,
) -> Result<(Probe, Areas), OpenError> {
    let strange = |what: String| OpenError::Strange { function: function.address.to_string(), what };
    let (probe, areas) = probe(read)?;
    if probe.capabilities & reg::CAP_V2 == 0 || probe.protocol == reg::PROTOCOL_V1 {
        return Err(other_version(function, probe.protocol, probe.capabilities));
    }
    // A base so far below the limits of 64 bits that nothing overflows.
    if areas.channels == 0 || areas.channels > reg::MAX_CHANNELS || areas.base > 1 << 52 {
        return Err(strange(format!("{} channels at {:#x}", areas.channels, areas.base)));
    }
    if areas.stride < area::AREA_BYTES
        || !areas.stride.is_multiple_of(4096)
        || !areas.base.is_multiple_of(4096)
    {
        return Err(strange(format!("channel areas of {:#x} bytes at {:#x}", areas.stride, areas.base)));
    }
    if areas.end() > u64::from(probe.window_mib) << 20 {
        return Err(strange(format!("channel areas to {:#x} in {} MiB", areas.end(), probe.window_mib)));
    }
    Ok((probe, areas))
}

fn other_version(function: &PciFunction, protocol: u32, capabilities: u32) -> OpenError {
    let function = function.address.to_string();
    if capabilities & reg::CAP_CUDA != 0 {
        OpenError::Version1 { function, capabilities }
    } else {
        OpenError::Strange {
            function,
            what: format!("protocol {protocol:#x}, capabilities {capabilities:#x}"),
        }
    }
}

/// Where the processes of a device of version 1 meet.
fn places(function: &PciFunction) -> Option<Places> {
    if function.bars[0].bytes >= vgpu_wire::pci::V2_BAR0_BYTES {
        return None;
    }
    let simulated = std::fs::metadata(function.dir.join("resource0"))
        .is_ok_and(|metadata| metadata.file_type().is_socket());
    Some(Places::of(&function.dir, simulated))
}

/// The files by which processes take turns at a function, of those that exist or will: the lock first. None
/// but for version 1.
pub fn turn_files(function: &PciFunction) -> Vec<PathBuf> {
    places(function).map_or_else(Vec::new, |places| vec![places.turn, places.owners])
}

/// Lets every user lock the file by which processes take turns at a function, where a guest of another make
/// has left it to this user alone. `true`: it was so.
///
/// # Errors
/// Which file it is, and why its mode cannot be looked at or set: something that is no file of its own may
/// lie there.
pub fn mend_turn_file(function: &PciFunction) -> Result<bool, (PathBuf, io::Error)> {
    let Some(Places { turn, .. }) = places(function) else { return Ok(false) };
    crate::v1::mend(&turn).map_err(|error| (turn, error))
}
