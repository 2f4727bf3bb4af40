//! Models with a state instead of a cache: Mamba, RWKV, gated linear attention, gated delta networks; and the
//! hyper-connections of DeepSeek 4.

use super::common::{USUAL, size};
use crate::case::Cases;
use crate::compare::Limit;
use crate::ffi::{Tensor, Type, Unary};
use crate::fill::Fill;
use crate::plan::GraphPlan;

pub fn add(cases: &mut Cases) {
    convolution(cases);
    scan(cases);
    heads(cases);
    delta(cases);
    hyper_connections(cases);
}

fn convolution(cases: &mut Cases) {
    for width in [4, 3, 9] {
        for (tokens, sequences) in [(1, 3), (7, 1), (65, 2)] {
            let ne = [width - 1 + tokens, 256, sequences, 1];
            let detail = format!("{} kernel={width}", size(ne));
            cases.add("SSM_CONV", "f32", &detail, USUAL, move |p| {
                let (x, kernel) = (p.uniform(Type::F32, ne), p.uniform(Type::F32, [width, 256, 1, 1]));
                vec![p.ssm_conv(x, kernel)]
            });
            cases.add("SSM_CONV_BIAS_SILU", "f32", &detail, USUAL, move |p| {
                let (x, kernel) = (p.uniform(Type::F32, ne), p.uniform(Type::F32, [width, 256, 1, 1]));
                let bias = p.uniform(Type::F32, [256, 1, 1, 1]);
                let convolved = p.ssm_conv(x, kernel);
                let biased = p.add(convolved, bias);
                vec![p.unary(biased, Unary::Silu)]
            });
        }
    }
}

fn scan(cases: &mut Cases) {
    // Mamba (a state per channel, heads of one element) and Mamba 2.
    for (state, width, heads, groups, tokens, sequences) in [
        (16, 1, 256, 1, 5, 2),
        (16, 1, 128, 1, 1, 3),
        (128, 64, 3, 1, 9, 2),
        (128, 16, 4, 2, 1, 1),
        (256, 64, 2, 1, 3, 1),
    ] {
        let detail =
            format!("state={state} head={width}x{heads} groups={groups} tokens={tokens}x{sequences}");
        let limit = if width > 1 { Limit::Nmse(2e-7) } else { USUAL };
        cases.add("SSM_SCAN", "f32", detail, limit, move |p| {
            let s = p.uniform(Type::F32, [state, width, heads, sequences]);
            let x = p.uniform(Type::F32, [width, heads, tokens, sequences]);
            let dt = p.uniform(Type::F32, [heads, tokens, sequences, 1]);
            let decay = if width > 1 { 1 } else { state };
            let a = p.input(Type::F32, [decay, heads, 1, 1], Fill::Uniform(-1.0, -0.5));
            let b = p.uniform(Type::F32, [state, groups, tokens, sequences]);
            let c = p.uniform(Type::F32, [state, groups, tokens, sequences]);
            let ids = p.input(Type::I32, [sequences, 1, 1, 1], Fill::Distinct(sequences));
            vec![p.ssm_scan(s, x, dt, a, b, c, ids, 1)]
        });
    }
}

/// Adds RWKV and gated linear attention, which keep a square state for each head.
fn heads(cases: &mut Cases) {
    for (heads, width, tokens, sequences) in [(3, 64, 5, 2), (2, 64, 1, 1), (2, 64, 1, 3), (2, 128, 3, 1)] {
        let detail = format!("{heads}x{width} tokens={tokens}x{sequences}");
        let each = [width, heads, tokens * sequences, 1];
        let state = [width * width * heads, sequences, 1, 1];
        cases.add("RWKV_WKV6", "f32", &detail, USUAL, move |p| {
            let [r, k, v, td] = inputs(p, each);
            let tf = p.uniform(Type::F32, [width, heads, 1, 1]);
            let state = p.uniform(Type::F32, state);
            vec![p.rwkv_wkv6(k, v, r, tf, td, state)]
        });
        cases.add("RWKV_WKV7", "f32", &detail, USUAL, move |p| {
            let [r, w, k, v] = inputs(p, each);
            let [a, b] = inputs(p, each);
            let (a, b) = (p.l2_norm(a, 1e-7), p.l2_norm(b, 1e-7));
            let state = p.uniform(Type::F32, state);
            vec![p.rwkv_wkv7(r, w, k, v, a, b, state)]
        });
        cases.add("GATED_LINEAR_ATTN", "f32", &detail, USUAL, move |p| {
            let [q, k, v, g] = inputs(p, each);
            let state = p.uniform(Type::F32, state);
            vec![p.gated_linear_attn(k, v, q, g, state, 1.0 / (width as f32).sqrt())]
        });
    }
}

