//! Profiler control: no profiler is attached, so starting and stopping one does nothing.

use crate::object::current;

exports! {
    /// Succeeds without effect, because no profiler is attached.
    pub fn cuProfilerStart() -> CUresult { current::context().map(drop) }

    /// Succeeds without effect, because no profiler is attached.
    pub fn cuProfilerStop() -> CUresult { current::context().map(drop) }
}
