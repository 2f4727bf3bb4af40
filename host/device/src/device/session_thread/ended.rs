//! A session that has ended for its executor. It keeps its channel until the guest has detached.

use std::sync::Arc;
use std::thread;

use vgpu_wire::registers::channel::STATE_FAILED;

use crate::device::channel::Channel;
use crate::device::pauses::{Pauses, StoppedSession};
use crate::executor::Executor;
use crate::saved::descriptors::KeptDescriptors;
use crate::session::host::SessionHost;

/// A session without an executor, which still holds the shared memory that its guest may write to.
pub(crate) struct EndedSession {
    pub(crate) device: Arc<str>,
    pub(crate) channel: Arc<Channel>,
    pub(crate) host: SessionHost,
    pub(crate) pauses: Arc<Pauses>,
}

impl EndedSession {
    /// Waits until the guest of a failed session has detached. A guest whose session failed may write to the
    /// window and its area until then. The executor may have set the stop flag, so the flag does not show a
    /// detach.
    pub(crate) fn wait_for_detach(&self) {
        let session = self.host.session();
        while self.channel.state() == STATE_FAILED {
            if let Some(turn) = self.pauses.turn() {
                let (channel, descriptors) = (self.host.channel(), KeptDescriptors::default());
                let saved = self.host.save(None);
                let stopped = saved.map(|state| StoppedSession { channel, state, descriptors });
                self.pauses.arrive(session, turn, stopped);
            }
            thread::park();
        }
        self.pauses.withdraw(session);
    }

    /// Frees what the session held, and then its channel.
    pub(crate) fn close(self, executor: &dyn Executor) {
        let Self { device, channel, host, pauses } = self;
        let (session, process) = (host.session(), host.process());
        host.release();
        executor.tidy();
        tracing::debug!(%device, channel = host.channel(), session, process, "session closed");
        channel.free(&channel.control());
        pauses.leave(session);
        // Checked last, because it may wait and nothing waits for this thread any more.
        host.charges().check_returned();
    }
}
