//! Matrix products. As calls they always succeed: cuBLAS's status is the first result.

use half::f16;
use vgpu_wire::body::gemm::Gemm;
use vgpu_wire::v1::payload::{GemmBatched, GemmEx, GemmStrided, Sgemm};
use zerocopy::FromBytes;
use zerocopy::little_endian::{I32, I64, U64};

use super::core::Mint;
use super::owner::Owner;
use super::request::{Reply, Request};
use super::status::cublas;

/// Number of the `cudaDataType` for single precision.
const R_32F: u32 = 0;
const R_16F: u32 = 2;
/// Number of the `cublasComputeType_t` for half precision.
const COMPUTE_16F: i32 = 64;
const COMPUTE_16F_PEDANTIC: i32 = 65;
const COMPUTE_32F: i32 = 68;
/// The `cublasComputeType_t` values whose scalars are neither f32 nor f16, which version 1 cannot express
/// (Q20).
const OTHER_SCALARS: [i32; 5] = [70, 71, 72, 73, 79];

/// A product in the form to which all four calls are converted.
pub(super) struct Product {
    handle: u64,
    operation: [I32; 2],
    size: [I32; 3],
    types: [i32; 3],
    leading: [I32; 3],
    compute: i32,
    algorithm: i32,
    alpha: u32,
    beta: u32,
    batch: i32,
    stride: [i64; 3],
    /// Addresses of A, B and C for each product that is computed separately.
    matrices: Vec<[u64; 3]>,
}

fn addresses(matrix: [U64; 3]) -> Vec<[u64; 3]> {
    vec![matrix.map(U64::get)]
}

impl From<Sgemm> for Product {
    fn from(call: Sgemm) -> Self {
        Self {
            handle: call.handle.get(),
            operation: call.operation,
            size: call.size,
            types: [R_32F as i32; 3],
            leading: call.leading,
            compute: COMPUTE_32F,
            algorithm: -1,
            alpha: call.alpha.get(),
            beta: call.beta.get(),
            batch: 1,
            stride: [0; 3],
            matrices: addresses(call.matrix),
        }
    }
}

/// Converts calls that state types and a compute type: to one product, or to several that are computed
/// separately.
macro_rules! product {
    ($call:expr, $matrices:expr) => {
        Product {
            handle: $call.handle.get(),
            operation: $call.operation,
            size: $call.size,
            types: $call.types.map(I32::get),
            leading: $call.leading,
            compute: $call.compute.get(),
            algorithm: $call.algorithm.get(),
            alpha: $call.alpha.get(),
            beta: $call.beta.get(),
            batch: 1,
            stride: [0; 3],
            matrices: $matrices,
        }
    };
}

impl From<GemmEx> for Product {
    fn from(call: GemmEx) -> Self {
        product!(call, addresses(call.matrix))
    }
}

impl From<GemmStrided> for Product {
    fn from(call: GemmStrided) -> Self {
        Self {
            batch: call.batch.get(),
            stride: call.stride.map(I64::get),
            ..product!(call, addresses(call.matrix))
        }
    }
}

/// Reads a batch whose matrices are given by arrays of addresses, which follow the header.
fn batched(data: &[u8]) -> Option<Product> {
    let (call, rest) = GemmBatched::read_from_prefix(data).ok()?;
    let count = usize::try_from(call.batch.get()).ok()?;
    let (words, _) = rest.as_chunks::<8>();
    let words = words.get(..count.checked_mul(3)?)?;
    let address = |index: usize| u64::from_le_bytes(words[index]);
    let matrices = (0..count).map(|i| [address(i), address(count + i), address(2 * count + i)]).collect();
    Some(product!(call, matrices))
}

/// Converts a scalar to the scale type of the product, f16 if `half`, else f32. The guest sends it as f32 in
/// any case.
fn scalar(bits: u32, half: bool) -> [u8; 16] {
    let mut bytes = [0; 16];
    if half {
        bytes[..2].copy_from_slice(&f16::from_f32(f32::from_bits(bits)).to_le_bytes());
    } else {
        bytes[..4].copy_from_slice(&bits.to_le_bytes());
    }
    bytes
}

fn natural<const N: usize>(values: [I32; N]) -> Option<[u64; N]> {
    let mut natural = [0; N];
    for (to, from) in natural.iter_mut().zip(values) {
        *to = u64::try_from(from.get()).ok()?;
    }
    Some(natural)
}

