//! The length of the tail that each kind of body states.

use crate::body::{copy, gemm, graph, launch, link, matmul, memory, module, pages, session, stream, vector};

/// A body, which states the length of the tail that follows it.
pub(super) trait Tail {
    /// Length of the tail in bytes. `None`: the tail is all that remains of the message, and means nothing.
    fn tail(&self) -> Option<u64>;
}

macro_rules! tails {
    ($( $ty:path => |$body:ident| $tail:expr; )*) => {
        $( impl Tail for $ty { fn tail(&self) -> Option<u64> { let $body = self; let _ = $body; $tail } } )*
    };
}

tails! {
    session::Pad => |b| None;
    session::Hello => |b| Some(0);
    session::Echo => |b| Some(0);
    session::WindowAlloc => |b| Some(0);
    session::WindowFree => |b| Some(0);
    pages::PagesRegister => |b| Some(u64::from(b.runs) * size_of::<pages::PageRun>() as u64);
    pages::PagesUnregister => |b| Some(0);
    memory::MemAlloc => |b| Some(0);
    memory::MemFree => |b| Some(0);
    memory::MemInfo => |b| Some(0);
    memory::MemAllocAsync => |b| Some(0);
    memory::MemFreeAsync => |b| Some(0);
    memory::MemReserve => |b| Some(0);
    memory::MemUnreserve => |b| Some(0);
    memory::MemCreate => |b| Some(0);
    memory::MemRelease => |b| Some(0);
    memory::MemMap => |b| Some(0);
    memory::MemUnmap => |b| Some(0);
    memory::MemSetAccess => |b| Some(0);
    copy::CopyIn => |b| Some(b.source.tail_bytes());
    copy::CopyOut => |b| Some(0);
    copy::CopyDevice => |b| Some(0);
    copy::CopyRows => |b| Some(0);
    copy::Fill => |b| Some(0);
    module::ModuleOpen => |b| Some(0);
    module::ModuleData => |b| Some(b.data.tail_bytes());
    module::ModuleLoad => |b| Some(0);
    module::ModuleUnload => |b| Some(0);
    module::FunctionGet => |b| Some(u64::from(b.name_bytes));
    module::FunctionSet => |b| Some(0);
    module::Occupancy => |b| Some(0);
    module::GlobalGet => |b| Some(u64::from(b.name_bytes));
    launch::Launch => |b| Some(u64::from(b.param_bytes));
    stream::StreamCreate => |b| Some(0);
    stream::StreamDestroy => |b| Some(0);
    stream::Signal => |b| Some(0);
    stream::Join => |b| Some(0);
    stream::EventCreate => |b| Some(0);
    stream::EventDestroy => |b| Some(0);
    stream::EventRecord => |b| Some(0);
    stream::StreamWait => |b| Some(0);
    stream::StreamHold => |b| Some(0);
    stream::StreamRelease => |b| Some(0);
    graph::GraphDefine => |b| Some(b.records.tail_bytes());
    graph::GraphUpdate => |b| Some(b.records.tail_bytes());
    graph::GraphLaunch => |b| Some(0);
    graph::GraphDestroy => |b| Some(0);
    gemm::Gemm => |b| Some(0);
    gemm::TriangularSolve => |b| Some(0);
    matmul::MatmulLt => |b| Some(0);
    vector::VectorOp => |b| Some(0);
    link::LinkOpen => |b| Some(0);
    link::LinkInput => |b| Some(u64::from(b.name_bytes));
    link::LinkData => |b| Some(b.data.tail_bytes());
    link::LinkComplete => |b| Some(0);
    link::LinkRead => |b| Some(0);
    link::LinkClose => |b| Some(0);
}
