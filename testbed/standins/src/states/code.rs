//! States that need loaded code, reached through CUDA's driver API.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::io::{BufRead, Write};
use std::ptr::null_mut;

use anyhow::{Result, bail};

use crate::driver::{Handle, done, functions};

/// PTX of a kernel with an infinite loop.
const ENDLESS: &CStr = c".version 7.0
.target sm_50
.address_size 64
.visible .entry endless()
{
AGAIN:
bra AGAIN;
ret;
}
";

/// Size in bytes of the device memory that each state holds.
const BYTES: usize = 2 << 20;

functions! {
    alloc = "cuMemAlloc_v2"(*mut u64, usize);
    load = "cuModuleLoadData"(*mut Handle, *const c_void);
    function = "cuModuleGetFunction"(*mut Handle, Handle, *const std::ffi::c_char);
    launch = "cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    stream_create = "cuStreamCreate"(*mut Handle, c_uint);
    to_host = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, Handle);
    stream_synchronize = "cuStreamSynchronize"(Handle);
    begin_capture = "cuStreamBeginCapture_v2"(Handle, c_int);
    end_capture = "cuStreamEndCapture"(Handle, *mut Handle);
    instantiate = "cuGraphInstantiateWithFlags"(*mut Handle, Handle, u64);
    launch_graph = "cuGraphLaunch"(Handle, Handle);
}

impl Cuda {
    /// Opens the library, allocates memory, and creates a stream. Returns the library, the stream, and the
    /// memory's address.
    fn start() -> Result<(Self, Handle, u64)> {
        let cuda = Self::begin()?;
        let (mut address, mut stream) = (0, null_mut());
        // SAFETY: a live place for the address.
        done("cuMemAlloc", unsafe { (cuda.alloc)(&raw mut address, BYTES) })?;
        // SAFETY: a live place for the handle.
        done("cuStreamCreate", unsafe { (cuda.stream_create)(&raw mut stream, 1) })?;
        Ok((cuda, stream, address))
    }

    fn endless(&self) -> Result<Handle> {
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: a live place for the handle, and a text that ends in a zero.
        done("cuModuleLoadData", unsafe { (self.load)(&raw mut module, ENDLESS.as_ptr().cast()) })?;
        // SAFETY: as above; the module was just loaded.
        let found = unsafe { (self.function)(&raw mut function, module, c"endless".as_ptr()) };
        done("cuModuleGetFunction", found)?;
        Ok(function)
    }

    /// Launches a kernel without parameters, or records it if the stream is being captured.
    fn put(&self, function: Handle, stream: Handle) -> Result<()> {
        // SAFETY: the kernel takes no parameters.
        let status = unsafe { (self.launch)(function, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()) };
        done("cuLaunchKernel", status)
    }

    /// Prints that the state is reached, and waits for the endless work with a copy from the device, because
    /// a synchronize alone may return at once.
    fn wait(&self, stream: Handle, address: u64) -> Result<()> {
        writeln!(std::io::stdout(), "ready {BYTES}")?;
        let mut back = [0u8; 4];
        // SAFETY: the buffer has as many bytes, and outlives the wait.
        let copied = unsafe { (self.to_host)(back.as_mut_ptr().cast(), address, back.len(), stream) };
        done("cuMemcpyDtoHAsync", copied)?;
        // SAFETY: a stream of this process's.
        done("cuStreamSynchronize", unsafe { (self.stream_synchronize)(stream) })?;
        bail!("a kernel without an end has ended")
    }
}

/// Enters `State::Launching` and stays there.
pub fn launch() -> Result<()> {
    let (cuda, stream, address) = Cuda::start()?;
    cuda.put(cuda.endless()?, stream)?;
    cuda.wait(stream, address)
}

/// Enters `State::Graph` and stays there.
pub fn launch_graph() -> Result<()> {
    let (cuda, stream, address) = Cuda::start()?;
    let function = cuda.endless()?;
    let (mut graph, mut executable) = (null_mut(), null_mut());
    // SAFETY: a stream of this process's; mode 2 is relaxed, which is what GGML uses.
    done("cuStreamBeginCapture", unsafe { (cuda.begin_capture)(stream, 2) })?;
    cuda.put(function, stream)?;
    // SAFETY: a live place for the handle.
    done("cuStreamEndCapture", unsafe { (cuda.end_capture)(stream, &raw mut graph) })?;
    // SAFETY: a live place for the handle, and the graph that was just captured.
    let made = unsafe { (cuda.instantiate)(&raw mut executable, graph, 0) };
    done("cuGraphInstantiateWithFlags", made)?;
    // SAFETY: handles of this process's.
    done("cuGraphLaunch", unsafe { (cuda.launch_graph)(executable, stream) })?;
    cuda.wait(stream, address)
}

/// Enters `State::Compiling` and stays there.
pub fn compile() -> Result<()> {
    let (cuda, stream, _) = Cuda::start()?;
    writeln!(std::io::stdout(), "ready {BYTES}")?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    // The host loads code with the first launch of one of its kernels.
    cuda.put(cuda.endless()?, stream)?;
    bail!("code was loaded though nothing released the device")
}
