//! The cases, by family: operations that language models use, each type that a backend may have kernels for,
//! sizes that are no multiples of what kernels are cut into.
//!
//! Limits are those of GGML's own backend tests (tests/test-backend-ops.cpp of llama.cpp), as are the ranges
//! of the inputs where an operation needs one; sizes are smaller, for a device in software.
#![allow(clippy::many_single_char_names, reason = "matrices and their sizes have such names")]

mod attention;
mod common;
mod elementwise;
mod layer;
mod matmul;
mod moving;
mod norms;
mod recurrent;
mod reduce;
mod rope;
mod rows;

use crate::case::{Case, Cases};

/// Returns every case in a fixed order; each has a unique name.
pub fn all() -> Vec<Case> {
    let mut cases = Cases::default();
    elementwise::add(&mut cases);
    norms::add(&mut cases);
    reduce::add(&mut cases);
    moving::add(&mut cases);
    rows::add(&mut cases);
    rope::add(&mut cases);
    attention::add(&mut cases);
    matmul::add(&mut cases);
    recurrent::add(&mut cases);
    layer::add(&mut cases);
    cases.into_list()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names = HashSet::new();
        for case in all() {
            assert!(names.insert(case.name()), "{}", case.name());
        }
        assert!(names.len() > 1000, "{} cases", names.len());
    }

    #[test]
    fn the_short_selection_has_every_operation_and_type() {
        let all = all();
        let of = |short: bool| -> HashSet<_> {
            let wanted = all.iter().filter(|case| !short || case.short);
            wanted.map(|case| (case.op, case.types.clone())).collect()
        };
        assert_eq!(of(true), of(false));
    }
}
