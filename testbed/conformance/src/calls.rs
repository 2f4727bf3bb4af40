//! The driver API as C sees it: macros that call a function of the driver under test by its name and real
//! signature, and short forms of the calls that most cases make.

#![allow(non_snake_case, missing_docs, reason = "the names and arguments are CUDA's")]
#![allow(clippy::missing_panics_doc, reason = "a panic is how a case fails")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, CUfunction, CUmodule, CUstream};
use vgpu_abi::table::{Table, UUID};
use vgpu_wire::Counters;

pub use crate::{cu, fails, get, ok};
pub use vgpu_abi::driver::functions;

use crate::not_applicable;

pub type Status = c_uint;

/// Returns the address of an export of the driver under test.
pub type Resolve = Box<dyn Fn(&str) -> Option<*const c_void> + Send + Sync>;

static DRIVER: OnceLock<Resolve> = OnceLock::new();

/// Chooses the driver that this process tests. A process tests one.
pub fn choose(driver: Resolve) {
    assert!(DRIVER.set(driver).is_ok(), "the driver is chosen already");
}

/// Chooses the libcuda at a path, and loads it for the rest of the process.
///
/// # Errors
/// The library cannot be loaded.
pub fn load(path: impl AsRef<std::ffi::OsStr>) -> Result<(), libloading::Error> {
    // SAFETY: whoever names the library trusts its initialisers.
    let library = unsafe { libloading::Library::new(path.as_ref()) }?;
    choose(Box::new(move |name| {
        // SAFETY: the symbol is only looked up; its type is that of an address.
        let symbol = unsafe { library.get::<*const c_void>(name) }.ok()?;
        // SAFETY: the library stays loaded, because the closure that owns it is never dropped.
        unsafe { symbol.try_as_raw_ptr() }.map(<*mut c_void>::cast_const)
    }));
    Ok(())
}

/// Returns the address of one of the driver's functions. The case does not apply to a driver without it.
pub fn address(name: &'static str) -> usize {
    let driver = DRIVER.get().expect("a driver is chosen first");
    driver(name).unwrap_or_else(|| not_applicable(&format!("the driver has no {name}"))).addr()
}

/// Calls the driver: `cu!(cuInit(0))` is the status. The call is unsafe; the test made its arguments itself.
#[macro_export]
macro_rules! cu {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        static ADDRESS: ::std::sync::OnceLock<usize> = ::std::sync::OnceLock::new();
        let address = *ADDRESS.get_or_init(|| $crate::calls::address(stringify!($name)));
        // SAFETY: the driver exports a function of this signature by this name.
        let function = unsafe {
            ::std::mem::transmute::<*const ::std::ffi::c_void, $crate::calls::functions::$name>(
                ::std::ptr::with_exposed_provenance(address),
            )
        };
        // SAFETY: a test hands over live places of the right types, or wrong values that the call must
        // refuse.
        unsafe { function($($arg),*) }.0
    }};
}

/// Calls the driver, which must return success.
#[macro_export]
macro_rules! ok {
    ($name:ident($($arg:expr),* $(,)?)) => {
        assert_eq!($crate::cu!($name($($arg),*)), 0, concat!(stringify!($name), " failed"))
    };
}

/// Calls a function whose first argument is a place for the result, and returns the result.
#[macro_export]
macro_rules! get {
    ($type:ty, $name:ident($($arg:expr),* $(,)?)) => {{
        let mut out = <$type>::default();
        $crate::ok!($name(&raw mut out $(, $arg)*));
        out
    }};
}

/// Calls a function whose first argument is a place for the result, and returns the status.
#[macro_export]
macro_rules! fails {
    ($type:ty, $name:ident($($arg:expr),* $(,)?)) => {{
        let mut out = <$type>::default();
        $crate::cu!($name(&raw mut out $(, $arg)*))
    }};
}

/// Returns the private table of this project's shim, or `None` if the driver is another.
pub fn find_table() -> Option<&'static Table> {
    let (mut table, uuid) = (ptr::null(), UUID);
    if cu!(cuGetExportTable(&raw mut table, &raw const uuid)) != 0 || table.is_null() {
        return None;
    }
    // SAFETY: the driver answers the address of its table, which lives as long as the process.
    Some(unsafe { &*table.cast::<Table>() })
}

/// Returns the private table. A case that calls this applies to this project's shim alone.
pub fn table() -> &'static Table {
    find_table().unwrap_or_else(|| not_applicable("the driver has no private table of this project"))
}

/// Returns what the process has sent to the host so far, or `None` if the driver is not this project's.
fn find_counters() -> Option<Counters> {
    let table = find_table()?;
    let mut counters = Counters::default();
    // SAFETY: the place is live for the call.
    assert_eq!(unsafe { (table.counters)(&raw mut counters) }.0, 0);
    Some(counters)
}

/// Returns what the process has sent to the host so far.
pub fn counters() -> Counters {
    find_counters().expect("the driver is this project's")
}

/// Number of messages that a call sent. It equals every number if the driver is not this project's, because
/// no other driver sends messages.
#[derive(Clone, Copy, Debug)]
pub struct Sent(Option<u64>);

impl PartialEq<u64> for Sent {
    fn eq(&self, count: &u64) -> bool {
        self.0.is_none_or(|sent| sent == *count)
    }
}

/// Counts the messages that `call` sends.
pub fn messages(call: impl FnOnce()) -> Sent {
    let before = find_counters();
    call();
    Sent(before.zip(find_counters()).map(|(before, after)| after.messages - before.messages))
}

/// Initialises the driver and makes the primary context of device 0 current.
pub fn begin() -> CUcontext {
    ok!(cuInit(0));
    let context = get!(CUcontext, cuDevicePrimaryCtxRetain(0));
    ok!(cuCtxSetCurrent(context));
    context
}

pub fn alloc(bytes: usize) -> u64 {
    get!(u64, cuMemAlloc_v2(bytes))
}

/// Returns the free and the total bytes of the current device.
pub fn memory_info() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
    (free, total)
}

/// Checks that the device has `bytes` of free memory, or has them soon: memory that earlier work has used
/// comes back a moment after that work.
pub fn wait_for_free_memory(bytes: usize) {
    let end = Instant::now() + Duration::from_mins(1);
    while memory_info().0 != bytes && Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(memory_info().0, bytes, "free bytes");
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

/// Returns random bytes.
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

/// A kernel with an unknown instruction, beside a correct one, as PTX text that ends with zero.
pub const WRONG: &CStr = c".version 7.0
.target sm_50
.address_size 64
.visible .entry fine() { ret; }
.visible .entry wrong() { frobnicate.u32 %r1, 7; ret; }
";

/// Returns an uncompressed fat binary with the PTX for one architecture.
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
