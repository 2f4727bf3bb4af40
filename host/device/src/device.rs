//! The device: channels, the window and an executor. [`attach`] starts sessions, [`end`] ends them, and
//! [`status_report`] reports their state.

mod attach;
mod channel;
mod end;
mod pause;
mod pauses;
mod registers;
mod restore;
mod ring;
mod session_thread;
mod state_check;
mod status_report;

pub use pause::PausedDevice;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use vgpu_wire::area;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::pci::{PciAddress, V2_BAR2_BYTES};
use vgpu_wire::registers::{CAP_BASIC, CAP_PAGES, CAP_SHARE, CAP_USAGE, CAP_V2, MAX_CHANNELS};
use zerocopy::IntoBytes;

use crate::charges::charge::DeviceCharges;
use crate::charges::limits::Limits;
use crate::device::channel::Channel;
use crate::device::pauses::Pauses;
use crate::dispatch::dispatcher::Greeting;
use crate::executor::Executor;
use crate::figures::EndedSessions;
use crate::gate::Gate;
use crate::hooks::TestHooks;
use crate::longest::Longest;
use crate::memory::guest::GuestMemory;
use crate::memory::pages::PageRegistry;
use crate::memory::window::Window;
use crate::memory::window_allocator::WindowAllocator;
use crate::session::register_page::RegisterPage;
use crate::share::ShareSource;

/// Reason for which a device cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The registers cannot express the number of channels.
    #[error("make a device with {0} channels: there can be 1 to {MAX_CHANNELS}")]
    Channels(u32),
    /// The window is smaller than the areas of its channels, or the registers cannot express its size.
    #[error(
        "make a device with a window of {bytes} bytes: {channels} channels take {areas}, and it is counted in MiB"
    )]
    Window {
        /// Size of the window in bytes.
        bytes: u64,
        /// Number of channels.
        channels: u32,
        /// Size in bytes of the areas of all channels.
        areas: u64,
    },
    /// The system returned no random numbers.
    #[error("draw a random number")]
    Random(#[source] std::io::Error),
}

/// Configuration of a device.
#[derive(Clone)]
pub struct DeviceConfig {
    /// PCI address of the device.
    pub address: PciAddress,
    /// Executor that carries out the messages of all sessions.
    pub executor: Arc<dyn Executor>,
    /// Size of BAR2 in bytes, a multiple of 1 MiB.
    pub window_bytes: u64,
    /// Number of channels, which is the number of guest processes that can be attached at a time.
    pub channels: u32,
    /// Number of the virtual machine, for log lines.
    pub vm_id: u32,
    /// Memory of the guest, if the device can reach it. The device then accepts guest pages.
    pub memory: Option<Arc<dyn GuestMemory>>,
    /// Limits of each session.
    pub limits: Limits,
    /// The gate that messages pass, for an arbiter that shares a GPU's time among devices.
    pub gate: Arc<Gate>,
    /// Source of the VM's share of the GPU's time, if it has one. The guest is shown it.
    pub share: Option<Arc<dyn ShareSource>>,
    /// Device whose place this one takes, for a guest that was not restarted.
    pub previous: Option<PreviousDevice>,
}

/// A device that has ended, as its guest knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousDevice {
    /// Its generation, from which that of the next device differs.
    pub generation: u32,
    /// Its key of guest pages, which the next device has too. It is part of configuration space.
    pub pages_key: u64,
}

impl DeviceConfig {
    /// Returns the configuration of a device with the default size.
    pub fn new(address: PciAddress, executor: Arc<dyn Executor>) -> Self {
        Self {
            address,
            executor,
            window_bytes: V2_BAR2_BYTES,
            channels: MAX_CHANNELS,
            vm_id: 0,
            memory: None,
            limits: Limits::default(),
            gate: Arc::default(),
            share: None,
            previous: None,
        }
    }
}

impl std::fmt::Debug for DeviceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceConfig")
            .field("address", &self.address)
            .field("executor", &self.executor.name())
            .field("window_bytes", &self.window_bytes)
            .field("channels", &self.channels)
            .field("vm_id", &self.vm_id)
            .field("memory", &self.memory)
            .field("limits", &self.limits)
            .field("gate", &self.gate)
            .field("share", &self.share)
            .field("previous", &self.previous)
            .finish()
    }
}

