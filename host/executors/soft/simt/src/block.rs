//! Runs the warps of one block, each until it has to wait.
//!
//! A warp whose lanes run together is one [`WarpSplit`]. If some of its lanes must wait while others continue
//! (at a barrier, or for lanes that an instruction names), the others become a split of their own with a copy
//! of the registers. So do pending lanes that have not run while the others went through a loop in which they
//! may wait for them. Splits take turns, and those that reach the same instruction are merged again.

mod barrier;
mod meeting;
mod merge;

use crate::fault::Fault;
use crate::machine::{
    BARRIERS, BarrierKind, DONE_STAGE, Env, Exit, FIRST_STAGE, Frame, LANES, Slot, SplitState, Variant, Warp,
    WarpSplit,
};

use barrier::{Barrier, alike, operand, reduce};
use merge::merge_splits;

/// Reason why [`Block::run_warps`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockStatus {
    /// All threads of the block have returned.
    Done,
    /// A warp has used up its fuel. If blocks may wait for each other, the caller runs other blocks first.
    Preempted,
}

/// The warps of a block, their splits and the block's barriers.
#[derive(Debug)]
pub(crate) struct Block {
    splits: Vec<WarpSplit>,
    barriers: [Barrier; BARRIERS],
    /// Bit mask of the barriers in use: those at which threads wait or have arrived.
    used: u32,
    /// Number of warps. The first splits in the list are the warps themselves; later ones were split off.
    warps: u32,
    /// Number of splits besides the warps whose memory has been charged.
    allowed_splits: usize,
}

impl Block {
    /// Returns a block without warps. [`Block::prepare`] makes them.
    pub(crate) fn new() -> Self {
        Self {
            splits: Vec::new(),
            barriers: std::array::from_fn(|_| Barrier::default()),
            used: 0,
            warps: 0,
            allowed_splits: 0,
        }
    }

    /// Returns the number of splits for which the block holds memory, the warps included.
    pub(crate) const fn splits(&self) -> usize {
        self.splits.len()
    }

    /// Records that `count` splits besides the warps have been charged by another thread.
    pub(crate) const fn allow_splits(&mut self, count: usize) {
        self.allowed_splits = count;
    }

    /// Returns the number of splits besides the warps whose memory has been charged.
    pub(crate) const fn allowed_splits(&self) -> usize {
        self.allowed_splits
    }

    /// Returns the host memory in bytes that a warp, or a split of one, takes.
    pub(crate) fn warp_cost(variant: &Variant) -> u64 {
        // The pending masks take four bytes for each block of the code.
        Frame::cost(variant.code.layout()) + 4 * variant.blocks.len() as u64 + size_of::<WarpSplit>() as u64
    }

    /// Frees the memory of all splits and of their frames.
    pub(crate) fn clear(&mut self) {
        self.splits = Vec::new();
    }

    /// Prepares for the blocks of a launch: fills the frames with constants, parameters and thread indices.
    ///
    /// # Errors
    ///
    /// Fails if the launch was stopped or timed out, or if the host has no memory for the frames.
    pub(crate) fn prepare(&mut self, variant: &Variant, env: &mut Env<'_>) -> Result<(), Fault> {
        let [x, y, z] = env.shape.block;
        self.warps = (x * y * z).div_ceil(LANES as u32);
        self.splits.truncate(self.warps as usize);
        let missing = self.warps as usize - self.splits.len();
        self.splits.extend((0..missing).map(|_| WarpSplit::new(Warp::default())));
        // Most of a frame is the same in all warps, so it is copied from the first.
        let (first, others) = self.splits.split_first_mut().expect("a block has a warp");
        if !first.warp.reset(variant.code.layout(), 0, variant.blocks.len()) {
            return Err(Fault::OutOfMemory { begun: false });
        }
        variant.fill_launch(&mut first.warp.frame, env);
        for (index, split) in (1..).zip(others) {
            if !split.warp.reset_beside(&first.warp, index) {
                return Err(Fault::OutOfMemory { begun: false });
            }
        }
        for split in &mut self.splits {
            variant.fill_warp(&mut split.warp.frame, split.warp.index, env);
            split.warp.mask = u32::MAX;
            let mut pc = variant.prologue;
            loop {
                variant.code.run_warp(&mut split.warp, env, pc);
                match split.warp.exit {
                    Exit::Fault => return Err(env.fault.take().unwrap_or(Fault::Stopped)),
                    // Warps do not wait for each other in the prologue.
                    Exit::Preempted { pc: at, .. } => pc = at,
                    _ => break,
                }
            }
            split.warp.mask = 0;
        }
        for barrier in &mut self.barriers {
            barrier.resize(self.warps as usize);
        }
        Ok(())
    }

