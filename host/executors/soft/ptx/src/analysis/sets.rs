//! Bit sets of registers, over the few that are live across blocks.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::ir::Reg;

/// Registers that a family of sets can hold. Most registers never leave their block, and are in no set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Members {
    /// Registers that are members, in ascending order.
    pub list: Vec<Reg>,
    /// Indexed by register: its position in `list`, or `u32::MAX`.
    pub places: Vec<u32>,
}

impl Members {
    /// Makes the members of a family of sets from a set of all registers.
    pub fn new(members: &FixedBitSet) -> Self {
        let mut places = vec![u32::MAX; members.len()];
        let list: Vec<Reg> = members.ones().map(|reg| Reg(reg as u32)).collect();
        for (place, reg) in list.iter().enumerate() {
            places[reg.0 as usize] = place as u32;
        }
        Self { list, places }
    }

    /// Returns the number of steps that a visit of all members of a set counts: one for each 64 registers,
    /// and one.
    pub fn words(&self) -> u64 {
        self.list.len() as u64 / 64 + 1
    }

    /// Returns the position of a register in `list`, or `None` if no set can hold it.
    pub fn place(&self, reg: Reg) -> Option<usize> {
        self.places.get(reg.0 as usize).filter(|&&place| place != u32::MAX).map(|&place| place as usize)
    }
}

/// A set of registers, as bits over the `Members` of its family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegSet {
    pub(super) bits: FixedBitSet,
    pub(super) members: Arc<Members>,
}

impl RegSet {
    /// Makes an empty set.
    pub(super) fn new(members: Arc<Members>) -> Self {
        Self { bits: FixedBitSet::with_capacity(members.list.len()), members }
    }

    /// Returns whether a register is in the set.
    pub fn contains(&self, reg: Reg) -> bool {
        self.members.place(reg).is_some_and(|place| self.bits.contains(place))
    }

    /// Returns the registers of the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Reg> {
        self.bits.ones().map(|place| self.members.list[place])
    }

    /// Returns the number of registers in the set.
    pub fn len(&self) -> usize {
        self.bits.count_ones(..)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.bits.is_clear()
    }
}
