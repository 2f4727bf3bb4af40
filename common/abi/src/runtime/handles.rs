//! Handles of the runtime API, which are those of the driver API.

use crate::driver;

/// `cudaStream_t`, with the same special values as the driver's.
pub type Stream = driver::CUstream;
/// `cudaEvent_t`, which is the driver's handle.
pub type Event = driver::CUevent;
/// `cudaGraph_t`, which is the driver's handle.
pub type Graph = driver::CUgraph;
/// `cudaGraphExec_t`, which is the driver's handle.
pub type GraphExec = driver::CUgraphExec;
/// `cudaGraphNode_t`, which is the driver's handle.
pub type GraphNode = driver::CUgraphNode;
/// `cudaKernel_t`, which is the driver's handle.
pub type Kernel = driver::CUkernel;
/// `cudaFunction_t`, which is the driver's handle.
pub type Function = driver::CUfunction;
/// `cudaLibrary_t`, which is the driver's handle.
pub type Library = driver::CUlibrary;
