//! A driver for tests: the `cu*` calls that libcudart makes in the tested paths, with statuses that a test
//! sets and counters that it reads. It runs no kernels; the programs of the test bed use the real driver
//! shim. Each test binary is one process with one such driver.

#![allow(dead_code, reason = "no test uses all of it")]
#![allow(non_snake_case, reason = "the names are CUDA's")]
#![allow(clippy::missing_safety_doc, reason = "the contracts are CUDA's")]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst};

use vgpu_abi::CUresult;
use vgpu_abi::driver::functions;
use vgpu_abi::driver::{CUcontext, CUdevice, CUfunction, CUkernel, CUlibrary, CUstream, CUuuid};
use vgpu_abi::table::{Device, Table, UUID, VERSION};
use vgpu_wire::Counters;
use vgpu_wire::body::gemm::{Gemm, TriangularSolve};
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::vector::VectorOp;

/// Configuration and counters of the stand-in driver.
pub struct Driver {
    pub init: AtomicU32,
    pub life: AtomicU32,
    pub version: AtomicI32,
    pub devices: AtomicI32,
    pub foreign: AtomicBool,
    pub load: AtomicU32,
    pub launch: AtomicU32,
    pub inits: AtomicUsize,
    pub retains: AtomicUsize,
    pub loads: AtomicUsize,
    pub unloads: AtomicUsize,
    pub kernels: AtomicUsize,
    pub launches: AtomicUsize,
    /// Number of calls, except those that only query which context is current.
    pub calls: AtomicUsize,
}

pub static DRIVER: Driver = Driver {
    init: AtomicU32::new(0),
    life: AtomicU32::new(0),
    version: AtomicI32::new(13_000),
    devices: AtomicI32::new(2),
    foreign: AtomicBool::new(false),
    load: AtomicU32::new(0),
    launch: AtomicU32::new(0),
    inits: AtomicUsize::new(0),
    retains: AtomicUsize::new(0),
    loads: AtomicUsize::new(0),
    unloads: AtomicUsize::new(0),
    kernels: AtomicUsize::new(0),
    launches: AtomicUsize::new(0),
    calls: AtomicUsize::new(0),
};

/// A launch as the driver received it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    pub kernel: String,
    pub shape: [u32; 6],
    pub shared: u32,
    pub stream: usize,
    pub args: usize,
    pub context: usize,
}

struct Tables {
    /// Library and name of each kernel, by its handle.
    kernels: BTreeMap<usize, (usize, String)>,
    libraries: BTreeMap<usize, usize>,
    last: Launch,
}

static TABLES: Mutex<Tables> = Mutex::new(Tables {
    kernels: BTreeMap::new(),
    libraries: BTreeMap::new(),
    last: Launch { kernel: String::new(), shape: [0; 6], shared: 0, stream: 0, args: 0, context: 0 },
});

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Handle of a context that a program created on device 1 by the driver API.
pub const OWN: usize = 500;

/// Returns the handle of a device's primary context.
pub const fn primary(device: c_int) -> usize {
    100 + device as usize
}

/// Makes a context current to the calling thread, as a program could by the driver API.
pub fn make_current(context: usize) {
    CURRENT.set(context);
}

/// Returns the calling thread's context.
pub fn current() -> usize {
    CURRENT.get()
}

/// Returns the newest launch.
pub fn last_launch() -> Launch {
    TABLES.lock().unwrap().last.clone()
}

/// Returns the addresses of the code from which libraries were loaded.
pub fn codes() -> Vec<usize> {
    TABLES.lock().unwrap().libraries.values().copied().collect()
}

fn call() -> CUresult {
    DRIVER.calls.fetch_add(1, SeqCst);
    CUresult(DRIVER.life.load(SeqCst))
}

fn answer<T>(place: *mut T, value: T) -> CUresult {
    let status = call();
    if status.0 != 0 {
        return status;
    }
    // SAFETY: libcudart passes places of the right type.
    unsafe { place.write(value) };
    status
}

unsafe extern "C" fn life() -> CUresult {
    CUresult(DRIVER.life.load(SeqCst))
}
unsafe extern "C" fn device_count(_: *mut c_int) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn device(_: c_int, _: *mut *const Device) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn visible(_: c_int, _: *mut c_int) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn memory_info(_: c_int, _: *mut u64, _: *mut u64) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn gemm(_: *mut c_void, _: *const Gemm) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn solve(_: *mut c_void, _: *const TriangularSolve) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn matmul(_: *mut c_void, _: *const MatmulLt) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn vector(_: *mut c_void, _: *const VectorOp, _: *mut c_void) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn abilities(_: *mut u32) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn counters(_: *mut Counters) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn done(_: *mut u64) -> CUresult {
    CUresult(801)
}
unsafe extern "C" fn echo(_: c_int) -> CUresult {
    CUresult(801)
}

