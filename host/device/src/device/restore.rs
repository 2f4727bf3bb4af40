//! Restores a device that another process has paused. No session continues before all of them are restored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_wire::facts::DeviceFacts;
use vgpu_wire::registers::Refusal;
use zerocopy::FromBytes;

use super::attach::return_area;
use super::{Device, DeviceConfig, Origin};
use crate::device::channel::Channel;
use crate::device::session_thread::{CUDA_ERROR_UNKNOWN, EndedSession, SessionThread};
use crate::dispatch::dispatcher::Dispatcher;
use crate::executor::SessionError;
use crate::figures::EndedSessions;
use crate::hooks::TestHooks;
use crate::memory::window::Window;
use crate::saved::descriptors::KeptDescriptors;
use crate::saved::error::{RestoreError, require};
use crate::saved::state::{DeviceState, RunningState, SessionState};
use crate::session::host::SessionHost;

/// A session that is restored, before its thread starts.
enum RestoredSession {
    Running(Box<SessionThread>),
    /// The session had failed before the pause, or it cannot be restored and its guest is shown this refusal.
    Failed(EndedSession, Option<Refusal>),
}

impl Device {
    /// Continues a device that [`Device::pause`] has described. `config`, `window` and `wake` are made as for
    /// [`Device::new`], of the same memory. Guest memory must be mapped already. Takes the descriptors of all
    /// sessions.
    ///
    /// A session that cannot be restored is lost, as if its worker had died. Its guest detaches and attaches
    /// again.
    ///
    /// # Errors
    /// The state is not one of this device, which [`DeviceState::check`] says before, or a thread cannot be
    /// started.
    pub fn restore(
        config: &DeviceConfig,
        state: &DeviceState,
        descriptors: &mut KeptDescriptors,
        window: Arc<Window>,
        wake: u32,
    ) -> Result<Self, RestoreError> {
        state.check(config)?;
        require(window.bytes() == state.window_bytes, "size of the window", state.window_bytes)?;
        let facts = DeviceFacts::read_from_bytes(&state.facts.0);
        let origin = Origin {
            facts: facts.map_err(|_| RestoreError::field("size of the facts", state.facts.0.len()))?,
            generation: state.generation,
            pages_key: state.pages_key,
            next_session: state.next_session,
            epoch: ago(Duration::from_nanos(state.clock)),
            ended: EndedSessions::restore(state.ended),
        };
        let device = Self::assemble(config, &TestHooks::default(), window, wake, origin)
            .map_err(|error| RestoreError::Device(error.to_string()))?;
        device.restore_accesses(state.reads, state.writes);
        device.executor.restore(&state.executor_state)?;
        let mut restored = Vec::new();
        for (channel, saved) in device.channels.iter().zip(&state.channels) {
            let Some(session) = &saved.session else {
                channel.restore(&channel.control(), saved, None);
                continue;
            };
            let (host, thread) = device.restore_session(channel, session, descriptors);
            restored.push((channel, saved, host, thread));
        }
        device.gate.set(state.held);
        for (channel, saved, host, thread) in restored {
            let (control, number) = (channel.control(), host.session());
            channel.restore(&control, saved, Some(host));
            if let RestoredSession::Failed(_, why) = &thread {
                channel.restore_failed(&control, why.map_or(saved.error, |why| why as u32));
            }
            let started = device.start(channel, &control, number, move |executor| match thread {
                RestoredSession::Running(thread) => thread.run_session(executor),
                RestoredSession::Failed(session, _) => {
                    session.wait_for_detach();
                    session.close(executor);
                }
            });
            started.map_err(|error| RestoreError::Device(format!("start a thread: {error}")))?;
        }
        tracing::debug!(device = %device.label, "restored");
        Ok(device)
    }

    /// Restores a session. If that fails, this session alone is lost.
    fn restore_session(
        &self,
        channel: &Arc<Channel>,
        state: &SessionState,
        descriptors: &mut KeptDescriptors,
    ) -> (SessionHost, RestoredSession) {
        let memory = &state.memory;
        let pages = self.pages.clone().filter(|_| memory.may_register);
        let area = |address| pages.as_ref().map(|pages| return_area(pages, state.number, address));
        let (returns, missing) = match memory.returns.and_then(area) {
            None => (None, None),
            Some(Ok(area)) => (Some(area), None),
            Some(Err(_)) => (None, memory.returns),
        };
        let host = self.host(channel.index(), state.number, state.process, pages, returns);
        let ended = || EndedSession {
            device: Arc::clone(&self.label),
            channel: Arc::clone(channel),
            host: host.clone(),
            pauses: Arc::clone(&self.pauses),
        };
        let restored = missing.map_or(Ok(()), |address| Err(RestoreError::field("return area", address)));
        let restored = restored.and_then(|()| host.restore(state));
        let Some(running) = &state.running else {
            if let Err(error) = restored {
                tracing::warn!(device = %self.label, session = state.number, "a failed session is restored without {error}");
            }
            return (host.clone(), RestoredSession::Failed(ended(), None));
        };
        match restored.and_then(|()| self.restore_thread(channel, &host, running, descriptors)) {
            Ok(thread) => (host, RestoredSession::Running(Box::new(thread))),
            Err(error) => {
                // Nobody may use the session's memory any more.
                self.executor.abandon_session(&running.executor);
                descriptors.forget_session(state.number);
                let error = SessionError::Lost(format!("it cannot be restored: {error}"));
                tracing::warn!(device = %self.label, session = state.number, "session ended: {error}");
                host.end_with(CUDA_ERROR_UNKNOWN, running.number);
                host.end();
                self.ended.add(&host);
                self.ended.count_loss(&error);
                (host.clone(), RestoredSession::Failed(ended(), Some(Refusal::Executor)))
            }
        }
    }

    fn restore_thread(
        &self,
        channel: &Arc<Channel>,
        host: &SessionHost,
        running: &RunningState,
        descriptors: &mut KeptDescriptors,
    ) -> Result<SessionThread, RestoreError> {
        let session = self.executor.restore_session(host.clone(), &running.executor, descriptors)?;
        let (greeting, number) = (Arc::clone(&self.greeting), running.number);
        let dispatcher =
            Dispatcher::restore(host, greeting, session, number, &running.dispatch, descriptors)?;
        Ok(self.thread(channel, host, dispatcher).after(running))
    }
}

/// Returns the instant that lies `passed` before now, or now if the clock does not go back that far.
fn ago(passed: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(passed).unwrap_or(now)
}
