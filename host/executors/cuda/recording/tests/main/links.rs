//! Tests of the linker: one case for each of its rules, and links that break none.

use std::ffi::{c_uint, c_void};
use std::ptr;

use serde_json::json;
use vgpu_abi::driver::CUlinkState;
use vgpu_recording_cuda::Rule;

use crate::bench::{PTX, RecordingBench};
use crate::refusals::{RuleCase, usual};

const TEXT: c_uint = 1;
const CUBIN: c_uint = 0;
/// `CUjit_option` numbers of the error log and of its size.
const ERROR_LOG: [c_uint; 2] = [5, 6];
const OPTIMIZATION: c_uint = 7;

/// Options of a link with their values, whose addresses stay the same.
struct JitOptions {
    ids: Vec<c_uint>,
    values: Vec<*mut c_void>,
}

impl JitOptions {
    fn new<const N: usize>(options: [(c_uint, usize); N]) -> Self {
        let (ids, values) =
            options.map(|(id, value)| (id, ptr::without_provenance_mut(value))).into_iter().unzip();
        Self { ids, values }
    }

    /// Creates the options of a link that writes its errors to `log`.
    fn logged(log: &mut [u8]) -> Self {
        let values = vec![log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len())];
        Self { ids: ERROR_LOG.to_vec(), values }
    }
}

fn try_create(b: &RecordingBench, options: &mut JitOptions) -> (u32, CUlinkState) {
    let (mut state, count) = (CUlinkState::NULL, options.ids.len() as c_uint);
    let (ids, values) = (options.ids.as_mut_ptr(), options.values.as_mut_ptr());
    (cu!(b, cuLinkCreate_v2(count, ids, values, &raw mut state)), state)
}

fn create(b: &RecordingBench) -> CUlinkState {
    let (status, state) = try_create(b, &mut JitOptions::new([(OPTIMIZATION, 4)]));
    assert_eq!(status, 0);
    state
}

fn add_with(
    b: &RecordingBench,
    state: CUlinkState,
    kind: c_uint,
    data: &[u8],
    options: &mut JitOptions,
) -> u32 {
    let (data, bytes, count) = (data.as_ptr().cast_mut(), data.len(), options.ids.len() as c_uint);
    let (ids, values) = (options.ids.as_mut_ptr(), options.values.as_mut_ptr());
    cu!(b, cuLinkAddData_v2(state, kind, data, bytes, c"input".as_ptr(), count, ids, values))
}

fn add(b: &RecordingBench, state: CUlinkState, kind: c_uint, data: &[u8]) -> u32 {
    add_with(b, state, kind, data, &mut JitOptions::new([]))
}

fn add_text(b: &RecordingBench, state: CUlinkState) {
    assert_eq!(add(b, state, TEXT, PTX.to_bytes_with_nul()), 0);
}

fn complete(b: &RecordingBench, state: CUlinkState) -> (u32, *mut c_void, usize) {
    let (mut image, mut bytes) = (ptr::null_mut(), 0);
    (cu!(b, cuLinkComplete(state, &raw mut image, &raw mut bytes)), image, bytes)
}

