//! Locations of values in the frame, and the result type of assembling.

use iced_x86::IcedError;

/// Result of assembling. It is an error if an operand is out of range; the kernel is then interpreted.
pub(super) type Emit<T = ()> = Result<T, IcedError>;

/// Location and width of an operand in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    None,
    Scalar {
        wide: bool,
    },
    Vector {
        wide: bool,
    },
    /// A predicate, with one bit for each lane.
    Predicate,
}
