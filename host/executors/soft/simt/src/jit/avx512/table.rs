//! Table of the templates.

use std::sync::LazyLock;

use super::body::{Action, Templates};
use super::{compare, convert, float, integer, lanes, matrices, product, quads};
use crate::jit::template::{Elements, MemSpace};
use crate::jit::{access, flow};
use crate::machine::Inst;
use crate::ops::control::Arrive;
use crate::ops::memory::{Generic, Load, Same32};

/// A load of words from generic addresses.
pub(super) type GenericLoad = Load<Generic, Same32, false, 1>;

/// Returns the template of an instruction, if it has one.
pub(super) fn template(step: &Inst) -> Option<Action> {
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
        let word = Elements { memory: MemSpace::Global, bytes: 4, count: 1, align: 4 };
        table.add::<GenericLoad>(Action::Load(word));
        flow::register(&mut table);
        table.add::<Arrive>(Action::Arrive);
        flow::register_butterflies(&mut table, float::ADD, float::MAX);
        table
    });
    TABLE.get(step)
}
