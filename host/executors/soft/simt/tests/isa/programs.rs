//! Random programs with branches and loops as compilers generate them, and the expected results of each
//! thread.
//!
//! The reference executes the statements for one thread after another, and the kernel (see `emitter`) is
//! generated from the same statements. In some programs all threads meet at some points and exchange values.

use crate::values::Random;

/// Number of variables: `tid.x`, `ctaid.x`, a parameter, 0, `tid.y`, and constants.
pub const VARIABLES: usize = 8;
/// Number of words in the table that programs read.
pub const TABLE: usize = 64;
/// Maximum depth of nested loops.
pub const DEPTH: usize = 3;

/// A source value: a variable, a loop's counter, or a constant.
#[derive(Clone, Copy)]
pub enum VariableValue {
    Variable(usize),
    Counter(usize),
    Constant(u32),
}

/// Condition that compares `(variable ^ flip) & mask` with a constant.
#[derive(Clone, Copy)]
pub struct Condition {
    pub value: VariableValue,
    pub flip: u32,
    pub mask: u32,
    pub less: bool,
    pub than: u32,
}

pub enum Statement {
    Set {
        dst: usize,
        operation: usize,
        a: VariableValue,
        b: VariableValue,
    },
    /// Loads a word of the table, selected by the low bits of a value.
    Load {
        dst: usize,
        index: VariableValue,
    },
    /// A branch. With `far`, the code of its first part is at the end of the kernel's text.
    If {
        condition: Condition,
        far: bool,
        then: Vec<Statement>,
        otherwise: Vec<Statement>,
    },
    /// An instruction with a guard predicate.
    Guarded {
        condition: Condition,
        negated: bool,
        dst: usize,
        b: VariableValue,
    },
    /// A loop whose number of iterations is in the low bits of a value. With `early`, the condition is at the
    /// end, and once before the loop.
    Loop {
        depth: usize,
        bound: VariableValue,
        early: bool,
        body: Vec<Statement>,
    },
    Break(Condition),
    Continue(Condition),
    Return(Condition),
    /// A loop that all threads execute the same number of times.
    Together {
        times: u32,
        body: Vec<Statement>,
    },
    /// Reads the value of the thread whose index differs in the bits of `differs`: within a warp by a
    /// shuffle, otherwise through shared memory and barriers.
    Exchange {
        dst: usize,
        value: VariableValue,
        differs: u32,
    },
    /// A ballot of all lanes of the warp.
    Ballot {
        dst: usize,
        condition: Condition,
    },
}

