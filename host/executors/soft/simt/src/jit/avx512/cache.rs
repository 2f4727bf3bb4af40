//! The vector registers as a cache of the frame, while a run of steps is assembled.
//!
//! A vector is two registers of sixteen lanes, or four of eight lanes of 64 bits. Results go to the frame
//! late: when their register is needed, at the end of the run, or where the run is left; and only if somebody
//! reads them. Floats stay as the processor made them while only arithmetic reads them; they are flushed and
//! made canonical before anybody could see the difference.
//!
//! Scalars and predicates are always in the frame, too.

use std::collections::HashMap;

use iced_x86::code_asm::{
    AsmRegisterK, AsmRegisterZmm, CodeAssembler, dword_ptr, k1, k2, k3, k6, qword_ptr, rbx,
};

use super::departure::{self, Departure, Jump, Miss};
use super::registers::{Pair, REGISTERS, ZMM, active, active_wide, index, xmm};
use super::value::{Key, Value};
use crate::jit::paths::Paths;
use crate::jit::pool::Pool;
use crate::jit::uses::Uses;
use crate::jit::value::{Emit, Kind};
use crate::machine::{Inst, Slot};

/// The canonical NaN.
const NAN: u32 = 0x7fff_ffff;
const ONE: u32 = 0x3f80_0000;

/// The registers while a run of steps is assembled.
pub(super) struct Cache<'a> {
    pub(super) asm: &'a mut CodeAssembler,
    pub(super) pool: &'a mut Pool,
    uses: &'a Uses,
    departures: &'a mut Vec<Departure>,
    paths: Paths,
    values: [Option<Value>; REGISTERS],
    /// Registers that the step being assembled uses.
    pub(super) pinned: u32,
    /// Registers with what the step has written, which nothing may push out before the step ends.
    written: u32,
    /// The step that is assembled, or the one behind it when that is done.
    pub(super) now: usize,
    /// The half of all vectors that is worked on.
    pub(super) half: usize,
    /// Halves that are worked on: 1 where the lanes of the other are inactive.
    pub(super) halves: usize,
    /// Members of whom it is known that all that have not returned are here.
    pub(super) met: Option<Slot>,
    /// How the operands of the step lie in the frame.
    pub(super) kinds: [Kind; 3],
    /// Scalars that always hold a constant.
    constants: &'a HashMap<Slot, u64>,
    /// Whether floats of this code are flushed.
    flush: bool,
}

impl<'a> Cache<'a> {
    pub(super) fn new(
        asm: &'a mut CodeAssembler,
        pool: &'a mut Pool,
        uses: &'a Uses,
        departures: &'a mut Vec<Departure>,
        constants: &'a HashMap<Slot, u64>,
        (flush, halves): (bool, usize),
    ) -> Self {
        let values = [None; REGISTERS];
        let kinds = [Kind::None; 3];
        Self {
            asm,
            pool,
            uses,
            departures,
            paths: Paths::default(),
            values,
            pinned: 0,
            written: 0,
            now: 0,
            half: 0,
            halves,
            met: None,
            kinds,
            constants,
            flush,
        }
    }

    /// What a scalar always holds, if that is a constant.
    pub(super) fn known(&self, slot: Slot) -> Option<u64> {
        self.constants.get(&slot).copied()
    }

    /// The step that next reads a value.
    fn next_read(&self, key: Key) -> Option<usize> {
        match key {
            Key::Narrow(at, _) | Key::Wide(at, _) => self.uses.next_read(at, self.now),
            Key::Offsets(place, _) => self.uses.next_of_root(place, self.now),
            Key::Scalar(at, _) | Key::Excess(at, _) => match self.uses.next(at, self.now) {
                Some((when, true)) => Some(when),
                _ => None,
            },
            Key::Ahead(step, ..) => (step >= self.now).then_some(step),
            Key::Order(_) => Some(usize::MAX - 1),
            Key::Temporary => None,
        }
    }

    /// Takes a register for the step that is assembled.
    fn take(&mut self) -> Emit<usize> {
        let unpinned = |at: &usize| self.pinned >> at & 1 == 0;
        let free = (0..REGISTERS).find(|at| self.values[*at].is_none() && unpinned(at));
        let at = if let Some(at) = free {
            at
        } else {
            let last = |at: &usize| {
                let value = self.values[*at];
                let read = value.and_then(|value| self.next_read(value.key)).unwrap_or(usize::MAX);
                // A value that the frame has costs nothing to drop.
                (read, value.is_some_and(|value| !value.dirty))
            };
            let Some(at) = (0..REGISTERS).filter(unpinned).max_by_key(last) else {
                self.pool.lacking = true;
                return Ok(0);
            };
            self.store(at)?;
            self.values[at] = None;
            at
        };
        self.paths.change(self.asm);
        self.pinned |= 1 << at;
        Ok(at)
    }

