//! The vector registers as a cache of the frame, while the code of one superblock is assembled.
//!
//! A result is stored to the frame when its register is needed or at the end of the superblock, and only if
//! it is read later. Floats stay as the processor computed them while only arithmetic reads them; they are
//! flushed and made canonical before their bits can be observed.

use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegisterYmm, CodeAssembler, dword_ptr, qword_ptr, r12, rbx, rsi, xmm0, xmm1, xmm2,
    xmm3, xmm4, xmm5, xmm6, xmm7, xmm8, xmm9, xmm10, xmm11, xmm12, xmm13, xmm14, xmm15, ymm0, ymm1, ymm2,
    ymm3, ymm4, ymm5, ymm6, ymm7, ymm8, ymm9, ymm10, ymm11, ymm12, ymm13, ymm14, ymm15, ymmword_ptr,
};
use iced_x86::code_asm::{AsmRegisterXmm, xmmword_ptr};

use crate::jit::paths::Paths;
use crate::jit::pool::ConstantPool;
use crate::jit::uses::Uses;
use crate::jit::value::{Emit, SlotKind};
use crate::machine::{Context, Slot};

const YMM: [AsmRegisterYmm; 16] =
    [ymm0, ymm1, ymm2, ymm3, ymm4, ymm5, ymm6, ymm7, ymm8, ymm9, ymm10, ymm11, ymm12, ymm13, ymm14, ymm15];
const XMM: [AsmRegisterXmm; 16] =
    [xmm0, xmm1, xmm2, xmm3, xmm4, xmm5, xmm6, xmm7, xmm8, xmm9, xmm10, xmm11, xmm12, xmm13, xmm14, xmm15];

/// Bits of the canonical NaN.
const NAN: u32 = 0x7fff_ffff;
const ONE: u32 = 0x3f80_0000;

fn index(register: AsmRegisterYmm) -> usize {
    YMM.iter().position(|other| *other == register).unwrap_or_default()
}

/// Returns the lower half of a register.
pub(super) fn xmm(register: AsmRegisterYmm) -> AsmRegisterXmm {
    XMM[index(register)]
}

/// Registers with the lanes of a value that are processed together: eight lanes of 32 bits in `low`, or eight
/// lanes of 64 bits in both registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) low: AsmRegisterYmm,
    pub(super) high: AsmRegisterYmm,
}

/// Identity of the value that a register holds. The numbers are offsets in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ValueKey {
    /// Eight lanes of 32 bits.
    Narrow(u32),
    /// Four lanes of 64 bits. The flag selects the upper half of eight lanes.
    Wide(u32, bool),
    /// A scalar, broadcast to all lanes. The flag tells whether it has 64 bits.
    Scalar(u32, bool),
    /// The mask of a predicate: all ones in the lanes for which it is true.
    Predicate(u32),
    /// The mask of the active lanes, in lanes of 32 bits, or in lanes of 64 bits: for the lower half (false)
    /// or the upper half (true).
    Active(Option<bool>),
    /// A temporary of the current instruction, which no later instruction looks up.
    Temporary,
}

#[derive(Clone, Copy, Debug)]
struct RegisterValue {
    key: ValueKey,
    /// Whether the frame has an older value than the register.
    dirty: bool,
    /// Whether the value is a float that has been neither flushed nor made canonical.
    raw: bool,
    /// Whether all bytes of the value are known to be below 128, so that signed and unsigned products agree.
    small: bool,
}

/// Contents of the registers while the code of a superblock is assembled.
pub(super) struct Cache<'a> {
    pub(super) asm: &'a mut CodeAssembler,
    pool: &'a mut ConstantPool,
    uses: &'a Uses,
    paths: Paths,
    values: [Option<RegisterValue>; 16],
    /// Bit mask of the registers that the current instruction uses.
    pinned: u16,
    /// Index of the instruction that is being assembled, or of the next one between instructions.
    now: usize,
    /// Whether the code runs with subnormal floats flushed to zero.
    flush: bool,
}

impl<'a> Cache<'a> {
    pub(super) fn new(
        asm: &'a mut CodeAssembler,
        pool: &'a mut ConstantPool,
        uses: &'a Uses,
        flush: bool,
    ) -> Self {
        Self { asm, pool, uses, paths: Paths::default(), values: [None; 16], pinned: 0, now: 0, flush }
    }

