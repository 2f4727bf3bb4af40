//! Streams of the driver, and all work that is added to them.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};

use vgpu_abi::driver::{
    CUlaunchAttribute, CUlaunchConfig, CUstream, LAUNCH_PARAM, MEMORYTYPE_DEVICE, Memcpy3D,
    STREAM_NON_BLOCKING, Side3D, launch_attribute,
};
use vgpu_device::lock_tracked;

use super::code::DriverFunction;
use super::context::DriverContext;
use super::error::{DriverError, check, check_ready, log_failure};
use super::event::DriverEvent;
use super::host::{HostPart, HostWord};
use super::range::DeviceRange;

/// A stream. Dropping it lets its work finish.
#[derive(Debug)]
pub(crate) struct DriverStream {
    context: Arc<DriverContext>,
    /// Handle of the stream, which is null for the legacy default stream.
    handle: CUstream,
}

/// Shape and attributes of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchShape {
    /// Number of blocks in x, y, z.
    pub(crate) grid: [u32; 3],
    /// Number of threads in x, y, z.
    pub(crate) block: [u32; 3],
    /// Number of blocks of a cluster in x, y, z, if the launch has clusters.
    pub(crate) cluster: Option<[u32; 3]>,
    /// Size of the dynamic shared memory in bytes.
    pub(crate) shared_bytes: u32,
    /// Whether all blocks must be resident at once.
    pub(crate) cooperative: bool,
    /// Whether the kernel may start before its predecessor has ended.
    pub(crate) programmatic: bool,
    /// Priority of the kernel, if it differs from its stream's.
    pub(crate) priority: Option<i32>,
}

/// Rows of bytes within a range of device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// Range that contains all rows. The first row starts at its beginning.
    pub(crate) range: DeviceRange,
    /// Distance between the starts of two rows, in bytes.
    pub(crate) pitch: u64,
    /// Distance between the starts of two slices, in rows.
    pub(crate) stride: u64,
}

/// Parameters of a kernel in the form of `cuLaunchKernel`'s `extra` argument: a list that names buffer and
/// size.
#[derive(Debug)]
pub(super) struct ParamBuffer<'a> {
    params: &'a [u8],
    bytes: usize,
    list: [*mut c_void; 5],
}

impl<'a> ParamBuffer<'a> {
    /// Wraps parameters that are laid out as the kernel expects.
    pub(super) const fn new(params: &'a [u8]) -> Self {
        Self { params, bytes: params.len(), list: [ptr::null_mut(); 5] }
    }

    /// Returns the `extra` argument, which is valid while `self` lives and is not moved. It is null if the
    /// kernel has no parameters.
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

/// A function that a stream calls on the host, in the order of its work.
pub(crate) struct HostTask(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for HostTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostTask")
    }
}

impl HostTask {
    /// Calls the function, unless it was called or dropped before.
    fn execute(&self) {
        let task = lock_tracked(&self.0).take();
        if let Some(task) = task {
            task();
        }
    }
}

/// Is the `CUhostFn` of every [`HostTask`]. `data` is a reference count of one.
unsafe extern "C" fn run_task(data: *mut c_void) {
    // SAFETY: `DriverStream::call` made the pointer from a reference count, and the driver calls the function
    // at most once.
    let task = unsafe { Arc::from_raw(data.cast_const().cast::<HostTask>()) };
    // A panic must not unwind through the driver's frames. The layers above find the work incomplete.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| task.execute()));
}

impl DriverStream {
    pub(super) const fn context(&self) -> &Arc<DriverContext> {
        &self.context
    }

    pub(super) const fn handle(&self) -> CUstream {
        self.handle
    }

    /// Returns the legacy default stream of a context.
    pub(crate) fn legacy(context: &Arc<DriverContext>) -> Self {
        Self { context: Arc::clone(context), handle: CUstream::NULL }
    }

