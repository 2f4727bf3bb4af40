//! Construction of the control-flow graph from statements.

use crate::ir::{Block, BlockId, Guard, Inst, Op, Terminator};
use crate::kernel::symbols::LabelRef;

/// Target of a branch, before labels are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchTarget {
    /// The block with this number.
    Block(u32),
    /// The block at a label.
    Label(LabelRef),
}

/// End of a block, before labels are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The lanes continue at another block.
    Goto(BranchTarget),
    /// The lanes continue at `then` if the guard holds, and otherwise at `otherwise`.
    Branch { guard: Guard, uniform: bool, then: BranchTarget, otherwise: BranchTarget },
    /// The lane returns from the kernel: `ret` or `exit`.
    Return,
    /// The instruction `trap` ends the launch with an error.
    Trap,
    /// A call of a function with a separate body, by number. The lanes continue at the next block afterwards.
    Call(u32),
    /// A return from the routine with this number.
    Leave(u32),
    /// A call exceeds the thread's local memory.
    StackOverflow,
    /// A call goes to an address that is not a function's.
    BadCall,
}

/// A block with the instructions from `start` to `stop`, and its end.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    pub start: u32,
    pub stop: u32,
    pub end: End,
    pub line: u32,
}

/// Complete blocks, and the block that is being filled.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    pub code: Vec<Inst>,
    pub blocks: Vec<Raw>,
    /// Index of the first instruction of the open block.
    start: u32,
}

impl Flow {
    /// Adds an instruction to the open block. `line` is its line in the module's text.
    pub fn push(&mut self, op: Op, line: u32) {
        self.code.push(Inst { op, line });
    }

    /// Returns the size in bytes of the instructions and blocks so far.
    pub fn bytes(&self) -> u64 {
        (self.code.len() * size_of::<Inst>() + self.blocks.len() * size_of::<Raw>()) as u64
    }

    /// Returns the number of complete blocks, which is the number of the open one.
    pub fn open(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Ends the open block with a terminator and opens the next.
    pub fn close(&mut self, end: End, line: u32) {
        let stop = self.code.len() as u32;
        self.blocks.push(Raw { start: self.start, stop, end, line });
        self.start = stop;
    }

    /// Returns the block that starts here, for a label. Closes the open block unless it is empty.
    pub fn label(&mut self, line: u32) -> u32 {
        if self.start < self.code.len() as u32 {
            self.close(End::Goto(BranchTarget::Block(self.open() + 1)), line);
        }
        self.open()
    }

    /// Returns the reachable blocks, in the order of the text, and their instructions. `labels` has the block
    /// of each reference. A lane that reaches the end of the text exits.
    pub fn finish(mut self, labels: &[u32], line: u32) -> (Vec<Inst>, Vec<Block>) {
        self.close(End::Return, line);
        let target = |target| match target {
            BranchTarget::Block(block) => block,
            BranchTarget::Label(reference) => labels[reference],
        };
        let mut reached = vec![false; self.blocks.len()];
        let mut pending = vec![0];
        while let Some(block) = pending.pop() {
            if std::mem::replace(&mut reached[block as usize], true) {
                continue;
            }
            match self.blocks[block as usize].end {
                End::Goto(next) => pending.push(target(next)),
                End::Branch { then, otherwise, .. } => pending.extend([target(then), target(otherwise)]),
                End::Return
                | End::Trap
                | End::StackOverflow
                | End::BadCall
                | End::Call(_)
                | End::Leave(_) => {}
            }
        }
        let mut count = 0;
        let numbers: Vec<u32> = reached
            .iter()
            .map(|&reached| {
                count += u32::from(reached);
                count.saturating_sub(1)
            })
            .collect();
        let id = |to| BlockId(numbers[target(to) as usize]);
        let mut code = Vec::with_capacity(self.code.len());
        let mut blocks = Vec::with_capacity(count as usize);
        let mut instructions = self.code.into_iter();
        for (raw, reached) in self.blocks.iter().zip(reached) {
            let own = instructions.by_ref().take((raw.stop - raw.start) as usize);
            if !reached {
                own.for_each(drop);
                continue;
            }
            let start = code.len() as u32;
            code.extend(own);
            let end = match raw.end {
                End::Goto(next) => Terminator::Goto(id(next)),
                End::Branch { guard, uniform, then, otherwise } => {
                    Terminator::Branch { guard, uniform, then: id(then), otherwise: id(otherwise) }
                }
                // Calls and returns of routines have been expanded to branches before.
                End::Return | End::Call(_) | End::Leave(_) => Terminator::Return,
                End::Trap => Terminator::Trap,
                End::StackOverflow => Terminator::StackOverflow,
                End::BadCall => Terminator::BadCall,
            };
            blocks.push(Block { code: start..code.len() as u32, end, line: raw.line });
        }
        (code, blocks)
    }
}
