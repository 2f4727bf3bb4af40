//! The calls for streams, events, code and captures.

use std::ffi::{CStr, c_int, c_uint, c_void};

use vgpu_abi::driver::{
    CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUlaunchAttribute, CUlaunchConfig, CUmodule,
    CUresult, CUstream, EVENT_DISABLE_TIMING, STREAM_NON_BLOCKING, capture_mode, functions, launch_attribute,
};

use super::{CallError, Driver};

impl Driver {
    /// Creates a stream that does not wait for the legacy stream.
    pub(crate) fn stream(&self) -> Result<CUstream, CallError> {
        let mut stream = CUstream::NULL;
        call!(self, cuStreamCreateWithPriority(&raw mut stream, STREAM_NON_BLOCKING, 0))?;
        Ok(stream)
    }

    /// Destroys a stream.
    pub(crate) fn destroy_stream(&self, stream: CUstream) -> Result<(), CallError> {
        call!(self, cuStreamDestroy_v2(stream))
    }

    /// Calls `cuStreamQuery`.
    pub(crate) fn query(&self, stream: CUstream) -> Result<(), CallError> {
        call!(self, cuStreamQuery(stream))
    }

    /// Waits for a stream's work.
    pub(crate) fn synchronize_stream(&self, stream: CUstream) -> Result<(), CallError> {
        call!(self, cuStreamSynchronize(stream))
    }

    /// Stores a value in stream order.
    pub(crate) fn write_value(&self, stream: CUstream, to: CUdeviceptr, value: u64) -> Result<(), CallError> {
        call!(self, cuStreamWriteValue64_v2(stream, to, value, 0))
    }

    /// Makes a stream wait until a 32-bit word is at least `value`.
    pub(crate) fn wait_value(&self, stream: CUstream, at: CUdeviceptr, value: u32) -> Result<(), CallError> {
        call!(self, cuStreamWaitValue32_v2(stream, at, value, 0))
    }

    /// Creates an event without timing.
    pub(crate) fn event(&self) -> Result<CUevent, CallError> {
        let mut event = CUevent::NULL;
        call!(self, cuEventCreate(&raw mut event, EVENT_DISABLE_TIMING))?;
        Ok(event)
    }

    /// Records an event in a stream.
    pub(crate) fn record(&self, event: CUevent, stream: CUstream) -> Result<(), CallError> {
        call!(self, cuEventRecord(event, stream))
    }

    /// Calls `cuEventQuery`.
    pub(crate) fn query_event(&self, event: CUevent) -> Result<(), CallError> {
        call!(self, cuEventQuery(event))
    }

    /// Loads a module from PTX.
    pub(crate) fn module(&self, ptx: &CStr) -> Result<CUmodule, CallError> {
        let mut module = CUmodule::NULL;
        let (image, none) = (ptx.as_ptr().cast(), std::ptr::null_mut());
        call!(self, cuModuleLoadDataEx(&raw mut module, image, 0, none, none.cast()))?;
        Ok(module)
    }

    /// Unloads a module.
    pub(crate) fn unload(&self, module: CUmodule) -> Result<(), CallError> {
        call!(self, cuModuleUnload(module))
    }

    /// Returns a kernel of a module.
    pub(crate) fn kernel(&self, module: CUmodule, name: &CStr) -> Result<CUfunction, CallError> {
        let mut function = CUfunction::NULL;
        call!(self, cuModuleGetFunction(&raw mut function, module, name.as_ptr()))?;
        Ok(function)
    }

    /// Returns a kernel's attribute by its id.
    pub(crate) fn kernel_attribute(&self, kernel: CUfunction, id: c_uint) -> Result<c_int, CallError> {
        let mut value = 0;
        call!(self, cuFuncGetAttribute(&raw mut value, id, kernel))?;
        Ok(value)
    }

    /// Launches one thread with one 64-bit parameter. `programmatic`: the launch may start before its
    /// predecessor has ended.
    pub(crate) fn launch(
        &self,
        kernel: CUfunction,
        mut parameter: u64,
        stream: CUstream,
        programmatic: bool,
    ) -> Result<(), CallError> {
        let mut parameters = [(&raw mut parameter).cast::<c_void>()];
        let id = launch_attribute::PROGRAMMATIC_STREAM_SERIALIZATION;
        let attribute = CUlaunchAttribute { id, value: [1, 0, 0, 0, 0, 0, 0, 0] };
        let config = CUlaunchConfig {
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            stream,
            attributes: &raw const attribute,
            attribute_count: c_uint::from(programmatic),
        };
        let none = std::ptr::null_mut();
        call!(self, cuLaunchKernelEx(&raw const config, kernel, parameters.as_mut_ptr(), none))
    }

    /// Starts the capture of a stream.
    pub(crate) fn begin_capture(&self, stream: CUstream) -> Result<(), CallError> {
        call!(self, cuStreamBeginCapture_v2(stream, capture_mode::RELAXED))
    }

    /// Ends the capture of a stream.
    pub(crate) fn end_capture(&self, stream: CUstream) -> Result<CUgraph, CallError> {
        let mut graph = CUgraph::NULL;
        call!(self, cuStreamEndCapture(stream, &raw mut graph))?;
        Ok(graph)
    }

    /// Instantiates a graph.
    pub(crate) fn instantiate(&self, graph: CUgraph) -> Result<(), CallError> {
        let mut executable = CUgraphExec::NULL;
        call!(self, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0))
    }

    /// Calls `cuStreamGetCaptureInfo_v2`, which knows no kinds of edges.
    pub(crate) fn capture_info(&self, stream: CUstream) -> Result<(), CallError> {
        let (mut state, none) = (0, std::ptr::null_mut());
        let (id, graph, nodes, count) =
            (none, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        call!(self, cuStreamGetCaptureInfo_v2(stream, &raw mut state, id, graph, nodes, count))
    }

    /// Returns the kinds of edges by which the next operation of a capture would depend on earlier ones, as
    /// `CUgraphEdgeData`: ports, type, reserved.
    pub(crate) fn capture_edges(&self, stream: CUstream) -> Result<Vec<[u8; 8]>, CallError> {
        let (mut state, mut count) = (0, 0);
        let mut edges = std::ptr::null::<c_void>();
        let (mut id, mut graph, mut nodes) = (0, CUgraph::NULL, std::ptr::null());
        call!(
            self,
            cuStreamGetCaptureInfo_v3(
                stream,
                &raw mut state,
                &raw mut id,
                &raw mut graph,
                &raw mut nodes,
                &raw mut edges,
                &raw mut count,
            )
        )?;
        if edges.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: the driver stored the number of edges and where they lie, until the next call on the
        // stream.
        Ok(unsafe { std::slice::from_raw_parts(edges.cast::<[u8; 8]>(), count) }.to_vec())
    }
}
