//! cuBLAS: the functions that an executor calls, in their forms with 64-bit sizes.

use vgpu_abi::CUresult;
use vgpu_abi::blas::{arithmetic, is_math_mode};
use vgpu_abi::driver::CUstream;
use vgpu_abi::driver::arg::Out;

use crate::call::{ApiCall, BlasHandle};
use crate::matrix::BlasMatrix;
use crate::memory::AddressRange;
use crate::raw::{DeviceAddress, HostAddress};
use crate::rule::{CallRefusal, CallResult, Rule};

/// Returns the size of a matrix as it is stored, if the operation turns it into this size.
fn stored(operation: i32, [rows, columns]: [i64; 2]) -> CallResult<[i64; 2]> {
    match operation {
        0 => Ok([rows, columns]),
        1 | 2 => Ok([columns, rows]),
        _ => Err(Rule::Argument.into()),
    }
}

/// Checks the element types and the scalars of a product.
fn scalars(
    call: &mut ApiCall,
    handle: BlasHandle,
    compute: i32,
    types: [i32; 3],
    places: [HostAddress; 2],
) -> CallResult {
    let found = arithmetic(compute, types, true).ok_or(CallRefusal::Expected(CUresult::NOT_SUPPORTED))?;
    places.into_iter().try_for_each(|place| call.blas_scalar(handle.0, place, found.scale, false))
}

blas_calls! {
    /// Implements `cublasCreate`.
    pub fn cublasCreate_v2(handle: Out<usize>) |call| {
        let made = call.blas_create()?;
        call.out("handle", &BlasHandle(made));
        Ok(handle.set(made)?)
    }

    /// Implements `cublasDestroy`.
    pub fn cublasDestroy_v2(handle: BlasHandle) |call| {
        call.blas_destroy(handle.0)
    }

    /// Implements `cublasSetStream`.
    pub fn cublasSetStream_v2(handle: BlasHandle, stream: CUstream) |call| {
        call.blas_stream(handle.0, stream.0)
    }

    /// Implements `cublasSetWorkspace`.
    pub fn cublasSetWorkspace_v2(handle: BlasHandle, workspace: DeviceAddress, bytes: usize) |call| {
        call.blas_workspace(handle.0, AddressRange::new(workspace.0, bytes as u64))
    }

    /// Implements `cublasSetPointerMode`.
    pub fn cublasSetPointerMode_v2(handle: BlasHandle, mode: i32) |call| {
        call.blas_pointers(handle.0, mode)
    }

    /// Implements `cublasSetMathMode`.
    pub fn cublasSetMathMode(handle: BlasHandle, mode: i32) |call| {
        call.blas_math(handle.0, is_math_mode(mode, true))
    }

    /// Implements `cublasGemmEx`.
    pub fn cublasGemmEx_64(
        handle: BlasHandle, on_a: i32, on_b: i32, m: i64, n: i64, k: i64, alpha: HostAddress,
        a: DeviceAddress,
        a_type: i32, lda: i64, b: DeviceAddress, b_type: i32, ldb: i64, beta: HostAddress, c: DeviceAddress,
        c_type: i32,
        ldc: i64, compute: i32, algorithm: i32,
    ) |call| {
        let _ = algorithm;
        scalars(call, handle, compute, [a_type, b_type, c_type], [alpha, beta])?;
        let (stride, of_a, of_b) = (0, stored(on_a, [m, k])?, stored(on_b, [k, n])?);
        call.blas_matrix(BlasMatrix { address: a, size: of_a, leading: lda, stride, kind: a_type }, 1, false)?;
        call.blas_matrix(BlasMatrix { address: b, size: of_b, leading: ldb, stride, kind: b_type }, 1, false)?;
        let c = BlasMatrix { address: c, size: [m, n], leading: ldc, stride, kind: c_type };
        let result = call.blas_matrix(c, 1, true)?;
        call.blas_submit(handle.0, result)
    }

    /// Implements `cublasGemmStridedBatchedEx`.
    pub fn cublasGemmStridedBatchedEx_64(
        handle: BlasHandle, on_a: i32, on_b: i32, m: i64, n: i64, k: i64, alpha: HostAddress,
        a: DeviceAddress,
        a_type: i32, lda: i64, stride_a: i64, b: DeviceAddress, b_type: i32, ldb: i64, stride_b: i64,
        beta: HostAddress, c: DeviceAddress, c_type: i32, ldc: i64, stride_c: i64, batch: i64, compute: i32,
        algorithm: i32,
    ) |call| {
        let _ = algorithm;
        scalars(call, handle, compute, [a_type, b_type, c_type], [alpha, beta])?;
        let (of_a, of_b) = (stored(on_a, [m, k])?, stored(on_b, [k, n])?);
        let a = BlasMatrix { address: a, size: of_a, leading: lda, stride: stride_a, kind: a_type };
        let b = BlasMatrix { address: b, size: of_b, leading: ldb, stride: stride_b, kind: b_type };
        let c = BlasMatrix { address: c, size: [m, n], leading: ldc, stride: stride_c, kind: c_type };
        call.blas_matrix(a, batch, false)?;
        call.blas_matrix(b, batch, false)?;
        let result = call.blas_matrix(c, batch, true)?;
        call.blas_submit(handle.0, result)
    }

    /// Implements `cublasGemmBatchedEx`. The addresses in the arrays are not checked.
    pub fn cublasGemmBatchedEx_64(
        handle: BlasHandle, on_a: i32, on_b: i32, m: i64, n: i64, k: i64, alpha: HostAddress,
        a: DeviceAddress,
        a_type: i32, lda: i64, b: DeviceAddress, b_type: i32, ldb: i64, beta: HostAddress, c: DeviceAddress,
        c_type: i32,
        ldc: i64, batch: i64, compute: i32, algorithm: i32,
    ) |call| {
        let _ = algorithm;
        scalars(call, handle, compute, [a_type, b_type, c_type], [alpha, beta])?;
        let ([rows_a, _], [rows_b, _]) = (stored(on_a, [m, k])?, stored(on_b, [k, n])?);
        if lda < rows_a.max(1) || ldb < rows_b.max(1) || ldc < m.max(1) {
            return Err(Rule::Argument.into());
        }
        call.blas_arrays([a, b, c], batch)?;
        call.blas_submit(handle.0, AddressRange::new(c.0, 0))
    }
}