static TABLE: Table = Table {
    bytes: size_of::<Table>(),
    version: VERSION,
    reserved: 0,
    life,
    device_count,
    device,
    visible,
    memory_info,
    gemm,
    solve,
    matmul,
    vector,
    abilities,
    counters,
    done,
    echo,
};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetExportTable(table: *mut *const c_void, uuid: *const CUuuid) -> CUresult {
    // SAFETY: libcudart passes the UUID it looks for.
    if DRIVER.foreign.load(SeqCst) || unsafe { *uuid } != UUID {
        return CUresult(1);
    }
    // SAFETY: libcudart passes a place for the answer.
    unsafe { table.write((&raw const TABLE).cast()) };
    CUresult(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuInit(_: c_uint) -> CUresult {
    DRIVER.inits.fetch_add(1, SeqCst);
    CUresult(DRIVER.init.load(SeqCst))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> CUresult {
    answer(version, DRIVER.version.load(SeqCst))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> CUresult {
    answer(count, DRIVER.devices.load(SeqCst))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    answer(device, ordinal)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _: CUdevice) -> CUresult {
    answer(value, 1000 + attribute)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult {
    DRIVER.retains.fetch_add(1, SeqCst);
    answer(context, CUcontext(primary(device)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxReset_v2(_: CUdevice) -> CUresult {
    call()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult {
    // SAFETY: libcudart passes a place for the answer.
    unsafe { context.write(CUcontext(CURRENT.get())) };
    CUresult(DRIVER.life.load(SeqCst))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSetCurrent(context: CUcontext) -> CUresult {
    CURRENT.set(context.0);
    call()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetDevice(device: *mut CUdevice) -> CUresult {
    answer(device, if CURRENT.get() == OWN { 1 } else { CURRENT.get() as c_int - 100 })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSynchronize() -> CUresult {
    call()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLibraryLoadData(
    library: *mut CUlibrary,
    code: *const c_void,
    _: *mut c_uint,
    _: *mut *mut c_void,
    _: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
    count: c_uint,
) -> CUresult {
    let loads = DRIVER.loads.fetch_add(1, SeqCst) + 1;
    let status = DRIVER.load.load(SeqCst);
    if status != 0 {
        return CUresult(status);
    }
    assert_eq!(count, 1);
    // SAFETY: one option, as just asserted.
    assert_eq!(unsafe { *options }, 1, "the code stays where it is");
    // SAFETY: as above.
    assert_eq!(unsafe { *values }.addr(), 1);
    TABLES.lock().unwrap().libraries.insert(loads, code.addr());
    answer(library, CUlibrary(loads))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLibraryUnload(library: CUlibrary) -> CUresult {
    DRIVER.unloads.fetch_add(1, SeqCst);
    TABLES.lock().unwrap().libraries.remove(&library.0);
    call()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLibraryGetKernel(
    kernel: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> CUresult {
    // SAFETY: libcudart passes a name that was registered.
    let name = CString::from(unsafe { CStr::from_ptr(name) }).into_string().unwrap();
    if name == "missing" {
        return CUresult(500);
    }
    let handle = 0x1000 + DRIVER.kernels.fetch_add(1, SeqCst);
    TABLES.lock().unwrap().kernels.insert(handle, (library.0, name));
    answer(kernel, CUkernel(handle))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    let status = call();
    if status.0 != 0 {
        return status;
    }
    if CURRENT.get() == 0 {
        return CUresult(201);
    }
    let scripted = DRIVER.launch.load(SeqCst);
    if scripted != 0 {
        return CUresult(scripted);
    }
    DRIVER.launches.fetch_add(1, SeqCst);
    let mut tables = TABLES.lock().unwrap();
    let kernel = tables.kernels.get(&function.0).map_or_else(String::new, |(_, name)| name.clone());
    tables.last = Launch {
        kernel,
        shape: [grid_x, grid_y, grid_z, block_x, block_y, block_z],
        shared,
        stream: stream.0,
        args: params.addr(),
        context: CURRENT.get(),
    };
    CUresult(0)
}

/// Checks that the signatures are those of the driver API.
const _: () = {
    let _: functions::cuGetExportTable = cuGetExportTable;
    let _: functions::cuInit = cuInit;
    let _: functions::cuDriverGetVersion = cuDriverGetVersion;
    let _: functions::cuDeviceGetCount = cuDeviceGetCount;
    let _: functions::cuDeviceGet = cuDeviceGet;
    let _: functions::cuDeviceGetAttribute = cuDeviceGetAttribute;
    let _: functions::cuDevicePrimaryCtxRetain = cuDevicePrimaryCtxRetain;
    let _: functions::cuDevicePrimaryCtxReset_v2 = cuDevicePrimaryCtxReset_v2;
    let _: functions::cuCtxGetCurrent = cuCtxGetCurrent;
    let _: functions::cuCtxSetCurrent = cuCtxSetCurrent;
    let _: functions::cuCtxGetDevice = cuCtxGetDevice;
    let _: functions::cuCtxSynchronize = cuCtxSynchronize;
    let _: functions::cuLibraryLoadData = cuLibraryLoadData;
    let _: functions::cuLibraryUnload = cuLibraryUnload;
    let _: functions::cuLibraryGetKernel = cuLibraryGetKernel;
    let _: functions::cuLaunchKernel = cuLaunchKernel;
};
