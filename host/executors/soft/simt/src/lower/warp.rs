//! Lowers operations that the lanes of a warp execute together: shuffles, votes, matches and reductions.

use vgpu_ptx::ir::{Atomic, Binary, Op, Operand, Round, Shuffle, Ty, Vote};

use crate::machine::{Form, Opcode, Slot, ValueLoc, set};

use super::builder::Builder;
use super::error::Lowered;

/// Returns the member mask of an operation that names its lanes.
const fn mask_of(op: &Op) -> Option<&Operand> {
    match op {
        Op::BarWarp { mask }
        | Op::Shfl { mask, .. }
        | Op::Vote { mask, .. }
        | Op::Ballot { mask, .. }
        | Op::Match { mask, .. }
        | Op::Redux { mask, .. } => Some(mask),
        _ => None,
    }
}

impl Builder<'_> {
    /// Returns whether the lanes of a warp may execute an instruction in groups, because each names the
    /// members of its own.
    pub(super) fn is_grouped(&self, op: &Op) -> bool {
        mask_of(op).is_some_and(|mask| self.differs(mask))
    }

    /// Returns the slot of the member mask of all lanes that go on. If lanes have different masks, others
    /// with another mask wait until [`Self::end_group`]; with `joint` only if the result depends on the mask.
    fn members(&mut self, mask: &Operand, joint: bool) -> Lowered<Slot> {
        Ok(match self.source(mask, 4)? {
            ValueLoc::Scalar(slot) => slot,
            ValueLoc::Vector(masks) => self.begin_group(masks, joint),
        })
    }

    /// Lowers an operation of several lanes. The member mask is lowered first: if it starts a block,
    /// everything else belongs to that block, which each group runs for itself.
    pub(super) fn warps(&mut self, op: &Op) -> Lowered {
        let done = self.joint_operation(op);
        self.end_group();
        done
    }

    fn joint_operation(&mut self, op: &Op) -> Lowered {
        match op {
            Op::BarWarp { mask } => {
                let members = self.members(mask, true)?;
                let mut inst = self.inst(Opcode::SyncWarp);
                inst.a = members;
                self.push(inst);
                Ok(())
            }
            Op::Shfl { .. } => self.shuffle(op),
            Op::Vote { op, dst, p, mask } => {
                let members = self.members(mask, false)?;
                let (p, inverted) = self.exchanged_predicate(*p)?;
                let place = self.register(*dst, 1)?;
                let opcode = match op {
                    Vote::All => Opcode::VoteAll,
                    Vote::Any => Opcode::VoteAny,
                    Vote::Uni => Opcode::VoteUni,
                };
                let form = Form::default().share(set::D, place.is_scalar()).invert(set::A, inverted);
                let mut inst = self.inst_of(opcode, form)?;
                (inst.a, inst.b, inst.d) = (p, members, place.slot());
                self.push(inst);
                Ok(())
            }
            Op::Ballot { dst, p, mask } => {
                let members = self.members(mask, false)?;
                let (p, inverted) = self.exchanged_predicate(*p)?;
                let mut inst = self.inst_of(Opcode::Ballot, Form::default().invert(set::A, inverted))?;
                (inst.a, inst.b) = (p, members);
                let value = self.push_scalar(inst);
                self.finish_scalar(*dst, 4, value)
            }
            Op::ActiveMask { dst } => {
                let value = self.push_scalar(self.inst(Opcode::ActiveMask));
                self.finish_scalar(*dst, 4, value)
            }
            Op::Match { all, ty, dst, p, a, mask } => {
                let members = self.members(mask, false)?;
                let wide = ty.bytes() == 8;
                let a = self.source(a, ty.bytes())?;
                let a = self.vector(a, wide);
                if *all {
                    let predicate = match p {
                        Some(p) => self.register(*p, 1)?,
                        None => ValueLoc::Scalar(self.temporary_scalar()),
                    };
                    let opcode = if wide { Opcode::MatchAll64 } else { Opcode::MatchAll32 };
                    let form = Form::default().share(set::C, predicate.is_scalar());
                    let mut inst = self.inst_of(opcode, form)?;
                    (inst.a, inst.b, inst.c) = (a, members, predicate.slot());
                    let value = self.push_scalar(inst);
                    return self.finish_scalar(*dst, 4, value);
                }
                let mut inst = self.inst(if wide { Opcode::MatchAny64 } else { Opcode::MatchAny32 });
                let (place, blend) = self.target(*dst, 4)?;
                (inst.a, inst.b) = (a, members);
                self.finish(inst, false, false, place, blend)
            }
            Op::Redux { op, ty, dst, a, mask } => {
                let members = self.members(mask, false)?;
                let a = self.source(a, 4)?;
                let a = self.vector(a, false);
                let opcode = match (op, ty) {
                    (Atomic::And, _) => Opcode::ReduxAnd,
                    (Atomic::Or, _) => Opcode::ReduxOr,
                    (Atomic::Xor, _) => Opcode::ReduxXor,
                    (Atomic::Add, Ty::U32 | Ty::S32) => Opcode::ReduxAdd,
                    (Atomic::Min, Ty::U32) => Opcode::ReduxMinU32,
                    (Atomic::Max, Ty::U32) => Opcode::ReduxMaxU32,
                    (Atomic::Min, Ty::S32) => Opcode::ReduxMinS32,
                    (Atomic::Max, Ty::S32) => Opcode::ReduxMaxS32,
                    _ => return Err(format!("there is no {op:?} of {ty:?} among lanes")),
                };
                let mut inst = self.inst(opcode);
                (inst.a, inst.b) = (a, members);
                let value = self.push_scalar(inst);
                self.finish_scalar(*dst, 4, value)
            }
            _ => Err("not an operation of lanes".into()),
        }
    }

    fn shuffle(&mut self, op: &Op) -> Lowered {
        let Op::Shfl { mode, dst, valid, a, b, c, mask } = op else { return Err("not a shuffle".into()) };
        let members = self.members(mask, true)?;
        let (value, by, clamp) = (self.source(a, 4)?, self.source(b, 4)?, self.source(c, 4)?);
        let valid = &valid.filter(|valid| !self.is_dead(*valid));
        let predicate = match valid {
            Some(valid) => match self.register(*valid, 1)? {
                ValueLoc::Vector(slot) => Some(slot),
                ValueLoc::Scalar(_) => return Err("a predicate that lanes share".into()),
            },
            None => None,
        };
        let target = match dst {
            Some(dst) => Some(self.target(*dst, 4)?),
            None => None,
        };
        let value = self.vector(value, false);
        let (place, blend) = match target {
            Some((place, blend)) => (place, blend),
            None => (ValueLoc::Vector(self.temporary_vector(false)), false),
        };
        if *mode == Shuffle::Bfly && predicate.is_none() && self.constant_of(clamp) == Some(0x1f) {
            let form = self.constant_of(by).filter(|by| *by < 32).map(|by| Form::counted(by as usize));
            if let Some(mut inst) = form.and_then(|form| self.try_inst(Opcode::Butterfly, form)) {
                (inst.a, inst.b) = (value, members);
                return self.finish(inst, false, false, place, blend);
            }
        }
        let (by, clamp) = if by.is_scalar() && clamp.is_scalar() {
            (by, clamp)
        } else {
            (ValueLoc::Vector(self.vector(by, false)), ValueLoc::Vector(self.vector(clamp, false)))
        };
        let opcode = match mode {
            Shuffle::Up => Opcode::ShflUp,
            Shuffle::Down => Opcode::ShflDown,
            Shuffle::Bfly => Opcode::ShflBfly,
            Shuffle::Idx => Opcode::ShflIdx,
        };
        let form = Form::counted(1 + usize::from(predicate.is_some())).share(set::B | set::C, by.is_scalar());
        let mut inst = self.inst_of(opcode, form)?;
        (inst.a, inst.b, inst.c) = (value, by.slot(), clamp.slot());
        inst.x = self.slots(&[members, predicate.unwrap_or(Slot::NONE)]);
        self.finish(inst, false, false, place, blend)
    }

    /// Lowers one round of a reduction as one instruction: a butterfly among all lanes, the move of its
    /// result to a floating-point register, and the sum or maximum with the lane's own value. Returns whether
    /// the three PTX instructions have this form.
    pub(super) fn reduce_round(&mut self, shuffle: &Op, mov: &Op, combine: &Op) -> Lowered<bool> {
        let (
            Op::Shfl { mode: Shuffle::Bfly, dst: Some(other), valid, a, b, c, mask },
            Op::Mov { dst: moved, src: Operand::Reg(from), .. },
            Op::Binary { op: op @ (Binary::Add | Binary::Max), ty: Ty::F32, float, dst, a: x, b: y },
        ) = (shuffle, mov, combine)
        else {
            return Ok(false);
        };
        let own = if *y == Operand::Reg(*moved) { x } else { y };
        if self.is_grouped(shuffle) {
            return Ok(false);
        }
        let used = (*x == Operand::Reg(*moved)) != (*y == Operand::Reg(*moved)) && from == other;
        let alone = self.is_read_once(*other)
            && self.is_read_once(*moved)
            && valid.is_none_or(|valid| self.is_dead(valid))
            && float.round == Round::Nearest
            && !float.sat;
        let constants = [b, c].map(|operand| self.source(operand, 4).map(|place| self.constant_of(place)));
        let [Ok(Some(by)), Ok(Some(0x1f))] = constants else { return Ok(false) };
        let (ValueLoc::Vector(value), ValueLoc::Vector(own_slot), (ValueLoc::Vector(to), blend)) =
            (self.source(a, 4)?, self.source(own, 4)?, self.target(*dst, 4)?)
        else {
            return Ok(false);
        };
        if !(used && alone) {
            return Ok(false);
        }
        let dirty = self.dirty(*float, &[own, a]);
        let subnormals = Self::subnormals(*float, dirty);
        let opcode = if *op == Binary::Add { Opcode::ButterflyAdd } else { Opcode::ButterflyMax };
        if by >= 32 {
            return Ok(false);
        }
        let form = Form { subnormals, ..Form::counted(by as usize) };
        let Some(mut inst) = self.try_inst(opcode, form) else { return Ok(false) };
        let members = self.members(mask, true)?;
        (inst.a, inst.b, inst.c) = (value, members, own_slot);
        self.finish(inst, false, false, ValueLoc::Vector(to), blend)?;
        Ok(true)
    }
}
