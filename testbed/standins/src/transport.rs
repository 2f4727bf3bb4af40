//! Measures the cost of communication with the device through CUDA's driver API: a round trip, a submission,
//! and copies in both directions.

use std::ffi::{c_int, c_uint, c_void};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use crate::driver::{self, done};
use crate::percentiles::{nanoseconds, percentiles};

type Alloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Info = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
type Set = unsafe extern "C" fn(u64, c_uint, usize, *mut c_void) -> c_int;
type ToDevice = unsafe extern "C" fn(u64, *const c_void, usize) -> c_int;
type ToHost = unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int;
type Synchronize = unsafe extern "C" fn() -> c_int;

/// Returns the number of units a second since `start`.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn rate(units: usize, start: Instant) -> f64 {
    units as f64 / start.elapsed().as_secs_f64()
}

/// Measures and prints the times of `calls` calls of each kind, and of copies of `kib` KiB.
pub fn measure(calls: usize, kib: usize) -> Result<ExitCode> {
    let library = driver::open()?;
    // SAFETY: cuda.h: `CUresult cuMemAlloc_v2(CUdeviceptr *, size_t)`.
    let alloc = *unsafe { library.get::<Alloc>(b"cuMemAlloc_v2") }?;
    // SAFETY: `CUresult cuMemGetInfo_v2(size_t *, size_t *)`.
    let info = *unsafe { library.get::<Info>(b"cuMemGetInfo_v2") }?;
    // SAFETY: `CUresult cuMemsetD32Async(CUdeviceptr, unsigned int, size_t, CUstream)`.
    let set = *unsafe { library.get::<Set>(b"cuMemsetD32Async") }?;
    // SAFETY: `CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t)`.
    let to_device = *unsafe { library.get::<ToDevice>(b"cuMemcpyHtoD_v2") }?;
    // SAFETY: `CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t)`.
    let to_host = *unsafe { library.get::<ToHost>(b"cuMemcpyDtoH_v2") }?;
    // SAFETY: `CUresult cuCtxSynchronize(void)`.
    let synchronize = *unsafe { library.get::<Synchronize>(b"cuCtxSynchronize") }?;

    // Something at least: a page for none.
    let bytes = (kib << 10).max(4096);
    let mut device = 0;
    // SAFETY: a live place for the address.
    done("cuMemAlloc", unsafe { alloc(&raw mut device, bytes) })?;
    // SAFETY: no preconditions.
    let wait = || done("cuCtxSynchronize", unsafe { synchronize() });

    let (mut free, mut total) = (0, 0);
    let mut round_trips = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        // SAFETY: live places for both.
        done("cuMemGetInfo", unsafe { info(&raw mut free, &raw mut total) })?;
        round_trips.push(nanoseconds(start));
    }
    let mut submissions = Vec::with_capacity(calls);
    let all = Instant::now();
    for value in 0..calls {
        let start = Instant::now();
        // SAFETY: the word is the first of the allocation.
        let status = unsafe { set(device, value as c_uint, 1, std::ptr::null_mut()) };
        done("cuMemsetD32Async", status)?;
        submissions.push(nanoseconds(start));
    }
    wait()?;
    let carried_out = rate(calls, all);

    let source: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let mut back = vec![1_u8; bytes];
    // Once for nothing: pages and staging.
    let mut rates = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let start = Instant::now();
        // SAFETY: as many bytes as the source and the allocation have.
        done("cuMemcpyHtoD", unsafe { to_device(device, source.as_ptr().cast(), bytes) })?;
        wait()?;
        rates.0.push(rate(bytes, start) / 1e9);
        let start = Instant::now();
        // SAFETY: as many bytes as the allocation and the target have.
        done("cuMemcpyDtoH", unsafe { to_host(back.as_mut_ptr().cast(), device, bytes) })?;
        rates.1.push(rate(bytes, start) / 1e9);
    }
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    println!(
        "{}",
        json!({
            "round_trip_ns": percentiles(round_trips),
            "submit_ns": percentiles(submissions),
            "submissions_per_second": carried_out,
            "to_device_gb_s": best(&rates.0),
            "from_device_gb_s": best(&rates.1),
            "same": back == source,
        })
    );
    Ok(ExitCode::SUCCESS)
}
