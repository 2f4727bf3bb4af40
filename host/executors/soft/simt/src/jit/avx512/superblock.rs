//! Superblocks: sequences of instructions that machine code executes one by one, with values in registers.
//!
//! A side exit may precede any instruction. Values that the frame does not have are stored when the exit is
//! taken.
//!
//! Addresses of device memory are mostly the sum of a vector, the *root*, and scalars. The span of a root is
//! computed once, so that only scalars are compared for each access.

use std::collections::{HashMap, HashSet};

use super::body::Action;
use super::{product, quads, scheduler, table};
use crate::jit::effects::{distance, effects, flushing};
use crate::jit::live::{Next, Segment};
use crate::jit::template::{Elements, Flush, MemSpace};
use crate::machine::{Inst, Opcode, RANGE_ENTRIES, SUMS, Slot, Tables, set};

/// Maximum number of instructions in a superblock. It limits the time to assemble it.
const LONGEST: usize = 256;
/// Maximum number of roots in a superblock, which is below the number of entries in the address-range cache.
const MOST_ROOTS: usize = 32;
/// Maximum distance of accesses that share a check, in bytes.
const FARTHEST: i64 = 1 << 16;
/// Maximum number of instructions by which a word is loaded ahead.
const EARLIEST: usize = 96;
/// Maximum absolute value in bytes of constants in addresses, for a register and for an access.
const LARGEST: i64 = 1 << 20;

/// An instruction of a superblock with its template.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPart {
    pub(super) index: usize,
    pub(super) entry: Action,
    /// Memory access of the instruction, if it has an address for each lane.
    pub(super) access: Option<GroupAccess>,
    /// Sum of scalars that is computed with the instruction, if any.
    pub(super) sum: Option<Sum>,
}

/// A memory access with an address for each lane, as a member of a coalesced check.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupAccess {
    /// Index of the coalesced check, which is also that of the check's pointer in the context.
    pub(super) group: usize,
    /// Distance of the elements from the sum of root and scalars, in bytes.
    pub(super) by: i64,
}

/// A sum of scalars in an address: an earlier sum, if there is one, plus a scalar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) place: usize,
    pub(super) other: Option<usize>,
    pub(super) scalar: Slot,
}

/// A vector of addresses whose offsets are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootVector {
    pub(super) slot: Slot,
    /// Index of the vector's entry in the address-range cache.
    pub(super) place: usize,
    /// Index of the first instruction that needs the vector.
    pub(super) index: usize,
    /// Required alignment of every lane-to-lane distance, in bytes.
    pub(super) align: u32,
    /// Mask with a bit for each [`AccessPattern`] that an access can exploit.
    pub(super) patterns: u8,
}

/// Patterns of the lanes' offsets that permit faster accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessPattern {
    /// Each lane is one word after the previous one.
    UnitStride,
    /// Both lanes of each pair have the same offset.
    UniformPairs,
    /// The lanes of each pair are two words apart.
    StridedPairs,
}

/// A group of accesses that share a check of their addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoalescedCheck {
    /// Index of the group's first instruction, whose window is used.
    pub(super) index: usize,
    /// Index of the root vector of its addresses.
    pub(super) root: usize,
    pub(super) sum: Option<usize>,
    pub(super) memory: MemSpace,
    pub(super) write: bool,
    /// Lowest distance of an accessed byte from the address, in bytes.
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) align: u32,
}

/// Sixteen bytes for each lane that several loads of a superblock read. The first of them loads all.
#[derive(Clone, Copy, Debug)]
pub(super) struct CombinedLoad {
    /// Distance in bytes from the first load's own element.
    pub(super) from: i64,
    /// Index of the instruction that reads each word, and the word's index within that instruction.
    pub(super) words: [(usize, usize); 4],
}

/// An address vector as the sum of a root, a sum of scalars and a constant.
#[derive(Clone, Copy, Debug)]
struct KnownAddress {
    root: Slot,
    sum: Option<usize>,
    constant: i64,
}

