//! A library for each test, and calls of its functions by name.

use std::ffi::c_void;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde_json::{Value, json};
use vgpu_abi::driver::{
    CUcontext, CUevent, CUfunction, CUgraph, CUgraphNode, CUmemAllocationProp, CUmemLocation, CUmodule,
    CUstream,
};
use vgpu_recording_cuda::Recording;

/// Calls a function by its name and its signature, and evaluates to its status.
macro_rules! cu {
    ($bench:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: the signature is that of the name in the driver's table.
        let found = unsafe { $bench.library().get::<vgpu_abi::driver::functions::$name>(name) };
        let function = *found.expect(stringify!($name));
        // SAFETY: tests pass what the manual requires. Addresses that are wrong on purpose are never
        // dereferenced.
        unsafe { function($($arg),*) }.0
    }};
}

/// PTX with a variable and a kernel whose parameters take 12 bytes.
pub const PTX: &std::ffi::CStr = c".version 8.0\n.target sm_61\n.address_size 64\n\
    .visible .global .align 4 .b8 table[16];\n\
    .visible .entry k(.param .u64 p, .param .u32 n) { ret; }";

/// A loaded library of one test, with its record.
pub struct RecordingBench {
    recording: Recording,
    library: Library,
}

impl RecordingBench {
    /// Loads a library with these options, and does not initialize it.
    pub fn cold(options: &Value) -> Self {
        let recording = Recording::new(options).expect("the library is built with its tests");
        // SAFETY: the library has no initialisers of its own.
        let library = unsafe { Library::open(Some(recording.library()), RTLD_NOW | RTLD_LOCAL) };
        Self { recording, library: library.expect("the library loads") }
    }

    /// Loads a library with these options, and makes a context current.
    pub fn with(options: &Value) -> Self {
        let bench = Self::cold(options);
        assert_eq!(cu!(bench, cuInit(0)), 0);
        bench.context();
        bench
    }

    /// Loads a library with the default options, and makes a context current.
    pub fn new() -> Self {
        Self::with(&json!({}))
    }

    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Returns the lines of the record.
    pub fn lines(&self) -> Vec<Value> {
        self.recording.lines().expect("a record")
    }

    /// Returns the newest line of the record for a function.
    pub fn line(&self, call: &str) -> Value {
        self.lines().into_iter().rfind(|line| line["call"] == call).expect(call)
    }

    /// Loads a library with these options, makes a context current, and holds all its work.
    pub fn held(options: &Value) -> Self {
        let bench = Self::with(options);
        bench.hold();
        bench
    }

    /// Holds all work of the library.
    pub fn hold(&self) {
        self.recording.hold().expect("a directory that can be written to");
    }

    /// Lets held work complete.
    pub fn release(&self) {
        self.recording.release().expect("a directory that can be written to");
    }

