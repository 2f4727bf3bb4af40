//! Instructions that the parser adds to compose those that engines do not have.

use crate::ir::{Binary, Compare, Op, Operand, Reg, Ty};
use crate::kernel::spelling::PLAIN;

/// Makes an instruction of integer arithmetic.
pub(super) const fn arithmetic(op: Binary, ty: Ty, dst: Reg, a: Operand, b: Operand) -> Op {
    Op::Binary { op, ty, float: PLAIN, dst, a, b }
}

/// Makes a comparison whose result is a predicate.
pub(super) const fn compare(compare: Compare, ty: Ty, dst: Reg, a: Operand, b: Operand) -> Op {
    Op::Setp { compare, ty, ftz: false, combine: None, dst: Some(dst), complement: None, a, b }
}

/// Makes a conversion that truncates or extends an integer.
pub(super) const fn resize(to: Ty, from: Ty, dst: Reg, src: Operand) -> Op {
    Op::Cvt { to, from, round: None, integral: false, ftz: false, sat: false, dst, src }
}