/// A sequence of instructions, or a single one that the interpreter executes.
#[derive(Debug, Default)]
pub(super) struct Superblock {
    /// Index of the first instruction.
    pub(super) first: usize,
    pub(super) parts: Vec<BlockPart>,
    pub(super) interpreted: bool,
    pub(super) roots: Vec<RootVector>,
    pub(super) groups: Vec<CoalescedCheck>,
    /// Combined loads by the index of the instruction that performs them.
    pub(super) combined_loads: HashMap<usize, CombinedLoad>,
    /// Indices of the roots whose vectors have not changed since.
    open_roots: Vec<usize>,
    open: Vec<usize>,
    addresses: HashMap<Slot, KnownAddress>,
    sums: usize,
    full: bool,
}

/// Input for the division of a program into superblocks.
pub(super) struct Divider<'a> {
    pub(super) steps: &'a [Inst],
    pub(super) tables: &'a Tables,
    /// Values of the scalars that are constant throughout the program.
    pub(super) constants: &'a HashMap<Slot, u64>,
    /// Whether the code runs with subnormal floats flushed to zero.
    pub(super) flush: bool,
}

/// Returns the elements that a vector instruction accesses in memory, and whether it writes them.
fn accessed(entry: Action) -> Option<(Elements, bool)> {
    match entry {
        Action::Load(elements) | Action::LoadTwo(elements) => Some((elements, false)),
        Action::Store(elements) => Some((elements, true)),
        _ => None,
    }
}

/// Returns whether the constant offset of an access is small enough for machine code. The interpreter
/// executes all others.
fn is_near(step: &Inst, entry: Action) -> bool {
    accessed(entry).is_none_or(|(elements, _)| distance(step, elements.memory).abs() <= LARGEST)
}

/// Returns a mask of the access patterns that an access can exploit.
fn wanted_patterns(elements: Elements, write: bool) -> u8 {
    let all: &[AccessPattern] = match (elements.bytes, elements.count) {
        _ if matches!(elements.memory, MemSpace::Local { .. }) => &[AccessPattern::UnitStride],
        (4, 1) | (2, 2) if write => &[AccessPattern::UnitStride],
        (8, 1) | (4, 2) if write => &[AccessPattern::StridedPairs],
        _ if write => &[],
        (4, 1) => &[AccessPattern::UnitStride, AccessPattern::UniformPairs],
        (1 | 2, 1) => &[AccessPattern::UniformPairs],
        (8, 1) | (4, 2) => &[AccessPattern::StridedPairs],
        _ => &[],
    };
    all.iter().fold(0, |bits, pattern| bits | 1 << *pattern as u8)
}

/// Returns the number of bytes beyond its own elements that a lane may read because adjacent lanes are loaded
/// together.
fn neighbours(elements: Elements, write: bool) -> i64 {
    match (elements.memory, elements.bytes as usize * elements.count) {
        (MemSpace::Global, 8) if !write => 8,
        _ => 0,
    }
}

impl Divider<'_> {
    /// Divides the program into superblocks. `starts` are the instructions at which other code may continue.
    pub(super) fn divide(&self, starts: &HashSet<u32>) -> Vec<Superblock> {
        let mut superblocks = Vec::new();
        let mut superblock = Superblock::default();
        let unfit = if self.flush { Flush::Never } else { Flush::Always };
        for (index, step) in self.steps.iter().enumerate() {
            let fits = |entry: &Action| {
                flushing(*entry) != unfit && is_near(step, *entry) && self.knows(step, *entry)
            };
            let entry = table::templates().get(step).filter(fits);
            let full = superblock.full || superblock.parts.len() >= LONGEST;
            if superblock.first < index && (starts.contains(&(index as u32)) || full || entry.is_none()) {
                superblocks.push(std::mem::replace(
                    &mut superblock,
                    Superblock { first: index, ..Superblock::default() },
                ));
            }
            match entry {
                None => (superblock.interpreted, superblock.full) = (true, true),
                Some(entry) => {
                    if !superblock.append(index, entry, self) {
                        superblocks.push(std::mem::replace(
                            &mut superblock,
                            Superblock { first: index, ..Superblock::default() },
                        ));
                        superblock.append(index, entry, self);
                    }
                }
            }
        }
        if superblock.first < self.steps.len() {
            superblocks.push(superblock);
        }
        superblocks.iter_mut().for_each(Superblock::find_combined_loads);
        // Cache entries outlast a superblock, as far as there is room.
        let roots = superblocks.iter_mut().flat_map(|superblock| &mut superblock.roots);
        roots.enumerate().for_each(|(number, root)| root.place = number % RANGE_ENTRIES);
        superblocks
    }

    /// Returns whether the translator supports this form of a product, shuffle or barrier; other instructions
    /// are always supported.
    fn knows(&self, step: &Inst, entry: Action) -> bool {
        match entry {
            Action::Shuffle { .. } => [step.b, step.c].iter().all(|slot| self.constants.contains_key(slot)),
            Action::Quads => quads::fits(step, self.tables),
            Action::Product { halves } => product::fits(step, halves, self.tables),
            Action::Arrive => scheduler::waits_for_all(step, self.tables, self.constants),
            _ => true,
        }
    }
}

