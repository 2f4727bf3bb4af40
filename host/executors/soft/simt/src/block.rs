//! Runs one block: its warps in turn, each until it waits.
//!
//! A warp whose lanes are together is one [`Part`]. Where some of its lanes must wait while others go on (at
//! a barrier, or for lanes that an operation names and that are not all here), the others become a part of
//! their own with a copy of the registers. Parts that meet become one again.

mod barrier;
mod part;

use crate::fault::Fault;
use crate::machine::{
    BARRIERS, BarrierKind, DONE_STAGE, Env, Exit, FIRST_STAGE, Frame, LANES, Part, Slot, State, Variant, Warp,
};

use barrier::{Barrier, operand, reduce};
use part::merge;

/// How a turn of a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// All threads have returned.
    Done,
    /// Warps were preempted, and it is the turn of other blocks.
    Preempted,
}

/// The warps of a block.
#[derive(Debug)]
pub(crate) struct Block {
    parts: Vec<Part>,
    barriers: [Barrier; BARRIERS],
    /// A bit for each barrier at which some thread has arrived.
    used: u32,
    /// Number of warps. The first parts are these, the others have split from them.
    warps: u32,
    /// Number of parts besides the warps themselves that are paid for.
    allowed_parts: usize,
}

impl Block {
    /// A block without warps.
    pub(crate) fn new() -> Self {
        Self {
            parts: Vec::new(),
            barriers: std::array::from_fn(|_| Barrier::default()),
            used: 0,
            warps: 0,
            allowed_parts: 0,
        }
    }

    /// Number of parts of warps for which the block holds memory.
    pub(crate) const fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Notes that `count` parts besides the warps themselves are paid for.
    pub(crate) const fn allow_parts(&mut self, count: usize) {
        self.allowed_parts = count;
    }

    /// Number of parts besides the warps themselves that are paid for.
    pub(crate) const fn allowed_parts(&self) -> usize {
        self.allowed_parts
    }

    /// Bytes of the host's memory that a warp or a part of one takes.
    pub(crate) fn warp_cost(variant: &Variant) -> u64 {
        // Lanes pending, by block of the code.
        Frame::cost(variant.code.layout()) + 4 * variant.blocks.len() as u64 + size_of::<Part>() as u64
    }

    /// Frees all parts, whose frames may be long.
    pub(crate) fn clear(&mut self) {
        self.parts = Vec::new();
    }

    /// Prepares for the blocks of a launch: fills the frames with constants, parameters and thread indices.
    ///
    /// # Errors
    /// The launch was stopped, its time was over, or the host has no memory for the frames.
    pub(crate) fn prepare(&mut self, variant: &Variant, env: &mut Env<'_>) -> Result<(), Fault> {
        let [x, y, z] = env.shape.block;
        self.warps = (x * y * z).div_ceil(LANES as u32);
        self.parts.truncate(self.warps as usize);
        let missing = self.warps as usize - self.parts.len();
        self.parts.extend((0..missing).map(|_| Part::new(Warp::default())));
        // Most of a frame is the same in all warps, and is copied from the first.
        let (first, others) = self.parts.split_first_mut().expect("a block has a warp");
        if !first.warp.reset(variant.code.layout(), 0, variant.blocks.len()) {
            return Err(Fault::OutOfMemory { begun: false });
        }
        variant.fill_launch(&mut first.warp.frame, env);
        for (index, part) in (1..).zip(others) {
            if !part.warp.reset_beside(&first.warp, index) {
                return Err(Fault::OutOfMemory { begun: false });
            }
        }
        for part in &mut self.parts {
            variant.fill_warp(&mut part.warp.frame, part.warp.index, env);
            part.warp.mask = u32::MAX;
            let mut pc = variant.prologue;
            loop {
                variant.code.run(&mut part.warp, env, pc);
                match part.warp.exit {
                    Exit::Fault => return Err(env.fault.take().unwrap_or(Fault::Stopped)),
                    // Warps do not wait for each other here.
                    Exit::Preempted { pc: at } => pc = at,
                    _ => break,
                }
            }
            part.warp.mask = 0;
        }
        for barrier in &mut self.barriers {
            barrier.resize(self.warps as usize);
        }
        Ok(())
    }