    /// Moves all threads of the block `env.block` to the kernel's entry, and clears its barriers.
    pub(crate) fn start(&mut self, variant: &Variant, env: &Env<'_>) {
        let [x, y, z] = env.shape.block;
        let mut left = x * y * z;
        let (warps, others) = self.splits.split_at_mut(self.warps as usize);
        for split in others {
            split.state = SplitState::Done;
        }
        for (slot, value) in variant.of_block(env.block) {
            for split in &mut *warps {
                split.warp.frame.set(slot, value);
            }
        }
        for split in warps {
            let lanes = left.min(LANES as u32);
            left -= lanes;
            split.warp.start(u32::MAX >> (LANES as u32 - lanes));
            split.state = SplitState::At(variant.blocks[0]);
        }
        for number in ones(std::mem::take(&mut self.used)) {
            self.barriers[number].clear();
        }
    }

    /// Runs the block until all threads have returned or a warp is preempted. Fails with the fault of a
    /// thread, or with [`Fault::BarrierDeadlock`] if no thread can continue.
    pub(crate) fn run_warps(&mut self, variant: &Variant, env: &mut Env<'_>) -> Result<BlockStatus, Fault> {
        loop {
            let (mut progress, mut preempted) = (false, false);
            let mut index = 0;
            if let Some(first) = self.enter_scheduler(variant, env) {
                let warps = &mut self.splits[..self.warps as usize];
                let Some(last) = variant.code.schedule_warps(warps, env, first) else {
                    for split in warps {
                        split.state = SplitState::Done;
                    }
                    return Ok(BlockStatus::Done);
                };
                self.leave_scheduler(last, variant, env)?;
                preempted = self.handle_exit(last, variant, env)?;
                (progress, index) = (true, last + usize::from(preempted));
            }
            // Splits may be added while this loop runs.
            while index < self.splits.len() {
                let split = &mut self.splits[index];
                let pc = match split.state {
                    SplitState::Ready => split.warp.next(env.blocks),
                    SplitState::At(pc) => pc,
                    _ => {
                        index += 1;
                        continue;
                    }
                };
                progress = true;
                variant.code.run_warp(&mut split.warp, env, pc);
                preempted |= self.handle_exit(index, variant, env)?;
                // A split that can continue at once does so before others, because it is in the cache.
                let again = matches!(self.splits[index].state, SplitState::Ready | SplitState::At(_));
                if !again || preempted {
                    index += 1;
                }
            }
            if preempted {
                return Ok(BlockStatus::Preempted);
            }
            if self.splits.iter().all(|split| matches!(split.state, SplitState::Done)) {
                return Ok(BlockStatus::Done);
            }
            if !progress && !meeting::give_up(&mut self.splits, variant, env)? {
                return Err(self.deadlock(env));
            }
        }
    }

    /// Handles the stop of a split according to its exit reason. Returns whether the split was preempted.
    fn handle_exit(&mut self, index: usize, variant: &Variant, env: &mut Env<'_>) -> Result<bool, Fault> {
        let split = &mut self.splits[index];
        let warp = split.warp.index;
        let mut preempted = false;
        match split.warp.exit {
            Exit::Done => {
                split.state = SplitState::Done;
                self.complete(variant, env);
            }
            Exit::Fault => return Err(env.fault.take().unwrap_or(Fault::Stopped)),
            Exit::Preempted { pc, starved } => {
                split.state = SplitState::At(pc);
                preempted = true;
                // Without memory for a split, the lanes go on together, and part after a later turn.
                if starved {
                    self.split_off(index, variant, env).ok();
                }
                if self.has_splits() {
                    meeting::count_alive(&mut self.splits, warp);
                    meeting::rejoin(&mut self.splits, index, pc, variant);
                }
            }
            Exit::Barrier { block } => {
                self.arrive(index, block, variant, env)?;
                self.complete(variant, env);
            }
            Exit::Reconverge { pc, wanted } => {
                if meeting::arrive(&mut self.splits, index, (pc, wanted), variant) {
                    self.split_off(index, variant, env)?;
                }
            }
        }
        // Lanes for which others of the warp waited have arrived, or have returned since its last stop.
        if self.has_splits() {
            meeting::release(&mut self.splits, warp, variant, env)?;
        }
        Ok(preempted)
    }

