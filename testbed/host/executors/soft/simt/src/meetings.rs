//! Sets of slots at many points of a program, of which each differs little from the one before: what lanes must agree on to be
//! one part again.
//!
//! To keep each set would take as much memory as there are points times slots. So changes are kept, and a whole set now and
//! then: whenever there have been more changes since the last one than it has slots. Together these take no more memory than the
//! changes, and a set is found again from at most twice as much as it holds.

use std::collections::{HashMap, HashSet};

use crate::machine::Slot;

/// A point: how many changes come before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Point(u32);

/// The sets of a program.
#[derive(Debug, Default)]
pub(crate) struct Meetings {
    changes: Vec<(Slot, bool)>,
    /// Whole sets, each with the number of changes before it.
    sets: Vec<(u32, Box<[Slot]>)>,
    /// Slots of whole sets.
    whole: usize,
    /// By step at which lanes wait for others.
    steps: HashMap<u32, Point>,
}

impl Meetings {
    /// The set at a point, ascending.
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

    /// The set at a step, none if lanes do not wait there.
    pub(crate) fn at_step(&self, step: u32) -> Box<[Slot]> {
        self.steps.get(&step).map(|&point| self.at(point)).unwrap_or_default()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let whole = self.sets.len() * size_of::<(u32, Box<[Slot]>)>() + self.whole * size_of::<Slot>();
        let steps = self.steps.len() * (size_of::<(u32, Point)>() + 1);
        (self.changes.len() * size_of::<(Slot, bool)>() + whole + steps) as u64
    }
}

/// Writes sets down, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    meetings: Meetings,
    current: HashSet<Slot>,
    /// Changes since the last whole set.
    since: usize,
    /// Elements of sets that were looked at.
    work: u64,
}

impl Recorder {
    /// Changes the set.
    pub(crate) fn set(&mut self, slot: Slot, there: bool) {
        self.work += 1;
        let changed = if there { self.current.insert(slot) } else { self.current.remove(&slot) };
        if changed {
            self.meetings.changes.push((slot, there));
            self.since += 1;
        }
    }

    /// Makes it these slots.
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

    /// The set as it is now, to be found again.
    pub(crate) fn point(&mut self) -> Point {
        let point = Point(self.meetings.changes.len() as u32);
        if self.since > self.current.len() {
            self.work += self.current.len() as u64;
            self.meetings.sets.push((point.0, self.current.iter().copied().collect()));
            self.meetings.whole += self.current.len();
            self.since = 0;
        }
        point
    }

    /// Lanes wait at a step.
    pub(crate) fn step(&mut self, step: u32, point: Point) {
        self.meetings.steps.insert(step, point);
    }

    /// How much work it was so far, and how many bytes it takes.
    pub(crate) fn effort(&self) -> (u64, u64) {
        (self.work, self.meetings.bytes())
    }

    pub(crate) fn finish(self) -> Meetings {
        self.meetings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Layout;

    fn slots(count: usize) -> Vec<Slot> {
        let mut layout = Layout::new();
        (0..count).map(|_| layout.scalar()).collect()
    }

    #[test]
    fn every_set_is_found_again() {
        let slots = slots(40);
        let (mut recorder, mut model, mut wanted) = (Recorder::default(), HashSet::new(), Vec::new());
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
        let meetings = recorder.finish();
        for (point, model) in wanted {
            let mut sorted: Vec<Slot> = model.into_iter().collect();
            sorted.sort_unstable();
            assert_eq!(meetings.at(point)[..], sorted[..]);
        }
    }

    /// Issue 13, point 2: n live registers and n barriers with a change between each two.
    #[test]
    fn many_live_registers_and_barriers_take_work_and_memory_in_proportion() {
        let effort = |n: usize| {
            let slots = slots(n);
            let mut recorder = Recorder::default();
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
