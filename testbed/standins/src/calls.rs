//! Measures single calls of the runtime API: how many launches a second the device accepts and completes, and
//! how long a synchronize takes after a copy from the device.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::process::ExitCode;
use std::ptr::{from_ref, null_mut};
use std::time::Instant;

use anyhow::{Context, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use serde_json::json;

use crate::driver::{Code, Handle, done};
use crate::percentiles::{nanoseconds, percentiles};

/// The type `dim3` of the runtime API.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

type RegisterFatBinary = unsafe extern "C" fn(*const Wrapper) -> *mut Handle;
type RegisterFunction = unsafe extern "C" fn(
    *mut Handle,
    *const c_char,
    *const c_char,
    *const c_char,
    c_int,
    Handle,
    Handle,
    Handle,
    Handle,
    Handle,
);
type RegisterEnd = unsafe extern "C" fn(*mut Handle);
type Malloc = unsafe extern "C" fn(*mut Handle, usize) -> Code;
type StreamCreate = unsafe extern "C" fn(*mut Handle, u32) -> Code;
type Launch = unsafe extern "C" fn(*const c_void, Dim3, Dim3, *mut Handle, usize, Handle) -> Code;
type CopyAsync = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int, Handle) -> Code;
type Synchronize = unsafe extern "C" fn(Handle) -> Code;

/// Flag `cudaStreamNonBlocking`; the constant below is `cudaMemcpyDeviceToHost`.
const NON_BLOCKING: u32 = 1;
const TO_HOST: c_int = 2;
/// Number of the kernel's parameters. Their total size is typical for kernels of language models.
const PARAMETERS: usize = 13;

/// PTX of a kernel that does nothing.
const PTX: &CStr = c".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry hundred(\n\
    .param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u64 p4, .param .u64 p5,\n\
    .param .u64 p6, .param .u64 p7, .param .u64 p8, .param .u64 p9, .param .u64 p10, .param .u64 p11,\n\
    .param .u32 p12\n)\n{\nret;\n}\n";

/// Record that compilers pass to `__cudaRegisterFatBinary`.
#[repr(C)]
struct Wrapper {
    magic: u32,
    version: u32,
    data: *const u8,
    rest: *const c_void,
}

/// Returns a fat binary container with the kernel's PTX as its only entry.
fn container() -> Vec<u8> {
    let mut text = PTX.to_bytes_with_nul().to_vec();
    text.resize(text.len().next_multiple_of(8), 0);
    let bytes = text.len() as u64;
    let mut container = Vec::new();
    // The container: magic, version 1, 16 bytes of header, size of the entry.
    container.extend(0xba55_ed50_u32.to_le_bytes());
    container.extend([1_u16, 16].map(u16::to_le_bytes).concat());
    container.extend((64 + bytes).to_le_bytes());
    // The entry: PTX, 64 bytes of header, size of the text, PTX 7.0 for compute capability 5.0, 64 bits.
    container.extend([1_u16, 0x101].map(u16::to_le_bytes).concat());
    container.extend(64_u32.to_le_bytes());
    container.extend(bytes.to_le_bytes());
    container.extend([0_u32; 2].map(u32::to_le_bytes).concat());
    container.extend([0_u16, 7].map(u16::to_le_bytes).concat());
    container.extend([50_u32, 0, 0].map(u32::to_le_bytes).concat());
    container.extend([0x11_u64, 0, 0].map(u64::to_le_bytes).concat());
    container.extend(text);
    container
}