    /// Returns an operand with a constant in all lanes of 32 bits.
    pub(super) fn constant(&mut self, value: u32) -> AsmMemoryOperand {
        self.pattern([value; 8])
    }

    /// Returns an operand with a constant in all lanes of 64 bits.
    pub(super) fn wide_constant(&mut self, value: u64) -> AsmMemoryOperand {
        let (low, high) = (value as u32, (value >> 32) as u32);
        self.pattern([low, high, low, high, low, high, low, high])
    }

    /// Returns an operand with a constant of eight words.
    pub(super) fn pattern(&mut self, pattern: [u32; 8]) -> AsmMemoryOperand {
        ymmword_ptr(self.pool.label(self.asm, &pattern))
    }

    /// Returns the memory operand of a value in the frame, if it has one.
    fn place(key: ValueKey) -> Option<AsmMemoryOperand> {
        match key {
            ValueKey::Narrow(at) => Some(ymmword_ptr(rbx + rsi + at.cast_signed())),
            ValueKey::Wide(at, upper) => {
                Some(ymmword_ptr(rbx + rsi * 2 + (at + if upper { 32 } else { 0 }).cast_signed()))
            }
            _ => None,
        }
    }

    /// Returns the index of the next instruction that reads a value, if there is one.
    fn next_read(&self, key: ValueKey) -> Option<usize> {
        match key {
            ValueKey::Narrow(at) | ValueKey::Wide(at, _) => self.uses.next_read(at, self.now),
            ValueKey::Scalar(at, _) | ValueKey::Predicate(at) => match self.uses.next(at, self.now) {
                Some((when, true)) => Some(when),
                _ => None,
            },
            ValueKey::Active(_) => Some(usize::MAX - 1),
            ValueKey::Temporary => None,
        }
    }