    /// A register for the step that is assembled alone.
    pub(super) fn temporary(&mut self) -> Emit<AsmRegisterZmm> {
        let at = self.take()?;
        self.values[at] = Some(Value::clean(Key::Temporary));
        Ok(ZMM[at])
    }

    /// Several such registers.
    pub(super) fn temporaries<const N: usize>(&mut self) -> Emit<[AsmRegisterZmm; N]> {
        let mut all = [ZMM[0]; N];
        for one in &mut all {
            *one = self.temporary()?;
        }
        Ok(all)
    }

    /// Frees a register that the step does not need any more.
    pub(super) fn release(&mut self, register: AsmRegisterZmm) {
        let at = index(register);
        if matches!(self.values[at], Some(Value { key: Key::Temporary, .. })) {
            self.values[at] = None;
            self.pinned &= !(1 << at);
        }
    }

    /// Lets a register that was read be taken for something else within the step.
    pub(super) fn loosen(&mut self, register: AsmRegisterZmm) {
        self.pinned &= !(1 << index(register));
    }

    /// Whether floats of this code are flushed.
    pub(super) const fn flushes(&self) -> bool {
        self.flush
    }

    /// Flushes a float and makes it canonical. Changes `k6`.
    fn finish(&mut self, at: usize) -> Emit {
        let Some(value) = &mut self.values[at] else { return Ok(()) };
        if !std::mem::take(&mut value.raw) {
            return Ok(());
        }
        self.make_canonical(at)
    }

    fn make_canonical(&mut self, at: usize) -> Emit {
        self.paths.change(self.asm);
        let register = ZMM[at];
        if self.flush {
            // Operands that are subnormal count as zero of their sign.
            let one = self.constant(ONE);
            self.asm.vmulps(register, register, one)?;
        }
        self.make_canonical_nan(register)
    }

    /// Makes NaN canonical. Changes `k6`.
    pub(super) fn make_canonical_nan(&mut self, register: AsmRegisterZmm) -> Emit {
        let nan = self.word(NAN);
        self.asm.vcmpps(k6, register, register, 3)?;
        self.asm.vpbroadcastd(register.k6(), nan)
    }

    /// Writes a value to memory if that lacks it and somebody reads it.
    fn store(&mut self, at: usize) -> Emit {
        let Some(Value { key, dirty: true, .. }) = self.values[at] else { return Ok(()) };
        if self.next_read(key).is_none() {
            return Ok(());
        }
        self.finish(at)?;
        self.paths.change(self.asm);
        if let Some(value) = &mut self.values[at] {
            value.dirty = false;
        }
        match key.place() {
            Some(place) => self.asm.vmovdqu64(place, ZMM[at]),
            None => Ok(()),
        }
    }

    pub(super) fn find(&self, key: Key) -> Option<usize> {
        self.values.iter().position(|value| value.is_some_and(|value| value.key == key))
    }

    pub(super) fn read_key(&mut self, key: Key, raw: bool) -> Emit<AsmRegisterZmm> {
        if let Some(at) = self.find(key) {
            self.pinned |= 1 << at;
            if !raw {
                self.finish(at)?;
            }
            return Ok(ZMM[at]);
        }
        let at = self.take()?;
        let to = ZMM[at];
        match key {
            Key::Order(upper) => {
                let words = self.pattern(|lane| 2 * lane + upper as u32);
                self.asm.vmovdqu64(to, words)?;
            }
            Key::Scalar(from, false) => self.asm.vpbroadcastd(to, dword_ptr(rbx + from.cast_signed()))?,
            Key::Scalar(from, true) => self.asm.vpbroadcastq(to, qword_ptr(rbx + from.cast_signed()))?,
            _ => {
                if let Some(place) = key.place() {
                    self.asm.vmovdqu64(to, place)?;
                }
            }
        }
        self.values[at] = Some(Value::clean(key));
        Ok(to)
    }

    /// Reads the half of an operand that is worked on. `raw`: floats may be neither flushed nor canonical.
    pub(super) fn read(&mut self, kind: Kind, slot: Slot, raw: bool) -> Emit<Pair> {
        let (at, half) = (slot.offset() as u32, self.half);
        Ok(match kind {
            Kind::None | Kind::Predicate => Pair::narrow(ZMM[0]),
            Kind::Vector { wide: false } => Pair::narrow(self.read_key(Key::Narrow(at, half), raw)?),
            Kind::Vector { wide: true } => Pair {
                low: self.read_key(Key::Wide(at, 2 * half), raw)?,
                high: self.read_key(Key::Wide(at, 2 * half + 1), raw)?,
            },
            Kind::Scalar { wide } => Pair::narrow(self.read_key(Key::Scalar(at, wide), raw)?),
        })
    }

