//! From statements to basic blocks.

use crate::ir::{Block, BlockId, Guard, Inst, Op, Terminator};
use crate::kernel::symbols::LabelRef;

/// The target of a branch, before labels are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A block, by number.
    Block(u32),
    /// The block at a label.
    Label(LabelRef),
}

/// How a block ends, before labels are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Continues at another block.
    Goto(Target),
    /// Continues at `then` if the guard holds, and else at `otherwise`.
    Branch { guard: Guard, uniform: bool, then: Target, otherwise: Target },
    /// The lane returns from the kernel: `ret` or `exit`.
    Return,
    /// `trap`
    Trap,
    /// Calls a function with a body of its own: a number of a call. It goes on at the next block.
    Call(u32),
    /// Returns from the routine of this number.
    Leave(u32),
    /// A call finds no room on the stack.
    StackOverflow,
    /// A call goes to where no function is.
    BadCall,
}

/// A block: the instructions from `start` to `stop`, and its end.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    pub start: u32,
    pub stop: u32,
    pub end: End,
    pub line: u32,
}

/// The blocks that are complete and the one that is being filled.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    pub code: Vec<Inst>,
    pub blocks: Vec<Raw>,
    /// First instruction of the open block.
    start: u32,
}

impl Flow {
    /// Adds an instruction to the open block.
    pub fn push(&mut self, op: Op, line: u32) {
        self.code.push(Inst { op, line });
    }

    /// Bytes of the instructions and blocks so far.
    pub fn bytes(&self) -> u64 {
        (self.code.len() * size_of::<Inst>() + self.blocks.len() * size_of::<Raw>()) as u64
    }

    /// Number of complete blocks, which is the number of the open one.
    pub fn open(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Ends the open block and opens the next.
    pub fn close(&mut self, end: End, line: u32) {
        let stop = self.code.len() as u32;
        self.blocks.push(Raw { start: self.start, stop, end, line });
        self.start = stop;
    }

    /// Returns the block that starts here, for a label. The open block is closed unless it is empty.
    pub fn label(&mut self, line: u32) -> u32 {
        if self.start < self.code.len() as u32 {
            self.close(End::Goto(Target::Block(self.open() + 1)), line);
        }
        self.open()
    }

    /// Returns the reachable blocks, in the order of the text, and their instructions. `labels` has the block
    /// of each reference. A lane that reaches the end of the text returns.
    pub fn finish(mut self, labels: &[u32], line: u32) -> (Vec<Inst>, Vec<Block>) {
        self.close(End::Return, line);
        let target = |target| match target {
            Target::Block(block) => block,
            Target::Label(reference) => labels[reference],
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
                // Calls have been expanded.
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