/// One case for each rule of the linker.
pub const CASES: &[RuleCase] = &[
    // The highest optimization level is 4.
    (Rule::LinkOption, usual, |b| try_create(b, &mut JitOptions::new([(OPTIMIZATION, 5)])).0),
    // A target cannot have both a fixed and a requested number of threads.
    (Rule::LinkOption, usual, |b| try_create(b, &mut JitOptions::new([(1, 256), (9, 90)])).0),
    // The linker has no strategy where no code fits.
    (Rule::LinkOption, usual, |b| try_create(b, &mut JitOptions::new([(10, 0)])).0),
    // A log buffer needs its size.
    (Rule::LinkOption, usual, |b| try_create(b, &mut JitOptions::new([(5, 64)])).0),
    // Only a link has a target, an input has none.
    (Rule::LinkOption, usual, |b| {
        add_with(b, create(b), TEXT, PTX.to_bytes_with_nul(), &mut JitOptions::new([(9, 90)]))
    }),
    (Rule::NullArgument, usual, |b| {
        let mut state = CUlinkState::NULL;
        cu!(b, cuLinkCreate_v2(1, [OPTIMIZATION].as_mut_ptr(), ptr::null_mut(), &raw mut state))
    }),
    // The program has changed the values before the link reads them again.
    (Rule::LinkValues, usual, |b| {
        let mut log = [0; 64];
        let mut options = JitOptions::logged(&mut log);
        let (status, state) = try_create(b, &mut options);
        assert_eq!(status, 0);
        options.values[0] = ptr::null_mut();
        add(b, state, TEXT, PTX.to_bytes_with_nul())
    }),
    (Rule::LinkValues, usual, |b| {
        let mut log = [0; 64];
        let mut options = JitOptions::logged(&mut log);
        let (status, state) = try_create(b, &mut options);
        assert_eq!(status, 0);
        options.values[1] = ptr::null_mut();
        cu!(b, cuLinkDestroy(state))
    }),
    (Rule::LinkText, usual, |b| add(b, create(b), TEXT, PTX.to_bytes())),
    (Rule::Argument, usual, |b| add(b, create(b), 6, PTX.to_bytes_with_nul())),
    (Rule::LinkFinished, usual, |b| {
        let state = create(b);
        add_text(b, state);
        assert_eq!(complete(b, state).0, 0);
        add(b, state, TEXT, PTX.to_bytes_with_nul())
    }),
    (Rule::LinkFinished, usual, |b| {
        let state = create(b);
        add_text(b, state);
        assert_eq!(complete(b, state).0, 0);
        complete(b, state).0
    }),
    (Rule::LinkedImageGone, usual, |b| {
        let state = create(b);
        add_text(b, state);
        let (_, image, _) = complete(b, state);
        assert_eq!(cu!(b, cuLinkDestroy(state)), 0);
        b.load(image).0
    }),
    (Rule::DestroyedHandle, usual, |b| {
        let state = create(b);
        assert_eq!(cu!(b, cuLinkDestroy(state)), 0);
        cu!(b, cuLinkDestroy(state))
    }),
    (Rule::DestroyedHandle, usual, |b| {
        let state = create(b);
        assert_eq!(cu!(b, cuLinkDestroy(state)), 0);
        complete(b, state).0
    }),
    (Rule::UnknownHandle, usual, |b| {
        let module = b.module();
        complete(b, CUlinkState(module.0)).0
    }),
];

/// The image has the kernels of all inputs, including an image of another link. It ends with its link, but a
/// module loaded from it does not.
#[test]
fn a_link_gives_a_cubin_with_the_kernels_of_its_inputs() {
    let b = RecordingBench::new();
    let first = create(&b);
    add_text(&b, first);
    let (status, image, bytes) = complete(&b, first);
    assert_eq!(status, 0);
    // SAFETY: the link owns so many bytes at this address until it is destroyed.
    let cubin = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) }.to_vec();
    assert!(cubin.starts_with(b"\x7fELF"));
    let second = create(&b);
    assert_eq!(add(&b, second, CUBIN, &cubin), 0);
    let other = c".version 8.0\n.target sm_61\n.address_size 64\n.visible .entry other() { ret; }";
    assert_eq!(add(&b, second, TEXT, other.to_bytes_with_nul()), 0);
    let (status, image, _) = complete(&b, second);
    assert_eq!(status, 0);
    let (status, module) = b.load(image);
    assert_eq!(status, 0);
    for state in [first, second] {
        assert_eq!(cu!(b, cuLinkDestroy(state)), 0);
    }
    for (name, bytes) in [(c"k", 12), (c"other", 0)] {
        let mut function = vgpu_abi::driver::CUfunction::NULL;
        assert_eq!(cu!(b, cuModuleGetFunction(&raw mut function, module, name.as_ptr())), 0);
        assert_eq!(b.launch(function, 32, 0, bytes, vgpu_abi::driver::CUstream::NULL), 0);
    }
    assert_eq!(b.line("cuLinkCreate_v2")["args"]["options"], json!([[OPTIMIZATION, 4]]));
    assert!(b.lines().iter().all(|line| line["refused"].is_null()));
}

/// An input that is not code breaks no rule of the linker, because a program may be given any file.
#[test]
fn an_input_that_is_no_code_is_told_in_the_log() {
    for (kind, data, status) in [(TEXT, &b"nonsense\0"[..], 218), (CUBIN, b"nonsense", 200)] {
        let (b, mut log) = (RecordingBench::new(), [0; 64]);
        let mut options = JitOptions::logged(&mut log);
        let (created, state) = try_create(&b, &mut options);
        assert_eq!(created, 0);
        assert_eq!(add(&b, state, kind, data), status);
        let length = options.values[1].addr();
        assert!(length > 1 && log[..length - 1].iter().all(|&byte| byte != 0), "{log:?}");
        assert_eq!(cu!(b, cuLinkDestroy(state)), 0);
        assert!(b.lines().iter().all(|line| line["refused"].is_null()));
    }
}