    /// Calls `cuStreamCreateWithPriority`. The driver clamps a priority that is out of range.
    pub(crate) fn create(
        context: &Arc<DriverContext>,
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

    /// Returns whether all work so far is complete. An error is usually one of that work.
    pub(crate) fn is_complete(&self) -> Result<bool, DriverError> {
        // SAFETY: the stream lives as long as `self`.
        check_ready("cuStreamQuery", unsafe { (self.context.table().cuStreamQuery)(self.handle) })
    }

    /// Calls `cuEventRecord`.
    pub(crate) fn record(&self, event: &DriverEvent) -> Result<(), DriverError> {
        let record = self.context.table().cuEventRecord;
        // SAFETY: both live.
        check("cuEventRecord", unsafe { record(event.handle(), self.handle) })
    }

    /// Calls `cuStreamWaitEvent`.
    pub(crate) fn wait(&self, event: &DriverEvent) -> Result<(), DriverError> {
        let wait = self.context.table().cuStreamWaitEvent;
        // SAFETY: both live.
        check("cuStreamWaitEvent", unsafe { wait(self.handle, event.handle(), 0) })
    }

    /// Enqueues a copy of `source` to `destination`, which must be as long.
    pub(crate) fn enqueue_h2d(
        &self,
        destination: DeviceRange,
        source: HostPart<'_>,
    ) -> Result<(), DriverError> {
        debug_assert!(destination.bytes() == source.bytes() as u64, "as long as the source");
        let copy = self.context.table().cuMemcpyHtoDAsync_v2;
        let to = destination.address();
        // SAFETY: the source is the driver's or registered, the destination of the GPU.
        check("cuMemcpyHtoDAsync_v2", unsafe { copy(to, source.pointer(), source.bytes(), self.handle) })
    }

    /// Enqueues a copy of `source` to `destination`, which must be as long.
    pub(crate) fn enqueue_d2h(
        &self,
        destination: HostPart<'_>,
        source: DeviceRange,
    ) -> Result<(), DriverError> {
        debug_assert!(source.bytes() == destination.bytes() as u64, "as long as the source");
        let copy = self.context.table().cuMemcpyDtoHAsync_v2;
        let (to, bytes) = (destination.pointer(), destination.bytes());
        // SAFETY: the destination is the driver's or registered, the source of the GPU.
        check("cuMemcpyDtoHAsync_v2", unsafe { copy(to, source.address(), bytes, self.handle) })
    }

    /// Enqueues a copy of `source` to `destination`, which must be as long.
    pub(crate) fn enqueue_d2d(
        &self,
        destination: DeviceRange,
        source: DeviceRange,
    ) -> Result<(), DriverError> {
        let copy = self.context.table().cuMemcpyDtoDAsync_v2;
        let (to, from, bytes) = (destination.address(), source.address(), source.bytes() as usize);
        // SAFETY: both are of the GPU.
        check("cuMemcpyDtoDAsync_v2", unsafe { copy(to, from, bytes, self.handle) })
    }

    /// Enqueues a copy of rows. `size` is bytes of a row, rows of a slice, and slices; all rows lie within
    /// their ranges.
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

    /// Enqueues a fill of a range with the low bytes of `value`. Elements have 1, 2 or 4 bytes.
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

    /// Enqueues a fill of rows of `width` elements. All rows lie within their range.
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

    /// Enqueues a kernel with a buffer of parameters, laid out as the kernel expects.
    pub(crate) fn enqueue_kernel(
        &self,
        kernel: &DriverFunction,
        shape: &LaunchShape,
        params: &[u8],
    ) -> Result<(), DriverError> {
        let mut buffer = ParamBuffer::new(params);
        let extra = buffer.extra();
        let attributes = shape.attributes();
        let count = attributes.iter().flatten().count();
        if count == 0 {
            let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
            let (shared, none) = (shape.shared_bytes, ptr::null_mut());
            let (launch, function) = (self.context.table().cuLaunchKernel, kernel.handle());
            // SAFETY: the handles are live, and so is the buffer, which the driver copies before it returns.
            // What the kernel does is up to its guest; the worker process isolates its effects.
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

    /// Calls `task` in a thread of the driver once the work so far is complete. Later work waits for it.
    /// `task` must not call the driver. If the context is lost, `task` may never run and is dropped with the
    /// returned value.
    pub(crate) fn call(&self, task: impl FnOnce() + Send + 'static) -> Result<Arc<HostTask>, DriverError> {
        let task = Arc::new(HostTask(Mutex::new(Some(Box::new(task)))));
        let data = Arc::into_raw(Arc::clone(&task));
        let call = self.context.table().cuLaunchHostFunc;
        // SAFETY: `run_task` takes what `Arc::into_raw` made.
        let code = unsafe { call(self.handle, Some(run_task), data.cast_mut().cast()) };
        if let Err(error) = check("cuLaunchHostFunc", code) {
            // SAFETY: the driver refused the call, so nobody else has this reference count.
            drop(unsafe { Arc::from_raw(data) });
            return Err(error);
        }
        Ok(task)
    }

    /// Stores 64 bits in host memory once the work so far is complete. Returns `None` if the driver cannot do
    /// so.
    pub(crate) fn write(&self, word: HostWord<'_>, value: u64) -> Option<Result<(), DriverError>> {
        let write = self.context.table().cuStreamWriteValue64_v2?;
        // SAFETY: the word is in registered memory.
        let code = unsafe { write(self.handle, word.address(), value, 0) };
        Some(check("cuStreamWriteValue64_v2", code))
    }

    /// Makes later work wait until a 32-bit word of the host is at least `value`. Returns `None` if the
    /// driver cannot do so.
    pub(crate) fn wait_for(&self, word: HostWord<'_>, value: u32) -> Option<Result<(), DriverError>> {
        let wait = self.context.table().cuStreamWaitValue32_v2?;
        // SAFETY: the word is in memory that the driver allocated. The flag 0 is CU_STREAM_WAIT_VALUE_GEQ.
        let code = unsafe { wait(self.handle, word.address(), value, 0) };
        Some(check("cuStreamWaitValue32_v2", code))
    }
}

impl Drop for DriverStream {
    fn drop(&mut self) {
        if self.handle != CUstream::NULL {
            // SAFETY: the last use of the handle.
            let code = unsafe { (self.context.table().cuStreamDestroy_v2)(self.handle) };
            log_failure(check("cuStreamDestroy_v2", code));
        }
    }
}

impl LaunchShape {
    /// Returns the attributes that `cuLaunchKernelEx` takes. All are `None` for a launch that
    /// `cuLaunchKernel` can make.
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
