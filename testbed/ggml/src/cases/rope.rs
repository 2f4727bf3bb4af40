//! Rotary position embeddings: the orders of pairs, positions in several parts, YaRN, frequency factors.

use super::common::{USUAL, size};
use crate::case::Cases;
use crate::ffi::{Rope, Type};
use crate::fill::Fill;
use crate::plan::GraphPlan;

const NORMAL: i32 = 0;
const NEOX: i32 = 2;
const MROPE: i32 = 8;
const VISION: i32 = 24;
const IMROPE: i32 = 40;

/// Exclusive upper bound of the positions.
const CONTEXT: i64 = 512;

/// Shapes, each with the number of rotated elements in a row and the mode.
const SHAPES: [([i64; 4], i32, i32); 12] = [
    // Llama; GQA keys; GPT-NeoX style; partial rotation as in Phi, Falcon.
    ([128, 5, 3, 1], 128, NORMAL),
    ([64, 3, 17, 1], 64, NORMAL),
    ([100, 7, 2, 1], 100, NORMAL),
    ([128, 5, 3, 1], 64, NORMAL),
    ([128, 5, 3, 2], 128, NEOX),
    ([80, 7, 5, 1], 20, NEOX),
    ([96, 3, 9, 1], 96, NEOX),
    ([256, 2, 3, 1], 256, NEOX),
    ([128, 5, 3, 1], 128, MROPE),
    ([128, 5, 3, 1], 20, MROPE),
    ([80, 5, 3, 1], 80, VISION),
    ([128, 5, 3, 1], 128, IMROPE),
];

const fn name(mode: i32) -> &'static str {
    match mode {
        NORMAL => "normal",
        NEOX => "neox",
        MROPE => "mrope",
        VISION => "vision",
        _ => "imrope",
    }
}

fn plain(dimensions: i32, mode: i32) -> Rope {
    let sections = match mode {
        VISION => [dimensions / 4, dimensions / 4, 0, 0],
        _ => [dimensions / 3, dimensions / 3, dimensions / 3, 0],
    };
    Rope {
        dimensions: if mode == VISION { dimensions / 2 } else { dimensions },
        mode,
        sections,
        trained_context: 0,
        base: 10_000.0,
        scale: 1.0,
        extrapolation: 0.0,
        magnitude: 1.0,
    }
}

pub fn add(cases: &mut Cases) {
    for (ne, dimensions, mode) in SHAPES {
        for kind in [Type::F32, Type::F16] {
            let types = format!("{},{}", kind.name(), name(mode));
            let whole = plain(dimensions, mode);
            let yarn = Rope { scale: 1.4245, extrapolation: 0.7465, magnitude: 1.4245, ..whole };
            for (variant, rope) in [("", whole), (" yarn", yarn)] {
                for factors in [false, true] {
                    for view in [false, true] {
                        let factors_text = if factors { " factors" } else { "" };
                        let view_text = if view { " view" } else { "" };
                        let detail =
                            format!("{} of {dimensions}{variant}{factors_text}{view_text}", size(ne));
                        cases.add("ROPE", &types, detail, USUAL, move |p| {
                            let range = Fill::Uniform(-1.0, 1.0);
                            let a = if view {
                                p.part(kind, ne, [2, 2, 1, 1], range)
                            } else {
                                p.input(kind, ne, range)
                            };
                            vec![rotate(p, a, ne, factors, rope)]
                        });
                    }
                }
            }
        }
    }
    // A rotation whose result is stored into a cache directly.
    for mode in [NORMAL, NEOX] {
        for to in [Type::F32, Type::F16] {
            let types = format!("{},{}", to.name(), name(mode));
            for tokens in [1, 9] {
                cases.add("ROPE_SET_ROWS", &types, format!("128x5 tokens={tokens}"), USUAL, move |p| {
                    let ne = [128, 5, tokens, 1];
                    let a = p.uniform(Type::F32, ne);
                    let cache = p.input(to, [128 * 5, 32, 1, 1], Fill::Constant(0.0));
                    let ids = p.input(Type::I64, [tokens, 1, 1, 1], Fill::Distinct(32));
                    let rotated = rotate(p, a, ne, false, plain(128, mode));
                    let rows = p.view(rotated, 128 * 5, tokens, 1, 1, rotated.nb()[2], 0, 0, 0);
                    vec![p.set_rows(cache, rows, ids)]
                });
            }
        }
    }
}

fn rotate<'c>(
    p: &GraphPlan<'c>,
    a: crate::ffi::Tensor<'c>,
    ne: [i64; 4],
    factors: bool,
    rope: Rope,
) -> crate::ffi::Tensor<'c> {
    // In the modes with parts there are four positions to a token.
    let parts = if rope.mode & MROPE == 0 { 1 } else { 4 };
    let positions = p.input(Type::I32, [parts * ne[2], 1, 1, 1], Fill::Below(CONTEXT));
    let factors = factors.then(|| {
        let count = if rope.mode == VISION { rope.dimensions } else { rope.dimensions / 2 };
        p.input(Type::F32, [i64::from(count), 1, 1, 1], Fill::Uniform(0.9, 1.1))
    });
    p.rope(a, positions, factors, rope)
}
