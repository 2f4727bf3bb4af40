//! Why code is refused: the host's explanation reaches the guest's log and the JIT logs that programs ask
//! for, and bytes that are not code at all are refused by the call that receives them.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr;

use vgpu_abi::driver::{CUlibrary, CUmodule, CUstream};

use crate::cuda::*;
use crate::host::{Host, finish, is_guest, soft, with_device};

const NO_STREAM: CUstream = CUstream(0);

/// A kernel with an instruction that there is not, beside one that is right.
const WRONG: &CStr = c".version 7.0
.target sm_50
.address_size 64
.visible .entry fine() { ret; }
.visible .entry wrong() { frobnicate.u32 %r1, 7; ret; }
";

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

/// A log of so many bytes, as `CU_JIT_ERROR_LOG_BUFFER` or the info log is filled: status, info, error.
fn compile(image: &CStr, room: usize) -> (Status, String, String) {
    let (mut info, mut error) = (vec![0x55_u8; 2000], vec![0x55_u8; 2000]);
    let mut options: [c_uint; 4] = [3, 4, 5, 6];
    let size = || ptr::without_provenance_mut::<c_void>(room);
    let mut values = [info.as_mut_ptr().cast(), size(), error.as_mut_ptr().cast(), size()];
    let mut module = CUmodule::NULL;
    let status = cu!(cuModuleLoadDataEx(
        &raw mut module,
        image.as_ptr().cast(),
        4,
        options.as_mut_ptr(),
        values.as_mut_ptr()
    ));
    let text = |log: &[u8], size: *mut c_void| {
        let text = CStr::from_bytes_until_nul(log).unwrap().to_str().unwrap().to_owned();
        assert_eq!((size.addr(), log[room]), (text.len(), 0x55), "the size is stored and the room kept to");
        text
    };
    (status, text(&info, values[1]), text(&error, values[3]))
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

/// What the log says of a launch that writes where it must not.
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

/// Compiled code on a device that takes none.
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

/// There is no managed memory, so there are no variables in it.
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

#[test]
fn the_compilers_logs_are_filled() {
    with_device("refusals::the_compilers_logs_are_filled", device, || {
        begin();
        let (status, info, error) = compile(WRONG, 1500);
        assert_eq!((status, info.as_str()), (218, ""));
        assert!(error.contains("frobnicate") && error.contains("wrong"), "{error}");
        let (status, _, cut) = compile(WRONG, 9);
        assert_eq!((status, cut.as_str()), (218, &error[..8]));
        let (status, info, error) = compile(PTX, 1500);
        assert_eq!((status, error.as_str()), (0, ""));
        assert!(!info.is_empty());
        let (status, _, error) = compile(c"no code", 1500);
        assert_eq!(status, 200);
        assert!(error.contains("does not begin with .version"), "{error}");

        // The same for a library, in the context that is current.
        let mut log = [0x55_u8; 600];
        let mut options: [c_uint; 2] = [5, 6];
        let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut::<c_void>(log.len())];
        let mut library = CUlibrary::NULL;
        let status = cu!(cuLibraryLoadData(
            &raw mut library,
            WRONG.as_ptr().cast(),
            options.as_mut_ptr(),
            values.as_mut_ptr(),
            2,
            ptr::null_mut(),
            ptr::null_mut(),
            0
        ));
        let text = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
        assert!(status == 218 && text.contains("frobnicate"), "{status} {text}");
    });
}

#[test]
fn what_is_no_code_is_refused_at_once() {
    with_device("refusals::what_is_no_code_is_refused_at_once", device, || {
        begin();
        let sent = messages(|| {
            for (image, code) in [
                (c"", 200),
                (c"hello", 200),
                (c"#include <cuda.h>\n__global__ void k() {}", 200),
                (c".entry k() { ret; }", 200),
                (c".version", 218),
                (c".version 7.0\n.target sm_50\nhello", 218),
                (c".version 7.0\n.target sm_50\n.entry k() { ret;", 218),
            ] {
                assert_eq!(fails!(CUmodule, cuModuleLoadData(image.as_ptr().cast())), code, "{image:?}");
                let nothing = ptr::null_mut();
                let library = fails!(
                    CUlibrary,
                    cuLibraryLoadData(
                        image.as_ptr().cast(),
                        ptr::null_mut(),
                        ptr::null_mut(),
                        0,
                        ptr::null_mut(),
                        nothing,
                        0
                    )
                );
                assert_eq!(library, code, "{image:?}");
            }
        });
        assert_eq!(sent, 0);
    });
}

/// Asks three times for a private table of NVIDIA's.
fn ask_for(table: &[u8; 16]) {
    for _ in 0..3 {
        let mut found = ptr::null();
        assert_eq!(cu!(cuGetExportTable(&raw mut found, ptr::from_ref(table))), 500, "CUDA_ERROR_NOT_FOUND");
    }
}

/// The table that NVRTC asks for.
static NVRTC: [u8; 16] =
    [0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28];

/// NVRTC asks for a table and compiles without it: a warning would mislead.
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