impl Superblock {
    /// Appends an instruction. Returns false if the limits leave no room for its access.
    fn append(&mut self, index: usize, entry: Action, from: &Divider<'_>) -> bool {
        let step = &from.steps[index];
        let mut access = None;
        if let Some((elements, write)) = accessed(entry) {
            access = self.group(index, step, elements, write);
            if access.is_none() {
                return false;
            }
        }
        // If a generic address names unexpected memory, a side exit is taken. Machine code continues after
        // the instruction.
        self.full = step.opcode.row().ends || step.opcode == Opcode::LdGeneric32;
        let address = self.derive(step, from);
        for slot in effects(step, from.tables).writes {
            self.forget(slot);
        }
        let mut sum = None;
        if let Some((address, made)) = address {
            self.addresses.insert(step.d, address);
            sum = made;
        }
        self.parts.push(BlockPart { index, entry, access, sum });
        true
    }

    /// Drops what is known about a vector that is being written.
    fn forget(&mut self, slot: Slot) {
        self.addresses.remove(&slot);
        let roots = &self.roots;
        let stays = |root: &usize| roots[*root].slot != slot;
        self.open_roots.retain(stays);
        let groups = &self.groups;
        self.open.retain(|group| stays(&groups[*group].root));
        self.addresses.retain(|_, address| address.root != slot);
    }

    /// Describes the result of an instruction that computes an address, and the sum of scalars that it adds.
    fn derive(&mut self, step: &Inst, from: &Divider<'_>) -> Option<(KnownAddress, Option<Sum>)> {
        if step.blend {
            return None;
        }
        let (vector, scalar) = match (step.opcode, step.form.shared) {
            (Opcode::Add64, set::B) => (step.a, Some(step.b)),
            (Opcode::Add64, set::A) => (step.b, Some(step.a)),
            (Opcode::Mov64, 0) => (step.a, None),
            _ => return None,
        };
        if vector == step.d {
            return None;
        }
        let mut address = self.address(vector);
        if address.root == step.d {
            return None;
        }
        let Some(scalar) = scalar else { return Some((address, None)) };
        if let Some(constant) = from.constants.get(&scalar) {
            address.constant = address.constant.checked_add(constant.cast_signed())?;
            return (address.constant.abs() <= LARGEST).then_some((address, None));
        }
        if self.sums == SUMS {
            return None;
        }
        let place = self.sums;
        self.sums += 1;
        let sum = Sum { place, other: address.sum, scalar };
        Some((KnownAddress { sum: Some(place), ..address }, Some(sum)))
    }

    /// Describes a vector of addresses.
    fn address(&self, slot: Slot) -> KnownAddress {
        let unknown = KnownAddress { root: slot, sum: None, constant: 0 };
        self.addresses.get(&slot).copied().unwrap_or(unknown)
    }

    /// Returns the index of a root, which is added if it is new.
    fn root(&mut self, index: usize, slot: Slot, align: u32, shared: bool) -> Option<usize> {
        let open = self.open_roots.iter().copied().find(|root| shared && self.roots[*root].slot == slot);
        if let Some(root) = open {
            self.roots[root].align = self.roots[root].align.max(align);
            return Some(root);
        }
        if self.roots.len() == MOST_ROOTS {
            return None;
        }
        self.roots.push(RootVector { slot, place: 0, index, align, patterns: 0 });
        if shared {
            self.open_roots.push(self.roots.len() - 1);
        }
        Some(self.roots.len() - 1)
    }

