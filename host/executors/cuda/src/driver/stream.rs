//! Streams, and all work that is given to them.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUlaunchAttribute, CUlaunchConfig, CUstream, LAUNCH_PARAM, MEMORYTYPE_DEVICE, Memcpy3D,
    STREAM_NON_BLOCKING, Side3D, launch_attribute,
};

use super::code::Function;
use super::context::Context;
use super::error::{DriverError, check, tell};
use super::event::Event;
use super::host::{HostPart, HostWord};
use super::range::DeviceRange;

/// A stream. Dropping it lets its work finish.
#[derive(Debug)]
pub(crate) struct Stream {
    context: Arc<Context>,
    /// Null: the legacy default stream.
    handle: CUstream,
}

/// The shape of a launch, as the guest asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Blocks in x, y, z.
    pub(crate) grid: [u32; 3],
    /// Threads in x, y, z.
    pub(crate) block: [u32; 3],
    /// Blocks of a cluster in x, y, z, if there are clusters.
    pub(crate) cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub(crate) shared_bytes: u32,
    /// All blocks are resident at once.
    pub(crate) cooperative: bool,
    /// May start before its predecessor has ended.
    pub(crate) programmatic: bool,
    /// Priority of the kernel, if it has one of its own.
    pub(crate) priority: Option<i32>,
}

/// Rows of a range: where the first is, and how far they and slices of them are apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// All of the range that the rows lie in.
    pub(crate) range: DeviceRange,
    /// Bytes from row to row.
    pub(crate) pitch: u64,
    /// Rows from slice to slice.
    pub(crate) stride: u64,
}

/// A kernel's parameters as calls take them: the list of keys that says where the buffer is and how long.
#[derive(Debug)]
pub(super) struct Buffer<'a> {
    params: &'a [u8],
    bytes: usize,
    list: [*mut c_void; 5],
}

impl<'a> Buffer<'a> {
    /// Parameters as the kernel has them.
    pub(super) const fn new(params: &'a [u8]) -> Self {
        Self { params, bytes: params.len(), list: [ptr::null_mut(); 5] }
    }

    /// The `extra` argument, which is good while `self` lives and stays where it is. Null: the kernel has no
    /// parameters.
    pub(super) fn extra(&mut self) -> *mut *mut c_void {
        if self.params.is_empty() {
            return ptr::null_mut();
        }
        let [end, buffer, size] = LAUNCH_PARAM.map(ptr::without_provenance_mut::<c_void>);
        let (start, bytes) = (self.params.as_ptr().cast_mut().cast(), ptr::from_mut(&mut self.bytes).cast());
        self.list = [buffer, start, size, bytes, end];
        self.list.as_mut_ptr()
    }
}

/// What a stream calls on the host, in the order of its work.
pub(crate) struct HostTask(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for HostTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostTask")
    }
}

impl HostTask {
    /// Does it, unless that was done or it was dropped.
    fn run(&self) {
        let task = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task();
        }
    }
}

/// `CUhostFn`: `data` is a share of a [`HostTask`].
unsafe extern "C" fn run_task(data: *mut c_void) {
    // SAFETY: `Stream::call` made the pointer of a share, and the driver calls once at most.
    let task = unsafe { Arc::from_raw(data.cast_const().cast::<HostTask>()) };
    // A panic must not go through the driver's frames; the layers above find the work incomplete.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| task.run()));
}

