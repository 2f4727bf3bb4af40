//! Names that a module declares, as its kernels see them.

use crate::lex::Place;

/// What a name of the module means within its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModuleSymbol {
    /// A `.global` or `.const` variable: an index into [`crate::Module::globals`]. As of all variables, the
    /// bytes of an element.
    Global { index: u32, element: u64 },
    /// A `.shared` variable, which takes memory only in the kernels that use it.
    Shared { bytes: u64, element: u64, align: u64 },
    /// `.extern .shared name[]`: dynamic shared memory.
    Dynamic { element: u64, align: u64 },
    /// A function with a body: where the text after `.func` starts, and its address.
    Function { place: Place, address: u64 },
}