impl Product {
    /// Returns the version 2 message without the addresses, or the cuBLAS status of an invalid product.
    fn message(&self, stream: u32) -> Result<Gemm, u64> {
        if OTHER_SCALARS.contains(&self.compute) {
            return Err(cublas::NOT_SUPPORTED);
        }
        let half = matches!(self.compute, COMPUTE_16F | COMPUTE_16F_PEDANTIC);
        let invalid = cublas::INVALID_VALUE;
        Ok(Gemm {
            stream,
            flags: 0,
            operation: self.operation.map(|operation| operation.get().cast_unsigned()),
            types: self.types.map(i32::cast_unsigned),
            compute: self.compute.cast_unsigned(),
            scale: if half { R_16F } else { R_32F },
            algorithm: self.algorithm,
            math: 0,
            batch: u32::try_from(self.batch).map_err(|_| invalid)?,
            size: natural(self.size).ok_or(invalid)?,
            leading: natural(self.leading).ok_or(invalid)?,
            stride: self.stride,
            matrix: [0; 3],
            alpha: scalar(self.alpha, half),
            beta: scalar(self.beta, half),
            workspace: 0,
            workspace_bytes: 0,
        })
    }
}

/// Returns the `cublasStatus_t` for the `CUresult` with which the executor refused a product.
const fn status_of(code: u32) -> u64 {
    match code {
        1 => cublas::INVALID_VALUE,
        801 => cublas::NOT_SUPPORTED,
        _ => cublas::EXECUTION_FAILED,
    }
}

impl Owner {
    pub(super) fn cublas_create(&mut self, mint: &Mint) -> Reply {
        if self.cublas.room().is_err() {
            return Reply::results(&[cublas::ALLOC_FAILED]);
        }
        let handle = mint.handle();
        self.cublas.insert(handle, 0);
        Reply::results(&[cublas::SUCCESS, handle])
    }

    pub(super) fn cublas_destroy(&mut self, request: &Request<'_>) -> Reply {
        let known = self.cublas.remove(request.wide(0)).is_some();
        Reply::results(&[if known { cublas::SUCCESS } else { cublas::NOT_INITIALIZED }])
    }

    pub(super) fn cublas_set_stream(&mut self, request: &Request<'_>) -> Reply {
        let Some(stream) = self.cublas.get_mut(request.wide(0)) else {
            return Reply::results(&[cublas::NOT_INITIALIZED]);
        };
        *stream = request.wide(2);
        Reply::results(&[cublas::SUCCESS])
    }

    pub(super) fn cublas_get_stream(&self, request: &Request<'_>) -> Reply {
        match self.cublas.get(request.wide(0)) {
            Some(&stream) => Reply::results(&[cublas::SUCCESS, stream]),
            None => Reply::results(&[cublas::NOT_INITIALIZED]),
        }
    }

    /// Executes a product whose payload is a structure of fixed size, and waits for it. The first result is
    /// cuBLAS's status.
    pub(super) fn multiply<P: FromBytes + Into<Product>>(&mut self, request: &Request<'_>) -> Reply {
        let status = match P::read_from_prefix(request.data) {
            Ok((call, _)) => self.products(&call.into()),
            Err(_) => Err(cublas::INVALID_VALUE),
        };
        Reply::results(&[status.err().unwrap_or(cublas::SUCCESS)])
    }

    pub(super) fn multiply_batched(&mut self, request: &Request<'_>) -> Reply {
        let status =
            batched(request.data).ok_or(cublas::INVALID_VALUE).and_then(|product| self.products(&product));
        Reply::results(&[status.err().unwrap_or(cublas::SUCCESS)])
    }

    fn products(&mut self, product: &Product) -> Result<(), u64> {
        let stream = *self.cublas.get(product.handle).ok_or(cublas::NOT_INITIALIZED)?;
        let message = product.message(self.stream(stream))?;
        for &matrix in &product.matrices {
            // Each matrix must start in one of the owner's allocations. Variables of modules do not count,
            // because existing hosts have no table of them.
            if !matrix.iter().all(|&address| self.allocations.holds(address, 1)) {
                return Err(cublas::INVALID_VALUE);
            }
            let done = self.port.send(&Gemm { matrix, ..message }, &[]);
            done.and_then(|()| self.port.finish()).map_err(status_of)?;
        }
        Ok(())
    }
}