    /// Returns whether there have been splits besides the warps themselves.
    fn has_splits(&self) -> bool {
        self.splits.len() > self.warps as usize
    }

    /// Prepares for the warp scheduler in machine code, which needs whole warps none of which waits. Returns
    /// the first warp with lanes and the instruction at which it continues, or `None` if the scheduler cannot
    /// be used.
    fn enter_scheduler(&mut self, variant: &Variant, env: &mut Env<'_>) -> Option<(usize, u32)> {
        let (warps, others) = self.splits.split_at_mut(self.warps as usize);
        let whole = self.used == 0 && others.iter().all(|split| matches!(split.state, SplitState::Done));
        if !whole || !variant.code.schedules_warps() {
            return None;
        }
        let mut first = None;
        for (index, split) in warps.iter_mut().enumerate() {
            match split.state {
                SplitState::At(pc) => {
                    (split.context.stage, split.context.pc) = (FIRST_STAGE, pc);
                    first = first.or(Some((index, pc)));
                }
                SplitState::Done => split.context.stage = DONE_STAGE,
                _ => return None,
            }
        }
        env.context.reset_scheduler();
        first
    }

    /// Updates the state of all warps after the scheduler has returned, except that of the warp `last`, for
    /// which it returned.
    fn leave_scheduler(&mut self, last: usize, variant: &Variant, env: &mut Env<'_>) -> Result<(), Fault> {
        let (stage, arrival) = env.context.sweep();
        for index in 0..self.warps as usize {
            let split = &mut self.splits[index];
            if index == last {
                continue;
            }
            if split.context.stage == stage {
                split.state = SplitState::At(split.context.pc);
            } else if split.context.stage == DONE_STAGE {
                split.state = SplitState::Done;
            } else {
                let barrier = (env.barrier, env.barrier_line);
                let (block, inst, line) = variant.code.arrival(arrival);
                (env.barrier, env.barrier_line) = (inst, line);
                self.arrive(index, block, variant, env)?;
                (env.barrier, env.barrier_line) = barrier;
            }
        }
        Ok(())
    }

    /// Returns the fault of a block in which no thread can continue.
    fn deadlock(&self, env: &Env<'_>) -> Fault {
        let waiting = self.splits.iter().find_map(|split| match split.state {
            SplitState::AtBarrier { line, .. } => Some(env.site(&split.warp, line, split.warp.mask)),
            _ => None,
        });
        Fault::BarrierDeadlock { site: waiting.unwrap_or_default() }
    }

    /// Moves the pending lanes of a split to another one.
    fn split_off(&mut self, index: usize, variant: &Variant, env: &Env<'_>) -> Result<(), Fault> {
        if self.splits[index].warp.is_empty() {
            return Ok(());
        }
        let other = self.copy(index, variant, env)?;
        self.splits[index].warp.forget_pending();
        let others = &mut self.splits[other];
        others.warp.mask = 0;
        others.warp.exit = Exit::Done;
        others.state = SplitState::Ready;
        Ok(())
    }

    /// Copies the lanes of a split to another one, whose index is returned, for a part of them. Unused splits
    /// are reused, so that a warp never has more splits than lanes; a new one is charged.
    fn copy(&mut self, index: usize, variant: &Variant, env: &Env<'_>) -> Result<usize, Fault> {
        let first = self.warps as usize;
        let unused = |split: &WarpSplit| matches!(split.state, SplitState::Done);
        let free = self.splits[first..].iter().position(unused).map(|at| first + at);
        let other = if let Some(other) = free.filter(|&other| other != index) {
            let [from, to] = self.splits.get_disjoint_mut([index, other]).expect("two splits");
            to.warp.copy_from(&from.warp);
            other
        } else {
            if self.splits.len() - first >= self.allowed_splits {
                if !env.control.charge(Self::warp_cost(variant)) {
                    return Err(Fault::OutOfMemory { begun: true });
                }
                self.allowed_splits += 1;
            }
            let from = &self.splits[index].warp;
            let mut warp = Warp::default();
            if !warp.reset(variant.code.layout(), from.index, variant.blocks.len()) {
                return Err(Fault::OutOfMemory { begun: true });
            }
            warp.copy_from(from);
            self.splits.push(WarpSplit::new(warp));
            self.splits.len() - 1
        };
        Ok(other)
    }