pub type Operation = (&'static str, fn(u32, u32) -> u32);

pub const OPERATIONS: [Operation; 8] = [
    ("add.s32", u32::wrapping_add),
    ("sub.s32", u32::wrapping_sub),
    ("mul.lo.s32", u32::wrapping_mul),
    ("xor.b32", |a, b| a ^ b),
    ("and.b32", |a, b| a & b),
    ("or.b32", |a, b| a | b),
    ("max.u32", u32::max),
    ("min.s32", |a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned()),
];

/// A random program, as the statements of a kernel.
pub struct ControlProgram(pub Vec<Statement>);

/// Generator of random statements.
struct Maker {
    random: Random,
    /// Whether threads may return before others have finished.
    leaves: bool,
}

impl Maker {
    fn value(&mut self, depth: usize) -> VariableValue {
        match self.random.below(8) {
            0..5 => VariableValue::Variable(self.random.below(VARIABLES as u64) as usize),
            5 | 6 if depth > 0 => VariableValue::Counter(self.random.below(depth as u64) as usize),
            _ => VariableValue::Constant(self.random.below(40) as u32),
        }
    }

    fn condition(&mut self, depth: usize) -> Condition {
        let mask = [1, 3, 7, 31][self.random.below(4) as usize];
        let than = self.random.below(u64::from(mask) + 1) as u32;
        let (value, flip) = (self.value(depth), self.random.below(32) as u32);
        Condition { value, flip, mask, less: self.random.below(2) == 0, than }
    }

    /// Draws a variable to write, which is rarely a thread index or the parameter.
    fn target(&mut self) -> usize {
        let any = self.random.below(VARIABLES as u64) as usize;
        if any < 3 { 3 + any } else { any }
    }

    fn block(&mut self, depth: usize, nested: usize, inner: bool) -> Vec<Statement> {
        (0..2 + self.random.below(4)).map(|_| self.statement(depth, nested, inner)).collect()
    }

    /// Draws a statement within `depth` loops and `nested` statements. `inner` tells that the innermost loop
    /// may be left.
    fn statement(&mut self, depth: usize, nested: usize, inner: bool) -> Statement {
        let pick = self.random.below(24);
        match pick {
            8..13 if nested < 4 => {
                let condition = self.condition(depth);
                let far = self.random.below(3) == 0;
                let then = self.block(depth, nested + 1, inner);
                let otherwise = if pick < 10 { Vec::new() } else { self.block(depth, nested + 1, inner) };
                Statement::If { condition, far, then, otherwise }
            }
            13..17 if depth < DEPTH && nested < 4 => {
                let (bound, early) = (self.value(depth), self.random.below(2) == 0);
                Statement::Loop { depth, bound, early, body: self.block(depth + 1, nested + 1, true) }
            }
            17 | 18 => {
                let (condition, negated) = (self.condition(depth), self.random.below(2) == 0);
                Statement::Guarded { condition, negated, dst: self.target(), b: self.value(depth) }
            }
            19 | 20 if inner => Statement::Break(self.condition(depth)),
            21 if inner => Statement::Continue(self.condition(depth)),
            22 if nested > 1 && self.leaves => Statement::Return(self.condition(depth)),
            6 | 7 => Statement::Load { dst: self.target(), index: self.value(depth) },
            _ => {
                let operation = self.random.below(OPERATIONS.len() as u64) as usize;
                let (a, b) = (self.value(depth), self.value(depth));
                Statement::Set { dst: self.target(), operation, a, b }
            }
        }
    }
}

/// Draws statements at which all threads meet, some of them in a loop that all threads execute.
fn meetings(maker: &mut Maker, depth: usize) -> Vec<Statement> {
    let mut statements = Vec::new();
    for _ in 0..4 {
        statements.push(maker.statement(depth, 0, false));
        let dst = maker.target();
        statements.push(if maker.random.below(3) == 0 {
            Statement::Ballot { dst, condition: maker.condition(depth) }
        } else {
            let differs = maker.random.below(63) as u32 + 1;
            Statement::Exchange { dst, value: maker.value(depth), differs }
        });
        if depth == 0 && maker.random.below(2) == 0 {
            let times = maker.random.below(4) as u32 + 1;
            statements.push(Statement::Together { times, body: meetings(maker, 1) });
        }
    }
    statements
}

impl ControlProgram {
    /// Draws a program whose threads may diverge until the end.
    pub fn new(seed: u64) -> Self {
        let mut maker = Maker { random: Random::new(seed), leaves: true };
        Self((0..8).map(|_| maker.statement(0, 0, false)).collect())
    }

    /// Draws a program whose threads meet at some points.
    pub fn with_meetings(seed: u64) -> Self {
        let mut maker = Maker { random: Random::new(seed), leaves: false };
        Self(meetings(&mut maker, 0))
    }
}

/// State of a thread in the reference.
struct ReferenceThread<'a> {
    variables: [u32; VARIABLES],
    counters: [u32; DEPTH],
    table: &'a [u32],
}

/// Continuation after a statement.
#[derive(PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
    Return,
}

