//! The templates of all steps that machine code is made for.

use std::sync::LazyLock;

use super::body::{Entry, Table};
use super::{compare, convert, float, integer};
use crate::jit::{access, flow};
use crate::machine::Inst;

/// The template of a step.
pub(super) fn template(step: &Inst) -> Option<Entry> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let mut table = Table::new();
        integer::register(&mut table);
        float::register(&mut table);
        convert::register(&mut table);
        compare::register(&mut table);
        access::register(&mut table);
        flow::register(&mut table);
        flow::register_butterflies(&mut table, float::ADD, float::MAX);
        table
    });
    TABLE.get(step)
}
