//! The shared registers on which lanes must agree to reconverge: a set of slots for each point of a program
//! at which lanes wait for others.
//!
//! Each set differs little from the previous one, and storing all of them would take memory proportional to
//! points times slots. Therefore only the changes are stored, and a whole set whenever there have been more
//! changes since the last one than it has slots. The whole sets take no more memory than the changes, and
//! restoring a set takes at most twice its size.

use std::collections::{HashMap, HashSet};

use super::slot::Slot;

/// A point of the program, identified by the number of changes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Point(u32);

/// Sets of a program, by point and by instruction.
#[derive(Debug, Default)]
pub(crate) struct Reconvergence {
    changes: Vec<(Slot, bool)>,
    /// Whole sets, each with the number of changes before it.
    sets: Vec<(u32, Box<[Slot]>)>,
    /// Number of slots in all whole sets.
    whole: usize,
    /// Point of each instruction at which lanes wait for others.
    insts: HashMap<u32, Point>,
}

impl Reconvergence {
    /// Returns the set at a point, in ascending order.
    pub(crate) fn at(&self, point: Point) -> Box<[Slot]> {
        let after = self.sets.partition_point(|(changes, _)| *changes <= point.0);
        let (first, whole) = match after.checked_sub(1).and_then(|index| self.sets.get(index)) {
            Some((changes, set)) => (*changes as usize, &set[..]),
            None => (0, &[][..]),
        };
        let mut set: HashSet<Slot> = whole.iter().copied().collect();
        for &(slot, there) in &self.changes[first..point.0 as usize] {
            if there {
                set.insert(slot);
            } else {
                set.remove(&slot);
            }
        }
        let mut set: Box<[Slot]> = set.into_iter().collect();
        set.sort_unstable();
        set
    }

    /// Returns the set at an instruction, or `None` if lanes do not meet there.
    pub(crate) fn at_inst(&self, inst: u32) -> Option<Box<[Slot]>> {
        self.insts.get(&inst).map(|&point| self.at(point))
    }

    /// Returns the approximate size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let whole = self.sets.len() * size_of::<(u32, Box<[Slot]>)>() + self.whole * size_of::<Slot>();
        let insts = self.insts.len() * (size_of::<(u32, Point)>() + 1);
        (self.changes.len() * size_of::<(Slot, bool)>() + whole + insts) as u64
    }
}

/// Recorder of the sets of a program, in the order of its text.
#[derive(Debug, Default)]
pub(crate) struct ReconvergenceRecorder {
    found: Reconvergence,
    current: HashSet<Slot>,
    /// Number of changes since the last whole set.
    since: usize,
    /// Number of set elements examined so far, as a measure of work.
    work: u64,
}

impl ReconvergenceRecorder {
    /// Adds a slot to the current set if `there`, or otherwise removes it.
    pub(crate) fn set(&mut self, slot: Slot, there: bool) {
        self.work += 1;
        let changed = if there { self.current.insert(slot) } else { self.current.remove(&slot) };
        if changed {
            self.found.changes.push((slot, there));
            self.since += 1;
        }
    }

    /// Replaces the current set by `slots`.
    pub(crate) fn restart(&mut self, slots: impl Iterator<Item = Slot>) {
        let wanted: HashSet<Slot> = slots.collect();
        let mut gone: Vec<Slot> = self.current.difference(&wanted).copied().collect();
        let mut come: Vec<Slot> = wanted.difference(&self.current).copied().collect();
        self.work += (self.current.len() + wanted.len()) as u64;
        gone.sort_unstable();
        come.sort_unstable();
        for slot in gone {
            self.set(slot, false);
        }
        for slot in come {
            self.set(slot, true);
        }
    }

    /// Records the current set. It can be restored from the returned point.
    pub(crate) fn point(&mut self) -> Point {
        let point = Point(self.found.changes.len() as u32);
        if self.since > self.current.len() {
            self.work += self.current.len() as u64;
            self.found.sets.push((point.0, self.current.iter().copied().collect()));
            self.found.whole += self.current.len();
            self.since = 0;
        }
        point
    }

    /// Records that lanes wait at an instruction with the set of `point`.
    pub(crate) fn inst(&mut self, inst: u32, point: Point) {
        self.found.insts.insert(inst, point);
    }

    /// Returns the work so far, as a number of set elements, and the size of the result in bytes.
    pub(crate) fn effort(&self) -> (u64, u64) {
        (self.work, self.found.bytes())
    }

    pub(crate) fn finish(self) -> Reconvergence {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::slot::FrameLayout;

    fn slots(count: usize) -> Vec<Slot> {
        let mut layout = FrameLayout::new();
        (0..count).map(|_| layout.scalar()).collect()
    }

    #[test]
    fn every_set_is_found_again() {
        let slots = slots(40);
        let (mut recorder, mut model, mut wanted) =
            (ReconvergenceRecorder::default(), HashSet::new(), Vec::new());
        let mut random = 1_u64;
        for round in 0..3000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let slot = slots[(random >> 33) as usize % slots.len()];
            match random >> 60 {
                0 if round % 5 == 0 => {
                    model = slots.iter().copied().filter(|slot| Some(slot) != slots.first()).collect();
                    recorder.restart(model.iter().copied());
                }
                0..8 => {
                    model.insert(slot);
                    recorder.set(slot, true);
                }
                _ => {
                    model.remove(&slot);
                    recorder.set(slot, false);
                }
            }
            if (random >> 40).is_multiple_of(4) {
                wanted.push((recorder.point(), model.clone()));
            }
        }
        let found = recorder.finish();
        for (point, model) in wanted {
            let mut sorted: Vec<Slot> = model.into_iter().collect();
            sorted.sort_unstable();
            assert_eq!(found.at(point)[..], sorted[..]);
        }
    }

    /// The work and memory for n live registers and n barriers, with a change of the live set between
    /// barriers, are proportional to n.
    #[test]
    fn many_live_registers_and_barriers_take_work_and_memory_in_proportion() {
        let effort = |n: usize| {
            let slots = slots(n);
            let mut recorder = ReconvergenceRecorder::default();
            recorder.restart(slots.iter().copied());
            for &slot in &slots {
                recorder.set(slot, false);
                recorder.point();
                recorder.set(slot, true);
                recorder.point();
            }
            recorder.effort()
        };
        let (once, four) = (effort(2000), effort(8000));
        assert!(four.0 <= 5 * once.0 && four.1 <= 5 * once.1, "{once:?} becomes {four:?}");
    }
}
