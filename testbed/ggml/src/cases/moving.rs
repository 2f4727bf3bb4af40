//! Cases of operations that move, convert and reshape elements.

use super::common::{USUAL, size};
use crate::case::Cases;
use crate::compare::Limit;
use crate::ffi::{Tensor, Type};
use crate::fill::Fill;
use crate::plan::GraphPlan;

const WIDE: Fill = Fill::Uniform(-150.0, 150.0);

pub fn add(cases: &mut Cases) {
    copies(cases);
    layouts(cases);
    joins(cases);
    made(cases);
}

/// Returns the error limit of a copy to a quantised type: that of one element rounded to its neighbour, for
/// inputs of +-150.
fn copy_limit(from: Type, to: Type, elements: i64) -> Limit {
    if from == to {
        return Limit::EXACT;
    }
    let factor = match to {
        Type::Q4_0 | Type::Q4_1 => 1.0,
        Type::IQ4_NL => 2.0,
        Type::Q5_0 | Type::Q5_1 => 1.0 / 2.0,
        Type::Q8_0 => 1.0 / 8.0,
        _ => return Limit::Nmse(1e-6),
    };
    let step: f64 = 150.0 / 8.0 * factor;
    Limit::Nmse(step * step / (150.0 * 150.0 * 0.25 * elements as f64))
}

fn copies(cases: &mut Cases) {
    let floats = [Type::F32, Type::F16, Type::BF16];
    let mut pairs: Vec<(Type, Type)> = Vec::new();
    for from in floats {
        pairs.extend(floats.map(|to| (from, to)));
    }
    pairs.extend(Type::quantized().map(|to| (Type::F32, to)));
    pairs.extend(Type::quantized().map(|from| (from, Type::F32)));
    pairs.extend([(Type::F32, Type::I32), (Type::I32, Type::F32), (Type::I32, Type::I32)]);
    for (from, to) in pairs {
        let types = format!("{},{}", from.name(), to.name());
        let row = 3 * from.block().max(to.block());
        let fill = WIDE;
        for ne in [[row, 3, 5, 2], [256, 2, 3, 4], [768, 1, 1, 1]] {
            let limit = copy_limit(from, to, ne.iter().product());
            cases.add("CPY", &types, size(ne), limit, move |p| {
                let (a, b) = (p.input(from, ne, fill), p.input(to, ne, Fill::Constant(0.0)));
                vec![p.cpy(a, b)]
            });
        }
        let ne = [256, 2, 3, 4];
        let limit = copy_limit(from, to, ne.iter().product());
        cases.add("CPY", &types, format!("{} rows permuted", size(ne)), limit, move |p| {
            let a = p.permuted(from, ne, [0, 2, 1, 3], fill);
            let b = p.input(to, ne, Fill::Constant(0.0));
            vec![p.cpy(a, b)]
        });
    }
    for kind in Type::weights() {
        let types = format!("{0},{0}", kind.name());
        if kind.is_quantized() {
            let ne = [kind.block() * 3, 2, 3, 4];
            cases.add("CPY", &types, size(ne), Limit::EXACT, move |p| {
                let (a, b) = (p.input(kind, ne, WIDE), p.input(kind, ne, Fill::Constant(0.0)));
                vec![p.cpy(a, b)]
            });
        }
    }
    for (from, to) in
        [(Type::F32, Type::F32), (Type::F16, Type::F16), (Type::F32, Type::F16), (Type::F16, Type::F32)]
    {
        let types = format!("{},{}", from.name(), to.name());
        let limit = copy_limit(from, to, 1);
        cases.add("CPY", &types, "67x33x3x1 transposed", limit, move |p| {
            let a = p.permuted(from, [67, 33, 3, 1], [1, 0, 2, 3], WIDE);
            let b = p.input(to, [67, 33, 3, 1], Fill::Constant(0.0));
            vec![p.cpy(a, b)]
        });
        cases.add("CPY", &types, "67x5x3x1 to view", limit, move |p| {
            let a = p.input(from, [67, 5, 3, 1], WIDE);
            let b = p.part(to, [67, 5, 3, 1], [2, 2, 1, 1], Fill::Constant(0.0));
            vec![p.cpy(a, b)]
        });
        cases.add("CPY", &types, "3x5x7x32 to 32x7x5x3", limit, move |p| {
            let a = p.input(from, [3, 5, 7, 32], WIDE);
            let b = p.input(to, [32, 7, 5, 3], Fill::Constant(0.0));
            vec![p.cpy(a, b)]
        });
    }
}

