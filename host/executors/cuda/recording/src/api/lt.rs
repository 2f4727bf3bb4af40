//! cuBLASLt: descriptors, algorithms and products.

use std::ffi::c_int;

use serde_json::Value;
use vgpu_abi::blas::{BlasStatus, MatmulAlgo, MatmulHeuristicResult};
use vgpu_abi::driver::CUstream;
use vgpu_abi::driver::arg::{In, Out};

use crate::call::{ApiCall, BlasHandle};
use crate::description::{LtDescription, product};
use crate::handle::Handles;
use crate::lt::Lt;
use crate::matmul::Operands;
use crate::memory::AddressRange;
use crate::raw::{DeviceAddress, HostAddress};
use crate::rule::{CallResult, Rule};

/// Selects the table of one kind of descriptor.
type DescriptionTable = fn(&mut Lt) -> &mut Handles<LtDescription>;

fn make(call: &mut ApiCall, kind: DescriptionTable, place: Out<usize>, record: LtDescription) -> CallResult {
    let place = place.check()?;
    let made = kind(&mut call.lt).add(record);
    call.out("made", &BlasHandle(made));
    Ok(place.set(made)?)
}

/// Returns whether the value of an attribute is a device address.
fn is_address(kind: &str, attribute: c_int) -> bool {
    kind == "product" && matches!(attribute, product::BIAS_POINTER | product::AUX_POINTER)
}

fn set(
    call: &mut ApiCall,
    (name, kind): (&str, DescriptionTable),
    record: BlasHandle,
    attribute: c_int,
    value: &[u8],
) -> CallResult {
    let mut bytes = [0; 8];
    if let Some(room) = bytes.get_mut(..value.len()) {
        room.copy_from_slice(value);
        let number = u64::from_le_bytes(bytes);
        let shown = if is_address(name, attribute) { call.address(number) } else { Value::from(number) };
        call.line.arg("value", shown);
    }
    kind(&mut call.lt).get_mut(record.0)?.set(attribute, value)
}

const PRODUCTS: (&str, DescriptionTable) = ("product", |lt| &mut lt.products);
const LAYOUTS: (&str, DescriptionTable) = ("layout", |lt| &mut lt.layouts);
const PREFERENCES: (&str, DescriptionTable) = ("preference", |lt| &mut lt.preferences);

/// Exports that set attributes of one kind of descriptor, and destroy it.
macro_rules! descriptions {
    ($( $kind:ident $set:ident $destroy:ident; )*) => { blas_calls! { $(
        #[doc = concat!("`", stringify!($set), "`")]
        pub fn $set(record: BlasHandle, attribute: c_int, value: In<u8>, bytes: usize) |call| {
            if value.is_null() {
                return Err(Rule::NullArgument.into());
            }
            set(call, $kind, record, attribute, value.slice(bytes)?)
        }

        #[doc = concat!("`", stringify!($destroy), "`")]
        pub fn $destroy(record: BlasHandle) |call| {
            $kind.1(&mut call.lt).remove(record.0).map(drop)
        }
    )* } };
}

descriptions! {
    PRODUCTS cublasLtMatmulDescSetAttribute cublasLtMatmulDescDestroy;
    LAYOUTS cublasLtMatrixLayoutSetAttribute cublasLtMatrixLayoutDestroy;
    PREFERENCES cublasLtMatmulPreferenceSetAttribute cublasLtMatmulPreferenceDestroy;
}

blas_calls! {
    /// Implements `cublasLtMatmulDescCreate`.
    pub fn cublasLtMatmulDescCreate(place: Out<usize>, compute: c_int, scale: c_int) |call| {
        make(call, PRODUCTS.1, place, LtDescription::product(compute, scale))
    }

    /// Implements `cublasLtMatrixLayoutCreate`.
    pub fn cublasLtMatrixLayoutCreate(
        place: Out<usize>, kind: c_int, rows: u64, columns: u64, leading: i64,
    ) |call| {
        make(call, LAYOUTS.1, place, LtDescription::layout(kind, rows, columns, leading))
    }

    /// Implements `cublasLtMatmulPreferenceCreate`.
    pub fn cublasLtMatmulPreferenceCreate(place: Out<usize>) |call| {
        make(call, PREFERENCES.1, place, LtDescription::preference())
    }

    /// Implements `cublasLtMatmulAlgoGetHeuristic`. It returns at most one algorithm.
    pub fn cublasLtMatmulAlgoGetHeuristic(
        handle: BlasHandle, product: BlasHandle, a: BlasHandle, b: BlasHandle, c: BlasHandle, d: BlasHandle,
        preference: BlasHandle, wanted: c_int, results: Out<MatmulHeuristicResult>, count: Out<c_int>,
    ) |call| {
        let (results, count) = (results.check()?, count.check()?);
        if wanted <= 0 {
            return Err(Rule::Argument.into());
        }
        let layouts = [a, b, c, d].map(|layout| layout.0);
        let (algo, workspace) = call.lt_advise(handle.0, product.0, layouts, preference.0)?;
        call.out("workspace_bytes", &workspace);
        let state = BlasStatus::SUCCESS;
        let workspace_bytes = workspace as usize;
        results.set(MatmulHeuristicResult { algo, workspace_bytes, state, waves: 1.0, reserved: [0; 4] })?;
        Ok(count.set(1)?)
    }

    /// Implements `cublasLtMatmul`.
    pub fn cublasLtMatmul(
        handle: BlasHandle, product: BlasHandle, alpha: HostAddress, a: DeviceAddress, a_layout: BlasHandle,
        b: DeviceAddress, b_layout: BlasHandle, beta: HostAddress, c: DeviceAddress, c_layout: BlasHandle,
        d: DeviceAddress,
        d_layout: BlasHandle, algorithm: In<MatmulAlgo>, workspace: DeviceAddress, bytes: usize,
        stream: CUstream,
    ) |call| {
        let algorithm = if algorithm.is_null() { None } else { Some(algorithm.get()?) };
        let operands = Operands {
            scalars: [alpha, beta],
            matrices: [a, b, c, d],
            workspace: AddressRange::new(workspace.0, bytes as u64),
            stream: stream.0,
        };
        let layouts = [a_layout, b_layout, c_layout, d_layout].map(|layout| layout.0);
        call.lt_multiply(handle.0, product.0, layouts, algorithm, operands)
    }
}
