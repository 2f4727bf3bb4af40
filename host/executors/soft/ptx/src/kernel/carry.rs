//! Arithmetic with carry, of which wider integers are made: `add.cc`, `addc`, `mad.lo.cc` and their kin.
//!
//! The carry is a predicate that all of them share. Each becomes a few instructions that engines have. After a
//! difference the carry is set where there was *no* borrow, as after the sum with the complement that GPUs
//! compute: NVIDIA's division of 128 bits reads it by `addc`.

use crate::error::PtxError;
use crate::ir::{Binary, Class, Combine, Compare, Guard, Half, Op, Operand, Reg, Ty};
use crate::kernel::Parser;
use crate::kernel::spelling::{PLAIN, Spelling, class};

/// The types of arithmetic with carry.
const TYPES: &[Ty] = &[Ty::U32, Ty::S32, Ty::U64, Ty::S64];

/// What an instruction does with the carry.
#[derive(Clone, Copy, Debug)]
struct Carry {
    /// Whether it takes it in (`addc`).
    takes: bool,
    /// Whether it leaves one (`.cc`).
    leaves: bool,
}

impl<'t> Parser<'t> {
    /// Reads one of these instructions. `None`: it is another.
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
        let carry = Carry { takes, leaves: rest.take("cc") };
        if !(carry.takes || carry.leaves) {
            return Ok(None);
        }
        if product && half.is_none() {
            return Err(self.unsupported());
        }
        let ty = self.last(&mut rest, TYPES)?;
        // Signs do not matter but to the upper half of a product.
        let plain = if ty.bytes() == 8 { Ty::U64 } else { Ty::U32 };
        let dst = self.dst(ty)?;
        let (mut a, mut b) = (self.src(ty)?, self.src(ty)?);
        if let Some(half) = half {
            let dst = self.register(class(ty))?;
            self.push(Op::Mul { half, ty, dst, a, b });
            (a, b) = (Operand::Reg(dst), self.src(ty)?);
        }
        let sum = self.sum_with_carry(op, plain, carry, a, b)?;
        Ok(Some(Op::Mov { ty, dst, src: sum }))
    }

    /// Computes a sum or a difference with the carry, and the carry.
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

    /// Adds or subtracts: the value, and whether it left the range.
    fn step(
        &mut self,
        op: Binary,
        ty: Ty,
        a: Operand,
        b: Operand,
        leaves: bool,
    ) -> Result<(Operand, Option<Reg>), PtxError> {
        let dst = self.register(class(ty))?;
        self.push(Op::Binary { op, ty, float: PLAIN, dst, a, b });
        let value = Operand::Reg(dst);
        if !leaves {
            return Ok((value, None));
        }
        let left = self.register(Class::Pred)?;
        // A sum is less than its parts just when it does not fit, and a difference of less and more does not.
        let (a, b) = if op == Binary::Add { (value, a) } else { (a, b) };
        let dst = Some(left);
        self.push(Op::Setp {
            compare: Compare::Lt,
            ty,
            ftz: false,
            combine: None,
            dst,
            complement: None,
            a,
            b,
        });
        Ok((value, Some(left)))
    }

    /// The register of the carry.
    fn carry_flag(&mut self) -> Result<Reg, PtxError> {
        if let Some(flag) = self.carry {
            return Ok(flag);
        }
        let flag = self.register(Class::Pred)?;
        self.carry = Some(flag);
        Ok(flag)
    }
}