    /// Reads both halves of a vector of 32-bit lanes.
    pub(super) fn read_both(&mut self, slot: Slot, raw: bool) -> Emit<[AsmRegisterZmm; 2]> {
        let at = slot.offset() as u32;
        Ok([self.read_key(Key::Narrow(at, 0), raw)?, self.read_key(Key::Narrow(at, 1), raw)?])
    }

    /// Which words of two registers are the lower halves of lanes of 64 bits, or the upper ones.
    pub(super) fn order(&mut self, upper: usize) -> Emit<AsmRegisterZmm> {
        self.read_key(Key::Order(upper), false)
    }

    /// Reads a quarter of a vector of 64-bit lanes.
    pub(super) fn read_quarter(&mut self, slot: Slot, quarter: usize) -> Emit<AsmRegisterZmm> {
        self.read_key(Key::Wide(slot.offset() as u32, quarter), false)
    }

    /// Whether a step may put its result where its third operand is, which nobody wants any more.
    pub(super) fn may_change(&self, step: &Inst, [a, b, c]: [Pair; 3]) -> bool {
        let vector = self.kinds[2] == Kind::Vector { wide: false };
        let last = step.d == step.c || self.uses.next_read(step.c.offset() as u32, self.now + 1).is_none();
        vector && last && !step.blend && c.low != a.low && c.low != b.low
    }

    /// Lets the step that is assembled change a register that it has read.
    pub(super) fn change(&mut self, pair: Pair) -> Pair {
        self.paths.change(self.asm);
        self.values[index(pair.low)] = Some(Value::clean(Key::Temporary));
        pair
    }

    /// Registers for half of a result.
    pub(super) fn result(&mut self, wide: bool) -> Emit<Pair> {
        let low = self.temporary()?;
        Ok(Pair { low, high: if wide { self.temporary()? } else { low } })
    }

    /// Makes a register hold the value of a key from now on.
    pub(super) fn bind(&mut self, register: AsmRegisterZmm, value: Value) {
        self.paths.change(self.asm);
        if let Some(old) = self.find(value.key) {
            self.values[old] = None;
        }
        self.values[index(register)] = Some(value);
    }

    fn write_key(
        &mut self,
        register: AsmRegisterZmm,
        (slot, key): (Slot, Key),
        blend: Option<AsmRegisterK>,
        raw: bool,
    ) -> Emit {
        let dirty = |raw| Value { slot, dirty: true, raw, ..Value::clean(key) };
        let Some(active) = blend else {
            self.bind(register, dirty(raw));
            self.written |= 1 << index(register);
            return Ok(());
        };
        if raw {
            self.make_canonical(index(register))?;
        }
        let old = self.read_key(key, false)?;
        let merged = match active {
            k if k == k1 => old.k1(),
            k if k == k2 => old.k2(),
            k if k == k3 => old.k3(),
            _ => old.k4(),
        };
        if matches!(key, Key::Wide(..)) {
            self.asm.vmovdqa64(merged, register)?;
        } else {
            self.asm.vmovdqa32(merged, register)?;
        }
        self.bind(old, dirty(false));
        self.written |= 1 << index(old);
        Ok(())
    }

    /// Writes the half of a vector that is worked on. `blend`: inactive lanes keep their values. `raw`: it is
    /// a float that is neither flushed nor canonical.
    pub(super) fn write(&mut self, wide: bool, slot: Slot, value: Pair, blend: bool, raw: bool) -> Emit {
        let (at, half) = (slot.offset() as u32, self.half);
        self.forget_derived(at, half);
        if !wide {
            return self.write_key(
                value.low,
                (slot, Key::Narrow(at, half)),
                blend.then_some(active(half)),
                raw,
            );
        }
        for (quarter, register) in [(2 * half, value.low), (2 * half + 1, value.high)] {
            self.write_key(
                register,
                (slot, Key::Wide(at, quarter)),
                blend.then_some(active_wide(quarter)),
                raw,
            )?;
        }
        Ok(())
    }

    /// Writes half of a vector of 32-bit lanes to the frame at once, so that the register may be taken for
    /// something else within the step.
    pub(super) fn write_through(&mut self, slot: Slot, half: usize, register: AsmRegisterZmm) -> Emit {
        let key = Key::Narrow(slot.offset() as u32, half);
        self.forget_derived(slot.offset() as u32, half);
        if let Some(place) = key.place() {
            self.asm.vmovdqu64(place, register)?;
        }
        self.bind(register, Value::clean(key));
        self.loosen(register);
        Ok(())
    }

