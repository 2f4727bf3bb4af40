//! A function that is opened and mapped: not yet a session.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::{area, registers as reg};
use zerocopy::{FromZeros, IntoBytes};

use crate::descriptor::Descriptor;
use crate::fork::{Home, forked};
use crate::lock::LockFile;
use crate::mapping::{Mapping, MemoryType};
use crate::registers::{BarRegisters, RegisterError, Registers};
use crate::sim::SimRegisters;
use crate::sysfs::PciFunction;

/// An opened function. Opening reads its identity, maps its window and opens the lock file; nothing is attached.
#[derive(Debug)]
pub struct Device {
    pub(crate) function: PciFunction,
    pub(crate) registers: Arc<dyn Registers>,
    pub(crate) window: Arc<Mapping>,
    pub(crate) lock: LockFile,
    pub(crate) areas: Areas,
    /// What the registers said when it was opened.
    pub(crate) identity: Probe,
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
    /// The device speaks version 1 of the contract alone.
    #[error(
        "{function} speaks version 1 of the VGPU-STUB contract (capabilities {capabilities:#x}), this program version 2"
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
    /// Opens a function: `resource0` as the simulated bus has it where it is a socket, and else maps it, reads its
    /// identity, opens `resource2` once and maps the window (`resource2_wc` of a real BAR where there is one).
    ///
    /// # Errors
    /// Which file cannot be opened or mapped, or why the device cannot be used.
    pub fn open(function: &PciFunction) -> Result<Self, OpenError> {
        let name = || function.address.to_string();
        if forked() {
            return Err(OpenError::Forked { function: name() });
        }
        // From here on a child of this process knows that it is one.
        let _ = Home::get();

        let path = function.dir.join("resource0");
        let metadata =
            std::fs::metadata(&path).map_err(|source| OpenError::Open { path: path.clone(), source })?;
        let simulated = metadata.file_type().is_socket();
        let registers: Arc<dyn Registers> = if simulated {
            let registers = SimRegisters::open(function.address, &path);
            Arc::new(registers.map_err(|source| OpenError::Open { path, source })?)
        } else {
            let enable = std::fs::read_to_string(function.dir.join("enable"));
            if enable.is_ok_and(|enable| enable.trim() == "0") {
                return Err(OpenError::Disabled { function: name() });
            }
            Arc::new(BarRegisters(map(&path, function.bars[0].bytes, MemoryType::Uncached)?))
        };

        let (identity, areas) = identify(registers.as_ref(), function)?;
        let window_bytes = u64::from(identity.window_mib) << 20;
        let path = function.dir.join("resource2");
        let lock = LockFile::open(&path).map_err(|source| OpenError::Open { path: path.clone(), source })?;
        // Memory that a file does not have would be a bus error.
        let room = lock.bytes().map_err(|source| OpenError::Open { path: path.clone(), source })?;
        if room < window_bytes {
            let what = format!("a window of {window_bytes} bytes in {} of {room}", path.display());
            return Err(OpenError::Strange { function: name(), what });
        }
        let combined = function.dir.join("resource2_wc");
        let window = if !simulated && combined.exists() {
            map(&combined, window_bytes, MemoryType::WriteCombined)?
        } else {
            // On the simulated bus both names are one file, and to close a second descriptor of it would drop the locks.
            let memory = if simulated { MemoryType::WriteBack } else { MemoryType::Uncached };
            lock.with_number(|number| Mapping::of_file(number, window_bytes as usize, memory))
                .map_err(|source| OpenError::Map { path, source })?
        };
        Ok(Self { function: function.clone(), registers, window: Arc::new(window), lock, areas, identity })
    }

    /// The function that was opened.
    pub fn function(&self) -> &PciFunction {
        &self.function
    }

    /// The device's facts, as the host keeps them in the window. Texts end, whatever the device says.
    ///
    /// # Errors
    /// There are none.
    pub fn facts(&self) -> Result<DeviceFacts, OpenError> {
        let mut facts = DeviceFacts::new_zeroed();
        self.window.get(self.areas.of(0) + area::FACTS, facts.as_mut_bytes());
        facts.name[255] = 0;
        facts.driver_text[79] = 0;
        if facts.total_bytes == 0 || facts.driver_version == 0 {
            let what = "its facts are empty".to_owned();
            return Err(OpenError::Strange { function: self.function.address.to_string(), what });
        }
        Ok(facts)
    }

    /// Reads what the device says of itself, now.
    ///
    /// # Errors
    /// The device is gone.
    pub fn probe(&self) -> Result<Probe, OpenError> {
        probe(self.registers.as_ref(), &self.function).map(|(probe, _)| probe)
    }
}

fn map(path: &Path, bytes: u64, memory: MemoryType) -> Result<Mapping, OpenError> {
    let open = || {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
        Descriptor::adopt(file.into())
    };
    let file = open().map_err(|source| OpenError::Open { path: path.to_owned(), source })?;
    Mapping::of_file(file.number(), bytes as usize, memory)
        .map_err(|source| OpenError::Map { path: path.to_owned(), source })
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
        Err(RegisterError::Closed(_) | RegisterError::TimedOut) => Err(OpenError::Gone { function: name() }),
    }
}

/// Reads what the device is, and where its areas are, in one go.
fn probe(registers: &dyn Registers, function: &PciFunction) -> Result<(Probe, Areas), OpenError> {
    const ALL: usize = IDENTITY.len() + PLACE.len();
    let mut offsets = [0; ALL];
    offsets[..IDENTITY.len()].copy_from_slice(&IDENTITY);
    offsets[IDENTITY.len()..].copy_from_slice(&PLACE);
    let values = read(registers, function, offsets)?;
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
fn identify(registers: &dyn Registers, function: &PciFunction) -> Result<(Probe, Areas), OpenError> {
    let name = || function.address.to_string();
    let strange = |what: String| OpenError::Strange { function: name(), what };
    if function.bars[0].bytes < vgpu_wire::pci::V2_BAR0_BYTES {
        let [protocol, capabilities] = read(registers, function, [IDENTITY[0], IDENTITY[1]])?;
        return Err(other_version(function, protocol, capabilities));
    }
    let (probe, areas) = probe(registers, function)?;
    if probe.capabilities & reg::CAP_V2 == 0 || probe.protocol == reg::PROTOCOL_V1 {
        return Err(other_version(function, probe.protocol, probe.capabilities));
    }
    // A base so far below the limits of 64 bits that nothing overflows.
    if areas.channels == 0 || areas.channels > reg::MAX_CHANNELS || areas.base > 1 << 52 {
        return Err(strange(format!("{} channels at {:#x}", areas.channels, areas.base)));
    }
    if areas.stride < area::AREA_BYTES || !areas.stride.is_multiple_of(64) || !areas.base.is_multiple_of(4096)
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
