//! Matrix products of cuBLASLt.
//!
//! Descriptors of the product live for one call. The algorithm is the one that the library advises for these
//! addresses and this workspace. The library caches its advice by shape, so this module caches nothing. A
//! handle of cuBLAS also works for cuBLASLt.

use std::ffi::{c_int, c_void};
use std::ptr;

use vgpu_abi::blas::{BlasStatus, MatmulAlgo, MatmulHeuristicResult};
use vgpu_wire::body::matmul::MatmulLt;
use zerocopy::{Immutable, IntoBytes};

use super::functions::Record;
use super::handle::{BlasError, BlasHandle, check};
use super::library::LtTable;
use super::product::Scalar;
use crate::driver::range::DeviceRange;
use crate::driver::stream::DriverStream;

/// Numbers of the attributes of a product, `cublasLtMatmulDescAttributes_t`.
mod desc {
    pub(super) const POINTER_MODE: i32 = 2;
    pub(super) const TRANSA: i32 = 3;
    pub(super) const TRANSB: i32 = 4;
    pub(super) const EPILOGUE: i32 = 7;
    pub(super) const BIAS_POINTER: i32 = 8;
    pub(super) const BIAS_BATCH_STRIDE: i32 = 10;
    pub(super) const EPILOGUE_AUX_POINTER: i32 = 11;
    pub(super) const EPILOGUE_AUX_LD: i32 = 12;
    pub(super) const EPILOGUE_AUX_BATCH_STRIDE: i32 = 13;
    pub(super) const EPILOGUE_AUX_DATA_TYPE: i32 = 22;
    pub(super) const BIAS_DATA_TYPE: i32 = 26;
}

/// Numbers of the attributes of a matrix, `cublasLtMatrixLayoutAttribute_t`.
mod layout {
    pub(super) const BATCH_COUNT: i32 = 5;
    pub(super) const STRIDED_BATCH_OFFSET: i32 = 6;
}

/// Numbers of the attributes of a preference, `cublasLtMatmulPreferenceAttributes_t`.
mod preference {
    pub(super) const MAX_WORKSPACE_BYTES: i32 = 1;
    /// Attributes for the alignments of A, B, C and D.
    pub(super) const MIN_ALIGNMENT_BYTES: [i32; 4] = [5, 6, 7, 8];
}

/// Largest alignment that the library requests, in bytes.
const ALIGNMENT_MOST: u32 = 256;

/// Operands of a product. All ranges belong to the session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatmulOperands {
    /// A, B, C and D, or the first of each in a batch.
    pub(crate) matrices: [DeviceRange; 4],
    /// Rows and columns of each matrix as it is stored.
    pub(crate) shapes: [[u64; 2]; 4],
    /// Bias, if the epilogue uses one.
    pub(crate) bias: Option<DeviceRange>,
    /// Auxiliary matrix, if the epilogue uses one.
    pub(crate) aux: Option<DeviceRange>,
    /// Whether the auxiliary matrix has an element type. A mask has none.
    pub(crate) aux_has_type: bool,
    /// Alpha and beta. Both are in host memory or both in device memory.
    pub(crate) scalars: [Scalar; 2],
    /// Workspace of the product.
    pub(crate) workspace: Option<DeviceRange>,
}

/// A descriptor of the library, which is destroyed when this is dropped.
struct LtDescriptor<'a> {
    raw: Record,
    set: (&'static str, unsafe extern "C" fn(Record, c_int, *const c_void, usize) -> BlasStatus),
    destroy: unsafe extern "C" fn(Record) -> BlasStatus,
    _of: &'a LtTable,
}

impl LtDescriptor<'_> {
    /// Sets an attribute. The value must have the size that the library expects.
    fn set(&self, attribute: c_int, value: &(impl IntoBytes + Immutable)) -> Result<(), BlasError> {
        let (call, set) = self.set;
        let bytes = value.as_bytes();
        // SAFETY: a live record, and a live value of so many bytes, which the library copies.
        check(call, unsafe { set(self.raw, attribute, bytes.as_ptr().cast(), bytes.len()) })
    }
}

impl Drop for LtDescriptor<'_> {
    fn drop(&mut self) {
        // SAFETY: the last use of the record.
        let status = unsafe { (self.destroy)(self.raw) };
        if let Err(error) = check("give a record of cuBLASLt back", status) {
            tracing::debug!("{error}");
        }
    }
}

fn product<'a>(table: &'a LtTable, body: &MatmulLt) -> Result<LtDescriptor<'a>, BlasError> {
    let mut raw = 0;
    let create = table.cublasLtMatmulDescCreate;
    // SAFETY: a live place for the answer.
    let status = unsafe { create(&raw mut raw, body.compute as c_int, body.scale as c_int) };
    check("cublasLtMatmulDescCreate", status)?;
    let set = ("cublasLtMatmulDescSetAttribute", table.cublasLtMatmulDescSetAttribute);
    Ok(LtDescriptor { raw, set, destroy: table.cublasLtMatmulDescDestroy, _of: table })
}

