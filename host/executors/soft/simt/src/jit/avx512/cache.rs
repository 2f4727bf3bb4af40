//! The vector registers as a cache of the frame, while the code of one superblock is assembled.
//!
//! A vector occupies two registers of sixteen lanes, or four registers of eight lanes of 64 bits. A result is
//! stored to the frame when its register is needed, at the end of the superblock, or at a side exit, and only
//! if it is read later. Floats stay as the processor computed them while only arithmetic reads them; they are
//! flushed and made canonical before their bits can be observed.
//!
//! Scalars and predicates are always in the frame too.

use std::collections::HashMap;

use iced_x86::code_asm::{
    AsmRegisterK, AsmRegisterZmm, CodeAssembler, dword_ptr, k1, k2, k3, k6, qword_ptr, rbx,
};

use super::exit_site::{self, ExitSite, Jump, Miss};
use super::registers::{Pair, REGISTERS, ZMM, active, active_wide, index, xmm};
use super::value::{RegisterValue, ValueKey};
use crate::jit::paths::Paths;
use crate::jit::pool::ConstantPool;
use crate::jit::uses::Uses;
use crate::jit::value::{Emit, SlotKind};
use crate::machine::{Inst, Slot};

/// Bits of the canonical NaN.
const NAN: u32 = 0x7fff_ffff;
const ONE: u32 = 0x3f80_0000;

/// Contents of the registers while the code of a superblock is assembled.
pub(super) struct Cache<'a> {
    pub(super) asm: &'a mut CodeAssembler,
    pub(super) pool: &'a mut ConstantPool,
    uses: &'a Uses,
    exit_sites: &'a mut Vec<ExitSite>,
    paths: Paths,
    values: [Option<RegisterValue>; REGISTERS],
    /// Bit mask of the registers that the current instruction uses.
    pub(super) pinned: u32,
    /// Bit mask of the registers with results of the current instruction, which stay until it ends.
    written: u32,
    /// Index of the instruction that is being assembled, or of the next one between instructions.
    pub(super) now: usize,
    /// Half of all vectors that is being processed, 0 or 1.
    pub(super) half: usize,
    /// Number of halves to process: 1 if all lanes of the other half are inactive.
    pub(super) halves: usize,
    /// Slot of the member mask that was already verified in this superblock.
    pub(super) met: Option<Slot>,
    /// Location and width of the current instruction's operands in the frame.
    pub(super) kinds: [SlotKind; 3],
    /// Values of the scalars that are constant throughout the program.
    constants: &'a HashMap<Slot, u64>,
    /// Whether the code runs with subnormal floats flushed to zero.
    flush: bool,
}

