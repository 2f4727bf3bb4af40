//! Cases of element-wise operations: arithmetic with broadcast, unary functions, gated units.

use super::common::{USUAL, size};
use crate::case::Cases;
use crate::compare::Limit;
use crate::ffi::{Builder, Glu, Tensor, Type, Unary};
use crate::fill::Fill;
use crate::plan::GraphPlan;

type Binary = for<'b, 'c, 'x, 'y> fn(&'b Builder<'c>, Tensor<'x>, Tensor<'y>) -> Tensor<'c>;
type Function = for<'b, 'c, 'x> fn(&'b Builder<'c>, Tensor<'x>) -> Tensor<'c>;

/// Sizes that end in the middle of a warp, a block and a grid-stride loop.
const SIZES: [[i64; 4]; 4] = [[5, 7, 11, 3], [128, 2, 2, 2], [1025, 13, 1, 1], [33, 1, 65, 2]];
const FLOATS: [Type; 2] = [Type::F32, Type::F16];

pub fn add(cases: &mut Cases) {
    arithmetic(cases);
    functions(cases);
    unary(cases);
    gated(cases);
    with_parameters(cases);
    fused(cases);
}

fn arithmetic(cases: &mut Cases) {
    const BINARY: [(&str, Binary); 4] = [
        ("ADD", |b, x, y| b.add(x, y)),
        ("SUB", |b, x, y| b.sub(x, y)),
        ("MUL", |b, x, y| b.mul(x, y)),
        ("DIV", |b, x, y| b.div(x, y)),
    ];
    // Size of the second operand, and the number of its repetitions.
    const REPEATED: [([i64; 4], [i64; 4]); 10] = [
        ([10, 5, 4, 3], [1, 2, 2, 2]),
        ([1, 1, 8, 1], [1, 1, 1, 1]),
        ([1, 1, 1, 1], [37, 1, 1, 1]),
        ([10, 5, 4, 3], [1, 1, 1, 1]),
        ([10, 5, 4, 3], [2, 1, 1, 1]),
        ([10, 5, 4, 3], [2, 2, 2, 2]),
        ([1283, 1, 1, 1], [1, 17, 3, 1]),
        ([1, 3, 129, 1], [16, 5, 1, 1]),
        ([576, 1, 1, 1], [1, 1, 1, 1]),
        ([64, 71, 1, 1], [1, 1, 1, 1]),
    ];
    for (op, apply) in BINARY {
        // Products and quotients are numerically unstable near zero.
        let fill =
            if matches!(op, "MUL" | "DIV") { Fill::Uniform(0.9, 1.1) } else { Fill::Uniform(-1.0, 1.0) };
        for (one, other) in [(Type::F32, Type::F32), (Type::F16, Type::F16), (Type::F16, Type::F32)] {
            for (ne, times) in REPEATED {
                let detail = format!("{} by {}", size(ne), size(times));
                let types = format!("{},{}", one.name(), other.name());
                cases.add(op, types, detail, USUAL, move |p| {
                    let whole = std::array::from_fn(|axis| ne[axis] * times[axis]);
                    let (a, b) = (p.input(one, whole, fill), p.input(other, ne, fill));
                    vec![apply(p, a, b)]
                });
            }
        }
        for kind in FLOATS {
            let types = format!("{0},{0}", kind.name());
            cases.add(op, types, "13x5x6x3 permuted", USUAL, move |p| {
                let (ne, axes) = ([13, 5, 6, 3], [1, 2, 0, 3]);
                let (a, b) = (p.input(kind, ne, fill), p.permuted(kind, ne, axes, fill));
                vec![apply(p, a, b)]
            });
        }
    }
    for (embedding, tokens) in [(129, 33), (32, 1)] {
        cases.add("ADD_ID", "f32", format!("{embedding} tokens={tokens}"), USUAL, move |p| {
            let (experts, used) = (4, 2);
            let a = p.uniform(Type::F32, [embedding, used, tokens, 1]);
            let b = p.uniform(Type::F32, [embedding, experts, 1, 1]);
            let ids = p.input(Type::I32, [used, tokens, 1, 1], Fill::Distinct(experts));
            vec![p.add_id(a, b, ids)]
        });
    }
}

fn functions(cases: &mut Cases) {
    const FUNCTIONS: [(&str, Function, Fill); 5] = [
        ("SQR", |b, x| b.sqr(x), Fill::Uniform(-1.0, 1.0)),
        ("SQRT", |b, x| b.sqrt(x), Fill::Uniform(0.0, 100.0)),
        ("LOG", |b, x| b.log(x), Fill::Uniform(1.0, 10.0)),
        ("SIN", |b, x| b.sin(x), Fill::Uniform(-6.5, 6.5)),
        ("COS", |b, x| b.cos(x), Fill::Uniform(-6.5, 6.5)),
    ];
    for (op, apply, fill) in FUNCTIONS {
        for kind in FLOATS {
            for ne in SIZES {
                cases.add(op, kind.name(), size(ne), USUAL, move |p| {
                    let a = p.input(kind, ne, fill);
                    vec![apply(p, a)]
                });
            }
        }
    }
}

