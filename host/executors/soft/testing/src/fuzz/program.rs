//! Random programs as trees of statements, from which the reducer can remove parts, and their PTX text.
//!
//! The first letter of a register's name determines its width: `h` 16 bits, `a` and `d` 64 bits, `p` and `q`
//! predicates, all others 32 bits.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A part of a program that can be removed without making the rest undefined.
#[derive(Clone, Debug)]
pub enum Statement {
    /// Lines that belong together.
    Lines(String),
    /// Lines around other statements: a branch or a loop, and a second list of statements for the other side
    /// of a branch.
    Block {
        /// Lines before the statements.
        open: String,
        /// Statements inside.
        body: Vec<Statement>,
        /// Lines between the two lists.
        middle: String,
        /// Statements of the other side.
        other: Vec<Statement>,
        /// Lines after the statements.
        close: String,
    },
    /// A branch to statements that are behind the rest of the code, and that come back.
    Far {
        /// Lines that end with the branch.
        open: String,
        /// Label of the statements.
        label: String,
        /// The statements.
        body: Vec<Statement>,
        /// Label at which the code goes on.
        join: String,
    },
}

/// Sizes in bytes of each thread's part of the memories that a program accesses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// The thread's part of the allocation `own`.
    pub own: u64,
    /// The thread's registers at the end, in the allocation `out`.
    pub out: u64,
    /// Operands and results of instructions that are compared with their reference, in `trace`.
    pub trace: u64,
}

/// A random program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Number of blocks by axis.
    pub grid: [u32; 3],
    /// Number of threads of a block by axis.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub dynamic: u32,
    /// Seed of the contents of memory.
    pub seed: u64,
    /// Sizes of the threads' parts of memory.
    pub parts: Parts,
    /// Variables and functions of the module.
    pub declarations: Vec<(String, String)>,
    /// Variables of the kernel.
    pub variables: String,
    /// Lines that define a register each. They are left out where the register is not used.
    pub prologue: Vec<(String, String)>,
    /// The statements.
    pub body: Vec<Statement>,
}

/// Names that are special registers, or parts of them.
const SPECIAL: [&str; 17] = [
    "tid",
    "ntid",
    "ctaid",
    "nctaid",
    "laneid",
    "warpid",
    "nwarpid",
    "gridid",
    "smid",
    "nsmid",
    "lanemask_eq",
    "lanemask_le",
    "lanemask_lt",
    "lanemask_ge",
    "lanemask_gt",
    "dynamic_smem_size",
    "total_smem_size",
];

/// Returns the names of the registers in a text, without the special ones.
pub fn registers(text: &str) -> impl Iterator<Item = &str> {
    text.split('%').skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        (!SPECIAL.contains(&&rest[..end])).then(|| &rest[..end])
    })
}

/// Appends the text of statements, and to `far` that of those behind the rest of the code.
fn write(statements: &[Statement], to: &mut String, far: &mut String) {
    for statement in statements {
        match statement {
            Statement::Lines(lines) => to.push_str(lines),
            Statement::Block { open, body, middle, other, close } => {
                to.push_str(open);
                write(body, to, far);
                to.push_str(middle);
                write(other, to, far);
                to.push_str(close);
            }
            Statement::Far { open, label, body, join } => {
                let mut text = format!("{label}:\n");
                write(body, &mut text, far);
                far.push_str(&text);
                let _ = writeln!(far, "bra {join};");
                let _ = writeln!(to, "{open}{join}:");
            }
        }
    }
}

/// Returns the text of statements, which ends with `end`, and with what is behind the rest of the code.
#[must_use]
pub fn text_of(statements: &[Statement], end: &str) -> String {
    let (mut text, mut far) = (String::new(), String::new());
    write(statements, &mut text, &mut far);
    text + end + &far
}

impl Program {
    /// Returns the number of threads of a block.
    #[must_use]
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// Returns the PTX text, whose first line describes the launch.
    #[must_use]
    pub fn text(&self) -> String {
        let body = text_of(&self.body, "ret;\n");
        let mut used: BTreeSet<&str> = registers(&body).collect();
        let mut prologue = Vec::new();
        for (defined, lines) in self.prologue.iter().rev() {
            if used.contains(defined.as_str()) {
                used.extend(registers(lines));
                prologue.push(lines.as_str());
            }
        }
        prologue.reverse();
        let lists = |value: [u32; 3]| value.map(|axis| axis.to_string()).join(",");
        let mut text = format!(
            "// block={} grid={} dynamic={} seed={} own={} out={} trace={}\n{}",
            lists(self.block),
            lists(self.grid),
            self.dynamic,
            self.seed,
            self.parts.own,
            self.parts.out,
            self.parts.trace,
            HEADER
        );
        // A declaration is left out if nothing mentions its name. Later ones may mention earlier ones.
        let mut kept = Vec::new();
        let mut mentions = format!("{}{body}", prologue.concat());
        for (name, declaration) in self.declarations.iter().rev() {
            if mentions.contains(name.as_str()) {
                mentions.push_str(declaration);
                kept.push(declaration.as_str());
            }
        }
        text.extend(kept.into_iter().rev());
        text.push_str(ENTRY);
        text.push_str(&self.variables);
        for (class, first) in [("b16", "h"), ("b64", "ad"), ("pred", "pq"), ("b32", "")] {
            let of_class = |name: &&&str| {
                let narrow = name.starts_with(['h', 'a', 'd', 'p', 'q']);
                if first.is_empty() { !narrow } else { name.starts_with(|c| first.contains(c)) }
            };
            let names: Vec<String> = used.iter().filter(of_class).map(|name| format!("%{name}")).collect();
            for some in names.chunks(12) {
                let _ = writeln!(text, ".reg .{class} {};", some.join(", "));
            }
        }
        text.extend(prologue);
        text.push_str(&body);
        text.push_str("}\n");
        text
    }
}

const HEADER: &str = ".version 8.4\n.target sm_90\n.address_size 64\n";

/// Parameters of the kernel: addresses of memory, and 64 bytes of data.
const ENTRY: &str = ".visible .entry k(.param .u64 table, .param .u64 own, .param .u64 out, .param .u64 trace, \
                     .param .u64 sums, .param .align 16 .b8 data[64])\n{\n";
