//! Reductions of vectors, and one vector added to another: `cublas<t>dot`, `cublas<t>nrm2`, `cublas<t>asum`,
//! `cublas<t>axpy` and their forms `Ex`. The handle's pointer mode says where a sum is stored; the call waits
//! for one in host memory, as cuBLAS does.

#![allow(clippy::too_many_arguments, reason = "as many as BLAS has")]

use std::ffi::c_int;

use vgpu_abi::blas::data::{C_32F, C_64F, R_16BF, R_16F, R_32F, R_64F};
use vgpu_abi::blas::{Address, BlasStatus, Factor, POINTER_MODE_DEVICE, Place, element_bytes};
use vgpu_abi::export;
use vgpu_wire::body::gemm::GEMM_DEVICE_SCALARS;
use vgpu_wire::body::vector::{
    VECTOR_ASUM, VECTOR_AXPY, VECTOR_DOT, VECTOR_DOT_CONJUGATE, VECTOR_NORM, VectorOp,
};

use crate::handle::Handle;
use crate::{DRIVER, Result};

/// `cudaDataType` of x, of y, of the sum or alpha, and of the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Types {
    x: c_int,
    y: c_int,
    scalar: c_int,
    compute: c_int,
}

const fn same(kind: c_int) -> Types {
    Types { x: kind, y: kind, scalar: kind, compute: kind }
}

/// Types for complex numbers whose norm, or sum of absolute values, is real.
const fn real_of(x: c_int, real: c_int) -> Types {
    Types { x, y: x, scalar: real, compute: real }
}

const S: Types = same(R_32F);
const D: Types = same(R_64F);
const C: Types = same(C_32F);
const Z: Types = same(C_64F);
const SC: Types = real_of(C_32F, R_32F);
const DZ: Types = real_of(C_64F, R_64F);
const H: Types = Types { compute: R_32F, ..same(R_16F) };
const T: Types = Types { compute: R_32F, ..same(R_16BF) };
/// [`H`] with a factor of single precision.
const HS: Types = Types { scalar: R_32F, ..H };
const TS: Types = Types { scalar: R_32F, ..T };

/// Combinations of types that the manual's tables list for the forms `Ex`.
const DOTS: &[Types] = &[H, T, S, D, C, Z];
const NORMS: &[Types] = &[H, T, S, D, SC, DZ];
const AXPYS: &[Types] = &[HS, TS, S, D, C, Z];

/// Returns `types` if the forms `Ex` support them, otherwise `CUBLAS_STATUS_NOT_SUPPORTED`.
fn among(known: &[Types], types: Types) -> Result<Types> {
    if known.contains(&types) { Ok(types) } else { Err(BlasStatus::NOT_SUPPORTED) }
}

/// A vector: its address, and the increment from one element to the next.
#[derive(Clone, Copy, Debug)]
struct Vector(Address, i64);

impl Vector {
    /// Returns the device address of the vector's first element. As in BLAS the program gives the lowest
    /// address, and a negative increment starts at the highest.
    fn first(self, n: i64, kind: c_int) -> Result<u64> {
        let Self(Address(address), step) = self;
        if step >= 0 {
            return Ok(address as u64);
        }
        let bytes = element_bytes(kind).ok_or(BlasStatus::NOT_SUPPORTED)?.cast_signed();
        let behind =
            (n - 1).max(0).checked_mul(step.wrapping_neg()).and_then(|elements| elements.checked_mul(bytes));
        let first = behind.and_then(|bytes| (address as u64).checked_add_signed(bytes));
        first.ok_or(BlasStatus::INVALID_VALUE)
    }
}

fn message(operation: u32, types: Types, n: i64, [x, y]: [Vector; 2]) -> Result<VectorOp> {
    let n = n.max(0);
    Ok(VectorOp {
        stream: 0,
        flags: 0,
        operation,
        x_type: types.x.cast_unsigned(),
        y_type: types.y.cast_unsigned(),
        scalar_type: types.scalar.cast_unsigned(),
        compute: types.compute.cast_unsigned(),
        reserved: 0,
        elements: n.cast_unsigned(),
        step: [x.1, y.1],
        vector: [x.first(n, types.x)?, y.first(n, types.y)?],
        alpha: [0; 16],
        result: 0,
    })
}

