//! Programs at random, with branches and loops as compilers make them, and what each thread computes by itself.
//!
//! A reference runs one thread after the other through the statements; the kernel is made of the same statements.

use std::fmt::Write as _;

use crate::values::Random;

/// Variables: `tid.x`, `ctaid.x`, a parameter, 0, `tid.y`, and constants.
pub const VARIABLES: usize = 8;
/// Words of the table that programs read.
pub const TABLE: usize = 64;
/// Loops within each other.
const DEPTH: usize = 3;

/// A variable, a loop's counter, or a constant.
#[derive(Clone, Copy)]
enum Value {
    Variable(usize),
    Counter(usize),
    Constant(u32),
}

/// `(variable ^ flip) & mask` compared with a constant.
#[derive(Clone, Copy)]
struct Condition {
    value: Value,
    flip: u32,
    mask: u32,
    less: bool,
    than: u32,
}

enum Statement {
    Set {
        dst: usize,
        operation: usize,
        a: Value,
        b: Value,
    },
    /// A word of the table, by the low bits of a value.
    Load {
        dst: usize,
        index: Value,
    },
    /// `far`: the first part lies at the end of the kernel's text.
    If {
        condition: Condition,
        far: bool,
        then: Vec<Statement>,
        otherwise: Vec<Statement>,
    },
    /// An instruction with a guard.
    Guarded {
        condition: Condition,
        negated: bool,
        dst: usize,
        b: Value,
    },
    /// As often as the low bits of a value say. `early`: the condition is at the end, and once before.
    Loop {
        depth: usize,
        bound: Value,
        early: bool,
        body: Vec<Statement>,
    },
    Break(Condition),
    Continue(Condition),
    Return(Condition),
}

type Operation = (&'static str, fn(u32, u32) -> u32);

const OPERATIONS: [Operation; 8] = [
    ("add.s32", u32::wrapping_add),
    ("sub.s32", u32::wrapping_sub),
    ("mul.lo.s32", u32::wrapping_mul),
    ("xor.b32", |a, b| a ^ b),
    ("and.b32", |a, b| a & b),
    ("or.b32", |a, b| a | b),
    ("max.u32", u32::max),
    ("min.s32", |a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned()),
];

/// A kernel's statements.
pub struct Program(Vec<Statement>);

/// Makes statements.
struct Maker {
    random: Random,
}

impl Maker {
    fn value(&mut self, depth: usize) -> Value {
        match self.random.below(8) {
            0..5 => Value::Variable(self.random.below(VARIABLES as u64) as usize),
            5 | 6 if depth > 0 => Value::Counter(self.random.below(depth as u64) as usize),
            _ => Value::Constant(self.random.below(40) as u32),
        }
    }

    fn condition(&mut self, depth: usize) -> Condition {
        let mask = [1, 3, 7, 31][self.random.below(4) as usize];
        let than = self.random.below(u64::from(mask) + 1) as u32;
        let (value, flip) = (self.value(depth), self.random.below(32) as u32);
        Condition { value, flip, mask, less: self.random.below(2) == 0, than }
    }

    /// A variable that may be written: thread numbers and the parameter stay now and then.
    fn target(&mut self) -> usize {
        let any = self.random.below(VARIABLES as u64) as usize;
        if any < 3 { 3 + any } else { any }
    }

    fn block(&mut self, depth: usize, nested: usize) -> Vec<Statement> {
        (0..2 + self.random.below(4)).map(|_| self.statement(depth, nested)).collect()
    }

    fn statement(&mut self, depth: usize, nested: usize) -> Statement {
        let pick = self.random.below(24);
        match pick {
            8..13 if nested < 4 => {
                let condition = self.condition(depth);
                let far = self.random.below(3) == 0;
                let then = self.block(depth, nested + 1);
                let otherwise = if pick < 10 { Vec::new() } else { self.block(depth, nested + 1) };
                Statement::If { condition, far, then, otherwise }
            }
            13..17 if depth < DEPTH && nested < 4 => {
                let (bound, early) = (self.value(depth), self.random.below(2) == 0);
                Statement::Loop { depth, bound, early, body: self.block(depth + 1, nested + 1) }
            }
            17 | 18 => {
                let (condition, negated) = (self.condition(depth), self.random.below(2) == 0);
                Statement::Guarded { condition, negated, dst: self.target(), b: self.value(depth) }
            }
            19 | 20 if depth > 0 => Statement::Break(self.condition(depth)),
            21 if depth > 0 => Statement::Continue(self.condition(depth)),
            22 if nested > 1 => Statement::Return(self.condition(depth)),
            6 | 7 => Statement::Load { dst: self.target(), index: self.value(depth) },
            _ => {
                let operation = self.random.below(OPERATIONS.len() as u64) as usize;
                let (a, b) = (self.value(depth), self.value(depth));
                Statement::Set { dst: self.target(), operation, a, b }
            }
        }
    }
}

impl Program {
    pub fn new(seed: u64) -> Self {
        let mut maker = Maker { random: Random::new(seed) };
        let statements = (0..8).map(|_| maker.statement(0, 0)).collect();
        Self(statements)
    }
}

/// A thread of the reference.
struct Thread<'a> {
    variables: [u32; VARIABLES],
    counters: [u32; DEPTH],
    table: &'a [u32],
}

