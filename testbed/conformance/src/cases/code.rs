//! Code that is refused: the compiler's logs say why, and bytes that are not code at all are refused by the
//! call that receives them.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr;

use vgpu_abi::driver::{CUlibrary, CUmodule};

use crate::calls::*;
use crate::case::{Case, cases};

pub const CASES: &[Case] = cases!["code": the_compilers_logs_are_filled, what_is_no_code_is_refused_at_once];

/// Loads code with logs of so many bytes, as `CU_JIT_ERROR_LOG_BUFFER` or the info log is filled: status,
/// info, error.
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

fn the_compilers_logs_are_filled() {
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
}

fn what_is_no_code_is_refused_at_once() {
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
}
