//! Table of the templates.

use std::sync::LazyLock;

use super::body::Templates;
use super::{compare, convert, float, integer};
use crate::jit::{access, flow};

/// Returns the table of the templates.
pub(super) fn templates() -> &'static Templates {
    static TABLE: LazyLock<Templates> = LazyLock::new(|| {
        let mut table = Templates::new();
        integer::register(&mut table);
        float::register(&mut table);
        convert::register(&mut table);
        compare::register(&mut table);
        access::register(&mut table);
        flow::register(&mut table);
        table
    });
    &TABLE
}
