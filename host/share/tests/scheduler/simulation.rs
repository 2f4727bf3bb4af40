//! A GPU, its VMs and the scheduler, in steps of simulated time.

use std::collections::VecDeque;
use std::time::Duration;

use vgpu_share::scheduler::{Answer, Mode, Order, SLICE, Scheduler};

/// Length of a step in nanoseconds.
pub const STEP: u64 = 40_000;
/// Steps that an order or an answer is on its way.
const HOPS: usize = 1;
/// Work that a metered device keeps in flight, in nanoseconds, if its kernels are that short.
const IN_FLIGHT: u64 = 4_000_000;

/// What a VM does.
#[derive(Clone, Copy, Debug)]
pub enum Habit {
    /// It always has work, in kernels of this length.
    Busy(u64),
    /// It has `work`, in one kernel, whenever `pause` has passed since the last one was complete.
    Light { work: u64, pause: u64 },
    /// It has one kernel that never ends.
    Endless,
    /// It claims to have work, and does none.
    Boasts,
    /// It claims that its work never ends, and does none.
    Stalls,
    /// It is always busy, and its device stops answering at this time.
    Hangs(u64),
    /// It is always busy, and leaves and returns whenever this time has passed.
    Visits(u64),
}

#[derive(Debug)]
pub struct Vm {
    pub habit: Habit,
    pub weight: u32,
    /// Work on the GPU, as the kernels' remaining time, and its sum.
    kernels: VecDeque<u64>,
    queued: u64,
    /// The newest answer that has arrived.
    told: Answer,
    orders: VecDeque<Order>,
    answers: VecDeque<Answer>,
    order: Order,
    idle_since: u64,
    present: bool,
    /// GPU time that the VM has had.
    pub used: u64,
    /// Times from when a light VM had work until it was complete.
    pub waits: Vec<u64>,
    asked: Option<u64>,
}

impl Vm {
    fn new(habit: Habit, weight: u32) -> Self {
        Self {
            habit,
            weight,
            kernels: VecDeque::new(),
            queued: 0,
            told: Answer::default(),
            orders: VecDeque::from(vec![Order { turn: 0, mode: Mode::Metered }; HOPS]),
            answers: VecDeque::from(vec![Answer::default(); HOPS]),
            order: Order::default(),
            idle_since: 0,
            present: true,
            used: 0,
            waits: Vec::new(),
            asked: None,
        }
    }

    /// Has the device follow its order: it gives the GPU work that may be in flight, and answers.
    fn follow(&mut self, now: u64) -> Answer {
        let turn = self.order.turn;
        let open = self.order.mode != Mode::Shut;
        let length = match self.habit {
            Habit::Busy(length) => Some(length),
            Habit::Hangs(_) | Habit::Visits(_) => Some(1_000_000),
            Habit::Endless => Some(u64::MAX / 4),
            Habit::Light { work, pause } => {
                (self.asked.is_some() || now >= self.idle_since + pause).then_some(work)
            }
            Habit::Boasts => return Answer { turn, work: true, in_flight: false },
            Habit::Stalls => return Answer { turn, work: true, in_flight: true },
        };
        let Some(length) = length else { return Answer { turn, work: false, in_flight: false } };
        let single = matches!(self.habit, Habit::Light { .. } | Habit::Endless);
        if single {
            self.asked.get_or_insert(now);
        }
        let most = if self.order.mode == Mode::Open { 4 * IN_FLIGHT } else { IN_FLIGHT };
        while open && (self.kernels.is_empty() || (!single && self.queued + length <= most)) {
            self.kernels.push_back(length);
            self.queued += length;
        }
        let work = !single || self.kernels.is_empty();
        Answer { turn, work, in_flight: !self.kernels.is_empty() }
    }

    /// Gives the VM a part of a step of GPU time.
    fn run(&mut self, mut time: u64, now: u64) {
        while let Some(first) = self.kernels.front_mut() {
            let part = time.min(*first);
            *first -= part;
            time -= part;
            self.used += part;
            self.queued -= part;
            if *first != 0 {
                return;
            }
            self.kernels.pop_front();
            if let Some(asked) = self.asked.take() {
                self.waits.push(now - asked);
                self.idle_since = now;
            }
        }
    }
}

pub struct Simulation {
    pub scheduler: Scheduler,
    pub vms: Vec<Vm>,
    pub now: u64,
}

impl Simulation {
    pub fn new(vms: impl IntoIterator<Item = (Habit, u32)>) -> Self {
        let mut scheduler = Scheduler::new(SLICE, 0);
        let vms: Vec<Vm> = vms.into_iter().map(|(habit, weight)| Vm::new(habit, weight)).collect();
        for (number, vm) in vms.iter().enumerate() {
            scheduler.join(0, number, vm.weight);
        }
        Self { scheduler, vms, now: 0 }
    }

    fn step(&mut self) {
        self.now += STEP;
        let running = self.vms.iter().filter(|vm| !vm.kernels.is_empty()).count() as u64;
        for vm in self.vms.iter_mut().filter(|vm| !vm.kernels.is_empty()) {
            vm.run(STEP / running, self.now);
        }
        for (number, vm) in self.vms.iter_mut().enumerate() {
            if let Habit::Visits(time) = vm.habit {
                let present = (self.now / time).is_multiple_of(2);
                if present != vm.present {
                    vm.present = present;
                    if present {
                        *vm = Vm { used: vm.used, ..Vm::new(vm.habit, vm.weight) };
                        self.scheduler.join(self.now, number, vm.weight);
                    } else {
                        vm.kernels.clear();
                        vm.queued = 0;
                        self.scheduler.leave(self.now, number);
                    }
                }
            }
            if !vm.present {
                continue;
            }
            if let Some(order) = self.scheduler.order(number) {
                vm.orders.push_back(order);
            }
            let order = vm.orders.pop_front().unwrap_or_default();
            let hangs = matches!(vm.habit, Habit::Hangs(at) if self.now >= at);
            if !hangs {
                vm.order = order;
                let answer = vm.follow(self.now);
                vm.answers.push_back(answer);
                if let Some(answer) = vm.answers.pop_front().filter(|answer| *answer != vm.told) {
                    vm.told = answer;
                    self.scheduler.answer(self.now, number, answer);
                }
            }
        }
        if self.scheduler.next_tick().is_some_and(|tick| tick <= self.now) {
            self.scheduler.tick(self.now);
        }
    }

    /// Runs for a time, and returns the GPU time that each VM had in it.
    pub fn run(&mut self, time: Duration) -> Vec<u64> {
        let before: Vec<u64> = self.vms.iter().map(|vm| vm.used).collect();
        let end = self.now + time.as_nanos() as u64;
        while self.now < end {
            self.step();
        }
        self.vms.iter().zip(before).map(|(vm, before)| vm.used - before).collect()
    }

    /// Like [`Simulation::run`], with each VM's part of the time.
    pub fn shares(&mut self, time: Duration) -> Vec<f64> {
        self.run(time).iter().map(|used| Duration::from_nanos(*used).div_duration_f64(time)).collect()
    }
}
