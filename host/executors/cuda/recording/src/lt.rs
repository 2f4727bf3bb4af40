//! What cuBLASLt has made: descriptions, and the algorithms that it advised.

use crate::description::Record;
use crate::handle::{Handles, Kind};
use crate::product::Advice;
use crate::rule::Rule;

/// All descriptions, and the algorithms that were advised.
#[derive(Debug)]
pub struct Lt {
    /// `cublasLtMatmulDesc_t`
    pub products: Handles<Record>,
    /// `cublasLtMatrixLayout_t`
    pub layouts: Handles<Record>,
    /// `cublasLtMatmulPreference_t`
    pub preferences: Handles<Record>,
    /// What `cublasLtMatmulAlgoGetHeuristic` gave, in its order.
    pub advised: Vec<Advice>,
}

impl Lt {
    /// None yet.
    pub fn new() -> Self {
        let none = |kind| Handles::answering(kind, Rule::LtUnknown, Rule::LtDestroyed);
        Self {
            products: none(Kind::Product),
            layouts: none(Kind::Layout),
            preferences: none(Kind::Preference),
            advised: Vec::new(),
        }
    }
}
