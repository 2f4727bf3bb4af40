//! "Profiler Control": no profiler is attached, so that starting and stopping one is nothing.

use vgpu_abi::{CUresult, export};

use crate::context;

export! {
    /// `cuProfilerStart`
    pub fn cuProfilerStart() -> CUresult { context::current().map(drop) }

    /// `cuProfilerStop`
    pub fn cuProfilerStop() -> CUresult { context::current().map(drop) }
}