/// Sends a reduction of one or two vectors, whose sum is stored at `place` in host or device memory by the
/// pointer mode. The sum of no elements is 0.
fn sum(handle: Handle, operation: u32, types: Types, n: i64, vectors: [Vector; 2], place: Place) -> Result {
    let context = handle.context()?;
    let place = place.check()?;
    let message = message(operation, types, n, vectors)?;
    if context.pointer_mode() == POINTER_MODE_DEVICE {
        let message = VectorOp { result: place.addr() as u64, ..message };
        // SAFETY: the null pointer says that there is no place in host memory.
        return unsafe { DRIVER.vector(context.stream(), &message, std::ptr::null_mut()) };
    }
    if message.elements == 0 {
        let bytes = element_bytes(types.scalar).ok_or(BlasStatus::NOT_SUPPORTED)? as usize;
        // SAFETY: the export's caller promised room for a number of this type, in host memory in this mode.
        unsafe { place.cast::<u8>().write_bytes(0, bytes) };
        return Ok(());
    }
    // SAFETY: the export's caller promised room for a number of this type, in host memory in this mode.
    unsafe { DRIVER.vector(context.stream(), &message, place) }
}

/// Sends a reduction of one vector. As in BLAS an increment that is not positive means that there are no
/// elements.
fn single(handle: Handle, operation: u32, types: Types, n: i64, x: Vector, place: Place) -> Result {
    let n = if x.1 > 0 { n } else { 0 };
    sum(handle, operation, types, n, [x, Vector(x.0, 1)], place)
}

fn axpy(handle: Handle, types: Types, n: i64, alpha: Factor, vectors: [Vector; 2]) -> Result {
    let context = handle.context()?;
    let mode = context.pointer_mode();
    let alpha = alpha.get(mode, types.scalar)?;
    let on_device = mode == POINTER_MODE_DEVICE;
    if n <= 0 || (!on_device && alpha.is_zero(types.scalar)) {
        return Ok(());
    }
    let flags = if on_device { GEMM_DEVICE_SCALARS } else { 0 };
    let message = VectorOp { flags, alpha: alpha.0, ..message(VECTOR_AXPY, types, n, vectors)? };
    // SAFETY: the null pointer says that there is no place in host memory.
    unsafe { DRIVER.vector(context.stream(), &message, std::ptr::null_mut()) }
}

macro_rules! dot {
    ($int:ty: $( fn $name:ident $types:ident $operation:ident )*) => {
        export! { $(
            /// Computes the sum of the products of x and y, or of x's conjugates and y.
            pub fn $name(
                handle: Handle, n: $int, x: Address, incx: $int, y: Address, incy: $int, result: Place,
            ) -> BlasStatus {
                let vectors = [Vector(x, incx.into()), Vector(y, incy.into())];
                sum(handle, $operation, $types, n.into(), vectors, result)
            }
        )* }
    };
}

macro_rules! single {
    ($int:ty: $( fn $name:ident $types:ident $operation:ident )*) => {
        export! { $(
            /// Computes the Euclidean norm of x, or the sum of its elements' absolute values.
            pub fn $name(handle: Handle, n: $int, x: Address, incx: $int, result: Place) -> BlasStatus {
                single(handle, $operation, $types, n.into(), Vector(x, incx.into()), result)
            }
        )* }
    };
}

macro_rules! axpy {
    ($int:ty: $( fn $name:ident $types:ident )*) => {
        export! { $(
            /// Adds `alpha * x` to y.
            pub fn $name(
                handle: Handle, n: $int, alpha: Factor, x: Address, incx: $int, y: Address, incy: $int,
            ) -> BlasStatus {
                axpy(handle, $types, n.into(), alpha, [Vector(x, incx.into()), Vector(y, incy.into())])
            }
        )* }
    };
}