    /// Forgets what was computed of a vector that is written.
    fn forget_derived(&mut self, at: u32, half: usize) {
        let stale = |value: &Option<Value>| match value.map(|value| value.key) {
            Some(Key::Excess(of, part)) => (of, part) == (at, half),
            _ => false,
        };
        for value in &mut self.values {
            if stale(value) {
                *value = None;
            }
        }
    }

    /// Writes a scalar, to the frame at once.
    pub(super) fn write_scalar(&mut self, wide: bool, slot: Slot, value: AsmRegisterZmm, raw: bool) -> Emit {
        let at = slot.offset() as u32;
        if raw {
            self.make_canonical(index(value))?;
        }
        let to = rbx + at.cast_signed();
        if wide {
            self.asm.vmovq(qword_ptr(to), xmm(value))?;
        } else {
            self.asm.vmovd(dword_ptr(to), xmm(value))?;
        }
        self.forget(slot);
        self.bind(value, Value::clean(Key::Scalar(at, wide)));
        Ok(())
    }

    /// Forgets a scalar that was written to the frame by other means.
    pub(super) fn forget(&mut self, slot: Slot) {
        let at = slot.offset() as u32;
        for key in [Key::Scalar(at, false), Key::Scalar(at, true)] {
            if let Some(old) = self.find(key) {
                self.values[old] = None;
            }
        }
    }

    /// Notes that all bytes of the half of a vector are below 128.
    pub(super) fn note_small(&mut self, slot: Slot) {
        if let Some(at) = self.find(Key::Narrow(slot.offset() as u32, self.half))
            && let Some(value) = &mut self.values[at]
        {
            value.small = true;
        }
    }

    /// Whether all bytes of the half of a vector are known to be below 128.
    pub(super) fn is_small(&self, slot: Slot) -> bool {
        let at = self.find(Key::Narrow(slot.offset() as u32, self.half));
        at.and_then(|at| self.values[at]).is_some_and(|value| value.small)
    }

    /// Starts a step.
    pub(super) fn begin(&mut self, at: usize) {
        self.now = at;
        (self.pinned, self.written) = (0, 0);
        self.half = 0;
        self.paths.begin(self.asm);
    }

    /// Goes on to the other half of a step, which does not need the registers of this one.
    pub(super) fn unpin(&mut self) {
        self.pinned = self.written;
        for value in &mut self.values {
            if matches!(value, Some(Value { key: Key::Temporary, .. })) {
                *value = None;
            }
        }
    }

    /// Ends a step: registers that nobody reads any more become free.
    pub(super) fn end(&mut self) {
        if !self.paths.agree(self.asm) {
            self.refuse();
        }
        (self.pinned, self.written) = (0, 0);
        self.now += 1;
        for at in 0..REGISTERS {
            if let Some(value) = self.values[at]
                && self.next_read(value.key).is_none()
            {
                self.values[at] = None;
            }
        }
    }

    /// Keeps the code from being used: a template changes registers where only some ways pass.
    fn refuse(&mut self) {
        debug_assert!(false, "step {}: ways through its code do not agree on registers", self.now);
        self.pool.lacking = true;
    }

    /// Writes what the frame still lacks, at the end of a run. Nothing is changed behind it.
    pub(super) fn flush(&mut self) -> Emit {
        (0..REGISTERS).try_for_each(|at| self.store(at))?;
        self.paths.begin(self.asm);
        Ok(())
    }

    /// Finishes all floats, before code that computes in another mode, in which they cannot be.
    pub(super) fn finish_all(&mut self) -> Emit {
        (0..REGISTERS).try_for_each(|at| self.finish(at))
    }

    /// Jumps to a departure, under the condition of the given jump.
    pub(super) fn depart(&mut self, miss: Miss, jump: Jump) -> Emit {
        if self.paths.changes() != miss.changes {
            self.refuse();
        }
        self.paths.leave();
        jump(self.asm, miss.label)
    }

    /// Where to leave to have the interpreter do the step that is assembled, as registers are here.
    pub(super) fn departure_here(&mut self) -> Miss {
        let held = |at: usize| {
            let value = self.values[at].filter(|value| value.dirty)?;
            self.next_read(value.key)?;
            value.held(at)
        };
        let here = (self.now as u32, (0..REGISTERS).filter_map(held).collect());
        let label = departure::label(self.departures, self.asm, here);
        Miss { label, changes: self.paths.changes() }
    }
}
