//! The part of the driver API that the probe uses, with a type for each kind of handle, slices in place of
//! pointers, and failures that carry the call's name and the driver's error text.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{
    CUcontext, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream, STREAM_NON_BLOCKING, attribute,
    capture_mode, functions,
};
use vgpu_probe_steps::Fault;

use crate::library::{Library, Scope};
use crate::table;

table! {
    /// The functions of libcuda that the probe calls.
    Calls of functions {
        cuInit;
        cuDriverGetVersion;
        cuGetErrorName;
        cuDeviceGetCount;
        cuDeviceGet;
        cuDeviceGetName;
        cuDeviceGetUuid_v2;
        cuDeviceGetPCIBusId;
        cuDeviceTotalMem_v2;
        cuDeviceGetAttribute;
        cuDevicePrimaryCtxRetain;
        cuCtxSetCurrent;
        cuMemGetInfo_v2;
        cuMemAlloc_v2;
        cuMemFree_v2;
        cuMemAllocHost_v2;
        cuMemFreeHost;
        cuMemcpyHtoD_v2;
        cuMemcpyDtoH_v2;
        cuMemcpyDtoD_v2;
        cuMemcpyHtoDAsync_v2;
        cuMemcpyDtoHAsync_v2;
        cuMemsetD32_v2;
        cuModuleLoadData;
        cuModuleGetFunction;
        cuLaunchKernel;
        cuCtxSynchronize;
        cuStreamCreate;
        cuStreamSynchronize;
        cuStreamBeginCapture_v2;
        cuStreamEndCapture;
        cuGraphInstantiateWithFlags;
        cuGraphLaunch;
        cuGraphDestroy;
    }
}

/// The driver API's functions.
pub struct Driver {
    calls: Calls,
}

/// A device, named by its ordinal.
#[derive(Clone, Copy, Debug)]
pub struct Device(c_int);

/// Device memory. It is not freed on drop, because the process ends soon.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Device address of the memory.
    pub address: u64,
    bytes: usize,
}

/// A buffer of pinned host memory.
pub struct Pinned {
    start: *mut u8,
    bytes: usize,
}

/// A kernel that was loaded with its module.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(CUfunction);

/// A stream that was created, or the default stream ([`Stream::LEGACY`]).
#[derive(Clone, Copy, Debug)]
pub struct Stream(CUstream);

/// An instantiated graph.
#[derive(Clone, Copy, Debug)]
pub struct Graph(CUgraphExec);

impl Stream {
    /// Handle of the default stream.
    pub const LEGACY: Self = Self(CUstream::NULL);
}

/// `CU_DEVICE_ATTRIBUTE_INTEGRATED`, the id of the attribute that tells whether the device shares the host's
/// memory.
const INTEGRATED: c_int = 18;

/// Calls a function of the table, as in `call!(self, cuInit(0))`. A failure names the function.
macro_rules! call {
    ($driver:expr, $name:ident($($arg:expr),*)) => {
        // SAFETY: each pointer argument is of memory that outlives the call and is as large as the call reads
        // or writes; each handle was given out by the driver.
        $driver.check(stringify!($name), unsafe { ($driver.calls.$name)($($arg),*) })
    };
}

impl Driver {
    /// Opens libcuda by its SONAME and looks up the functions that the probe calls.
    pub fn open() -> Result<Self, Fault> {
        let library = Library::open("libcuda.so.1".as_ref(), Scope::Local)?;
        Ok(Self { calls: Calls::from_library(library)? })
    }

    /// Calls `cuInit`, which finds the devices.
    pub fn init(&self) -> Result<(), Fault> {
        call!(self, cuInit(0))
    }

    fn check(&self, call: &str, status: CUresult) -> Result<(), Fault> {
        if status == CUresult::SUCCESS {
            return Ok(());
        }
        let mut name: *const c_char = ptr::null();
        // SAFETY: the place is there; what is written to it is null or a constant of the library's.
        let found = unsafe { (self.calls.cuGetErrorName)(status, &raw mut name) };
        let words = if found == CUresult::SUCCESS && !name.is_null() {
            // SAFETY: a C string that the library keeps for good.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            "an error without a name".into()
        };
        Err(Fault { call: call.into(), code: Some(status.0.cast_signed()), error: words })
    }

    /// Returns the newest CUDA version that the driver supports: 13000 is 13.0.
    pub fn version(&self) -> Result<c_int, Fault> {
        let mut version = 0;
        call!(self, cuDriverGetVersion(&raw mut version)).map(|()| version)
    }