impl ReferenceThread<'_> {
    fn value(&self, value: VariableValue) -> u32 {
        match value {
            VariableValue::Variable(index) => self.variables[index],
            VariableValue::Counter(index) => self.counters[index],
            VariableValue::Constant(value) => value,
        }
    }

    fn holds(&self, condition: Condition) -> bool {
        let value = (self.value(condition.value) ^ condition.flip) & condition.mask;
        if condition.less { value < condition.than } else { value == condition.than }
    }

    fn execute_all(&mut self, statements: &[Statement]) -> Flow {
        for statement in statements {
            let flow = self.execute(statement);
            if flow != Flow::Next {
                return flow;
            }
        }
        Flow::Next
    }

    fn execute(&mut self, statement: &Statement) -> Flow {
        match statement {
            Statement::Set { dst, operation, a, b } => {
                self.variables[*dst] = OPERATIONS[*operation].1(self.value(*a), self.value(*b));
            }
            Statement::Load { dst, index } => {
                self.variables[*dst] = self.table[self.value(*index) as usize % TABLE];
            }
            Statement::If { condition, then, otherwise, .. } => {
                return self.execute_all(if self.holds(*condition) { then } else { otherwise });
            }
            Statement::Guarded { condition, negated, dst, b } => {
                if self.holds(*condition) != *negated {
                    self.variables[*dst] = self.variables[*dst].wrapping_add(self.value(*b));
                }
            }
            Statement::Loop { depth, bound, body, .. } => {
                let bound = self.value(*bound) & 7;
                self.counters[*depth] = 0;
                while self.counters[*depth] < bound {
                    match self.execute_all(body) {
                        Flow::Break => break,
                        Flow::Return => return Flow::Return,
                        Flow::Next | Flow::Continue => self.counters[*depth] += 1,
                    }
                }
            }
            Statement::Break(condition) if self.holds(*condition) => return Flow::Break,
            Statement::Continue(condition) if self.holds(*condition) => return Flow::Continue,
            Statement::Return(condition) if self.holds(*condition) => return Flow::Return,
            Statement::Break(_) | Statement::Continue(_) | Statement::Return(_) => {}
            Statement::Together { .. } | Statement::Exchange { .. } | Statement::Ballot { .. } => {
                unreachable!("is for all threads")
            }
        }
        Flow::Next
    }
}

/// Executes statements for all threads of a block.
fn run_block(threads: &mut [ReferenceThread<'_>], alive: &mut [bool], statements: &[Statement]) {
    for statement in statements {
        match statement {
            Statement::Together { times, body } => {
                for time in 0..*times {
                    for thread in threads.iter_mut() {
                        thread.counters[0] = time;
                    }
                    run_block(threads, alive, body);
                }
                for thread in threads.iter_mut() {
                    thread.counters[0] = *times;
                }
            }
            Statement::Exchange { dst, value, differs } => {
                let values: Vec<u32> = threads.iter().map(|thread| thread.value(*value)).collect();
                for (number, thread) in threads.iter_mut().enumerate() {
                    thread.variables[*dst] = values[number ^ *differs as usize];
                }
            }
            Statement::Ballot { dst, condition } => {
                for warp in threads.chunks_mut(32) {
                    let votes = warp.iter().map(|thread| u32::from(thread.holds(*condition)));
                    let votes = votes.enumerate().fold(0, |all, (lane, vote)| all | vote << lane);
                    for thread in warp.iter_mut() {
                        thread.variables[*dst] = votes;
                    }
                }
            }
            _ => {
                for (thread, alive) in threads.iter_mut().zip(&mut *alive) {
                    *alive = *alive && thread.execute(statement) != Flow::Return;
                }
            }
        }
    }
}

impl ControlProgram {
    /// Returns the final variables of all threads of a block, with the x axis varying fastest.
    pub fn expected(&self, block: [u32; 2], ctaid: u32, parameter: u32, table: &[u32]) -> Vec<u32> {
        let numbers = (0..block[1]).flat_map(|y| (0..block[0]).map(move |x| (x, y)));
        let mut threads: Vec<ReferenceThread<'_>> = numbers
            .map(|(x, y)| {
                let variables = [x, ctaid, parameter, 0, y, 5, 100, 0xffff_fff0];
                ReferenceThread { variables, counters: [0; DEPTH], table }
            })
            .collect();
        let mut alive = vec![true; threads.len()];
        run_block(&mut threads, &mut alive, &self.0);
        threads.iter().flat_map(|thread| thread.variables).collect()
    }
}
