//! Products of cuBLASLt: those with an epilogue, or with a C that differs from D.

use vgpu_device::{MatrixShape, Strided};
use vgpu_wire::body::matmul::{BiasGradient, Epilogue, MatmulLt};

use crate::driver::blas::matmul::MatmulOperands;
use crate::driver::range::DeviceRange;
use crate::gpu::operand::{OperandError, element, fits};
use crate::gpu::product::{BlasSession, OPERATION_LAST, ProductError, ProductTarget, counts};

/// Granularity of a mask's leading dimension, in bits.
const MASK_BITS: u64 = 128;

const fn invalid(name: &'static str, value: u64) -> OperandError {
    OperandError::Invalid { name, value }
}

impl BlasSession {
    /// Enqueues a product of cuBLASLt, all operands of which the session must own. Does nothing if D is
    /// empty.
    #[allow(clippy::many_single_char_names, reason = "the names of BLAS")]
    pub(crate) fn matmul(&mut self, to: &ProductTarget<'_>, body: &MatmulLt) -> Result<(), ProductError> {
        let [m, n, k] = body.size;
        if m == 0 || n == 0 || body.batch == 0 {
            return Ok(());
        }
        let epilogue =
            Epilogue::from_number(body.epilogue).ok_or(invalid("an epilogue", body.epilogue.into()))?;
        if let Some(&other) = body.operation.iter().find(|&&operation| operation > OPERATION_LAST) {
            return Err(invalid("an operation", other.into()).into());
        }
        let stored = |at: usize, [rows, columns]: [u64; 2]| {
            if body.operation[at] == 0 { [rows, columns] } else { [columns, rows] }
        };
        let shapes = [stored(0, [m, k]), stored(1, [k, n]), [m, n], [m, n]];
        let scalars = to.scalars(body.flags, [body.alpha, body.beta], body.scale)?;
        let [alpha, beta] = scalars.each_ref().map(|factor| counts(factor, body.scale));
        // As with other products, a matrix without effect is not read, except for sums of A or B.
        let reads = |gradient| k > 0 && (alpha || epilogue.gradient == Some(gradient));
        let counted = [reads(BiasGradient::A), reads(BiasGradient::B), beta, true];
        let matrix = |at: usize, name| -> Result<Option<DeviceRange>, OperandError> {
            let [rows, columns] = shapes[at];
            let (leading, element) = (body.leading[at], element(body.types[at])?);
            let shape = MatrixShape { rows, columns, leading, element };
            // One column of C may be used for all columns.
            let shape = if at == 2 && leading == 0 { shape } else { fits(shape)? };
            let place = Strided { address: body.matrix[at], stride: body.stride[at], element };
            counted[at].then(|| to.memory.matrices(name, place, shape, body.batch)).transpose()
        };
        let (a, b, c) = (matrix(0, "A")?, matrix(1, "B")?, matrix(2, "C")?);
        let Some(d) = matrix(3, "D")? else { unreachable!("D is always looked up") };
        let operands = MatmulOperands {
            // cuBLASLt may still require an address. That of D belongs to the session.
            matrices: [a.unwrap_or(d), b.unwrap_or(d), c.unwrap_or(d), d],
            shapes,
            bias: epilogue.uses_bias().then(|| bias(to, body, epilogue)).transpose()?,
            aux: epilogue.auxiliary.then(|| auxiliary(to, body, epilogue)).transpose()?,
            aux_has_type: !epilogue.masks(),
            scalars,
            workspace: to.named_workspace(body.workspace, body.workspace_bytes)?.or(to.workspace),
        };
        // If C has no effect, D replaces it, with D's layout, because cuBLASLt requires that one matrix has
        // one layout.
        let in_place = MatmulLt {
            leading: [body.leading[0], body.leading[1], body.leading[3], body.leading[3]],
            stride: [body.stride[0], body.stride[1], body.stride[3], body.stride[3]],
            ..*body
        };
        let body = if c.is_some() { body } else { &in_place };
        Ok(self.handle()?.matmul(to.stream, body, &operands)?)
    }
}

/// Returns the range of the bias, or of the destination of its gradient: an element for each row or each
/// column of D.
fn bias(to: &ProductTarget<'_>, body: &MatmulLt, epilogue: Epilogue) -> Result<DeviceRange, OperandError> {
    let [rows, columns, _] = body.size;
    let length = if epilogue.gradient == Some(BiasGradient::B) { columns } else { rows };
    let element = element(body.bias_type)?;
    let shape = MatrixShape { rows: length, columns: 1, leading: length, element };
    let place = Strided { address: body.bias, stride: body.bias_stride, element };
    to.memory.matrices("the bias", place, shape, body.batch)
}

/// Returns the range of the auxiliary matrix, or of the mask, in which a byte holds eight rows of a column.
fn auxiliary(
    to: &ProductTarget<'_>,
    body: &MatmulLt,
    epilogue: Epilogue,
) -> Result<DeviceRange, OperandError> {
    let [rows, columns, _] = body.size;
    let (name, address) = ("the auxiliary matrix", body.aux);
    if !epilogue.masks() {
        let element = element(body.aux_type)?;
        let shape = fits(MatrixShape { rows, columns, leading: body.aux_leading, element })?;
        return to.memory.matrices(
            name,
            Strided { address, stride: body.aux_stride, element },
            shape,
            body.batch,
        );
    }
    if body.aux_leading < rows || !body.aux_leading.is_multiple_of(MASK_BITS) {
        return Err(invalid("a mask's leading dimension", body.aux_leading));
    }
    if body.aux_stride % 8 != 0 {
        return Err(invalid("a mask's stride", body.aux_stride.cast_unsigned()));
    }
    let shape = MatrixShape { rows: rows.div_ceil(8), columns, leading: body.aux_leading / 8, element: 1 };
    to.memory.matrices(name, Strided { address, stride: body.aux_stride / 8, element: 1 }, shape, body.batch)
}
