//! The driver's linker: inputs become an image that the program has and can load.

use std::ffi::{CString, c_char, c_uint, c_void};
use std::ptr;

use vgpu_abi::driver::{CUlinkState, CUmodule, CUstream};

use crate::calls::*;
use crate::case::{Case, cases};

pub const CASES: &[Case] = cases![
    "links":
    functions_and_variables_of_two_texts_become_one_module,
    what_cannot_be_linked_is_refused_in_words,
    long_images_are_read_in_pieces,
];

const PTX: c_uint = 1;

/// PTX of a kernel that stores `twice(thread) + bias` for each thread; another text must define both.
pub const CALLER: &str = ".version 7.0
.target sm_50
.address_size 64
.extern .func (.param .b32 answer) twice(.param .b32 number);
.extern .global .align 4 .u32 bias;
.visible .entry kernel(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    {
    .param .b32 param0;
    st.param.b32 [param0+0], %r1;
    .param .b32 retval0;
    call.uni (retval0), twice, (param0);
    ld.param.b32 %r2, [retval0+0];
    }
    ld.global.u32 %r3, [bias];
    add.s32 %r2, %r2, %r3;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd1, %rd1, %rd3;
    st.global.u32 [%rd1], %r2;
    ret;
}
";

/// Doubles small numbers.
const CALLEE: &str = ".version 7.1
.target sm_50
.address_size 64
.visible .global .align 4 .u32 bias = 5;
.visible .func (.param .b32 answer) twice(.param .b32 number)
{
    .reg .b32 %r<3>;
    .reg .pred %p;
    ld.param.u32 %r1, [number];
    setp.lt.u32 %p, %r1, 3;
    @%p bra SMALL;
    st.param.b32 [answer+0], %r1;
    ret;
SMALL:
    add.s32 %r2, %r1, %r1;
    st.param.b32 [answer+0], %r2;
    ret;
}
";

fn create() -> CUlinkState {
    let mut state = CUlinkState::default();
    ok!(cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), &raw mut state));
    state
}

fn add(state: CUlinkState, kind: c_uint, data: &[u8], name: *const c_char) -> Status {
    let (none, nothing) = (ptr::null_mut(), ptr::null_mut());
    cu!(cuLinkAddData_v2(state, kind, data.as_ptr().cast_mut(), data.len(), name, 0, none, nothing))
}

fn complete(state: CUlinkState) -> Result<Vec<u8>, Status> {
    let (mut image, mut bytes) = (ptr::null_mut::<c_void>(), 0);
    match cu!(cuLinkComplete(state, &raw mut image, &raw mut bytes)) {
        // SAFETY: the driver answers an image of so many bytes.
        0 => Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec()),
        error => Err(error),
    }
}

/// Runs the kernel of an image: what 8 threads store.
fn run_kernel(image: &[u8]) -> Vec<u32> {
    let module = get!(CUmodule, cuModuleLoadData(image.as_ptr().cast()));
    let mut out = alloc(32);
    let mut params = [(&raw mut out).cast::<c_void>()];
    let kernel = function(module, "kernel");
    assert_eq!(
        cu!(cuLaunchKernel(kernel, 1, 1, 1, 8, 1, 1, 0, CUstream(0), params.as_mut_ptr(), ptr::null_mut())),
        0
    );
    let stored =
        download(out, 32).chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    ok!(cuMemFree_v2(out));
    ok!(cuModuleUnload(module));
    stored
}