    /// Handles a split whose active lanes arrive at a barrier.
    fn arrive(
        &mut self,
        index: usize,
        block: u32,
        variant: &Variant,
        env: &mut Env<'_>,
    ) -> Result<(), Fault> {
        let (inst, line) = (env.barrier, env.barrier_line);
        let info = &variant.tables.barriers[inst as usize];
        let lanes = alike(&self.splits[index].warp, [info.number].into_iter().chain(info.threads));
        if lanes != self.splits[index].warp.mask {
            // The other lanes arrive at another barrier: they execute the instruction, which ends the block
            // before, for themselves.
            self.split_off(index, variant, env)?;
            let other = self.copy(index, variant, env)?;
            self.splits[index].warp.mask = lanes;
            let others = &mut self.splits[other];
            others.warp.mask &= !lanes;
            others.state = SplitState::At(variant.blocks[block as usize] - 1);
        }
        let warp = &self.splits[index].warp;
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
            let warp = &mut self.splits[index].warp;
            warp.put(block, lanes);
            self.splits[index].state = SplitState::Ready;
        } else {
            self.split_off(index, variant, env)?;
            self.splits[index].state = SplitState::AtBarrier { number, inst, block, line };
        }
        Ok(())
    }

    /// Releases the barriers at which all expected threads have arrived.
    fn complete(&mut self, variant: &Variant, env: &Env<'_>) {
        for number in ones(self.used) {
            if self.barriers[number].is_complete(&self.splits, env.shape.block) {
                self.release(number, variant);
            }
        }
    }

    /// Lets the threads that wait at a barrier continue, and writes the result of `bar.red`.
    fn release(&mut self, number: usize, variant: &Variant) {
        let votes = self.barriers[number].votes();
        self.barriers[number].clear();
        self.used &= !(1 << number);
        if self.has_splits() {
            self.reunite(number, variant);
        }
        for split in &mut self.splits {
            let SplitState::AtBarrier { number: at, inst, block, .. } = split.state else { continue };
            if at != number {
                continue;
            }
            if let BarrierKind::Reduce { op, dst, .. } = variant.tables.barriers[inst as usize].kind {
                reduce(&mut split.warp, op, dst, votes);
            }
            if split.warp.is_empty() {
                split.state = SplitState::At(variant.blocks[block as usize]);
            } else {
                let lanes = std::mem::take(&mut split.warp.mask);
                split.warp.put(block, lanes);
                split.state = SplitState::Ready;
            }
        }
    }

    /// Merges the splits of each warp that wait at the same barrier instruction (reconvergence).
    fn reunite(&mut self, number: usize, variant: &Variant) {
        let place = |split: &WarpSplit| match split.state {
            SplitState::AtBarrier { number: at, inst, block, .. } if at == number => Some((inst, block)),
            _ => None,
        };
        // Splits of different warps mostly wait at the same barrier instruction.
        let mut agreement: Option<(u32, Box<[Slot]>)> = None;
        for index in 0..self.splits.len() {
            let Some((inst, block)) = place(&self.splits[index]) else { continue };
            for other in index + 1..self.splits.len() {
                let same = place(&self.splits[other]) == Some((inst, block));
                if !same || self.splits[other].warp.index != self.splits[index].warp.index {
                    continue;
                }
                if agreement.as_ref().is_none_or(|(of, _)| *of != inst) {
                    let point = variant.tables.barriers[inst as usize].agreement;
                    agreement = Some((inst, variant.reconvergence.at(point)));
                }
                let slots = agreement.as_ref().map(|(_, slots)| &slots[..]).unwrap_or_default();
                merge_splits(&mut self.splits, index, other, &variant.registers, slots);
            }
        }
    }
}

/// Iterates over the indices of the bits that are set.
fn ones(bits: u32) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(bits), |rest| Some(rest & rest.wrapping_sub(1)))
        .take_while(|rest| *rest != 0)
        .map(|rest| rest.trailing_zeros() as usize)
}
