//! The words of the arbiter in a slot, and of the node process in the header. Words of different writers lie
//! in different cache lines.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::thread::futex::{self, Timespec};

use crate::gpu::GpuShare;
use crate::scheduler::{Account, Answer, Mode, Order, Overruns};
use crate::slot::SlotView;

/// Words of a slot.
const ORDER: usize = 0;
const ANSWER: usize = 8;
const FALLBACKS: usize = 9;
const CHARGED: usize = 16;
const WAITED: usize = 17;
/// Sum of all overruns in nanoseconds, and behind it a word for each bucket of them.
const OVERRUNS: usize = 24;
/// Words of the header.
const HEARTBEAT: usize = 0;
const BELL: usize = 8;

/// Bits of a word below the number of the order.
const TURN_SHIFT: u32 = 2;
/// Bits of an answer.
const WORK: u32 = 1;
const IN_FLIGHT: u32 = 2;

/// Sleeps until the word is no longer `value`, but at most for `limit`.
pub(super) fn sleep(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = Timespec::try_from(limit).ok();
    // Not a private futex, because the waker is another process. A signal also ends the wait.
    let _ = futex::wait(word, futex::Flags::empty(), value, limit.as_ref());
}

/// Wakes everybody who sleeps for the word.
pub(super) fn wake(word: &AtomicU32) {
    // A wake of a mapped word does not fail.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

const fn order_word(order: Order) -> u32 {
    order.turn << TURN_SHIFT | order.mode.number()
}

/// Returns the order that a word holds. Any number is one.
const fn order_of(word: u32) -> Order {
    Order { turn: word >> TURN_SHIFT, mode: Mode::from_number(word & 3) }
}

/// The arbiter's words in a slot.
pub(super) struct SlotWords<'a>(pub(super) &'a SlotView);

impl<'a> SlotWords<'a> {
    pub(super) fn order(&self) -> &'a AtomicU32 {
        self.0.arbiter_half(ORDER)
    }

    pub(super) fn load_order(&self) -> (u32, Order) {
        let word = self.order().load(Ordering::Acquire);
        (word, order_of(word))
    }

    /// Stores an order, and wakes the device if it is a new one.
    pub(super) fn store_order(&self, order: Order) {
        let word = order_word(order);
        if self.order().swap(word, Ordering::SeqCst) != word {
            wake(self.order());
        }
    }

    pub(super) fn load_answer(&self) -> Answer {
        let word = self.0.arbiter_half(ANSWER).load(Ordering::Acquire);
        Answer { turn: word >> TURN_SHIFT, work: word & WORK != 0, in_flight: word & IN_FLIGHT != 0 }
    }

    /// Returns how often the device has gone on without a node process.
    pub(super) fn fallbacks(&self) -> &'a AtomicU64 {
        self.0.arbiter_word(FALLBACKS)
    }

    /// Stores what a VM has had, if the words still have what was stored last. Otherwise another device has
    /// taken the slot, whose account begins at 0.
    pub(super) fn store_account(&self, last: Account, now: Account) {
        self.replace(CHARGED, last.charged_ns, now.charged_ns);
        self.replace(WAITED, last.waited_ns, now.waited_ns);
    }

    /// Stores how the VM's slices overran, as [`SlotWords::store_account`] does.
    pub(super) fn store_overruns(&self, last: &Overruns, now: &Overruns) {
        self.replace(OVERRUNS, last.sum_ns, now.sum_ns);
        for (bucket, (last, now)) in last.buckets.iter().zip(&now.buckets).enumerate() {
            self.replace(OVERRUNS + 1 + bucket, *last, *now);
        }
    }

    pub(super) fn load_overruns(&self) -> Overruns {
        let load = |word| self.0.arbiter_word(OVERRUNS + word).load(Ordering::Acquire);
        Overruns { sum_ns: load(0), buckets: std::array::from_fn(|bucket| load(1 + bucket)) }
    }

    /// Replaces a word of this node process if it has the value that was stored last.
    fn replace(&self, word: usize, last: u64, now: u64) {
        if last != now {
            // A failure means that the slot has another device, which is noticed soon.
            let word = self.0.arbiter_word(word);
            let _ = word.compare_exchange(last, now, Ordering::Release, Ordering::Relaxed);
        }
    }

    pub(super) fn load_account(&self) -> Account {
        let load = |word| self.0.arbiter_word(word).load(Ordering::Acquire);
        Account { charged_ns: load(CHARGED), waited_ns: load(WAITED) }
    }
}

impl SlotView {
    /// Returns the time that node processes have charged the VM since its device took the slot, in
    /// nanoseconds. While the VM is alone nothing is charged.
    #[must_use]
    pub fn charged_ns(&self) -> u64 {
        SlotWords(self).load_account().charged_ns
    }

    /// Returns the time for which the VM has had work while a slice of another VM ran, in nanoseconds.
    #[must_use]
    pub fn waited_ns(&self) -> u64 {
        SlotWords(self).load_account().waited_ns
    }

    /// Returns how the VM's slices overran since its device took the slot.
    #[must_use]
    pub fn overruns(&self) -> Overruns {
        SlotWords(self).load_overruns()
    }

    /// Returns how often the device has gone on without the node process, which had ended or hung.
    #[must_use]
    pub fn fallbacks(&self) -> u64 {
        SlotWords(self).fallbacks().load(Ordering::Relaxed)
    }
}

/// Stores a device's answer in its slot, and wakes the node process.
pub fn answer(slot: &SlotView, answer: Answer) {
    let flags = if answer.work { WORK } else { 0 } | if answer.in_flight { IN_FLIGHT } else { 0 };
    slot.arbiter_half(ANSWER).store(answer.turn << TURN_SHIFT | flags, Ordering::Release);
    NodeWords(slot.gpu()).ring();
}

/// The words of the node process.
pub(super) struct NodeWords<'a>(pub(super) &'a GpuShare);

impl<'a> NodeWords<'a> {
    pub(super) fn bell(&self) -> &'a AtomicU32 {
        self.0.node_half(BELL)
    }

    /// Wakes the node process.
    pub(super) fn ring(&self) {
        self.bell().fetch_add(1, Ordering::SeqCst);
        wake(self.bell());
    }

    /// Says that the node process lives.
    pub(super) fn beat(&self) {
        // Only one process beats, and 0 means that it has ended.
        let beat = self.0.node_word(HEARTBEAT);
        beat.store(beat.load(Ordering::Relaxed).wrapping_add(1).max(1), Ordering::Release);
    }

    /// Says that the node process has ended.
    pub(super) fn end(&self) {
        self.0.node_word(HEARTBEAT).store(0, Ordering::Release);
    }

    /// Returns the number of signs of life, which a process that lives changes again and again. It is 0 if
    /// the process has ended in order.
    pub(super) fn beats(&self) -> u64 {
        self.0.node_word(HEARTBEAT).load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_their_word() {
        for mode in [Mode::Open, Mode::Metered, Mode::Shut] {
            let order = Order { turn: 0x3fff_ffff, mode };
            assert_eq!(order_of(order_word(order)), order);
        }
        assert_eq!(order_of(u32::MAX).mode, Mode::Open, "it harms nobody for long");
    }
}