/// Creates the layout of the matrix with index `at`.
fn matrix<'a>(
    table: &'a LtTable,
    body: &MatmulLt,
    at: usize,
    [rows, columns]: [u64; 2],
) -> Result<LtDescriptor<'a>, BlasError> {
    let mut raw = 0;
    let create = table.cublasLtMatrixLayoutCreate;
    let (kind, leading) = (body.types[at] as c_int, body.leading[at].cast_signed());
    // SAFETY: a live place for the answer.
    let status = unsafe { create(&raw mut raw, kind, rows, columns, leading) };
    check("cublasLtMatrixLayoutCreate", status)?;
    let set = ("cublasLtMatrixLayoutSetAttribute", table.cublasLtMatrixLayoutSetAttribute);
    let own = LtDescriptor { raw, set, destroy: table.cublasLtMatrixLayoutDestroy, _of: table };
    own.set(layout::BATCH_COUNT, &body.batch.cast_signed())?;
    own.set(layout::STRIDED_BATCH_OFFSET, &body.stride[at])?;
    Ok(own)
}

/// Creates the descriptor of the properties on which the algorithm may rely.
fn preference<'a>(table: &'a LtTable, operands: &MatmulOperands) -> Result<LtDescriptor<'a>, BlasError> {
    let mut raw = 0;
    // SAFETY: a live place for the answer.
    let status = unsafe { (table.cublasLtMatmulPreferenceCreate)(&raw mut raw) };
    check("cublasLtMatmulPreferenceCreate", status)?;
    let set = ("cublasLtMatmulPreferenceSetAttribute", table.cublasLtMatmulPreferenceSetAttribute);
    let own = LtDescriptor { raw, set, destroy: table.cublasLtMatmulPreferenceDestroy, _of: table };
    own.set(preference::MAX_WORKSPACE_BYTES, &operands.workspace.map_or(0, DeviceRange::bytes))?;
    for (attribute, range) in preference::MIN_ALIGNMENT_BYTES.into_iter().zip(operands.matrices) {
        let alignment = 1_u32 << range.address().trailing_zeros().min(ALIGNMENT_MOST.trailing_zeros());
        own.set(attribute, &alignment)?;
    }
    Ok(own)
}

impl BlasHandle {
    /// Calls `cublasLtMatmul` on a stream, with the first algorithm that the library advises. Fails with
    /// `NOT_SUPPORTED` if the host has no cuBLASLt, or the library advises no algorithm.
    pub(crate) fn matmul(
        &self,
        stream: &DriverStream,
        body: &MatmulLt,
        operands: &MatmulOperands,
    ) -> Result<(), BlasError> {
        let lacks = BlasError { call: "cublasLtMatmul", status: BlasStatus::NOT_SUPPORTED };
        let table = self.lt().ok_or(lacks)?;
        let product = product(table, body)?;
        let [alpha, beta] = operands.scalars.each_ref();
        product.set(desc::POINTER_MODE, &u32::from(matches!(alpha, Scalar::Device(_))))?;
        product.set(desc::TRANSA, &body.operation[0])?;
        product.set(desc::TRANSB, &body.operation[1])?;
        product.set(desc::EPILOGUE, &body.epilogue)?;
        if let Some(bias) = operands.bias {
            product.set(desc::BIAS_POINTER, &bias.address())?;
            product.set(desc::BIAS_BATCH_STRIDE, &body.bias_stride)?;
            product.set(desc::BIAS_DATA_TYPE, &body.bias_type)?;
        }
        if let Some(aux) = operands.aux {
            product.set(desc::EPILOGUE_AUX_POINTER, &aux.address())?;
            product.set(desc::EPILOGUE_AUX_LD, &body.aux_leading.cast_signed())?;
            product.set(desc::EPILOGUE_AUX_BATCH_STRIDE, &body.aux_stride)?;
            if operands.aux_has_type {
                product.set(desc::EPILOGUE_AUX_DATA_TYPE, &body.aux_type)?;
            }
        }
        let layout = |at: usize| matrix(table, body, at, operands.shapes[at]);
        let (layout_a, layout_b, layout_c, layout_d) = (layout(0)?, layout(1)?, layout(2)?, layout(3)?);
        let preference = preference(table, operands)?;
        let mut advice = MatmulHeuristicResult {
            algo: MatmulAlgo::default(),
            workspace_bytes: 0,
            state: BlasStatus::NOT_SUPPORTED,
            waves: 0.0,
            reserved: [0; 4],
        };
        let mut found = 0;
        let ask = table.cublasLtMatmulAlgoGetHeuristic;
        // SAFETY: a live handle and live records, places for one algorithm and their number.
        let status = unsafe {
            ask(
                self.raw(),
                product.raw,
                layout_a.raw,
                layout_b.raw,
                layout_c.raw,
                layout_d.raw,
                preference.raw,
                1,
                &raw mut advice,
                &raw mut found,
            )
        };
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        if found == 0 {
            return Err(BlasError { call: "cublasLtMatmulAlgoGetHeuristic", ..lacks });
        }
        check("cublasLtMatmulAlgoGetHeuristic", advice.state)?;
        let [at_a, at_b, at_c, at_d] = operands.matrices.map(DeviceRange::address);
        let (work, work_bytes) =
            operands.workspace.map_or((0, 0), |range| (range.address(), range.bytes() as usize));
        let (alpha, beta, algorithm) = (alpha.pointer(), beta.pointer(), ptr::from_ref(&advice.algo));
        let multiply = table.cublasLtMatmul;
        // SAFETY: a live handle, live records and a live algorithm; all that the product reads and writes is
        // the session's, and the stream is one of the same context.
        let status = unsafe {
            multiply(
                self.raw(),
                product.raw,
                alpha,
                at_a,
                layout_a.raw,
                at_b,
                layout_b.raw,
                beta,
                at_c,
                layout_c.raw,
                at_d,
                layout_d.raw,
                algorithm,
                work,
                work_bytes,
                stream.handle(),
            )
        };
        check("cublasLtMatmul", status)
    }
}
