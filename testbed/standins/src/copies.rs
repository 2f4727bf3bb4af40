//! Copies pageable memory of the size of a model to the device, tensor by tensor as GGML loads one, and back,
//! and compares the times with memcpy of the same bytes: between the same pages of this process, and between
//! them and pinned memory in the window, where the buffers of uploads lie, and those of downloads without
//! guest pages. If the second is slow, so is the machine's memory, whatever copies it.

use std::ffi::{c_int, c_void};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use serde_json::json;

/// Handle `cudaStreamPerThread` of the stream on which GGML copies tensors.
const PER_THREAD: usize = 2;
/// Direction `cudaMemcpyHostToDevice`; the constant below is `cudaMemcpyDeviceToHost`.
const TO_DEVICE: c_int = 1;
const TO_HOST: c_int = 2;

type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type MallocHost = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type CopyAsync = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int, usize) -> c_int;
type StreamSynchronize = unsafe extern "C" fn(usize) -> c_int;
type DeviceSynchronize = unsafe extern "C" fn() -> c_int;

/// Maximum number of bytes of shared memory, which memcpy uses one part after the other. The caches of a
/// server may hold all of it.
const SHARED: usize = 64 << 20;

fn done(what: &str, status: c_int) -> Result<()> {
    if status != 0 {
        bail!("{what} returned {status}");
    }
    Ok(())
}

/// Returns the sizes in bytes of the tensors of Llama 3.2 1B in Q8_0 (blocks of 32 weights in 34 bytes), in
/// the order of the file, up to `bytes` in total: 146 tensors, then as much of the embedding table as fits.
fn tensors(bytes: usize) -> Vec<usize> {
    let q8 = |columns: usize, rows: usize| columns / 32 * 34 * rows;
    let norm = 2048 * 4;
    let layer = [
        norm,
        q8(2048, 8192),
        q8(2048, 8192),
        q8(2048, 8192),
        norm,
        q8(2048, 512),
        q8(2048, 2048),
        q8(2048, 2048),
        q8(2048, 512),
    ];
    let mut sizes: Vec<usize> = std::iter::repeat_n(layer, 16).flatten().collect();
    sizes.extend([norm, usize::MAX]);
    let mut left = bytes;
    for size in &mut sizes {
        *size = left.min(*size);
        left -= *size;
    }
    sizes.retain(|&size| size != 0);
    sizes
}

/// Returns memory with mapped pages and pseudorandom content of a long period.
fn present(bytes: usize, seed: u64) -> Vec<u64> {
    let mut state = seed;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    };
    std::iter::repeat_with(next).take(bytes / 8).collect()
}

