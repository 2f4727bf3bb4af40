//! Measures the rates of common CUDA operations: launches of a kernel that does nothing, round trips, and
//! copies of pinned and of pageable memory.

use std::ffi::{c_char, c_uint, c_void};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::driver::{Handle, done, functions};

/// PTX of a kernel that does nothing, for every GPU.
const KERNEL: &[u8] =
    b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n\0";
/// Number of launches before the measurement, in which the kernel is loaded to the GPU.
const WARM: usize = 100;
/// Number of round trips that are timed.
const TRIPS: usize = 2000;
/// Number of times that each copy is timed.
const COPIES: usize = 5;

functions! {
    alloc = "cuMemAlloc_v2"(*mut u64, usize);
    host_alloc = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    to_device = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, Handle);
    to_host = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, Handle);
    load = "cuModuleLoadData"(*mut Handle, *const c_void);
    function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    launch = "cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
    stream_create = "cuStreamCreate"(*mut Handle, c_uint);
    stream_synchronize = "cuStreamSynchronize"(Handle);
}

/// Flag `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

/// The driver library with a stream, device memory and the loaded kernel.
pub struct Program {
    cuda: Cuda,
    stream: Handle,
    kernel: Handle,
    /// Address of the device memory.
    device: u64,
    /// Size of the device memory in bytes.
    bytes: usize,
}

impl Program {
    /// Opens the library and allocates `bytes` of device memory, at least four.
    pub fn begin(bytes: usize) -> Result<Self> {
        let cuda = Cuda::begin()?;
        let (mut stream, mut module, mut kernel) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: a live place for the stream.
        done("cuStreamCreate", unsafe { (cuda.stream_create)(&raw mut stream, NON_BLOCKING) })?;
        // SAFETY: a live place for the module; the text ends with a zero.
        done("cuModuleLoadData", unsafe { (cuda.load)(&raw mut module, KERNEL.as_ptr().cast()) })?;
        let name = c"nothing".as_ptr();
        // SAFETY: a live place for the function, of the module that was just loaded; the name ends with a
        // zero.
        done("cuModuleGetFunction", unsafe { (cuda.function)(&raw mut kernel, module, name) })?;
        let mut device = 0;
        // SAFETY: a live place for the address.
        done("cuMemAlloc", unsafe { (cuda.alloc)(&raw mut device, bytes) })?;
        Ok(Self { cuda, stream, kernel, device, bytes })
    }

    /// Launches the kernel, which is not waited for.
    pub fn launch(&self) -> Result<()> {
        let none = std::ptr::null_mut();
        // SAFETY: the kernel has no parameters; kernel and stream live as long as the program.
        let status =
            unsafe { (self.cuda.launch)(self.kernel, 1, 1, 1, 32, 1, 1, 0, self.stream, none, none) };
        done("cuLaunchKernel", status)
    }

    /// Waits until all work of the stream has completed, by copying a word from the device. A synchronize
    /// alone need not wait if nothing can observe that.
    fn wait(&self) -> Result<()> {
        self.read::<4>().map(drop)
    }

    /// Copies the first `N` bytes of the device memory back, and waits for all work of the stream with them.
    pub fn read<const N: usize>(&self) -> Result<[u8; N]> {
        let mut word = [0_u8; N];
        // SAFETY: bytes that the allocation has; they have come when the synchronize returns.
        let status = unsafe { (self.cuda.to_host)(word.as_mut_ptr().cast(), self.device, N, self.stream) };
        done("cuMemcpyDtoHAsync", status)?;
        self.synchronize()?;
        Ok(word)
    }

    fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives as long as the program.
        done("cuStreamSynchronize", unsafe { (self.cuda.stream_synchronize)(self.stream) })
    }

    /// Returns the number of launches a second, including the wait for the last of them.
    fn launches(&self, count: usize) -> Result<f64> {
        for _ in 0..WARM {
            self.launch()?;
        }
        self.wait()?;
        let start = Instant::now();
        for _ in 0..count {
            self.launch()?;
        }
        self.wait()?;
        Ok(per_second(count, start))
    }

    /// Returns the median and the 99th percentile of the microseconds for a launch and the copy of a word
    /// after it.
    fn trips(&self) -> Result<(f64, f64)> {
        let mut times = Vec::with_capacity(TRIPS);
        for _ in 0..TRIPS {
            let start = Instant::now();
            self.launch()?;
            self.wait()?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        Ok((times[TRIPS / 2], times[TRIPS * 99 / 100]))
    }

    /// Returns the speeds in GB/s of copies of `memory` to the device and back, as medians of [`COPIES`]
    /// copies. Fails if the bytes return changed.
    fn copies(&self, memory: &mut [u8]) -> Result<(f64, f64)> {
        let (device, bytes) = (self.device, memory.len());
        let sent: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        let (mut up, mut down) = (Vec::new(), Vec::new());
        // One more, for pages and staging.
        for _ in 0..=COPIES {
            memory.copy_from_slice(&sent);
            let start = Instant::now();
            // SAFETY: as many bytes as the memory and the allocation have; the wait follows.
            let status = unsafe { (self.cuda.to_device)(device, memory.as_ptr().cast(), bytes, self.stream) };
            done("cuMemcpyHtoDAsync", status)?;
            self.wait()?;
            up.push(per_second(bytes, start) / 1e9);
            memory.fill(0);
            let start = Instant::now();
            // SAFETY: as above.
            let status =
                unsafe { (self.cuda.to_host)(memory.as_mut_ptr().cast(), device, bytes, self.stream) };
            done("cuMemcpyDtoHAsync", status)?;
            self.synchronize()?;
            down.push(per_second(bytes, start) / 1e9);
            if memory != sent {
                bail!("what came back is not what went there");
            }
        }
        Ok((middle(&mut up[1..]), middle(&mut down[1..])))
    }

    /// Allocates pinned memory of the size of the device memory.
    fn pinned(&self) -> Result<&'static mut [u8]> {
        let bytes = self.bytes;
        let mut start = std::ptr::null_mut();
        // SAFETY: a live place for the address.
        done("cuMemHostAlloc", unsafe { (self.cuda.host_alloc)(&raw mut start, bytes, 0) })?;
        // SAFETY: CUDA made the memory, of so many bytes that are initialised below before they are read; it
        // is never freed, and nobody else has its address.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        // SAFETY: as above.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) })
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn per_second(units: usize, start: Instant) -> f64 {
    units as f64 / start.elapsed().as_secs_f64()
}

/// Returns the median.
fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures all rates and prints them as JSON.
pub fn measure(launches: usize, mib: usize) -> Result<ExitCode> {
    let bytes = mib.max(1).checked_mul(1 << 20).context("so much memory cannot be")?;
    let program = Program::begin(bytes)?;
    let rate = program.launches(launches.max(1))?;
    let (half, late) = program.trips()?;
    let memory = program.pinned()?;
    let lies = crate::maps::at(memory.as_ptr() as usize)?;
    let pinned = program.copies(memory)?;
    let pageable = program.copies(&mut vec![0; bytes])?;
    let figures = json!({
        "launches_per_second": rate,
        "sync_rtt_us_p50": half,
        "sync_rtt_us_p99": late,
        // Which it was: a library may give ordinary memory where it has no pinned memory left.
        "pinned_memory": lies,
        "h2d_pinned_gbps": pinned.0,
        "d2h_pinned_gbps": pinned.1,
        "h2d_pageable_gbps": pageable.0,
        "d2h_pageable_gbps": pageable.1,
    });
    println!("{figures}");
    Ok(ExitCode::SUCCESS)
}
