//! A pause of the device: all sessions stop between two messages, and their state is collected.
//!
//! Worker processes go on computing, and guests go on filling their rings. From before the pause until it has
//! ended or the process is replaced, the caller prevents register accesses and requests to end sessions.

use std::sync::atomic::Ordering;
use std::time::Instant;

use vgpu_wire::registers::channel::STATE_ENDING;
use vgpu_wire::{TABLE_DIGEST, WIRE_VERSION};
use zerocopy::IntoBytes;

use super::Device;
use crate::saved::bytes::HexBytes;
use crate::saved::descriptors::KeptDescriptors;
use crate::saved::error::{NotSaved, PauseError, RestoreError, STATE_VERSION};
use crate::saved::state::{ChannelState, DeviceState};
use crate::session::host::SessionHost;

/// A paused device, in the form in which another process continues it.
#[derive(Debug)]
pub struct PausedDevice {
    /// State of the device and its sessions.
    pub state: DeviceState,
    /// Copies of the descriptors of the sessions.
    pub descriptors: KeptDescriptors,
}

impl Device {
    /// Stops all sessions between two messages, and returns the state of the device. If one does not stop
    /// before `deadline`, or cannot be saved, all go on and the reason is returned. Afterwards the caller
    /// either calls [`Device::resume`], or replaces the process and calls [`Device::restore`].
    pub fn pause(&self, deadline: Instant) -> Result<PausedDevice, PauseError> {
        self.save_executor()?;
        self.pauses.begin()?;
        self.gate.set_paused(true);
        self.executor.set_pausing(true);
        for channel in &self.channels {
            channel.with_session(SessionHost::pause);
            channel.ring();
        }
        self.collect(deadline).inspect_err(|_| self.resume())
    }

    /// Returns whether a session is ending, which cannot be paused before it has ended.
    #[must_use]
    pub fn has_ending_sessions(&self) -> bool {
        self.channels.iter().any(|channel| channel.state() == STATE_ENDING)
    }

    /// Ends a pause. Each session continues with the message before which it stopped.
    pub fn resume(&self) {
        for channel in &self.channels {
            channel.with_session(SessionHost::resume);
        }
        self.executor.set_pausing(false);
        self.gate.set_paused(false);
        self.pauses.end();
        for channel in &self.channels {
            channel.ring();
        }
    }

    fn save_executor(&self) -> Result<serde_json::Value, PauseError> {
        let executor = self.executor.name();
        self.executor.save().map_err(|source| PauseError::Executor { executor, source })
    }

    fn collect(&self, deadline: Instant) -> Result<PausedDevice, PauseError> {
        let stopped = self.pauses.wait(deadline)?;
        let mut channels: Vec<ChannelState> = self.channels.iter().map(|channel| channel.save()).collect();
        let mut descriptors = KeptDescriptors::default();
        for session in stopped {
            let number = session.state.number;
            let refused = |error: RestoreError| PauseError::Session {
                session: number,
                source: NotSaved::Descriptor(error.to_string()),
            };
            descriptors.append(session.descriptors).map_err(refused)?;
            channels[session.channel as usize].session = Some(session.state);
        }
        let state = DeviceState {
            version: STATE_VERSION,
            wire_version: WIRE_VERSION,
            wire_digest: TABLE_DIGEST,
            address: self.label.to_string(),
            executor: self.executor.name().to_owned(),
            facts: HexBytes(self.greeting.facts.as_bytes().to_vec()),
            generation: self.generation(),
            pages_key: self.pages_key(),
            window_bytes: self.window.bytes(),
            clock: u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX),
            next_session: self.next_session.load(Ordering::Relaxed),
            held: self.gate.held(),
            reads: self.accesses().bar0.reads,
            writes: self.accesses().bar0.writes,
            ended: self.ended.save(),
            channels,
            executor_state: self.save_executor()?,
        };
        Ok(PausedDevice { state, descriptors })
    }
}
