//! Storage of registers in the model.

use super::LANES;
use vgpu_ptx::analysis::{Analysis, Slots, reads, writes};
use vgpu_ptx::ir::{Kernel, Op, Reg};

/// Storage of the registers of the model.
pub trait Storage {
    /// Returns a lane's value of a register.
    fn read(&self, lane: usize, reg: Reg) -> u64;
    /// Stores new values of the lanes that take part in a step of a block.
    fn write(&mut self, block: usize, reg: Reg, values: &[(usize, u64)]);
    /// Is called before an instruction runs.
    fn check(&self, _op: &Op) {}
}

/// Value that lanes outside the step receive if nothing protects them. No instruction computes it.
const SPOILT: u64 = 0xdead_0000;

/// Storage of one value for each lane and register.
pub struct Plain(Vec<[u64; LANES]>);

impl Plain {
    pub fn new(kernel: &Kernel) -> Self {
        Self(vec![[0; LANES]; kernel.registers.len()])
    }
}

impl Storage for Plain {
    fn read(&self, lane: usize, reg: Reg) -> u64 {
        self.0[reg.0 as usize][lane]
    }

    fn write(&mut self, _: usize, reg: Reg, values: &[(usize, u64)]) {
        for &(lane, value) in values {
            self.0[reg.0 as usize][lane] = value;
        }
    }
}

/// Stores one value of a uniform register. For other registers, values of absent lanes are spoilt unless they
/// must be kept.
fn store(place: &mut [u64; LANES], uniform: bool, keep: bool, values: &[(usize, u64)]) {
    if uniform {
        assert!(values.iter().all(|value| value.1 == values[0].1), "lanes disagree: {values:?}");
        *place = [values[0].1; LANES];
        return;
    }
    if !keep {
        *place = [SPOILT; LANES];
    }
    for &(lane, value) in values {
        place[lane] = value;
    }
}

/// Storage of an engine that trusts `uniform` and `blend`.
pub struct Trusting<'a> {
    analysis: &'a Analysis,
    values: Vec<[u64; LANES]>,
}

impl<'a> Trusting<'a> {
    pub fn new(kernel: &Kernel, analysis: &'a Analysis) -> Self {
        Self { analysis, values: vec![[0; LANES]; kernel.registers.len()] }
    }
}

impl Storage for Trusting<'_> {
    fn read(&self, lane: usize, reg: Reg) -> u64 {
        self.values[reg.0 as usize][lane]
    }

    fn write(&mut self, _: usize, reg: Reg, values: &[(usize, u64)]) {
        let (uniform, keep) = (self.analysis.uniform.contains(reg), self.analysis.blend.contains(reg));
        store(&mut self.values[reg.0 as usize], uniform, keep, values);
    }
}

/// Storage of an engine that trusts `uniform`, `waiting` and the slots.
pub struct Shared<'a> {
    analysis: &'a Analysis,
    slots: &'a Slots,
    values: [Vec<[u64; LANES]>; 8],
}

impl<'a> Shared<'a> {
    pub fn new(kernel: &Kernel, analysis: &'a Analysis, slots: &'a Slots) -> Self {
        assert_eq!(slots.of.len(), kernel.registers.len());
        Self { analysis, slots, values: slots.counts.map(|count| vec![[0; LANES]; count as usize]) }
    }

    fn place(&self, reg: Reg) -> (usize, usize) {
        (self.slots.groups[reg.0 as usize].index(), self.slots.of[reg.0 as usize] as usize)
    }
}

impl Storage for Shared<'_> {
    fn read(&self, lane: usize, reg: Reg) -> u64 {
        let (group, slot) = self.place(reg);
        self.values[group][slot][lane]
    }

    fn write(&mut self, block: usize, reg: Reg, values: &[(usize, u64)]) {
        let (group, slot) = self.place(reg);
        if self.slots.copy_of[reg.0 as usize] != reg {
            // The engine does not carry out the move of a copy.
            let there = &self.values[group][slot];
            assert!(values.iter().all(|&(lane, value)| there[lane] == value), "a copy has another value");
            return;
        }
        let (uniform, keep) =
            (self.analysis.uniform.contains(reg), self.analysis.waiting[block].contains(reg));
        store(&mut self.values[group][slot], uniform, keep, values);
    }

    fn check(&self, op: &Op) {
        writes(op, &mut |written| {
            if self.slots.copy_of[written.0 as usize] != written {
                return;
            }
            reads(op, &mut |read| {
                assert!(
                    read == written || self.place(read) != self.place(written),
                    "a result is in a source's place"
                );
            });
        });
    }
}
