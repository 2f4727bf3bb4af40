//! The device: channels, the window and an executor. Owns attach and detach.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use vgpu_wire::body::pages::PageRun;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::pci::V2_BAR2_BYTES;
use vgpu_wire::registers::{CAP_BASIC, CAP_PAGES, CAP_V2, MAX_CHANNELS, Refusal, WAKE_FUTEX, channel};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, area};
use zerocopy::IntoBytes;

use crate::channel::{Channel, Running};
use crate::charge::{Charges, DeviceCharges, Limits};
use crate::executor::{Executor, ExecutorError};
use crate::host::{Guest, SessionHost, lock};
use crate::memory::GuestMemory;
use crate::pages::{Registry, Run};
use crate::published::Published;
use crate::pump::{Greeting, Pump};
use crate::session::{Gate, Worker};
use crate::shares::Shares;
use crate::sim::PciAddress;
use crate::status::{DeviceStatus, SessionStatus};
use crate::v1::{Accesses, BarAccesses};
use crate::window::Window;

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The number of channels is not one that the registers can name.
    #[error("make a device with {0} channels: there can be 1 to {MAX_CHANNELS}")]
    Channels(u32),
    /// The window has no room for the channels' areas, or a size that the registers cannot name.
    #[error(
        "make a device with a window of {bytes} bytes: {channels} channels take {areas}, and it is counted in MiB"
    )]
    Window {
        /// The window's size.
        bytes: u64,
        /// How many channels.
        channels: u32,
        /// What their areas take.
        areas: u64,
    },
    /// The system has no random numbers.
    #[error("draw a random number")]
    Random(#[source] std::io::Error),
}

/// What a device is made of.
#[derive(Clone)]
pub struct DeviceConfig {
    /// Where on the bus it is.
    pub address: PciAddress,
    /// What stands behind it.
    pub executor: Arc<dyn Executor>,
    /// Size of BAR2, whole MiB.
    pub window_bytes: u64,
    /// How many guest processes can be attached at a time.
    pub channels: u32,
    /// The id of the virtual machine, for log lines.
    pub vm_id: u32,
    /// Memory of the guest that the device is in, where the device can reach that: it takes guest pages then.
    pub memory: Option<Arc<dyn GuestMemory>>,
    /// Offsets of registers, and what they read instead of the truth: for tests of guests.
    pub registers: Vec<(u32, u32)>,
    /// The most that a session may make the host hold.
    pub limits: Limits,
}