fn inputs<'c, const N: usize>(p: &GraphPlan<'c>, ne: [i64; 4]) -> [Tensor<'c>; N] {
    std::array::from_fn(|_| p.uniform(Type::F32, ne))
}

fn delta(cases: &mut Cases) {
    for (width, heads, values, tokens, sequences, per_key, snapshots) in [
        (64, 2, 2, 5, 2, false, 1),
        (128, 2, 1, 1, 1, false, 1),
        (128, 1, 1, 9, 1, true, 1),
        (32, 4, 1, 4, 2, false, 3),
        (16, 4, 1, 3, 1, true, 1),
    ] {
        let per_key_text = if per_key { " per key" } else { "" };
        let detail = format!(
            "{width} heads={heads}x{values} tokens={tokens}x{sequences}{per_key_text} snapshots={snapshots}"
        );
        cases.add("GATED_DELTA_NET", "f32", detail, USUAL, move |p| {
            let all = heads * values;
            let q = p.uniform(Type::F32, [width, heads, tokens, sequences]);
            let k = p.uniform(Type::F32, [width, heads, tokens, sequences]);
            let v = p.input(Type::F32, [width, all, tokens, sequences], Fill::Uniform(-0.3, 5.0));
            let decays = if per_key { width } else { 1 };
            let g = p.input(Type::F32, [decays, all, tokens, sequences], Fill::Uniform(-20.0, -1e-4));
            let beta = p.input(Type::F32, [1, all, tokens, sequences], Fill::Uniform(0.0, 1.0));
            let state = p.uniform(Type::F32, [width, width, all, sequences]);
            let (q, k) = (p.l2_norm(q, 1e-6), p.l2_norm(k, 1e-6));
            vec![p.gated_delta_net(q, k, v, g, beta, state, snapshots)]
        });
    }
}

fn hyper_connections(cases: &mut Cases) {
    const STREAMS: i64 = 4;
    for (tokens, iterations) in [(17, 4), (1, 1), (257, 20)] {
        cases.add(
            "DSV4_HC_COMB",
            "f32",
            format!("tokens={tokens} iterations={iterations}"),
            USUAL,
            move |p| {
                let width = (2 + STREAMS) * STREAMS;
                let mixes = p.input(Type::F32, [width, tokens, 1, 1], Fill::Uniform(-2.0, 2.0));
                let scale = p.input(Type::F32, [3, 1, 1, 1], Fill::Uniform(-0.5, 0.5));
                let base = p.input(Type::F32, [width, 1, 1, 1], Fill::Uniform(-0.25, 0.25));
                vec![p.dsv4_hc_comb(mixes, scale, base, 1e-6, iterations)]
            },
        );
    }
    for (width, tokens) in [(31, 17), (128, 1), (1025, 5)] {
        cases.add("DSV4_HC_PRE", "f32", format!("{width} tokens={tokens}"), USUAL, move |p| {
            let x = p.uniform(Type::F32, [width, STREAMS, tokens, 1]);
            let weights = p.input(Type::F32, [STREAMS, tokens, 1, 1], Fill::Uniform(0.0, 1.0));
            vec![p.dsv4_hc_pre(x, weights)]
        });
        cases.add("DSV4_HC_PRE", "f32", format!("{width} tokens={tokens} gated"), USUAL, move |p| {
            let x = p.uniform(Type::F32, [width, STREAMS, tokens, 1]);
            let gate = p.input(Type::F32, [width, STREAMS, tokens, 1], Fill::Uniform(-4.0, 4.0));
            vec![p.dsv4_hc_pre_gated(x, gate, 0.25)]
        });
        for identity in [false, true] {
            let detail = format!("{width} tokens={tokens}{}", if identity { " identity" } else { "" });
            cases.add("DSV4_HC_POST", "f32", detail, USUAL, move |p| {
                let x = p.uniform(Type::F32, [width, tokens, 1, 1]);
                let residual = p.uniform(Type::F32, [width, STREAMS, tokens, 1]);
                let post = p.input(Type::F32, [STREAMS, tokens, 1, 1], Fill::Uniform(0.0, 2.0));
                let mix = Fill::Uniform(0.0, 1.0);
                let comb = (!identity).then(|| p.input(Type::F32, [STREAMS, STREAMS, tokens, 1], mix));
                vec![p.dsv4_hc_post(x, residual, post, comb)]
            });
        }
    }
}