/// Unary functions, each with the bound of its inputs. Beyond it a power is infinite and the comparison is
/// meaningless.
const UNARY: [(&str, Unary, f32); 21] = [
    ("ABS", Unary::Abs, 150.0),
    ("SGN", Unary::Sgn, 150.0),
    ("NEG", Unary::Neg, 150.0),
    ("STEP", Unary::Step, 150.0),
    ("TANH", Unary::Tanh, 150.0),
    ("ELU", Unary::Elu, 150.0),
    ("RELU", Unary::Relu, 150.0),
    ("SIGMOID", Unary::Sigmoid, 150.0),
    ("GELU", Unary::Gelu, 150.0),
    ("GELU_QUICK", Unary::GeluQuick, 150.0),
    ("SILU", Unary::Silu, 150.0),
    ("HARDSWISH", Unary::HardSwish, 150.0),
    ("HARDSIGMOID", Unary::HardSigmoid, 150.0),
    ("EXP", Unary::Exp, 10.0),
    ("EXPM1", Unary::Expm1, 10.0),
    ("SOFTPLUS", Unary::Softplus, 150.0),
    ("GELU_ERF", Unary::GeluErf, 150.0),
    ("FLOOR", Unary::Floor, 150.0),
    ("CEIL", Unary::Ceil, 150.0),
    ("ROUND", Unary::Round, 150.0),
    ("TRUNC", Unary::Trunc, 150.0),
];

fn unary(cases: &mut Cases) {
    for (name, op, bound) in UNARY {
        for kind in FLOATS {
            for range in [bound, 3.0] {
                // The CPU backend computes these two from a table in half precision, whose error shows for
                // small values.
                let table = matches!(op, Unary::Gelu | Unary::GeluQuick) && range < bound;
                let limit = if table { Limit::Nmse(5e-7) } else { USUAL };
                for ne in SIZES {
                    let detail = format!("{} +-{range}", size(ne));
                    cases.add(name, kind.name(), detail, limit, move |p| {
                        let a = p.input(kind, ne, Fill::Uniform(-range, range));
                        vec![p.unary(a, op)]
                    });
                }
            }
            cases.add(name, kind.name(), "5x7x3x2 view", USUAL, move |p| {
                let a = p.part(kind, [5, 7, 3, 2], [3, 2, 2, 2], Fill::Uniform(-3.0, 3.0));
                vec![p.unary(a, op)]
            });
        }
    }
}

const GATED: [(&str, Glu); 5] = [
    ("REGLU", Glu::Reglu),
    ("GEGLU", Glu::Geglu),
    ("SWIGLU", Glu::Swiglu),
    ("GEGLU_ERF", Glu::GegluErf),
    ("GEGLU_QUICK", Glu::GegluQuick),
];

fn gated(cases: &mut Cases) {
    const RANGE: Fill = Fill::Uniform(-150.0, 150.0);
    for (name, op) in GATED {
        for kind in FLOATS {
            for ne in [[5, 7, 11, 3], [128, 2, 2, 2], [1025, 3, 1, 1]] {
                for swapped in [false, true] {
                    let detail = format!("{}{}", size(ne), if swapped { " swapped" } else { "" });
                    cases.add(name, kind.name(), detail, USUAL, move |p| {
                        let both = p.input(kind, [2 * ne[0], ne[1], ne[2], ne[3]], RANGE);
                        vec![p.glu(both, op, swapped)]
                    });
                }
                cases.add(name, kind.name(), format!("{} split", size(ne)), USUAL, move |p| {
                    let (a, b) = (p.input(kind, ne, RANGE), p.input(kind, ne, RANGE));
                    vec![p.glu_split(a, b, op)]
                });
                cases.add(name, kind.name(), format!("{} split views", size(ne)), USUAL, move |p| {
                    let (a, b) =
                        (p.part(kind, ne, [3, 1, 1, 1], RANGE), p.part(kind, ne, [3, 1, 1, 1], RANGE));
                    vec![p.glu_split(a, b, op)]
                });
            }
        }
    }
    for (alpha, limit) in [(1.702, 7.0), (0.5, 2.0)] {
        for ne in [[67, 3, 5, 2], [128, 2, 2, 2]] {
            let detail = format!("{} alpha={alpha} limit={limit}", size(ne));
            cases.add("SWIGLU_OAI", "f32", detail, USUAL, move |p| {
                let (a, b) = (p.input(Type::F32, ne, RANGE), p.input(Type::F32, ne, RANGE));
                vec![p.swiglu_oai(a, b, alpha, limit)]
            });
        }
    }
    for kind in FLOATS {
        for limit in [10.0, 2.0] {
            cases.add("SWIGLU_CLAMP", kind.name(), format!("67x3x5x2 limit={limit}"), USUAL, move |p| {
                let (a, b) = (p.input(kind, [67, 3, 5, 2], RANGE), p.input(kind, [67, 3, 5, 2], RANGE));
                vec![p.swiglu_clamp(a, b, limit)]
            });
        }
    }
}