    /// Waits until a call of a function waits, by the options `blocking` and `queue`.
    pub fn until_held(&self, call: &str) {
        let end = Instant::now() + Duration::from_mins(1);
        while !self.recording.has_held(call) {
            assert!(Instant::now() < end, "no {call} waits");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Creates a context, which is then current in this thread.
    pub fn context(&self) -> CUcontext {
        let mut context = CUcontext::NULL;
        assert_eq!(cu!(self, cuCtxCreate_v2(&raw mut context, 0, 0)), 0);
        context
    }

    /// Calls `cublasCreate` and returns its status and the handle.
    pub fn try_blas(&self) -> (u32, usize) {
        type CreateHandle = unsafe extern "C" fn(*mut usize) -> u32;
        // SAFETY: the signature is that of the function in cuBLAS's header.
        let create = unsafe { self.library.get::<CreateHandle>(b"cublasCreate_v2\0") }.expect("cuBLAS");
        let mut handle = 0;
        // SAFETY: the argument is a live variable for the handle.
        let status = unsafe { create(&raw mut handle) };
        (status, handle)
    }

    /// Creates a handle of cuBLAS in the current context.
    pub fn blas(&self) -> usize {
        let (status, handle) = self.try_blas();
        assert_eq!(status, 0);
        handle
    }

    /// Calls `cublasSetWorkspace` and returns its status.
    pub fn blas_workspace(&self, handle: usize, address: u64, bytes: usize) -> u32 {
        type SetWorkspace = unsafe extern "C" fn(usize, u64, usize) -> u32;
        // SAFETY: the signature is that of the function in cuBLAS's header.
        let set = unsafe { self.library.get::<SetWorkspace>(b"cublasSetWorkspace_v2\0") }.expect("cuBLAS");
        // SAFETY: a handle and an address, which the library checks and does not follow.
        unsafe { set(handle, address, bytes) }
    }

    pub fn stream(&self, flags: u32) -> CUstream {
        let mut stream = CUstream::NULL;
        assert_eq!(cu!(self, cuStreamCreateWithPriority(&raw mut stream, flags, 0)), 0);
        stream
    }

    pub fn event(&self, flags: u32) -> CUevent {
        let mut event = CUevent::NULL;
        assert_eq!(cu!(self, cuEventCreate(&raw mut event, flags)), 0);
        event
    }

    pub fn memory(&self, bytes: usize) -> u64 {
        let mut address = 0;
        assert_eq!(cu!(self, cuMemAlloc_v2(&raw mut address, bytes)), 0);
        address
    }

    /// Reserves 8 MiB of addresses and returns their start.
    pub fn reserved(&self) -> u64 {
        let mut address = 0;
        assert_eq!(cu!(self, cuMemAddressReserve(&raw mut address, 8 << 20, 0, 0, 0)), 0);
        address
    }

    /// Creates 2 MiB of physical memory and returns its handle.
    pub fn physical(&self) -> u64 {
        let mut handle = 0;
        assert_eq!(cu!(self, cuMemCreate(&raw mut handle, 2 << 20, ptr::from_ref(&PROP), 0)), 0);
        handle
    }

    /// Maps 2 MiB at the start of a reservation of 8 MiB, without making them accessible, and returns the
    /// address.
    pub fn mapped(&self) -> u64 {
        let (address, handle) = (self.reserved(), self.physical());
        assert_eq!(cu!(self, cuMemMap(address, 2 << 20, 0, handle, 0)), 0);
        address
    }

    /// Allocates a page of pinned host memory and returns its address.
    pub fn pinned(&self) -> *mut std::ffi::c_void {
        let mut address = ptr::null_mut();
        assert_eq!(cu!(self, cuMemHostAlloc(&raw mut address, 4096, 0)), 0);
        address
    }

    pub fn module(&self) -> CUmodule {
        let (status, module) = self.load(PTX.as_ptr().cast());
        assert_eq!(status, 0);
        module
    }

    /// Loads an image without options. Returns the status and the module.
    pub fn load(&self, image: *const c_void) -> (u32, CUmodule) {
        let (mut module, options, values) = (CUmodule::NULL, ptr::null_mut(), ptr::null_mut());
        (cu!(self, cuModuleLoadDataEx(&raw mut module, image, 0, options, values)), module)
    }

    pub fn function(&self) -> CUfunction {
        let (module, mut function) = (self.module(), CUfunction::NULL);
        assert_eq!(cu!(self, cuModuleGetFunction(&raw mut function, module, c"k".as_ptr())), 0);
        function
    }

    /// Returns the status of a query about a stream's capture, the capture's graph, and the nodes on which
    /// its next node would depend.
    pub fn captured(&self, stream: CUstream) -> (u32, CUgraph, Vec<CUgraphNode>) {
        let (mut active, mut id, mut graph) = (0, 0, CUgraph::NULL);
        let (mut nodes, mut count) = (ptr::null(), 0);
        let places = (&raw mut active, &raw mut id, &raw mut graph);
        let list = (&raw mut nodes, &raw mut count);
        let status =
            cu!(self, cuStreamGetCaptureInfo_v2(stream, places.0, places.1, places.2, list.0, list.1));
        let nodes = if count == 0 {
            Vec::new()
        } else {
            // SAFETY: the library states that this many handles are valid until its next call.
            unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec()
        };
        (status, graph, nodes)
    }

    /// Launches the kernel with a shape and a parameter buffer of this size. Returns the status.
    pub fn launch(
        &self,
        function: CUfunction,
        block: u32,
        shared: u32,
        bytes: usize,
        stream: CUstream,
    ) -> u32 {
        let buffer = [0_u64; 8];
        let mut bytes = bytes;
        let mut extra = [
            ptr::without_provenance_mut(1),
            buffer.as_ptr().cast_mut().cast(),
            ptr::without_provenance_mut(2),
            (&raw mut bytes).cast(),
            ptr::null_mut(),
        ];
        let extra = extra.as_mut_ptr();
        cu!(self, cuLaunchKernel(function, 1, 1, 1, block, 1, 1, shared, stream, ptr::null_mut(), extra))
    }
}

/// Properties of physical memory of the first device.
pub const PROP: CUmemAllocationProp = CUmemAllocationProp {
    kind: 1,
    handle_types: 0,
    location: CUmemLocation { kind: 1, id: 0 },
    win32: ptr::null_mut(),
    flags: [0; 8],
};
