//! Values as machine code sees them: how they lie in the frame.

use iced_x86::IcedError;

/// What assembling returns. It fails where an operand is out of range, and the kernel is interpreted then.
pub(super) type Emit<T = ()> = Result<T, IcedError>;

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
