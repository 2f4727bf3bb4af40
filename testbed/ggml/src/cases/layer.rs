//! Cases of complete parts of a model in one graph, where backends fuse operations and record graphs to
//! replay.

use super::common::USUAL;
use crate::case::Cases;
use crate::compare::Limit;
use crate::ffi::{Glu, Rope, Tensor, Type, Unary};
use crate::fill::Fill;
use crate::plan::GraphPlan;

/// Largest accepted error of a whole transformer layer.
const LAYER: Limit = Limit::Nmse(2e-3);

pub fn add(cases: &mut Cases) {
    for kind in [Type::Q4_0, Type::F16, Type::Q8_0, Type::Q4_K, Type::Q6_K] {
        for tokens in [1, 7, 40] {
            for flash in [true, false] {
                let detail = format!("tokens={tokens}{}", if flash { " flash" } else { "" });
                let case =
                    cases.add("LAYER", kind.name(), detail, LAYER, move |p| layer(p, kind, tokens, flash));
                // Recorded graphs are replayed from the third time on.
                case.runs = 3;
            }
        }
    }
    router(cases);
    expert_sum(cases);
}

/// Builds one Llama layer: attention with a cache, then a feed-forward network.
fn layer<'c>(p: &GraphPlan<'c>, kind: Type, tokens: i64, flash: bool) -> Vec<Tensor<'c>> {
    const WIDTH: i64 = 256;
    const HEAD: i64 = 64;
    const HEADS: i64 = 4;
    const SHARED: i64 = 2;
    const INNER: i64 = 512;
    const CACHE: i64 = 256;
    let small = Fill::Uniform(-0.1, 0.1);
    let weights = |from, to| p.input(kind, [from, to, 1, 1], small);
    let normal = |x: Tensor<'c>| {
        let scale = p.input(Type::F32, [WIDTH, 1, 1, 1], Fill::Uniform(0.5, 1.5));
        let x = p.rms_norm(x, 1e-5);
        p.mul(x, scale)
    };
    let rope = Rope {
        dimensions: HEAD as i32,
        mode: 0,
        sections: [0; 4],
        trained_context: 0,
        base: 10_000.0,
        scale: 1.0,
        extrapolation: 0.0,
        magnitude: 1.0,
    };
    let positions = p.input(Type::I32, [tokens, 1, 1, 1], Fill::Below(CACHE));
    let slots = p.input(Type::I64, [tokens, 1, 1, 1], Fill::Distinct(CACHE));
    let mask_kind = if flash { Type::F16 } else { Type::F32 };
    let mask = p.input(mask_kind, [CACHE, tokens, 1, 1], Fill::Mask);
    let x = p.uniform(Type::F32, [WIDTH, tokens, 1, 1]);

    let hidden = normal(x);
    let kv_heads = HEADS / SHARED;
    let kv_width = kv_heads * HEAD;
    let q = p.mul_mat(weights(WIDTH, HEADS * HEAD), hidden);
    let k = p.mul_mat(weights(WIDTH, kv_width), hidden);
    let v = p.mul_mat(weights(WIDTH, kv_width), hidden);
    let q = p.rope(p.reshape(q, HEAD, HEADS, tokens, 1), positions, None, rope);
    let k = p.rope(p.reshape(k, HEAD, kv_heads, tokens, 1), positions, None, rope);
    let store = |new: Tensor<'c>| {
        let cache = p.uniform(Type::F16, [kv_width, CACHE, 1, 1]);
        let rows = p.view(new, kv_width, tokens, 1, 1, kv_width as usize * 4, 0, 0, 0);
        let cache = p.set_rows(cache, rows, slots);
        let (head, row) = (HEAD as usize * 2, kv_width as usize * 2);
        p.view(cache, HEAD, CACHE, kv_heads, 1, row, head, row * CACHE as usize, 0)
    };
    let (k, v) = (store(k), store(v));
    let q = p.permute(q, 0, 2, 1, 3);
    let scale = 1.0 / (HEAD as f32).sqrt();
    let attended = if flash {
        p.flash_attn(q, k, v, Some(mask), scale, 0.0, 0.0)
    } else {
        let scores = p.soft_max(p.mul_mat(k, q), Some(mask), scale, 0.0);
        let v = p.cont(p.transpose(v));
        p.cont(p.permute(p.mul_mat(v, scores), 0, 2, 1, 3))
    };
    let attended = p.reshape(attended, HEADS * HEAD, tokens, 1, 1);
    let x = p.add(p.mul_mat(weights(HEADS * HEAD, WIDTH), attended), x);

    let hidden = normal(x);
    let gate = p.mul_mat(weights(WIDTH, INNER), hidden);
    let up = p.mul_mat(weights(WIDTH, INNER), hidden);
    let inner = p.glu_split(gate, up, Glu::Swiglu);
    let out = p.mul_mat(weights(INNER, WIDTH), inner);
    vec![p.add(out, x)]
}

/// Adds the selection and weighting of a token's experts. Backends fuse this pattern and may return the
/// experts in any order.
fn router(cases: &mut Cases) {
    for (experts, used, tokens) in [(31, 8, 5), (8, 2, 22), (128, 8, 1), (32, 4, 7)] {
        for (name, sigmoid, normal) in
            [("softmax", false, false), ("softmax normal", false, true), ("sigmoid normal", true, true)]
        {
            let detail = format!("{name} {used}/{experts} tokens={tokens}");
            cases.add("TOPK_MOE", "f32", detail, Limit::AnyOrder(1e-7), move |p| {
                let logits = p.input(Type::F32, [experts, tokens, 1, 1], Fill::Uniform(-3.0, 3.0));
                let probabilities = if sigmoid {
                    p.unary(logits, Unary::Sigmoid)
                } else {
                    p.soft_max(logits, None, 1.0, 0.0)
                };
                let chosen = p.argsort_top_k(probabilities, used);
                let cells = p.reshape(probabilities, 1, experts, tokens, 1);
                let mut weights = p.get_rows(cells, chosen);
                if normal {
                    let flat = p.reshape(weights, used.into(), tokens, 1, 1);
                    // The smallest normal number of half precision keeps the quotient finite.
                    let sum = p.clamp(p.sum_rows(flat), 6.103_515_6e-5, f32::INFINITY);
                    weights = p.reshape(p.div(flat, sum), 1, used.into(), tokens, 1);
                }
                // An operation follows, as in a model: the CUDA backend looks one node ahead for its pattern
                // without checking whether the graph continues.
                let scaled = p.mul(weights, p.uniform(Type::F32, [1; 4]));
                let weights = p.reshape(scaled, used.into(), tokens, 1, 1);
                vec![weights, chosen]
            });
        }
    }
}

/// Adds the weighted sum of the outputs of a token's experts.
fn expert_sum(cases: &mut Cases) {
    for (width, used, tokens) in [(67, 2, 5), (576, 4, 1), (1025, 8, 3)] {
        cases.add("MOE_SUM", "f32", format!("{width} experts={used} tokens={tokens}"), USUAL, move |p| {
            let experts = p.uniform(Type::F32, [width, used, tokens, 1]);
            let weights = p.uniform(Type::F32, [1, used, tokens, 1]);
            let weighted = p.mul(experts, weights);
            let nb = weighted.nb();
            let of = |expert: i64| {
                p.view(weighted, width, tokens, 1, 1, nb[2], nb[3], nb[3], nb[1] * expert as usize)
            };
            let sum = (1..used).fold(of(0), |sum, expert| p.add(sum, of(expert)));
            vec![sum]
        });
    }
}
