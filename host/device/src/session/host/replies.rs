//! Answers to messages.

use std::sync::atomic::Ordering;

use vgpu_wire::area;

use super::SessionHost;
use crate::charges::charge::OUT_OF_MEMORY;
use crate::session::return_area::ReplyTo;

impl SessionHost {
    /// Answers a message. `status` is a `CUresult`, and `data` has at most [`area::REPLY_DATA_MAX`] bytes.
    pub fn reply(&self, to: ReplyTo, status: u32, data: &[u8]) {
        self.count_out_of_memory(status);
        self.answer(to, status, data);
    }

    /// Counts a message that has failed, if that was for lack of memory, and says so in the log. Returns
    /// whether it was. A program may ask again and again: the log has a line for the first, second, fourth,
    /// ... refusal.
    pub(super) fn count_out_of_memory(&self, status: u32) -> bool {
        let counts = status == OUT_OF_MEMORY && !self.ended();
        if counts {
            let refused = self.0.gauges.out_of_memory.fetch_add(1, Ordering::Relaxed) + 1;
            if refused.is_power_of_two() {
                let (session, held) = (self.session(), self.0.gauges.allocated.load(Ordering::Relaxed));
                self.log(0, || {
                    tracing::warn!(
                        session,
                        refused,
                        held,
                        "refused memory: the VM has used up what it was promised"
                    );
                });
            }
        }
        counts
    }

    /// Answers a message that concerns no memory of the GPU.
    pub(crate) fn answer(&self, to: ReplyTo, status: u32, data: &[u8]) {
        debug_assert!(data.len() as u64 <= area::REPLY_DATA_MAX, "a reply fits its slot");
        debug_assert!(to.slot < area::REPLIES, "slots are checked before an executor sees them");
        if self.ended() {
            return;
        }
        // Done first, because the guest may read the memory in use as soon as it has the answer.
        self.0.published.answered(to.number);
        self.returns().store_reply(to, status, data);
        self.wake();
    }

    /// Answers a message that failed. The guest shows the reason to the user.
    pub fn refuse(&self, to: ReplyTo, status: u32, why: &str) {
        self.reply(to, status, area::reply_text(why));
    }
}
