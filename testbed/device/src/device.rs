//! The device: channels, the window and an executor. Owns attach and detach, as far as they are done by whoever serves
//! registers; a session's own thread does the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use vgpu_wire::body::pages::PageRun;
use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::pci::V2_BAR2_BYTES;
use vgpu_wire::registers::{CAP_BASIC, CAP_PAGES, CAP_V2, MAX_CHANNELS, Refusal, WAKE_FUTEX, channel};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, area};
use zerocopy::IntoBytes;

use crate::channel::{Channel, Control};
use crate::charge::{Charges, DeviceCharges, Limits};
use crate::executor::{Executor, ExecutorError};
use crate::host::{Guest, SessionHost};
use crate::longest::Longest;
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

/// How long a reset, or the end of the device, waits for sessions to end. One whose executor is in the middle of work that cannot
/// be interrupted ends later, and its channel stays in [`channel::STATE_ENDING`] until then.
const ENDING_MOST: Duration = Duration::from_millis(300);

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
    longest: Longest,
    /// It was shut down.
    over: AtomicBool,
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
        let overridden = config.registers.iter().map(|register| register.0).collect();
        let published = Arc::new(Published::new(Arc::clone(&config.executor), facts.total_bytes, overridden));
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
            channels: (0..channels)
                .map(|index| Arc::new(Channel::new(index, Arc::clone(&published))))
                .collect(),
            published,
            limits: config.limits,
            charges: Arc::default(),
            greeting: Arc::new(greeting),
            gate: Arc::default(),
            next_session: AtomicU32::new(1),
            epoch: Instant::now(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            longest: Longest::default(),
            over: AtomicBool::new(false),
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

    pub(crate) const fn longest(&self) -> &Longest {
        &self.longest
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

    /// `CONTROL = ATTACH`: starts a session on a channel that is free.
    pub(crate) fn attach(&self, channel: &Arc<Channel>) {
        let _timed = self.longest.attach();
        let control = channel.control();
        let (address, key) = channel.take_pages();
        let begun = if channel.state() == channel::STATE_FREE {
            self.begin(channel, &control, address, key)
        } else {
            Err(Refusal::Busy)
        };
        let Err(why) = begun else { return };
        channel.refuse(&control, why);
        if why == Refusal::Busy {
            // Usual, where a session is ending.
            tracing::debug!(device = %self.label, channel = channel.index(), state = channel.state(), "attach refused: {why:?}");
            return;
        }
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
    }

    fn begin(
        &self,
        channel: &Arc<Channel>,
        control: &Control<'_>,
        address: u64,
        key: u64,
    ) -> Result<(), Refusal> {
        if channel.guest_version.load(Ordering::Relaxed) != WIRE_VERSION {
            return Err(Refusal::Version);
        }
        if channel.guest_digest() != TABLE_DIGEST {
            return Err(Refusal::Digest);
        }
        let pages = self.pages.as_ref().filter(|pages| pages.key() == key);
        if address != 0 && pages.is_none() {
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
        let returns = match (address, pages) {
            (1.., Some(pages)) => Some(return_area(pages, number, address)?),
            _ => None,
        };
        let host = SessionHost::new(
            Arc::clone(&self.window),
            Arc::clone(&self.shares),
            channel.index(),
            self.epoch,
            Arc::clone(&self.published),
            Charges::new(number, self.limits, Arc::clone(&self.charges)),
            Guest {
                process: channel.process(),
                wakes: self.wake & WAKE_FUTEX != 0,
                pages: pages.cloned(),
                returns,
            },
        );
        host.returns().clear();
        let begun = self.begin_with(channel, control, &host);
        if begun.is_err() {
            host.release_pages();
        }
        begun
    }

    /// Opens the executor's session, which does not wait for other sessions, and starts the thread of this one.
    fn begin_with(
        &self,
        channel: &Arc<Channel>,
        control: &Control<'_>,
        host: &SessionHost,
    ) -> Result<(), Refusal> {
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
        let (session, process) = (host.session(), host.process());
        channel.open(control, host.clone());
        match spawn(session, worker) {
            Ok(thread) => channel.sleeps_in(control, thread),
            Err(error) => {
                tracing::warn!(device = %self.label, channel = channel.index(), "failed to start a thread: {error}");
                channel.free(control);
                return Err(Refusal::NoRoom);
            }
        }
        tracing::debug!(device = %self.label, channel = channel.index(), session, process, "session opened");
        Ok(())
    }

    /// `DETACH_SESSION = number`: tells that session to end. One that is not the channel's has ended already.
    pub(crate) fn detach(&self, channel: &Channel, number: u32) {
        let control = channel.control();
        if number == channel.session() {
            channel.end(&control);
        } else {
            tracing::debug!(device = %self.label, channel = channel.index(), number, "a late detach is ignored");
        }
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

    /// Tells all sessions to end, and waits for none of them.
    pub fn end_sessions(&self) {
        for channel in &self.channels {
            channel.end(&channel.control());
        }
    }

    /// Waits until no session is left, but not beyond `deadline`. False: some executor is still in the middle of work.
    pub fn wait_for_sessions(&self, deadline: Instant) -> bool {
        self.channels.iter().all(|channel| channel.wait_until_free(deadline))
    }

    /// For a bus that resets the device, or a machine that went away: all sessions end. A session whose executor does not
    /// stop at once may outlast the reset; its channel takes no other until it has ended.
    pub fn reset(&self) {
        self.end_sessions();
        for channel in &self.channels {
            channel.forget_guest();
        }
        if !self.wait_for_sessions(Instant::now() + ENDING_MOST) {
            self.warn_of_sessions();
        }
    }

    /// Ends every session, for good; as [`Device::reset`] where one does not stop.
    pub fn shutdown(&self) {
        self.shutdown_by(Instant::now() + ENDING_MOST);
    }

    /// The same, with a deadline that several devices share.
    pub(crate) fn shutdown_by(&self, deadline: Instant) {
        if self.over.swap(true, Ordering::Relaxed) {
            return;
        }
        self.end_sessions();
        if !self.wait_for_sessions(deadline) {
            self.warn_of_sessions();
        }
        self.unpublish();
    }

    fn warn_of_sessions(&self) {
        let left: Vec<u32> =
            self.channels.iter().map(|channel| channel.session()).filter(|&number| number != 0).collect();
        tracing::warn!(device = %self.label, sessions = ?left, "sessions are still ending: the executor is in the middle of work");
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
            longest_access_us: self.longest.access_us(),
            longest_attach_us: self.longest.attach_us(),
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
            channel::STATE_ENDING => "ending",
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
                process: host.process(),
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

fn spawn(session: u32, worker: Worker) -> std::io::Result<Thread> {
    // Nobody joins the thread: it frees its channel as its last act.
    let thread = thread::Builder::new().name(format!("session-{session}")).spawn(move || worker.run())?;
    Ok(thread.thread().clone())
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
