//! Detach: a process ends its own session.

use std::time::{Duration, Instant};

use vgpu_wire::registers::channel as regs;

use crate::dead_processes;
use crate::session_core::SessionCore;
use crate::session_error::{GoneReason, SessionError};

/// How long an ending process waits until the device has detached the channel and freed what the session
/// held.
pub(crate) const DETACH_LIMIT: Duration = Duration::from_millis(200);

/// Ends the session. Other threads that use it meanwhile access private memory.
pub(crate) fn detach(core: &SessionCore) {
    let link = core.link();
    if link.in_forked_child() {
        return;
    }
    // A session that the host ended still has its channel. A session whose device is gone has none.
    let attached = match link.lost() {
        None | Some(SessionError::Ended { .. }) => true,
        Some(SessionError::Gone { reason }) => reason == GoneReason::Nonsense,
        Some(_) => false,
    };
    link.lose(SessionError::Closed);
    // The owner's description is removed first: until the lock is released, it shows that the channel has an
    // owner.
    link.channel.clear_owner();
    // The host may write to guest pages until it has released them, so they are not replaced yet.
    let pages = core.pages.all();
    let polled = if pages.is_none() { link.channel.make_private() } else { Ok(()) };
    if link.window.make_private().and(polled).is_err() {
        // Other threads could still write to memory that another process gets. The kernel drops the lock when
        // this process ends.
        return;
    }
    if attached {
        // A slow device detaches this session, and no other, however late it reads the register. If it never
        // answers, the next process that checks finds the lock free.
        let end = Instant::now() + DETACH_LIMIT;
        let register = regs::base(link.index) + regs::DETACH_SESSION;
        let told = link.registers.write_within(register, link.number, DETACH_LIMIT);
        let free = told.is_ok() && dead_processes::is_free_by(link.registers.as_ref(), link.index, end);
        if let (true, Some(pages)) = (free, pages) {
            // A store to a BAR may still be in flight when the write returns; the read of the state is
            // ordered after it. If the host has not released the pages, they are kept for the next owner of
            // the channel.
            pages.release();
        }
    }
    link.lock.unlock(link.index);
}
