//! The node process's part for one GPU: it reads the answers of devices, and stores the scheduler's orders.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

use super::clock::Clock;
use super::words::{NodeWords, SlotWords, sleep};
use crate::error::ShareError;
use crate::gpu::GpuShare;
use crate::layout::Figure;
use crate::scheduler::{Account, Answer, Mode, Order, Overrun, Overruns, SLICE, Scheduler, TURN_MASK};
use crate::slot::SlotView;

/// Interval of signs of life while some VM waits, and while none does.
const BEAT: Duration = Duration::from_millis(15);
const QUIET_BEAT: Duration = Duration::from_millis(500);
/// Interval at which slots are looked at for devices that have come or gone.
const MEMBERS: Duration = Duration::from_millis(200);

/// Reason for which the arbiter of a GPU ends.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Another node process arbitrates the GPU.
    #[error("arbitrate the time of {0}: another node process does")]
    Taken(String),
    /// The GPU's file cannot be used.
    #[error(transparent)]
    Share(#[from] ShareError),
}

/// Options of an arbiter.
#[derive(Clone, Copy, Debug)]
pub struct NodeOptions {
    /// Length of a slice.
    pub slice: Duration,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self { slice: SLICE }
    }
}

#[derive(Debug)]
struct Member {
    slot: SlotView,
    process: u64,
    /// Number that is added to those of the scheduler's orders, so that no answer to an earlier node process
    /// is taken for one to this.
    base: u32,
    answer: Answer,
    /// What earlier node processes have counted for this device.
    before: Account,
    /// What was stored last in the slot.
    stored: Account,
    overruns: Overruns,
}

#[derive(Debug)]
struct State {
    clock: Clock,
    scheduler: Scheduler,
    members: BTreeMap<usize, Member>,
}

/// The arbiter of one GPU. Threads that read its figures may share it with the thread that runs it.
#[derive(Debug)]
pub struct Node {
    gpu: GpuShare,
    state: Mutex<State>,
    stop: AtomicBool,
}

impl Node {
    /// Creates the arbiter of a GPU. It does nothing before [`Node::run`].
    #[must_use]
    pub fn new(gpu: GpuShare, options: NodeOptions) -> Arc<Self> {
        let state = State {
            clock: Clock::new(Instant::now()),
            scheduler: Scheduler::new(options.slice, 0),
            members: BTreeMap::new(),
        };
        Arc::new(Self { gpu, state: Mutex::new(state), stop: AtomicBool::new(false) })
    }

    /// Returns the GPU.
    #[must_use]
    pub const fn gpu(&self) -> &GpuShare {
        &self.gpu
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `act` while the arbiter hangs.
    #[cfg(test)]
    pub(crate) fn while_stopped(&self, act: impl FnOnce()) {
        let _state = self.state();
        act();
    }

    /// Ends [`Node::run`], which then opens the gates of all devices.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        NodeWords(&self.gpu).ring();
    }

    /// Arbitrates the GPU's time until [`Node::stop`] is called.
    ///
    /// # Errors
    /// Another node process has this GPU, or its file cannot be used.
    pub fn run(&self) -> Result<(), NodeError> {
        let words = NodeWords(&self.gpu);
        let lock = self.gpu.lock_for_node()?;
        let _lock = lock.ok_or_else(|| NodeError::Taken(self.gpu.uuid().to_string()))?;
        // Timers of a thread are 50 us late unless it sets otherwise. If it may not, it is only slower.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let (mut members_due, mut limit) = (0, 0);
        let mut result = Ok(());
        while !self.stop.load(Ordering::SeqCst) {
            let bell = words.bell().load(Ordering::SeqCst);
            let time = self.state().clock.pass(Instant::now(), Duration::from_nanos(limit));
            words.beat();
            if time >= members_due {
                members_due = time + MEMBERS.as_nanos() as u64;
                result = self.look_for_members(time);
                if result.is_err() {
                    break;
                }
            }
            let mut state = self.state();
            state.advance(time);
            let beat = if state.scheduler.is_contended() { BEAT } else { QUIET_BEAT };
            let next = state
                .scheduler
                .next_tick()
                .map_or(u64::MAX, |tick| tick.saturating_sub(state.clock.at(Instant::now())));
            drop(state);
            let wait = beat.as_nanos() as u64;
            limit = wait.min(next).min(members_due.saturating_sub(time));
            sleep(words.bell(), bell, Duration::from_nanos(limit));
        }
        self.state().release_all();
        words.end();
        Ok(result?)
    }

    /// Adds the devices that have come, and removes those that are gone.
    fn look_for_members(&self, now: u64) -> Result<(), ShareError> {
        let holders = self.gpu.holders()?;
        let mut state = self.state();
        let State { scheduler, members, .. } = &mut *state;
        members.retain(|number, member| {
            let stays = holders.iter().any(|holder| holder.index() == *number)
                && member.slot.figure(Figure::Process) == member.process;
            if !stays {
                scheduler.leave(now, *number);
            }
            stays
        });
        for slot in holders {
            let number = slot.index();
            scheduler.join(now, number, slot.weight());
            members.entry(number).or_insert_with(|| {
                let words = SlotWords(&slot);
                let (base, before) = (words.load_order().1.turn.wrapping_add(1), words.load_account());
                let (process, answer) = (slot.figure(Figure::Process), Answer::default());
                let overruns = words.load_overruns();
                Member { slot, process, base, answer, before, stored: before, overruns }
            });
        }
        Ok(())
    }
}

impl State {
    /// Passes the answers to the scheduler, and its orders to the devices.
    fn advance(&mut self, now: u64) {
        let Self { scheduler, members, .. } = self;
        for (number, member) in members.iter_mut() {
            let mut answer = SlotWords(&member.slot).load_answer();
            answer.turn = answer.turn.wrapping_sub(member.base) & TURN_MASK;
            if answer != member.answer {
                member.answer = answer;
                scheduler.answer(now, *number, answer);
            }
        }
        scheduler.tick(now);
        for (number, member) in members.iter_mut() {
            let words = SlotWords(&member.slot);
            if let Some(Order { turn, mode }) = scheduler.order(*number) {
                let turn = turn.wrapping_add(member.base) & TURN_MASK;
                words.store_order(Order { turn, mode });
            }
            if let Some(account) = scheduler.account(*number) {
                let account = member.before + account;
                words.store_account(member.stored, account);
                member.stored = account;
            }
        }
        for Overrun { vm, nanoseconds } in scheduler.take_overruns() {
            if let Some(member) = members.get_mut(&vm) {
                let before = member.overruns;
                member.overruns.add(nanoseconds);
                SlotWords(&member.slot).store_overruns(&before, &member.overruns);
            }
        }
    }

    /// Opens all gates.
    fn release_all(&mut self) {
        for (number, member) in &self.members {
            let turn = self.scheduler.order(*number).map_or(0, |order| order.turn);
            let turn = turn.wrapping_add(member.base).wrapping_add(1) & TURN_MASK;
            SlotWords(&member.slot).store_order(Order { turn, mode: Mode::Open });
        }
    }
}
