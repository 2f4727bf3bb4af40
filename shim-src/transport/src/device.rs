//! A function that is opened and mapped, before there is a session.

use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, OnceLock};

use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::registers::{self as reg, channel};
use zerocopy::{FromZeros, IntoBytes};

use crate::areas::Areas;
use crate::bar_mappings::{BarMappings, map};
use crate::bridge::{Bridge, OpenBridge};
use crate::fork::{Home, forked};
use crate::identity::{Probe, identify, probe, read};
use crate::mapping::MemoryType;
use crate::open_error::OpenError;
use crate::page::{Page, Values};
use crate::pages::HugePagePool;
use crate::registers::{BarRegisters, Registers};
use crate::sim::SimRegisters;
use crate::sysfs::PciFunction;

/// A function whose registers are open. Its identity is known, and nothing is attached. The window is mapped
/// and the lock file opened by the first session, because most processes never attach.
#[derive(Debug)]
pub struct Device {
    pub(crate) function: PciFunction,
    pub(crate) registers: Arc<dyn Registers>,
    pub(crate) areas: Areas,
    /// Values of the registers when the function was opened.
    pub(crate) identity: Probe,
    /// Facts of the device, if it keeps them beside its registers.
    facts: Option<Box<DeviceFacts>>,
    /// Window and lock file, which [`Device::mappings`] opens.
    pub(crate) mappings: OnceLock<BarMappings>,
    /// Bridge to the device if it does not have version 2; the same object as `registers`.
    pub(crate) bridge: Option<Arc<dyn Bridge>>,
    /// Pool of the guest pages of the device's sessions, if it accepts any.
    pub(crate) pool: Option<HugePagePool>,
}

impl Device {
    /// Opens a function with everything that a session needs: [`Device::identify`], then `resource2` and the
    /// window's mapping (through `resource2_wc` of a real BAR where it exists).
    ///
    /// # Errors
    /// Returns which file cannot be opened or mapped, or why the device cannot be used.
    pub fn open(function: &PciFunction, bridge: Option<OpenBridge>) -> Result<Self, OpenError> {
        let device = Self::identify(function, bridge)?;
        device.mappings()?;
        Ok(device)
    }

    /// Returns the channels' areas in which owners describe themselves. A device behind a bridge has none.
    pub(crate) fn areas_of_owners(&self) -> Option<&Areas> {
        self.bridge.is_none().then_some(&self.areas)
    }

    /// Opens a function's registers and reads its identity. On the simulated bus these are `resource0_ro`
    /// and, when it is needed, `resource0`; on a real one `resource0` is mapped.
    ///
    /// A function whose BAR0 is one page has another version than 2: `bridge` opens it.
    ///
    /// # Errors
    /// Returns which file cannot be opened or mapped, or why the device cannot be used.
    pub fn identify(function: &PciFunction, bridge: Option<OpenBridge>) -> Result<Self, OpenError> {
        let name = || function.address.to_string();
        if forked() {
            return Err(OpenError::Forked { function: name() });
        }
        // From here on a forked child of this process is recognised.
        let _ = Home::get();

        // A device whose registers cannot be accessed is an error, even if its page can be read.
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
            let Some(open_bridge) = bridge else {
                let what = "it has BARs of version 1, which this program does not use".to_owned();
                return Err(OpenError::Strange { function: name(), what });
            };
            let bridge = open_bridge(function, registers, metadata.file_type().is_socket())?;
            let registers = Arc::clone(&bridge) as Arc<dyn Registers>;
            let (identity, areas) = probe(|offsets| read(registers.as_ref(), function, offsets))?;
            let facts = Some(bridge.facts());
            return Ok(Self {
                bridge: Some(bridge),
                pool: None,
                ..Self::new(function, registers, identity, areas, facts)
            });
        }
        let (identity, areas) = identify(function, |offsets| read(registers.as_ref(), function, offsets))?;
        Ok(Self::new(function, registers, identity, areas, None))
    }

    fn new(
        function: &PciFunction,
        registers: Arc<dyn Registers>,
        identity: Probe,
        areas: Areas,
        facts: Option<Box<DeviceFacts>>,
    ) -> Self {
        let pool = HugePagePool::of_device(function, identity.capabilities);
        let function = function.clone();
        Self { function, registers, areas, identity, facts, mappings: OnceLock::new(), bridge: None, pool }
    }

    /// Returns the window and the lock file, which the first call opens.
    ///
    /// # Errors
    /// Returns which file cannot be opened or mapped.
    pub(crate) fn mappings(&self) -> Result<&BarMappings, OpenError> {
        if let Some(mappings) = self.mappings.get() {
            return Ok(mappings);
        }
        let mappings = match &self.bridge {
            Some(bridge) => BarMappings::from_bridge(bridge.as_ref())?,
            None => BarMappings::open(&self.function, self.identity.window_mib, &self.areas)?,
        };
        // Of two threads that open them at once, one drops its own: the lock file is a handle to the
        // process's one descriptor.
        Ok(self.mappings.get_or_init(|| mappings))
    }

    /// Returns the function that was opened.
    pub fn function(&self) -> &PciFunction {
        &self.function
    }

    /// Returns the device's facts, which the host keeps beside the registers or in the window. Texts are
    /// terminated, whatever the device says.
    ///
    /// # Errors
    /// Fails if the window cannot be mapped, or the facts are empty.
    pub fn facts(&self) -> Result<Box<DeviceFacts>, OpenError> {
        let mut facts = if let Some(facts) = &self.facts {
            facts.clone()
        } else {
            let mut facts = Box::new(DeviceFacts::new_zeroed());
            self.mappings()?.facts(self.areas.offset_of(0))?.get(0, facts.as_mut_bytes());
            facts
        };
        facts.name[255] = 0;
        facts.driver_text[79] = 0;
        if facts.total_bytes == 0 || facts.driver_version == 0 {
            return Err(OpenError::NoFacts { function: self.function.address.to_string() });
        }
        Ok(facts)
    }

    /// Makes a round trip to the device's own process, by reading a register that is on no page of memory.
    /// Waits for the answer without a limit.
    ///
    /// # Errors
    /// Fails if the device is gone or refuses.
    pub fn ping(&self) -> Result<(), OpenError> {
        let read = self.registers.read([channel::base(0) + channel::STATE]);
        read.map(|_| ()).map_err(|error| OpenError::from_read(&self.function, &error))
    }

    /// Reads the device's identity registers now.
    ///
    /// # Errors
    /// Fails if the device is gone.
    pub fn probe(&self) -> Result<Probe, OpenError> {
        probe(|offsets| read(self.registers.as_ref(), &self.function, offsets)).map(|(probe, _)| probe)
    }
}