macro_rules! ex {
    ($int:ty: fn $dot:ident fn $dotc:ident fn $norm:ident fn $axpy:ident) => {
        export! {
            /// Computes the sum of the products of x and y, with their types as arguments.
            pub fn $dot(
                handle: Handle, n: $int, x: Address, x_type: c_int, incx: $int, y: Address, y_type: c_int,
                incy: $int, result: Place, result_type: c_int, compute: c_int,
            ) -> BlasStatus {
                handle.context()?;
                let types = among(DOTS, Types { x: x_type, y: y_type, scalar: result_type, compute })?;
                let vectors = [Vector(x, incx.into()), Vector(y, incy.into())];
                sum(handle, VECTOR_DOT, types, n.into(), vectors, result)
            }

            /// Computes the sum of the products of x's conjugates and y, with their types as arguments.
            pub fn $dotc(
                handle: Handle, n: $int, x: Address, x_type: c_int, incx: $int, y: Address, y_type: c_int,
                incy: $int, result: Place, result_type: c_int, compute: c_int,
            ) -> BlasStatus {
                handle.context()?;
                let types = among(DOTS, Types { x: x_type, y: y_type, scalar: result_type, compute })?;
                let vectors = [Vector(x, incx.into()), Vector(y, incy.into())];
                sum(handle, VECTOR_DOT_CONJUGATE, types, n.into(), vectors, result)
            }

            /// Computes the Euclidean norm of x, with the types as arguments.
            pub fn $norm(
                handle: Handle, n: $int, x: Address, x_type: c_int, incx: $int, result: Place,
                result_type: c_int, compute: c_int,
            ) -> BlasStatus {
                handle.context()?;
                let types = among(NORMS, Types { x: x_type, y: x_type, scalar: result_type, compute })?;
                single(handle, VECTOR_NORM, types, n.into(), Vector(x, incx.into()), result)
            }

            /// Adds `alpha * x` to y, with the types as arguments.
            pub fn $axpy(
                handle: Handle, n: $int, alpha: Factor, alpha_type: c_int, x: Address, x_type: c_int,
                incx: $int, y: Address, y_type: c_int, incy: $int, compute: c_int,
            ) -> BlasStatus {
                handle.context()?;
                let types = among(AXPYS, Types { x: x_type, y: y_type, scalar: alpha_type, compute })?;
                axpy(handle, types, n.into(), alpha, [Vector(x, incx.into()), Vector(y, incy.into())])
            }
        }
    };
}

dot! { c_int: fn cublasSdot_v2 S VECTOR_DOT fn cublasDdot_v2 D VECTOR_DOT fn cublasCdotu_v2 C VECTOR_DOT
fn cublasCdotc_v2 C VECTOR_DOT_CONJUGATE fn cublasZdotu_v2 Z VECTOR_DOT
fn cublasZdotc_v2 Z VECTOR_DOT_CONJUGATE }
dot! { i64: fn cublasSdot_v2_64 S VECTOR_DOT fn cublasDdot_v2_64 D VECTOR_DOT
fn cublasCdotu_v2_64 C VECTOR_DOT
fn cublasCdotc_v2_64 C VECTOR_DOT_CONJUGATE fn cublasZdotu_v2_64 Z VECTOR_DOT
fn cublasZdotc_v2_64 Z VECTOR_DOT_CONJUGATE }

single! { c_int: fn cublasSnrm2_v2 S VECTOR_NORM fn cublasDnrm2_v2 D VECTOR_NORM
fn cublasScnrm2_v2 SC VECTOR_NORM
fn cublasDznrm2_v2 DZ VECTOR_NORM fn cublasSasum_v2 S VECTOR_ASUM fn cublasDasum_v2 D VECTOR_ASUM
fn cublasScasum_v2 SC VECTOR_ASUM fn cublasDzasum_v2 DZ VECTOR_ASUM }
single! { i64: fn cublasSnrm2_v2_64 S VECTOR_NORM fn cublasDnrm2_v2_64 D VECTOR_NORM
fn cublasScnrm2_v2_64 SC VECTOR_NORM fn cublasDznrm2_v2_64 DZ VECTOR_NORM fn cublasSasum_v2_64 S VECTOR_ASUM
fn cublasDasum_v2_64 D VECTOR_ASUM fn cublasScasum_v2_64 SC VECTOR_ASUM
fn cublasDzasum_v2_64 DZ VECTOR_ASUM }

axpy! { c_int: fn cublasSaxpy_v2 S fn cublasDaxpy_v2 D fn cublasCaxpy_v2 C fn cublasZaxpy_v2 Z }
axpy! { i64: fn cublasSaxpy_v2_64 S fn cublasDaxpy_v2_64 D fn cublasCaxpy_v2_64 C fn cublasZaxpy_v2_64 Z }

ex! { c_int: fn cublasDotEx fn cublasDotcEx fn cublasNrm2Ex fn cublasAxpyEx }
ex! { i64: fn cublasDotEx_64 fn cublasDotcEx_64 fn cublasNrm2Ex_64 fn cublasAxpyEx_64 }
