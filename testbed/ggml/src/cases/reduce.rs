//! Cases of reductions: sums, extrema, sorts.

use super::common::{USUAL, size};
use crate::case::Cases;
use crate::compare::Limit;
use crate::ffi::{Builder, Order, Tensor, Type};
use crate::fill::Fill;

type Reduction = for<'b, 'c, 'x> fn(&'b Builder<'c>, Tensor<'x>) -> Tensor<'c>;

pub fn add(cases: &mut Cases) {
    const REDUCTIONS: [(&str, Reduction); 4] = [
        ("SUM", |b, x| b.sum(x)),
        ("SUM_ROWS", |b, x| b.sum_rows(x)),
        ("MEAN", |b, x| b.mean(x)),
        ("CUMSUM", |b, x| b.cumsum(x)),
    ];
    for (op, reduce) in REDUCTIONS {
        for ne in [[33, 5, 4, 3], [1, 1, 1, 1], [1025, 7, 1, 1], [33, 256, 1, 1], [2053, 2, 1, 1]] {
            cases.add(op, "f32", size(ne), USUAL, move |p| {
                // Not around zero: a sum whose terms cancel says nothing about its error.
                let a = p.input(Type::F32, ne, Fill::Uniform(-0.5, 1.0));
                vec![reduce(p, a)]
            });
        }
        // The CUDA backend accepts a sum of a view, and then ends the process.
        if op != "SUM" {
            cases.add(op, "f32", "19x5x6x3 view", USUAL, move |p| {
                let a = p.part(Type::F32, [19, 5, 6, 3], [2, 2, 1, 1], Fill::Uniform(-0.5, 1.0));
                vec![reduce(p, a)]
            });
        }
    }
    for ne in [[100, 10, 1, 1], [32, 1, 1, 1], [1025, 12, 1, 1], [5438, 3, 1, 1], [31, 129, 1, 1]] {
        cases.add("ARGMAX", "f32", size(ne), Limit::EXACT, move |p| {
            let a = p.input(Type::F32, ne, Fill::Shuffled);
            vec![p.argmax(a)]
        });
    }
    for ne in [[4, 501, 1, 1], [1025, 3, 1, 1]] {
        cases.add("COUNT_EQUAL", "f32", size(ne), Limit::EXACT, move |p| {
            let (a, b) = (p.input(Type::F32, ne, Fill::Shuffled), p.input(Type::F32, ne, Fill::Shuffled));
            let (a, b) = (p.argmax(a), p.argmax(b));
            vec![p.count_equal(a, b)]
        });
    }
    for (name, order) in [("ascending", Order::Ascending), ("descending", Order::Descending)] {
        for ne in
            [[33, 5, 2, 1], [16, 10, 10, 2], [60, 10, 1, 1], [1023, 2, 1, 3], [1025, 3, 1, 1], [1, 7, 1, 1]]
        {
            cases.add("ARGSORT", "f32", format!("{} {name}", size(ne)), Limit::EXACT, move |p| {
                let a = p.input(Type::F32, ne, Fill::Shuffled);
                vec![p.argsort(a, order)]
            });
        }
    }
    for (ne, k) in [
        ([33, 5, 2, 1], 7),
        ([16, 10, 1, 1], 1),
        ([128, 17, 1, 1], 8),
        ([1000, 3, 1, 1], 100),
        ([2049, 2, 1, 1], 40),
    ] {
        cases.add("TOP_K", "f32", format!("{} k={k}", size(ne)), Limit::AnyOrder(0.0), move |p| {
            let a = p.input(Type::F32, ne, Fill::Shuffled);
            vec![p.top_k(a, k)]
        });
        cases.add("TOP_K", "f32", format!("{} k={k} by sort", size(ne)), Limit::EXACT, move |p| {
            let a = p.input(Type::F32, ne, Fill::Shuffled);
            vec![p.argsort_top_k(a, k)]
        });
    }
    cases.add("TOP_K", "f32", "64x5 k=8 ties, values", Limit::AnyOrder(0.0), |p| {
        // Equal numbers may come in any order, so their values are compared, not their places.
        let a = p.input(Type::F32, [64, 5, 1, 1], Fill::Ties(4));
        let places = p.top_k(a, 8);
        let cells = p.reshape(a, 1, 64, 5, 1);
        let taken = p.get_rows(cells, places);
        vec![p.reshape(taken, 8, 5, 1, 1)]
    });
}
