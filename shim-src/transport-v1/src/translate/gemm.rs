//! Matrix products. Version 1 carries scalars as f32, so it cannot express products of doubles and integers
//! (Q20).

use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm};
use vgpu_wire::v1::call::Op;
use vgpu_wire::v1::payload::{GemmBatched, GemmEx, GemmStrided};
use zerocopy::little_endian::{I32, I64, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::allocations::Allocations;
use super::copy;
use crate::call::{Call, CallError, Payload};
use crate::host_session::HostSession;
use crate::status::{INVALID_VALUE, LAUNCH_FAILED, NOT_SUPPORTED, OUT_OF_MEMORY, UNKNOWN};

// `cudaDataType`.
const R_32F: u32 = 0;
const R_16F: u32 = 2;
const R_16BF: u32 = 14;

/// Values of `cublasComputeType_t` for doubles and integers.
const COMPUTE_NOT_F32: std::ops::RangeInclusive<u32> = 70..=73;

/// The matrix products of a session.
#[derive(Debug, Default)]
pub(super) struct Gemms {
    /// Handle of cuBLAS on the host, created by the first product.
    handle: Option<u64>,
}

impl Gemms {
    /// Multiplies matrices. Scalars and matrix addresses in device memory are downloaded first.
    pub(super) fn gemm(
        &mut self,
        host: HostSession<'_>,
        allocations: &Allocations,
        body: &Gemm,
    ) -> Result<(), CallError> {
        if COMPUTE_NOT_F32.contains(&body.compute) {
            return Err(CallError::Status(NOT_SUPPORTED));
        }
        let alpha = scalar(host, allocations, body, &body.alpha)?;
        let beta = scalar(host, allocations, body, &body.beta)?;
        let handle = self.handle(host)?;
        let (op, payload) = if body.flags & GEMM_POINTERS != 0 {
            (Op::CublasGemmBatchedEx, batched(host, allocations, body, handle, alpha, beta)?)
        } else if body.batch == 1 {
            (Op::CublasGemmEx, single(body, handle, alpha, beta)?.as_bytes().to_vec())
        } else {
            (Op::CublasGemmStridedBatchedEx, strided(body, handle, alpha, beta)?.as_bytes().to_vec())
        };
        let [status, ..] = host
            .call_plain(&Call::new(op, &[]).with_padded_payload(Payload::Bytes(&payload)).with_results(1))?;
        check_cublas_status(status)
    }

    /// Returns the host's cuBLAS handle, which the first call creates.
    fn handle(&mut self, host: HostSession<'_>) -> Result<u64, CallError> {
        if let Some(handle) = self.handle {
            return Ok(handle);
        }
        let [status, handle, ..] = host.call_plain(&Call::new(Op::CublasCreate, &[]).with_results(2))?;
        check_cublas_status(status)?;
        self.handle = Some(handle);
        Ok(handle)
    }
}

/// Reads a scalar and converts it to the bits of an f32.
fn scalar(
    host: HostSession<'_>,
    allocations: &Allocations,
    body: &Gemm,
    value: &[u8; 16],
) -> Result<U32, CallError> {
    let bytes = match body.scale {
        R_32F => 4,
        R_16F | R_16BF => 2,
        _ => return Err(CallError::Status(NOT_SUPPORTED)),
    };
    let mut bits = [0; 4];
    if body.flags & GEMM_DEVICE_SCALARS == 0 {
        bits[..bytes].copy_from_slice(&value[..bytes]);
    } else {
        let address = u64::from_le_bytes(*value.first_chunk().unwrap_or(&[0; 8]));
        copy::read_private(host, allocations, address, &mut bits[..bytes])?;
    }
    let low = u16::from_le_bytes([bits[0], bits[1]]);
    Ok(U32::new(match body.scale {
        R_16F => half(low),
        R_16BF => bfloat(low),
        _ => u32::from_le_bytes(bits),
    }))
}

/// Builds the payload of a product over arrays of addresses. The arrays are in device memory, and the payload
/// contains the addresses themselves.
fn batched(
    host: HostSession<'_>,
    allocations: &Allocations,
    body: &Gemm,
    handle: u64,
    alpha: U32,
    beta: U32,
) -> Result<Vec<u8>, CallError> {
    let mut head = GemmBatched::new_zeroed();
    head.handle = U64::new(handle);
    head.operation = enumerations(body.operation);
    head.size = sizes(body.size)?;
    head.types = enumerations(body.types);
    head.leading = sizes(body.leading)?;
    head.batch = size(u64::from(body.batch))?;
    head.compute = I32::new(body.compute.cast_signed());
    head.algorithm = I32::new(body.algorithm);
    head.alpha = alpha;
    head.beta = beta;
    let mut payload = head.as_bytes().to_vec();
    for array in body.matrix {
        let mut addresses = vec![0; body.batch as usize * 8];
        copy::read_private(host, allocations, array, &mut addresses)?;
        payload.extend_from_slice(&addresses);
    }
    Ok(payload)
}

fn single(body: &Gemm, handle: u64, alpha: U32, beta: U32) -> Result<GemmEx, CallError> {
    Ok(GemmEx {
        handle: U64::new(handle),
        matrix: body.matrix.map(U64::new),
        operation: enumerations(body.operation),
        size: sizes(body.size)?,
        types: enumerations(body.types),
        leading: sizes(body.leading)?,
        compute: I32::new(body.compute.cast_signed()),
        algorithm: I32::new(body.algorithm),
        alpha,
        beta,
    })
}

fn strided(body: &Gemm, handle: u64, alpha: U32, beta: U32) -> Result<GemmStrided, CallError> {
    Ok(GemmStrided {
        handle: U64::new(handle),
        matrix: body.matrix.map(U64::new),
        stride: body.stride.map(I64::new),
        operation: enumerations(body.operation),
        size: sizes(body.size)?,
        types: enumerations(body.types),
        leading: sizes(body.leading)?,
        batch: size(u64::from(body.batch))?,
        compute: I32::new(body.compute.cast_signed()),
        algorithm: I32::new(body.algorithm),
        alpha,
        beta,
    })
}

fn enumerations<const N: usize>(values: [u32; N]) -> [I32; N] {
    values.map(|value| I32::new(value.cast_signed()))
}

fn size(value: u64) -> Result<I32, CallError> {
    i32::try_from(value).map(I32::new).map_err(|_| CallError::Status(INVALID_VALUE))
}

fn sizes(values: [u64; 3]) -> Result<[I32; 3], CallError> {
    let [one, two, three] = values;
    Ok([size(one)?, size(two)?, size(three)?])
}

/// Converts a `cublasStatus_t` to the `CUresult` of the same meaning.
fn check_cublas_status(status: u64) -> Result<(), CallError> {
    Err(CallError::Status(match status {
        0 => return Ok(()),
        3 => OUT_OF_MEMORY,
        7 => INVALID_VALUE,
        13 => LAUNCH_FAILED,
        15 => NOT_SUPPORTED,
        _ => UNKNOWN,
    }))
}

/// Converts an IEEE half to the bits of an f32.
fn half(bits: u16) -> u32 {
    half::f16::from_bits(bits).to_f32().to_bits()
}

/// Converts a bfloat16 to the bits of an f32.
fn bfloat(bits: u16) -> u32 {
    half::bf16::from_bits(bits).to_f32().to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_have_their_values() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xbc00, -1.0),
            (0x3800, 0.5),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x03ff, 6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(half(bits), f32::to_bits(value), "{bits:#06x}");
        }
        assert_eq!(half(0x8000), (-0.0_f32).to_bits());
        assert!(f32::from_bits(half(0x7e00)).is_nan());
        assert_eq!(bfloat(0x3f80), 1.0_f32.to_bits());
        assert_eq!(bfloat(0xc040), (-3.0_f32).to_bits());
    }
}
