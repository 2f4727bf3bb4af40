//! The exports that multiply and that search for an algorithm.

#![allow(clippy::too_many_arguments, reason = "as many as cuBLASLt has")]

use std::ffi::{c_int, c_void};

use vgpu_abi::blas::{Address, BlasStatus, Factor, MatmulAlgo, MatmulHeuristicResult, Out};
use vgpu_abi::export;

use crate::handle::Handle;
use crate::kinds::{Desc, Layout, Preference};
use crate::product::{Operands, Product};
use crate::record::Record;

export! {
    /// Computes `D = epilogue(alpha * op(A) * op(B) + beta * C)`. The host chooses the algorithm, whatever
    /// the program asks for.
    pub fn cublasLtMatmul(
        handle: Handle, product: Record<Desc>, alpha: Factor, a: Address, a_layout: Record<Layout>,
        b: Address, b_layout: Record<Layout>, beta: Factor, c: Address, c_layout: Record<Layout>,
        d: Address, d_layout: Record<Layout>, _algorithm: *const c_void, workspace: Address, bytes: usize,
        stream: usize,
    ) -> BlasStatus {
        handle.check()?;
        let product = Product::new(product, [a_layout, b_layout, c_layout, d_layout])?;
        let operands =
            Operands { factors: [alpha, beta], matrix: [a, b, c, d], workspace: (workspace, bytes) };
        product.submit(operands, stream)
    }

    /// Stores the algorithms for a product. There is one: it needs no workspace and stands for the host's
    /// choice. Its utilization of the device (`waves`) is not known and stored as 0.
    pub fn cublasLtMatmulAlgoGetHeuristic(
        handle: Handle, product: Record<Desc>, a: Record<Layout>, b: Record<Layout>, c: Record<Layout>,
        d: Record<Layout>, preference: Record<Preference>, wanted: c_int, results: Out<MatmulHeuristicResult>,
        found: Out<c_int>,
    ) -> BlasStatus {
        handle.check()?;
        let (results, found) = (results.check()?, found.check()?);
        preference.check()?;
        if wanted < 1 {
            return Err(BlasStatus::INVALID_VALUE);
        }
        found.set(0)?;
        Product::new(product, [a, b, c, d])?.can()?;
        results.set(MatmulHeuristicResult {
            algo: MatmulAlgo::default(),
            workspace_bytes: 0,
            state: BlasStatus::SUCCESS,
            waves: 0.0,
            reserved: [0; 4],
        })?;
        found.set(1)
    }
}
