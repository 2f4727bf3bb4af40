//! Messages of matrix products, triangular solves and operations on vectors.

use vgpu_device::{SessionError, Work};
use vgpu_wire::body::gemm::{Gemm, TriangularSolve};
use vgpu_wire::body::matmul::MatmulLt;
use vgpu_wire::body::vector::VectorOp;

use super::CudaSession;
use crate::gpu::operand::OperandError;
use crate::gpu::product::{BlasSession, ProductError, ProductTarget};

impl CudaSession {
    /// Enqueues a product if the session has a GPU. `workspace` is the address in the message.
    fn product(
        &mut self,
        work: &Work<'_>,
        stream: u32,
        workspace: u64,
        issue: impl FnOnce(&mut BlasSession, &ProductTarget<'_>) -> Result<(), ProductError>,
    ) -> Result<(), SessionError> {
        let stream = self.handles.check_stream(stream)?;
        if self.health.dead().is_some() {
            return Ok(());
        }
        let done = match &mut self.gpu {
            Some(gpu) => gpu.product(&self.shared, stream, workspace, issue),
            // Nothing was allocated that it could work on.
            None => Err(OperandError::Illegal { name: "an operand", address: 0, bytes: 0 }.into()),
        };
        if let Err(error) = done {
            match &self.gpu {
                Some(gpu) => gpu.refused(work.number, error.code(), &error),
                None => self.health.refused(work.number, error.code(), &error),
            }
        }
        Ok(())
    }

    /// `Gemm`
    pub(super) fn gemm(&mut self, work: &Work<'_>, body: &Gemm) -> Result<(), SessionError> {
        if body.size[0] == 0 || body.size[1] == 0 || body.batch == 0 {
            self.handles.check_stream(body.stream)?;
            return Ok(());
        }
        self.product(work, body.stream, body.workspace, |products, to| products.gemm(to, body))
    }

    /// `TriangularSolve`
    pub(super) fn solve(&mut self, work: &Work<'_>, body: &TriangularSolve) -> Result<(), SessionError> {
        if body.size.contains(&0) || body.batch == 0 {
            self.handles.check_stream(body.stream)?;
            return Ok(());
        }
        self.product(work, body.stream, 0, |products, to| products.solve(to, body))
    }

    /// `MatmulLt`
    pub(super) fn matmul(&mut self, work: &Work<'_>, body: &MatmulLt) -> Result<(), SessionError> {
        if body.size[0] == 0 || body.size[1] == 0 || body.batch == 0 {
            self.handles.check_stream(body.stream)?;
            return Ok(());
        }
        self.product(work, body.stream, body.workspace, |products, to| products.matmul(to, body))
    }

    /// `VectorOp`
    pub(super) fn vector(&mut self, work: &Work<'_>, body: &VectorOp) -> Result<(), SessionError> {
        self.product(work, body.stream, 0, |products, to| products.vector(to, body))
    }
}
