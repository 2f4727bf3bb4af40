//! The driver API as C sees it, by its real signatures, and short ways to call it.

#![allow(non_snake_case, missing_docs, reason = "the names and arguments are CUDA's")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, CUfunction, CUmodule, CUstream};
use vgpu_abi::table::{Table, UUID};
use vgpu_libcuda as _;
use vgpu_wire::Counters;

pub use vgpu_abi::driver::functions::*;

pub type Status = c_uint;

/// Calls the driver: `cu!(cuInit(0))` is the status, by an unsafe call whose arguments the test made itself.
#[macro_export]
macro_rules! cu {
    ($name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: a test hands over live places of the right types, or wrong values that the call must
        // refuse.
        unsafe { $crate::cuda::$name($($arg),*) }.0
    };
}

/// The same; the status must be success.
#[macro_export]
macro_rules! ok {
    ($name:ident($($arg:expr),* $(,)?)) => {
        assert_eq!($crate::cu!($name($($arg),*)), 0, concat!(stringify!($name), " failed"))
    };
}

/// Calls with a place for a result in front, which is answered.
#[macro_export]
macro_rules! get {
    ($type:ty, $name:ident($($arg:expr),* $(,)?)) => {{
        let mut out = <$type>::default();
        $crate::ok!($name(&raw mut out $(, $arg)*));
        out
    }};
}

/// Calls with a place for a result in front, which does not matter: the status.
#[macro_export]
macro_rules! fails {
    ($type:ty, $name:ident($($arg:expr),* $(,)?)) => {{
        let mut out = <$type>::default();
        $crate::cu!($name(&raw mut out $(, $arg)*))
    }};
}

/// The private table.
pub fn table() -> &'static Table {
    let (mut table, uuid) = (ptr::null(), UUID);
    ok!(cuGetExportTable(&raw mut table, &raw const uuid));
    // SAFETY: the driver answers the address of its table, which lives as long as the process.
    unsafe { &*table.cast::<Table>() }
}

/// What the process has said to the host so far.
pub fn counters() -> Counters {
    let mut counters = Counters::default();
    // SAFETY: a live place.
    assert_eq!(unsafe { (table().counters)(&raw mut counters) }.0, 0);
    counters
}

/// How many messages `call` sends.
pub fn messages(call: impl FnOnce()) -> u64 {
    let before = counters().messages;
    call();
    counters().messages - before
}

/// Initialises, and makes the primary context of device 0 current.
pub fn begin() -> CUcontext {
    ok!(cuInit(0));
    let context = get!(CUcontext, cuDevicePrimaryCtxRetain(0));
    ok!(cuCtxSetCurrent(context));
    context
}

pub fn alloc(bytes: usize) -> u64 {
    get!(u64, cuMemAlloc_v2(bytes))
}

pub fn pinned(bytes: usize) -> *mut u8 {
    let mut address = ptr::null_mut();
    ok!(cuMemAllocHost_v2(&raw mut address, bytes));
    address.cast()
}

pub fn upload(to: u64, data: &[u8]) {
    ok!(cuMemcpyHtoD_v2(to, data.as_ptr().cast(), data.len()));
}

pub fn download(from: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0xa5; bytes];
    ok!(cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), from, bytes));
    data
}

/// Bytes that do not repeat soon.
pub fn random(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut data);
    data
}

pub fn text_of(call: impl FnOnce(*mut c_char, c_int) -> Status) -> String {
    let mut text = [0x55_u8; 300];
    assert_eq!(call(text.as_mut_ptr().cast(), 300), 0);
    CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
}

pub fn error_name(status: Status) -> String {
    let mut text = ptr::null();
    ok!(cuGetErrorName(CUresult(status), &raw mut text));
    // SAFETY: a text of the driver's, ended by zero.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

/// A kernel with 100 bytes of parameters, and one without any, as PTX text that ends with zero.
pub const PTX: &CStr = c"//
.version 7.0
.target sm_50
.address_size 64
.visible .entry hundred(
    .param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e, .param .u64 f,
    .param .u64 g, .param .u64 h, .param .u64 i, .param .u64 j, .param .u64 k, .param .align 4 .b8 l[12]
)
{
    ret;
}
.visible .entry nothing()
{
    ret;
}
";

/// An uncompressed fat binary with the PTX for one architecture.
pub fn fatbin(sm: u32) -> Vec<u64> {
    let text = PTX.to_bytes_with_nul();
    let padded = text.len().next_multiple_of(8);
    let mut bytes = Vec::new();
    bytes.extend(0xba55_ed50_u32.to_le_bytes());
    bytes.extend([1, 0, 16, 0]);
    bytes.extend((64 + padded as u64).to_le_bytes());
    let mut entry = [0_u8; 64];
    entry[0] = 1;
    entry[4] = 64;
    entry[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
    entry[28..32].copy_from_slice(&sm.to_le_bytes());
    entry[40] = 0x11;
    bytes.extend(entry);
    bytes.extend(text);
    bytes.resize(16 + 64 + padded, 0);
    bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

pub fn function(module: CUmodule, name: &str) -> CUfunction {
    let name = CString::new(name).unwrap();
    get!(CUfunction, cuModuleGetFunction(module, name.as_ptr()))
}

/// Launches with one block of 32 threads.
pub fn launch(function: CUfunction, stream: CUstream, params: &mut [*mut c_void]) -> Status {
    cu!(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params.as_mut_ptr(), ptr::null_mut()))
}
