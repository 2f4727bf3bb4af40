//! Behaviour of cuBLASLt: which algorithm it advises for a product, and what the work reads and writes.
//!
//! It is written from the section "Using the cuBLASLt API" of cuBLAS's manual.

use vgpu_abi::blas::{MatmulAlgo, element_bytes};

use crate::call::ApiCall;
use crate::description::preference;
use crate::graph::NodeKind;
use crate::lt::Lt;
use crate::memory::AddressRange;
use crate::product::{Advice, DEVICE_SCALARS, Extras, LtProduct, unsupported};
use crate::products::WORKSPACE_ALIGNMENT;
use crate::raw::{DeviceAddress, HostAddress};
use crate::rule::{CallResult, Rule};

/// First word of each algorithm of this library.
const COOKIE: u64 = 0x0061_6c67_6f72_6563;
/// Size of the workspace that an algorithm needs, in bytes, unless the limit is smaller.
const WORKSPACE_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
pub struct Operands {
    pub scalars: [HostAddress; 2],
    pub matrices: [DeviceAddress; 4],
    pub workspace: AddressRange,
    pub stream: usize,
}

/// Reads a product from its descriptors.
fn product(lt: &Lt, description: usize, layouts: [usize; 4]) -> CallResult<LtProduct> {
    let [a, b, c, d] = layouts.map(|layout| lt.layouts.get(layout));
    LtProduct::read(lt.products.get(description)?, [a?, b?, c?, d?])
}

impl ApiCall {
    /// Carries out `cublasLtMatmulAlgoGetHeuristic`. It returns an algorithm, and the size of the workspace
    /// that the algorithm needs.
    pub fn lt_advise(
        &mut self,
        handle: usize,
        description: usize,
        layouts: [usize; 4],
        limits: usize,
    ) -> CallResult<(MatmulAlgo, u64)> {
        self.blas(handle)?;
        let product = product(&self.lt, description, layouts)?;
        product.check()?;
        Extras::read(self.lt.products.get(description)?, &product)?;
        let limits = self.lt.preferences.get(limits)?;
        let workspace = limits.get(preference::MAX_WORKSPACE_BYTES)?.min(WORKSPACE_BYTES);
        let [a, b, c, d] = preference::MIN_ALIGNMENT_BYTES.map(|id| limits.get(id));
        let alignments = [a?, b?, c?, d?];
        self.lt.advised.push(Advice { product, alignments, workspace });
        let mut algorithm = MatmulAlgo::default();
        algorithm.data[..2].copy_from_slice(&[COOKIE, self.lt.advised.len() as u64]);
        Ok((algorithm, workspace))
    }

    /// Carries out `cublasLtMatmul`. Without an algorithm, the library chooses one that needs no workspace.
    pub fn lt_multiply(
        &mut self,
        handle: usize,
        description: usize,
        layouts: [usize; 4],
        algorithm: Option<MatmulAlgo>,
        operands: Operands,
    ) -> CallResult {
        let context = self.blas(handle)?.context;
        let lane = self.streams.lane(context, operands.stream)?;
        let product = product(&self.lt, description, layouts)?;
        product.check()?;
        let extras = Extras::read(self.lt.products.get(description)?, &product)?;
        let Operands { matrices, workspace, .. } = operands;
        if let Some(algorithm) = algorithm {
            self.lt_check_algorithm(&product, algorithm, matrices, workspace)?;
        }
        if workspace.bytes > 0 && !workspace.start.is_multiple_of(WORKSPACE_ALIGNMENT) {
            return Err(Rule::BlasWorkspace.into());
        }
        let [.., c, d] = matrices;
        if c == d && product.shapes[2] != product.shapes[3] {
            return Err(Rule::LtInPlace.into());
        }
        let mut ranges = vec![workspace];
        self.device_range(workspace, true)?;
        self.lt_scalars(&product, operands.scalars)?;
        for (at, (shape, address)) in product.shapes.iter().zip(matrices).enumerate() {
            let batch = shape.batch.cast_signed();
            ranges.push(self.blas_matrix(shape.at(address), batch, at == 3)?);
        }
        for (extra, rule, write) in [
            (extras.bias, Rule::LtBias, product.bias_gradient()),
            (extras.auxiliary, Rule::LtAuxiliary, !matches!(product.epilogue, 136 | 152 | 192 | 208)),
        ] {
            let Some(matrix) = extra else { continue };
            if matrix.address.0 == 0 {
                return Err(rule.into());
            }
            let batch = product.shapes[3].batch.cast_signed();
            ranges.push(self.blas_matrix(matrix, batch, write)?);
        }
        ranges.retain(|range| range.bytes > 0);
        self.submit(lane, NodeKind::Product { ranges })
    }

    /// Checks that the algorithm was advised for this product, and that alignments and workspace are those
    /// that the preference promised.
    fn lt_check_algorithm(
        &self,
        product: &LtProduct,
        algorithm: MatmulAlgo,
        matrices: [DeviceAddress; 4],
        workspace: AddressRange,
    ) -> CallResult {
        let [cookie, number, ..] = algorithm.data;
        let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let advice = at.and_then(|at| self.lt.advised.get(at)).filter(|_| cookie == COOKIE);
        let advice = advice.filter(|advice| advice.product == *product).ok_or(Rule::LtAlgorithm)?;
        if !matrices.iter().zip(advice.alignments).all(|(address, bytes)| address.0.is_multiple_of(bytes)) {
            return Err(Rule::LtAlignment.into());
        }
        let room = if workspace.start == 0 { 0 } else { workspace.bytes };
        if room < advice.workspace { Err(Rule::LtWorkspace.into()) } else { Ok(()) }
    }

    /// Checks alpha and beta in the memory that the pointer mode selects.
    fn lt_scalars(&self, product: &LtProduct, scalars: [HostAddress; 2]) -> CallResult {
        let bytes = element_bytes(product.scale).ok_or(unsupported())?;
        for place in scalars {
            if place.number() == 0 {
                return Err(Rule::NullArgument.into());
            }
            if product.pointer_mode == DEVICE_SCALARS {
                self.device_range(AddressRange::new(place.number(), bytes), false)?;
            }
        }
        Ok(())
    }
}