impl Stream {
    pub(super) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) const fn handle(&self) -> CUstream {
        self.handle
    }

    /// The legacy default stream of a context.
    pub(crate) fn legacy(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), handle: CUstream::NULL }
    }

    /// `cuStreamCreateWithPriority`; a priority out of range is clamped to it.
    pub(crate) fn create(
        context: &Arc<Context>,
        non_blocking: bool,
        priority: i32,
    ) -> Result<Self, DriverError> {
        let flags = if non_blocking { STREAM_NON_BLOCKING } else { 0 };
        let mut handle = CUstream::NULL;
        let create = context.table().cuStreamCreateWithPriority;
        // SAFETY: a live place for the answer.
        let code = unsafe { create(&raw mut handle, flags, priority) };
        check("cuStreamCreateWithPriority", code)?;
        Ok(Self { context: Arc::clone(context), handle })
    }

    /// Whether all work so far is complete. Any error but that of a wrong call is one that the work ran into.
    pub(crate) fn is_complete(&self) -> Result<bool, DriverError> {
        // SAFETY: the stream lives as long as `self`.
        match unsafe { (self.context.table().cuStreamQuery)(self.handle) } {
            CUresult::NOT_READY => Ok(false),
            code => check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// `cuEventRecord`
    pub(crate) fn record(&self, event: &Event) -> Result<(), DriverError> {
        let record = self.context.table().cuEventRecord;
        // SAFETY: both live.
        check("cuEventRecord", unsafe { record(event.handle(), self.handle) })
    }

    /// `cuStreamWaitEvent`
    pub(crate) fn wait(&self, event: &Event) -> Result<(), DriverError> {
        let wait = self.context.table().cuStreamWaitEvent;
        // SAFETY: both live.
        check("cuStreamWaitEvent", unsafe { wait(self.handle, event.handle(), 0) })
    }

    /// Copies all of `source` to `destination`, which is as long.
    pub(crate) fn copy_in(&self, destination: DeviceRange, source: HostPart<'_>) -> Result<(), DriverError> {
        debug_assert!(destination.bytes() == source.bytes() as u64, "as long as the source");
        let copy = self.context.table().cuMemcpyHtoDAsync_v2;
        let to = destination.address();
        // SAFETY: the source is the driver's or registered, the destination of the GPU.
        check("cuMemcpyHtoDAsync_v2", unsafe { copy(to, source.pointer(), source.bytes(), self.handle) })
    }

    /// Copies all of `source` to `destination`, which is as long.
    pub(crate) fn copy_out(&self, destination: HostPart<'_>, source: DeviceRange) -> Result<(), DriverError> {
        debug_assert!(source.bytes() == destination.bytes() as u64, "as long as the source");
        let copy = self.context.table().cuMemcpyDtoHAsync_v2;
        let (to, bytes) = (destination.pointer(), destination.bytes());
        // SAFETY: the destination is the driver's or registered, the source of the GPU.
        check("cuMemcpyDtoHAsync_v2", unsafe { copy(to, source.address(), bytes, self.handle) })
    }

    /// Copies all of `source` to `destination`, which is as long.
    pub(crate) fn copy(&self, destination: DeviceRange, source: DeviceRange) -> Result<(), DriverError> {
        let copy = self.context.table().cuMemcpyDtoDAsync_v2;
        let (to, from, bytes) = (destination.address(), source.address(), source.bytes() as usize);
        // SAFETY: both are of the GPU.
        check("cuMemcpyDtoDAsync_v2", unsafe { copy(to, from, bytes, self.handle) })
    }

    /// Copies `size` (bytes of a row, rows, slices) from rows to rows, which lie within their ranges.
    pub(crate) fn copy_rows(
        &self,
        destination: Rows,
        source: Rows,
        size: [u64; 3],
    ) -> Result<(), DriverError> {
        let side = |rows: Rows| Side3D {
            x: 0,
            y: 0,
            z: 0,
            lod: 0,
            memory_type: MEMORYTYPE_DEVICE,
            host: ptr::null_mut(),
            device: rows.range.address(),
            array: 0,
            context: vgpu_abi::driver::CUcontext::NULL,
            pitch: rows.pitch as usize,
            height: rows.stride as usize,
        };
        let [width, height, depth] = size.map(|size| size as usize);
        let box_ = Memcpy3D { src: side(source), dst: side(destination), width, height, depth };
        let copy = self.context.table().cuMemcpy3DAsync_v2;
        // SAFETY: a live description of ranges of the GPU.
        check("cuMemcpy3DAsync_v2", unsafe { copy(&raw const box_, self.handle) })
    }

    /// Fills a range of whole elements of 1, 2 or 4 bytes with the low bytes of `value`.
    pub(crate) fn fill(&self, range: DeviceRange, element: u32, value: u32) -> Result<(), DriverError> {
        let (to, table) = (range.address(), self.context.table());
        let count = (range.bytes() / u64::from(element.max(1))) as usize;
        match element {
            1 => {
                let fill = table.cuMemsetD8Async;
                // SAFETY: the range is of the GPU.
                check("cuMemsetD8Async", unsafe { fill(to, value as u8, count, self.handle) })
            }
            2 => {
                let fill = table.cuMemsetD16Async;
                // SAFETY: the range is of the GPU.
                check("cuMemsetD16Async", unsafe { fill(to, value as u16, count, self.handle) })
            }
            _ => {
                let fill = table.cuMemsetD32Async;
                // SAFETY: the range is of the GPU.
                check("cuMemsetD32Async", unsafe { fill(to, value, count, self.handle) })
            }
        }
    }

    /// Fills rows of `width` elements; all of them lie within their range.
    pub(crate) fn fill_rows(
        &self,
        rows: Rows,
        element: u32,
        value: u32,
        width: u64,
        height: u64,
    ) -> Result<(), DriverError> {
        let (to, table, pitch) = (rows.range.address(), self.context.table(), rows.pitch as usize);
        let (width, height) = (width as usize, height as usize);
        match element {
            1 => {
                let fill = table.cuMemsetD2D8Async;
                // SAFETY: the rows are of the GPU.
                let code = unsafe { fill(to, pitch, value as u8, width, height, self.handle) };
                check("cuMemsetD2D8Async", code)
            }
            2 => {
                let fill = table.cuMemsetD2D16Async;
                // SAFETY: the rows are of the GPU.
                let code = unsafe { fill(to, pitch, value as u16, width, height, self.handle) };
                check("cuMemsetD2D16Async", code)
            }
            _ => {
                let fill = table.cuMemsetD2D32Async;
                // SAFETY: the rows are of the GPU.
                let code = unsafe { fill(to, pitch, value, width, height, self.handle) };
                check("cuMemsetD2D32Async", code)
            }
        }
    }

    /// Launches a kernel with a buffer of parameters, laid out as the kernel has them.
    pub(crate) fn launch(&self, kernel: &Function, shape: &Shape, params: &[u8]) -> Result<(), DriverError> {
        let mut buffer = Buffer::new(params);
        let extra = buffer.extra();
        let attributes = shape.attributes();
        let count = attributes.iter().flatten().count();
        if count == 0 {
            let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
            let (shared, none) = (shape.shared_bytes, ptr::null_mut());
            let (launch, function) = (self.context.table().cuLaunchKernel, kernel.handle());
            // SAFETY: live handles and a live buffer, which the driver copies before it returns. What the
            // kernel does is its guest's; the process is the wall.
            let code = unsafe { launch(function, gx, gy, gz, bx, by, bz, shared, self.handle, none, extra) };
            return check("cuLaunchKernel", code);
        }
        let none = CUlaunchAttribute { id: launch_attribute::IGNORE, value: [0; 8] };
        let attributes = attributes.map(|attribute| attribute.unwrap_or(none));
        let config = CUlaunchConfig {
            grid: shape.grid,
            block: shape.block,
            shared_bytes: shape.shared_bytes,
            stream: self.handle,
            attributes: attributes.as_ptr(),
            attribute_count: attributes.len() as u32,
        };
        let launch = self.context.table().cuLaunchKernelEx;
        // SAFETY: as above; the attributes live until the call returns.
        let code = unsafe { launch(&raw const config, kernel.handle(), ptr::null_mut(), extra) };
        check("cuLaunchKernelEx", code)
    }

    /// Calls `task` when the work so far is complete, in a thread of the driver's; later work waits for it.
    /// It must not call the driver. If the context is lost it may never be called, and is dropped with what
    /// is returned.
    pub(crate) fn call(&self, task: impl FnOnce() + Send + 'static) -> Result<Arc<HostTask>, DriverError> {
        let task = Arc::new(HostTask(Mutex::new(Some(Box::new(task)))));
        let data = Arc::into_raw(Arc::clone(&task));
        let call = self.context.table().cuLaunchHostFunc;
        // SAFETY: `run_task` takes what `Arc::into_raw` made.
        let code = unsafe { call(self.handle, Some(run_task), data.cast_mut().cast()) };
        if let Err(error) = check("cuLaunchHostFunc", code) {
            // SAFETY: the driver refused the call, so that nobody else has this share.
            drop(unsafe { Arc::from_raw(data) });
            return Err(error);
        }
        Ok(task)
    }

    /// Stores 64 bits in memory of the host when the work so far is complete. `None`: the driver cannot.
    pub(crate) fn write(&self, word: HostWord<'_>, value: u64) -> Option<Result<(), DriverError>> {
        let write = self.context.table().cuStreamWriteValue64_v2?;
        // SAFETY: the word is in registered memory.
        let code = unsafe { write(self.handle, word.address(), value, 0) };
        Some(check("cuStreamWriteValue64_v2", code))
    }

    /// Lets later work wait until a 32-bit word of the host is `value` or more. `None`: the driver cannot.
    pub(crate) fn wait_for(&self, word: HostWord<'_>, value: u32) -> Option<Result<(), DriverError>> {
        let wait = self.context.table().cuStreamWaitValue32_v2?;
        // SAFETY: the word is in memory of the driver's. 0: CU_STREAM_WAIT_VALUE_GEQ.
        let code = unsafe { wait(self.handle, word.address(), value, 0) };
        Some(check("cuStreamWaitValue32_v2", code))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.handle != CUstream::NULL {
            // SAFETY: the last use of the handle.
            let code = unsafe { (self.context.table().cuStreamDestroy_v2)(self.handle) };
            tell(check("cuStreamDestroy_v2", code));
        }
    }
}

impl Shape {
    /// What goes beyond a plain launch, as attributes.
    fn attributes(&self) -> [Option<CUlaunchAttribute>; 4] {
        let words = |id, [a, b, c]: [u32; 3]| {
            let mut value = [0; 8];
            value[0] = u64::from(a) | u64::from(b) << 32;
            value[1] = u64::from(c);
            CUlaunchAttribute { id, value }
        };
        let flag = |id, set: bool| set.then(|| words(id, [1, 0, 0]));
        [
            self.cluster.map(|cluster| words(launch_attribute::CLUSTER_DIMENSION, cluster)),
            flag(launch_attribute::COOPERATIVE, self.cooperative),
            flag(launch_attribute::PROGRAMMATIC_STREAM_SERIALIZATION, self.programmatic),
            self.priority.map(|priority| words(launch_attribute::PRIORITY, [priority.cast_unsigned(), 0, 0])),
        ]
    }
}
