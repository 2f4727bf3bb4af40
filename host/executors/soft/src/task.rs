//! Tasks: the work that messages of a session ask for, with everything that is needed to carry it out without
//! the ring and the session's tables.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vgpu_device::{ResolvedSpan, RetiredMemory};
use vgpu_wire::Mark;
use vgpu_wire::body::copy::{CopyDevice, CopyRows, Fill};
use vgpu_wire::body::gemm::{Gemm, TriangularSolve};
use vgpu_wire::body::launch::Launch;
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::memory::{MemMap, MemSetAccess, MemUnmap, MemUnreserve};
use vgpu_wire::body::vector::VectorOp;

use crate::function::Function;
use crate::memory::Allocation;

/// The source of a copy from the host.
#[derive(Clone, Debug)]
pub(crate) enum CopySource<'a> {
    /// The bytes are in the message.
    Inline(Cow<'a, [u8]>),
    /// The bytes are in the window.
    Window(ResolvedSpan),
}

/// Counts a queued free of memory for as long as it lives.
#[derive(Debug)]
pub(crate) struct Freeing(Arc<AtomicUsize>);

impl Freeing {
    /// Counts one more queued free.
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

/// Sends a reply that has to wait for earlier work.
pub(crate) struct DeferredReply(pub(crate) Box<dyn FnOnce() + Send>);

impl fmt::Debug for DeferredReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeferredReply")
    }
}

/// A unit of work, with its streams and functions resolved. It holds the window memory and the kernels that
/// it needs.
#[derive(Debug)]
pub(crate) enum Task<'a> {
    CopyIn {
        destination: u64,
        source: CopySource<'a>,
        read: Mark,
    },
    CopyOut {
        source: u64,
        destination: ResolvedSpan,
        written: Mark,
    },
    CopyDevice(CopyDevice),
    CopyRows(CopyRows),
    Fill(Fill),
    Launch(Arc<Function>, Launch, Cow<'a, [u8]>),
    Multiply(Gemm),
    Solve(TriangularSolve),
    /// A product of cuBLASLt. It is boxed, because it is far larger than the other tasks.
    Matmul(Box<MatmulLt>),
    Vector(VectorOp),
    /// Stores a mark once earlier work is completed, for a synchronize or the record of an event.
    Mark(Mark),
    /// Tells the guest to run its host function: stores the mark. The stream continues when the guest
    /// releases the hold.
    Hold(u32, Mark),
    /// Frees memory, for `cuMemFree`, `cuMemFreeAsync` and `cuModuleUnload`.
    Free(Vec<Allocation>, Option<Freeing>),
    Map(MemMap),
    Unmap(MemUnmap),
    SetAccess(MemSetAccess),
    Unreserve(MemUnreserve),
    Release(u32),
    /// Releases window memory, to which no work refers any more.
    Retire(RetiredMemory),
    Answer(DeferredReply),
}

impl Task<'_> {
    /// Returns whether the completion of the task is visible to the guest.
    pub(crate) fn is_noticed(&self) -> bool {
        match self {
            Self::CopyIn { read: mark, .. } | Self::CopyOut { written: mark, .. } => *mark != Mark::NONE,
            Self::CopyDevice(_)
            | Self::CopyRows(_)
            | Self::Fill(_)
            | Self::Launch(..)
            | Self::Multiply(_)
            | Self::Solve(_)
            | Self::Matmul(_)
            | Self::Vector(_) => false,
            _ => true,
        }
    }

    /// Returns the number of bytes that the message carried.
    pub(crate) fn tail_bytes(&self) -> u64 {
        match self {
            Self::CopyIn { source: CopySource::Inline(bytes), .. } | Self::Launch(_, _, bytes) => {
                bytes.len() as u64
            }
            _ => 0,
        }
    }

    /// Returns the same task with its own copy of all bytes.
    pub(crate) fn into_owned(self) -> Task<'static> {
        match self {
            Self::CopyIn { destination, source, read } => {
                let source = match source {
                    CopySource::Inline(bytes) => CopySource::Inline(Cow::Owned(bytes.into_owned())),
                    CopySource::Window(piece) => CopySource::Window(piece),
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
            Self::Matmul(body) => Task::Matmul(body),
            Self::Vector(body) => Task::Vector(body),
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