/// Identity and history of a device, which are passed on when its process is replaced.
struct Origin {
    facts: DeviceFacts,
    generation: u32,
    pages_key: u64,
    next_session: u32,
    epoch: Instant,
    ended: EndedSessions,
}

/// One VGPU-STUB function. Register accesses may come from any thread.
pub struct Device {
    address: PciAddress,
    /// The address as text, for log lines.
    label: Arc<str>,
    /// Offsets and values of the registers that a test overrides.
    overridden: Vec<(u32, u32)>,
    vm_id: u32,
    /// Value of the register `V2_WAKE`.
    wake: u32,
    window: Arc<Window>,
    allocator: Arc<WindowAllocator>,
    pages: Option<Arc<PageRegistry>>,
    executor: Arc<dyn Executor>,
    published: Arc<RegisterPage>,
    /// Limits of each session.
    limits: Limits,
    charges: Arc<DeviceCharges>,
    ended: Arc<EndedSessions>,
    greeting: Arc<Greeting>,
    channels: Vec<Arc<Channel>>,
    gate: Arc<Gate>,
    pauses: Arc<Pauses>,
    share: Option<Arc<dyn ShareSource>>,
    next_session: AtomicU32,
    epoch: Instant,
    /// Number of register reads and writes through the bus. Reads of the register page are not counted.
    reads: AtomicU64,
    writes: AtomicU64,
    longest: Longest,
    /// Whether the device has been shut down.
    over: AtomicBool,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Device {
    /// Makes a device whose BAR2 is `window`. `wake` is the value of the register `V2_WAKE`, which depends on
    /// the bus. Fails if there are 0 or more than [`MAX_CHANNELS`] channels, if the window cannot hold their
    /// areas, or if the system has no random numbers.
    pub fn new(config: &DeviceConfig, window: Arc<Window>, wake: u32) -> Result<Self, DeviceError> {
        Self::with_hooks(config, &TestHooks::default(), window, wake)
    }

    /// Makes a device as [`Device::new`] does, with hooks for tests of guests.
    pub fn with_hooks(
        config: &DeviceConfig,
        hooks: &TestHooks,
        window: Arc<Window>,
        wake: u32,
    ) -> Result<Self, DeviceError> {
        let key = config.previous.map(|previous| previous.pages_key).filter(|key| *key != 0);
        let origin = Origin {
            facts: config.executor.facts(),
            generation: draw_generation(config.previous)?,
            pages_key: key.map_or_else(|| draw(|key| key != 0), Ok)?,
            next_session: 1,
            epoch: Instant::now(),
            ended: EndedSessions::default(),
        };
        Self::assemble(config, hooks, window, wake, origin)
    }

    /// Makes a device that continues `origin`.
    fn assemble(
        config: &DeviceConfig,
        hooks: &TestHooks,
        window: Arc<Window>,
        wake: u32,
        origin: Origin,
    ) -> Result<Self, DeviceError> {
        let channels = config.channels;
        if channels == 0 || channels > MAX_CHANNELS {
            return Err(DeviceError::Channels(channels));
        }
        let bytes = window.bytes();
        let areas = u64::from(channels) * area::AREA_BYTES;
        if areas > bytes || !bytes.is_multiple_of(1 << 20) || bytes >> 20 > u64::from(u32::MAX) {
            return Err(DeviceError::Window { bytes, channels, areas });
        }
        let facts = origin.facts;
        // Without storage for the page, the facts read as zeros, which means to a guest that there is no
        // device.
        if window.reserve(area::FACTS, area::FACTS_BYTES)
            && let Some(page) = window.slice(area::FACTS, size_of_val(&facts) as u64)
        {
            page.copy_from(facts.as_bytes());
        }
        let allocator = Arc::new(WindowAllocator::new(Arc::clone(&window), areas));
        let overridden = hooks.registers.iter().map(|register| register.0).collect();
        let executor = Box::new(Arc::clone(&config.executor));
        let published = RegisterPage::new(facts.total_bytes, executor, overridden);
        let published = Arc::new(published);
        let registry = |memory| Arc::new(PageRegistry::new(memory, origin.pages_key));
        let pages = config.memory.clone().map(registry);
        let greeting = Greeting {
            generation: origin.generation,
            window_bytes: allocator.bytes(),
            pages: pages.is_some(),
            facts: Box::new(facts),
        };
        Ok(Self {
            address: config.address,
            label: config.address.to_string().into(),
            overridden: hooks.registers.clone(),
            vm_id: config.vm_id,
            wake,
            window,
            allocator,
            pages,
            executor: Arc::clone(&config.executor),
            channels: (0..channels)
                .map(|index| Arc::new(Channel::new(index, Arc::clone(&published))))
                .collect(),
            published,
            limits: config.limits,
            charges: Arc::default(),
            ended: Arc::new(origin.ended),
            greeting: Arc::new(greeting),
            gate: Arc::clone(&config.gate),
            pauses: Arc::default(),
            share: config.share.clone(),
            next_session: AtomicU32::new(origin.next_session),
            epoch: origin.epoch,
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            longest: Longest::default(),
            over: AtomicBool::new(false),
        })
    }

    /// Returns the PCI address of the device.
    #[must_use]
    pub const fn address(&self) -> PciAddress {
        self.address
    }

    /// Returns the number that distinguishes this start of the device from others.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.greeting.generation
    }

