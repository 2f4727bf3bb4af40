//! Which VM's work a GPU carries out, and when: a weighted round robin with deficits, in simulated or real
//! time. It reads no clock and calls nobody; the node process tells it what devices answer, and passes its
//! orders on.
//!
//! Time is granted in slices. A VM has a *tag*, the time that it has used divided by its weight, and the VM
//! with the smallest tag is granted the next slice. Time that it uses beyond its slice makes its tag larger,
//! which is its debt: it waits until the others have had as much. (A deficit round robin whose deficits are
//! kept as start tags, as in start-time fair queueing, so that weights need no rounds.)
//!
//! A VM that returns after a pause, and has not had more than its share, is next: its work waits for the
//! slice in progress and not for a whole round. A pause saves up one slice at most.
//!
//! All time is charged to somebody, by the clock of the node process. A device only says whether it has work
//! and whether work is in flight, so one that says the wrong thing uses up its own share.

mod account;
mod turn;
mod vm;

use std::collections::BTreeMap;
use std::time::Duration;

pub use account::{Account, OVERRUN_BOUNDS, Overrun, Overruns};
pub use turn::{Answer, Mode, Order, TURN_MASK};
use vm::Vm;

/// Usual length of a slice.
pub const SLICE: Duration = Duration::from_millis(5);
/// Number of slices for which the work of an ended slice is waited for. Then others are granted beside it.
const PATIENCE: u64 = 2;
/// Time for which a VM that is alone is kept ready for company after another VM has had work, in
/// nanoseconds: its work in flight stays bounded.
const COMPANY: u64 = 1_000_000_000;
/// Largest debt in nanoseconds of the VM's own time. One long kernel must not shut a VM out for minutes.
const DEBT_MOST: u64 = 2_000_000_000;
/// Units of a tag in one nanosecond of a VM of weight 1.
const UNITS: u64 = 1 << 6;

/// The VM that has the GPU's slice.
#[derive(Clone, Copy, Debug)]
struct Turn {
    vm: usize,
    /// Start of the slice.
    since: u64,
    /// Time at which the slice ended, if its work is still in flight.
    ended: Option<u64>,
}

/// The scheduler of one GPU. All times are nanoseconds of one clock that never goes back.
#[derive(Debug)]
pub struct Scheduler {
    slice: u64,
    now: u64,
    /// Mean tag of the VMs that have work, against which debts are counted. It never decreases.
    tag: u64,
    vms: BTreeMap<usize, Vm>,
    turn: Option<Turn>,
    /// Number of grants so far, which orders VMs of equal tags.
    grants: u64,
    overruns: Vec<Overrun>,
}

impl Scheduler {
    /// Creates the scheduler of a GPU without VMs.
    #[must_use]
    pub const fn new(slice: Duration, now: u64) -> Self {
        let slice = slice.as_nanos() as u64;
        Self { slice, now, tag: 0, vms: BTreeMap::new(), turn: None, grants: 0, overruns: Vec::new() }
    }

    /// Adds a VM, by the number of its slot, or changes the weight of one. A weight of 0 counts as 1.
    pub fn join(&mut self, now: u64, vm: usize, weight: u32) {
        self.advance(now);
        let (weight, tag) = (u64::from(weight.max(1)), self.tag);
        self.vms.entry(vm).or_insert_with(|| Vm::new(tag)).weight = weight;
        self.decide();
    }

    /// Removes a VM, because its device is gone.
    pub fn leave(&mut self, now: u64, vm: usize) {
        self.advance(now);
        self.vms.remove(&vm);
        self.turn = self.turn.filter(|turn| turn.vm != vm);
        self.decide();
    }