impl DeviceConfig {
    /// A device of the usual size.
    pub fn new(address: PciAddress, executor: Arc<dyn Executor>) -> Self {
        Self {
            address,
            executor,
            window_bytes: V2_BAR2_BYTES,
            channels: MAX_CHANNELS,
            vm_id: 0,
            memory: None,
            registers: Vec::new(),
            limits: Limits::default(),
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
            .field("registers", &self.registers)
            .field("limits", &self.limits)
            .finish()
    }
}

/// One VGPU-STUB function. Register accesses may come from any thread.
pub struct Device {
    address: PciAddress,
    /// The address as text, for log lines.
    label: Arc<str>,
    /// As [`DeviceConfig::registers`].
    overridden: Vec<(u32, u32)>,
    vm_id: u32,
    /// Bits of `V2_WAKE`.
    wake: u32,
    window: Arc<Window>,
    shares: Arc<Shares>,
    pages: Option<Arc<Registry>>,
    executor: Arc<dyn Executor>,
    published: Arc<Published>,
    /// As [`DeviceConfig::limits`].
    limits: Limits,
    charges: Arc<DeviceCharges>,
    greeting: Arc<Greeting>,
    channels: Vec<Arc<Channel>>,
    gate: Arc<Gate>,
    next_session: AtomicU32,
    epoch: Instant,
    /// How often registers were read and written, other than by the page.
    reads: AtomicU64,
    writes: AtomicU64,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Device {
    /// Makes a device whose BAR2 is `window`. `wake`: bits of `V2_WAKE` that hold for the bus.
    pub fn new(config: &DeviceConfig, window: Arc<Window>, wake: u32) -> Result<Self, DeviceError> {
        let channels = config.channels;
        if channels == 0 || channels > MAX_CHANNELS {
            return Err(DeviceError::Channels(channels));
        }
        let bytes = window.bytes();
        let areas = u64::from(channels) * area::AREA_BYTES;
        if areas > bytes || !bytes.is_multiple_of(1 << 20) || bytes >> 20 > u64::from(u32::MAX) {
            return Err(DeviceError::Window { bytes, channels, areas });
        }
        let facts = config.executor.facts();
        // Without storage for the page the facts read zeros, which a guest takes for no device.
        if window.reserve(area::FACTS, area::FACTS_BYTES)
            && let Some(page) = window.slice(area::FACTS, size_of_val(&facts) as u64)
        {
            page.copy_from(facts.as_bytes());
        }
        let shares = Arc::new(Shares::new(Arc::clone(&window), areas));
        let published = Arc::new(Published::new(Arc::clone(&config.executor), facts.total_bytes));
        let pages = match &config.memory {
            Some(memory) => Some(Arc::new(Registry::new(Arc::clone(memory), draw_key()?))),
            None => None,
        };
        let greeting = Greeting {
            generation: draw_generation()?,
            window_bytes: shares.bytes(),
            pages: pages.is_some(),
            facts: Box::new(facts),
        };
        Ok(Self {
            address: config.address,
            label: config.address.to_string().into(),
            overridden: config.registers.clone(),
            vm_id: config.vm_id,
            wake,
            window,
            shares,
            pages,
            executor: Arc::clone(&config.executor),
            published,
            limits: config.limits,
            charges: Arc::default(),
            greeting: Arc::new(greeting),
            channels: (0..channels).map(|index| Arc::new(Channel::new(index))).collect(),
            gate: Arc::default(),
            next_session: AtomicU32::new(1),
            epoch: Instant::now(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        })
    }

    /// Where on the bus it is.
    #[must_use]
    pub const fn address(&self) -> PciAddress {
        self.address
    }

    /// The number that tells this start of the device from others.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.greeting.generation
    }

    /// What the guest's administrator finds at [`vgpu_wire::pci::PAGES_KEY`]; 0 where the device takes no pages.
    #[must_use]
    pub fn pages_key(&self) -> u64 {
        self.pages.as_ref().map_or(0, |pages| pages.key())
    }

    pub(crate) fn capabilities(&self) -> u32 {
        CAP_BASIC | CAP_V2 | if self.pages.is_some() { CAP_PAGES } else { 0 }
    }

    pub(crate) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Device memory that is free, in whole MiB.
    pub(crate) fn free_mib(&self) -> u32 {
        self.published.free_mib()
    }

    pub(crate) fn published(&self) -> &Published {
        &self.published
    }

    pub(crate) fn facts(&self) -> &DeviceFacts {
        &self.greeting.facts
    }

    /// What the register at `offset` reads instead of the truth, if anything.
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

    /// `CONTROL = ATTACH`: begins a session on the channel, ends the one that was.
    pub(crate) fn attach(&self, channel: &Arc<Channel>) {
        let _control = lock(&channel.control);
        self.end(channel);
        match self.begin(channel) {
            Ok(running) => {
                let session = running.host.session();
                tracing::debug!(device = %self.label, channel = channel.index(), session, process = channel.process(), "session opened");
                channel.open(running);
            }
            Err(why) => {
                tracing::warn!(
                    device = %self.label,
                    channel = channel.index(),
                    process = channel.process(),
                    guest_version = format_args!("{:#010x}", channel.guest_version.load(Ordering::Relaxed)),
                    host_version = format_args!("{WIRE_VERSION:#010x}"),
                    guest_digest = format_args!("{:#018x}", channel.guest_digest()),
                    host_digest = format_args!("{TABLE_DIGEST:#018x}"),
                    "attach refused: {why:?}"
                );
                channel.free(Some(why));
            }
        }
        self.publish();
    }

    fn begin(&self, channel: &Arc<Channel>) -> Result<Running, Refusal> {
        if channel.guest_version.load(Ordering::Relaxed) != WIRE_VERSION {
            return Err(Refusal::Version);
        }
        if channel.guest_digest() != TABLE_DIGEST {
            return Err(Refusal::Digest);
        }
        let pages = self.pages.as_ref().filter(|pages| pages.key() == channel.pages_key());
        if channel.return_address() != 0 && pages.is_none() {
            return Err(Refusal::ReturnArea);
        }
        let base = u64::from(channel.index()) * area::AREA_BYTES;
        if !channel.reserve(|| self.window.reserve(base, area::AREA_BYTES)) {
            tracing::warn!(device = %self.label, channel = channel.index(), "the window's file has no room for the channel's area");
            return Err(Refusal::NoRoom);
        }
        // Whatever somebody wrote there meanwhile; of the ring nothing is read but what this session writes.
        self.window.zero(base, area::RETURN);
        let number = self.draw_session();
        let returns = match (channel.return_address(), pages) {
            (address @ 1.., Some(pages)) => Some(return_area(pages, number, address)?),
            _ => None,
        };
        let host = SessionHost::new(
            Arc::clone(&self.window),
            Arc::clone(&self.shares),
            channel.index(),
            self.epoch,
            Arc::clone(&self.published),
            Charges::new(number, self.limits, Arc::clone(&self.charges)),
            Guest { wakes: self.wake & WAKE_FUTEX != 0, pages: pages.cloned(), returns },
        );
        host.returns().clear();
        let begun = self.begin_with(channel, &host);
        if begun.is_err() {
            host.release_pages();
        }
        begun.map(|thread| Running { host, thread })
    }

    fn begin_with(&self, channel: &Arc<Channel>, host: &SessionHost) -> Result<JoinHandle<()>, Refusal> {
        let session = self.executor.open(host.clone()).map_err(|error| {
            tracing::warn!(device = %self.label, channel = channel.index(), "failed to {error}");
            match error {
                ExecutorError::NoRoom => Refusal::NoRoom,
                ExecutorError::Failed(_) => Refusal::Executor,
            }
        })?;
        let pump = Pump::new(host.clone(), Arc::clone(&self.greeting), session);
        let worker = Worker::new(
            Arc::clone(&self.label),
            Arc::clone(channel),
            host.clone(),
            Arc::clone(&self.gate),
            pump,
        );
        let name = format!("session-{}", host.session());
        thread::Builder::new().name(name).spawn(move || worker.run()).map_err(|error| {
            tracing::warn!(device = %self.label, channel = channel.index(), "failed to start a thread: {error}");
            Refusal::NoRoom
        })
    }

    /// `CONTROL = DETACH`: ends the session on the channel and frees all it holds.
    pub(crate) fn detach(&self, channel: &Channel) {
        let _control = lock(&channel.control);
        self.end(channel);
        channel.forget_guest();
        self.publish();
    }

    /// Ends the session, if there is one, and waits until nothing of it is left.
    fn end(&self, channel: &Channel) {
        if let Some(Running { host, thread }) = channel.take() {
            host.stop();
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!(device = %self.label, channel = channel.index(), session = host.session(), "the session's thread panicked");
            }
            // Not before: a guest whose session failed may have written to it until it detached.
            host.release_window();
            host.release_pages();
            // What this session leaves behind is nobody else's to see; the facts stay.
            self.window.zero(host.area(), area::RETURN + area::RETURN_BYTES);
            self.window.zero(host.area() + area::STAGING, area::STAGING_BYTES);
            self.window.zero(host.area() + area::RING, area::RING_BYTES);
        }
        channel.free(None);
    }

