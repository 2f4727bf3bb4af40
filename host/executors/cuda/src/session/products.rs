//! Messages of matrix products, triangular solves and operations on vectors.

use vgpu_device::{SessionError, Work};
use vgpu_wire::Body;

use super::CudaSession;
use crate::gpu::operand::OperandError;

impl CudaSession {
    /// Carries out `Gemm`, `TriangularSolve`, `MatmulLt` and `VectorOp`. It enqueues the product if the
    /// session has a GPU.
    pub(super) fn product(&mut self, work: &Work<'_>, stream: u32) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(stream)?;
        let empty = match &work.message.body {
            Body::Gemm(body) => body.size[0] == 0 || body.size[1] == 0 || body.batch == 0,
            Body::MatmulLt(body) => body.size[0] == 0 || body.size[1] == 0 || body.batch == 0,
            Body::TriangularSolve(body) => body.size.contains(&0) || body.batch == 0,
            _ => false,
        };
        if empty || self.health.dead().is_some() {
            return Ok(());
        }
        let done = match &mut self.gpu {
            Some(gpu) => gpu.enqueue_product(&self.shared, stream, &work.message.body),
            // A session without a GPU has allocated nothing that a product could use.
            None => Err(OperandError::Illegal { name: "an operand", address: 0, bytes: 0 }.into()),
        };
        if let Err(error) = done {
            self.report_refusal(work.number, error.code(), &error);
        }
        Ok(())
    }
}
