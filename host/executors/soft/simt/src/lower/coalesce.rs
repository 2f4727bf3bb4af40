//! Coalesces loads from adjacent device addresses into one access: of two halves that are packed to a word,
//! of two words, or of two such pairs of halves.

use vgpu_ptx::ir::{Base, Class, Inst, Mem, Op, Operand, Order, Reg, Space};

use crate::machine::{Opcode, ValueLoc};

use super::builder::Builder;
use super::error::Lowered;

/// A load of a word, or of two halves that form a word.
struct WordLoad<'a> {
    mem: &'a Mem,
    dst: Reg,
    line: u32,
}

impl Builder<'_> {
    /// Lowers two loads of adjacent words together. Returns the number of PTX instructions that they consist
    /// of, or 0 if the code has another form.
    pub(super) fn load_two(&mut self, code: &[Inst]) -> Lowered<usize> {
        if let [first, second, ..] = code
            && let (Some(first), Some(second)) = (self.word_load(first)?, self.word_load(second)?)
            && self.load_words::<false>(&first, &second)?
        {
            return Ok(2);
        }
        if let [a, b, c, d, e, f, ..] = code
            && let (Some((first, to)), Some((second, and))) =
                (self.half_pair(&a.op, &b.op, &c.op)?, self.half_pair(&d.op, &e.op, &f.op)?)
            && self.load_words::<true>(
                &WordLoad { mem: first, dst: to, line: a.line },
                &WordLoad { mem: second, dst: and, line: d.line },
            )?
        {
            return Ok(6);
        }
        Ok(0)
    }

    /// Lowers two loads of adjacent halves that are packed to a word and not read otherwise. Returns whether
    /// the three PTX instructions have this form.
    pub(super) fn load_pair(&mut self, low: &Op, high: &Op, pack: &Op) -> Lowered<bool> {
        let Some((mem, dst)) = self.half_pair(low, high, pack)? else { return Ok(false) };
        let address = self.access(mem)?;
        let (ValueLoc::Vector(base), (ValueLoc::Vector(to), blend)) = (address.base, self.target(dst, 4)?)
        else {
            return Ok(false);
        };
        let mut inst = self.inst(Opcode::LdPair);
        (inst.a, inst.imm, inst.d, inst.blend) = (base, address.offset, to, blend);
        inst.y = self.window();
        self.push(inst);
        Ok(true)
    }

    /// Returns the first load of such a pair of halves and the register of their word, or `None` if the PTX
    /// instructions have another form.
    fn half_pair<'a>(&self, low: &'a Op, high: &Op, pack: &Op) -> Lowered<Option<(&'a Mem, Reg)>> {
        let (Op::Ld { mem: first, dst: low }, Op::Ld { mem: second, dst: high }, Op::Pack { dst, src, .. }) =
            (low, high, pack)
        else {
            return Ok(None);
        };
        let ([Some(low), Some(high)], [a, b]) =
            ([low.as_slice(), high.as_slice()].map(single), src.as_slice())
        else {
            return Ok(None);
        };
        let halves =
            |mem: &Mem| mem.space == Space::Global && mem.ty.bytes() == 2 && mem.order == Order::Weak;
        let beside = first.base == second.base && second.offset == first.offset.wrapping_add(2);
        let packed = [*a, *b] == [Operand::Reg(low), Operand::Reg(high)] && low != high;
        let once = self.is_read_once(low) && self.is_read_once(high);
        let word =
            self.class(*dst)? == Class::B32 && [self.class(low)?, self.class(high)?] == [Class::B16; 2];
        let all = halves(first) && halves(second) && beside && packed && once && word;
        Ok(all.then_some((first, *dst)))
    }

    fn word_load<'a>(&self, inst: &'a Inst) -> Lowered<Option<WordLoad<'a>>> {
        let Op::Ld { mem, dst } = &inst.op else { return Ok(None) };
        let [Some(dst)] = dst.as_slice() else { return Ok(None) };
        let plain = mem.space == Space::Global && mem.ty.bytes() == 4 && mem.order == Order::Weak;
        Ok((plain && self.class(*dst)? == Class::B32).then_some(WordLoad { mem, dst: *dst, line: inst.line }))
    }

    /// Lowers two loads together if the second word follows the first in memory. Returns false otherwise.
    /// With `HALVES`, each word is a pair of halves, at an even address.
    fn load_words<const HALVES: bool>(
        &mut self,
        first: &WordLoad<'_>,
        second: &WordLoad<'_>,
    ) -> Lowered<bool> {
        let beside =
            first.mem.base == second.mem.base && second.mem.offset == first.mem.offset.wrapping_add(4);
        let apart = first.dst != second.dst && matches!(first.mem.base, Base::Reg(base) if base != first.dst);
        if !(beside && apart) {
            return Ok(false);
        }
        let (address, low, high) =
            (self.access(first.mem)?, self.target(first.dst, 4)?, self.target(second.dst, 4)?);
        let (ValueLoc::Vector(base), (ValueLoc::Vector(low), keep), (ValueLoc::Vector(high), keep_too)) =
            (address.base, low, high)
        else {
            return Ok(false);
        };
        let mut inst = self.inst(if HALVES { Opcode::LdTwoPairs } else { Opcode::LdTwo });
        (inst.a, inst.imm, inst.d, inst.c, inst.blend) = (base, address.offset, low, high, keep || keep_too);
        (inst.x, inst.y) = (second.line, self.window());
        self.push(inst);
        Ok(true)
    }
}

/// Returns the only destination of a load, or `None` if it has several or none.
fn single(dst: &[Option<Reg>]) -> Option<Reg> {
    if let [dst] = dst { *dst } else { None }
}
