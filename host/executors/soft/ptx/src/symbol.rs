//! Meaning of a module's names in its kernels.

use crate::lex::TextPosition;

/// Variable or function that a name declared at module scope denotes in kernels. Sizes and alignments are in
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModuleSymbol {
    /// A `.global` or `.const` variable, as an index into [`crate::Module::globals`], with the size of an
    /// element in bytes.
    Global { index: u32, element: u64 },
    /// A `.shared` variable. It takes memory only in the kernels that use it.
    Shared { bytes: u64, element: u64, align: u64 },
    /// Dynamic shared memory, declared as `.extern .shared name[]`.
    Dynamic { element: u64, align: u64 },
    /// A function with a body. `place` is the position after `.func`, and `address` the address of the
    /// function.
    Function { place: TextPosition, address: u64 },
}