    fn draw_session(&self) -> u32 {
        loop {
            let session = self.next_session.fetch_add(1, Ordering::Relaxed);
            if session != 0 {
                return session;
            }
        }
    }

    /// Sessions read messages but stop carrying them out.
    pub fn hold(&self) {
        self.gate.set(true);
    }

    /// Sessions go on.
    pub fn release(&self) {
        self.gate.set(false);
        for channel in &self.channels {
            channel.ring();
        }
    }

    /// The device is as after its start, for a bus that resets it or a machine that went away: no session is left.
    pub fn reset(&self) {
        for channel in &self.channels {
            self.detach(channel);
        }
    }

    /// Ends every session, for good.
    pub fn shutdown(&self) {
        self.reset();
        self.unpublish();
    }

    /// BAR2, which the bus hands to the guest.
    #[must_use]
    pub fn bar2(&self) -> &Arc<Window> {
        &self.window
    }

    /// What is allocated, by session.
    #[must_use]
    pub fn status(&self) -> DeviceStatus {
        let sessions: Vec<SessionStatus> =
            self.channels.iter().filter_map(|channel| self.session_status(channel)).collect();
        let free = self.channels.iter().filter(|channel| channel.state() == channel::STATE_FREE).count();
        DeviceStatus {
            address: self.label.to_string(),
            executor: self.executor.name().to_owned(),
            generation: self.generation(),
            total: self.greeting.facts.total_bytes,
            allocated: self.executor.allocated(),
            charged_bytes: self.charges.bytes(),
            kept_image_bytes: self.executor.kept_image_bytes(),
            sessions,
            free_channels: free,
            accesses: Some(self.accesses()),
        }
    }

