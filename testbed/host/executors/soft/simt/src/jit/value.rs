//! Values as machine code sees them: how they lie in the frame, and in which registers they are.

use iced_x86::IcedError;
use iced_x86::code_asm::AsmRegisterYmm;

/// What assembling returns. It fails where an operand is out of range, and the kernel is interpreted then.
pub(super) type Emit<T = ()> = Result<T, IcedError>;

/// The lanes of a value that machine code works on at a time: eight of 32 bits in `low`, or eight of 64 bits
/// in both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) low: AsmRegisterYmm,
    pub(super) high: AsmRegisterYmm,
}

/// How an operand of a step lies in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    None,
    Scalar {
        wide: bool,
    },
    Vector {
        wide: bool,
    },
    /// A bit for each lane.
    Predicate,
}
