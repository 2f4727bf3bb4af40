//! The registers of the processor as a cache of the frame: which values they hold while eight lanes go
//! through a piece of code, or while scalars are computed.
//!
//! Results go to the frame late: when their register is needed, or at the end, and only if somebody reads
//! them. Floats stay as the processor made them while only arithmetic reads them; they are flushed and made
//! canonical before anybody could see the difference.

use iced_x86::code_asm::{
    AsmMemoryOperand, AsmRegisterYmm, CodeAssembler, dword_ptr, qword_ptr, r12, rbx, rsi, xmm0, xmm1, xmm2,
    xmm3, xmm4, xmm5, xmm6, xmm7, xmm8, xmm9, xmm10, xmm11, xmm12, xmm13, xmm14, xmm15, ymm0, ymm1, ymm2,
    ymm3, ymm4, ymm5, ymm6, ymm7, ymm8, ymm9, ymm10, ymm11, ymm12, ymm13, ymm14, ymm15, ymmword_ptr,
};
use iced_x86::code_asm::{AsmRegisterXmm, xmmword_ptr};

use crate::jit::paths::Paths;
use crate::jit::pool::Pool;
use crate::jit::uses::Uses;
use crate::jit::value::{Emit, Kind};
use crate::machine::{Context, Slot};

const YMM: [AsmRegisterYmm; 16] =
    [ymm0, ymm1, ymm2, ymm3, ymm4, ymm5, ymm6, ymm7, ymm8, ymm9, ymm10, ymm11, ymm12, ymm13, ymm14, ymm15];
const XMM: [AsmRegisterXmm; 16] =
    [xmm0, xmm1, xmm2, xmm3, xmm4, xmm5, xmm6, xmm7, xmm8, xmm9, xmm10, xmm11, xmm12, xmm13, xmm14, xmm15];

/// The canonical NaN.
const NAN: u32 = 0x7fff_ffff;
const ONE: u32 = 0x3f80_0000;

fn index(register: AsmRegisterYmm) -> usize {
    YMM.iter().position(|other| *other == register).unwrap_or_default()
}

/// The lower half of a register.
pub(super) fn xmm(register: AsmRegisterYmm) -> AsmRegisterXmm {
    XMM[index(register)]
}

/// The lanes of a value that machine code works on at a time: eight of 32 bits in `low`, or eight of 64 bits
/// in both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) low: AsmRegisterYmm,
    pub(super) high: AsmRegisterYmm,
}

/// What a register holds. Numbers are offsets in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// Eight lanes of 32 bits.
    Narrow(u32),
    /// Four lanes of 64 bits: the lower or the upper of eight.
    Wide(u32, bool),
    /// A scalar in all lanes.
    Scalar(u32, bool),
    /// Masks of the lanes of a predicate.
    Predicate(u32),
    /// Masks of the active lanes, of 32 or 64 bits.
    Active(Option<bool>),
    /// Nothing that can be found again.
    Temporary,
}

#[derive(Clone, Copy, Debug)]
struct Value {
    key: Key,
    /// Whether the frame lacks it.
    dirty: bool,
    /// Whether it is a float that is neither flushed nor canonical yet.
    raw: bool,
    /// Whether all bytes are known to be below 128.
    small: bool,
}

/// The registers while a piece of code is assembled.
pub(super) struct Cache<'a> {
    pub(super) asm: &'a mut CodeAssembler,
    pool: &'a mut Pool,
    uses: &'a Uses,
    paths: Paths,
    values: [Option<Value>; 16],
    /// Registers that the step being assembled uses.
    pinned: u16,
    /// The step that is assembled, or the one behind it when that is done.
    now: usize,
    /// Whether floats of this code are flushed.
    flush: bool,
}

impl<'a> Cache<'a> {
    pub(super) fn new(asm: &'a mut CodeAssembler, pool: &'a mut Pool, uses: &'a Uses, flush: bool) -> Self {
        Self { asm, pool, uses, paths: Paths::default(), values: [None; 16], pinned: 0, now: 0, flush }
    }

    /// A constant in all lanes of 32 bits, as an operand.
    pub(super) fn constant(&mut self, value: u32) -> AsmMemoryOperand {
        self.pattern([value; 8])
    }

    /// A constant in all lanes of 64 bits, as an operand.
    pub(super) fn wide_constant(&mut self, value: u64) -> AsmMemoryOperand {
        let (low, high) = (value as u32, (value >> 32) as u32);
        self.pattern([low, high, low, high, low, high, low, high])
    }

    /// A constant of eight words.
    pub(super) fn pattern(&mut self, pattern: [u32; 8]) -> AsmMemoryOperand {
        ymmword_ptr(self.pool.label(self.asm, &pattern))
    }