    /// How often registers were reached for: each time is an exit of a virtual machine.
    #[must_use]
    pub fn accesses(&self) -> Accesses {
        let bar0 = BarAccesses {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        };
        let doorbells = self.channels.iter().map(|channel| channel.all_doorbells()).sum();
        Accesses { bar0, bar1: BarAccesses::default(), doorbells }
    }

    fn session_status(&self, channel: &Channel) -> Option<SessionStatus> {
        let state = match channel.state() {
            channel::STATE_FREE => return None,
            channel::STATE_FAILED => "failed",
            _ if self.gate.held() => "held",
            _ => "attached",
        };
        channel.look(|host| {
            let (gauges, counters) = (host.gauges(), host.counters());
            // First: what was read before this moment is counted.
            let unread = host.unread();
            let tallied = counters.tally.read();
            SessionStatus {
                channel: channel.index(),
                session: host.session(),
                process: channel.process(),
                state: state.to_owned(),
                allocated: gauges.allocated.load(Ordering::Relaxed),
                allocations: gauges.allocations.load(Ordering::Relaxed),
                charged_bytes: host.charges().bytes(),
                window_bytes: host.window_bytes(),
                page_bytes: host.page_bytes(),
                streams: gauges.streams.load(Ordering::Relaxed),
                events: gauges.events.load(Ordering::Relaxed),
                modules: gauges.modules.load(Ordering::Relaxed),
                messages: counters.messages.load(Ordering::Relaxed),
                done: counters.done.load(Ordering::Relaxed),
                host_sleeps: counters.host_sleeps.load(Ordering::Relaxed),
                unread,
                kinds: tallied.kinds,
                joins: tallied.joins,
                waits: tallied.waits,
                bytes_in: tallied.bytes_in,
                bytes_out: tallied.bytes_out,
                doorbells: channel.doorbells(),
            }
        })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Maps a return area that the guest has in its pages.
fn return_area(pages: &Registry, session: u32, address: u64) -> Result<Arc<Run>, Refusal> {
    let area = PageRun { address, bytes: area::RETURN_BYTES };
    if !area.is_good() {
        return Err(Refusal::ReturnArea);
    }
    pages.map(session, area, 0).map_err(|_| Refusal::ReturnArea)
}

/// A number that cannot be guessed, and is not 0.
fn draw_key() -> Result<u64, DeviceError> {
    loop {
        let mut bytes = [0u8; 8];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| DeviceError::Random(error.into()))?;
        let key = u64::from_le_bytes(bytes);
        if filled == bytes.len() && key != 0 {
            return Ok(key);
        }
    }
}

/// Never 0 and never all ones, which is what a register reads when the function is gone.
fn draw_generation() -> Result<u32, DeviceError> {
    loop {
        let mut bytes = [0u8; 4];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| DeviceError::Random(error.into()))?;
        let generation = u32::from_le_bytes(bytes);
        if filled == bytes.len() && generation != 0 && generation != u32::MAX {
            return Ok(generation);
        }
    }
}
