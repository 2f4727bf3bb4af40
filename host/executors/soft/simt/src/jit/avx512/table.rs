//! Table of the templates.

use std::sync::LazyLock;

use super::body::{Action, Templates};
use super::{compare, convert, float, integer, lanes, matrices, product, quads};
use crate::jit::template::MemSpace;
use crate::jit::{access, flow};
use crate::machine::Opcode;

/// Returns the table of the templates.
pub(super) fn templates() -> &'static Templates {
    static TABLE: LazyLock<Templates> = LazyLock::new(|| {
        let mut table = Templates::new();
        integer::register(&mut table);
        float::register(&mut table);
        convert::register(&mut table);
        compare::register(&mut table);
        product::register(&mut table);
        quads::register(&mut table);
        matrices::register(&mut table);
        lanes::register(&mut table);
        access::register(&mut table);
        // Generic addresses mostly name device memory. For others a side exit is taken.
        table.access(Opcode::LdGeneric32, MemSpace::Global, 4, &[1], &[]);
        flow::register(&mut table);
        table.add(Opcode::Arrive, Action::Arrive);
        table
    });
    &TABLE
}