fn functions_and_variables_of_two_texts_become_one_module() {
    begin();
    let expected = [5, 7, 9, 8, 9, 10, 11, 12];
    let state = create();
    // With its zero, and without.
    let caller = CString::new(CALLER).unwrap();
    assert_eq!(add(state, PTX, caller.as_bytes_with_nul(), c"caller.ptx".as_ptr()), 0);
    assert_eq!(add(state, PTX, CALLEE.as_bytes(), ptr::null()), 0);
    let image = complete(state).unwrap();
    assert_eq!(complete(state).unwrap(), image, "asked again, it is the same");
    assert_eq!(add(state, PTX, CALLEE.as_bytes(), ptr::null()), 1, "it is complete");
    assert_eq!(run_kernel(&image), expected);
    ok!(cuLinkDestroy(state));
    assert_eq!(run_kernel(&image), expected, "a copy of the image outlives the link");
    assert_eq!(cu!(cuLinkDestroy(state)), 400);
    // From a file, and by the old names.
    let file = std::env::temp_dir().join(format!("vgpu-link-{}.ptx", std::process::id()));
    std::fs::write(&file, CALLEE).unwrap();
    let path = CString::new(file.to_str().unwrap()).unwrap();
    let mut state = CUlinkState::default();
    ok!(cuLinkCreate(0, ptr::null_mut(), ptr::null_mut(), &raw mut state));
    let add_file =
        |path: &CString| cu!(cuLinkAddFile(state, PTX, path.as_ptr(), 0, ptr::null_mut(), ptr::null_mut()));
    assert_eq!(add_file(&path), 0);
    std::fs::remove_file(file).unwrap();
    assert_eq!(add_file(&path), 301);
    assert_eq!(add(state, PTX, CALLER.as_bytes(), ptr::null()), 0);
    assert_eq!(run_kernel(&complete(state).unwrap()), expected);
    ok!(cuLinkDestroy(state));
}

/// Options 5 and 6 ask for what the linker says of errors.
fn what_cannot_be_linked_is_refused_in_words() {
    begin();
    let mut text = [0_u8; 256];
    let mut options: [c_uint; 3] = [5, 6, 0];
    let mut values: [*mut c_void; 3] =
        [text.as_mut_ptr().cast(), ptr::without_provenance_mut(text.len()), ptr::without_provenance_mut(32)];
    let mut state = CUlinkState::default();
    ok!(cuLinkCreate_v2(3, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut state));
    assert_eq!(add(state, PTX, CALLER.as_bytes(), c"caller.ptx".as_ptr()), 0);
    assert_eq!(complete(state), Err(999));
    let said = String::from_utf8(text[..values[1].addr()].to_vec()).unwrap();
    assert!(said.contains("undefined reference to 'twice'") && said.contains("caller.ptx"), "{said}");
    ok!(cuLinkDestroy(state));
    let refused = |kind, data: &[u8]| {
        let state = create();
        let status = add(state, kind, data, ptr::null());
        ok!(cuLinkDestroy(state));
        status
    };
    assert_eq!(refused(PTX, b"hello"), 218);
    assert_eq!(refused(PTX, b""), 1);
    // A device that takes no compiled code refuses it at once; others read it when they link.
    for (kind, data) in [(0, &b"\x7fELF"[..]), (4, b"!<arch>\n")] {
        let state = create();
        match add(state, kind, data, ptr::null()) {
            0 => assert!(complete(state).is_err(), "input of kind {kind}"),
            status => assert_eq!(status, 209, "input of kind {kind}"),
        }
        ok!(cuLinkDestroy(state));
    }
    assert_eq!(refused(5, b"BC"), 801);
    assert_eq!(refused(6, b"BC"), 1);
    // What is wrong within a kernel shows when it is loaded, as with a text that is loaded by itself.
    let twice = create();
    for _ in 0..2 {
        assert_eq!(add(twice, PTX, CALLEE.as_bytes(), c"callee.ptx".as_ptr()), 0);
    }
    assert_eq!(complete(twice), Err(999));
    ok!(cuLinkDestroy(twice));
    let newer = create();
    assert_eq!(add(newer, PTX, CALLEE.replace("sm_50", "sm_121").as_bytes(), ptr::null()), 0);
    assert_eq!(complete(newer), Err(209));
    ok!(cuLinkDestroy(newer));
    let none = create();
    assert_eq!(complete(none), Err(1));
    ok!(cuLinkDestroy(none));
    assert_eq!(complete(CUlinkState(0)), Err(400));
}

/// A text of many pieces comes back whole.
fn long_images_are_read_in_pieces() {
    begin();
    let numbers: Vec<String> = (0..40_000).map(|number: u32| number.to_string()).collect();
    let table = format!(".visible .global .align 4 .u32 table[40000] = {{{}}};\n", numbers.join(", "));
    let state = create();
    assert_eq!(add(state, PTX, format!("{CALLEE}{table}").as_bytes(), ptr::null()), 0);
    assert_eq!(add(state, PTX, CALLER.as_bytes(), ptr::null()), 0);
    let image = complete(state).unwrap();
    assert!(image.len() > table.len());
    assert_eq!(run_kernel(&image)[0], 5);
    ok!(cuLinkDestroy(state));
}