/// Prints the seconds of each of `rounds` rounds of `launches` launches, until the device has completed all
/// of them, and the nanoseconds of each of `calls` synchronizes after a copy of 4 bytes from the device.
pub fn measure(launches: usize, rounds: usize, calls: usize) -> Result<ExitCode> {
    // SAFETY: the library's initialisers are those that any user of it runs.
    let library = unsafe { Library::open(Some("libcudart.so.12"), RTLD_NOW | RTLD_GLOBAL) };
    let library = library.context("load libcudart.so.12")?;
    // SAFETY: what compilers generate calls: `void **__cudaRegisterFatBinary(void *)`.
    let register = *unsafe { library.get::<RegisterFatBinary>(b"__cudaRegisterFatBinary") }?;
    // SAFETY: `void __cudaRegisterFunction(void **, const char *, char *, const char *, int, uint3 *, uint3
    // *, dim3 *, dim3 *, int *)`.
    let function = *unsafe { library.get::<RegisterFunction>(b"__cudaRegisterFunction") }?;
    // SAFETY: `void __cudaRegisterFatBinaryEnd(void **)`.
    let end = *unsafe { library.get::<RegisterEnd>(b"__cudaRegisterFatBinaryEnd") }?;
    // SAFETY: cuda_runtime_api.h: `cudaError_t cudaMalloc(void **, size_t)`.
    let malloc = *unsafe { library.get::<Malloc>(b"cudaMalloc") }?;
    // SAFETY: `cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned int)`.
    let create = *unsafe { library.get::<StreamCreate>(b"cudaStreamCreateWithFlags") }?;
    // SAFETY: `cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t)`.
    let launch = *unsafe { library.get::<Launch>(b"cudaLaunchKernel") }?;
    // SAFETY: `cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t)`.
    let copy = *unsafe { library.get::<CopyAsync>(b"cudaMemcpyAsync") }?;
    // SAFETY: `cudaError_t cudaStreamSynchronize(cudaStream_t)`.
    let synchronize = *unsafe { library.get::<Synchronize>(b"cudaStreamSynchronize") }?;

    let container = container();
    let wrapper =
        Wrapper { magic: 0x4662_43b1, version: 1, data: container.as_ptr(), rest: std::ptr::null() };
    // The record's address serves as the kernel's name in this process.
    let host = from_ref(&wrapper).cast::<c_void>();
    // SAFETY: wrapper and container live to the end of the measurement, which is the last that launches.
    let handle = unsafe { register(&raw const wrapper) };
    let name = c"hundred".as_ptr();
    let none: Handle = null_mut();
    // SAFETY: the handle of the registration, an address of ours, and texts that live as long as the program.
    unsafe { function(handle, host.cast(), name, name, -1, none, none, none, none, none) };
    // SAFETY: the handle of the registration.
    unsafe { end(handle) };

    let mut stream = null_mut();
    // SAFETY: a live place for the stream.
    done("cudaStreamCreateWithFlags", unsafe { create(&raw mut stream, NON_BLOCKING) })?;
    let mut device = null_mut();
    // SAFETY: a live place for the address.
    done("cudaMalloc", unsafe { malloc(&raw mut device, 4096) })?;
    let mut parameters = [0_u64; PARAMETERS];
    let mut arguments = parameters.each_mut().map(|parameter| std::ptr::from_mut(parameter).cast::<c_void>());
    let (grid, block) = (Dim3 { x: 108, y: 1, z: 1 }, Dim3 { x: 256, y: 1, z: 1 });
    let mut one = || {
        // SAFETY: a registered kernel, and a place for each of its parameters.
        done("cudaLaunchKernel", unsafe { launch(host, grid, block, arguments.as_mut_ptr(), 0, stream) })
    };
    let mut word = 0_u32;
    // A synchronize alone need not wait; one after a copy to ordinary memory does, for all work before it.
    let mut finish = || {
        let to = (&raw mut word).cast();
        // SAFETY: 4 bytes of the allocation, and a word that lives longer than the copy.
        done("cudaMemcpyAsync", unsafe { copy(to, device, 4, TO_HOST, stream) })?;
        // SAFETY: the stream that was created.
        done("cudaStreamSynchronize", unsafe { synchronize(stream) })
    };

    // The first launch sends the code.
    one()?;
    finish()?;
    let mut seconds = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        for _ in 0..launches {
            one()?;
        }
        finish()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let mut waits = Vec::with_capacity(calls);
    for _ in 0..calls {
        let start = Instant::now();
        finish()?;
        waits.push(nanoseconds(start));
    }
    println!(
        "{}",
        json!({ "launches": launches, "launches_s": seconds, "synchronize_ns": percentiles(waits) })
    );
    Ok(ExitCode::SUCCESS)
}
