//! Lowers comparisons, selections and operations on predicates.

use vgpu_ptx::ir::{Combine, Compare as Cmp, Guard, Op, Operand, Reg, Ty};

use crate::machine::{LaneType, Slot, ValueLoc};
use crate::ops::compare::{self, AND, Compare, CompareScalar, Flushed, Logic, OR, Select, SelectScalar, XOR};
use crate::ops::{Test, half};

use super::builder::Builder;
use super::error::Lowered;
use super::places::class_bytes;

/// Comparisons that the engine has. All others are expressed by these with exchanged operands or an inverted
/// result.
#[derive(Clone, Copy)]
enum Basic {
    Eq,
    Lt,
    Le,
    Equ,
    Nan,
}

/// Returns the basic comparison, whether its operands are exchanged, and whether its result is inverted.
const fn basic(compare: Cmp) -> (Basic, bool, bool) {
    match compare {
        Cmp::Eq => (Basic::Eq, false, false),
        Cmp::Ne => (Basic::Equ, false, true),
        Cmp::Lt => (Basic::Lt, false, false),
        Cmp::Le => (Basic::Le, false, false),
        Cmp::Gt => (Basic::Lt, true, false),
        Cmp::Ge => (Basic::Le, true, false),
        Cmp::Equ => (Basic::Equ, false, false),
        Cmp::Neu => (Basic::Eq, false, true),
        Cmp::Ltu => (Basic::Le, true, true),
        Cmp::Leu => (Basic::Lt, true, true),
        Cmp::Gtu => (Basic::Le, false, true),
        Cmp::Geu => (Basic::Lt, false, true),
        Cmp::Num => (Basic::Nan, false, true),
        Cmp::Nan => (Basic::Nan, false, false),
    }
}

/// A predicate that is not yet in its register: its slot, and whether all lanes share it.
#[derive(Clone, Copy)]
struct Bits {
    at: Slot,
    shared: bool,
}

impl From<ValueLoc> for Bits {
    fn from(place: ValueLoc) -> Self {
        Self { at: place.slot(), shared: place.is_scalar() }
    }
}

