//! Lowers operations that the lanes of a warp execute together: shuffles, votes, matches and reductions.

use vgpu_ptx::ir::{Atomic, Binary, Op, Operand, Round, Shuffle, Ty, Vote};

use crate::machine::{Inst, Slot, ValueLoc};
use crate::ops::warps::{self, ALL, ANY, BALLOT, Butterfly, UNI};
use crate::ops::{Op2, float, integer};

use super::builder::Builder;
use super::error::Lowered;

impl Builder<'_> {
    /// Returns the slot of a member mask as a scalar.
    fn members(&mut self, mask: &Operand) -> Lowered<Slot> {
        let place = self.source(mask, 4)?;
        Ok(self.scalar(place))
    }

    pub(super) fn warps(&mut self, op: &Op) -> Lowered {
        match op {
            Op::BarWarp { mask } => {
                let mut inst = self.baseline_inst::<warps::SyncWarp>();
                inst.a = self.members(mask)?;
                self.push(inst);
                Ok(())
            }
            Op::Shfl { .. } => self.shuffle(op),
            Op::Vote { op, dst, p, mask } => {
                let members = self.members(mask)?;
                let (p, xor) = self.guard(*p)?;
                let place = self.register(*dst, 1)?;
                let mut inst = match place {
                    ValueLoc::Scalar(_) => self.baseline_inst::<warps::Vote<true>>(),
                    ValueLoc::Vector(_) => self.baseline_inst::<warps::Vote<false>>(),
                };
                inst.x = match op {
                    Vote::All => ALL,
                    Vote::Any => ANY,
                    Vote::Uni => UNI,
                };
                (inst.a, inst.b, inst.d, inst.y) = (p.slot(), members, place.slot(), xor);
                self.push(inst);
                Ok(())
            }
            Op::Ballot { dst, p, mask } => {
                let members = self.members(mask)?;
                let (p, xor) = self.guard(*p)?;
                let mut inst = self.baseline_inst::<warps::Ballot>();
                (inst.a, inst.b, inst.x, inst.y) = (p.slot(), members, BALLOT, xor);
                let value = self.push_scalar(inst);
                self.finish_scalar(*dst, 4, value)
            }
            Op::ActiveMask { dst } => {
                let mut inst = self.baseline_inst::<warps::Ballot>();
                inst.x = ALL;
                let value = self.push_scalar(inst);
                self.finish_scalar(*dst, 4, value)
            }
            Op::Match { all, ty, dst, p, a, mask } => {
                let members = self.members(mask)?;
                let wide = ty.bytes() == 8;
                let a = self.source(a, ty.bytes())?;
                let a = self.vector(a, wide);
                let mut inst = match (all, wide) {
                    (true, true) => self.baseline_inst::<warps::Match<true, true>>(),
                    (true, false) => self.baseline_inst::<warps::Match<true, false>>(),
                    (false, true) => self.baseline_inst::<warps::Match<false, true>>(),
                    (false, false) => self.baseline_inst::<warps::Match<false, false>>(),
                };
                if *all {
                    let predicate = match p {
                        Some(p) => self.register(*p, 1)?,
                        None => ValueLoc::Scalar(self.temporary_scalar()),
                    };
                    inst.x = self.slots(&[predicate.slot()]);
                    inst.y = u32::from(predicate.is_scalar());
                    (inst.a, inst.b) = (a, members);
                    let value = self.push_scalar(inst);
                    return self.finish_scalar(*dst, 4, value);
                }
                let (place, blend) = self.target(*dst, 4)?;
                (inst.a, inst.b) = (a, members);
                self.finish(inst, false, false, place, blend)
            }
            Op::Redux { op, ty, dst, a, mask } => {
                let members = self.members(mask)?;
                let a = self.source(a, 4)?;
                let a = self.vector(a, false);
                let mut inst = self.baseline_inst::<warps::Redux>();
                inst.x = match (op, ty) {
                    (Atomic::And, _) => 0,
                    (Atomic::Or, _) => 1,
                    (Atomic::Xor, _) => 2,
                    (Atomic::Add, Ty::U32 | Ty::S32) => 3,
                    (Atomic::Min, Ty::U32) => 4,
                    (Atomic::Max, Ty::U32) => 5,
                    (Atomic::Min, Ty::S32) => 6,
                    (Atomic::Max, Ty::S32) => 7,
                    _ => return Err(format!("there is no {op:?} of {ty:?} among lanes")),
                };
                (inst.a, inst.b) = (a, members);
                let value = self.push_scalar(inst);
                self.finish_scalar(*dst, 4, value)
            }
            _ => Err("not an operation of lanes".into()),
        }
    }

    fn shuffle(&mut self, op: &Op) -> Lowered {
        let Op::Shfl { mode, dst, valid, a, b, c, mask } = op else { return Err("not a shuffle".into()) };
        let members = self.members(mask)?;
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
        // A shuffle of a value that all lanes share is a move.
        if let (ValueLoc::Scalar(_), Some(dst), None) = (value, dst, valid)
            && target.is_some_and(|(place, _)| place.is_scalar())
        {
            return self.op1::<integer::Mov32>(*dst, 4, value);
        }
        let value = self.vector(value, false);
        let (place, blend) = match target {
            Some((place, blend)) => (place, blend),
            None => (ValueLoc::Vector(self.temporary_vector(false)), false),
        };
        if *mode == Shuffle::Bfly && predicate.is_none() && self.constant_of(clamp) == Some(0x1f) {
            let inst = match self.constant_of(by) {
                Some(1) => Some(self.inst::<Butterfly<1>>()),
                Some(2) => Some(self.inst::<Butterfly<2>>()),
                Some(4) => Some(self.inst::<Butterfly<4>>()),
                Some(8) => Some(self.inst::<Butterfly<8>>()),
                Some(16) => Some(self.inst::<Butterfly<16>>()),
                _ => None,
            };
            if let Some(mut inst) = inst {
                (inst.a, inst.b) = (value, members);
                return self.finish(inst, false, false, place, blend);
            }
        }
        let (by, clamp) = if by.is_scalar() && clamp.is_scalar() {
            (by, clamp)
        } else {
            (ValueLoc::Vector(self.vector(by, false)), ValueLoc::Vector(self.vector(clamp, false)))
        };
        let mut inst = match mode {
            Shuffle::Up => self.shuffle_step::<{ warps::UP }>(by, clamp, predicate.is_some()),
            Shuffle::Down => self.shuffle_step::<{ warps::DOWN }>(by, clamp, predicate.is_some()),
            Shuffle::Bfly => self.shuffle_step::<{ warps::BFLY }>(by, clamp, predicate.is_some()),
            Shuffle::Idx => self.shuffle_step::<{ warps::IDX }>(by, clamp, predicate.is_some()),
        };
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
        let inst = match (op, dirty, float.ftz) {
            (Binary::Add, true, _) => self.round_step::<float::Float<float::Add, true, true>>(by),
            (Binary::Add, _, true) => self.round_step::<float::Float<float::Add, false, true>>(by),
            (Binary::Add, ..) => self.round_step::<float::Float<float::Add, false, false>>(by),
            (_, _, true) => self.round_step::<float::Float<float::Max, true, true>>(by),
            (..) => self.round_step::<float::Float<float::Max, false, false>>(by),
        };
        let Some(mut inst) = inst else { return Ok(false) };
        let members = self.members(mask)?;
        (inst.a, inst.b, inst.c) = (value, members, own_slot);
        self.finish(inst, false, false, ValueLoc::Vector(to), blend)?;
        Ok(true)
    }

    fn round_step<O: Op2<A = f32, B = f32, R = f32>>(&self, by: u64) -> Option<Inst> {
        Some(match by {
            1 => self.inst::<warps::ButterflyThen<O, 1>>(),
            2 => self.inst::<warps::ButterflyThen<O, 2>>(),
            4 => self.inst::<warps::ButterflyThen<O, 4>>(),
            8 => self.inst::<warps::ButterflyThen<O, 8>>(),
            16 => self.inst::<warps::ButterflyThen<O, 16>>(),
            _ => return None,
        })
    }

    fn shuffle_step<const MODE: u8>(&self, b: ValueLoc, c: ValueLoc, valid: bool) -> Inst {
        match (b.is_scalar() && c.is_scalar(), valid) {
            (true, true) => self.inst::<warps::Shuffle<MODE, true, true>>(),
            (true, false) => self.inst::<warps::Shuffle<MODE, true, false>>(),
            (false, true) => self.inst::<warps::Shuffle<MODE, false, true>>(),
            (false, false) => self.inst::<warps::Shuffle<MODE, false, false>>(),
        }
    }
}