impl<'a> Cache<'a> {
    pub(super) fn new(
        asm: &'a mut CodeAssembler,
        pool: &'a mut ConstantPool,
        uses: &'a Uses,
        exit_sites: &'a mut Vec<ExitSite>,
        constants: &'a HashMap<Slot, u64>,
        (flush, halves): (bool, usize),
    ) -> Self {
        let values = [None; REGISTERS];
        let kinds = [SlotKind::None; 3];
        Self {
            asm,
            pool,
            uses,
            exit_sites,
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

    /// Returns the value of a scalar that is constant throughout the program.
    pub(super) fn known(&self, slot: Slot) -> Option<u64> {
        self.constants.get(&slot).copied()
    }

    /// Returns the index of the next instruction that reads a value, if there is one.
    fn next_read(&self, key: ValueKey) -> Option<usize> {
        match key {
            ValueKey::Narrow(at, _) | ValueKey::Wide(at, _) => self.uses.next_read(at, self.now),
            ValueKey::Offsets(place, _) => self.uses.next_of_root(place, self.now),
            ValueKey::Scalar(at, _) | ValueKey::Dp4aBias(at, _) => match self.uses.next(at, self.now) {
                Some((when, true)) => Some(when),
                _ => None,
            },
            ValueKey::Preloaded(step, ..) => (step >= self.now).then_some(step),
            ValueKey::Order(_) => Some(usize::MAX - 1),
            ValueKey::Temporary => None,
        }
    }

    /// Allocates a register to the current instruction. If none is free, evicts the value that is read last.
    fn allocate(&mut self) -> Emit<usize> {
        let unpinned = |at: &usize| self.pinned >> at & 1 == 0;
        let free = (0..REGISTERS).find(|at| self.values[*at].is_none() && unpinned(at));
        let at = if let Some(at) = free {
            at
        } else {
            let last = |at: &usize| {
                let value = self.values[*at];
                let read = value.and_then(|value| self.next_read(value.key)).unwrap_or(usize::MAX);
                // A value that is also in the frame need not be stored.
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

    /// Allocates a register whose contents are not kept after the current instruction.
    pub(super) fn temporary(&mut self) -> Emit<AsmRegisterZmm> {
        let at = self.allocate()?;
        self.values[at] = Some(RegisterValue::clean(ValueKey::Temporary));
        Ok(ZMM[at])
    }

    pub(super) fn temporaries<const N: usize>(&mut self) -> Emit<[AsmRegisterZmm; N]> {
        let mut all = [ZMM[0]; N];
        for one in &mut all {
            *one = self.temporary()?;
        }
        Ok(all)
    }

    /// Frees a temporary register before the end of the instruction.
    pub(super) fn release(&mut self, register: AsmRegisterZmm) {
        let at = index(register);
        if matches!(self.values[at], Some(RegisterValue { key: ValueKey::Temporary, .. })) {
            self.values[at] = None;
            self.pinned &= !(1 << at);
        }
    }

    /// Allows the current instruction to reuse a register that it has already read.
    pub(super) fn loosen(&mut self, register: AsmRegisterZmm) {
        self.pinned &= !(1 << index(register));
    }

    pub(super) const fn flushes(&self) -> bool {
        self.flush
    }

    /// Flushes a float and makes it canonical. Overwrites `k6`.
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

    /// Replaces every NaN in a register by the canonical one. Overwrites `k6`.
    pub(super) fn make_canonical_nan(&mut self, register: AsmRegisterZmm) -> Emit {
        let nan = self.word(NAN);
        self.asm.vcmpps(k6, register, register, 3)?;
        self.asm.vpbroadcastd(register.k6(), nan)
    }

    /// Stores a value to memory if memory has an older one and the value is read later.
    fn store(&mut self, at: usize) -> Emit {
        let Some(RegisterValue { key, dirty: true, .. }) = self.values[at] else { return Ok(()) };
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

    pub(super) fn find(&self, key: ValueKey) -> Option<usize> {
        self.values.iter().position(|value| value.is_some_and(|value| value.key == key))
    }

    pub(super) fn read_key(&mut self, key: ValueKey, raw: bool) -> Emit<AsmRegisterZmm> {
        if let Some(at) = self.find(key) {
            self.pinned |= 1 << at;
            if !raw {
                self.finish(at)?;
            }
            return Ok(ZMM[at]);
        }
        let at = self.allocate()?;
        let to = ZMM[at];
        match key {
            ValueKey::Order(upper) => {
                let words = self.pattern(|lane| 2 * lane + upper as u32);
                self.asm.vmovdqu64(to, words)?;
            }
            ValueKey::Scalar(from, false) => {
                self.asm.vpbroadcastd(to, dword_ptr(rbx + from.cast_signed()))?;
            }
            ValueKey::Scalar(from, true) => self.asm.vpbroadcastq(to, qword_ptr(rbx + from.cast_signed()))?,
            _ => {
                if let Some(place) = key.place() {
                    self.asm.vmovdqu64(to, place)?;
                }
            }
        }
        self.values[at] = Some(RegisterValue::clean(key));
        Ok(to)
    }

    /// Returns the registers that hold the current half of an operand. With `raw`, floats may be neither
    /// flushed nor canonical.
    pub(super) fn read(&mut self, kind: SlotKind, slot: Slot, raw: bool) -> Emit<Pair> {
        let (at, half) = (slot.offset() as u32, self.half);
        Ok(match kind {
            SlotKind::None | SlotKind::Predicate => Pair::narrow(ZMM[0]),
            SlotKind::Vector { wide: false } => Pair::narrow(self.read_key(ValueKey::Narrow(at, half), raw)?),
            SlotKind::Vector { wide: true } => Pair {
                low: self.read_key(ValueKey::Wide(at, 2 * half), raw)?,
                high: self.read_key(ValueKey::Wide(at, 2 * half + 1), raw)?,
            },
            SlotKind::Scalar { wide } => Pair::narrow(self.read_key(ValueKey::Scalar(at, wide), raw)?),
        })
    }

    /// Returns the registers that hold both halves of a vector of 32-bit lanes.
    pub(super) fn read_both(&mut self, slot: Slot, raw: bool) -> Emit<[AsmRegisterZmm; 2]> {
        let at = slot.offset() as u32;
        Ok([self.read_key(ValueKey::Narrow(at, 0), raw)?, self.read_key(ValueKey::Narrow(at, 1), raw)?])
    }

    /// Returns a register with the indices of the lower words of sixteen 64-bit lanes in two registers, or of
    /// the upper words.
    pub(super) fn order(&mut self, upper: usize) -> Emit<AsmRegisterZmm> {
        self.read_key(ValueKey::Order(upper), false)
    }

    pub(super) fn read_quarter(&mut self, slot: Slot, quarter: usize) -> Emit<AsmRegisterZmm> {
        self.read_key(ValueKey::Wide(slot.offset() as u32, quarter), false)
    }

    /// Returns whether nothing reads an instruction's third operand later, so that it may be overwritten.
    pub(super) fn may_change(&self, step: &Inst, [a, b, c]: [Pair; 3]) -> bool {
        let vector = self.kinds[2] == SlotKind::Vector { wide: false };
        let last = step.d == step.c || self.uses.next_read(step.c.offset() as u32, self.now + 1).is_none();
        vector && last && !step.blend && c.low != a.low && c.low != b.low
    }

    /// Allows the current instruction to overwrite a register that it has read.
    pub(super) fn change(&mut self, pair: Pair) -> Pair {
        self.paths.change(self.asm);
        self.values[index(pair.low)] = Some(RegisterValue::clean(ValueKey::Temporary));
        pair
    }

    pub(super) fn result(&mut self, wide: bool) -> Emit<Pair> {
        let low = self.temporary()?;
        Ok(Pair { low, high: if wide { self.temporary()? } else { low } })
    }

    /// Records that a register holds a value from now on.
    pub(super) fn bind(&mut self, register: AsmRegisterZmm, value: RegisterValue) {
        self.paths.change(self.asm);
        if let Some(old) = self.find(value.key) {
            self.values[old] = None;
        }
        self.values[index(register)] = Some(value);
    }

    fn write_key(
        &mut self,
        register: AsmRegisterZmm,
        (slot, key): (Slot, ValueKey),
        blend: Option<AsmRegisterK>,
        raw: bool,
    ) -> Emit {
        let dirty = |raw| RegisterValue { slot, dirty: true, raw, ..RegisterValue::clean(key) };
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
        if matches!(key, ValueKey::Wide(..)) {
            self.asm.vmovdqa64(merged, register)?;
        } else {
            self.asm.vmovdqa32(merged, register)?;
        }
        self.bind(old, dirty(false));
        self.written |= 1 << index(old);
        Ok(())
    }

    /// Writes the current half of a vector. With `blend`, inactive lanes keep their values. `raw` tells that
    /// the value holds floats that are neither flushed nor canonical.
    pub(super) fn write(&mut self, wide: bool, slot: Slot, value: Pair, blend: bool, raw: bool) -> Emit {
        let (at, half) = (slot.offset() as u32, self.half);
        self.forget_derived(at, half);
        if !wide {
            return self.write_key(
                value.low,
                (slot, ValueKey::Narrow(at, half)),
                blend.then_some(active(half)),
                raw,
            );
        }
        for (quarter, register) in [(2 * half, value.low), (2 * half + 1, value.high)] {
            self.write_key(
                register,
                (slot, ValueKey::Wide(at, quarter)),
                blend.then_some(active_wide(quarter)),
                raw,
            )?;
        }
        Ok(())
    }

    /// Writes half of a vector of 32-bit lanes and stores it to the frame at once, so that the instruction
    /// can reuse the register.
    pub(super) fn write_through(&mut self, slot: Slot, half: usize, register: AsmRegisterZmm) -> Emit {
        let key = ValueKey::Narrow(slot.offset() as u32, half);
        self.forget_derived(slot.offset() as u32, half);
        if let Some(place) = key.place() {
            self.asm.vmovdqu64(place, register)?;
        }
        self.bind(register, RegisterValue::clean(key));
        self.loosen(register);
        Ok(())
    }

    /// Drops values that were derived from a vector which is being written.
    fn forget_derived(&mut self, at: u32, half: usize) {
        let stale = |value: &Option<RegisterValue>| match value.map(|value| value.key) {
            Some(ValueKey::Dp4aBias(of, part)) => (of, part) == (at, half),
            _ => false,
        };
        for value in &mut self.values {
            if stale(value) {
                *value = None;
            }
        }
    }

    /// Writes a scalar and stores it to the frame at once.
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
        self.bind(value, RegisterValue::clean(ValueKey::Scalar(at, wide)));
        Ok(())
    }

    /// Drops a scalar from the cache after other code has written it to the frame.
    pub(super) fn forget(&mut self, slot: Slot) {
        let at = slot.offset() as u32;
        for key in [ValueKey::Scalar(at, false), ValueKey::Scalar(at, true)] {
            if let Some(old) = self.find(key) {
                self.values[old] = None;
            }
        }
    }

    /// Records that all bytes of the current half of a vector are below 128.
    pub(super) fn note_small(&mut self, slot: Slot) {
        if let Some(at) = self.find(ValueKey::Narrow(slot.offset() as u32, self.half))
            && let Some(value) = &mut self.values[at]
        {
            value.small = true;
        }
    }

    pub(super) fn is_small(&self, slot: Slot) -> bool {
        let at = self.find(ValueKey::Narrow(slot.offset() as u32, self.half));
        at.and_then(|at| self.values[at]).is_some_and(|value| value.small)
    }

    pub(super) fn begin(&mut self, at: usize) {
        self.now = at;
        (self.pinned, self.written) = (0, 0);
        self.half = 0;
        self.paths.begin(self.asm);
    }

    /// Continues with the other half of the instruction, and frees the registers that only the first half
    /// used.
    pub(super) fn unpin(&mut self) {
        self.pinned = self.written;
        for value in &mut self.values {
            if matches!(value, Some(RegisterValue { key: ValueKey::Temporary, .. })) {
                *value = None;
            }
        }
    }

    /// Ends the current instruction and frees the registers whose values are not read again.
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

    /// Rejects all code of the program, because a template changes registers on some of its paths only.
    fn refuse(&mut self) {
        debug_assert!(false, "step {}: ways through its code do not agree on registers", self.now);
        self.pool.lacking = true;
    }

    /// Stores all values that the frame lacks, at the end of a superblock. No register may change after this.
    pub(super) fn flush(&mut self) -> Emit {
        (0..REGISTERS).try_for_each(|at| self.store(at))?;
        self.paths.begin(self.asm);
        Ok(())
    }

    /// Flushes all floats and makes them canonical, before code that runs in another floating-point mode.
    pub(super) fn finish_all(&mut self) -> Emit {
        (0..REGISTERS).try_for_each(|at| self.finish(at))
    }

    /// Emits a conditional jump to a side exit.
    pub(super) fn exit_if(&mut self, miss: Miss, jump: Jump) -> Emit {
        if self.paths.changes() != miss.changes {
            self.refuse();
        }
        self.paths.leave();
        jump(self.asm, miss.label)
    }

    /// Returns a side exit at which the interpreter executes the current instruction. It is valid while the
    /// registers hold the same values.
    pub(super) fn side_exit_here(&mut self) -> Miss {
        let live_value = |at: usize| {
            let value = self.values[at].filter(|value| value.dirty)?;
            self.next_read(value.key)?;
            value.live_value(at)
        };
        let here = (self.now as u32, (0..REGISTERS).filter_map(live_value).collect());
        let label = exit_site::label(self.exit_sites, self.asm, here);
        Miss { label, changes: self.paths.changes() }
    }
}