/// Calls `work` for each tensor with its offset and size, and returns the seconds that all calls took.
fn time(sizes: &[usize], mut work: impl FnMut(usize, usize) -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    let mut at = 0;
    for &size in sizes {
        work(at, size)?;
        at += size;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Prints the seconds of `rounds` rounds of memcpy, copies to the device, and copies from the device, and
/// whether all data returned unchanged. A copy has `kib` KiB, or the size of a tensor.
pub fn measure(mib: usize, rounds: usize, kib: Option<usize>) -> Result<ExitCode> {
    let bytes = mib << 20;
    // SAFETY: the library's initialisers are those that any user of it runs.
    let library = unsafe { Library::open(Some("libcudart.so.12"), RTLD_NOW | RTLD_GLOBAL) };
    let library = library.context("load libcudart.so.12")?;
    // SAFETY: cuda_runtime_api.h: `cudaError_t cudaMalloc(void **, size_t)`.
    let malloc = *unsafe { library.get::<Malloc>(b"cudaMalloc") }?;
    // SAFETY: `cudaError_t cudaMallocHost(void **, size_t)`.
    let malloc_host = *unsafe { library.get::<MallocHost>(b"cudaMallocHost") }?;
    // SAFETY: `cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t)`.
    let copy = *unsafe { library.get::<CopyAsync>(b"cudaMemcpyAsync") }?;
    // SAFETY: `cudaError_t cudaStreamSynchronize(cudaStream_t)`.
    let synchronize = *unsafe { library.get::<StreamSynchronize>(b"cudaStreamSynchronize") }?;
    // SAFETY: `cudaError_t cudaDeviceSynchronize(void)`.
    let finish = *unsafe { library.get::<DeviceSynchronize>(b"cudaDeviceSynchronize") }?;

    let mut device = std::ptr::null_mut();
    // SAFETY: a live place for the address.
    done("cudaMalloc", unsafe { malloc(&raw mut device, bytes) })?;
    let sizes = kib.map_or_else(|| tensors(bytes), |kib| vec![kib << 10; (mib << 10) / kib]);
    let shared_bytes = SHARED.min(bytes);
    let pieces: Vec<usize> = sizes
        .iter()
        .flat_map(|&size| (0..size).step_by(shared_bytes).map(move |at| shared_bytes.min(size - at)))
        .collect();
    let mut shared = std::ptr::null_mut();
    // SAFETY: a live place for the address.
    done("cudaMallocHost", unsafe { malloc_host(&raw mut shared, shared_bytes) })?;
    let shared = shared.cast::<u8>();
    // The part of the shared memory for a piece, one after the other.
    let part = |at: usize, size: usize| {
        let offset = at % shared_bytes;
        shared.wrapping_add(if offset + size > shared_bytes { 0 } else { offset })
    };
    // SAFETY: the memory has that many bytes. Writing it gives it its pages.
    unsafe { shared.write_bytes(1, shared_bytes) };
    let source = present(bytes, 1);
    let mut target = present(bytes, 2);
    let (from, to) = (source.as_ptr().cast::<u8>(), target.as_mut_ptr().cast::<u8>());
    let on_device = |at: usize| device.wrapping_byte_add(at);
    let to_device = || {
        time(&sizes, |at, size| {
            // SAFETY: `at` and `size` are a part of the source, and of the device memory.
            let status =
                unsafe { copy(on_device(at), from.wrapping_add(at).cast(), size, TO_DEVICE, PER_THREAD) };
            done("cudaMemcpyAsync to the device", status)?;
            // SAFETY: a stream that always is.
            done("cudaStreamSynchronize", unsafe { synchronize(PER_THREAD) })
        })
    };
    let to_host = || {
        time(&sizes, |at, size| {
            // SAFETY: `at` and `size` are a part of the device memory, and of the target.
            let status =
                unsafe { copy(to.wrapping_add(at).cast(), on_device(at), size, TO_HOST, PER_THREAD) };
            done("cudaMemcpyAsync from the device", status)?;
            // SAFETY: a stream that always is.
            done("cudaStreamSynchronize", unsafe { synchronize(PER_THREAD) })
        })
    };
    // Once for nothing: the device's memory and the staging area get their pages.
    to_device()?;
    let [mut memcpy, mut shared_in, mut shared_out, mut up, mut down] = [const { Vec::new() }; 5];
    let mut same = true;
    for _ in 0..rounds {
        memcpy.push(time(&sizes, |at, size| {
            // SAFETY: `at` and `size` are a part of the source, and of the target, which are apart.
            unsafe { std::ptr::copy_nonoverlapping(from.wrapping_add(at), to.wrapping_add(at), size) };
            Ok(())
        })?);
        shared_in.push(time(&pieces, |at, size| {
            // SAFETY: `at` and `size` are a part of the source; the shared memory has a part of the size.
            unsafe { std::ptr::copy_nonoverlapping(from.wrapping_add(at), part(at, size), size) };
            Ok(())
        })?);
        shared_out.push(time(&pieces, |at, size| {
            // SAFETY: the shared memory has a part of the size; `at` and `size` are a part of the target.
            unsafe { std::ptr::copy_nonoverlapping(part(at, size), to.wrapping_add(at), size) };
            Ok(())
        })?);
        let start = Instant::now();
        to_device()?;
        // SAFETY: no preconditions.
        done("cudaDeviceSynchronize", unsafe { finish() })?;
        up.push(start.elapsed().as_secs_f64());
        // SAFETY: the target is as long as that, and nothing uses it.
        unsafe { to.write_bytes(0, bytes) };
        down.push(to_host()?);
        same &= target == source;
    }
    println!(
        "{}",
        json!({
            "bytes": bytes,
            "copies": sizes.len(),
            "memcpy_s": memcpy,
            "memcpy_to_shared_s": shared_in,
            "memcpy_from_shared_s": shared_out,
            "to_device_s": up,
            "from_device_s": down,
            "same": same,
        })
    );
    Ok(ExitCode::SUCCESS)
}
