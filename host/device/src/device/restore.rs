//! Restores a device that another process has paused. Nothing of a session moves before all of them are
//! restored.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vgpu_wire::facts::DeviceFacts;
use zerocopy::FromBytes;

use super::attach::return_area;
use super::{Device, DeviceConfig, Origin};
use crate::device::channel::Channel;
use crate::device::session_thread::{EndedSession, SessionThread};
use crate::dispatch::dispatcher::Dispatcher;
use crate::figures::EndedSessions;
use crate::hooks::TestHooks;
use crate::memory::window::Window;
use crate::saved::descriptors::KeptDescriptors;
use crate::saved::error::{RestoreError, require};
use crate::saved::state::{DeviceState, SessionState};
use crate::session::host::SessionHost;

/// A session that is restored, before its thread starts.
enum RestoredSession {
    Running(Box<SessionThread>),
    Failed(EndedSession),
}

impl Device {
    /// Continues a device that [`Device::pause`] has described. `config`, `window` and `wake` are made as for
    /// [`Device::new`], of the same memory. Guest memory must be mapped already. Takes the descriptors of all
    /// sessions.
    ///
    /// # Errors
    /// The state is not one of this device, or something that it names is missing. Sessions are lost then,
    /// which [`DeviceState::check`] rules out but for lacking memory and descriptors.
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
            let made = device.restore_session(channel, session, descriptors);
            let (host, thread) = made.map_err(|error| error.of(session.number))?;
            restored.push((channel, saved, host, thread));
        }
        device.gate.set(state.held);
        for (channel, saved, host, thread) in restored {
            let (control, number) = (channel.control(), host.session());
            channel.restore(&control, saved, Some(host));
            let started = device.start(channel, &control, number, move |executor| match thread {
                RestoredSession::Running(thread) => thread.run_session(executor),
                RestoredSession::Failed(session) => {
                    session.wait_for_detach();
                    session.close(executor);
                }
            });
            started.map_err(|error| RestoreError::Device(format!("start a thread: {error}")))?;
        }
        tracing::debug!(device = %device.label, "restored");
        Ok(device)
    }

    fn restore_session(
        &self,
        channel: &Arc<Channel>,
        state: &SessionState,
        descriptors: &mut KeptDescriptors,
    ) -> Result<(SessionHost, RestoredSession), RestoreError> {
        let memory = &state.memory;
        let pages = self.pages.clone().filter(|_| memory.may_register);
        let returns = match (memory.returns, &pages) {
            (Some(address), Some(pages)) => {
                let area = return_area(pages, state.number, address);
                Some(area.map_err(|_| RestoreError::field("address of the return area", address))?)
            }
            _ => None,
        };
        let host = self.host(channel.index(), state.number, state.process, pages, returns);
        host.restore(state)?;
        let Some(running) = &state.running else {
            let (device, channel) = (Arc::clone(&self.label), Arc::clone(channel));
            let pauses = Arc::clone(&self.pauses);
            let session = EndedSession { device, channel, host: host.clone(), pauses };
            return Ok((host, RestoredSession::Failed(session)));
        };
        let session = self.executor.restore_session(host.clone(), &running.executor, descriptors)?;
        let (greeting, number) = (Arc::clone(&self.greeting), running.number);
        let dispatcher = Dispatcher::restore(&host, greeting, session, number, &running.dispatch)?;
        let thread = self.thread(channel, &host, dispatcher).after(running);
        Ok((host, RestoredSession::Running(Box::new(thread))))
    }
}

/// Returns the moment that was so long ago.
fn ago(passed: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(passed).unwrap_or(now)
}