fn with_parameters(cases: &mut Cases) {
    for ne in SIZES {
        for bias in [0.0, 0.75] {
            cases.add("SCALE", "f32", format!("{} bias={bias}", size(ne)), USUAL, move |p| {
                let a = p.uniform(Type::F32, ne);
                vec![p.scale(a, 1.7, bias)]
            });
        }
        for kind in FLOATS {
            cases.add("CLAMP", kind.name(), size(ne), USUAL, move |p| {
                let a = p.uniform(kind, ne);
                vec![p.clamp(a, -0.5, 0.5)]
            });
            cases.add("LEAKY_RELU", kind.name(), size(ne), USUAL, move |p| {
                let a = p.uniform(kind, ne);
                vec![p.leaky_relu(a, 0.1, false)]
            });
            cases.add("XIELU", kind.name(), size(ne), USUAL, move |p| {
                let a = p.uniform(kind, ne);
                vec![p.xielu(a, 4.0, 20.0, 0.5, 1e-6)]
            });
        }
    }
}

/// Adds chains of operations that the CUDA backend fuses into one kernel.
fn fused(cases: &mut Cases) {
    for (kind, limit) in [(Type::F32, USUAL), (Type::F16, Limit::Nmse(1e-6))] {
        for count in [2, 3, 7, 8] {
            for ne in [[133, 5, 4, 3], [16, 5, 1, 1]] {
                let detail = format!("{} x{count}", size(ne));
                cases.add("ADD_CHAIN", kind.name(), detail, limit, move |p| {
                    let mut sum = p.uniform(kind, ne);
                    for _ in 0..count {
                        let term = p.uniform(kind, [ne[0], ne[1], 1, 1]);
                        sum = p.add(sum, term);
                    }
                    vec![sum]
                });
            }
        }
        cases.add("MUL_CHAIN", kind.name(), "133x5x4x3 x3", limit, move |p| {
            let near_one = Fill::Uniform(0.9, 1.1);
            let mut product = p.input(kind, [133, 5, 4, 3], near_one);
            for _ in 0..3 {
                let factor = p.input(kind, [133, 1, 1, 1], near_one);
                product = p.mul(product, factor);
            }
            vec![product]
        });
    }
    for (name, op) in [
        ("silu", Unary::Silu),
        ("gelu", Unary::Gelu),
        ("sigmoid", Unary::Sigmoid),
        ("softplus", Unary::Softplus),
    ] {
        for kind in FLOATS {
            let limit = match (kind, op) {
                (Type::F16, _) => Limit::Nmse(5e-5),
                (_, Unary::Gelu) => Limit::Nmse(5e-7),
                _ => USUAL,
            };
            for ne in [[5, 7, 11, 3], [128, 2, 2, 2]] {
                cases.add("UNARY_MUL", kind.name(), format!("{name} {}", size(ne)), limit, move |p| {
                    let (a, b) = (p.uniform(kind, ne), p.uniform(kind, ne));
                    let gate = p.unary(a, op);
                    vec![p.mul(gate, b)]
                });
            }
        }
    }
    for kind in FLOATS {
        cases.add("RELU_SQR", kind.name(), "5x7x11x3", USUAL, move |p| {
            let a = p.uniform(kind, [5, 7, 11, 3]);
            let positive = p.unary(a, Unary::Relu);
            vec![p.sqr(positive)]
        });
    }
    for (ne, softcap) in [([10, 10, 10, 3], 50.0), ([577, 5, 1, 1], 30.0)] {
        cases.add("SOFTCAP", "f32", size(ne), USUAL, move |p: &GraphPlan<'_>| {
            let a = p.input(Type::F32, ne, Fill::Uniform(-100.0, 100.0));
            let small = p.scale(a, 1.0 / softcap, 0.0);
            let bounded = p.unary(small, Unary::Tanh);
            vec![p.scale(bounded, softcap, 0.0)]
        });
    }
}
