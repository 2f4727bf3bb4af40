//! Triangular solves.

use vgpu_device::{MatrixShape, Strided};
use vgpu_wire::body::gemm::{GEMM_POINTERS, TriangularSolve};

use crate::gpu::operand::{OperandError, element, fits};
use crate::gpu::product::{BlasSession, ProductError, ProductTarget, counts};

impl BlasSession {
    /// Enqueues a triangular solve, both operands of which the session must own. Does nothing if B is empty.
    pub(crate) fn solve(
        &mut self,
        to: &ProductTarget<'_>,
        body: &TriangularSolve,
    ) -> Result<(), ProductError> {
        let [rows, columns] = body.size;
        if rows == 0 || columns == 0 || body.batch == 0 {
            return Ok(());
        }
        let arrays = body.flags & GEMM_POINTERS != 0;
        if !arrays && body.batch > 1 {
            let value = body.batch.into();
            return Err(OperandError::Invalid { name: "the batch of one address", value }.into());
        }
        let [alpha] = to.scalars(body.flags, [body.alpha], body.element)?;
        let element = element(body.element)?;
        let order = if body.side == 0 { rows } else { columns };
        let matrix = |at: usize, name, rows, columns| {
            let shape = fits(MatrixShape { rows, columns, leading: body.leading[at], element })?;
            // As in BLAS, A is not read if alpha is 0.
            if at == 0 && !counts(&alpha, body.element) {
                return Ok(None);
            }
            let address = body.matrix[at];
            let found = if arrays {
                to.memory.addresses(name, address, body.batch)
            } else {
                to.memory.matrices(name, Strided { address, stride: 0, element }, shape, 1)
            };
            found.map(Some)
        };
        let triangle = matrix(0, "A", order, order)?;
        let Some(result) = matrix(1, "B", rows, columns)? else { unreachable!("B is always looked up") };
        let settings = to.settings(body.flags, 0, None);
        let handle = self.set(to, settings)?;
        Ok(handle.solve(body, [triangle.unwrap_or(result), result], &alpha)?)
    }
}
