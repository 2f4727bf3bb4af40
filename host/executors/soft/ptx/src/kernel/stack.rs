//! The call stack: turns calls and returns into branches.
//!
//! A call passes its number to the function, which keeps it in its frame. On return, a tree of comparisons
//! finds the block after the call with this number. If a function may be reentered during a call, the call
//! would overwrite registers: those that are live after it are spilled to the caller's frame. The result is a
//! kernel of blocks and branches like any other, so that engines and analyses need not know about calls.
//!
//! Functions come before the kernel's own code. An engine that runs the lowest block first then lets all
//! lanes return from a function before any continues.

use crate::effort::{Effort, Spent};
use crate::ir::{
    Base, Binary, Class, Compare, Guard, Inst, Mem, Op, Operand, Order, Reg, Space, Special, Ty,
};
use crate::kernel::flow::{BranchTarget, End, Flow, Raw};
use crate::kernel::frames::StackPlan;
use crate::kernel::routines::{Reach, Routines};
use crate::kernel::synthetic::{arithmetic, compare};

/// Target of a branch, before new blocks have numbers.
#[derive(Clone, Copy, Debug)]
enum To {
    /// A block of the text, by number.
    Text(u32),
    /// The block at which a call returns.
    Behind(usize),
    /// The first block of a routine.
    Routine(usize),
    /// A block that the expansion adds.
    New(u32),
}

#[derive(Clone, Copy, Debug)]
enum Jump {
    Goto(To),
    Branch { guard: Guard, uniform: bool, then: To, otherwise: To },
    Stop(End),
}

#[derive(Clone, Debug)]
struct Draft {
    code: Vec<Inst>,
    end: Jump,
    line: u32,
}

/// Kernel whose calls have been expanded.
pub struct Expanded {
    pub flow: Flow,
    /// Size of local memory before the stack, in bytes.
    pub local_bytes: u64,
}

struct Expansion<'a> {
    flow: &'a Flow,
    labels: &'a [u32],
    routines: &'a Routines<'a>,
    registers: &'a mut Vec<Class>,
    effort: &'a Effort,
    drafts: Vec<Draft>,
    /// Drafts of blocks of the text, of the blocks after calls and of the starts of routines.
    texts: Vec<u32>,
    behind: Vec<u32>,
    starts: Vec<u32>,
    /// Indexed by routine: the calls that may reach it, and where they continue.
    callers: Vec<Vec<(u64, To)>>,
    /// Indexed by call: the registers that it spills, with their offsets in bytes in the frame.
    saved: Vec<Vec<(Reg, i64)>>,
    /// Indexed by routine: size of its frame in bytes.
    frames: Vec<u64>,
    /// Offset of the stack in local memory.
    stack: u64,
    frame: Reg,
    link: Reg,
    /// Register through which predicates are spilled, as a word.
    word: Reg,
    bytes: u64,
}

const fn goto(to: To) -> Jump {
    Jump::Goto(to)
}

const fn binary(op: Binary, dst: Reg, a: Reg, b: u64) -> Op {
    arithmetic(op, Ty::U32, dst, Operand::Reg(a), Operand::Imm(b))
}

/// Expands the calls of a kernel that has routines. `labels` has the block of each reference.
pub fn expand(
    flow: &Flow,
    labels: &[u32],
    routines: &Routines<'_>,
    (frame, link): (Reg, Reg),
    local_bytes: u64,
    registers: &mut Vec<Class>,
    effort: &Effort,
) -> Result<Expanded, Spent> {
    let align = routines.list.iter().map(|routine| routine.align).max().unwrap_or(1);
    effort.hold(2 * flow.bytes())?;
    let plan = StackPlan::make(flow, labels, routines, frame, align, registers, effort)?;
    let mut callers = vec![Vec::new(); routines.list.len()];
    for (site, call) in routines.sites.iter().enumerate() {
        for routine in call.reached() {
            callers[routine].push((site as u64, To::Behind(site)));
        }
    }
    let word = Reg(registers.len() as u32);
    registers.push(Class::B32);
    let mut expansion = Expansion {
        flow,
        labels,
        routines,
        registers,
        effort,
        drafts: Vec::new(),
        texts: vec![0; flow.blocks.len()],
        behind: vec![0; routines.sites.len()],
        starts: vec![0; routines.list.len()],
        callers,
        saved: plan.saved,
        frames: plan.frames,
        stack: local_bytes.next_multiple_of(align),
        frame,
        link,
        word,
        bytes: 0,
    };
    expansion.write()?;
    let local_bytes = expansion.stack;
    Ok(Expanded { flow: expansion.finish(), local_bytes })
}

