//! A libcuda for tests of the shims that call libcuda. It records the work that it receives, separately for
//! each thread, which also has a status and a context of its own.

use core::ffi::{c_int, c_uint, c_void};
use std::cell::{Cell, RefCell};

use vgpu_wire::Counters;
use vgpu_wire::body::gemm::{Gemm, TriangularSolve};
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::vector::VectorOp;
use vgpu_wire::facts::exec;

use crate::CUresult;
use crate::calls::Calls;
use crate::driver::functions::cuGetExportTable;
use crate::driver::{CUcontext, CUdevice, CUuuid};
use crate::table::{Device, Table, UUID, VERSION};

thread_local! {
    static STATUS: Cell<CUresult> = const { Cell::new(CUresult::SUCCESS) };
    static CONTEXT: Cell<CUcontext> = const { Cell::new(CUcontext::NULL) };
    static PRODUCTS: RefCell<Vec<(usize, Gemm)>> = const { RefCell::new(Vec::new()) };
    static ABILITIES: Cell<u32> = const { Cell::new(exec::EPILOGUES | exec::VECTORS) };
    static MATMULS: RefCell<Vec<(usize, MatmulLt)>> = const { RefCell::new(Vec::new()) };
    static VECTORS: RefCell<Vec<(usize, VectorOp)>> = const { RefCell::new(Vec::new()) };
    static SOLVES: RefCell<Vec<(usize, TriangularSolve)>> = const { RefCell::new(Vec::new()) };
}

/// Sets the status that libcuda returns on this thread for submitted work and for initialisation.
pub fn answer(status: CUresult) {
    STATUS.set(status);
}

/// Sets the abilities of the device on this thread, a combination of the bits in [`exec`].
pub fn can(abilities: u32) {
    ABILITIES.set(abilities);
}

/// Returns this thread's current context.
#[must_use]
pub fn context() -> CUcontext {
    CONTEXT.get()
}

/// Returns the products that this thread has sent since the last call, with their streams.
#[must_use]
pub fn products() -> Vec<(usize, Gemm)> {
    PRODUCTS.take()
}

/// Returns the products of cuBLASLt that this thread has sent since the last call, with their streams.
#[must_use]
pub fn matmuls() -> Vec<(usize, MatmulLt)> {
    MATMULS.take()
}

/// Returns the vector operations that this thread has sent since the last call, with their streams. Sums for
/// host memory are not stored.
#[must_use]
pub fn vectors() -> Vec<(usize, VectorOp)> {
    VECTORS.take()
}

/// Returns the triangular solves that this thread has sent since the last call, with their streams.
#[must_use]
pub fn solves() -> Vec<(usize, TriangularSolve)> {
    SOLVES.take()
}

