//! Execution control: launches, through both interfaces that compilers use and through those for programs.
//!
//! A program of CUDA 12's compiler pushes a configuration and calls the host stub, which pops it and calls
//! `cudaLaunchKernel` with its own address. The host stub of CUDA 13 calls `__cudaGetKernel` once, and
//! launches by `__cudaLaunchKernel` with the kernel. Both libraries have both interfaces.
//!
//! A launch goes to the driver at once. If the driver returns that there is no context, the thread gets one
//! and the launch is tried again. Nothing is allocated or locked on this path.

use core::cell::Cell;
use core::ffi::{c_uint, c_void};
use core::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::functions::{cuLaunchCooperativeKernel, cuLaunchKernel, cuLaunchKernelEx};
use vgpu_abi::driver::{CUfunction, CUkernel, CUlaunchConfig};
use vgpu_abi::log;
use vgpu_abi::runtime::{CudaError, Dim3, Kernel, LaunchConfig, Stream};

use crate::{kernels, process, status, thread};

/// Maximum number of nested configurations: an argument of a launch may itself be the result of a function
/// that launches.
const DEPTH: usize = 32;

/// A configuration that was pushed and not yet popped.
#[derive(Clone, Copy)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Stream,
}

struct Pushed {
    depth: Cell<usize>,
    stack: [Cell<Configuration>; DEPTH],
}

thread_local! {
    static PUSHED: Pushed = const {
        const NONE: Dim3 = Dim3 { x: 0, y: 0, z: 0 };
        Pushed {
            depth: Cell::new(0),
            stack: [const {
                Cell::new(Configuration { grid: NONE, block: NONE, shared_bytes: 0, stream: Stream::NULL })
            }; DEPTH],
        }
    };
}

fn push(configuration: Configuration) -> Result<(), CudaError> {
    PUSHED.with(|pushed| {
        let depth = pushed.depth.get();
        let Some(place) = pushed.stack.get(depth) else {
            log::error(format_args!("libcudart: {DEPTH} launches nest, no more are expected"));
            return Err(CudaError::INVALID_CONFIGURATION);
        };
        place.set(configuration);
        pushed.depth.set(depth + 1);
        Ok(())
    })
}

fn pop() -> Result<Configuration, CudaError> {
    PUSHED.with(|pushed| {
        let depth = pushed.depth.get().checked_sub(1).ok_or(CudaError::MISSING_CONFIGURATION)?;
        pushed.depth.set(depth);
        Ok(pushed.stack[depth].get())
    })
}

/// Checks that the process has been initialised. Whether it is still alive is checked by the driver.
#[inline]
fn initialised() -> Result<(), CudaError> {
    if process::initialised().is_some() { Ok(()) } else { process::runtime().map(|_| ()) }
}

/// Converts a size of dynamic shared memory in bytes to the driver's type.
#[inline]
fn shared(bytes: usize) -> Result<c_uint, CudaError> {
    c_uint::try_from(bytes).map_err(|_| CudaError::INVALID_VALUE)
}

/// Converts a kernel to a function: the driver accepts both.
#[inline]
fn function(kernel: CUkernel) -> CUfunction {
    CUfunction(kernel.0)
}

/// Calls the driver's launch. If the thread has no context, or one that another thread's reset destroyed,
/// enters a context and calls it once more. A shape that does not fit the device is an invalid configuration.
#[inline]
fn attempt(grid: Dim3, block: Dim3, call: impl Fn() -> CUresult) -> Result<(), CudaError> {
    let status = call();
    if status.0 == 0 { Ok(()) } else { again(grid, block, status, call) }
}

#[cold]
fn again(
    grid: Dim3,
    block: Dim3,
    mut status: CUresult,
    call: impl Fn() -> CUresult,
) -> Result<(), CudaError> {
    if matches!(status, CUresult::INVALID_CONTEXT | CUresult::CONTEXT_IS_DESTROYED) {
        process::enter()?;
        status = call();
    }
    match status::check(status) {
        Err(CudaError::INVALID_VALUE) if !fits(grid, block)? => Err(CudaError::INVALID_CONFIGURATION),
        answer => answer,
    }
}

