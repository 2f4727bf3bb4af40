//! The templates of all steps that machine code is made for.

use std::sync::LazyLock;

use super::template::{Entry, Table};
use super::{compare, convert, float, flow, integer, memory};
use crate::machine::Step;

/// The template of a step.
pub(super) fn template(step: &Step) -> Option<Entry> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let mut table = Table::new();
        integer::register(&mut table);
        float::register(&mut table);
        convert::register(&mut table);
        compare::register(&mut table);
        memory::register(&mut table);
        flow::register(&mut table);
        table
    });
    TABLE.get(step)
}