    /// Adds an access to a coalesced check and returns its membership. A new check is created if the access
    /// fits no other.
    fn group(&mut self, index: usize, step: &Inst, elements: Elements, write: bool) -> Option<GroupAccess> {
        let Elements { memory, align, .. } = elements;
        let address = match memory {
            MemSpace::Global => self.address(step.a),
            _ => KnownAddress { root: step.a, sum: None, constant: 0 },
        };
        let by = address.constant + distance(step, memory);
        let from = by;
        let to = from + i64::from(elements.reach(write)) + neighbours(elements, write);
        let local = matches!(memory, MemSpace::Local { .. });
        let joined = self.open.iter().copied().find(|&number| {
            let group = &self.groups[number];
            // Adjacent words of local memory are a row apart.
            self.roots[group.root].slot == address.root
                && group.sum == address.sum
                && (!local || from == group.from)
                && (group.memory, group.write) == (memory, write)
                && (from - group.from).unsigned_abs().is_multiple_of(u64::from(align.max(group.align)))
                && group.to.max(to) - group.from.min(from) <= FARTHEST
        });
        if let Some(number) = joined {
            let group = &mut self.groups[number];
            group.from = group.from.min(from);
            group.to = group.to.max(to);
            group.align = group.align.max(align);
            let root = &mut self.roots[group.root];
            root.align = root.align.max(align);
            root.patterns |= wanted_patterns(elements, write);
            return Some(GroupAccess { group: number, by });
        }
        if self.groups.len() == SUMS {
            return None;
        }
        let root = self.root(index, address.root, align, memory == MemSpace::Global)?;
        self.roots[root].patterns |= wanted_patterns(elements, write);
        self.groups.push(CoalescedCheck { index, root, sum: address.sum, memory, write, from, to, align });
        self.open.push(self.groups.len() - 1);
        Some(GroupAccess { group: self.groups.len() - 1, by })
    }

    /// Finds loads of adjacent words of shared memory with no store between them.
    fn find_combined_loads(&mut self) {
        // For each load: the index, the check, the number of words, and the number of stores before it.
        let mut loads: Vec<(usize, GroupAccess, usize, usize)> = Vec::new();
        let mut stores = 0;
        for part in &self.parts {
            let Some((elements, write)) = accessed(part.entry) else { continue };
            stores += usize::from(write);
            let fits = elements.memory == MemSpace::Shared && elements.bytes == 4 && elements.count < 4;
            if let (Some(access), true, false) = (part.access, fits, write) {
                loads.push((part.index, access, elements.count, stores));
            }
        }
        let mut done = HashSet::new();
        for (at, &(first, access, _, stores)) in loads.iter().enumerate() {
            if done.contains(&first) {
                continue;
            }
            let near = || {
                let rest =
                    loads[at..].iter().take_while(|load| load.3 == stores && load.0 - first <= EARLIEST);
                rest.filter(|load| load.1.group == access.group && !done.contains(&load.0))
            };
            let word = |by: i64| {
                near().find_map(|&(step, GroupAccess { by: from, .. }, count, _)| {
                    let word = usize::try_from(by - from).ok()? / 4;
                    (word < count && (by - from) % 4 == 0).then_some((step, word))
                })
            };
            let combined = (0..4).find_map(|before| {
                let from = -4 * before;
                let words: Vec<_> = (0..4).map_while(|at| word(access.by + from + 4 * at)).collect();
                let words: [(usize, usize); 4] = words.try_into().ok()?;
                let whole = |step: usize| {
                    let load = near().find(|load| load.0 == step);
                    load.is_some_and(|load| load.2 == words.iter().filter(|word| word.0 == step).count())
                };
                (words.iter().any(|word| word.0 == first) && words.iter().all(|word| whole(word.0)))
                    .then_some(CombinedLoad { from, words })
            });
            if let Some(combined) = combined {
                done.extend(combined.words.map(|(step, _)| step));
                self.combined_loads.insert(first, combined);
            }
        }
    }

    /// Returns the address-range cache entry of a check's root.
    pub(super) fn place(&self, group: &CoalescedCheck) -> usize {
        self.roots[group.root].place
    }

    /// Describes the superblock to the liveness analysis.
    pub(super) fn segment(&self, steps: &[Inst], tables: &Tables) -> Segment {
        let effects = |part: &BlockPart| (effects(&steps[part.index], tables), steps[part.index].blend);
        let next =
            self.parts.last().map_or(Next::Behind, |part| Next::after(&steps[part.index], &part.entry));
        let steps = self.parts.iter().map(effects).collect();
        Segment { first: self.first, interpreted: self.interpreted, next, steps }
    }
}
