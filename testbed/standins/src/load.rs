//! Measures what it takes to load code: from `cuModuleLoadData` of PTX text to the end of a kernel's first
//! launch.

use std::ffi::{c_char, c_uint, c_void};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::ptr;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use crate::driver::{Handle, done, functions};
use crate::percentiles::{nanoseconds, percentiles};

functions! {
    alloc = "cuMemAlloc_v2"(*mut u64, usize);
    to_host = "cuMemcpyDtoH_v2"(*mut c_void, u64, usize);
    load = "cuModuleLoadData"(*mut Handle, *const c_void);
    unload = "cuModuleUnload"(Handle);
    function = "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
    launch = "cuLaunchKernel"(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void
    );
}

/// Returns PTX text of about `bytes` bytes with kernels of a kilobyte each, and a zero at its end. `number`
/// distinguishes texts.
fn text(bytes: usize, number: usize) -> String {
    let mut text = String::from(".version 6.0\n.target sm_50\n.address_size 64\n");
    let body = "\tadd.u32 %r1, %r1, 0000000000000007;\n".repeat(20);
    let mut index = 0;
    while text.len() < bytes {
        // Writing into a text does not fail.
        let _ = write!(
            text,
            ".visible .entry kernel{index}()\n{{\n\t.reg .b32 %r<2>;\n\tmov.u32 %r1, {number};\n{body}\tret;\n}}\n"
        );
        index += 1;
    }
    text.push('\0');
    text
}

/// Loads, launches and unloads a module of `kib` KiB `rounds` times, and prints the times of two steps: until
/// the call that loads has returned, and until the first launch has ended.
pub fn measure(kib: usize, rounds: usize) -> Result<ExitCode> {
    let cuda = Cuda::begin()?;
    let mut device = 0;
    // SAFETY: a live place for the address.
    done("cuMemAlloc", unsafe { (cuda.alloc)(&raw mut device, 4096) })?;
    let (mut loads, mut launches, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let text = text(kib << 10, round);
        let mut other = vec![0_u8; text.len()];
        let start = Instant::now();
        other.copy_from_slice(text.as_bytes());
        let copied = nanoseconds(start);
        let (mut module, mut kernel) = (ptr::null_mut(), ptr::null_mut());
        let none = ptr::null_mut();
        let start = Instant::now();
        // SAFETY: a live place for the module; the text ends with a zero.
        done("cuModuleLoadData", unsafe { (cuda.load)(&raw mut module, text.as_ptr().cast()) })?;
        let loaded = nanoseconds(start);
        // SAFETY: a live place for the function, of the module that was just loaded.
        let got = unsafe { (cuda.function)(&raw mut kernel, module, c"kernel0".as_ptr()) };
        done("cuModuleGetFunction", got)?;
        // SAFETY: the kernel has no parameters and is loaded.
        let launched = unsafe { (cuda.launch)(kernel, 1, 1, 1, 1, 1, 1, 0, ptr::null_mut(), none, none) };
        done("cuLaunchKernel", launched)?;
        let mut word = [0_u8; 4];
        // SAFETY: a live place for the word, and the start of the allocation.
        done("cuMemcpyDtoH", unsafe { (cuda.to_host)(word.as_mut_ptr().cast(), device, word.len()) })?;
        let ended = nanoseconds(start);
        // SAFETY: the module is loaded, and nothing uses it.
        done("cuModuleUnload", unsafe { (cuda.unload)(module) })?;
        // The first round also starts the session and its worker.
        if round > 0 {
            loads.push(loaded);
            launches.push(ended);
            copies.push(copied);
        }
    }
    println!(
        "{}",
        json!({
            "kib": kib,
            "loaded_ns": percentiles(loads),
            "launched_ns": percentiles(launches),
            "memcpy_ns": percentiles(copies),
        })
    );
    Ok(ExitCode::SUCCESS)
}
