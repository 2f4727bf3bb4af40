//! Table of the templates.

use std::sync::LazyLock;

use super::body::{Action, Templates};
use super::{compare, convert, float, integer};
use crate::jit::{access, flow};
use crate::machine::Inst;

/// Returns the template of an instruction, if it has one.
pub(super) fn template(step: &Inst) -> Option<Action> {
    static TABLE: LazyLock<Templates> = LazyLock::new(|| {
        let mut table = Templates::new();
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