    /// Puts all threads of the environment's block at the entry.
    pub(crate) fn start(&mut self, variant: &Variant, env: &Env<'_>) {
        let [x, y, z] = env.shape.block;
        let mut left = x * y * z;
        let (warps, others) = self.parts.split_at_mut(self.warps as usize);
        for part in others {
            part.state = State::Done;
        }
        for (slot, value) in variant.of_block(env.block) {
            for part in &mut *warps {
                part.warp.frame.set(slot, value);
            }
        }
        for part in warps {
            let lanes = left.min(LANES as u32);
            left -= lanes;
            part.warp.start(u32::MAX >> (LANES as u32 - lanes));
            part.state = State::At(variant.blocks[0]);
        }
        for number in ones(std::mem::take(&mut self.used)) {
            self.barriers[number].clear();
        }
    }

    /// Runs until all threads have returned, or a warp was preempted.
    pub(crate) fn run(&mut self, variant: &Variant, env: &mut Env<'_>) -> Result<Turn, Fault> {
        loop {
            let (mut progress, mut preempted) = (false, false);
            let mut index = 0;
            if let Some(first) = self.begin_turns(variant, env) {
                let Some(last) = variant.code.turns(&mut self.parts, env, first) else {
                    self.parts.iter_mut().for_each(|part| part.state = State::Done);
                    return Ok(Turn::Done);
                };
                self.end_turns(last, variant, env)?;
                preempted = self.leave(last, variant, env)?;
                (progress, index) = (true, last + usize::from(preempted));
            }
            // Parts may be added while this runs.
            while index < self.parts.len() {
                let part = &mut self.parts[index];
                let pc = match part.state {
                    State::Ready => part.warp.next(env.blocks),
                    State::At(pc) => pc,
                    _ => {
                        index += 1;
                        continue;
                    }
                };
                progress = true;
                variant.code.run(&mut part.warp, env, pc);
                preempted |= self.leave(index, variant, env)?;
                // A part that may go on at once does so before others, because it is in the cache.
                let again = matches!(self.parts[index].state, State::Ready | State::At(_));
                if !again || preempted {
                    index += 1;
                }
            }
            if preempted {
                return Ok(Turn::Preempted);
            }
            if self.parts.iter().all(|part| matches!(part.state, State::Done)) {
                return Ok(Turn::Done);
            }
            if !progress {
                self.unblock(env)?;
            }
        }
    }

    /// Does what a part has left its run for. Returns whether it was preempted.
    fn leave(&mut self, index: usize, variant: &Variant, env: &mut Env<'_>) -> Result<bool, Fault> {
        let part = &mut self.parts[index];
        match part.warp.exit {
            Exit::Done => {
                part.state = State::Done;
                self.complete(variant, env);
            }
            Exit::Fault => return Err(env.fault.take().unwrap_or(Fault::Stopped)),
            Exit::Preempted { pc } => {
                part.state = State::At(pc);
                return Ok(true);
            }
            Exit::Barrier { block } => {
                self.arrive(index, block, variant, env)?;
                self.complete(variant, env);
            }
            Exit::Meet { pc, wanted } => self.meet(index, pc, wanted, variant, env)?,
        }
        Ok(false)
    }

    /// Prepares for machine code that runs the warps in turns, where that is possible: where they are whole
    /// and none waits. Returns the first that has lanes, and its step.
    fn begin_turns(&mut self, variant: &Variant, env: &mut Env<'_>) -> Option<(usize, u32)> {
        let whole = self.used == 0 && self.parts.len() == self.warps as usize;
        if !whole || !variant.code.takes_turns() {
            return None;
        }
        let mut first = None;
        for (index, part) in self.parts.iter_mut().enumerate() {
            match part.state {
                State::At(pc) => {
                    (part.turn.stage, part.turn.pc) = (FIRST_STAGE, pc);
                    first = first.or(Some((index, pc)));
                }
                State::Done => part.turn.stage = DONE_STAGE,
                _ => return None,
            }
        }
        env.context.begin_turns();
        first
    }