    /// Returns the key that the guest's administrator reads at [`vgpu_wire::pci::PAGES_KEY`], or 0 if the
    /// device accepts no guest pages.
    #[must_use]
    pub fn pages_key(&self) -> u64 {
        self.pages.as_ref().map_or(0, |pages| pages.key())
    }

    pub(crate) fn capabilities(&self) -> u32 {
        let pages = if self.pages.is_some() { CAP_PAGES } else { 0 };
        let share = if self.share.is_some() { CAP_SHARE } else { 0 };
        CAP_BASIC | CAP_V2 | CAP_USAGE | pages | share
    }

    /// Returns a word of the VM's share, by its index in `VmShare::words`, or 0 if the VM has none.
    pub(crate) fn share_word(&self, index: usize) -> u32 {
        self.share.as_ref().map_or(0, |source| source.share().words()[index])
    }

    pub(crate) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn restore_accesses(&self, reads: u64, writes: u64) {
        self.reads.store(reads, Ordering::Relaxed);
        self.writes.store(writes, Ordering::Relaxed);
    }

    pub(crate) fn count_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) const fn longest(&self) -> &Longest {
        &self.longest
    }

    /// Returns the free device memory in whole MiB.
    pub(crate) fn free_mib(&self) -> u32 {
        self.published.free_mib()
    }

    pub(crate) fn published(&self) -> &RegisterPage {
        &self.published
    }

    pub(crate) fn facts(&self) -> &DeviceFacts {
        &self.greeting.facts
    }

    /// Returns the value that a test has set for the register at `offset`.
    pub(crate) fn overridden(&self, offset: u32) -> Option<u32> {
        let found = self.overridden.iter().find(|register| register.0 == offset);
        found.map(|register| register.1)
    }

    pub(crate) const fn vm_id(&self) -> u32 {
        self.vm_id
    }

    pub(crate) const fn wake_bits(&self) -> u32 {
        self.wake
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    pub(crate) fn channels(&self) -> &[Arc<Channel>] {
        &self.channels
    }

    /// Holds all sessions: they still read messages, but do not carry them out.
    pub fn hold(&self) {
        self.gate.set(true);
    }

    /// Lets held sessions carry out messages again.
    pub fn release(&self) {
        self.gate.set(false);
        for channel in &self.channels {
            channel.ring();
        }
    }

    /// Returns BAR2, which the bus maps into the guest.
    #[must_use]
    pub fn bar2(&self) -> &Arc<Window> {
        &self.window
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Draws a number that cannot be guessed, and that `suits`.
fn draw(suits: impl Fn(u64) -> bool) -> Result<u64, DeviceError> {
    loop {
        let mut bytes = [0; 8];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| DeviceError::Random(error.into()))?;
        let number = u64::from_le_bytes(bytes);
        if filled == bytes.len() && suits(number) {
            return Ok(number);
        }
    }
}

/// Draws the number of this start of the device. It is never 0, and never all ones, which registers read
/// when the function is gone, nor that of the device before.
fn draw_generation(previous: Option<PreviousDevice>) -> Result<u32, DeviceError> {
    let taken = previous.map_or(0, |previous| previous.generation);
    draw(|number| ![0, u32::MAX, taken].contains(&(number as u32))).map(|number| number as u32)
}
