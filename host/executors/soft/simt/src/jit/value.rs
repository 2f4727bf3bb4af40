//! The result type of assembling, and the kinds of operands.

use iced_x86::IcedError;

pub(super) use crate::machine::SlotKind;

/// Result of assembling. It is an error if an operand is out of range; the kernel is then interpreted.
pub(super) type Emit<T = ()> = Result<T, IcedError>;
