//! "Profiler Control": no profiler is attached, so starting and stopping one does nothing.

use crate::object::current;

exports! {
    /// `cuProfilerStart`
    pub fn cuProfilerStart() -> CUresult { current::context().map(drop) }

    /// `cuProfilerStop`
    pub fn cuProfilerStop() -> CUresult { current::context().map(drop) }
}
