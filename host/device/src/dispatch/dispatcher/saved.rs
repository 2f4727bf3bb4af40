//! Saves and restores a session's tables and the message that a pause has kept.

use std::sync::Arc;

use serde_json::Value;
use vgpu_wire::{Body, Kind, Message, SEGMENT_INLINE, area};

use super::{Dispatcher, Greeting};
use crate::charges::limits::Resource;
use crate::dispatch::check::Checks;
use crate::dispatch::graph::{Graphs, PAYLOAD_MAX};
use crate::dispatch::handles::Handles;
use crate::dispatch::refusals::Refusals;
use crate::executor::{Session, SessionError};
use crate::saved::bytes::HexBytes;
use crate::saved::descriptors::KeptDescriptors;
use crate::saved::error::{NotSaved, RestoreError, require};
use crate::saved::state::{DispatchState, PendingState};
use crate::session::host::SessionHost;

/// Name of the descriptor of a graph's records, after that of the session.
const RECORDS: &str = "records";

impl Dispatcher {
    /// Returns the states of the tables and of the executor's session. Records of a graph go into
    /// `descriptors`.
    pub(crate) fn save(
        &mut self,
        descriptors: &mut KeptDescriptors,
    ) -> Result<(DispatchState, Value), NotSaved> {
        let executor = self.session.save(descriptors)?;
        let records = self.records.as_ref().map(|records| records.0.as_slice());
        if let Some(bytes) = records {
            let name = KeptDescriptors::of_session(self.host.session(), RECORDS);
            let kept = descriptors.keep_bytes(name, [bytes]);
            kept.map_err(|error| NotSaved::Descriptor(error.to_string()))?;
        }
        let records = records.map(|bytes| bytes.len() as u64);
        let pending =
            self.pending.as_ref().map(|bytes| PendingState { message: HexBytes(bytes.to_vec()), records });
        let state = DispatchState {
            promised: self.checks.save(),
            handles: self.handles.save(),
            graphs: self.graphs.save(),
            refused: self.refusals.save(),
            pending,
        };
        Ok((state, executor))
    }

    /// Makes the dispatcher of a saved session whose newest message has this number.
    pub(crate) fn restore(
        host: &SessionHost,
        greeting: Arc<Greeting>,
        session: Box<dyn Session>,
        number: u64,
        state: &DispatchState,
        descriptors: &mut KeptDescriptors,
    ) -> Result<Self, RestoreError> {
        let charges = || Arc::clone(host.charges());
        let mut dispatcher = Self {
            handles: Handles::restore(charges(), &state.handles)?,
            graphs: Graphs::restore(charges(), &state.graphs)?,
            refusals: Refusals::restore(host.clone(), state.refused),
            checks: Checks::restore(&state.promised)?,
            number,
            ..Self::new(host.clone(), greeting, session)
        };
        if let Some(pending) = &state.pending {
            let message = pending.check(number)?;
            dispatcher.kind = Some(message.body.kind());
            // It was checked, with the same memory. This only guards against a wrong state.
            let checked = dispatcher.checks.message(host, &message.body);
            checked.map_err(|violation| RestoreError::field("message that waits", violation))?;
            if let Some(bytes) = pending.records {
                let name = KeptDescriptors::of_session(host.session(), RECORDS);
                let charge = host.charges().adopt(Resource::HostBytes, bytes);
                dispatcher.records = Some((descriptors.take_bytes(&name, bytes)?, charge));
            }
            dispatcher.pending = Some(pending.message.0.as_slice().into());
        }
        Ok(dispatcher)
    }

    /// Continues after a pause, or after the session was restored.
    pub(crate) fn resume(&mut self) -> Result<(), SessionError> {
        self.session.resume()
    }
}

impl PendingState {
    /// Checks that this can be the newest message of a session that has had `number` messages. Returns it
    /// decoded.
    pub(crate) fn check(&self, number: u64) -> Result<Message<'_>, RestoreError> {
        let message = Message::decode(&self.message.0)
            .map_err(|error| RestoreError::field("message that waits", error))?;
        let (kind, found) = (message.body.kind(), message.header.number);
        require(
            message.header.bytes as usize == self.message.0.len(),
            "size of the message that waits",
            found,
        )?;
        require(found == number as u32, "number of the message that waits", found)?;
        let slot = message.body.reply();
        require(slot.is_none_or(|slot| slot < area::REPLIES), "slot of the message that waits", kind.name())?;
        let answered_here = matches!(
            kind,
            Kind::Pad
                | Kind::Hello
                | Kind::Echo
                | Kind::Join
                | Kind::WindowFree
                | Kind::PagesRegister
                | Kind::PagesUnregister
        );
        require(!answered_here, "kind of the message that waits", kind.name())?;
        let separate = match &message.body {
            Body::GraphDefine(body) => Some(body.records),
            Body::GraphUpdate(body) => Some(body.records),
            _ => None,
        };
        let separate =
            separate.filter(|records| records.segment != SEGMENT_INLINE).map(|records| records.bytes);
        let found = self.records;
        require(
            found == separate && found.is_none_or(|bytes| bytes <= PAYLOAD_MAX),
            "size of a graph's records that wait",
            found.unwrap_or(0),
        )?;
        Ok(message)
    }
}