impl Expansion<'_> {
    fn target(&self, target: BranchTarget) -> u32 {
        match target {
            BranchTarget::Block(block) => block,
            BranchTarget::Label(reference) => self.labels[reference],
        }
    }

    /// Adds a draft of a block, whose instructions are written later. Returns its number.
    fn place(&mut self, line: u32) -> u32 {
        self.drafts.push(Draft { code: Vec::new(), end: Jump::Stop(End::Return), line });
        self.drafts.len() as u32 - 1
    }

    fn fill(&mut self, at: u32, code: Vec<Inst>, end: Jump) -> Result<(), Spent> {
        self.bytes += (code.len() * size_of::<Inst>() + 2 * size_of::<Draft>()) as u64;
        self.effort.spend(1 + code.len() as u64)?;
        self.effort.hold(2 * self.flow.bytes() + self.bytes)?;
        let draft = &mut self.drafts[at as usize];
        (draft.code, draft.end) = (code, end);
        Ok(())
    }

    fn new_register(&mut self, class: Class) -> Reg {
        self.registers.push(class);
        Reg(self.registers.len() as u32 - 1)
    }

    /// Writes all blocks, first those of routines, then the kernel's own.
    fn write(&mut self) -> Result<(), Spent> {
        let first = self.place(0);
        self.fill(first, Vec::new(), goto(To::Text(0)))?;
        let main = self.routines.list.first().map_or(self.flow.blocks.len(), |first| first.start as usize);
        for routine in 0..self.routines.list.len() {
            let (start, end) = (self.routines.list[routine].start, self.routines.list[routine].end);
            self.enter(routine)?;
            for block in start..end {
                self.block(block)?;
            }
        }
        for block in 0..main as u32 {
            self.block(block)?;
        }
        Ok(())
    }

    /// Writes the prologue of a routine, which checks for space on the stack and stores the number of the
    /// call.
    fn enter(&mut self, routine: usize) -> Result<(), Spent> {
        let line = self.line(self.routines.list[routine].start);
        let [check, overflow, keep] = [(); 3].map(|()| self.place(line));
        self.fill(overflow, Vec::new(), Jump::Stop(End::StackOverflow))?;
        self.starts[routine] = check;
        let (end, full) = (self.new_register(Class::B32), self.new_register(Class::Pred));
        let most = Operand::Special(Special::LocalBytes);
        let code = vec![
            Inst { op: binary(Binary::Add, end, self.frame, self.frames[routine]), line },
            Inst { op: compare(Compare::Gt, Ty::U32, full, Operand::Reg(end), most), line },
        ];
        let guard = Guard { reg: full, negated: false };
        let branch =
            Jump::Branch { guard, uniform: false, then: To::New(overflow), otherwise: To::New(keep) };
        self.fill(check, code, branch)?;
        let op = Op::St { mem: self.slot(0, Ty::U32), src: vec![Operand::Reg(self.link)] };
        self.fill(keep, vec![Inst { op, line }], goto(To::Text(self.routines.list[routine].start)))
    }

    fn line(&self, block: u32) -> u32 {
        self.flow.blocks.get(block as usize).map_or(0, |raw| raw.line)
    }

    /// Returns the memory operand for an offset in bytes in the current frame.
    const fn slot(&self, offset: i64, ty: Ty) -> Mem {
        Mem { space: Space::Local, base: Base::Reg(self.frame), offset, ty, order: Order::Weak }
    }

    /// Writes a block of the text.
    fn block(&mut self, index: u32) -> Result<(), Spent> {
        let Raw { start, stop, end, line } = self.flow.blocks[index as usize];
        let at = self.place(line);
        self.texts[index as usize] = at;
        let mut code = self.flow.code[start as usize..stop as usize].to_vec();
        let text = |target: BranchTarget| To::Text(self.target(target));
        match end {
            End::Goto(to) => {
                let to = text(to);
                self.fill(at, code, goto(to))
            }
            End::Branch { guard, uniform, then, otherwise } => {
                let (then, otherwise) = (text(then), text(otherwise));
                self.fill(at, code, Jump::Branch { guard, uniform, then, otherwise })
            }
            End::Call(site) => self.call(at, code, site as usize, index, line),
            End::Leave(routine) => {
                code.push(Inst {
                    op: Op::Ld { mem: self.slot(0, Ty::U32), dst: vec![Some(self.link)] },
                    line,
                });
                let callers = std::mem::take(&mut self.callers[routine as usize]);
                if callers.is_empty() {
                    return self.fill(at, code, Jump::Stop(End::Return));
                }
                self.tree(at, code, &callers, (self.link, Ty::U32), None, line)
            }
            stop => self.fill(at, code, Jump::Stop(stop)),
        }
    }

    /// Writes a call, which spills registers and moves the frame, and the block after it, which undoes both.
    fn call(
        &mut self,
        at: u32,
        mut code: Vec<Inst>,
        site: usize,
        index: u32,
        line: u32,
    ) -> Result<(), Spent> {
        let routines = self.routines;
        let Some(call) = routines.sites.get(site) else { return Ok(()) };
        let saved = std::mem::take(&mut self.saved[site]);
        let mut push = |op: Op| code.push(Inst { op, line });
        for &(reg, offset) in &saved {
            let (ty, reg) = match self.registers[reg.0 as usize] {
                Class::Pred => {
                    let p = Guard { reg, negated: false };
                    push(Op::Selp { ty: Ty::B32, dst: self.word, a: Operand::Imm(1), b: Operand::Imm(0), p });
                    (Ty::U32, self.word)
                }
                Class::B16 => (Ty::U16, reg),
                Class::B32 => (Ty::U32, reg),
                Class::B64 => (Ty::U64, reg),
            };
            push(Op::St { mem: self.slot(offset, ty), src: vec![Operand::Reg(reg)] });
        }
        push(match call.caller {
            None => Op::Mov { ty: Ty::U32, dst: self.frame, src: Operand::Imm(self.stack) },
            Some(caller) => binary(Binary::Add, self.frame, self.frame, self.frames[caller]),
        });
        push(Op::Mov { ty: Ty::U32, dst: self.link, src: Operand::Imm(site as u64) });
        match &call.reach {
            Reach::Routine(routine) => self.fill(at, code, goto(To::Routine(*routine)))?,
            Reach::Address(address, list) => {
                let bad = self.place(line);
                self.fill(bad, Vec::new(), Jump::Stop(End::BadCall))?;
                let list: Vec<(u64, To)> =
                    list.iter().map(|&(address, routine)| (address, To::Routine(routine))).collect();
                if list.is_empty() {
                    self.fill(at, code, goto(To::New(bad)))?;
                } else {
                    self.tree(at, code, &list, (*address, Ty::U64), Some(To::New(bad)), line)?;
                }
            }
        }
        let behind = self.place(line);
        self.behind[site] = behind;
        let mut code = Vec::with_capacity(saved.len() + 1);
        let mut push = |op: Op| code.push(Inst { op, line });
        if let Some(caller) = call.caller {
            push(binary(Binary::Sub, self.frame, self.frame, self.frames[caller]));
        }
        for (reg, offset) in saved {
            let class = self.registers[reg.0 as usize];
            let (ty, dst) = match class {
                Class::Pred => (Ty::U32, self.word),
                Class::B16 => (Ty::U16, reg),
                Class::B32 => (Ty::U32, reg),
                Class::B64 => (Ty::U64, reg),
            };
            push(Op::Ld { mem: self.slot(offset, ty), dst: vec![Some(dst)] });
            if class == Class::Pred {
                push(compare(Compare::Ne, Ty::U32, reg, Operand::Reg(self.word), Operand::Imm(0)));
            }
        }
        self.fill(behind, code, goto(To::Text(index + 1)))
    }

    /// Ends a block with a binary search for the value of a register in an ascending list. Without
    /// `otherwise`, the value must be in the list.
    fn tree(
        &mut self,
        at: u32,
        mut code: Vec<Inst>,
        list: &[(u64, To)],
        (subject, ty): (Reg, Ty),
        otherwise: Option<To>,
        line: u32,
    ) -> Result<(), Spent> {
        let (value, to) = list[0];
        if let ([_], None) = (list, otherwise) {
            return self.fill(at, code, goto(to));
        }
        let reg = self.new_register(Class::Pred);
        let guard = Guard { reg, negated: false };
        let ([_], Some(otherwise)) = (list, otherwise) else {
            let (low, high) = list.split_at(list.len() / 2);
            let half = Operand::Imm(high[0].0);
            code.push(Inst { op: compare(Compare::Lt, ty, reg, Operand::Reg(subject), half), line });
            let branches = [low, high].map(|list| {
                if let (&[(_, to)], None) = (list, otherwise) {
                    return (to, None);
                }
                let at = self.place(line);
                (To::New(at), Some(at))
            });
            let [then, other] = branches.map(|(to, _)| to);
            self.fill(at, code, Jump::Branch { guard, uniform: false, then, otherwise: other })?;
            for (list, (_, at)) in [low, high].into_iter().zip(branches) {
                if let Some(at) = at {
                    self.tree(at, Vec::new(), list, (subject, ty), otherwise, line)?;
                }
            }
            return Ok(());
        };
        code.push(Inst {
            op: compare(Compare::Eq, ty, reg, Operand::Reg(subject), Operand::Imm(value)),
            line,
        });
        self.fill(at, code, Jump::Branch { guard, uniform: false, then: to, otherwise })
    }

    /// Numbers the blocks in their final order.
    fn finish(self) -> Flow {
        let number = |to: To| {
            BranchTarget::Block(match to {
                To::Text(block) => self.texts[block as usize],
                To::Behind(site) => self.behind[site],
                To::Routine(routine) => self.starts[routine],
                To::New(block) => block,
            })
        };
        let mut flow = Flow::default();
        for Draft { code, end, line } in self.drafts {
            flow.code.extend(code);
            let end = match end {
                Jump::Goto(to) => End::Goto(number(to)),
                Jump::Branch { guard, uniform, then, otherwise } => {
                    End::Branch { guard, uniform, then: number(then), otherwise: number(otherwise) }
                }
                Jump::Stop(end) => end,
            };
            flow.close(end, line);
        }
        flow
    }
}