/// Returns whether the thread's device supports a grid of this shape. If not, the driver's invalid value is
/// an invalid configuration to the runtime.
fn fits(grid: Dim3, block: Dim3) -> Result<bool, CudaError> {
    let runtime = process::runtime()?;
    let device = runtime.device(runtime.current()?)?.handle;
    let within = |size: u32, id| {
        let mut limit = 0;
        cu!(cuDeviceGetAttribute(&raw mut limit, id, device))?;
        Ok(size != 0 && u64::from(size) <= limit as u64)
    };
    let threads = u64::from(block.x) * u64::from(block.y) * u64::from(block.z);
    let sizes = [(block.x, 2), (block.y, 3), (block.z, 4), (grid.x, 5), (grid.y, 6), (grid.z, 7)];
    for (size, id) in sizes {
        if !within(size, id)? {
            return Ok(false);
        }
    }
    within(u32::try_from(threads).unwrap_or(u32::MAX), 1)
}

#[inline]
fn launch_kernel(
    kernel: CUkernel,
    grid: Dim3,
    block: Dim3,
    args: *mut *mut c_void,
    shared_bytes: usize,
    stream: Stream,
) -> Result<(), CudaError> {
    let shared_bytes = shared(shared_bytes)?;
    attempt(grid, block, || {
        // SAFETY: the caller of the export promised that `args` has one pointer for each parameter of the
        // kernel; the driver checks the rest.
        unsafe {
            cuLaunchKernel(
                function(kernel),
                grid.x,
                grid.y,
                grid.z,
                block.x,
                block.y,
                block.z,
                shared_bytes,
                stream,
                args,
                ptr::null_mut(),
            )
        }
    })
}

calls! {
    /// Launches the kernel of a host stub.
    pub fn cudaLaunchKernel | fn cudaLaunchKernel_ptsz [stream] (
        host: *const c_void,
        grid: Dim3,
        block: Dim3,
        args: *mut *mut c_void,
        shared_bytes: usize,
        stream: Stream,
    ) {
        initialised()?;
        launch_kernel(kernels::from_host(host)?, grid, block, args, shared_bytes, stream)
    }

    /// Launches a kernel that [`__cudaGetKernel`] has stored.
    pub fn __cudaLaunchKernel | fn __cudaLaunchKernel_ptsz [stream] (
        kernel: Kernel,
        grid: Dim3,
        block: Dim3,
        args: *mut *mut c_void,
        shared_bytes: usize,
        stream: Stream,
    ) {
        initialised()?;
        if kernel == Kernel::NULL {
            // A host stub requests its kernel once and does not check that it got one. The reason why it did
            // not is the thread's last error, unless it made the request in another thread.
            thread::last().ok()?;
            return Err(CudaError::INVALID_DEVICE_FUNCTION);
        }
        launch_kernel(kernel, grid, block, args, shared_bytes, stream)
    }

    /// Launches a kernel whose blocks are all resident and may synchronise.
    pub fn cudaLaunchCooperativeKernel | fn cudaLaunchCooperativeKernel_ptsz [stream] (
        host: *const c_void,
        grid: Dim3,
        block: Dim3,
        args: *mut *mut c_void,
        shared_bytes: usize,
        stream: Stream,
    ) {
        initialised()?;
        let kernel = kernels::from_host(host)?;
        let shared_bytes = shared(shared_bytes)?;
        attempt(grid, block, || {
            // SAFETY: as in `launch_kernel`.
            unsafe {
                cuLaunchCooperativeKernel(
                    function(kernel),
                    grid.x,
                    grid.y,
                    grid.z,
                    block.x,
                    block.y,
                    block.z,
                    shared_bytes,
                    stream,
                    args,
                )
            }
        })
    }

    /// Stores the kernel of a host stub, which compiled programs launch by [`__cudaLaunchKernel`].
    pub fn __cudaGetKernel(kernel: *mut Kernel, host: *const c_void) {
        initialised()?;
        store!(kernel, kernels::hand(kernels::from_host(host)?))
    }

    /// Pops the launch configuration that the thread pushed last.
    pub fn __cudaPopCallConfiguration(
        grid: *mut Dim3,
        block: *mut Dim3,
        shared_bytes: *mut usize,
        stream: *mut c_void,
    ) {
        let configuration = pop()?;
        store!(grid, configuration.grid)?;
        store!(block, configuration.block)?;
        store!(shared_bytes, configuration.shared_bytes)?;
        store!(stream.cast::<Stream>(), configuration.stream)
    }
}