    /// Finds out where the warps stand when turns have ended, besides the one that has left.
    fn end_turns(&mut self, last: usize, variant: &Variant, env: &mut Env<'_>) -> Result<(), Fault> {
        let (stage, arrival) = env.context.turns();
        for index in 0..self.parts.len() {
            let part = &mut self.parts[index];
            if index == last {
                continue;
            }
            if part.turn.stage == stage {
                part.state = State::At(part.turn.pc);
            } else if part.turn.stage == DONE_STAGE {
                part.state = State::Done;
            } else {
                let barrier = (env.barrier, env.barrier_line);
                let (block, step, line) = variant.code.arrival(arrival);
                (env.barrier, env.barrier_line) = (step, line);
                self.arrive(index, block, variant, env)?;
                (env.barrier, env.barrier_line) = barrier;
            }
        }
        Ok(())
    }

    /// Lets lanes that wait for others of their warp go on without them, since no part can go on. If there
    /// are none, the block is stuck.
    fn unblock(&mut self, env: &mut Env<'_>) -> Result<(), Fault> {
        let parked = self.parts.iter_mut().filter_map(|part| match part.state {
            State::Parked { pc } => Some((pc, part)),
            _ => None,
        });
        if let Some((pc, part)) = parked.min_by_key(|(pc, _)| *pc) {
            part.state = State::At(pc);
            env.meet_anyway = Some(pc);
            return Ok(());
        }
        let waiting = self.parts.iter().find_map(|part| match part.state {
            State::Waiting { line, .. } => Some(env.site(&part.warp, line, part.warp.mask)),
            _ => None,
        });
        Err(Fault::BarrierDeadlock { site: waiting.unwrap_or_default() })
    }

    /// Gives the pending lanes of a part to another part: one that has no lanes any more, so that there are
    /// never more parts than lanes, or a new one, which is paid for.
    fn split(&mut self, index: usize, variant: &Variant, env: &Env<'_>) -> Result<(), Fault> {
        if self.parts[index].warp.is_empty() {
            return Ok(());
        }
        let first = self.warps as usize;
        let unused = |part: &Part| matches!(part.state, State::Done);
        let free = self.parts[first..].iter().position(unused).map(|at| first + at);
        let other = if let Some(other) = free.filter(|&other| other != index) {
            let [from, to] = self.parts.get_disjoint_mut([index, other]).expect("two parts");
            to.warp.copy_from(&from.warp);
            other
        } else {
            if self.parts.len() - first >= self.allowed_parts {
                if !env.control.pay(Self::warp_cost(variant)) {
                    return Err(Fault::OutOfMemory { begun: true });
                }
                self.allowed_parts += 1;
            }
            let from = &self.parts[index].warp;
            let mut warp = Warp::default();
            if !warp.reset(variant.code.layout(), from.index, variant.blocks.len()) {
                return Err(Fault::OutOfMemory { begun: true });
            }
            warp.copy_from(from);
            self.parts.push(Part::new(warp));
            self.parts.len() - 1
        };
        self.parts[index].warp.forget_pending();
        let others = &mut self.parts[other];
        others.warp.mask = 0;
        others.warp.exit = Exit::Done;
        others.state = State::Ready;
        Ok(())
    }

    /// Handles a part whose active lanes want to run a step with others of their warp.
    fn meet(
        &mut self,
        index: usize,
        pc: u32,
        wanted: u32,
        variant: &Variant,
        env: &Env<'_>,
    ) -> Result<(), Fault> {
        let warp = self.parts[index].warp.index;
        let here = |part: &Part| part.warp.index == warp && !matches!(part.state, State::Done);
        let alive = self.parts.iter().filter(|part| here(part)).fold(0, |all, part| all | part.warp.lanes());
        for part in self.parts.iter_mut().filter(|part| here(part)) {
            part.warp.alive = alive;
        }
        let mut agreement = None;
        for other in 0..self.parts.len() {
            let same = matches!(self.parts[other].state, State::Parked { pc: at } if at == pc);
            if other != index && same && self.parts[other].warp.index == warp {
                let agreement = agreement.get_or_insert_with(|| variant.reconvergence.at_step(pc));
                merge(&mut self.parts, index, other, &variant.registers, agreement);
            }
        }
        if wanted & alive & !self.parts[index].warp.mask == 0 {
            self.parts[index].state = State::At(pc);
        } else {
            self.split(index, variant, env)?;
            self.parts[index].state = State::Parked { pc };
        }
        Ok(())
    }

