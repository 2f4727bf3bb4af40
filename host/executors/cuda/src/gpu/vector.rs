//! Operations on vectors.

use vgpu_device::Strided;
use vgpu_wire::body::gemm::GEMM_DEVICE_SCALARS;
use vgpu_wire::body::vector::{VECTOR_AXPY, VECTOR_DOT, VECTOR_DOT_CONJUGATE, VectorOp};

use crate::driver::blas::vector::Number;
use crate::driver::range::DeviceRange;
use crate::gpu::operand::{OperandError, element};
use crate::gpu::product::{BlasSession, ProductError, ProductTarget};

impl BlasSession {
    /// Enqueues an operation on vectors, all operands of which the session must own. An empty sum is stored
    /// as 0.
    pub(crate) fn vector(&mut self, to: &ProductTarget<'_>, body: &VectorOp) -> Result<(), ProductError> {
        let adds = body.operation == VECTOR_AXPY;
        let of_scalar = element(body.scalar_type)?;
        let number = if adds {
            let [alpha] = to.scalars(body.flags, [body.alpha], body.scalar_type)?;
            Number::Alpha(alpha)
        } else {
            Number::Sum(to.memory.operand("the sum", body.result, of_scalar, of_scalar)?)
        };
        if body.elements == 0 {
            // The contract defines an empty sum as 0. cuBLAS's manual does not define it.
            if let Number::Sum(sum) = number {
                to.stream.fill(sum, 1, 0)?;
            }
            return Ok(());
        }
        let vector = |name, kind: u32, at: usize| -> Result<DeviceRange, OperandError> {
            let (address, element) = (body.vector[at], element(kind)?);
            let nowhere = OperandError::Illegal { name, address, bytes: u64::MAX };
            let place = Strided { address, stride: body.step[at], element };
            let (lowest, bytes) = place.all(body.elements, element).ok_or(nowhere)?;
            to.memory.operand(name, lowest, bytes, element)
        };
        let x = vector("x", body.x_type, 0)?;
        let has_y = matches!(body.operation, VECTOR_DOT | VECTOR_DOT_CONJUGATE | VECTOR_AXPY);
        let y = if has_y { vector("y", body.y_type, 1)? } else { x };
        // Sums always go to device memory.
        let flags = if adds { body.flags } else { GEMM_DEVICE_SCALARS };
        let settings = to.settings(flags, 0, None);
        Ok(self.set(to, settings)?.vector(body, [x, y], &number)?)
    }
}
