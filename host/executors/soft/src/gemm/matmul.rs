//! The messages of matrix products: reads those of cuBLAS and cuBLASLt, checks them, and makes a [`Matmul`].

use vgpu_arena::View;
use vgpu_wire::body::gemm::{GEMM_DEVICE_SCALARS, GEMM_POINTERS, Gemm};
use vgpu_wire::body::matmul::{Activation, BiasGradient, Epilogue, MatmulLt};
use zerocopy::FromZeros;

use super::arithmetic::{Arithmetic, ComplexOf, Double, Single, Whole};
use super::element::{Element, Output};
use super::epilogue::{Auxiliary, Matmul, TypedMatrix};
use super::error::GemmError;
use super::matrix::{Location, Matrix, scalar};
use super::product::{MatrixOp, Multiplicand, TiledProduct};
use super::workers::Workers;

/// Number of the epilogue that leaves the product as it is.
const NO_EPILOGUE: u32 = 1;
/// The leading dimension of a mask is a multiple of this number of bits.
const MASK_BITS: u64 = 128;

/// Computes the products of a cuBLAS message.
///
/// As in BLAS, C is not read if `beta = 0`, and neither A nor B if `alpha = 0` or `k = 0`: a matrix that is
/// not read need not be valid memory, and a NaN in it has no effect.
///
/// # Errors
/// Those of [`GemmError`]. Nothing has been written, unless the error is [`GemmError::Halted`] or
/// the program changed arrays of addresses meanwhile.
pub fn multiply(memory: &View, body: &Gemm, workers: &Workers<'_>) -> Result<(), GemmError> {
    fn c_as_d<T: Copy>([a, b, c]: [T; 3]) -> [T; 4] {
        [a, b, c, c]
    }
    let matmul = MatmulLt {
        flags: body.flags,
        operation: body.operation,
        types: c_as_d(body.types),
        compute: body.compute,
        scale: body.scale,
        epilogue: NO_EPILOGUE,
        batch: body.batch,
        size: body.size,
        leading: c_as_d(body.leading),
        stride: c_as_d(body.stride),
        matrix: c_as_d(body.matrix),
        alpha: body.alpha,
        beta: body.beta,
        ..MatmulLt::new_zeroed()
    };
    Request { body: &matmul, result: "C", pointers: body.flags & GEMM_POINTERS != 0 }.compute(memory, workers)
}

/// Computes the products of a cuBLASLt message. It reads C, A and B under the same conditions as
/// [`multiply`].
///
/// # Errors
/// Those of [`GemmError`]. Nothing has been written unless it is [`GemmError::Halted`].
pub fn matmul(memory: &View, body: &MatmulLt, workers: &Workers<'_>) -> Result<(), GemmError> {
    Request { body, result: "D", pointers: false }.compute(memory, workers)
}

/// Sets every matrix of a batch to 0.
pub(super) fn clear<R: Arithmetic>(
    memory: &View,
    matrix: Matrix,
    batch: u32,
    output: Output<R::Number>,
    workers: &Workers<'_>,
) -> Result<(), GemmError> {
    let plain = Epilogue { activation: Activation::None, bias: false, auxiliary: false, gradient: None };
    Matmul::<R> {
        product: TiledProduct { memory, workers, factors: None, depth: 0 },
        source: None,
        c: None,
        d: TypedMatrix { matrix, output },
        alpha: R::NONE,
        beta: R::NONE,
        epilogue: plain,
        activations: R::ACTIVATIONS,
        bias: None,
        auxiliary: None,
    }
    .compute(batch.into())
}

/// A message before it is checked.
#[derive(Clone, Copy)]
struct Request<'b> {
    body: &'b MatmulLt,
    /// Name of the result matrix D in errors.
    result: &'static str,
    /// Whether `matrix` holds the device addresses of arrays of addresses.
    pointers: bool,
}