    /// Returns the devices that CUDA_VISIBLE_DEVICES shows.
    pub fn devices(&self) -> Result<Vec<Device>, Fault> {
        let mut count = 0;
        call!(self, cuDeviceGetCount(&raw mut count))?;
        (0..count)
            .map(|ordinal| {
                let mut device = 0;
                call!(self, cuDeviceGet(&raw mut device, ordinal)).map(|()| Device(device))
            })
            .collect()
    }

    /// Returns the device's product name.
    pub fn name(&self, device: Device) -> Result<String, Fault> {
        let mut text = [0; 256];
        call!(self, cuDeviceGetName(text.as_mut_ptr(), 256, device.0))?;
        Ok(string(&text))
    }

    /// Returns the device's PCI address, as `domain:bus:device.function`.
    pub fn pci(&self, device: Device) -> Result<String, Fault> {
        let mut text = [0; 64];
        call!(self, cuDeviceGetPCIBusId(text.as_mut_ptr(), 64, device.0))?;
        Ok(string(&text))
    }

    /// Returns the device's UUID as 16 raw bytes.
    pub fn uuid(&self, device: Device) -> Result<[u8; 16], Fault> {
        let mut uuid = [0; 16];
        call!(self, cuDeviceGetUuid_v2(&raw mut uuid, device.0)).map(|()| uuid)
    }

    /// Returns the size of the device's memory in bytes.
    pub fn total(&self, device: Device) -> Result<usize, Fault> {
        let mut total = 0;
        call!(self, cuDeviceTotalMem_v2(&raw mut total, device.0)).map(|()| total)
    }

    fn attribute(&self, device: Device, id: c_int) -> Result<c_int, Fault> {
        let mut value = 0;
        call!(self, cuDeviceGetAttribute(&raw mut value, id, device.0)).map(|()| value)
    }