    /// Allocates a register to the current instruction. If none is free, evicts the value that is read
    /// furthest in the future.
    fn allocate(&mut self) -> Emit<usize> {
        let free = (0..16).find(|&at| self.values[at].is_none() && self.pinned >> at & 1 == 0);
        let at = if let Some(at) = free {
            at
        } else {
            let evictable = |at: &usize| {
                self.pinned >> at & 1 == 0
                    && !matches!(self.values[*at], Some(RegisterValue { key: ValueKey::Predicate(_), .. }))
            };
            let last = |at: &usize| {
                let value = self.values[*at];
                let read = value.and_then(|value| self.next_read(value.key)).unwrap_or(usize::MAX);
                // A value that is also in the frame need not be stored.
                (read, value.is_some_and(|value| !value.dirty))
            };
            let chosen = (0..16).filter(evictable).max_by_key(last);
            let Some(at) = chosen else {
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
    pub(super) fn temporary(&mut self) -> Emit<AsmRegisterYmm> {
        let at = self.allocate()?;
        self.values[at] =
            Some(RegisterValue { key: ValueKey::Temporary, dirty: false, raw: false, small: false });
        Ok(YMM[at])
    }

    /// Flushes a float and makes it canonical.
    fn finish(&mut self, at: usize) -> Emit {
        let Some(value) = &mut self.values[at] else { return Ok(()) };
        if !std::mem::take(&mut value.raw) {
            return Ok(());
        }
        self.paths.change(self.asm);
        self.pinned |= 1 << at;
        let register = YMM[at];
        let (one, nan) = (self.constant(ONE), self.constant(NAN));
        if self.flush {
            // Operands that are subnormal count as zero of their sign.
            self.asm.vmulps(register, register, one)?;
        }
        // Allocating a register for the mask could evict a value, which would need another mask. Another
        // register is saved to the context instead.
        let free = (0..16).find(|&other| self.values[other].is_none() && self.pinned >> other & 1 == 0);
        if let Some(free) = free {
            self.asm.vcmpunordps(YMM[free], register, register)?;
            self.asm.vblendvps(register, register, nan, YMM[free])
        } else {
            let spare = (0..16).find(|&other| other != at).unwrap_or_default();
            let saved = ymmword_ptr(r12 + Context::ELEMENTS + 96);
            self.asm.vmovdqu(saved, YMM[spare])?;
            self.asm.vcmpunordps(YMM[spare], register, register)?;
            self.asm.vblendvps(register, register, nan, YMM[spare])?;
            self.asm.vmovdqu(YMM[spare], saved)
        }
    }

    /// Stores a value to the frame if the frame has an older one and the value is read later.
    fn store(&mut self, at: usize) -> Emit {
        let Some(RegisterValue { key, dirty: true, .. }) = self.values[at] else { return Ok(()) };
        if self.next_read(key).is_none() {
            return Ok(());
        }
        let pinned = self.pinned;
        self.finish(at)?;
        self.pinned = pinned;
        self.paths.change(self.asm);
        if let Some(value) = &mut self.values[at] {
            value.dirty = false;
        }
        match Self::place(key) {
            Some(place) => self.asm.vmovdqu(place, YMM[at]),
            None => Ok(()),
        }
    }

    fn find(&self, key: ValueKey) -> Option<usize> {
        self.values.iter().position(|value| value.is_some_and(|value| value.key == key))
    }

    fn read_key(&mut self, key: ValueKey, raw: bool) -> Emit<AsmRegisterYmm> {
        if let Some(at) = self.find(key) {
            self.pinned |= 1 << at;
            if !raw {
                self.finish(at)?;
            }
            return Ok(YMM[at]);
        }
        let at = self.allocate()?;
        let to = YMM[at];
        match key {
            ValueKey::Narrow(_) | ValueKey::Wide(..) => {
                if let Some(place) = Self::place(key) {
                    self.asm.vmovdqu(to, place)?;
                }
            }
            ValueKey::Scalar(from, false) => {
                self.asm.vpbroadcastd(to, dword_ptr(rbx + from.cast_signed()))?;
            }
            ValueKey::Scalar(from, true) => self.asm.vpbroadcastq(to, qword_ptr(rbx + from.cast_signed()))?,
            ValueKey::Predicate(from) => {
                let bits = ymmword_ptr(r12 + rsi + Context::BITS);
                self.asm.vpbroadcastd(to, dword_ptr(rbx + from.cast_signed()))?;
                self.asm.vpand(to, to, bits)?;
                self.asm.vpcmpeqd(to, to, bits)?;
            }
            ValueKey::Active(None) => self.asm.vmovdqu(to, ymmword_ptr(r12 + rsi + Context::MASKS))?,
            ValueKey::Active(Some(upper)) => {
                let from = xmmword_ptr(r12 + rsi + (Context::MASKS + if upper { 16 } else { 0 }));
                self.asm.vpmovsxdq(to, from)?;
            }
            ValueKey::Temporary => {}
        }
        self.values[at] = Some(RegisterValue { key, dirty: false, raw: false, small: false });
        Ok(to)
    }

    /// Returns the registers that hold an operand. With `raw`, floats may be neither flushed nor canonical.
    pub(super) fn read(&mut self, kind: SlotKind, slot: Slot, raw: bool) -> Emit<Pair> {
        let at = slot.offset() as u32;
        let both = |register| Pair { low: register, high: register };
        Ok(match kind {
            SlotKind::None => both(ymm0),
            SlotKind::Vector { wide: false } => both(self.read_key(ValueKey::Narrow(at), raw)?),
            SlotKind::Vector { wide: true } => Pair {
                low: self.read_key(ValueKey::Wide(at, false), raw)?,
                high: self.read_key(ValueKey::Wide(at, true), raw)?,
            },
            SlotKind::Scalar { wide } => both(self.read_key(ValueKey::Scalar(at, wide), raw)?),
            SlotKind::Predicate => both(self.read_key(ValueKey::Predicate(at), raw)?),
        })
    }

    /// Allocates registers for a result.
    pub(super) fn result(&mut self, wide: bool) -> Emit<Pair> {
        let low = self.temporary()?;
        Ok(Pair { low, high: if wide { self.temporary()? } else { low } })
    }

    /// Records that a register holds the value of a key from now on.
    fn bind(&mut self, register: AsmRegisterYmm, key: ValueKey, dirty: bool, raw: bool) {
        self.paths.change(self.asm);
        if let Some(old) = self.find(key) {
            self.values[old] = None;
        }
        self.values[index(register)] = Some(RegisterValue { key, dirty, raw, small: false });
    }

    fn write_key(
        &mut self,
        register: AsmRegisterYmm,
        key: ValueKey,
        blend: Option<ValueKey>,
        raw: bool,
    ) -> Emit {
        let Some(active) = blend else {
            self.bind(register, key, true, raw);
            return Ok(());
        };
        self.bind(register, ValueKey::Temporary, false, raw);
        self.finish(index(register))?;
        let old = self.read_key(key, false)?;
        let active = self.read_key(active, false)?;
        self.asm.vblendvps(register, old, register, active)?;
        self.bind(register, key, true, false);
        Ok(())
    }

    /// Writes a vector. With `blend`, inactive lanes keep their values. `raw` tells that the value holds
    /// floats that are neither flushed nor canonical.
    pub(super) fn write(&mut self, wide: bool, slot: Slot, value: Pair, blend: bool, raw: bool) -> Emit {
        let at = slot.offset() as u32;
        if !wide {
            return self.write_key(
                value.low,
                ValueKey::Narrow(at),
                blend.then_some(ValueKey::Active(None)),
                raw,
            );
        }
        for (upper, register) in [(false, value.low), (true, value.high)] {
            let active = blend.then_some(ValueKey::Active(Some(upper)));
            self.write_key(register, ValueKey::Wide(at, upper), active, raw)?;
        }
        Ok(())
    }

    /// Writes a scalar and stores it to the frame at once.
    pub(super) fn write_scalar(&mut self, wide: bool, slot: Slot, value: AsmRegisterYmm, raw: bool) -> Emit {
        let at = slot.offset() as u32;
        self.bind(value, ValueKey::Temporary, false, raw);
        self.finish(index(value))?;
        let from = xmm(value);
        let to = rbx + at.cast_signed();
        if wide {
            self.asm.vmovq(qword_ptr(to), from)?;
        } else {
            self.asm.vmovd(dword_ptr(to), from)?;
        }
        // A register that holds the same scalar in the other width is stale.
        if let Some(other) = self.find(ValueKey::Scalar(at, !wide)) {
            self.values[other] = None;
        }
        if let Some(other) = self.find(ValueKey::Predicate(at)) {
            self.values[other] = None;
        }
        self.bind(value, ValueKey::Scalar(at, wide), false, false);
        Ok(())
    }

    /// Caches the mask of a predicate for later instructions of the superblock.
    pub(super) fn cache_predicate(&mut self, slot: Slot, value: AsmRegisterYmm) {
        let at = slot.offset() as u32;
        if let Some(other) = self.find(ValueKey::Scalar(at, false)) {
            self.values[other] = None;
        }
        self.bind(value, ValueKey::Predicate(at), false, false);
    }

    /// Records that all bytes of a vector are below 128.
    pub(super) fn note_small(&mut self, slot: Slot) {
        if let Some(at) = self.find(ValueKey::Narrow(slot.offset() as u32))
            && let Some(value) = &mut self.values[at]
        {
            value.small = true;
        }
    }

    /// Returns whether all bytes of a vector are known to be below 128.
    pub(super) fn is_small(&self, slot: Slot) -> bool {
        let at = self.find(ValueKey::Narrow(slot.offset() as u32));
        at.and_then(|at| self.values[at]).is_some_and(|value| value.small)
    }

    /// Drops a scalar from the cache after other code has written it to the frame.
    pub(super) fn forget(&mut self, slot: Slot) {
        let at = slot.offset() as u32;
        for key in [ValueKey::Scalar(at, false), ValueKey::Scalar(at, true), ValueKey::Predicate(at)] {
            if let Some(old) = self.find(key) {
                self.values[old] = None;
            }
        }
    }

    /// Begins the instruction with this index.
    pub(super) fn begin(&mut self, at: usize) {
        self.now = at;
        self.pinned = 0;
        self.paths.begin(self.asm);
    }

    /// Ends the current instruction and frees the registers whose values are not read again.
    pub(super) fn end(&mut self) {
        if !self.paths.agree(self.asm) {
            debug_assert!(false, "step {}: ways through its code do not agree on registers", self.now);
            self.pool.lacking = true;
        }
        self.pinned = 0;
        self.now += 1;
        for at in 0..16 {
            if let Some(value) = self.values[at]
                && self.next_read(value.key).is_none()
            {
                self.values[at] = None;
            }
        }
    }

    /// Stores all values that the frame does not have yet, at the end of a superblock.
    pub(super) fn flush(&mut self) -> Emit {
        for at in 0..16 {
            self.store(at)?;
        }
        Ok(())
    }
}
