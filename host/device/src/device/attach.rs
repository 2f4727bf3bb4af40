//! Attach and detach on the thread that serves registers: it starts the thread of a session, or tells that
//! thread to end. The session's thread carries out messages and frees what the session held.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vgpu_wire::body::pages::PageRun;
use vgpu_wire::registers::{Refusal, WAKE_FUTEX, channel};
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION, area};

use super::Device;
use crate::charges::charge::Charges;
use crate::device::channel::{Channel, ChannelControl};
use crate::device::session_thread::SessionThread;
use crate::dispatch::dispatcher::Dispatcher;
use crate::executor::{Executor, ExecutorError};
use crate::memory::pages::{MappedRun, PageRegistry};
use crate::session::host::{GuestProcess, SessionHost};
use crate::threads;

impl Device {
    /// Handles `CONTROL = ATTACH`: starts a session if the channel is free, and shows a refusal otherwise.
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
            // This is usual while a session is ending.
            tracing::debug!(device = %self.label, channel = channel.index(), state = channel.state(), "attach refused: {why:?}");
            return;
        }
        self.charges.log(0, || {
            tracing::warn!(
                device = %self.label,
                channel = channel.index(),
                process = channel.process(),
                guest_version = format_args!("{:#010x}", channel.guest_version()),
                host_version = format_args!("{WIRE_VERSION:#010x}"),
                guest_digest = format_args!("{:#018x}", channel.guest_digest()),
                host_digest = format_args!("{TABLE_DIGEST:#018x}"),
                "attach refused: {why:?}"
            );
        });
    }

    fn begin(
        &self,
        channel: &Arc<Channel>,
        control: &ChannelControl<'_>,
        address: u64,
        key: u64,
    ) -> Result<(), Refusal> {
        if channel.guest_version() != WIRE_VERSION {
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
            self.charges.log(0, || {
                tracing::warn!(device = %self.label, channel = channel.index(), "the window's file has no room for the channel's area");
            });
            return Err(Refusal::NoRoom);
        }
        // Another process may have written here. The session reads nothing of the ring that it has not
        // written itself.
        self.window.zero(base, area::RETURN);
        let number = self.draw_session();
        let returns = match (address, pages) {
            (1.., Some(pages)) => Some(return_area(pages, number, address)?),
            _ => None,
        };
        let host = self.host(channel.index(), number, channel.process(), pages.cloned(), returns);
        host.returns().clear();
        let begun = self.begin_with(channel, control, &host);
        if begun.is_err() {
            host.memory().release_pages();
        }
        begun
    }

    /// Makes the host of a session with this number.
    pub(super) fn host(
        &self,
        channel: u32,
        number: u32,
        process: u32,
        pages: Option<Arc<PageRegistry>>,
        returns: Option<Arc<MappedRun>>,
    ) -> SessionHost {
        SessionHost::new(
            Arc::clone(&self.window),
            Some(Arc::clone(&self.allocator)),
            channel,
            self.epoch,
            Arc::clone(&self.published),
            Charges::new(number, self.limits, Arc::clone(&self.charges)),
            GuestProcess { process, wakes: self.wake & WAKE_FUTEX != 0, pages, returns },
        )
    }

    /// Makes the thread of a session, which is not started.
    pub(super) fn thread(
        &self,
        channel: &Arc<Channel>,
        host: &SessionHost,
        dispatcher: Dispatcher,
    ) -> SessionThread {
        SessionThread::new(
            Arc::clone(&self.label),
            Arc::clone(channel),
            host.clone(),
            Arc::clone(&self.gate),
            Arc::clone(&self.ended),
            Arc::clone(&self.pauses),
            dispatcher,
        )
    }

    /// Starts the thread of a session, which doorbells wake. The session takes part in pauses until the
    /// thread ends.
    pub(super) fn start(
        &self,
        channel: &Channel,
        control: &ChannelControl<'_>,
        session: u32,
        work: impl FnOnce(&dyn Executor) + Send + 'static,
    ) -> std::io::Result<()> {
        let executor = Arc::clone(&self.executor);
        self.pauses.enter(session);
        // Nobody joins the thread: it frees its channel as its last act.
        let thread = threads::spawn(format!("session-{session}"), move || work(&*executor));
        let thread = thread.inspect_err(|_| self.pauses.leave(session))?;
        channel.sleeps_in(control, thread.thread().clone());
        Ok(())
    }

    /// Opens the executor's session, which does not wait for other sessions, and starts the thread of this
    /// one.
    fn begin_with(
        &self,
        channel: &Arc<Channel>,
        control: &ChannelControl<'_>,
        host: &SessionHost,
    ) -> Result<(), Refusal> {
        let session = self.executor.open(host.clone()).map_err(|error| {
            self.charges.log(0, || {
                tracing::warn!(device = %self.label, channel = channel.index(), "failed to {error}");
            });
            match error {
                ExecutorError::NoRoom => Refusal::NoRoom,
                ExecutorError::Failed(_) => Refusal::Executor,
            }
        })?;
        let dispatcher = Dispatcher::new(host.clone(), Arc::clone(&self.greeting), session);
        let thread = self.thread(channel, host, dispatcher);
        let (session, process) = (host.session(), host.process());
        channel.open(control, host.clone());
        if let Err(error) = self.start(channel, control, session, |executor| thread.run_session(executor)) {
            self.charges.log(0, || {
                tracing::warn!(device = %self.label, channel = channel.index(), "failed to start a thread: {error}");
            });
            channel.free(control);
            return Err(Refusal::NoRoom);
        }
        tracing::debug!(device = %self.label, channel = channel.index(), session, process, "session opened");
        Ok(())
    }

    /// Handles `DETACH_SESSION = number`: tells that session to end. A number other than that of the
    /// channel's session belongs to a session that has ended already.
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
}

/// Maps a return area that lies in guest pages.
pub(super) fn return_area(
    pages: &PageRegistry,
    session: u32,
    address: u64,
) -> Result<Arc<MappedRun>, Refusal> {
    let area = PageRun { address, bytes: area::RETURN_BYTES };
    if !area.is_good() {
        return Err(Refusal::ReturnArea);
    }
    pages.map(session, area, 0).map_err(|_| Refusal::ReturnArea)
}
