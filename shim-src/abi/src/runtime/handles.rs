//! Handles of the runtime API, which are those of the driver API.

use crate::driver;

/// `cudaStream_t`, with the same special values as the driver's.
pub type Stream = driver::CUstream;
/// `cudaEvent_t`.
pub type Event = driver::CUevent;
/// `cudaGraph_t`.
pub type Graph = driver::CUgraph;
/// `cudaGraphExec_t`.
pub type GraphExec = driver::CUgraphExec;
/// `cudaGraphNode_t`.
pub type GraphNode = driver::CUgraphNode;
/// `cudaKernel_t`.
pub type Kernel = driver::CUkernel;
/// `cudaFunction_t`.
pub type Function = driver::CUfunction;
/// `cudaLibrary_t`.
pub type Library = driver::CUlibrary;