/// Launches a kernel with attributes, on the stream that `stream` returns for the one of the configuration.
/// The attributes have the driver's ids.
fn launch_with(
    config: *const LaunchConfig,
    host: *const c_void,
    args: *mut *mut c_void,
    stream: impl Fn(Stream) -> Stream,
) -> Result<(), CudaError> {
    initialised()?;
    let config = load!(config)?;
    let kernel = kernels::from_host(host)?;
    let (grid, block) = (config.gridDim, config.blockDim);
    let config = CUlaunchConfig {
        grid: [grid.x, grid.y, grid.z],
        block: [block.x, block.y, block.z],
        shared_bytes: shared(config.dynamicSmemBytes)?,
        stream: stream(config.stream),
        attributes: config.attrs,
        attribute_count: config.numAttrs,
    };
    attempt(grid, block, || {
        // SAFETY: as in `launch_kernel`; the configuration is a local, its attributes are the program's, of
        // whose number the caller of the export promised that they are there.
        unsafe { cuLaunchKernelEx(&raw const config, function(kernel), args, ptr::null_mut()) }
    })
}

calls! {
    /// Launches a kernel with attributes.
    pub fn cudaLaunchKernelExC(config: *const LaunchConfig, host: *const c_void, args: *mut *mut c_void) {
        launch_with(config, host, args, |stream| stream)
    }

    /// Launches a kernel with attributes. Stream 0 is the per-thread default stream.
    pub fn cudaLaunchKernelExC_ptsz(
        config: *const LaunchConfig, host: *const c_void, args: *mut *mut c_void
    ) {
        launch_with(config, host, args, crate::ptsz::per_thread)
    }
}

vgpu_abi::export! {
    /// Pushes the configuration of the thread's next launch. Returns 0, or a status if too many are pushed.
    pub fn __cudaPushCallConfiguration(
        grid: Dim3,
        block: Dim3,
        shared_bytes: usize,
        stream: Stream,
    ) -> raw c_uint, CudaError::UNKNOWN.0 => {
        let pushed = thread::record(|| push(Configuration { grid, block, shared_bytes, stream }));
        pushed.err().map_or(0, |error| error.0)
    }
}

#[cfg(test)]
mod tests {
    use vgpu_abi::driver::CUstream;

    use super::*;

    fn configuration(number: u32) -> Configuration {
        let size = Dim3 { x: number, y: 1, z: 1 };
        Configuration { grid: size, block: size, shared_bytes: number as usize, stream: CUstream(7) }
    }

    #[test]
    fn configurations_nest_and_come_back_in_turn() {
        std::thread::spawn(|| {
            assert_eq!(pop().err(), Some(CudaError::MISSING_CONFIGURATION));
            for number in 0..DEPTH as u32 {
                push(configuration(number)).unwrap();
            }
            assert_eq!(push(configuration(99)).err(), Some(CudaError::INVALID_CONFIGURATION));
            for number in (0..DEPTH as u32).rev() {
                assert_eq!(pop().unwrap().grid.x, number);
            }
            assert_eq!(pop().err(), Some(CudaError::MISSING_CONFIGURATION));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_exported_pair_passes_every_part() {
        let (mut grid, mut block) = (configuration(0).grid, configuration(0).block);
        let (mut bytes, mut stream) = (0_usize, Stream::NULL);
        let grid_in = Dim3 { x: 3, y: 4, z: 5 };
        let block_in = configuration(9).block;
        // SAFETY: the call takes no pointers.
        let pushed = unsafe { __cudaPushCallConfiguration(grid_in, block_in, 48, CUstream(2)) };
        assert_eq!(pushed, 0);
        let stream_out = (&raw mut stream).cast();
        // SAFETY: the pointers are to locals of the right types.
        let popped =
            unsafe { __cudaPopCallConfiguration(&raw mut grid, &raw mut block, &raw mut bytes, stream_out) };
        assert_eq!(popped, CudaError::SUCCESS);
        assert_eq!((grid, block.x, bytes, stream), (grid_in, 9, 48, CUstream(2)));
    }
}