impl Builder<'_> {
    fn test<O: Test>(&mut self, a: ValueLoc, b: ValueLoc, inverted: bool) -> Bits {
        let kind = match (a.is_scalar(), b.is_scalar()) {
            (true, true) => Some(self.baseline_inst::<CompareScalar<O>>()),
            (true, false) => self.vector_inst::<Compare<O, true, false>>(),
            (false, true) => self.vector_inst::<Compare<O, false, true>>(),
            (false, false) => Some(self.inst::<Compare<O, false, false>>()),
        };
        let (x, y) = match kind {
            Some(_) => (a.slot(), b.slot()),
            None => (self.vector(a, size_of::<O::T>() == 8), self.vector(b, size_of::<O::T>() == 8)),
        };
        let mut inst = kind.unwrap_or_else(|| self.inst::<Compare<O, false, false>>());
        (inst.a, inst.b) = (x, y);
        inst.y = if inverted { u32::MAX } else { 0 };
        Bits { at: self.push_scalar(inst), shared: a.is_scalar() && b.is_scalar() }
    }

    /// Emits a comparison of two values.
    fn compare_places(&mut self, compare: Cmp, ty: Ty, ftz: bool, a: ValueLoc, b: ValueLoc) -> Lowered<Bits> {
        let (basic, exchanged, inverted) = basic(compare);
        let (a, b) = if exchanged { (b, a) } else { (a, b) };
        let missing = || Err(format!("there is no comparison {compare:?} of {ty:?}"));
        Ok(match (basic, ty) {
            (Basic::Eq, Ty::F32) if ftz => self.test::<Flushed<compare::EqF32>>(a, b, inverted),
            (Basic::Lt, Ty::F32) if ftz => self.test::<Flushed<compare::LtF32>>(a, b, inverted),
            (Basic::Le, Ty::F32) if ftz => self.test::<Flushed<compare::LeF32>>(a, b, inverted),
            (Basic::Equ, Ty::F32) if ftz => self.test::<Flushed<compare::EquF32>>(a, b, inverted),
            (Basic::Eq, Ty::F32) => self.test::<compare::EqF32>(a, b, inverted),
            (Basic::Lt, Ty::F32) => self.test::<compare::LtF32>(a, b, inverted),
            (Basic::Le, Ty::F32) => self.test::<compare::LeF32>(a, b, inverted),
            (Basic::Equ, Ty::F32) => self.test::<compare::EquF32>(a, b, inverted),
            (Basic::Nan, Ty::F32) => self.test::<compare::NanF32>(a, b, inverted),
            (Basic::Eq, Ty::F64) => self.test::<compare::EqF64>(a, b, inverted),
            (Basic::Lt, Ty::F64) => self.test::<compare::LtF64>(a, b, inverted),
            (Basic::Le, Ty::F64) => self.test::<compare::LeF64>(a, b, inverted),
            (Basic::Equ, Ty::F64) => self.test::<compare::EquF64>(a, b, inverted),
            (Basic::Nan, Ty::F64) => self.test::<compare::NanF64>(a, b, inverted),
            _ if ty.float() => return missing(),
            _ => match (basic, ty.bytes(), ty.signed()) {
                (Basic::Eq | Basic::Equ, 2 | 4, _) => self.test::<compare::Eq32>(a, b, inverted),
                (Basic::Eq | Basic::Equ, 8, _) => self.test::<compare::Eq64>(a, b, inverted),
                (Basic::Lt, 2 | 4, false) => self.test::<compare::LtU32>(a, b, inverted),
                (Basic::Le, 2 | 4, false) => self.test::<compare::LeU32>(a, b, inverted),
                (Basic::Lt, 2, true) => self.test::<compare::LtS16>(a, b, inverted),
                (Basic::Le, 2, true) => self.test::<compare::LeS16>(a, b, inverted),
                (Basic::Lt, 4, true) => self.test::<compare::LtS32>(a, b, inverted),
                (Basic::Le, 4, true) => self.test::<compare::LeS32>(a, b, inverted),
                (Basic::Lt, 8, false) => self.test::<compare::LtU64>(a, b, inverted),
                (Basic::Le, 8, false) => self.test::<compare::LeU64>(a, b, inverted),
                (Basic::Lt, 8, true) => self.test::<compare::LtS64>(a, b, inverted),
                (Basic::Le, 8, true) => self.test::<compare::LeS64>(a, b, inverted),
                _ => return missing(),
            },
        })
    }

    /// Compares two operands. For packed halves, compares the lower elements, or the upper ones if `upper` is
    /// set.
    fn compare_operands(
        &mut self,
        compare: Cmp,
        ty: Ty,
        ftz: bool,
        [a, b]: [&Operand; 2],
        upper: bool,
    ) -> Lowered<Bits> {
        let bytes = ty.bytes();
        let (mut a, mut b) = (self.source(a, bytes)?, self.source(b, bytes)?);
        if upper {
            (a, b) = (self.apply1::<half::Upper>(a)?, self.apply1::<half::Upper>(b)?);
        }
        match ty {
            Ty::F16 | Ty::F16x2 => {
                if ftz {
                    return Err(format!("there is no .ftz comparison of {ty:?}"));
                }
                let (a, b) = (self.apply1::<half::FromHalf>(a)?, self.apply1::<half::FromHalf>(b)?);
                self.compare_places(compare, Ty::F32, false, a, b)
            }
            Ty::Bf16 | Ty::Bf16x2 => {
                let (a, b) = (self.apply1::<half::FromBfloat>(a)?, self.apply1::<half::FromBfloat>(b)?);
                self.compare_places(compare, Ty::F32, false, a, b)
            }
            _ => self.compare_places(compare, ty, ftz, a, b),
        }
    }

    /// Emits `dst = a op b` for predicates, each with the value that it is XORed with.
    fn logic(&mut self, op: u32, dst: ValueLoc, (a, a_xor): (Bits, u32), (b, b_xor): (Bits, u32)) -> Lowered {
        let mut inst = match dst {
            ValueLoc::Vector(_) => self.baseline_inst::<Logic<false>>(),
            ValueLoc::Scalar(_) if a.shared && b.shared => self.baseline_inst::<Logic<true>>(),
            ValueLoc::Scalar(_) => {
                return Err("a predicate that lanes share gets values that they do not share".into());
            }
        };
        (inst.d, inst.a, inst.b) = (dst.slot(), a.at, b.at);
        (inst.x, inst.imm, inst.y) = (op, a_xor.into(), b_xor);
        self.push(inst);
        Ok(())
    }

    /// Writes the result of a comparison, XORed with `xor`, to a predicate register. With `combine`, first
    /// combines it with another predicate.
    fn write_predicate(
        &mut self,
        dst: Reg,
        bits: Bits,
        xor: u32,
        combine: Option<(Combine, Guard)>,
    ) -> Lowered {
        let dst = self.register(dst, 1)?;
        let Some((op, guard)) = combine else {
            return self.logic(OR, dst, (bits, xor), (bits, xor));
        };
        let (with, with_xor) = self.guard(guard)?;
        self.logic(operation(op), dst, (bits, xor), (with.into(), with_xor))
    }

    fn select<T: LaneType>(
        &mut self,
        dst: Reg,
        bytes: u32,
        a: ValueLoc,
        b: ValueLoc,
        (p, xor): (ValueLoc, u32),
    ) -> Lowered {
        let (place, blend) = self.target(dst, bytes)?;
        let scalar = a.is_scalar() && b.is_scalar() && p.is_scalar();
        let mut inst = match (a.is_scalar(), b.is_scalar()) {
            _ if scalar => self.baseline_inst::<SelectScalar<T>>(),
            (true, true) => self.inst::<Select<T, true, true>>(),
            (true, false) => self.inst::<Select<T, true, false>>(),
            (false, true) => self.inst::<Select<T, false, true>>(),
            (false, false) => self.inst::<Select<T, false, false>>(),
        };
        (inst.a, inst.b, inst.c, inst.x) = (a.slot(), b.slot(), p.slot(), xor);
        self.finish(inst, scalar, bytes == 8, place, blend)
    }

    pub(super) fn compares(&mut self, op: &Op) -> Lowered {
        match op {
            Op::Setp { compare, ty, ftz, combine, dst, complement, a, b } => {
                let packed = matches!(ty, Ty::F16x2 | Ty::Bf16x2);
                let lower = self.compare_operands(*compare, *ty, *ftz, [a, b], false)?;
                if packed {
                    let upper = self.compare_operands(*compare, *ty, *ftz, [a, b], true)?;
                    if let Some(dst) = dst {
                        self.write_predicate(*dst, lower, 0, *combine)?;
                    }
                    if let Some(complement) = complement {
                        self.write_predicate(*complement, upper, 0, *combine)?;
                    }
                    return Ok(());
                }
                let fused = combine.is_none() && complement.is_none();
                if let (true, Some(dst)) = (fused, dst) {
                    return self.redirect_predicate(*dst, lower);
                }
                // The combining predicate may be one of the destinations.
                let saved = match combine {
                    Some((_, guard)) if Some(guard.reg) == *dst && complement.is_some() => {
                        let (with, xor) = self.guard(*guard)?;
                        let at = self.temporary_scalar();
                        let copy = if with.is_scalar() { ValueLoc::Scalar(at) } else { ValueLoc::Vector(at) };
                        let bits = Bits::from(with);
                        self.logic(OR, copy, (bits, xor), (bits, xor))?;
                        Some(Bits { at, shared: bits.shared })
                    }
                    _ => None,
                };
                if let Some(dst) = dst {
                    self.write_predicate(*dst, lower, 0, *combine)?;
                }
                match (complement, combine, saved) {
                    (Some(complement), Some((op, _)), Some(saved)) => {
                        let place = self.register(*complement, 1)?;
                        self.logic(operation(*op), place, (lower, u32::MAX), (saved, 0))
                    }
                    (Some(complement), _, _) => self.write_predicate(*complement, lower, u32::MAX, *combine),
                    (None, ..) => Ok(()),
                }
            }
            Op::Set { compare, ty, to, ftz, combine, dst, a, b } => {
                if matches!(ty, Ty::F16x2 | Ty::Bf16x2) {
                    return Err(format!("there is no set of {ty:?}"));
                }
                let bits = self.compare_operands(*compare, *ty, *ftz, [a, b], false)?;
                let at = self.temporary_scalar();
                let mut place = if bits.shared { ValueLoc::Scalar(at) } else { ValueLoc::Vector(at) };
                if let Some((op, guard)) = combine {
                    let (with, xor) = self.guard(*guard)?;
                    if !with.is_scalar() {
                        place = ValueLoc::Vector(at);
                    }
                    self.logic(operation(*op), place, (bits, 0), (with.into(), xor))?;
                } else {
                    self.logic(OR, place, (bits, 0), (bits, 0))?;
                }
                let bytes = to.bytes();
                let truth = match to {
                    Ty::F32 => u64::from(1f32.to_bits()),
                    Ty::F16 => 0x3c00,
                    Ty::Bf16 => 0x3f80,
                    Ty::U32 | Ty::S32 | Ty::B32 => 0xffff_ffff,
                    Ty::U16 | Ty::S16 | Ty::B16 => 0xffff,
                    _ => return Err(format!("there is no set to {to:?}")),
                };
                let (truth, falsity) = (self.constant(truth), self.constant(0));
                self.select::<u32>(
                    *dst,
                    bytes,
                    ValueLoc::Scalar(truth),
                    ValueLoc::Scalar(falsity),
                    (place, 0),
                )
            }
            Op::Selp { ty, dst, a, b, p } => {
                let bytes = ty.bytes();
                let (a, b) = (self.source(a, bytes)?, self.source(b, bytes)?);
                let p = self.guard(*p)?;
                if bytes == 8 {
                    self.select::<u64>(*dst, 8, a, b, p)
                } else {
                    self.select::<u32>(*dst, bytes, a, b, p)
                }
            }
            Op::PredBinary { op, dst, a, b } => {
                let place = self.register(*dst, 1)?;
                let ((a, a_xor), (b, b_xor)) = (self.guard(*a)?, self.guard(*b)?);
                self.logic(operation(*op), place, (a.into(), a_xor), (b.into(), b_xor))
            }
            Op::PredMov { dst, src } => {
                let place = self.register(*dst, 1)?;
                let (src, xor) = self.guard(*src)?;
                self.logic(OR, place, (src.into(), xor), (src.into(), xor))
            }
            Op::PredImm { dst, value } => {
                let place = self.register(*dst, 1)?;
                let at = self.constant(if *value { 0xffff_ffff } else { 0 });
                let bits = Bits { at, shared: true };
                self.logic(OR, place, (bits, 0), (bits, 0))
            }
            _ => Err("not a comparison".into()),
        }
    }

    /// Makes the comparison that was just emitted write its register directly, without a temporary slot.
    fn redirect_predicate(&mut self, dst: Reg, bits: Bits) -> Lowered {
        let place = self.register(dst, 1)?;
        debug_assert_eq!(class_bytes(self.class(dst)?), 1);
        if place.is_scalar() != bits.shared {
            return self.write_predicate(dst, bits, 0, None);
        }
        let last = self.insts.last_mut().ok_or("no comparison")?;
        last.d = place.slot();
        Ok(())
    }
}

const fn operation(op: Combine) -> u32 {
    match op {
        Combine::And => AND,
        Combine::Or => OR,
        Combine::Xor => XOR,
    }
}