fn layouts(cases: &mut Cases) {
    for kind in [Type::F32, Type::F16, Type::BF16, Type::I32] {
        for axes in [[0, 2, 1, 3], [1, 0, 2, 3], [2, 1, 0, 3], [1, 2, 0, 3]] {
            for ne in [[33, 5, 7, 2], [64, 3, 65, 1]] {
                let detail = format!("{} permuted {}", size(ne), axes.map(|axis| axis.to_string()).concat());
                cases.add("CONT", kind.name(), &detail, Limit::EXACT, move |p| {
                    let a = p.permuted(kind, ne, axes, WIDE);
                    vec![p.cont(a)]
                });
                if kind != Type::BF16 {
                    cases.add("DUP", kind.name(), &detail, Limit::EXACT, move |p| {
                        let a = p.permuted(kind, ne, axes, WIDE);
                        vec![p.dup(a)]
                    });
                }
            }
        }
        cases.add("CONT", kind.name(), "31x5x3x2 view", Limit::EXACT, move |p| {
            let a = p.part(kind, [31, 5, 3, 2], [2, 2, 1, 1], WIDE);
            vec![p.cont(a)]
        });
    }
    for kind in [Type::F32, Type::I32] {
        for (name, at) in [("rows", [0, 1, 0, 0]), ("planes", [0, 0, 1, 0]), ("corner", [2, 1, 1, 1])] {
            cases.add("SET", kind.name(), format!("4x3x2x2 into 7x5x4x3 {name}"), Limit::EXACT, move |p| {
                let whole = p.input(kind, [7, 5, 4, 3], WIDE);
                let part = p.input(kind, [4, 3, 2, 2], WIDE);
                let offset = offset(whole, at);
                let nb = whole.nb();
                vec![p.set(whole, part, nb[1], nb[2], nb[3], offset)]
            });
        }
    }
    cases.add("ACC", "f32", "67x3x2 into 131x7x5", USUAL, |p| {
        let whole = p.uniform(Type::F32, [131, 7, 5, 1]);
        let part = p.uniform(Type::F32, [67, 3, 2, 1]);
        let (nb, offset) = (whole.nb(), offset(whole, [3, 2, 1, 0]));
        vec![p.acc(whole, part, nb[1], nb[2], nb[3], offset)]
    });
}

/// Returns the distance in bytes from a tensor's start to the element at index `at`.
fn offset(tensor: Tensor<'_>, at: [usize; 4]) -> usize {
    tensor.nb().iter().zip(at).map(|(stride, index)| stride * index).sum()
}

fn joins(cases: &mut Cases) {
    for kind in [Type::F32, Type::I32, Type::F16] {
        for dimension in 0..4_usize {
            for views in [false, true] {
                let detail = format!("11x12x13x2 dim={dimension}{}", if views { " views" } else { "" });
                cases.add("CONCAT", kind.name(), detail, Limit::EXACT, move |p| {
                    let one = [11, 12, 13, 2];
                    let mut other = one;
                    other[dimension] = 7;
                    let input = |ne| {
                        if views { p.part(kind, ne, [2, 1, 2, 1], WIDE) } else { p.input(kind, ne, WIDE) }
                    };
                    let (a, b) = (input(one), input(other));
                    vec![p.concat(a, b, dimension as i32)]
                });
            }
        }
    }
    for kind in [Type::Q4_0, Type::Q8_0] {
        for dimension in 0..4_usize {
            cases.add("CONCAT", kind.name(), format!("96x3x5x2 dim={dimension}"), Limit::EXACT, move |p| {
                let mut other = [96, 3, 5, 2];
                other[dimension] = 64;
                let (a, b) = (p.input(kind, [96, 3, 5, 2], WIDE), p.input(kind, other, WIDE));
                vec![p.concat(a, b, dimension as i32)]
            });
        }
    }
    for kind in [Type::F32, Type::F16] {
        for times in [[2, 1, 1, 1], [1, 3, 1, 1], [1, 1, 2, 1], [1, 1, 1, 2], [3, 2, 2, 2]] {
            cases.add(
                "REPEAT",
                kind.name(),
                format!("13x5x4x3 by {}", size(times)),
                Limit::EXACT,
                move |p| {
                    let ne = [13, 5, 4, 3];
                    let a = p.input(kind, ne, WIDE);
                    let whole = std::array::from_fn(|axis| ne[axis] * times[axis]);
                    let like = p.input(kind, whole, Fill::Constant(0.0));
                    vec![p.repeat(a, like)]
                },
            );
        }
    }
    for ne in [[67, 13, 3, 2], [513, 2, 1, 1]] {
        cases.add("PAD", "f32", format!("{} after", size(ne)), Limit::EXACT, move |p: &GraphPlan<'_>| {
            let a = p.uniform(Type::F32, ne);
            vec![p.pad(a, 0, 1, 0, 2, 0, 1, 0, 0)]
        });
        cases.add("PAD", "f32", format!("{} around", size(ne)), Limit::EXACT, move |p| {
            let a = p.uniform(Type::F32, ne);
            vec![p.pad(a, 1, 2, 2, 1, 1, 1, 0, 1)]
        });
        cases.add("ROLL", "f32", size(ne), Limit::EXACT, move |p| {
            let a = p.uniform(Type::F32, ne);
            vec![p.roll(a, 3, -1, 0, 0)]
        });
    }
}

/// Adds operations that create tensors from a few numbers.
fn made(cases: &mut Cases) {
    for width in [10, 65] {
        cases.add("DIAG", "f32", format!("{width}x1x4x3"), Limit::EXACT, move |p| {
            let a = p.uniform(Type::F32, [width, 1, 4, 3]);
            vec![p.diag(a)]
        });
        for kind in 0..4 {
            cases.add("TRI", "f32", format!("{width}x{width}x3x2 kind={kind}"), Limit::EXACT, move |p| {
                let a = p.uniform(Type::F32, [width, width, 3, 2]);
                vec![p.tri(a, kind)]
            });
        }
        cases.add("FILL", "f32", format!("{width}x3x5x2"), Limit::EXACT, move |p| {
            let a = p.uniform(Type::F32, [width, 3, 5, 2]);
            vec![p.fill(a, 2.5)]
        });
    }
    for count in [100, 1025] {
        cases.add("ARANGE", "f32", count, USUAL, move |p| vec![p.arange(0.0, count as f32, 1.0)]);
    }
}
