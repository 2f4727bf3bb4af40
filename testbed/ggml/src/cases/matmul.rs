//! Cases of matrix products for every type of weights: for one token and for prompts, by expert, transposed,
//! and fused with the operation that follows.

use super::common::{USUAL, size};
use crate::case::Cases;
use crate::compare::Limit;
use crate::ffi::{Glu, Precision, Tensor, Type};
use crate::fill::Fill;
use crate::plan::GraphPlan;

const PRODUCT: Limit = Limit::Nmse(5e-4);
const FUSED: Limit = Limit::Nmse(5e-3);
const RANGE: Fill = Fill::Uniform(-1.0, 1.0);

pub fn add(cases: &mut Cases) {
    for kind in Type::weights() {
        weights(cases, kind);
        experts(cases, kind);
        fused(cases, kind);
    }
    batches(cases);
    views(cases);
    by_columns(cases);
}

/// Adds a product of `m` rows of `k` weights with `n` columns.
fn product(cases: &mut Cases, kinds: (Type, Type), m: i64, n: i64, k: i64, short: bool) {
    let types = format!("{},{}", kinds.0.name(), kinds.1.name());
    let case = cases.add("MUL_MAT", types, format!("m={m} n={n} k={k}"), PRODUCT, move |p| {
        let a = p.uniform(kinds.0, [k, m, 1, 1]);
        let b = p.uniform(kinds.1, [k, n, 1, 1]);
        vec![p.mul_mat(a, b)]
    });
    case.short |= short;
}

fn weights(cases: &mut Cases, kind: Type) {
    // Rows with an odd number of blocks, and with several.
    let (few, many) = (kind.block().max(32) * 3, 512.max(kind.block() * 2));
    let kinds = (kind, Type::F32);
    for n in 1..=9 {
        product(cases, kinds, 67, n, few, n == 9);
    }
    for (m, n) in [(67, 16), (131, 33), (64, 64), (67, 70), (129, 129)] {
        product(cases, kinds, m, n, many, n == 33);
    }
    for n in [1, 2, 17] {
        product(cases, kinds, 7, n, many, false);
    }
    if !kind.is_quantized() {
        // The length of these rows is no multiple of any vector load.
        for n in [1, 4, 33] {
            product(cases, kinds, 35, n, 77, false);
            product(cases, kinds, 35, n, 130, false);
        }
    }
    if kind == Type::F16 {
        for n in [1, 3, 8, 17, 65] {
            product(cases, (Type::F16, Type::F16), 67, n, 96, false);
        }
    }
}

/// Rows of an expert's weights. They must be a multiple of 4: for short rows the CUDA backend handles 4 rows
/// per block and writes rows beyond the last into the next expert's result, a race.
const EXPERT_ROWS: i64 = 68;

/// Adds products of a mixture of experts, where each token is multiplied by the weights of its own experts.
fn experts(cases: &mut Cases, kind: Type) {
    let k = 256;
    for (experts, used, tokens) in [(4, 2, 1), (4, 2, 5), (8, 4, 17), (4, 1, 33), (4, 2, 70)] {
        for broadcast in [false, true] {
            let broadcast_text = if broadcast { " broadcast" } else { "" };
            let detail =
                format!("m={EXPERT_ROWS} k={k} experts={used}/{experts} tokens={tokens}{broadcast_text}");
            let types = format!("{},f32", kind.name());
            let case = cases.add("MUL_MAT_ID", types, detail, PRODUCT, move |p| {
                let a = p.uniform(kind, [k, EXPERT_ROWS, experts, 1]);
                let b = p.uniform(Type::F32, [k, if broadcast { 1 } else { used }, tokens, 1]);
                let ids = chosen(p, experts, used, tokens);
                vec![p.mul_mat_id(a, b, ids)]
            });
            case.short |= tokens == 33 && !broadcast;
        }
    }
}

/// Returns the indices of each token's experts: the first `used` of all experts in random order.
fn chosen<'c>(p: &GraphPlan<'c>, experts: i64, used: i64, tokens: i64) -> Tensor<'c> {
    let all = p.input(Type::I32, [experts, tokens, 1, 1], Fill::Distinct(experts));
    p.view(all, used, tokens, 1, 1, all.nb()[1], all.nb()[2], all.nb()[3], 0)
}

/// Adds a token's feed-forward network up to the gated unit, which the CUDA backend computes in one kernel.
fn fused(cases: &mut Cases, kind: Type) {
    let k = 256.max(kind.block());
    for (name, op) in [("swiglu", Glu::Swiglu), ("geglu", Glu::Geglu), ("reglu", Glu::Reglu)] {
        for (bias, tokens) in [(false, 1), (true, 1), (false, 3)] {
            let bias_text = if bias { " bias" } else { "" };
            let detail = format!("{name}{bias_text} m=67 n={tokens} k={k}");
            let types = format!("{},f32", kind.name());
            cases.add("MUL_MAT_GLU", types, detail, FUSED, move |p| {
                let x = p.uniform(Type::F32, [k, tokens, 1, 1]);
                let lane = || {
                    let product = p.mul_mat(p.uniform(kind, [k, 67, 1, 1]), x);
                    if bias { p.add(product, p.uniform(Type::F32, [67, 1, 1, 1])) } else { product }
                };
                let gate = lane();
                let up = lane();
                vec![p.glu_split(gate, up, op)]
            });
        }
    }
    let detail = format!("swiglu m={EXPERT_ROWS} n=1 k={k} experts=2/4");
    cases.add("MUL_MAT_ID_GLU", format!("{},f32", kind.name()), detail, FUSED, move |p| {
        let x = p.uniform(Type::F32, [k, 1, 1, 1]);
        let ids = chosen(p, 4, 2, 1);
        let gate = p.mul_mat_id(p.uniform(kind, [k, EXPERT_ROWS, 4, 1]), x, ids);
        let up = p.mul_mat_id(p.uniform(kind, [k, EXPERT_ROWS, 4, 1]), x, ids);
        vec![p.glu_split(gate, up, Glu::Swiglu)]
    });
}