    /// Handles a part whose active lanes arrive at a barrier.
    fn arrive(
        &mut self,
        index: usize,
        block: u32,
        variant: &Variant,
        env: &mut Env<'_>,
    ) -> Result<(), Fault> {
        let (step, line) = (env.barrier, env.barrier_line);
        let info = &variant.tables.barriers[step as usize];
        let warp = &self.parts[index].warp;
        let bad = |value| Fault::BadBarrier { value, site: env.site(warp, line, warp.mask) };
        let number = operand(warp, info.number);
        let threads = info.threads.map(|threads| operand(warp, threads));
        if number as usize >= BARRIERS {
            return Err(bad(number));
        }
        if let Some(threads) = threads
            && (threads == 0 || !threads.is_multiple_of(LANES as u32))
        {
            return Err(bad(threads));
        }
        let number = number as usize;
        let lanes = warp.mask;
        self.used |= 1 << number;
        let barrier = &mut self.barriers[number];
        barrier.arrive(warp, threads);
        if let BarrierKind::Reduce { p, xor, .. } = info.kind {
            barrier.count(warp.frame.get::<u32>(p) ^ xor, lanes);
        }
        if matches!(info.kind, BarrierKind::Arrive) {
            let warp = &mut self.parts[index].warp;
            warp.put(block, lanes);
            self.parts[index].state = State::Ready;
        } else {
            self.split(index, variant, env)?;
            self.parts[index].state = State::Waiting { number, step, block, line };
        }
        Ok(())
    }

    /// Releases the barriers at which all threads have arrived.
    fn complete(&mut self, variant: &Variant, env: &Env<'_>) {
        for number in ones(self.used) {
            if self.barriers[number].is_complete(&self.parts, env.shape.block) {
                self.release(number, variant);
            }
        }
    }

    /// Lets the threads go on that wait at a barrier.
    fn release(&mut self, number: usize, variant: &Variant) {
        let votes = self.barriers[number].votes();
        self.barriers[number].clear();
        self.used &= !(1 << number);
        if self.parts.len() > self.warps as usize {
            self.reunite(number, variant);
        }
        for part in &mut self.parts {
            let State::Waiting { number: at, step, block, .. } = part.state else { continue };
            if at != number {
                continue;
            }
            if let BarrierKind::Reduce { op, dst, .. } = variant.tables.barriers[step as usize].kind {
                reduce(&mut part.warp, op, dst, votes);
            }
            if part.warp.is_empty() {
                part.state = State::At(variant.blocks[block as usize]);
            } else {
                let lanes = std::mem::take(&mut part.warp.mask);
                part.warp.put(block, lanes);
                part.state = State::Ready;
            }
        }
    }

    /// Makes one of the parts of each warp that wait at the same instruction of a barrier.
    fn reunite(&mut self, number: usize, variant: &Variant) {
        let place = |part: &Part| match part.state {
            State::Waiting { number: at, step, block, .. } if at == number => Some((step, block)),
            _ => None,
        };
        // Parts of different warps mostly meet behind the same barrier.
        let mut agreement: Option<(u32, Box<[Slot]>)> = None;
        for index in 0..self.parts.len() {
            let Some((step, block)) = place(&self.parts[index]) else { continue };
            for other in index + 1..self.parts.len() {
                let same = place(&self.parts[other]) == Some((step, block));
                if !same || self.parts[other].warp.index != self.parts[index].warp.index {
                    continue;
                }
                if agreement.as_ref().is_none_or(|(of, _)| *of != step) {
                    let point = variant.tables.barriers[step as usize].agreement;
                    agreement = Some((step, variant.reconvergence.at(point)));
                }
                let slots = agreement.as_ref().map(|(_, slots)| &slots[..]).unwrap_or_default();
                merge(&mut self.parts, index, other, &variant.registers, slots);
            }
        }
    }
}

/// The indices of the bits that are set.
fn ones(bits: u32) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(bits), |rest| Some(rest & rest.wrapping_sub(1)))
        .take_while(|rest| *rest != 0)
        .map(|rest| rest.trailing_zeros() as usize)
}
