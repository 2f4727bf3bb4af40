//! Sessions whose messages a caller in this process builds, such as a mediator. They are checked and executed
//! as a guest's are, and use areas of a private window in place of a guest's channels. There is no ring.

use std::sync::Arc;
use std::time::Instant;

use vgpu_wire::area;
use vgpu_wire::facts::DeviceFacts;

use crate::charges::charge::{Charges, DeviceCharges};
use crate::charges::limits::Limits;
use crate::dispatch::dispatcher::{Dispatcher, Greeting};
use crate::executor::{Executor, ExecutorError, SessionError};
use crate::memory::window::{Window, WindowError};
use crate::memory::window_allocator::WindowAllocator;
use crate::session::host::{GuestProcess, SessionHost};
use crate::session::register_page::RegisterPage;

/// Number of bytes of an area that are used. It ends before the ring.
const USED_OF_AREA: u64 = area::RING;

/// Makes local sessions on one executor.
pub struct LocalSessions {
    executor: Arc<dyn Executor>,
    window: Arc<Window>,
    allocator: Arc<WindowAllocator>,
    published: Arc<RegisterPage>,
    limits: Limits,
    charges: Arc<DeviceCharges>,
    greeting: Arc<Greeting>,
    epoch: Instant,
}

/// A local session. Dropping it ends the executor's session.
pub struct LocalSession {
    host: SessionHost,
    dispatcher: Dispatcher,
}

impl std::fmt::Debug for LocalSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalSessions").field("window", &self.window).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LocalSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalSession").field("host", &self.host).finish_non_exhaustive()
    }
}

impl LocalSessions {
    /// Makes a private window with `areas` areas, and with `extra` bytes after them for the caller's own use.
    /// The window reserves addresses, and memory is allocated when it is first used.
    pub fn new(
        executor: Arc<dyn Executor>,
        limits: Limits,
        charges: Arc<DeviceCharges>,
        areas: u32,
        extra: u64,
    ) -> Result<Self, WindowError> {
        let facts = Box::new(executor.facts());
        let window = Arc::new(Window::private(u64::from(areas) * area::AREA_BYTES + extra)?);
        let in_use = Box::new(Arc::clone(&executor));
        Ok(Self {
            allocator: Arc::new(WindowAllocator::new(Arc::clone(&window), window.bytes())),
            published: Arc::new(RegisterPage::new(facts.total_bytes, in_use, Vec::new())),
            limits,
            charges,
            greeting: Arc::new(Greeting { generation: 1, window_bytes: 0, pages: false, facts }),
            epoch: Instant::now(),
            executor,
            window,
        })
    }

    /// Returns the executor's facts.
    #[must_use]
    pub fn facts(&self) -> &DeviceFacts {
        &self.greeting.facts
    }

    /// Returns the window that holds the areas.
    #[must_use]
    pub const fn window(&self) -> &Arc<Window> {
        &self.window
    }

    /// Makes the host's side of session number `session`, which uses area `area`.
    #[must_use]
    pub fn host(&self, area: u32, session: u32) -> SessionHost {
        SessionHost::new(
            Arc::clone(&self.window),
            Some(Arc::clone(&self.allocator)),
            area,
            self.epoch,
            Arc::clone(&self.published),
            Charges::new(session, self.limits, Arc::clone(&self.charges)),
            GuestProcess { wakes: true, ..GuestProcess::default() },
        )
    }

    /// Allocates the memory of a session's area, and opens the executor's session.
    pub fn open(&self, host: &SessionHost) -> Result<LocalSession, ExecutorError> {
        if !self.window.reserve(host.area(), USED_OF_AREA) {
            return Err(ExecutorError::Failed("allocate the area of a session".to_owned()));
        }
        let session = self.executor.open(host.clone())?;
        let dispatcher = Dispatcher::new(host.clone(), Arc::clone(&self.greeting), session);
        Ok(LocalSession { host: host.clone(), dispatcher })
    }

    /// Clears an area that no session uses any more, and frees its memory.
    pub fn clear(&self, area: u32) {
        self.window.clear(u64::from(area) * area::AREA_BYTES, area::AREA_BYTES);
    }
}

impl LocalSession {
    /// Returns the host's side, through which replies, completion words and errors arrive.
    #[must_use]
    pub const fn host(&self) -> &SessionHost {
        &self.host
    }

    /// Returns the number of the newest message. The first message has number 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.dispatcher.number()
    }

    /// Checks and executes the message that `bytes` hold. An error means that the session is lost.
    pub fn dispatch(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.dispatcher.dispatch(bytes)
    }

    /// Lets spans of this session name a range of the window, in addition to its own.
    pub fn lend_window(&self, offset: u64, bytes: u64) {
        self.host.memory().lend(offset, bytes);
    }

    /// Ends the effect of [`LocalSession::lend_window`] for the range that starts at `offset`.
    pub fn revoke_window(&self, offset: u64) {
        self.host.memory().revoke(offset);
    }
}
