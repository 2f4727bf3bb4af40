//! Parser of arithmetic with carry, which composes wider integers: `add.cc`, `addc`, `mad.lo.cc` and similar
//! (PTX ISA, section "Extended-Precision Integer Arithmetic Instructions").
//!
//! The ISA's condition code `CC.CF` is one predicate here, which all these instructions share. Each of them
//! becomes a few instructions that engines have. After a subtraction, the carry is set if there was *no*
//! borrow, as GPUs add the complement: NVIDIA's division of 128 bits reads it by `addc`.

use crate::error::PtxError;
use crate::ir::{Binary, Class, Combine, Compare, Guard, Half, Op, Operand, Reg, Ty};
use crate::kernel::Parser;
use crate::kernel::spelling::{Spelling, class};
use crate::kernel::synthetic::{arithmetic, compare};

/// Types of arithmetic with carry: integers of 32 and 64 bits.
const TYPES: &[Ty] = &[Ty::U32, Ty::S32, Ty::U64, Ty::S64];

/// Use of the carry by an instruction.
#[derive(Clone, Copy, Debug)]
struct Carry {
    /// Whether the instruction adds the carry (`addc`).
    takes: bool,
    /// Whether the instruction sets the carry (`.cc`).
    leaves: bool,
}

impl<'t> Parser<'t> {
    /// Reads an instruction with carry. Returns `None` if it is another instruction.
    pub fn with_carry(&mut self, s: &mut Spelling<'t>) -> Result<Option<Op>, PtxError> {
        let mut rest = *s;
        let (takes, product, op) = match s.base {
            b"add" => (false, false, Binary::Add),
            b"addc" => (true, false, Binary::Add),
            b"sub" => (false, false, Binary::Sub),
            b"subc" => (true, false, Binary::Sub),
            b"mad" => (false, true, Binary::Add),
            b"madc" => (true, true, Binary::Add),
            _ => return Ok(None),
        };
        let half = if product { rest.pick(&[("lo", Half::Lo), ("hi", Half::Hi)]) } else { None };
        let carry = Carry { takes, leaves: rest.accept("cc") };
        if !(carry.takes || carry.leaves) {
            return Ok(None);
        }
        self.require(!product || half.is_some())?;
        let ty = self.last(&mut rest, TYPES)?;
        // Signs only affect the upper half of a product.
        let plain = if ty.bytes() == 8 { Ty::U64 } else { Ty::U32 };
        let dst = self.dst(ty)?;
        let [mut a, mut b] = self.sources([ty; 2])?;
        if let Some(half) = half {
            let dst = self.register(class(ty))?;
            self.push(Op::Mul { half, ty, dst, a, b });
            (a, b) = (Operand::Reg(dst), self.src(ty)?);
        }
        let sum = self.sum_with_carry(op, plain, carry, a, b)?;
        Ok(Some(Op::Mov { ty, dst, src: sum }))
    }

    /// Adds the instructions for a sum or a difference with carry, and for the new carry.
    fn sum_with_carry(
        &mut self,
        op: Binary,
        ty: Ty,
        carry: Carry,
        a: Operand,
        b: Operand,
    ) -> Result<Operand, PtxError> {
        let flag = self.carry_flag()?;
        let guard = |reg| Guard { reg, negated: false };
        let taken = if carry.takes {
            let dst = self.register(class(ty))?;
            let p = Guard { reg: flag, negated: op == Binary::Sub };
            self.push(Op::Selp { ty, dst, a: Operand::Imm(1), b: Operand::Imm(0), p });
            Some(Operand::Reg(dst))
        } else {
            None
        };
        let (mut value, first) = self.step(op, ty, a, b, carry.leaves)?;
        let mut left = first;
        if let Some(taken) = taken {
            let (next, second) = self.step(op, ty, value, taken, carry.leaves)?;
            value = next;
            if let (Some(a), Some(b)) = (first, second) {
                let dst = self.register(Class::Pred)?;
                self.push(Op::PredBinary { op: Combine::Or, dst, a: guard(a), b: guard(b) });
                left = Some(dst);
            }
        }
        if let Some(left) = left {
            self.push(Op::PredMov { dst: flag, src: Guard { reg: left, negated: op == Binary::Sub } });
        }
        Ok(value)
    }

    /// Adds the instructions for one addition or subtraction. Returns the value and the predicate of its
    /// carry or borrow.
    fn step(
        &mut self,
        op: Binary,
        ty: Ty,
        a: Operand,
        b: Operand,
        leaves: bool,
    ) -> Result<(Operand, Option<Reg>), PtxError> {
        let dst = self.register(class(ty))?;
        self.push(arithmetic(op, ty, dst, a, b));
        let value = Operand::Reg(dst);
        if !leaves {
            return Ok((value, None));
        }
        let left = self.register(Class::Pred)?;
        // A sum is less than its summands exactly if it overflows, and a difference underflows exactly if `a`
        // is less than `b`.
        let (a, b) = if op == Binary::Add { (value, a) } else { (a, b) };
        self.push(compare(Compare::Lt, ty, left, a, b));
        Ok((value, Some(left)))
    }

    /// Returns the predicate register of the carry, and creates it for the kernel's first instruction with
    /// carry.
    fn carry_flag(&mut self) -> Result<Reg, PtxError> {
        if let Some(flag) = self.carry {
            return Ok(flag);
        }
        let flag = self.register(Class::Pred)?;
        self.carry = Some(flag);
        Ok(flag)
    }
}