    /// Returns the device's compute capability: major and minor number.
    pub fn capability(&self, device: Device) -> Result<(c_int, c_int), Fault> {
        Ok((
            self.attribute(device, attribute::COMPUTE_CAPABILITY_MAJOR)?,
            self.attribute(device, attribute::COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// Returns whether the device shares the host's memory.
    pub fn integrated(&self, device: Device) -> Result<bool, Fault> {
        Ok(self.attribute(device, INTEGRATED)? != 0)
    }

    /// Makes the device's primary context current in this thread.
    pub fn enter(&self, device: Device) -> Result<(), Fault> {
        let mut context = CUcontext::NULL;
        call!(self, cuDevicePrimaryCtxRetain(&raw mut context, device.0))?;
        call!(self, cuCtxSetCurrent(context))
    }

    /// Returns free and total bytes of memory of the current context's device.
    pub fn memory(&self) -> Result<(usize, usize), Fault> {
        let (mut free, mut total) = (0, 0);
        call!(self, cuMemGetInfo_v2(&raw mut free, &raw mut total)).map(|()| (free, total))
    }

    /// Allocates device memory.
    pub fn allocate(&self, bytes: usize) -> Result<Memory, Fault> {
        let mut address = 0;
        call!(self, cuMemAlloc_v2(&raw mut address, bytes)).map(|()| Memory { address, bytes })
    }

    /// Frees device memory.
    pub fn free(&self, memory: Memory) -> Result<(), Fault> {
        call!(self, cuMemFree_v2(memory.address))
    }

    /// Allocates pinned memory, filled with zeros.
    pub fn pinned(&self, bytes: usize) -> Result<Pinned, Fault> {
        let mut start = ptr::null_mut();
        call!(self, cuMemAllocHost_v2(&raw mut start, bytes))?;
        let start = start.cast::<u8>();
        // SAFETY: the driver has just given this many bytes, and nobody else knows them.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Pinned { start, bytes })
    }

    /// Frees pinned memory.
    pub fn unpin(&self, pinned: &Pinned) -> Result<(), Fault> {
        call!(self, cuMemFreeHost(pinned.start.cast()))
    }

    /// Copies host memory to the device.
    pub fn write(&self, to: Memory, from: &[u8]) -> Result<(), Fault> {
        assert!(from.len() <= to.bytes);
        call!(self, cuMemcpyHtoD_v2(to.address, from.as_ptr().cast(), from.len()))
    }

    /// Copies device memory to the host.
    pub fn read(&self, to: &mut [u8], from: Memory) -> Result<(), Fault> {
        assert!(to.len() <= from.bytes);
        call!(self, cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from.address, to.len()))
    }

    /// Copies between two device allocations.
    pub fn copy(&self, to: Memory, from: Memory) -> Result<(), Fault> {
        assert!(from.bytes <= to.bytes);
        call!(self, cuMemcpyDtoD_v2(to.address, from.address, from.bytes))
    }

    /// Copies pinned memory to the device and waits.
    pub fn write_pinned(&self, to: Memory, from: &Pinned, stream: Stream) -> Result<(), Fault> {
        assert!(from.bytes <= to.bytes);
        call!(self, cuMemcpyHtoDAsync_v2(to.address, from.start.cast(), from.bytes, stream.0))?;
        self.wait(stream)
    }

    /// Copies from the device to pinned memory and waits.
    pub fn read_pinned(&self, to: &mut Pinned, from: Memory, stream: Stream) -> Result<(), Fault> {
        assert!(to.bytes <= from.bytes);
        call!(self, cuMemcpyDtoHAsync_v2(to.start.cast(), from.address, to.bytes, stream.0))?;
        self.wait(stream)
    }

    /// Fills memory with a word.
    pub fn fill(&self, memory: Memory, word: u32) -> Result<(), Fault> {
        call!(self, cuMemsetD32_v2(memory.address, word, memory.bytes / 4))
    }

    /// Loads PTX and looks up a kernel in it. The module stays loaded.
    pub fn kernel(&self, ptx: &CStr, name: &CStr) -> Result<Kernel, Fault> {
        let mut module = CUmodule::NULL;
        call!(self, cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()))?;
        let mut function = CUfunction::NULL;
        call!(self, cuModuleGetFunction(&raw mut function, module, name.as_ptr())).map(|()| Kernel(function))
    }

    /// Launches a kernel. `parameters` points to the value of each parameter, as the kernel declares them.
    pub fn launch(
        &self,
        kernel: Kernel,
        grid: u32,
        block: u32,
        stream: Stream,
        parameters: &mut [*mut c_void],
    ) -> Result<(), Fault> {
        let none = ptr::null_mut();
        call!(
            self,
            cuLaunchKernel(kernel.0, grid, 1, 1, block, 1, 1, 0, stream.0, parameters.as_mut_ptr(), none)
        )
    }

    /// Waits until all work of the context has completed.
    pub fn wait_for_all(&self) -> Result<(), Fault> {
        call!(self, cuCtxSynchronize())
    }

    /// Creates a stream that does not synchronize with the default stream.
    pub fn stream(&self) -> Result<Stream, Fault> {
        let mut stream = CUstream::NULL;
        call!(self, cuStreamCreate(&raw mut stream, STREAM_NON_BLOCKING)).map(|()| Stream(stream))
    }

    /// Waits until a stream's work has completed.
    pub fn wait(&self, stream: Stream) -> Result<(), Fault> {
        call!(self, cuStreamSynchronize(stream.0))
    }

    /// Captures the work that `work` submits to the stream, and instantiates a graph of it.
    pub fn record(&self, stream: Stream, work: impl FnOnce() -> Result<(), Fault>) -> Result<Graph, Fault> {
        call!(self, cuStreamBeginCapture_v2(stream.0, capture_mode::GLOBAL))?;
        let worked = work();
        let mut graph = CUgraph::NULL;
        let ended = call!(self, cuStreamEndCapture(stream.0, &raw mut graph));
        worked.and(ended)?;
        let mut executable = CUgraphExec::NULL;
        call!(self, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0))?;
        call!(self, cuGraphDestroy(graph))?;
        Ok(Graph(executable))
    }

    /// Launches a graph.
    pub fn replay(&self, graph: Graph, stream: Stream) -> Result<(), Fault> {
        call!(self, cuGraphLaunch(graph.0, stream.0))
    }
}

impl Pinned {
    /// Returns the buffer's bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the driver's memory, initialised when it was given; the borrow is of its only owner, and
        // copies to it have been waited for.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

/// Returns the text in a buffer, which may lack the terminating zero.
pub fn string(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the UUID as NVIDIA writes it: `GPU-` and groups of 8, 4, 4, 4 and 12 digits.
pub fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_as_nvidia_does() {
        let uuid = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid_text(uuid), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }

    #[test]
    fn text_ends_at_its_zero_or_its_buffer() {
        assert_eq!(string(&[65, 66, 0, 67]), "AB");
        assert_eq!(string(&[65, 66]), "AB");
        assert_eq!(string(&[]), "");
    }
}
