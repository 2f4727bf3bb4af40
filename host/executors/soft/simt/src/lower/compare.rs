//! Lowers comparisons, selections and operations on predicates.

use vgpu_ptx::ir::{Combine, Compare as Cmp, Guard, Op, Operand, Reg, Ty};

use crate::machine::{Form, Opcode, Slot, Subnormals, ValueLoc, set};

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
    fn test(&mut self, opcode: Opcode, ftz: bool, sources: [ValueLoc; 2], inverted: bool) -> Lowered<Bits> {
        let subnormals = if ftz { Subnormals::Flush } else { Subnormals::Keep };
        let form = Form { subnormals, ..Form::of(&sources) }.invert(set::D, inverted);
        let inst = self.inst_of_sources(opcode, form, sources)?;
        Ok(Bits { at: self.push_scalar(inst), shared: form.shares(set::D) })
    }

    /// Emits a comparison of two values.
    fn compare_places(&mut self, compare: Cmp, ty: Ty, ftz: bool, a: ValueLoc, b: ValueLoc) -> Lowered<Bits> {
        let (basic, exchanged, inverted) = basic(compare);
        let (a, b) = if exchanged { (b, a) } else { (a, b) };
        let missing = || Err(format!("there is no comparison {compare:?} of {ty:?}"));
        let opcode = match (basic, ty) {
            (Basic::Eq, Ty::F32) => Opcode::EqF32,
            (Basic::Lt, Ty::F32) => Opcode::LtF32,
            (Basic::Le, Ty::F32) => Opcode::LeF32,
            (Basic::Equ, Ty::F32) => Opcode::EquF32,
            (Basic::Nan, Ty::F32) => Opcode::NanF32,
            (Basic::Eq, Ty::F64) => Opcode::EqF64,
            (Basic::Lt, Ty::F64) => Opcode::LtF64,
            (Basic::Le, Ty::F64) => Opcode::LeF64,
            (Basic::Equ, Ty::F64) => Opcode::EquF64,
            (Basic::Nan, Ty::F64) => Opcode::NanF64,
            _ if ty.float() => return missing(),
            _ => match (basic, ty.bytes(), ty.signed()) {
                (Basic::Eq | Basic::Equ, 2 | 4, _) => Opcode::Eq32,
                (Basic::Eq | Basic::Equ, 8, _) => Opcode::Eq64,
                (Basic::Lt, 2 | 4, false) => Opcode::LtU32,
                (Basic::Le, 2 | 4, false) => Opcode::LeU32,
                (Basic::Lt, 2, true) => Opcode::LtS16,
                (Basic::Le, 2, true) => Opcode::LeS16,
                (Basic::Lt, 4, true) => Opcode::LtS32,
                (Basic::Le, 4, true) => Opcode::LeS32,
                (Basic::Lt, 8, false) => Opcode::LtU64,
                (Basic::Le, 8, false) => Opcode::LeU64,
                (Basic::Lt, 8, true) => Opcode::LtS64,
                (Basic::Le, 8, true) => Opcode::LeS64,
                _ => return missing(),
            },
        };
        self.test(opcode, ftz && ty == Ty::F32, [a, b], inverted)
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
            (a, b) = (self.apply(Opcode::UpperHalf, [a])?, self.apply(Opcode::UpperHalf, [b])?);
        }
        match ty {
            Ty::F16 | Ty::F16x2 => {
                if ftz {
                    return Err(format!("there is no .ftz comparison of {ty:?}"));
                }
                let (a, b) = (self.apply(Opcode::FromHalf, [a])?, self.apply(Opcode::FromHalf, [b])?);
                self.compare_places(compare, Ty::F32, false, a, b)
            }
            Ty::Bf16 | Ty::Bf16x2 => {
                let (a, b) = (self.apply(Opcode::FromBfloat, [a])?, self.apply(Opcode::FromBfloat, [b])?);
                self.compare_places(compare, Ty::F32, false, a, b)
            }
            _ => self.compare_places(compare, ty, ftz, a, b),
        }
    }

    /// Emits `dst = a op b` for predicates, each of which may be inverted.
    fn logic(
        &mut self,
        opcode: Opcode,
        dst: ValueLoc,
        (a, a_inverted): (Bits, bool),
        (b, b_inverted): (Bits, bool),
    ) -> Lowered {
        if dst.is_scalar() && !(a.shared && b.shared) {
            return Err("a predicate that lanes share gets values that they do not share".into());
        }
        let form = Form::default().share(set::D, dst.is_scalar());
        let mut inst = self.inst_of(opcode, form.invert(set::A, a_inverted).invert(set::B, b_inverted))?;
        (inst.d, inst.a, inst.b) = (dst.slot(), a.at, b.at);
        self.push(inst);
        Ok(())
    }

    /// Writes the result of a comparison, or its inverse, to a predicate register. With `combine`, first
    /// combines it with another predicate.
    fn write_predicate(
        &mut self,
        dst: Reg,
        bits: Bits,
        inverted: bool,
        combine: Option<(Combine, Guard)>,
    ) -> Lowered {
        let dst = self.register(dst, 1)?;
        let Some((op, guard)) = combine else {
            return self.logic(Opcode::OrPred, dst, (bits, inverted), (bits, inverted));
        };
        let (with, with_inverted) = self.guard(guard)?;
        self.logic(operation(op), dst, (bits, inverted), (with.into(), with_inverted))
    }

    fn select(
        &mut self,
        dst: Reg,
        bytes: u32,
        [a, b]: [ValueLoc; 2],
        (p, inverted): (ValueLoc, bool),
    ) -> Lowered {
        let (place, blend) = self.target(dst, bytes)?;
        let opcode = if bytes == 8 { Opcode::Selp64 } else { Opcode::Selp32 };
        // The predicate is read as one of lanes, even if they share it.
        let scalar = a.is_scalar() && b.is_scalar() && p.is_scalar();
        let form = Form { shared: Form::of(&[a, b]).shared & (set::A | set::B), ..Form::default() };
        let mut inst = self.inst_of(opcode, form.share(set::D, scalar).invert(set::C, inverted))?;
        (inst.a, inst.b, inst.c) = (a.slot(), b.slot(), p.slot());
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
                        self.write_predicate(*dst, lower, false, *combine)?;
                    }
                    if let Some(complement) = complement {
                        self.write_predicate(*complement, upper, false, *combine)?;
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
                        let (with, inverted) = self.guard(*guard)?;
                        let at = self.temporary_scalar();
                        let copy = if with.is_scalar() { ValueLoc::Scalar(at) } else { ValueLoc::Vector(at) };
                        let bits = Bits::from(with);
                        self.logic(Opcode::OrPred, copy, (bits, inverted), (bits, inverted))?;
                        Some(Bits { at, shared: bits.shared })
                    }
                    _ => None,
                };
                if let Some(dst) = dst {
                    self.write_predicate(*dst, lower, false, *combine)?;
                }
                match (complement, combine, saved) {
                    (Some(complement), Some((op, _)), Some(saved)) => {
                        let place = self.register(*complement, 1)?;
                        self.logic(operation(*op), place, (lower, true), (saved, false))
                    }
                    (Some(complement), _, _) => self.write_predicate(*complement, lower, true, *combine),
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
                    let (with, inverted) = self.guard(*guard)?;
                    if !with.is_scalar() {
                        place = ValueLoc::Vector(at);
                    }
                    self.logic(operation(*op), place, (bits, false), (with.into(), inverted))?;
                } else {
                    self.logic(Opcode::OrPred, place, (bits, false), (bits, false))?;
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
                self.select(*dst, bytes, [truth, falsity].map(ValueLoc::Scalar), (place, false))
            }
            Op::Selp { ty, dst, a, b, p } => {
                let bytes = ty.bytes();
                let (a, b) = (self.source(a, bytes)?, self.source(b, bytes)?);
                let p = self.guard(*p)?;
                self.select(*dst, bytes, [a, b], p)
            }
            Op::PredBinary { op, dst, a, b } => {
                let place = self.register(*dst, 1)?;
                let ((a, a_inverted), (b, b_inverted)) = (self.guard(*a)?, self.guard(*b)?);
                self.logic(operation(*op), place, (a.into(), a_inverted), (b.into(), b_inverted))
            }
            Op::PredMov { dst, src } => {
                let place = self.register(*dst, 1)?;
                let (src, inverted) = self.guard(*src)?;
                self.logic(Opcode::OrPred, place, (src.into(), inverted), (src.into(), inverted))
            }
            Op::PredImm { dst, value } => {
                let place = self.register(*dst, 1)?;
                let at = self.constant(if *value { 0xffff_ffff } else { 0 });
                let bits = Bits { at, shared: true };
                self.logic(Opcode::OrPred, place, (bits, false), (bits, false))
            }
            _ => Err("not a comparison".into()),
        }
    }

    /// Emits a copy of a predicate.
    pub(super) fn copy_predicate(&mut self, to: ValueLoc, from: ValueLoc) -> Lowered {
        self.logic(Opcode::OrPred, to, (from.into(), false), (from.into(), false))
    }

    /// Makes the comparison that was just emitted write its register directly, without a temporary slot.
    fn redirect_predicate(&mut self, dst: Reg, bits: Bits) -> Lowered {
        let place = self.register(dst, 1)?;
        debug_assert_eq!(class_bytes(self.class(dst)?), 1);
        if place.is_scalar() != bits.shared {
            return self.write_predicate(dst, bits, false, None);
        }
        let last = self.insts.last_mut().ok_or("no comparison")?;
        last.d = place.slot();
        Ok(())
    }
}

const fn operation(op: Combine) -> Opcode {
    match op {
        Combine::And => Opcode::AndPred,
        Combine::Or => Opcode::OrPred,
        Combine::Xor => Opcode::XorPred,
    }
}