    /// Where a value lies in the frame.
    fn place(key: Key) -> Option<AsmMemoryOperand> {
        match key {
            Key::Narrow(at) => Some(ymmword_ptr(rbx + rsi + at.cast_signed())),
            Key::Wide(at, upper) => {
                Some(ymmword_ptr(rbx + rsi * 2 + (at + if upper { 32 } else { 0 }).cast_signed()))
            }
            _ => None,
        }
    }

    /// The step that next reads a value.
    fn next_read(&self, key: Key) -> Option<usize> {
        match key {
            Key::Narrow(at) | Key::Wide(at, _) => self.uses.next_read(at, self.now),
            Key::Scalar(at, _) | Key::Predicate(at) => match self.uses.next(at, self.now) {
                Some((when, true)) => Some(when),
                _ => None,
            },
            Key::Active(_) => Some(usize::MAX - 1),
            Key::Temporary => None,
        }
    }

    /// Takes a register for the step that is assembled.
    fn take(&mut self) -> Emit<usize> {
        let free = (0..16).find(|&at| self.values[at].is_none() && self.pinned >> at & 1 == 0);
        let at = if let Some(at) = free {
            at
        } else {
            let held = |at: &usize| {
                self.pinned >> at & 1 == 0
                    && !matches!(self.values[*at], Some(Value { key: Key::Predicate(_), .. }))
            };
            let last = |at: &usize| {
                let value = self.values[*at];
                let read = value.and_then(|value| self.next_read(value.key)).unwrap_or(usize::MAX);
                // A value that the frame has costs nothing to drop.
                (read, value.is_some_and(|value| !value.dirty))
            };
            let chosen = (0..16).filter(held).max_by_key(last);
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

    /// A register for the step that is assembled alone.
    pub(super) fn temporary(&mut self) -> Emit<AsmRegisterYmm> {
        let at = self.take()?;
        self.values[at] = Some(Value { key: Key::Temporary, dirty: false, raw: false, small: false });
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
        // A register for the mask may only be had by storing others, which would need another for theirs.
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

    /// Writes a value to the frame if that lacks it and somebody reads it.
    fn store(&mut self, at: usize) -> Emit {
        let Some(Value { key, dirty: true, .. }) = self.values[at] else { return Ok(()) };
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

    fn find(&self, key: Key) -> Option<usize> {
        self.values.iter().position(|value| value.is_some_and(|value| value.key == key))
    }

    fn read_key(&mut self, key: Key, raw: bool) -> Emit<AsmRegisterYmm> {
        if let Some(at) = self.find(key) {
            self.pinned |= 1 << at;
            if !raw {
                self.finish(at)?;
            }
            return Ok(YMM[at]);
        }
        let at = self.take()?;
        let to = YMM[at];
        match key {
            Key::Narrow(_) | Key::Wide(..) => {
                if let Some(place) = Self::place(key) {
                    self.asm.vmovdqu(to, place)?;
                }
            }
            Key::Scalar(from, false) => self.asm.vpbroadcastd(to, dword_ptr(rbx + from.cast_signed()))?,
            Key::Scalar(from, true) => self.asm.vpbroadcastq(to, qword_ptr(rbx + from.cast_signed()))?,
            Key::Predicate(from) => {
                let bits = ymmword_ptr(r12 + rsi + Context::BITS);
                self.asm.vpbroadcastd(to, dword_ptr(rbx + from.cast_signed()))?;
                self.asm.vpand(to, to, bits)?;
                self.asm.vpcmpeqd(to, to, bits)?;
            }
            Key::Active(None) => self.asm.vmovdqu(to, ymmword_ptr(r12 + rsi + Context::MASKS))?,
            Key::Active(Some(upper)) => {
                let from = xmmword_ptr(r12 + rsi + (Context::MASKS + if upper { 16 } else { 0 }));
                self.asm.vpmovsxdq(to, from)?;
            }
            Key::Temporary => {}
        }
        self.values[at] = Some(Value { key, dirty: false, raw: false, small: false });
        Ok(to)
    }

    /// Reads an operand. `raw`: floats may be neither flushed nor canonical.
    pub(super) fn read(&mut self, kind: Kind, slot: Slot, raw: bool) -> Emit<Pair> {
        let at = slot.offset() as u32;
        let both = |register| Pair { low: register, high: register };
        Ok(match kind {
            Kind::None => both(ymm0),
            Kind::Vector { wide: false } => both(self.read_key(Key::Narrow(at), raw)?),
            Kind::Vector { wide: true } => Pair {
                low: self.read_key(Key::Wide(at, false), raw)?,
                high: self.read_key(Key::Wide(at, true), raw)?,
            },
            Kind::Scalar { wide } => both(self.read_key(Key::Scalar(at, wide), raw)?),
            Kind::Predicate => both(self.read_key(Key::Predicate(at), raw)?),
        })
    }

    /// Registers for a result.
    pub(super) fn result(&mut self, wide: bool) -> Emit<Pair> {
        let low = self.temporary()?;
        Ok(Pair { low, high: if wide { self.temporary()? } else { low } })
    }

    /// Makes a register hold the value of a key from now on.
    fn bind(&mut self, register: AsmRegisterYmm, key: Key, dirty: bool, raw: bool) {
        self.paths.change(self.asm);
        if let Some(old) = self.find(key) {
            self.values[old] = None;
        }
        self.values[index(register)] = Some(Value { key, dirty, raw, small: false });
    }

    fn write_key(&mut self, register: AsmRegisterYmm, key: Key, blend: Option<Key>, raw: bool) -> Emit {
        let Some(active) = blend else {
            self.bind(register, key, true, raw);
            return Ok(());
        };
        self.bind(register, Key::Temporary, false, raw);
        self.finish(index(register))?;
        let old = self.read_key(key, false)?;
        let active = self.read_key(active, false)?;
        self.asm.vblendvps(register, old, register, active)?;
        self.bind(register, key, true, false);
        Ok(())
    }

    /// Writes a vector. `blend`: inactive lanes keep their values. `raw`: it is a float that is neither
    /// flushed nor canonical.
    pub(super) fn write(&mut self, wide: bool, slot: Slot, value: Pair, blend: bool, raw: bool) -> Emit {
        let at = slot.offset() as u32;
        if !wide {
            return self.write_key(value.low, Key::Narrow(at), blend.then_some(Key::Active(None)), raw);
        }
        for (upper, register) in [(false, value.low), (true, value.high)] {
            let active = blend.then_some(Key::Active(Some(upper)));
            self.write_key(register, Key::Wide(at, upper), active, raw)?;
        }
        Ok(())
    }

    /// Writes a scalar, to the frame at once.
    pub(super) fn write_scalar(&mut self, wide: bool, slot: Slot, value: AsmRegisterYmm, raw: bool) -> Emit {
        let at = slot.offset() as u32;
        self.bind(value, Key::Temporary, false, raw);
        self.finish(index(value))?;
        let from = xmm(value);
        let to = rbx + at.cast_signed();
        if wide {
            self.asm.vmovq(qword_ptr(to), from)?;
        } else {
            self.asm.vmovd(dword_ptr(to), from)?;
        }
        // The other width of the same scalar is no longer what a register holds.
        if let Some(other) = self.find(Key::Scalar(at, !wide)) {
            self.values[other] = None;
        }
        if let Some(other) = self.find(Key::Predicate(at)) {
            self.values[other] = None;
        }
        self.bind(value, Key::Scalar(at, wide), false, false);
        Ok(())
    }

    /// Keeps the masks of a predicate for steps that read it.
    pub(super) fn keep_predicate(&mut self, slot: Slot, value: AsmRegisterYmm) {
        let at = slot.offset() as u32;
        if let Some(other) = self.find(Key::Scalar(at, false)) {
            self.values[other] = None;
        }
        self.bind(value, Key::Predicate(at), false, false);
    }

    /// Notes that all bytes of a vector are below 128.
    pub(super) fn note_small(&mut self, slot: Slot) {
        if let Some(at) = self.find(Key::Narrow(slot.offset() as u32))
            && let Some(value) = &mut self.values[at]
        {
            value.small = true;
        }
    }

    /// Whether all bytes of a vector are known to be below 128.
    pub(super) fn is_small(&self, slot: Slot) -> bool {
        let at = self.find(Key::Narrow(slot.offset() as u32));
        at.and_then(|at| self.values[at]).is_some_and(|value| value.small)
    }

    /// Forgets a scalar that was written to the frame by other means.
    pub(super) fn forget(&mut self, slot: Slot) {
        let at = slot.offset() as u32;
        for key in [Key::Scalar(at, false), Key::Scalar(at, true), Key::Predicate(at)] {
            if let Some(old) = self.find(key) {
                self.values[old] = None;
            }
        }
    }

    /// Starts a step.
    pub(super) fn begin(&mut self, at: usize) {
        self.now = at;
        self.pinned = 0;
        self.paths.begin(self.asm);
    }

    /// Ends a step: registers that nobody reads any more become free.
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

    /// Writes what the frame still lacks, at the end of a piece.
    pub(super) fn flush(&mut self) -> Emit {
        for at in 0..16 {
            self.store(at)?;
        }
        Ok(())
    }
}