/// Checks and enqueues a triangular solve. A is square, and X replaces B.
#[allow(clippy::too_many_arguments, reason = "as many as BLAS has")]
fn solve(
    call: &mut ApiCall,
    handle: BlasHandle,
    kind: i32,
    modes: [i32; 4],
    size: [i64; 2],
    alpha: HostAddress,
    matrices: [(DeviceAddress, i64); 2],
    batch: Option<i64>,
) -> CallResult {
    let [side, fill, operation, diagonal] = modes;
    if !matches!((side, fill, diagonal), (0 | 1, 0 | 1, 0 | 1)) {
        return Err(Rule::Argument.into());
    }
    stored(operation, size)?;
    call.blas_scalar(handle.0, alpha, kind, false)?;
    let order = size[usize::from(side == 1)];
    let [(a, lda), (b, ldb)] = matrices;
    if let Some(batch) = batch {
        if lda < order.max(1) || ldb < size[0].max(1) {
            return Err(Rule::Argument.into());
        }
        call.blas_arrays([a, b], batch)?;
        return call.blas_submit(handle.0, AddressRange::new(b.0, 0));
    }
    let stride = 0;
    call.blas_matrix(BlasMatrix { address: a, size: [order; 2], leading: lda, stride, kind }, 1, false)?;
    let result = call.blas_matrix(BlasMatrix { address: b, size, leading: ldb, stride, kind }, 1, true)?;
    call.blas_submit(handle.0, result)
}

