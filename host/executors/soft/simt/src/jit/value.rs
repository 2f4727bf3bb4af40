//! How values lie in the frame, and the result type of assembling.

use iced_x86::IcedError;

/// The result of assembling. It is an error if an operand is out of range; the kernel is interpreted then.
pub(super) type Emit<T = ()> = Result<T, IcedError>;

/// How an operand lies in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    None,
    Scalar {
        wide: bool,
    },
    Vector {
        wide: bool,
    },
    /// One bit per lane.
    Predicate,
}
