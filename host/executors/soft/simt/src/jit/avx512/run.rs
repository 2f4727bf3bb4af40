//! Runs: steps in a row that machine code does one after the other, without going through the frame.
//!
//! A run may be left before any of its steps. What the frame lacks there is written on the way out.
//!
//! Addresses of device memory are mostly a vector, the *root*, and scalars that are added to it. What the
//! lanes of a root have in common is found out once, and then it takes scalars alone to check an access.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};

use super::body::Entry;
use super::{product, quads, scheduler, table};
use crate::jit::effects::{distance, effects, flushing};
use crate::jit::live::{Next, Segment};
use crate::jit::template::{Elements, Flush, Memory};
use crate::machine::{Inst, RANGE_ENTRIES, SUMS, Slot, Tables};
use crate::ops::integer::{Add64, Mov64};
use crate::ops::{Vector1, Vector2};

/// Steps of a run at most, so that the work of assembling it stays in proportion.
const LONGEST: usize = 256;
/// RangeCache of a run at most: fewer than there are places.
const MOST_ROOTS: usize = 32;
/// How far accesses may lie apart that are checked together.
const FARTHEST: i64 = 1 << 16;
/// How many steps before its use something is loaded at most.
const EARLIEST: usize = 96;
/// Constants in addresses at most, of each register and of the access.
const LARGEST: i64 = 1 << 20;

/// A step and what is done for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) index: usize,
    pub(super) entry: Entry,
    /// Its access, if it is one of lanes.
    pub(super) access: Option<Lanes>,
    /// The sum that is made here.
    pub(super) sum: Option<Sum>,
}

/// An access of lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes {
    /// The group which it belongs to, whose number is the place of its pointer in the context, too.
    pub(super) group: usize,
    /// Where its elements lie, from the address that the root and the sum make.
    pub(super) by: i64,
}

/// A sum of scalars in an address: another one and a scalar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) place: usize,
    pub(super) other: Option<usize>,
    pub(super) scalar: Slot,
}

/// A vector of addresses, of which offsets are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    pub(super) slot: Slot,
    /// Where what is known of it is kept.
    pub(super) place: usize,
    /// The first step that needs it.
    pub(super) index: usize,
    /// Of which number all distances between lanes must be multiples.
    pub(super) align: u32,
    /// A bit for each [`Row`] that accesses ask for.
    pub(super) rows: u8,
}

/// Ways in which the offsets of neighbours may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// All lanes, words apart.
    Whole,
    /// The same for two lanes.
    SameTwos,
    /// Two lanes, two words apart.
    WideTwos,
}

/// Accesses that are checked together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The first of its steps, whose window is used.
    pub(super) index: usize,
    /// The number of its root.
    pub(super) root: usize,
    pub(super) sum: Option<usize>,
    pub(super) memory: Memory,
    pub(super) write: bool,
    /// The least and the greatest distance from the address, in bytes.
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) align: u32,
}

/// Sixteen bytes of each lane that several loads of a run want, which the first of them loads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Four {
    /// Where they begin, from the first load's own element.
    pub(super) from: i64,
    /// The step that wants each word, and which of its words that is.
    pub(super) words: [(usize, usize); 4],
}

/// What is known of a vector of addresses: it is a root, a sum and a constant.
#[derive(Clone, Copy, Debug)]
struct Address {
    root: Slot,
    sum: Option<usize>,
    constant: i64,
}

/// A run of steps, or one step that the interpreter does.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The first step.
    pub(super) first: usize,
    pub(super) parts: Vec<Part>,
    pub(super) foreign: bool,
    pub(super) roots: Vec<Root>,
    pub(super) groups: Vec<Group>,
    /// By the step that loads them.
    pub(super) fours: HashMap<usize, Four>,
    /// The roots and groups whose addresses have not changed since.
    open_roots: Vec<usize>,
    open: Vec<usize>,
    addresses: HashMap<Slot, Address>,
    sums: usize,
    full: bool,
}

/// What divides steps into runs.
pub(super) struct Divider<'a> {
    pub(super) steps: &'a [Inst],
    pub(super) tables: &'a Tables,
    /// Scalars that always hold a constant.
    pub(super) constants: &'a HashMap<Slot, u64>,
    /// Whether floats of the code are flushed.
    pub(super) flush: bool,
}

/// The memory that a step of lanes accesses, and whether it writes.
fn accessed(entry: Entry) -> Option<(Elements, bool)> {
    match entry {
        Entry::Load(elements) | Entry::LoadTwo(elements) => Some((elements, false)),
        Entry::Store(elements) => Some((elements, true)),
        _ => None,
    }
}

