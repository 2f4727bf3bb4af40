//! The thread that executes a connection's calls. There is one at a time. If its call never ends, the guest
//! asks for a cleanup of the call's owner, as it does for a process that was killed: the thread is then left
//! behind, another takes over, and nobody waits for the first.

use std::sync::Mutex;
use std::time::Instant;

use vgpu_device::lock;
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::frame::{self, Call, Header};
use zerocopy::FromBytes;

/// A thread's right to execute a connection's calls. It ends when another thread takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn(u64);

/// Decides which thread executes the calls of one connection. At most one has the turn.
#[derive(Debug)]
pub(super) struct ConnectionTurn(Mutex<TurnState>);

#[derive(Debug)]
struct TurnState {
    turn: Turn,
    doing: Doing,
}

#[derive(Debug)]
enum Doing {
    /// The connection has been idle since this time.
    Nothing(Instant),
    /// A call of this owner is being executed. `behind` holds the bytes that were received after it.
    Call { owner: u32, behind: Vec<u8> },
    /// The answer to the call is being sent.
    Answer,
}

impl ConnectionTurn {
    /// Creates an idle connection and the first thread's turn.
    pub(super) fn new() -> (Self, Turn) {
        let turn = Turn(0);
        (Self(Mutex::new(TurnState { turn, doing: Doing::Nothing(Instant::now()) })), turn)
    }

    /// Returns when the connection became idle, or `None` while a call is being executed or answered.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match lock(&self.0).doing {
            Doing::Nothing(since) => Some(since),
            Doing::Call { .. } | Doing::Answer => None,
        }
    }

    /// Stores the present activity, if `turn` is still the current one. Returns whether it is; a thread that
    /// was left behind changes nothing.
    fn set(&self, turn: Turn, doing: Doing) -> bool {
        let mut state = lock(&self.0);
        let own = state.turn == turn;
        if own {
            state.doing = doing;
        }
        own
    }

    /// Counts a call of `owner` as in progress before a thread has started it, unless another call is in
    /// progress.
    pub(super) fn announce(&self, owner: u32) {
        let mut state = lock(&self.0);
        if matches!(state.doing, Doing::Nothing(_)) {
            state.doing = Doing::Call { owner, behind: Vec::new() };
        }
    }

    /// Records that a thread starts a call of `owner`. `behind` holds the bytes that were received after the
    /// call.
    pub(super) fn begin(&self, turn: Turn, owner: u32, behind: &[u8]) {
        self.set(turn, Doing::Call { owner, behind: behind.to_vec() });
    }

    /// Returns whether it is still this thread's turn.
    pub(super) fn is(&self, turn: Turn) -> bool {
        lock(&self.0).turn == turn
    }

    /// Records that the call has ended and is to be answered. Returns false if its thread was left behind;
    /// then nobody waits for the answer.
    pub(super) fn end(&self, turn: Turn) -> bool {
        self.set(turn, Doing::Answer)
    }

    /// Records that the call has been answered, so that the connection is idle.
    pub(super) fn rest(&self, turn: Turn) {
        self.set(turn, Doing::Nothing(Instant::now()));
    }

    /// Replaces the thread of the current call, if the next call is a cleanup of that call's owner. Returns
    /// the turn of the thread that takes over, and the bytes that were received for it, or `None` if the
    /// thread keeps its turn. `next` peeks at bytes that have not been received yet.
    pub(super) fn leave_behind(&self, next: impl FnOnce() -> Vec<u8>) -> Option<(Turn, Vec<u8>)> {
        let mut state = lock(&self.0);
        let Doing::Call { owner, behind } = &mut state.doing else { return None };
        let asked = if behind.is_empty() { cleans_up(&next(), *owner) } else { cleans_up(behind, *owner) };
        if !asked {
            return None;
        }
        let behind = std::mem::take(behind);
        state.turn.0 += 1;
        state.doing = Doing::Nothing(Instant::now());
        Some((state.turn, behind))
    }
}

/// Returns whether the bytes start with a frame that requests a cleanup of `owner`.
fn cleans_up(bytes: &[u8], owner: u32) -> bool {
    let Ok((header, rest)) = Header::read_from_prefix(bytes) else { return false };
    let Ok((call, _)) = Call::read_from_prefix(rest) else { return false };
    header.check().is_ok() && header.kind.get() == frame::CUDA_CALL && is_cleanup(&call, owner)
}

/// Returns whether a call requests a cleanup of `owner`.
pub(super) fn is_cleanup(call: &Call, owner: u32) -> bool {
    call.op.get() == Op::ProcessCleanup as u32 && call.owner.get() == owner
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    fn frame(op: Op, owner: u32) -> Vec<u8> {
        let mut call = Call::new_zeroed();
        call.op = (op as u32).into();
        call.owner = owner.into();
        let header = Header::new(frame::CUDA_CALL, 1, 2, size_of::<Call>() as u32);
        [header.as_bytes(), call.as_bytes()].concat()
    }

    #[test]
    fn a_thread_is_left_behind_when_its_owner_is_cleaned_up() {
        let (turns, first) = ConnectionTurn::new();
        let cleanup = || frame(Op::ProcessCleanup, 7);
        assert!(turns.idle_since().is_some());
        assert_eq!(turns.leave_behind(cleanup), None, "no call is under way");
        turns.begin(first, 7, &[]);
        assert!(turns.idle_since().is_none());
        for other in
            [frame(Op::ProcessCleanup, 8), frame(Op::MemAlloc, 7), Vec::new(), cleanup()[..60].to_vec()]
        {
            assert_eq!(turns.leave_behind(|| other), None);
        }
        let (second, behind) = turns.leave_behind(cleanup).unwrap();
        assert_ne!(first, second);
        assert!(behind.is_empty(), "it is to be received yet");
        assert!(!turns.end(first), "nobody wants its answer");
        turns.begin(second, 7, &[]);
        assert!(turns.end(second));
        assert_eq!(turns.leave_behind(cleanup), None, "its answer is on its way");
        turns.rest(second);
        assert!(turns.idle_since().is_some());
    }

    #[test]
    fn what_came_with_the_call_is_what_comes_next() {
        let (turns, first) = ConnectionTurn::new();
        let behind = [frame(Op::ProcessCleanup, 7), vec![1, 2, 3]].concat();
        turns.begin(first, 7, &behind);
        let (second, handed_on) =
            turns.leave_behind(|| unreachable!("what was received comes first")).unwrap();
        assert_eq!(handed_on, behind);
        turns.begin(second, 7, &frame(Op::MemAlloc, 7));
        assert_eq!(turns.leave_behind(|| frame(Op::ProcessCleanup, 7)), None);
    }
}