/// Calls an export by its C signature, the handle and every pointer as C has them; its status is a number.
///
/// ```ignore
/// assert_eq!(call!(settings::cublasSetMathMode as fn(*const c_void, c_int), handle, 3), 0);
/// ```
#[macro_export]
macro_rules! call {
    ($function:path as fn($($ty:ty),* $(,)?), $($arg:expr),* $(,)?) => {{
        // SAFETY: parameters of the export are transparent wrappers of the pointers and addresses named here,
        // and a status is one of an unsigned integer.
        let function = unsafe {
            ::core::mem::transmute::<*const (), unsafe extern "C" fn($($ty),*) -> ::core::ffi::c_uint>(
                $function as *const (),
            )
        };
        // SAFETY: the test hands in what the manual says, or null.
        unsafe { function($($arg),*) }
    }};
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

unsafe extern "C" fn matmul(stream: *mut c_void, product: *const MatmulLt) -> CUresult {
    // SAFETY: as in `gemm`.
    let product = unsafe { *product };
    MATMULS.with_borrow_mut(|products| products.push((stream.addr(), product)));
    STATUS.get()
}

unsafe extern "C" fn vector(stream: *mut c_void, vector: *const VectorOp, _: *mut c_void) -> CUresult {
    // SAFETY: as in `gemm`.
    let vector = unsafe { *vector };
    VECTORS.with_borrow_mut(|vectors| vectors.push((stream.addr(), vector)));
    STATUS.get()
}

unsafe extern "C" fn abilities(place: *mut u32) -> CUresult {
    // SAFETY: the table's caller hands in a place for the answer.
    unsafe { place.write(ABILITIES.get()) };
    CUresult::SUCCESS
}

/// Defines entries of the table that the tests do not call, and that store no result.
macro_rules! refusing {
    ($( $name:ident($($ty:ty),*); )*) => {
        $(
            unsafe extern "C" fn $name($(_: $ty),*) -> CUresult {
                CUresult::NOT_SUPPORTED
            }
        )*
    };
}

refusing! {
    life();
    device_count(*mut c_int);
    device(c_int, *mut *const Device);
    visible(c_int, *mut c_int);
    memory_info(c_int, *mut u64, *mut u64);
    counters(*mut Counters);
    done(*mut u64);
    echo(c_int);
}

/// Private table of the test's libcuda. It records products, solves and vector operations, and answers with
/// the abilities; other entries fail.
pub const TABLE: Table = Table {
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

/// Implements `cuGetExportTable` for a libcuda with this table and no other.
///
/// # Safety
/// As for that function: `place` is valid for writing, `uuid` for reading.
pub unsafe fn hand_out(table: &'static Table, place: *mut *const c_void, uuid: *const CUuuid) -> CUresult {
    // SAFETY: the caller hands in a UUID.
    if unsafe { *uuid } != UUID {
        return CUresult::INVALID_VALUE;
    }
    // SAFETY: and a place for the answer.
    unsafe { place.write((&raw const *table).cast()) };
    CUresult::SUCCESS
}

unsafe extern "C" fn get_export_table(place: *mut *const c_void, uuid: *const CUuuid) -> CUresult {
    static OWN: Table = TABLE;
    // SAFETY: the caller does as for the real one.
    unsafe { hand_out(&OWN, place, uuid) }
}

unsafe extern "C" fn driver_get_version(version: *mut c_int) -> CUresult {
    // SAFETY: the caller hands in a place for the answer.
    unsafe { version.write(13000) };
    CUresult::SUCCESS
}

unsafe extern "C" fn init(_: c_uint) -> CUresult {
    STATUS.get()
}

unsafe extern "C" fn ctx_get_current(context: *mut CUcontext) -> CUresult {
    // SAFETY: the caller hands in a place for the answer.
    unsafe { context.write(CONTEXT.get()) };
    CUresult::SUCCESS
}

unsafe extern "C" fn ctx_set_current(context: CUcontext) -> CUresult {
    CONTEXT.set(context);
    CUresult::SUCCESS
}

unsafe extern "C" fn device_get(device: *mut CUdevice, ordinal: c_int) -> CUresult {
    // SAFETY: the caller hands in a place for the answer.
    unsafe { device.write(ordinal) };
    CUresult::SUCCESS
}

unsafe extern "C" fn device_primary_ctx_retain(context: *mut CUcontext, device: CUdevice) -> CUresult {
    // SAFETY: the caller hands in a place for the answer.
    unsafe { context.write(CUcontext(0x1000 + device as usize)) };
    CUresult::SUCCESS
}

/// The functions of the test's libcuda.
pub const CALLS: Calls = Calls {
    get_export_table,
    driver_get_version,
    init,
    ctx_get_current,
    ctx_set_current,
    device_get,
    device_primary_ctx_retain,
};

impl Calls {
    /// Replaces the function that returns the private table.
    ///
    /// # Safety
    /// `get` behaves as `cuGetExportTable`, with tables that are never freed.
    #[must_use]
    pub const unsafe fn with_table(self, get: cuGetExportTable) -> Self {
        Self { get_export_table: get, ..self }
    }
}
