//! Objects of cuBLASLt: descriptors, and the algorithms that it advised.

use crate::description::LtDescription;
use crate::handle::{HandleKind, Handles};
use crate::product::Advice;
use crate::rule::Rule;

#[derive(Debug)]
pub struct Lt {
    /// Descriptors of products, `cublasLtMatmulDesc_t`.
    pub products: Handles<LtDescription>,
    /// Descriptors of matrices, `cublasLtMatrixLayout_t`.
    pub layouts: Handles<LtDescription>,
    /// Descriptors of preferences, `cublasLtMatmulPreference_t`.
    pub preferences: Handles<LtDescription>,
    /// Algorithms that `cublasLtMatmulAlgoGetHeuristic` returned, in their order.
    pub advised: Vec<Advice>,
}

impl Lt {
    pub fn new() -> Self {
        let none = |kind| Handles::answering(kind, Rule::LtUnknown, Rule::LtDestroyed);
        Self {
            products: none(HandleKind::Product),
            layouts: none(HandleKind::Layout),
            preferences: none(HandleKind::Preference),
            advised: Vec::new(),
        }
    }
}
