//! Loads of neighbours in device memory: two words, or two pairs of halves, are one access.

use vgpu_ptx::ir::{Base, Class, Inst, Mem, Op, Order, Reg, Space};

use crate::ops::Place;
use crate::ops::memory::LoadTwo;

use super::builder::{Builder, Lowered};

/// A load of a word, or of two halves that make one.
struct Word<'a> {
    mem: &'a Mem,
    dst: Reg,
    line: u32,
}

impl Builder<'_> {
    /// Lowers two loads of neighbouring words. How many instructions they were, or none.
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
                &Word { mem: first, dst: to, line: a.line },
                &Word { mem: second, dst: and, line: d.line },
            )?
        {
            return Ok(6);
        }
        Ok(0)
    }

    fn word_load<'a>(&self, inst: &'a Inst) -> Lowered<Option<Word<'a>>> {
        let Op::Ld { mem, dst } = &inst.op else { return Ok(None) };
        let [Some(dst)] = dst.as_slice() else { return Ok(None) };
        let plain = mem.space == Space::Global && mem.ty.bytes() == 4 && mem.order == Order::Weak;
        Ok((plain && self.class(*dst)? == Class::B32).then_some(Word { mem, dst: *dst, line: inst.line }))
    }

    /// Whether the second is behind the first, and they are lowered.
    fn load_words<const HALVES: bool>(&mut self, first: &Word<'_>, second: &Word<'_>) -> Lowered<bool> {
        let beside =
            first.mem.base == second.mem.base && second.mem.offset == first.mem.offset.wrapping_add(4);
        let apart = first.dst != second.dst && matches!(first.mem.base, Base::Reg(base) if base != first.dst);
        if !(beside && apart) {
            return Ok(false);
        }
        let (address, low, high) =
            (self.access(first.mem)?, self.target(first.dst, 4)?, self.target(second.dst, 4)?);
        let (Place::Vector(base), (Place::Vector(low), keep), (Place::Vector(high), keep_too)) =
            (address.base, low, high)
        else {
            return Ok(false);
        };
        let mut step = self.step::<LoadTwo<HALVES>>();
        (step.a, step.imm, step.d, step.c, step.blend) = (base, address.offset, low, high, keep || keep_too);
        (step.x, step.y) = (second.line, self.window());
        self.push(step);
        Ok(true)
    }
}
