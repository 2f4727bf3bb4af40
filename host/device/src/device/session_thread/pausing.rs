//! The boundary between two messages at which a session's thread waits while the device is paused.

use std::ops::Range;
use std::thread;

use super::SessionThread;
use crate::device::pauses::StoppedSession;
use crate::device::ring::Ring;
use crate::executor::SessionError;
use crate::gate::InFlightMeter;
use crate::saved::bytes::HexBytes;
use crate::saved::descriptors::KeptDescriptors;
use crate::saved::error::NotSaved;
use crate::saved::state::RunningState;

impl SessionThread {
    /// Leaves the session's state for whoever pauses the device, and waits until the pause has ended or the
    /// session is to end. `taken` is the place of a message that was taken from the ring and not dispatched.
    pub(super) fn wait_while_paused(&mut self, taken: Option<&Range<usize>>) -> Result<(), SessionError> {
        let session = self.host.session();
        while let Some(turn) = self.pauses.turn()
            && !self.host.interrupted()
        {
            self.publish();
            match self.save(taken) {
                // The loss of the session is known in a moment, and wakes this thread.
                Err(NotSaved::Ending) => {}
                left => self.pauses.arrive(session, turn, left),
            }
            while self.pauses.turn() == Some(turn) && !self.host.interrupted() {
                thread::park();
            }
        }
        self.pauses.withdraw(session);
        self.dispatcher.resume()
    }

    fn save(&mut self, taken: Option<&Range<usize>>) -> Result<StoppedSession, NotSaved> {
        let mut descriptors = KeptDescriptors::default();
        let (dispatch, executor) = self.dispatcher.save(&mut descriptors)?;
        let running = RunningState {
            head: self.ring.head(),
            done: self.published.1,
            number: self.dispatcher.number(),
            taken: taken.map(|message| HexBytes(self.ring.bytes(message.clone()).to_vec())),
            dispatch,
            executor,
        };
        Ok(StoppedSession {
            channel: self.host.channel(),
            state: self.host.save(Some(running))?,
            descriptors,
        })
    }

    /// Continues where the thread of a saved session was. The dispatcher is that session's already.
    pub(crate) fn after(mut self, running: &RunningState) -> Self {
        self.ring = Ring::restore(self.host.area(), running.head);
        self.taken = running.number;
        if let Some(message) = &running.taken {
            self.kept = Some(self.ring.put_back(&message.0));
            self.taken += 1;
        }
        self.published = (running.head, running.done);
        self.meter = InFlightMeter::after(running.number);
        // Work may be in flight that the gate does not know of.
        self.unasked = running.number > 0;
        self
    }
}
