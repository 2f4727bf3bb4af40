//! Converts random programs to PTX.

use crate::programs::{
    Condition, ControlProgram, DEPTH, OPERATIONS, Statement, TABLE, VARIABLES, VariableValue,
};

impl ControlProgram {
    /// Returns the kernel of a program. Its parameters are the addresses of a table and of the results, and a
    /// number.
    pub fn kernel(&self, name: &str) -> String {
        let mut writer = PtxWriter { text: String::new(), far: String::new(), labels: 0, loops: Vec::new() };
        writer.block(&self.0);
        writer.leave();
        format!(
            ".visible .entry {name}(.param .u64 table, .param .u64 out, .param .u32 n)\n{{\n\
             .reg .b64 %table, %out, %a;\n.reg .b32 %v<{VARIABLES}>, %c<{DEPTH}>, %b<{DEPTH}>, %x, %y, %m;\n.reg .pred %p;\n.shared .align 256 .b8 words[256];\n\
             ld.param.u64 %table, [table];\nld.param.u64 %out, [out];\nld.param.u32 %v2, [n];\n\
             mov.u32 %v0, %tid.x;\nmov.u32 %v1, %ctaid.x;\nmov.u32 %v3, 0;\nmov.u32 %v4, %tid.y;\nmov.u32 %v5, 5;\nmov.u32 %v6, 100;\nmov.u32 %v7, -16;\n\
             mov.u32 %x, %ntid.x;\nmad.lo.u32 %y, %v4, %x, %v0;\nmov.u32 %m, words;\nmad.lo.u32 %m, %y, 4, %m;\nmov.u32 %c0, %ntid.y;\nmul.lo.u32 %x, %x, %c0;\nmad.lo.u32 %y, %v1, %x, %y;\nmul.wide.u32 %a, %y, {};\nadd.s64 %out, %out, %a;\n\
             {}{}}}\n",
            4 * VARIABLES,
            writer.text,
            writer.far
        )
    }
}

/// Writer of a program's PTX.
struct PtxWriter {
    text: String,
    /// Code that is placed after the main part of the kernel.
    far: String,
    labels: usize,
    /// Labels of the enclosing loops: the one at which each continues, and the one at which it ends.
    loops: Vec<(String, String)>,
}

impl PtxWriter {
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

    /// Writes code that stores the variables and returns.
    fn leave(&mut self) {
        for index in 0..VARIABLES {
            self.line(&format!("st.global.u32 [%out+{}], %v{index};", 4 * index));
        }
        self.line("ret;");
    }

    /// Writes code that computes a condition in `%p`.
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
            Statement::Together { times, body } => {
                let head = self.label("TOGETHER");
                self.line(&format!("mov.u32 %c0, 0;\n{head}:"));
                self.block(body);
                self.line(&format!(
                    "add.u32 %c0, %c0, 1;\nsetp.lt.u32 %p, %c0, {times};\n@%p bra {head};"
                ));
            }
            Statement::Exchange { dst, value, differs } if *differs < 32 => self.line(&format!(
                "mov.u32 %x, {};\nshfl.sync.bfly.b32 %v{dst}, %x, {differs}, 31, -1;",
                name(*value)
            )),
            Statement::Exchange { dst, value, differs } => self.line(&format!(
                "mov.u32 %x, {};\nst.shared.u32 [%m], %x;\nbarrier.sync 0;\nxor.b32 %x, %m, {};\nld.shared.u32 %v{dst}, [%x];\nbarrier.sync 0;",
                name(*value),
                4 * differs
            )),
            Statement::Ballot { dst, condition } => {
                self.condition(*condition);
                self.line(&format!("vote.sync.ballot.b32 %v{dst}, %p, -1;"));
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

    fn repeat(&mut self, depth: usize, bound: VariableValue, early: bool, body: &[Statement]) {
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

fn name(value: VariableValue) -> String {
    match value {
        VariableValue::Variable(index) => format!("%v{index}"),
        VariableValue::Counter(index) => format!("%c{index}"),
        VariableValue::Constant(value) => value.to_string(),
    }
}
