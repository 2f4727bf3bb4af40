//! The templates of all steps that machine code is made for.

use std::sync::LazyLock;

use super::body::{Entry, Table};
use super::{compare, convert, float, integer, lanes, matrices, product, quads};
use crate::jit::template::{Elements, Memory};
use crate::jit::{access, flow};
use crate::machine::Inst;
use crate::ops::control::Arrive;
use crate::ops::memory::{Generic, Load, Same32};

/// A load of words from whatever memory their addresses name.
pub(super) type GenericLoad = Load<Generic, Same32, false, 1>;

/// The template of a step.
pub(super) fn template(step: &Inst) -> Option<Entry> {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        let mut table = Table::new();
        integer::register(&mut table);
        float::register(&mut table);
        convert::register(&mut table);
        compare::register(&mut table);
        product::register(&mut table);
        quads::register(&mut table);
        matrices::register(&mut table);
        lanes::register(&mut table);
        access::register(&mut table);
        // Generic addresses mostly name device memory.
        let word = Elements { memory: Memory::Global, bytes: 4, count: 1, align: 4 };
        table.add::<GenericLoad>(Entry::Load(word));
        flow::register(&mut table);
        table.add::<Arrive>(Entry::Arrive);
        flow::register_butterflies(&mut table, float::ADD, float::MAX);
        table
    });
    TABLE.get(step)
}