/// How statements end.
#[derive(PartialEq)]
enum Flow {
    Next,
    Break,
    Continue,
    Return,
}

impl Thread<'_> {
    fn value(&self, value: Value) -> u32 {
        match value {
            Value::Variable(index) => self.variables[index],
            Value::Counter(index) => self.counters[index],
            Value::Constant(value) => value,
        }
    }

    fn holds(&self, condition: Condition) -> bool {
        let value = (self.value(condition.value) ^ condition.flip) & condition.mask;
        if condition.less { value < condition.than } else { value == condition.than }
    }

    fn run(&mut self, statements: &[Statement]) -> Flow {
        for statement in statements {
            let flow = self.step(statement);
            if flow != Flow::Next {
                return flow;
            }
        }
        Flow::Next
    }

    fn step(&mut self, statement: &Statement) -> Flow {
        match statement {
            Statement::Set { dst, operation, a, b } => {
                self.variables[*dst] = OPERATIONS[*operation].1(self.value(*a), self.value(*b));
            }
            Statement::Load { dst, index } => {
                self.variables[*dst] = self.table[self.value(*index) as usize % TABLE];
            }
            Statement::If { condition, then, otherwise, .. } => {
                return self.run(if self.holds(*condition) { then } else { otherwise });
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
                    match self.run(body) {
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
        }
        Flow::Next
    }
}

impl Program {
    /// The variables that a thread ends with.
    pub fn run(&self, tid: [u32; 2], ctaid: u32, parameter: u32, table: &[u32]) -> [u32; VARIABLES] {
        let variables = [tid[0], ctaid, parameter, 0, tid[1], 5, 100, 0xffff_fff0];
        let mut thread = Thread { variables, counters: [0; DEPTH], table };
        thread.run(&self.0);
        thread.variables
    }

    /// The kernel: parameters are a table, the results, and a number.
    pub fn kernel(&self, name: &str) -> String {
        let mut writer = Writer { text: String::new(), far: String::new(), labels: 0, loops: Vec::new() };
        writer.block(&self.0);
        writer.leave();
        format!(
            ".visible .entry {name}(.param .u64 table, .param .u64 out, .param .u32 n)\n{{\n\
             .reg .b64 %table, %out, %a;\n.reg .b32 %v<{VARIABLES}>, %c<{DEPTH}>, %b<{DEPTH}>, %x, %y;\n.reg .pred %p;\n\
             ld.param.u64 %table, [table];\nld.param.u64 %out, [out];\nld.param.u32 %v2, [n];\n\
             mov.u32 %v0, %tid.x;\nmov.u32 %v1, %ctaid.x;\nmov.u32 %v3, 0;\nmov.u32 %v4, %tid.y;\nmov.u32 %v5, 5;\nmov.u32 %v6, 100;\nmov.u32 %v7, -16;\n\
             mov.u32 %x, %ntid.x;\nmad.lo.u32 %y, %v4, %x, %v0;\nmov.u32 %c0, %ntid.y;\nmul.lo.u32 %x, %x, %c0;\nmad.lo.u32 %y, %v1, %x, %y;\nmul.wide.u32 %a, %y, {};\nadd.s64 %out, %out, %a;\n\
             {}{}}}\n",
            4 * VARIABLES,
            writer.text,
            writer.far
        )
    }
}

/// Writes a program as PTX.
struct Writer {
    text: String,
    /// What comes behind the rest.
    far: String,
    labels: usize,
    /// Labels of the loops around: where each goes on, and where it ends.
    loops: Vec<(String, String)>,
}

impl Writer {
    fn label(&mut self, name: &str) -> String {
        self.labels += 1;
        format!("{name}{}", self.labels)
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    /// Stores the variables and ends the thread.
    fn leave(&mut self) {
        for index in 0..VARIABLES {
            self.line(&format!("st.global.u32 [%out+{}], %v{index};", 4 * index));
        }
        self.line("ret;");
    }

    /// Puts a condition into `%p`.
    fn condition(&mut self, condition: Condition) {
        let Condition { value, flip, mask, less, than } = condition;
        let compare = if less { "lt" } else { "eq" };
        self.line(&format!(
            "xor.b32 %x, {}, {flip};\nand.b32 %x, %x, {mask};\nsetp.{compare}.u32 %p, %x, {than};",
            name(value)
        ));
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Set { dst, operation, a, b } => {
                let operation = OPERATIONS[*operation].0;
                self.line(&format!("mov.u32 %x, {};\n{operation} %v{dst}, %x, {};", name(*a), name(*b)));
            }
            Statement::Load { dst, index } => self.line(&format!(
                "mov.u32 %x, {};\nand.b32 %x, %x, {};\nmul.wide.u32 %a, %x, 4;\nadd.s64 %a, %a, %table;\nld.global.nc.u32 %v{dst}, [%a];",
                name(*index),
                TABLE - 1
            )),
            Statement::If { condition, far, then, otherwise } => {
                self.branch(*condition, *far, then, otherwise);
            }
            Statement::Guarded { condition, negated, dst, b } => {
                self.condition(*condition);
                let sign = if *negated { "!" } else { "" };
                self.line(&format!("@{sign}%p add.u32 %v{dst}, %v{dst}, {};", name(*b)));
            }
            Statement::Loop { depth, bound, early, body } => self.repeat(*depth, *bound, *early, body),
            Statement::Break(condition) => {
                self.condition(*condition);
                let (_, end) = self.loops.last().cloned().unwrap_or_default();
                self.line(&format!("@%p bra {end};"));
            }
            Statement::Continue(condition) => {
                self.condition(*condition);
                let (next, _) = self.loops.last().cloned().unwrap_or_default();
                self.line(&format!("@%p bra {next};"));
            }
            Statement::Return(condition) => {
                self.condition(*condition);
                let stay = self.label("STAY");
                self.line(&format!("@!%p bra {stay};"));
                self.leave();
                self.line(&format!("{stay}:"));
            }
        }
    }

    fn branch(&mut self, condition: Condition, far: bool, then: &[Statement], otherwise: &[Statement]) {
        self.condition(condition);
        let (other, join) = (self.label("OTHER"), self.label("JOIN"));
        if far {
            let there = self.label("FAR");
            self.line(&format!("@%p bra {there};"));
            self.block(otherwise);
            self.line(&format!("{join}:"));
            let near = std::mem::take(&mut self.text);
            self.line(&format!("{there}:"));
            self.block(then);
            self.line(&format!("bra.uni {join};"));
            let there = std::mem::replace(&mut self.text, near);
            self.far.push_str(&there);
        } else {
            self.line(&format!("@!%p bra {other};"));
            self.block(then);
            self.line(&format!("bra {join};\n{other}:"));
            self.block(otherwise);
            self.line(&format!("{join}:"));
        }
    }

    fn repeat(&mut self, depth: usize, bound: Value, early: bool, body: &[Statement]) {
        let (head, next, end) = (self.label("LOOP"), self.label("NEXT"), self.label("END"));
        self.line(&format!("mov.u32 %x, {};\nand.b32 %b{depth}, %x, 7;\nmov.u32 %c{depth}, 0;", name(bound)));
        let leave = format!("setp.ge.u32 %p, %c{depth}, %b{depth};\n@%p bra {end};");
        if early {
            self.line(&format!("{leave}\n{head}:"));
        } else {
            self.line(&format!("{head}:\n{leave}"));
        }
        self.loops.push((next.clone(), end.clone()));
        self.block(body);
        self.loops.pop();
        self.line(&format!("{next}:\nadd.u32 %c{depth}, %c{depth}, 1;"));
        if early {
            self.line(&format!("setp.lt.u32 %p, %c{depth}, %b{depth};\n@%p bra {head};"));
        } else {
            self.line(&format!("bra {head};"));
        }
        self.line(&format!("{end}:"));
    }
}

fn name(value: Value) -> String {
    let mut name = String::new();
    let _ = match value {
        Value::Variable(index) => write!(name, "%v{index}"),
        Value::Counter(index) => write!(name, "%c{index}"),
        Value::Constant(value) => write!(name, "{value}"),
    };
    name
}