const BATCHED: [Type; 7] =
    [Type::F32, Type::F16, Type::BF16, Type::Q4_0, Type::Q8_0, Type::Q4_K, Type::IQ2_XXS];

/// Adds batches of products, some of which share the weights.
fn batches(cases: &mut Cases) {
    for kind in BATCHED {
        for n in [1, 5, 17] {
            for (batch, times) in [([3, 2], [1, 1]), ([2, 1], [4, 1]), ([2, 3], [2, 2])] {
                let detail = format!(
                    "m=35 n={n} k=256 batch={}x{} shared={}x{}",
                    batch[0], batch[1], times[0], times[1]
                );
                let types = format!("{},f32", kind.name());
                cases.add("MUL_MAT", types, detail, PRODUCT, move |p| {
                    let a = p.uniform(kind, [256, 35, batch[0], batch[1]]);
                    let b = p.uniform(Type::F32, [256, n, batch[0] * times[0], batch[1] * times[1]]);
                    vec![p.mul_mat(a, b)]
                });
            }
        }
    }
    for n in [1, 33] {
        cases.add("MUL_MAT", "f16,f32", format!("m=67 n={n} k=128 in f32"), PRODUCT, move |p| {
            let a = p.uniform(Type::F16, [128, 67, 4, 1]);
            let b = p.uniform(Type::F32, [128, n, 4, 1]);
            let product = p.mul_mat(a, b);
            p.accumulate_in(product, Precision::F32);
            vec![product]
        });
    }
}

/// Adds products whose operands are laid out as in attention: adjacent heads of a token, transposed values,
/// parts of a cache.
fn views(cases: &mut Cases) {
    for kind in [Type::F16, Type::F32, Type::BF16] {
        for n in [1, 5, 33] {
            for axes in [[0, 2, 1, 3], [0, 1, 3, 2]] {
                let order = axes.map(|axis| axis.to_string()).concat();
                let types = format!("{},f32", kind.name());
                cases.add(
                    "MUL_MAT",
                    &types,
                    format!("m=37 n={n} k=64 permuted {order}"),
                    PRODUCT,
                    move |p| {
                        let a = p.permuted(kind, [64, 37, 2, 3], axes, RANGE);
                        let b = p.permuted(Type::F32, [64, n, 4, 3], axes, RANGE);
                        vec![p.mul_mat(a, b)]
                    },
                );
            }
            let types = format!("{},f32", kind.name());
            cases.add("MUL_MAT", &types, format!("m=37 n={n} k=64 view"), PRODUCT, move |p| {
                let a = p.part(kind, [64, 37, 2, 1], [2, 1, 1, 1], RANGE);
                let b = p.part(Type::F32, [64, n, 2, 1], [1, 2, 1, 1], RANGE);
                vec![p.mul_mat(a, b)]
            });
        }
    }
    for kind in [Type::Q4_0, Type::Q8_0, Type::Q6_K] {
        for n in [1, 17] {
            cases.add(
                "MUL_MAT",
                format!("{},f32", kind.name()),
                format!("m=37 n={n} k=256 view"),
                PRODUCT,
                {
                    move |p| {
                        let a = p.part(kind, [256, 37, 3, 1], [2, 1, 1, 1], RANGE);
                        let b = p.uniform(Type::F32, [256, n, 3, 1]);
                        vec![p.mul_mat(a, b)]
                    }
                },
            );
        }
    }
}

fn by_columns(cases: &mut Cases) {
    for (m, n, k, batch) in [(67, 33, 16, 3), (256, 16, 16, 1), (5, 1, 1, 2)] {
        cases.add("OUT_PROD", "f32,f32", format!("m={m} n={n} k={k} batch={batch}"), PRODUCT, move |p| {
            let a = p.uniform(Type::F32, [m, k, batch, 1]);
            let b = p.uniform(Type::F32, [n, k, batch, 1]);
            vec![p.out_prod(a, b)]
        });
    }
    for (left, right) in
        [([11, 11, 4, 3], 3), ([64, 64, 2, 1], 64), ([33, 33, 2, 1], 17), ([100, 100, 1, 2], 5)]
    {
        let detail = format!("{} columns={right}", size(left));
        cases.add("SOLVE_TRI", "f32", detail, USUAL, move |p| {
            let a = p.input(Type::F32, left, Fill::LowerTriangle(0.1, 1.0));
            let b = p.uniform(Type::F32, [right, left[1], left[2], left[3]]);
            vec![p.solve_tri(a, b, true, true, false)]
        });
    }
}
