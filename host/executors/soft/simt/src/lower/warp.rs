//! Operations that lanes of a warp do together.

use vgpu_ptx::ir::{Atomic, Binary, Op, Operand, Round, Shuffle, Ty, Vote};

use crate::machine::{Place, Slot, Step};
use crate::ops::warps::{self, ALL, ANY, BALLOT, Butterfly, UNI};
use crate::ops::{Op2, float, integer};

use super::builder::Builder;
use super::error::Lowered;

impl Builder<'_> {
    /// The slot of a member mask, as a scalar.
    fn members(&mut self, mask: &Operand) -> Lowered<Slot> {
        let place = self.source(mask, 4)?;
        Ok(self.scalar(place))
    }

    pub(super) fn warps(&mut self, op: &Op) -> Lowered {
        match op {
            Op::BarWarp { mask } => {
                let mut step = self.common::<warps::Meet>();
                step.a = self.members(mask)?;
                self.push(step);
                Ok(())
            }
            Op::Shfl { .. } => self.shuffle(op),
            Op::Vote { op, dst, p, mask } => {
                let members = self.members(mask)?;
                let (p, xor) = self.guard(*p)?;
                let place = self.register(*dst, 1)?;
                let mut step = match place {
                    Place::Scalar(_) => self.common::<warps::Vote<true>>(),
                    Place::Vector(_) => self.common::<warps::Vote<false>>(),
                };
                step.x = match op {
                    Vote::All => ALL,
                    Vote::Any => ANY,
                    Vote::Uni => UNI,
                };
                (step.a, step.b, step.d, step.y) = (p.slot(), members, place.slot(), xor);
                self.push(step);
                Ok(())
            }
            Op::Ballot { dst, p, mask } => {
                let members = self.members(mask)?;
                let (p, xor) = self.guard(*p)?;
                let mut step = self.common::<warps::Ballot>();
                (step.a, step.b, step.d, step.y) = (p.slot(), members, self.temporary_scalar(), xor);
                step.x = BALLOT;
                let value = step.d;
                self.push(step);
                self.finish_scalar(*dst, 4, value)
            }
            Op::ActiveMask { dst } => {
                let mut step = self.common::<warps::Ballot>();
                step.d = self.temporary_scalar();
                step.x = ALL;
                let value = step.d;
                self.push(step);
                self.finish_scalar(*dst, 4, value)
            }
            Op::Match { all, ty, dst, p, a, mask } => {
                let members = self.members(mask)?;
                let wide = ty.bytes() == 8;
                let a = self.source(a, ty.bytes())?;
                let a = self.vector(a, wide);
                let mut step = match (all, wide) {
                    (true, true) => self.common::<warps::Match<true, true>>(),
                    (true, false) => self.common::<warps::Match<true, false>>(),
                    (false, true) => self.common::<warps::Match<false, true>>(),
                    (false, false) => self.common::<warps::Match<false, false>>(),
                };
                if *all {
                    let predicate = match p {
                        Some(p) => self.register(*p, 1)?,
                        None => Place::Scalar(self.temporary_scalar()),
                    };
                    step.x = self.slots(&[predicate.slot()]);
                    step.y = u32::from(predicate.is_scalar());
                    (step.a, step.b, step.d) = (a, members, self.temporary_scalar());
                    let value = step.d;
                    self.push(step);
                    return self.finish_scalar(*dst, 4, value);
                }
                let (place, blend) = self.target(*dst, 4)?;
                (step.a, step.b) = (a, members);
                self.finish(step, false, false, place, blend)
            }
            Op::Redux { op, ty, dst, a, mask } => {
                let members = self.members(mask)?;
                let a = self.source(a, 4)?;
                let a = self.vector(a, false);
                let mut step = self.common::<warps::Redux>();
                step.x = match (op, ty) {
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
                (step.a, step.b, step.d) = (a, members, self.temporary_scalar());
                let value = step.d;
                self.push(step);
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
                Place::Vector(slot) => Some(slot),
                Place::Scalar(_) => return Err("a predicate that lanes share".into()),
            },
            None => None,
        };
        let target = match dst {
            Some(dst) => Some(self.target(*dst, 4)?),
            None => None,
        };
        // To shuffle a value that lanes share changes nothing.
        if let (Place::Scalar(_), Some(dst), None) = (value, dst, valid)
            && target.is_some_and(|(place, _)| place.is_scalar())
        {
            return self.op1::<integer::Mov32>(*dst, 4, value);
        }
        let value = self.vector(value, false);
        let (place, blend) = match target {
            Some((place, blend)) => (place, blend),
            None => (Place::Vector(self.temporary_vector(false)), false),
        };
        if *mode == Shuffle::Bfly && predicate.is_none() && self.constant_of(clamp) == Some(0x1f) {
            let step = match self.constant_of(by) {
                Some(1) => Some(self.step::<Butterfly<1>>()),
                Some(2) => Some(self.step::<Butterfly<2>>()),
                Some(4) => Some(self.step::<Butterfly<4>>()),
                Some(8) => Some(self.step::<Butterfly<8>>()),
                Some(16) => Some(self.step::<Butterfly<16>>()),
                _ => None,
            };
            if let Some(mut step) = step {
                (step.a, step.b) = (value, members);
                return self.finish(step, false, false, place, blend);
            }
        }
        let (by, clamp) = if by.is_scalar() && clamp.is_scalar() {
            (by, clamp)
        } else {
            (Place::Vector(self.vector(by, false)), Place::Vector(self.vector(clamp, false)))
        };
        let mut step = match mode {
            Shuffle::Up => self.shuffle_step::<{ warps::UP }>(by, clamp, predicate.is_some()),
            Shuffle::Down => self.shuffle_step::<{ warps::DOWN }>(by, clamp, predicate.is_some()),
            Shuffle::Bfly => self.shuffle_step::<{ warps::BFLY }>(by, clamp, predicate.is_some()),
            Shuffle::Idx => self.shuffle_step::<{ warps::IDX }>(by, clamp, predicate.is_some()),
        };
        (step.a, step.b, step.c) = (value, by.slot(), clamp.slot());
        step.x = self.slots(&[members, predicate.unwrap_or(Slot::NONE)]);
        self.finish(step, false, false, place, blend)
    }

    /// Lowers one round of a reduction: a butterfly among all lanes, the move of its result to a
    /// floating-point register, and the sum or maximum of that and the lane's own value. Returns whether the
    /// three instructions were that.
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
        let (Place::Vector(value), Place::Vector(own_slot), (Place::Vector(to), blend)) =
            (self.source(a, 4)?, self.source(own, 4)?, self.target(*dst, 4)?)
        else {
            return Ok(false);
        };
        if !(used && alone) {
            return Ok(false);
        }
        let dirty = self.dirty(*float, &[own, a]);
        let step = match (op, dirty, float.ftz) {
            (Binary::Add, true, _) => self.round_step::<float::Float<float::Add, true, true>>(by),
            (Binary::Add, _, true) => self.round_step::<float::Float<float::Add, false, true>>(by),
            (Binary::Add, ..) => self.round_step::<float::Float<float::Add, false, false>>(by),
            (_, _, true) => self.round_step::<float::Float<float::Max, true, true>>(by),
            (..) => self.round_step::<float::Float<float::Max, false, false>>(by),
        };
        let Some(mut step) = step else { return Ok(false) };
        let members = self.members(mask)?;
        (step.a, step.b, step.c) = (value, members, own_slot);
        self.finish(step, false, false, Place::Vector(to), blend)?;
        Ok(true)
    }

    fn round_step<O: Op2<A = f32, B = f32, R = f32>>(&self, by: u64) -> Option<Step> {
        Some(match by {
            1 => self.step::<warps::ButterflyThen<O, 1>>(),
            2 => self.step::<warps::ButterflyThen<O, 2>>(),
            4 => self.step::<warps::ButterflyThen<O, 4>>(),
            8 => self.step::<warps::ButterflyThen<O, 8>>(),
            16 => self.step::<warps::ButterflyThen<O, 16>>(),
            _ => return None,
        })
    }

    fn shuffle_step<const MODE: u8>(&self, b: Place, c: Place, valid: bool) -> Step {
        match (b.is_scalar() && c.is_scalar(), valid) {
            (true, true) => self.step::<warps::Shuffle<MODE, true, true>>(),
            (true, false) => self.step::<warps::Shuffle<MODE, true, false>>(),
            (false, true) => self.step::<warps::Shuffle<MODE, false, true>>(),
            (false, false) => self.step::<warps::Shuffle<MODE, false, false>>(),
        }
    }
}