/// Whether an access is no further from its register than code reaches. The interpreter does others.
fn is_near(step: &Inst, entry: Entry) -> bool {
    accessed(entry).is_none_or(|(elements, _)| distance(step, elements.memory).abs() <= LARGEST)
}

/// The rows that an access asks for.
fn rows(elements: Elements, write: bool) -> u8 {
    let all: &[Row] = match (elements.bytes, elements.count) {
        _ if matches!(elements.memory, Memory::Local { .. }) => &[Row::Whole],
        (4, 1) | (2, 2) if write => &[Row::Whole],
        (8, 1) | (4, 2) if write => &[Row::WideTwos],
        _ if write => &[],
        (4, 1) => &[Row::Whole, Row::SameTwos],
        (1 | 2, 1) => &[Row::SameTwos],
        (8, 1) | (4, 2) => &[Row::WideTwos],
        _ => &[],
    };
    all.iter().fold(0, |bits, row| bits | 1 << *row as u8)
}

/// How many bytes behind its own a lane's load may read, where neighbours' are loaded together.
fn neighbours(elements: Elements, write: bool) -> i64 {
    match (elements.memory, elements.bytes as usize * elements.count) {
        (Memory::Global, 8) if !write => 8,
        _ => 0,
    }
}

impl Divider<'_> {
    /// Divides steps into runs. `starts` are the steps at which other code may go on.
    pub(super) fn divide(&self, starts: &HashSet<u32>) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut run = Run::default();
        let unfit = if self.flush { Flush::Never } else { Flush::Always };
        for (index, step) in self.steps.iter().enumerate() {
            let fits = |entry: &Entry| {
                flushing(*entry) != unfit && is_near(step, *entry) && self.knows(step, *entry)
            };
            let entry = table::template(step).filter(fits);
            let full = run.full || run.parts.len() >= LONGEST;
            if run.first < index && (starts.contains(&(index as u32)) || full || entry.is_none()) {
                runs.push(std::mem::replace(&mut run, Run { first: index, ..Run::default() }));
            }
            match entry {
                None => (run.foreign, run.full) = (true, true),
                Some(entry) => {
                    if !run.take(index, entry, self) {
                        runs.push(std::mem::replace(&mut run, Run { first: index, ..Run::default() }));
                        run.take(index, entry, self);
                    }
                }
            }
        }
        if run.first < self.steps.len() {
            runs.push(run);
        }
        runs.iter_mut().for_each(Run::find_fours);
        // What is known of the roots of one run outlasts other runs, as far as there is room.
        let roots = runs.iter_mut().flat_map(|run| &mut run.roots);
        roots.enumerate().for_each(|(number, root)| root.place = number % RANGE_ENTRIES);
        runs
    }

    /// Whether a product, shuffle or barrier, if it is one, is one that machine code is made for.
    fn knows(&self, step: &Inst, entry: Entry) -> bool {
        match entry {
            Entry::Shuffle { .. } => [step.b, step.c].iter().all(|slot| self.constants.contains_key(slot)),
            Entry::Quads => quads::fits(step, self.tables),
            Entry::Product { halves } => product::fits(step, halves, self.tables),
            Entry::Arrive => scheduler::waits_for_all(step, self.tables, self.constants),
            _ => true,
        }
    }
}

impl Run {
    /// Adds a step. Returns false if there is no place for its access.
    fn take(&mut self, index: usize, entry: Entry, from: &Divider<'_>) -> bool {
        let step = &from.steps[index];
        let mut access = None;
        if let Some((elements, write)) = accessed(entry) {
            access = self.group(index, step, elements, write);
            if access.is_none() {
                return false;
            }
        }
        // Where a generic address names other memory than expected, the run is left: machine code goes on
        // behind.
        self.full = entry.ends() || step.opcode == TypeId::of::<table::GenericLoad>();
        let address = self.derive(step, from);
        for slot in effects(step, entry, from.tables).writes {
            self.forget(slot);
        }
        let mut sum = None;
        if let Some((address, made)) = address {
            self.addresses.insert(step.d, address);
            sum = made;
        }
        self.parts.push(Part { index, entry, access, sum });
        true
    }

    /// Forgets what was known of a vector that is written.
    fn forget(&mut self, slot: Slot) {
        self.addresses.remove(&slot);
        let roots = &self.roots;
        let stays = |root: &usize| roots[*root].slot != slot;
        self.open_roots.retain(stays);
        let groups = &self.groups;
        self.open.retain(|group| stays(&groups[*group].root));
        self.addresses.retain(|_, address| address.root != slot);
    }

