//! Normalisations, and the chains that follow them in models.

use super::common::{USUAL, size};
use crate::case::Cases;
use crate::ffi::{Builder, Rope, Tensor, Type};
use crate::fill::Fill;

type Norm = for<'b, 'c, 'x> fn(&'b Builder<'c>, Tensor<'x>, f32) -> Tensor<'c>;

const NORMS: [(&str, Norm); 3] = [
    ("RMS_NORM", |b, x, eps| b.rms_norm(x, eps)),
    ("NORM", |b, x, eps| b.norm(x, eps)),
    ("L2_NORM", |b, x, eps| b.l2_norm(x, eps)),
];

/// Sizes whose rows are shorter than a warp, a block of 256 or a block of 1024, and sizes with longer rows.
const SIZES: [[i64; 4]; 7] = [
    [67, 5, 4, 3],
    [1, 3, 1, 1],
    [33, 2, 1, 1],
    [576, 1, 1, 1],
    [1025, 5, 2, 1],
    [2048, 3, 1, 1],
    [4099, 2, 1, 1],
];

pub fn add(cases: &mut Cases) {
    for (op, norm) in NORMS {
        for ne in SIZES {
            for eps in [1e-6, 0.1] {
                cases.add(op, "f32", format!("{} eps={eps}", size(ne)), USUAL, move |p| {
                    let a = p.uniform(Type::F32, ne);
                    vec![norm(p, a, eps)]
                });
            }
        }
        for ne in [[67, 5, 4, 3], [1025, 3, 1, 1]] {
            cases.add(op, "f32", format!("{} view", size(ne)), USUAL, move |p| {
                let a = p.part(Type::F32, ne, [2, 1, 2, 1], Fill::Uniform(-1.0, 1.0));
                vec![norm(p, a, 1e-6)]
            });
        }
    }
    for (ne, groups) in [([65, 1, 320, 1], 32), ([9, 7, 44, 1], 4)] {
        cases.add("GROUP_NORM", "f32", format!("{} in {groups}", size(ne)), USUAL, move |p| {
            let a = p.uniform(Type::F32, ne);
            vec![p.group_norm(a, groups, 1e-6)]
        });
    }
    chains(cases);
}

/// Adds normalisations with the operations that follow them in models, which the CUDA backend fuses into one
/// kernel.
fn chains(cases: &mut Cases) {
    for ne in [[576, 5, 1, 1], [67, 5, 4, 3], [1025, 2, 3, 1], [4099, 1, 1, 1]] {
        for broadcast in [true, false] {
            let detail = format!("{}{}", size(ne), if broadcast { "" } else { " full" });
            let weights = if broadcast { [ne[0], 1, 1, 1] } else { ne };
            cases.add("RMS_NORM_MUL", "f32", &detail, USUAL, move |p| {
                let (a, w) = (p.uniform(Type::F32, ne), p.uniform(Type::F32, weights));
                let normal = p.rms_norm(a, 1e-5);
                vec![p.mul(normal, w)]
            });
            cases.add("RMS_NORM_MUL_ADD", "f32", &detail, USUAL, move |p| {
                let (a, w) = (p.uniform(Type::F32, ne), p.uniform(Type::F32, weights));
                let b = p.uniform(Type::F32, weights);
                let normal = p.rms_norm(a, 1e-5);
                let weighted = p.mul(normal, w);
                vec![p.add(weighted, b)]
            });
            cases.add("NORM_MUL_ADD", "f32", &detail, USUAL, move |p| {
                let (a, w) = (p.uniform(Type::F32, ne), p.uniform(Type::F32, weights));
                let b = p.uniform(Type::F32, weights);
                let normal = p.norm(a, 1e-5);
                let weighted = p.mul(normal, w);
                vec![p.add(weighted, b)]
            });
        }
        cases.add("ADD_RMS_NORM", "f32", size(ne), USUAL, move |p| {
            let (a, b) = (p.uniform(Type::F32, ne), p.uniform(Type::F32, ne));
            let weights = p.uniform(Type::F32, [ne[0], 1, 1, 1]);
            let sum = p.add(a, b);
            let normal = p.rms_norm(sum, 1e-5);
            vec![sum, p.mul(normal, weights)]
        });
    }
    for mode in [0, 2] {
        for (width, heads, tokens) in [(128, 5, 3), (64, 9, 1), (96, 3, 17)] {
            let detail = format!("{width}x{heads}x{tokens} mode={mode}");
            cases.add("RMS_NORM_MUL_ROPE", "f32", detail, USUAL, move |p| {
                let a = p.uniform(Type::F32, [width, heads, tokens, 1]);
                let weights = p.uniform(Type::F32, [width, 1, 1, 1]);
                let positions = p.input(Type::I32, [tokens, 1, 1, 1], Fill::Below(512));
                let normal = p.rms_norm(a, 1e-6);
                let weighted = p.mul(normal, weights);
                let rope = Rope {
                    dimensions: width as i32,
                    mode,
                    sections: [0; 4],
                    trained_context: 0,
                    base: 10_000.0,
                    scale: 1.0,
                    extrapolation: 0.0,
                    magnitude: 1.0,
                };
                vec![p.rope(weighted, positions, None, rope)]
            });
        }
    }
}
