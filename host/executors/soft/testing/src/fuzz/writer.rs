//! Draws the statements of programs: their kinds, registers, operands and arithmetic.
//!
//! Programs are defined by construction. A lane writes memory of its own, or changes shared words by
//! operations that commute. Instructions of several lanes name exactly the lanes that execute them. Loops
//! have small bounds.

use crate::fuzz::forms::{self, Form};
use crate::fuzz::program::{Parts, Statement};
use crate::values::{F32_EDGES, F64_EDGES, Random};

/// Lanes of a warp that execute a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mask {
    /// All 32 lanes.
    All,
    /// Exactly the lanes in the mask that this register holds.
    Register(String),
    /// Lanes that nothing in the program knows.
    Unknown,
}

/// Where a statement is.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Lanes of a warp that are here.
    pub mask: Mask,
    /// Whether all threads of the block are here together.
    pub together: bool,
    /// Number of enclosing branches and loops.
    pub depth: u32,
    /// Number of times that the statement is executed.
    pub runs: u64,
}

/// Number of registers of each class.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Registers of 16 bits.
    pub halves: u64,
    /// Registers of 32 bits.
    pub words: u64,
    /// Registers of 64 bits.
    pub wides: u64,
    /// Predicates.
    pub predicates: u64,
}

/// Kinds of statements. A program has some of them often and others never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any arithmetic.
    Arithmetic,
    /// Arithmetic whose operands are the same for all threads.
    Uniform,
    /// Instructions that every compiler emits often.
    Common,
    /// Sequences that become one instruction of the engine.
    Idiom,
    /// Loads of the table, of constants and parameters.
    Lookup,
    /// Accesses to a thread's own memory.
    Own,
    /// Atomic operations.
    Atomic,
    /// Copies, fences and special registers.
    Rare,
    /// Shuffles, votes and reductions of lanes.
    Exchange,
    /// Products of matrices.
    Matrix,
    /// Barriers of a block.
    Barrier,
    /// Branches.
    Branch,
    /// Loops.
    Loop,
    /// Calls of functions.
    Call,
}

const KINDS: [Kind; 14] = [
    Kind::Arithmetic,
    Kind::Uniform,
    Kind::Common,
    Kind::Idiom,
    Kind::Lookup,
    Kind::Own,
    Kind::Atomic,
    Kind::Rare,
    Kind::Exchange,
    Kind::Matrix,
    Kind::Barrier,
    Kind::Branch,
    Kind::Loop,
    Kind::Call,
];

/// State of a program that is being drawn.
pub struct Writer {
    /// Source of all decisions.
    pub random: Random,
    /// Number of registers.
    pub counts: Counts,
    /// Number of threads of a block.
    pub threads: u32,
    /// Sizes of a thread's parts of memory.
    pub parts: Parts,
    /// Size of a thread's own part of shared memory in bytes.
    pub shared: u64,
    /// Size of a thread's local memory in bytes.
    pub local: u64,
    /// Whether threads may return early. No statement knows the lanes that are left then.
    pub leaves: bool,
    /// Number of the warp in which a statement may fail, until one does, and of its block.
    pub fault: Option<(u32, u32)>,
    /// Names of the functions that can be called.
    pub functions: Vec<String>,
    /// Instructions that execute, counted for the whole grid.
    pub cost: u64,
    pub(super) weights: [u64; KINDS.len()],
    pub(super) uniform: bool,
    pub(super) labels: u32,
    masks: u32,
    pub(super) temporaries: u32,
}

impl Writer {
    /// Creates a writer with registers and weights that the seed determines.
    pub fn new(mut random: Random, counts: Counts, threads: u32) -> Self {
        let mut weights = [0; KINDS.len()];
        for weight in &mut weights {
            *weight = [0, 1, 2, 8][random.below(4) as usize];
        }
        // Every program computes.
        weights[0] = weights[0].max(2);
        Self {
            random,
            counts,
            threads,
            parts: Parts::default(),
            shared: 0,
            local: 0,
            leaves: false,
            fault: None,
            functions: Vec::new(),
            cost: 0,
            weights,
            uniform: false,
            labels: 0,
            masks: 0,
            temporaries: 0,
        }
    }