    /// Takes the answer of a VM's device. Answers of VMs that have not joined are ignored.
    pub fn answer(&mut self, now: u64, vm: usize, answer: Answer) {
        self.advance(now);
        let (tag, slice) = (self.tag, self.slice);
        let Some(state) = self.vms.get_mut(&vm) else { return };
        if !state.is_active() && (answer.work || answer.in_flight) {
            state.returns(now, tag, slice);
        }
        if let Some(overrun) = state.answered(now, answer) {
            self.overruns.push(Overrun { vm, nanoseconds: overrun });
        }
        self.decide();
    }

    /// Lets time pass, so that slices end.
    pub fn tick(&mut self, now: u64) {
        self.advance(now);
        self.decide();
    }

    /// Returns the order that a VM's device has to follow.
    #[must_use]
    pub fn order(&self, vm: usize) -> Option<Order> {
        self.vms.get(&vm).map(|vm| vm.order)
    }

    /// Returns what a VM has used so far.
    #[must_use]
    pub fn account(&self, vm: usize) -> Option<Account> {
        self.vms.get(&vm).map(|vm| vm.account)
    }

    /// Returns whether some VM must wait, so that the orders are only valid while somebody follows time.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.vms.values().any(|vm| vm.order.mode == Mode::Shut)
    }

    /// Takes the overruns since the last call: for how long the work of slices went on after they were due to
    /// end.
    pub fn take_overruns(&mut self) -> Vec<Overrun> {
        std::mem::take(&mut self.overruns)
    }

    /// Returns when [`Scheduler::tick`] has to be called next, if no answer arrives before.
    #[must_use]
    pub fn next_tick(&self) -> Option<u64> {
        let active = self.vms.values().filter(|vm| vm.is_active()).count();
        match (self.turn, active) {
            (Some(Turn { ended: Some(ended), .. }), _) => Some(ended + PATIENCE * self.slice),
            (Some(turn), 2..) => Some(self.end_of(turn)),
            (_, 1) => self.company_until().filter(|until| *until > self.now),
            _ => None,
        }
    }

    /// Returns when the slice of a turn ends, so that its work is complete when the slice is due to end.
    fn end_of(&self, turn: Turn) -> u64 {
        let lead = self.vms.get(&turn.vm).map_or(0, |vm| vm.lead(self.slice));
        turn.since + self.slice - lead
    }

    /// Returns until when a lone VM counts as having company.
    fn company_until(&self) -> Option<u64> {
        let idle = self.vms.values().filter(|vm| !vm.is_active());
        idle.filter_map(|vm| vm.worked).max().map(|worked| worked + COMPANY)
    }

    /// Charges the time until `now` to the VMs whose work was in flight, in equal parts, as the driver
    /// shares the GPU.
    fn advance(&mut self, now: u64) {
        let passed = now.saturating_sub(self.now);
        self.now = self.now.max(now);
        let granted = self.turn.map(|turn| turn.vm);
        let runs = |number: &usize, vm: &Vm| granted == Some(*number) || vm.is_in_flight();
        let running = self.vms.iter().filter(|(number, vm)| runs(number, vm)).count() as u64;
        let (tag, now) = (self.tag, self.now);
        for (number, vm) in &mut self.vms {
            if vm.is_active() {
                vm.worked = Some(now);
            }
            if runs(number, vm) {
                vm.charge(passed / running.max(1), tag);
            } else if vm.answer.work && granted.is_some() {
                vm.account.waited_ns += passed;
            }
        }
        self.tag = self.tag.max(self.mean_tag().unwrap_or(0));
    }

    /// Returns the mean tag of the VMs that have work, by their weights. A large debt does not count, because
    /// it must not become that of those who return.
    fn mean_tag(&self) -> Option<u64> {
        let active = || self.vms.values().filter(|vm| vm.is_active());
        let least = active().map(|vm| vm.tag).min()?;
        let ahead = |vm: &Vm| (vm.tag - least).min(vm.units(self.slice)) * vm.weight;
        let (sum, weights) =
            active().fold((0, 0), |(sum, weights), vm| (sum + ahead(vm), weights + vm.weight));
        Some(least + sum / weights)
    }

    /// Decides who may work from now on.
    fn decide(&mut self) {
        let active: Vec<usize> =
            self.vms.iter().filter(|(_, vm)| vm.is_active()).map(|(number, _)| *number).collect();
        match active[..] {
            [] => self.turn = None,
            [only] => self.serve_alone(only),
            _ => self.serve_in_turns(),
        }
        let (granted, tag) = (self.turn.map(|turn| turn.vm), self.tag);
        for (number, vm) in &mut self.vms {
            let shut = if vm.is_active() {
                active.len() > 1 && granted != Some(*number)
            } else {
                // One without work may start at once, and says so; but one in debt has to ask.
                !active.is_empty() && vm.tag > tag
            };
            if shut {
                vm.order(Mode::Shut);
            } else if !vm.is_active() {
                vm.order(Mode::Metered);
            }
        }
    }

    /// Lets the only VM that has work do it: freely, unless another has had work a moment ago.
    fn serve_alone(&mut self, only: usize) {
        let company = self.company_until().is_some_and(|until| until > self.now);
        let fresh = self.turn.is_none_or(|turn| turn.vm != only || turn.ended.is_some());
        let Some(vm) = self.vms.get_mut(&only) else { return };
        if !company && !vm.is_overrunning() {
            vm.order(Mode::Open);
            self.turn = None;
        } else if fresh {
            self.grant(only);
        }
    }

    /// Serves several VMs in turns.
    fn serve_in_turns(&mut self) {
        if self.turn.is_none() {
            // One that worked alone goes on until it has answered. It has had its slice.
            let alone = self.vms.iter().find(|(_, vm)| vm.order.mode == Mode::Open);
            if let Some((&vm, _)) = alone {
                self.grant(vm);
                let since = self.now.saturating_sub(self.slice);
                self.turn = Some(Turn { vm, since, ended: None });
            }
        }
        let Some(turn) = self.turn else { return self.grant_next() };
        let Some(vm) = self.vms.get(&turn.vm).filter(|vm| vm.is_active()) else {
            return self.grant_next();
        };
        let (overran, flying) = (vm.is_overrunning(), vm.is_in_flight());
        match turn.ended {
            None if self.now < self.end_of(turn) => {}
            None if self.next().is_none_or(|next| next == turn.vm) => {
                self.turn = Some(Turn { since: self.now, ..turn });
            }
            None if overran => self.grant_next(),
            None => {
                self.turn = Some(Turn { ended: Some(self.now), ..turn });
                let (now, due) = (self.now, turn.since + self.slice);
                if let Some(vm) = self.vms.get_mut(&turn.vm) {
                    vm.end_slice(now, due);
                }
            }
            Some(_) if !flying => self.grant_next(),
            Some(ended) if self.now >= ended + PATIENCE * self.slice => {
                if let Some(vm) = self.vms.get_mut(&turn.vm) {
                    vm.set_overrunning();
                }
                self.grant_next();
            }
            Some(_) => {}
        }
    }

    /// Returns the VM whose turn is next: of those with work, one that has returned from a pause, or else the
    /// one with the smallest tag, and of equal ones the one that has waited longest.
    fn next(&self) -> Option<usize> {
        let waiting = self.vms.iter().filter(|(_, vm)| vm.may_be_granted());
        let next = waiting.min_by_key(|(_, vm)| (vm.returned.unwrap_or(u64::MAX), vm.tag, vm.granted));
        next.map(|(number, _)| *number)
    }

    /// Grants the next slice.
    fn grant_next(&mut self) {
        self.turn = None;
        if let Some(next) = self.next() {
            self.grant(next);
        }
    }

    fn grant(&mut self, number: usize) {
        self.grants += 1;
        if let Some(vm) = self.vms.get_mut(&number) {
            vm.grant(self.grants);
        }
        self.turn = Some(Turn { vm: number, since: self.now, ended: None });
    }
}