impl Request<'_> {
    fn compute(self, memory: &View, workers: &Workers<'_>) -> Result<(), GemmError> {
        let complex = matches!(Element::from_wire(self.body.types[3]), Some(Element::C32 | Element::C64));
        // The arms are values of `cublasComputeType_t`.
        match (self.body.compute, complex) {
            (64 | 65 | 68 | 69 | 74 | 75 | 77 | 78, false) => self.compute_in::<Single>(memory, workers),
            (68 | 69 | 74 | 75 | 77 | 78, true) => self.compute_in::<ComplexOf<f32>>(memory, workers),
            (70 | 71 | 79, false) => self.compute_in::<Double>(memory, workers),
            (70 | 71 | 79, true) => self.compute_in::<ComplexOf<f64>>(memory, workers),
            (72 | 73, false) => self.compute_in::<Whole>(memory, workers),
            _ => Err(self.unsupported()),
        }
    }

    fn unsupported(self) -> GemmError {
        let [a, b, _, d] = self.body.types;
        GemmError::Unsupported { types: [a, b, d], compute: self.body.compute, scale: self.body.scale }
    }

    #[allow(clippy::many_single_char_names, reason = "the names of BLAS")]
    fn compute_in<R: Arithmetic>(self, memory: &View, workers: &Workers<'_>) -> Result<(), GemmError> {
        let (body, refused) = (self.body, self.unsupported());
        let epilogue =
            Epilogue::from_number(body.epilogue).ok_or(invalid("an epilogue", body.epilogue.into()))?;
        let [Some(a_type), Some(b_type), Some(c_type), Some(d_type)] = body.types.map(Element::from_wire)
        else {
            return Err(refused);
        };
        let scale = Element::from_wire(body.scale).ok_or(refused)?;
        let loads = [R::input(a_type).ok_or(refused)?, R::input(b_type).ok_or(refused)?];
        let output = R::output(d_type).ok_or(refused)?;
        R::factor(scale, [0; 16]).ok_or(refused)?;
        if c_type != d_type || (body.epilogue != NO_EPILOGUE && R::ACTIVATIONS.is_none()) {
            return Err(refused);
        }

        let [m, n, k] = body.size;
        let [on_a, on_b] = [MatrixOp::from_wire(body.operation[0])?, MatrixOp::from_wire(body.operation[1])?];
        let input_a = Multiplicand {
            matrix: self.matrix(0, "A", a_type, on_a.stored(m, k)).fits()?,
            operation: on_a,
            load: loads[0],
        };
        let input_b = Multiplicand {
            matrix: self.matrix(1, "B", b_type, on_b.stored(k, n)).fits()?,
            operation: on_b,
            load: loads[1],
        };
        let c = self.matrix(2, "C", c_type, (m, n));
        // One column of C may stand for all.
        let c = if c.leading == 0 { c } else { c.fits()? };
        let d = TypedMatrix { matrix: self.matrix(3, self.result, d_type, (m, n)).fits()?, output };
        let length = if epilogue.gradient == Some(BiasGradient::B) { n } else { m };
        let bias = epilogue.uses_bias().then(|| self.bias::<R>(length)).transpose()?;
        let auxiliary = epilogue.auxiliary.then(|| self.auxiliary::<R>(epilogue)).transpose()?;
        if m == 0 || n == 0 || body.batch == 0 {
            return Ok(());
        }

        let factor = |name, bytes: [u8; 16]| {
            let on_device = body.flags & GEMM_DEVICE_SCALARS != 0;
            let bytes = if on_device { scalar(memory, name, bytes, scale)? } else { bytes };
            R::factor(scale, bytes).ok_or(refused)
        };
        let (alpha, beta) = (factor("alpha", body.alpha)?, factor("beta", body.beta)?);
        let source = match epilogue.gradient {
            Some(BiasGradient::A) => Some(input_a),
            // The columns of op(B) are the rows of its transpose.
            Some(BiasGradient::B) => {
                Some(Multiplicand { operation: MatrixOp { transposed: !on_b.transposed, ..on_b }, ..input_b })
            }
            _ => None,
        };
        let factors = (k > 0 && alpha != R::NONE).then_some([input_a, input_b]);
        Matmul::<R> {
            product: TiledProduct { memory, workers, factors, depth: k },
            source: source.filter(|_| k > 0),
            c: (beta != R::NONE).then_some(c),
            d,
            alpha,
            beta,
            epilogue,
            activations: R::ACTIVATIONS,
            bias,
            auxiliary,
        }
        .compute(body.batch.into())
    }

    fn matrix(self, at: usize, name: &'static str, element: Element, (rows, columns): (u64, u64)) -> Matrix {
        let address = self.body.matrix[at];
        let location = if self.pointers {
            Location::Array { address }
        } else {
            Location::Strided { address, stride: self.body.stride[at] }
        };
        Matrix { name, element, rows, columns, leading: self.body.leading[at], location }
    }

    fn output<R: Arithmetic>(self, kind: u32) -> Result<(Element, Output<R::Number>), GemmError> {
        let element = Element::from_wire(kind);
        element.and_then(|element| Some((element, R::output(element)?))).ok_or(self.unsupported())
    }

    /// Describes a bias of `length` elements.
    fn bias<R: Arithmetic>(self, length: u64) -> Result<TypedMatrix<R::Number>, GemmError> {
        let (element, output) = self.output::<R>(self.body.bias_type)?;
        let location = Location::Strided { address: self.body.bias, stride: self.body.bias_stride };
        let leading = length.max(1);
        let matrix = Matrix { name: "the bias", element, rows: length, columns: 1, leading, location };
        Ok(TypedMatrix { matrix, output })
    }

    fn auxiliary<R: Arithmetic>(self, epilogue: Epilogue) -> Result<Auxiliary<R::Number>, GemmError> {
        let MatmulLt { size: [rows, columns, _], aux: address, aux_leading: leading, .. } = *self.body;
        let (name, stride) = ("the auxiliary matrix", self.body.aux_stride);
        if epilogue.masks() {
            if leading < rows || !leading.is_multiple_of(MASK_BITS) {
                return Err(invalid("a mask's leading dimension", leading));
            }
            if stride % 8 != 0 {
                return Err(invalid("a mask's stride", stride.cast_unsigned()));
            }
            let location = Location::Strided { address, stride: stride / 8 };
            let (rows, leading) = (rows.div_ceil(8), leading / 8);
            let mask = Matrix { name, element: Element::I8, rows, columns, leading, location };
            return Ok(Auxiliary::Mask(mask));
        }
        let (element, output) = self.output::<R>(self.body.aux_type)?;
        let location = Location::Strided { address, stride };
        let matrix = Matrix { name, element, rows, columns, leading, location }.fits()?;
        Ok(Auxiliary::Numbers(TypedMatrix { matrix, output }))
    }
}

const fn invalid(name: &'static str, value: u64) -> GemmError {
    GemmError::Invalid { name, value }
}