    /// Restricts the program to some kinds of statements.
    pub fn only(&mut self, kinds: &[Kind]) {
        for (weight, kind) in self.weights.iter_mut().zip(KINDS) {
            *weight = if kinds.contains(&kind) { (*weight).max(1) } else { 0 };
        }
    }

    /// Returns true once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.random.below(times) == 0
    }

    /// Draws an element of a list.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        self.random.pick(of)
    }

    /// Returns a new label.
    pub fn label(&mut self) -> String {
        self.labels += 1;
        format!("$L{}", self.labels)
    }

    /// Returns a new register for a mask of lanes.
    pub(super) fn new_mask(&mut self) -> String {
        self.masks += 1;
        format!("%m{}", self.masks)
    }

    /// Returns the number of registers of a class: `h`, `r`, `d` or `p`.
    pub fn count(&self, class: char) -> u64 {
        match class {
            'h' => self.counts.halves,
            'r' => self.counts.words,
            'd' => self.counts.wides,
            _ => self.counts.predicates,
        }
    }

    /// Draws a register of a class. The first quarter of them keeps values that all threads share for as long
    /// as possible.
    pub fn register(&mut self, class: char) -> String {
        let count = self.count(class);
        let end = if self.uniform && count >= 4 { count / 4 } else { count };
        format!("%{class}{}", self.random.below(end))
    }

    /// Draws a register for a result.
    pub fn result(&mut self, class: char) -> String {
        if self.uniform || self.once_in(6) {
            return self.register(class);
        }
        let first = self.count(class) / 4;
        format!("%{class}{}", first + self.random.below(self.count(class) - first))
    }

    /// Draws `count` different registers of a class, mostly consecutive ones.
    pub fn results(&mut self, class: char, count: usize) -> Vec<String> {
        let limit = self.count(class);
        if self.once_in(3) {
            let mut names: Vec<String> = Vec::new();
            for _ in 0..8 * count {
                let name = self.register(class);
                if names.len() < count && !names.contains(&name) {
                    names.push(name);
                }
            }
            if names.len() == count {
                return names;
            }
        }
        let first = self.random.below((limit + 1).saturating_sub(count as u64).max(1));
        (first..first + count as u64).map(|index| format!("%{class}{index}")).collect()
    }

    /// Draws a source operand for a letter of a form.
    pub fn source(&mut self, letter: char) -> String {
        let constant = self.once_in(6);
        match letter {
            'h' if constant => self.random.below(0x1_0000).to_string(),
            'r' if constant && self.random.below(2) == 0 => self.random.below(64).to_string(),
            'r' if constant => (self.random.bits() as u32).to_string(),
            'd' if constant => (self.random.bits() >> (1 + self.random.below(60))).to_string(),
            'F' if constant => format!("0f{:08x}", self.pick(F32_EDGES)),
            'G' if constant => format!("0d{:016x}", self.pick(F64_EDGES)),
            'n' if self.random.below(2) == 0 => self.random.below(70).to_string(),
            'k' => self.random.below(256).to_string(),
            'p' if constant => format!("!{}", self.register('p')),
            'h' | 'H' => self.register('h'),
            'd' | 'D' | 'G' => self.register('d'),
            'p' | 'o' => self.register('p'),
            _ => self.register('r'),
        }
    }

    /// Draws the instruction of a form, and its operands.
    fn instruction(&mut self, form: &Form) -> (String, String, Vec<String>) {
        let sources: Vec<String> = form.sources.chars().map(|letter| self.source(letter)).collect();
        let dst = match form.dst {
            'P' => {
                let (one, other) = (self.random.below(self.counts.predicates), 1 + self.random.below(2));
                format!("%p{one}|%p{}", (one + other) % self.counts.predicates)
            }
            // In a third of the cases a source is the destination.
            class if self.once_in(3) => {
                let register = |source: &&String| source.starts_with(&format!("%{class}"));
                sources.iter().find(register).cloned().unwrap_or_else(|| self.result(class))
            }
            class => self.result(class),
        };
        (format!("{} {dst}, {};\n", form.spelling, sources.join(", ")), dst, sources)
    }

    /// Draws an instruction that computes. Some are guarded by a predicate, and of some the operands and the
    /// result are recorded.
    pub fn arithmetic(&mut self) -> String {
        let patterns = forms::patterns();
        let group = &patterns[self.random.below(patterns.len() as u64) as usize];
        let form = group[self.random.below(group.len() as u64) as usize].clone();
        let (line, dst, sources) = self.instruction(&form);
        let guard = if self.once_in(8) { format!("@{} ", self.source('p')) } else { String::new() };
        if self.parts.trace > 0 && self.once_in(4) {
            return self.witness(&form, &guard, &line, &dst, &sources);
        }
        guard + &line
    }

    /// Draws instructions that compilers emit most, so that superblocks are long and made of what has machine
    /// code.
    fn common(&mut self) -> String {
        const COMMON: [(&str, &str); 12] = [
            ("add.s32", "rrr"),
            ("mad.lo.s32", "rrrr"),
            ("and.b32", "rrr"),
            ("shl.b32", "rrn"),
            ("fma.rn.f32", "rFFF"),
            ("fma.rn.ftz.f32", "rFFF"),
            ("mul.rn.ftz.f32", "rFF"),
            ("add.rn.f32", "rFF"),
            ("cvt.rn.f32.s32", "rr"),
            ("mul.wide.s32", "drr"),
            ("add.s64", "ddd"),
            ("setp.lt.s32", "prr"),
        ];
        let lines = 1 + self.random.below(4);
        (0..lines)
            .map(|_| {
                let (spelling, operands) = self.pick(&COMMON);
                let (dst, sources) = operands.split_at(1);
                let dst = dst.chars().next().unwrap_or('r');
                self.instruction(&Form { spelling: spelling.to_owned(), dst, sources }).0
            })
            .collect()
    }

    /// Draws `count` statements, or fewer if the program executes too many instructions.
    pub fn statements(&mut self, scope: &Scope, count: u64, limit: u64) -> Vec<Statement> {
        let mut all = Vec::new();
        for _ in 0..count {
            if self.cost > limit {
                break;
            }
            all.push(self.statement(scope, limit));
        }
        all
    }

    fn kind(&mut self) -> Kind {
        let mut at = self.random.below(self.weights.iter().sum());
        let found = self.weights.iter().position(|&weight| {
            let here = at < weight;
            at = at.wrapping_sub(if here { 0 } else { weight });
            here
        });
        KINDS[found.unwrap_or(0)]
    }

    fn statement(&mut self, scope: &Scope, limit: u64) -> Statement {
        let kind = self.kind();
        if self.fault.is_some() && self.once_in(24) {
            return Statement::Lines(self.failing());
        }
        let known = scope.mask != Mask::Unknown;
        let text = match kind {
            Kind::Branch if scope.depth < 4 => return self.branch(scope, limit),
            Kind::Loop if scope.depth < 3 => return self.repeat(scope, limit),
            Kind::Uniform if scope.depth == 0 => {
                self.uniform = true;
                let text = self.arithmetic();
                self.uniform = false;
                text
            }
            Kind::Common => self.common(),
            Kind::Idiom => self.idiom(scope),
            Kind::Lookup => self.lookup(),
            Kind::Own => self.own(),
            Kind::Atomic => self.atomic(scope),
            Kind::Rare => self.rare(),
            Kind::Exchange if known => self.exchange(scope),
            Kind::Matrix if scope.mask == Mask::All => self.matrix(),
            Kind::Barrier if scope.together => self.barrier(),
            Kind::Call if !self.functions.is_empty() => self.call(),
            _ => self.arithmetic(),
        };
        let lines = text.lines().filter(|line| line.ends_with(';')).count() as u64;
        self.cost += scope.runs * lines * if kind == Kind::Call { 20 } else { 1 };
        Statement::Lines(text)
    }
}

impl Mask {
    /// Returns the mask as an operand.
    pub fn operand(&self) -> &str {
        if let Self::Register(name) = self { name } else { "-1" }
    }
}
