//! A device's part: it follows the orders of the node process for as long as that lives.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::words::{NodeWords, SlotWords, sleep, wake};
use crate::gpu::GpuShare;
use crate::scheduler::{Mode, Order};
use crate::slot::SlotView;

/// Age of the newest sign of life at which the node process counts as gone, while messages wait for it.
pub(super) const SILENCE_MOST: Duration = Duration::from_millis(60);
/// The same while no message waits. The node process then has nothing to do, and wakes seldom.
const QUIET_MOST: Duration = Duration::from_secs(3);
/// Interval at which signs of life are looked at.
const LOOK: Duration = Duration::from_millis(20);
const QUIET_LOOK: Duration = Duration::from_millis(500);

/// What changes for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderChange {
    /// It has to follow this order.
    Order(Order),
    /// The node process is gone, after it had given orders. Messages pass.
    Alone(Order),
}

/// Ends [`follow`] from another thread.
#[derive(Clone, Debug)]
pub struct FollowEnd(SlotView);

impl FollowEnd {
    /// Wakes the thread, whose `goes_on` then returns false.
    pub fn wake(&self) {
        wake(SlotWords(&self.0).order());
    }
}

/// The orders of one slot.
#[derive(Debug)]
pub struct OrderFollower {
    slot: SlotView,
    /// The order that is followed, or `None` without a node process.
    followed: Option<Order>,
    /// Number of signs of life that was seen last, and when it had changed.
    beats: u64,
    beaten: Option<Instant>,
}

impl OrderFollower {
    /// Returns the follower of a slot that this process has taken.
    #[must_use]
    pub fn new(slot: SlotView) -> Self {
        let beats = NodeWords(slot.gpu()).beats();
        Self { slot, followed: None, beats, beaten: None }
    }

    /// Returns what has changed at the time `now`, if anything has.
    fn step(&mut self, now: Instant) -> Option<OrderChange> {
        let (_, order) = SlotWords(&self.slot).load_order();
        if self.is_alive(now) {
            let new = self.followed.replace(order) != Some(order);
            return new.then_some(OrderChange::Order(order));
        }
        let before = self.followed.take()?;
        SlotWords(&self.slot).fallbacks().fetch_add(1, Ordering::Relaxed);
        Some(OrderChange::Alone(Order { mode: Mode::Open, ..before }))
    }

    /// Returns whether the node process lives, as far as can be told at the time `now`.
    fn is_alive(&mut self, now: Instant) -> bool {
        let beats = NodeWords(self.slot.gpu()).beats();
        if self.beats != beats {
            self.beats = beats;
            self.beaten = Some(now);
        }
        let limit = match self.followed {
            Some(Order { mode: Mode::Open | Mode::Metered, .. }) => QUIET_MOST,
            Some(Order { mode: Mode::Shut, .. }) | None => SILENCE_MOST,
        };
        beats != 0 && self.beaten.is_some_and(|beaten| now.duration_since(beaten) < limit)
    }
}

/// Follows the node process's orders: calls `act` for each change, until `goes_on` returns false.
pub fn follow(mut follower: OrderFollower, goes_on: impl Fn() -> bool, mut act: impl FnMut(OrderChange)) {
    while goes_on() {
        let (word, _) = SlotWords(&follower.slot).load_order();
        if let Some(step) = follower.step(Instant::now()) {
            act(step);
            continue;
        }
        let shut = matches!(follower.followed, Some(Order { mode: Mode::Shut, .. }));
        let limit = if shut { LOOK } else { QUIET_LOOK };
        sleep(SlotWords(&follower.slot).order(), word, limit);
    }
}

impl SlotView {
    /// Returns what wakes the thread that follows the orders of this slot.
    #[must_use]
    pub fn follow_end(&self) -> FollowEnd {
        FollowEnd(self.clone())
    }
}

impl GpuShare {
    /// Returns the number of signs of life of the node process, which changes at least twice a second while
    /// it runs. It is 0 if the process has ended in order.
    #[must_use]
    pub fn node_beats(&self) -> u64 {
        NodeWords(self).beats()
    }
}
