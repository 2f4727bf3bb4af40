//! A libcuda for tests that keeps what it is given. Each thread has its own: its status, its messages.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_void};

use vgpu_abi::CUresult;
use vgpu_abi::driver::{CUcontext, CUdevice, CUuuid};
use vgpu_abi::table::{Counters, Device, Table, UUID, VERSION};
use vgpu_wire::body::gemm::{Gemm, TriangularSolve};

thread_local! {
    static STATUS: Cell<CUresult> = const { Cell::new(CUresult::SUCCESS) };
    static CONTEXT: Cell<CUcontext> = const { Cell::new(CUcontext::NULL) };
    static PRODUCTS: RefCell<Vec<(usize, Gemm)>> = const { RefCell::new(Vec::new()) };
    static SOLVES: RefCell<Vec<(usize, TriangularSolve)>> = const { RefCell::new(Vec::new()) };
}

/// What this thread's libcuda answers to work and to initialisation.
pub fn answer(status: CUresult) {
    STATUS.set(status);
}

/// This thread's context.
pub fn context() -> CUcontext {
    CONTEXT.get()
}

/// The products that this thread has sent since the last look, with their streams.
pub fn products() -> Vec<(usize, Gemm)> {
    PRODUCTS.take()
}

/// The same for solves.
pub fn solves() -> Vec<(usize, TriangularSolve)> {
    SOLVES.take()
}

unsafe extern "C" fn gemm(stream: *mut c_void, product: *const Gemm) -> CUresult {
    // SAFETY: the table's caller hands in a live structure.
    let product = unsafe { *product };
    PRODUCTS.with_borrow_mut(|products| products.push((stream.addr(), product)));
    STATUS.get()
}

unsafe extern "C" fn solve(stream: *mut c_void, solve: *const TriangularSolve) -> CUresult {
    // SAFETY: as in `gemm`.
    let solve = unsafe { *solve };
    SOLVES.with_borrow_mut(|solves| solves.push((stream.addr(), solve)));
    STATUS.get()
}

unsafe extern "C" fn life() -> CUresult {
    CUresult::NOT_SUPPORTED
}

unsafe extern "C" fn device_count(_: *mut c_int) -> CUresult {
    CUresult::NOT_SUPPORTED
}

unsafe extern "C" fn device(_: c_int, _: *mut *const Device) -> CUresult {
    CUresult::NOT_SUPPORTED
}

unsafe extern "C" fn visible(_: c_int, _: *mut c_int) -> CUresult {
    CUresult::NOT_SUPPORTED
}

unsafe extern "C" fn memory_info(_: c_int, _: *mut u64, _: *mut u64) -> CUresult {
    CUresult::NOT_SUPPORTED
}

unsafe extern "C" fn counters(_: *mut Counters) -> CUresult {
    CUresult::NOT_SUPPORTED
}

unsafe extern "C" fn done(_: *mut u64) -> CUresult {
    CUresult::NOT_SUPPORTED
}

unsafe extern "C" fn echo(_: c_int) -> CUresult {
    CUresult::NOT_SUPPORTED
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
    counters,
    done,
    echo,
};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetExportTable(table: *mut *const c_void, uuid: *const CUuuid) -> CUresult {
    // SAFETY: the caller, `Table::ask`, hands in a UUID.
    if unsafe { *uuid } != UUID {
        return CUresult::INVALID_VALUE;
    }
    // SAFETY: and a place for the answer.
    unsafe { table.write((&raw const TABLE).cast()) };
    CUresult::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_: c_uint) -> CUresult {
    STATUS.get()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut CUcontext) -> CUresult {
    // SAFETY: the caller hands in a place for the answer.
    unsafe { context.write(CONTEXT.get()) };
    CUresult::SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: CUcontext) -> CUresult {
    CONTEXT.set(context);
    CUresult::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    // SAFETY: the caller hands in a place for the answer.
    unsafe { device.write(ordinal) };
    CUresult::SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult {
    // SAFETY: the caller hands in a place for the answer.
    unsafe { context.write(CUcontext(0x1000 + device as usize)) };
    CUresult::SUCCESS
}