    /// What a step makes of vectors of addresses: one of which something is known, and a sum in it.
    fn derive(&mut self, step: &Inst, from: &Divider<'_>) -> Option<(Address, Option<Sum>)> {
        if step.blend {
            return None;
        }
        let (vector, scalar) = match step.opcode {
            does if does == TypeId::of::<Vector2<Add64, false, true>>() => (step.a, Some(step.b)),
            does if does == TypeId::of::<Vector2<Add64, true, false>>() => (step.b, Some(step.a)),
            does if does == TypeId::of::<Vector1<Mov64>>() => (step.a, None),
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
        Some((Address { sum: Some(place), ..address }, Some(sum)))
    }

    /// What is known of a vector of addresses.
    fn address(&self, slot: Slot) -> Address {
        let unknown = Address { root: slot, sum: None, constant: 0 };
        self.addresses.get(&slot).copied().unwrap_or(unknown)
    }

    /// The root of an access to device memory.
    fn root(&mut self, index: usize, slot: Slot, align: u32, shared: bool) -> Option<usize> {
        let open = self.open_roots.iter().copied().find(|root| shared && self.roots[*root].slot == slot);
        if let Some(root) = open {
            self.roots[root].align = self.roots[root].align.max(align);
            return Some(root);
        }
        if self.roots.len() == MOST_ROOTS {
            return None;
        }
        self.roots.push(Root { slot, place: 0, index, align, rows: 0 });
        if shared {
            self.open_roots.push(self.roots.len() - 1);
        }
        Some(self.roots.len() - 1)
    }

    /// The group of an access: one from the same address which it joins, or a new one.
    fn group(&mut self, index: usize, step: &Inst, elements: Elements, write: bool) -> Option<Lanes> {
        let Elements { memory, align, .. } = elements;
        let address = match memory {
            Memory::Global => self.address(step.a),
            _ => Address { root: step.a, sum: None, constant: 0 },
        };
        let by = address.constant + distance(step, memory);
        let from = by;
        let to = from + i64::from(elements.reach(write)) + neighbours(elements, write);
        let local = matches!(memory, Memory::Local { .. });
        let joined = self.open.iter().copied().find(|&number| {
            let group = &self.groups[number];
            // Words of local memory lie rows apart.
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
            root.rows |= rows(elements, write);
            return Some(Lanes { group: number, by });
        }
        if self.groups.len() == SUMS {
            return None;
        }
        let root = self.root(index, address.root, align, memory == Memory::Global)?;
        self.roots[root].rows |= rows(elements, write);
        self.groups.push(Group { index, root, sum: address.sum, memory, write, from, to, align });
        self.open.push(self.groups.len() - 1);
        Some(Lanes { group: self.groups.len() - 1, by })
    }

    /// Finds loads of neighbouring words of the block's memory, between which nothing is stored.
    fn find_fours(&mut self) {
        // A load's step, group, place and number of words, and how many stores were before it.
        let mut loads: Vec<(usize, Lanes, usize, usize)> = Vec::new();
        let mut stores = 0;
        for part in &self.parts {
            let Some((elements, write)) = accessed(part.entry) else { continue };
            stores += usize::from(write);
            let fits = elements.memory == Memory::Shared && elements.bytes == 4 && elements.count < 4;
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
                near().find_map(|&(step, Lanes { by: from, .. }, count, _)| {
                    let word = usize::try_from(by - from).ok()? / 4;
                    (word < count && (by - from) % 4 == 0).then_some((step, word))
                })
            };
            let four = (0..4).find_map(|before| {
                let from = -4 * before;
                let words: Vec<_> = (0..4).map_while(|at| word(access.by + from + 4 * at)).collect();
                let words: [(usize, usize); 4] = words.try_into().ok()?;
                let whole = |step: usize| {
                    let load = near().find(|load| load.0 == step);
                    load.is_some_and(|load| load.2 == words.iter().filter(|word| word.0 == step).count())
                };
                (words.iter().any(|word| word.0 == first) && words.iter().all(|word| whole(word.0)))
                    .then_some(Four { from, words })
            });
            if let Some(four) = four {
                done.extend(four.words.map(|(step, _)| step));
                self.fours.insert(first, four);
            }
        }
    }

    /// Where it is kept what is known of a group's root.
    pub(super) fn place(&self, group: &Group) -> usize {
        self.roots[group.root].place
    }

    /// What liveness needs to know of it.
    pub(super) fn segment(&self, steps: &[Inst], tables: &Tables) -> Segment {
        let effects =
            |part: &Part| (effects(&steps[part.index], part.entry, tables), steps[part.index].blend);
        let next =
            self.parts.last().map_or(Next::Behind, |part| Next::after(&steps[part.index], &part.entry));
        let steps = self.parts.iter().map(effects).collect();
        Segment { first: self.first, foreign: self.foreign, next, steps }
    }
}
