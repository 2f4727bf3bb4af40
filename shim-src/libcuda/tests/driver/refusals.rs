//! Why code is refused: the host's explanation reaches the guest's log and the JIT logs that programs ask
//! for, and bytes that are not code at all are refused by the call that receives them.

use std::ffi::CStr;
use std::ptr;

use vgpu_abi::driver::{CUmodule, CUstream};

use crate::host::{Host, finish, is_guest, soft};
use vgpu_conformance::calls::*;

const NO_STREAM: CUstream = CUstream(0);

fn device() -> vgpu_device::DeviceConfig {
    soft("0000:00:05.0", |_| ())
}

/// Runs `guest` with a log, and returns what it wrote there.
fn logged(name: &str, level: &str, guest: impl FnOnce()) -> Option<String> {
    if is_guest(name) {
        guest();
        return None;
    }
    let host = Host::serve(vec![device()]);
    let log = host.path().join("log");
    let environment = [("VGPU_LOG", level), ("VGPU_LOG_FILE", log.to_str().unwrap())];
    finish(host.guest(name, &environment).spawn().unwrap());
    Some(std::fs::read_to_string(log).unwrap())
}

#[test]
fn the_log_says_why_a_kernel_is_refused() {
    let log = logged("refusals::the_log_says_why_a_kernel_is_refused", "error", || {
        begin();
        let module = get!(CUmodule, cuModuleLoadData(WRONG.as_ptr().cast()));
        assert_eq!(launch(function(module, "fine"), NO_STREAM, &mut []), 0);
        let wrong = function(module, "wrong");
        let before = counters();
        assert_eq!(launch(wrong, NO_STREAM, &mut []), 218, "CUDA_ERROR_INVALID_PTX");
        let asked = counters().round_trips - before.round_trips;
        assert_eq!(launch(wrong, NO_STREAM, &mut []), 218);
        assert_eq!(
            (asked, counters().round_trips - before.round_trips),
            (1, 1),
            "asked once and never again"
        );
    });
    let Some(log) = log else { return };
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("frobnicate")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("FunctionGet is refused with") && lines[0].contains("wrong"), "{log}");
}

/// A kernel that writes to the address that it is given.
const WRITES: &CStr = c".version 7.0
.target sm_50
.address_size 64
.visible .entry _Z5writePi(.param .u64 to) {
    .reg .u64 %rd<2>;
    ld.param.u64 %rd1, [to];
    st.global.u32 [%rd1], 7;
    ret;
}
";

/// Launches a kernel that writes where it must not, and returns the lines of the log.
fn log_of_fault(name: &str, pinned: bool) -> Option<String> {
    logged(name, "error", || {
        begin();
        let module = get!(CUmodule, cuModuleLoadData(WRITES.as_ptr().cast()));
        let mut host = ptr::null_mut();
        ok!(cuMemAllocHost_v2(&raw mut host, 8192));
        let mut to = if pinned { host.addr() as u64 + 16 } else { 16 };
        let write = function(module, "_Z5writePi");
        assert_eq!(launch(write, NO_STREAM, &mut [(&raw mut to).cast()]), 0);
        assert_eq!(cu!(cuCtxSynchronize()), 700, "CUDA_ERROR_ILLEGAL_ADDRESS");
        assert_eq!(cu!(cuCtxSynchronize()), 700);
    })
}

#[test]
fn the_log_says_where_a_kernel_faulted() {
    let Some(log) = log_of_fault("refusals::the_log_says_where_a_kernel_faulted", false) else { return };
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("stays")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in ["writePi", "illegal write at 0x10", "line 7", "block (0, 0, 0)"] {
        assert!(lines[0].contains(part), "no {part}: {log}");
    }
    assert!(!log.contains("pinned"), "{log}");
}

#[test]
fn the_log_names_pinned_memory_that_a_kernel_accessed() {
    let name = "refusals::the_log_names_pinned_memory_that_a_kernel_accessed";
    let Some(log) = log_of_fault(name, true) else { return };
    assert!(log.contains("8192 bytes of pinned host memory"), "{log}");
    assert!(log.contains("kernels cannot reach pinned host memory here"), "{log}");
}

/// Tests compiled code on a device that accepts none.
#[test]
fn the_log_says_that_compiled_code_cannot_run() {
    let log = logged("refusals::the_log_says_that_compiled_code_cannot_run", "error", || {
        begin();
        let cubin = vgpu_image::cubin::build::cubin(&[("k".to_owned(), Vec::new(), false)], 61);
        assert_eq!(fails!(CUmodule, cuModuleLoadData(cubin.as_ptr().cast())), 209, "NO_BINARY_FOR_GPU");
    });
    let Some(log) = log else { return };
    assert!(log.contains("compiled code cannot run here; PTX is needed"), "{log}");
    assert!(log.contains("the image has cubin 61"), "{log}");
}

/// Tests that code with a managed variable is refused and that the log names the variable.
#[test]
fn the_log_names_a_managed_variable() {
    const SHARED: &CStr = c".version 7.0
.target sm_50
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 counter;
.visible .entry fine() { ret; }
";
    let log = logged("refusals::the_log_names_a_managed_variable", "error", || {
        begin();
        let sent = messages(|| {
            assert_eq!(fails!(CUmodule, cuModuleLoadData(SHARED.as_ptr().cast())), 801, "NOT_SUPPORTED");
        });
        assert_eq!(sent, 0);
    });
    let Some(log) = log else { return };
    assert!(log.contains("variable counter is __managed__"), "{log}");
}

/// Asks three times for a private table of NVIDIA's.
fn ask_for(table: &[u8; 16]) {
    for _ in 0..3 {
        let mut found = ptr::null();
        assert_eq!(cu!(cuGetExportTable(&raw mut found, ptr::from_ref(table))), 500, "CUDA_ERROR_NOT_FOUND");
    }
}

/// Id of the private table that NVRTC asks for.
static NVRTC: [u8; 16] =
    [0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28];

/// Tests that NVRTC's request for a table is not logged as a warning, which would mislead, because NVRTC
/// compiles without the table.
#[test]
fn nvrtc_is_not_warned_of() {
    let log = logged("refusals::nvrtc_is_not_warned_of", "info", || ask_for(&NVRTC));
    let Some(log) = log else { return };
    assert!(!log.contains("private"), "{log}");
}

#[test]
fn the_log_names_an_unknown_export_table_once() {
    static TABLE: [u8; 16] =
        [0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec, 0xdc];
    let log = logged("refusals::the_log_names_an_unknown_export_table_once", "warn", || {
        ask_for(&NVRTC);
        ask_for(&TABLE);
    });
    let Some(log) = log else { return };
    assert_eq!(log.matches("42d85a81-23f6-cb47-8298-f6e78a3aecdc").count(), 1, "{log}");
    assert!(log.contains("statically linked CUDA runtime"), "{log}");
}