macro_rules! solves {
    ($( $one:ident $many:ident $kind:literal; )*) => {
        blas_calls! { $(
            /// Implements `cublas<t>trsm`.
            pub fn $one(
                handle: BlasHandle, side: i32, fill: i32, operation: i32, diagonal: i32, m: i64, n: i64,
                alpha: HostAddress, a: DeviceAddress, lda: i64, b: DeviceAddress, ldb: i64,
            ) |call| {
                let modes = [side, fill, operation, diagonal];
                solve(call, handle, $kind, modes, [m, n], alpha, [(a, lda), (b, ldb)], None)
            }

            /// Implements `cublas<t>trsmBatched`.
            pub fn $many(
                handle: BlasHandle, side: i32, fill: i32, operation: i32, diagonal: i32, m: i64, n: i64,
                alpha: HostAddress, a: DeviceAddress, lda: i64, b: DeviceAddress, ldb: i64, batch: i64,
            ) |call| {
                let modes = [side, fill, operation, diagonal];
                solve(call, handle, $kind, modes, [m, n], alpha, [(a, lda), (b, ldb)], Some(batch))
            }
        )* }
    };
}

solves! {
    cublasStrsm_v2_64 cublasStrsmBatched_64 0;
    cublasDtrsm_v2_64 cublasDtrsmBatched_64 1;
    cublasCtrsm_v2_64 cublasCtrsmBatched_64 4;
    cublasZtrsm_v2_64 cublasZtrsmBatched_64 5;
}

/// Checks a vector as a matrix of one row. `address` is its lowest address.
fn vector(
    call: &ApiCall,
    count: i64,
    address: DeviceAddress,
    kind: i32,
    step: i64,
    write: bool,
) -> CallResult<AddressRange> {
    let leading = step.unsigned_abs().max(1).cast_signed();
    call.blas_matrix(BlasMatrix { address, size: [1, count], leading, stride: 0, kind }, 1, write)
}

/// Checks and enqueues a sum over vectors. The pointer mode selects the memory of the result.
fn sum(call: &mut ApiCall, handle: BlasHandle, result: HostAddress, kind: i32) -> CallResult {
    call.blas_scalar(handle.0, result, kind, true)?;
    call.blas_submit(handle.0, AddressRange::new(result.number(), 0))
}

macro_rules! dots {
    ($($name:ident)*) => { blas_calls! { $(
        /// Implements `cublasDotEx` and `cublasDotcEx`.
        pub fn $name(
            handle: BlasHandle, n: i64, x: DeviceAddress, x_type: i32, step_x: i64, y: DeviceAddress,
            y_type: i32,
            step_y: i64, result: HostAddress, result_type: i32, compute: i32,
        ) |call| {
            let _ = compute;
            vector(call, n, x, x_type, step_x, false)?;
            vector(call, n, y, y_type, step_y, false)?;
            sum(call, handle, result, result_type)
        }
    )* } };
}

dots! { cublasDotEx_64 cublasDotcEx_64 }

macro_rules! absolutes {
    ($($name:ident $kind:literal $real:literal;)*) => { blas_calls! { $(
        /// Implements `cublas<t>asum`.
        pub fn $name(handle: BlasHandle, n: i64, x: DeviceAddress, step: i64, result: HostAddress) |call| {
            vector(call, n, x, $kind, step, false)?;
            sum(call, handle, result, $real)
        }
    )* } };
}

absolutes! {
    cublasSasum_v2_64 0 0;
    cublasDasum_v2_64 1 1;
    cublasScasum_v2_64 4 0;
    cublasDzasum_v2_64 5 1;
}

blas_calls! {
    /// Implements `cublasNrm2Ex`.
    pub fn cublasNrm2Ex_64(
        handle: BlasHandle, n: i64, x: DeviceAddress, x_type: i32, step: i64, result: HostAddress,
        result_type: i32,
        compute: i32,
    ) |call| {
        let _ = compute;
        vector(call, n, x, x_type, step, false)?;
        sum(call, handle, result, result_type)
    }

    /// Implements `cublasAxpyEx`.
    pub fn cublasAxpyEx_64(
        handle: BlasHandle, n: i64, alpha: HostAddress, alpha_type: i32, x: DeviceAddress, x_type: i32,
        step_x: i64,
        y: DeviceAddress, y_type: i32, step_y: i64, compute: i32,
    ) |call| {
        let _ = compute;
        call.blas_scalar(handle.0, alpha, alpha_type, false)?;
        vector(call, n, x, x_type, step_x, false)?;
        let result = vector(call, n, y, y_type, step_y, true)?;
        call.blas_submit(handle.0, result)
    }
}
