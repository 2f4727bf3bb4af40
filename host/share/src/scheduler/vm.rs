//! One VM as the scheduler knows it.

use super::account::Account;
use super::turn::{Answer, Mode, Order, TURN_MASK};
use super::{DEBT_MOST, UNITS};

/// State of one VM.
#[derive(Debug)]
pub(super) struct Vm {
    pub(super) weight: u64,
    /// Time used so far, in [`UNITS`] divided by the weight.
    pub(super) tag: u64,
    pub(super) order: Order,
    pub(super) answer: Answer,
    /// Number of the newest grant.
    pub(super) granted: u64,
    /// Time at which the VM returned from a pause without a debt, until it is granted a slice.
    pub(super) returned: Option<u64>,
    /// Time at which the VM last had work while somebody counted.
    pub(super) worked: Option<u64>,
    pub(super) account: Account,
    /// Whether the newest order was given to a VM that was working, and is not answered.
    unsure: bool,
    /// The slice whose work is still in flight: when it was ended, and when it was due to end.
    ended: Option<(u64, u64)>,
    /// Mean time for which work goes on after a slice was ended, of the last few slices.
    tail: u64,
    /// Whether the work of a slice has taken so long that others are granted beside it.
    overrunning: bool,
}

impl Vm {
    /// Creates a VM that has no work.
    pub(super) fn new(tag: u64) -> Self {
        Self {
            weight: 1,
            tag,
            order: Order { turn: 0, mode: Mode::Metered },
            answer: Answer::default(),
            granted: 0,
            returned: None,
            worked: None,
            account: Account::default(),
            unsure: false,
            ended: None,
            tail: 0,
            overrunning: false,
        }
    }

    /// Returns by how much a slice is ended before it is due, so that the work that is in flight then ends
    /// with it. It is half a slice at most.
    pub(super) fn lead(&self, slice: u64) -> u64 {
        self.tail.min(slice / 2)
    }

    /// Returns whether the VM may have work on the GPU.
    pub(super) const fn is_in_flight(&self) -> bool {
        self.answer.in_flight || self.unsure
    }

    /// Returns whether the VM has work or may have some. One that is alone does not say.
    pub(super) fn is_active(&self) -> bool {
        self.answer.work || self.is_in_flight() || self.order.mode == Mode::Open
    }

    /// Returns whether the VM's work has taken so long that others are granted beside it.
    pub(super) const fn is_overrunning(&self) -> bool {
        self.overrunning
    }

    /// Returns whether a slice would be of use. A device that does not answer, such as a stopped process,
    /// gets none.
    pub(super) const fn may_be_granted(&self) -> bool {
        self.answer.work && !(self.overrunning && self.unsure)
    }

    /// Changes the order.
    pub(super) fn order(&mut self, mode: Mode) {
        let before = self.order.mode;
        if before == mode {
            return;
        }
        self.order = Order { turn: self.order.turn.wrapping_add(1) & TURN_MASK, mode };
        // One that has been alone may have any work in flight.
        self.unsure |= before == Mode::Open;
        if mode == Mode::Open {
            self.unsure = false;
            self.answer = Answer::default();
        }
    }

    /// Grants the VM a slice, which is the grant with this number.
    pub(super) fn grant(&mut self, number: u64) {
        self.granted = number;
        self.returned = None;
        if !self.overrunning {
            self.ended = None;
        }
        self.order(Mode::Metered);
    }

    /// Ends the VM's slice, which is due to end at `due`.
    pub(super) fn end_slice(&mut self, now: u64, due: u64) {
        self.order(Mode::Shut);
        self.unsure = true;
        self.ended = Some((now, due));
    }

    pub(super) fn set_overrunning(&mut self) {
        self.overrunning = true;
    }

    /// Records that the VM has work again. It has saved up `slice` nanoseconds at most.
    pub(super) fn returns(&mut self, now: u64, present: u64, slice: u64) {
        self.worked = Some(now);
        self.returned = (self.tag <= present).then_some(now);
        self.tag = self.tag.max(present.saturating_sub(self.units(slice)));
    }

    /// Returns by how much the tag of this VM grows in a time.
    pub(super) const fn units(&self, time: u64) -> u64 {
        time * UNITS / self.weight
    }

    /// Takes an answer of the device. Returns for how long the work of an ended slice went on after it was
    /// due to end, once that work is complete.
    pub(super) fn answered(&mut self, now: u64, answer: Answer) -> Option<u64> {
        if self.order.mode == Mode::Open {
            return None;
        }
        self.unsure &= answer.turn != self.order.turn;
        self.answer = answer;
        if self.is_in_flight() {
            return None;
        }
        let overran = std::mem::replace(&mut self.overrunning, false);
        let (ended, due) = self.ended.take()?;
        if !overran {
            self.tail = (3 * self.tail + now.saturating_sub(ended)) / 4;
        }
        Some(now.saturating_sub(due))
    }

    /// Charges time. `present` is the tag from which debts are counted.
    pub(super) fn charge(&mut self, time: u64, present: u64) {
        self.tag = (self.tag + self.units(time)).min(present.saturating_add(self.units(DEBT_MOST)));
        // Nobody knows how much of its time one that is alone uses.
        if self.order.mode != Mode::Open {
            self.account.charged_ns += time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At two orders for each slice a month passes before the numbers start again.
    #[test]
    fn answers_are_recognised_when_the_numbers_of_orders_start_again() {
        let mut vm = Vm::new(0);
        vm.order.turn = TURN_MASK - 1;
        for round in 0..4 {
            vm.end_slice(round, round);
            assert!(vm.is_in_flight(), "the order is not answered");
            // The answer comes in a word, as the order did.
            let turn = vm.order.turn & TURN_MASK;
            vm.answered(round, Answer { turn, work: true, in_flight: false });
            assert!(!vm.is_in_flight(), "{:?} is answered", vm.order);
            vm.grant(round);
        }
        assert!(vm.order.turn < 8);
    }
}
