//! Sets of registers.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::ir::Reg;

/// The registers that sets of one kind can hold: most registers never leave their block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Members {
    /// The registers, ascending.
    pub list: Vec<Reg>,
    /// By register: its place in `list`, or `u32::MAX`.
    pub places: Vec<u32>,
}

impl Members {
    /// The members among so many registers.
    pub fn new(members: &FixedBitSet) -> Self {
        let mut places = vec![u32::MAX; members.len()];
        let list: Vec<Reg> = members.ones().map(|reg| Reg(reg as u32)).collect();
        for (place, reg) in list.iter().enumerate() {
            places[reg.0 as usize] = place as u32;
        }
        Self { list, places }
    }

    /// How much work it is to go through a set of them: its words of 64, and one.
    pub fn words(&self) -> u64 {
        self.list.len() as u64 / 64 + 1
    }

    /// Where a register stands in the list.
    pub fn place(&self, reg: Reg) -> Option<usize> {
        self.places.get(reg.0 as usize).filter(|&&place| place != u32::MAX).map(|&place| place as usize)
    }
}

/// A set of registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegSet {
    pub(super) bits: FixedBitSet,
    pub(super) members: Arc<Members>,
}

impl RegSet {
    /// An empty set.
    pub(super) fn new(members: Arc<Members>) -> Self {
        Self { bits: FixedBitSet::with_capacity(members.list.len()), members }
    }

    /// Whether a register is in the set.
    pub fn contains(&self, reg: Reg) -> bool {
        self.members.place(reg).is_some_and(|place| self.bits.contains(place))
    }

    /// The registers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Reg> {
        self.bits.ones().map(|place| self.members.list[place])
    }

    /// How many registers there are.
    pub fn len(&self) -> usize {
        self.bits.count_ones(..)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bits.is_clear()
    }
}
