//! Tasks: what the session's messages ask for, with all that is needed to do it without the ring and the session's tables.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vgpu_device::{Piece, Retired};
use vgpu_wire::Mark;
use vgpu_wire::body::copy::{CopyDevice, CopyRows, Fill};
use vgpu_wire::body::gemm::{Gemm, TriangularSolve};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::memory::{MemMap, MemSetAccess, MemUnmap, MemUnreserve};

use crate::function::Function;
use crate::memory::Allocation;
use crate::runner::Runner;

/// Where a copy from the host comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source<'a> {
    /// The message itself.
    Inline(Cow<'a, [u8]>),
    /// The window.
    Window(Piece),
}

/// Counts as long as it lives: memory will be free that is not yet.
#[derive(Debug)]
pub(crate) struct Freeing(Arc<AtomicUsize>);

impl Freeing {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer that has to wait for work.
pub(crate) struct Answer(pub(crate) Box<dyn FnOnce(&Runner) + Send>);

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer")
    }
}

/// See the module. Bodies' streams mean nothing any more.
#[derive(Debug)]
pub(crate) enum Task<'a> {
    CopyIn {
        destination: u64,
        source: Source<'a>,
        read: Mark,
    },
    CopyOut {
        source: u64,
        destination: Piece,
        written: Mark,
    },
    CopyDevice(CopyDevice),
    CopyRows(CopyRows),
    Fill(Fill),
    Launch(Arc<Function>, Launch, Cow<'a, [u8]>),
    Multiply(Gemm),
    Solve(TriangularSolve),
    /// Work is done: a synchronize, an event's record.
    Mark(Mark),
    /// The guest may run its function; the stream goes on when it says so.
    Hold(u32, Mark),
    /// `cuMemFree`, `cuMemFreeAsync`, `cuModuleUnload`.
    Free(Vec<Allocation>, Option<Freeing>),
    Map(MemMap),
    Unmap(MemUnmap),
    SetAccess(MemSetAccess),
    Unreserve(MemUnreserve),
    Release(u32),
    /// No work refers to window memory any more.
    Retire(Retired),
    Answer(Answer),
}

impl Task<'_> {
    /// Whether somebody outside notices when it is done.
    pub(crate) fn is_noticed(&self) -> bool {
        match self {
            Self::CopyIn { read: mark, .. } | Self::CopyOut { written: mark, .. } => *mark != Mark::NONE,
            Self::CopyDevice(_)
            | Self::CopyRows(_)
            | Self::Fill(_)
            | Self::Launch(..)
            | Self::Multiply(_)
            | Self::Solve(_) => false,
            _ => true,
        }
    }

    /// Bytes that came with the message.
    pub(crate) fn tail_bytes(&self) -> u64 {
        match self {
            Self::CopyIn { source: Source::Inline(bytes), .. } | Self::Launch(_, _, bytes) => {
                bytes.len() as u64
            }
            _ => 0,
        }
    }

    /// The same with bytes of its own.
    pub(crate) fn into_owned(self) -> Task<'static> {
        match self {
            Self::CopyIn { destination, source, read } => {
                let source = match source {
                    Source::Inline(bytes) => Source::Inline(Cow::Owned(bytes.into_owned())),
                    Source::Window(piece) => Source::Window(piece),
                };
                Task::CopyIn { destination, source, read }
            }
            Self::Launch(function, body, params) => {
                Task::Launch(function, body, Cow::Owned(params.into_owned()))
            }
            Self::CopyOut { source, destination, written } => Task::CopyOut { source, destination, written },
            Self::CopyDevice(body) => Task::CopyDevice(body),
            Self::CopyRows(body) => Task::CopyRows(body),
            Self::Fill(body) => Task::Fill(body),
            Self::Multiply(body) => Task::Multiply(body),
            Self::Solve(body) => Task::Solve(body),
            Self::Mark(mark) => Task::Mark(mark),
            Self::Hold(hold, mark) => Task::Hold(hold, mark),
            Self::Free(allocations, freeing) => Task::Free(allocations, freeing),
            Self::Map(body) => Task::Map(body),
            Self::Unmap(body) => Task::Unmap(body),
            Self::SetAccess(body) => Task::SetAccess(body),
            Self::Unreserve(body) => Task::Unreserve(body),
            Self::Release(handle) => Task::Release(handle),
            Self::Retire(retired) => Task::Retire(retired),
            Self::Answer(answer) => Task::Answer(answer),
        }
    }
}
