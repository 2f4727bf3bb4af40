//! Templates, which define the machine code of each opcode.

use super::value::SlotKind;
use crate::machine::{Inst, Opcode, OperandClass, OperandPlace, Subnormals, set};
use crate::ops::DenormalMode;

/// Denormal mode that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// The operation does not depend on the mode.
    Whatever,
    /// The operation flushes subnormal operands and results, or never has any.
    Always,
    /// The operation preserves subnormal operands and results.
    Never,
}

/// Creates a template body for lanes of 32 bits.
macro_rules! narrow {
    (|$e:ident, $d:ident, $a:ident| $body:expr) => {
        |$e, _, d, [a, ..]| {
            let ($d, $a) = (d.low, a.low);
            $body
        }
    };
    (|$e:ident, $d:ident, $a:ident, $b:ident| $body:expr) => {
        |$e, _, d, [a, b, _]| {
            let ($d, $a, $b) = (d.low, a.low, b.low);
            $body
        }
    };
    (|$e:ident, $d:ident, $a:ident, $b:ident, $c:ident| $body:expr) => {
        |$e, _, d, [a, b, c]| {
            let ($d, $a, $b, $c) = (d.low, a.low, b.low, c.low);
            $body
        }
    };
}

/// Creates a template body for lanes of 64 bits, which is emitted for the lower and for the upper registers.
macro_rules! wide {
    (|$e:ident, $d:ident, $a:ident| $body:expr) => {
        |$e, _, d, [a, ..]| {
            {
                let ($d, $a) = (d.low, a.low);
                $body?;
            }
            let ($d, $a) = (d.high, a.high);
            $body
        }
    };
    (|$e:ident, $d:ident, $a:ident, $b:ident| $body:expr) => {
        |$e, _, d, [a, b, _]| {
            {
                let ($d, $a, $b) = (d.low, a.low, b.low);
                $body?;
            }
            let ($d, $a, $b) = (d.high, a.high, b.high);
            $body
        }
    };
}
pub(super) use {narrow, wide};

/// Template of a function of lanes. `B` emits the code for the lanes of one register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template<B> {
    pub(super) sources: [SlotKind; 3],
    pub(super) dst: SlotKind,
    pub(super) body: B,
    pub(super) flush: Flush,
    /// Whether this is floating-point arithmetic, whose operands and result may be neither flushed nor
    /// canonical.
    pub(super) float: bool,
    /// Whether the result is a mask, which the instruction's form may invert.
    pub(super) test: bool,
}

/// A state space that machine code can access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemSpace {
    Global,
    Shared,
    /// Local memory, with one word per lane. With `generic`, addresses are generic, and only those in local
    /// memory are handled.
    Local {
        generic: bool,
    },
}

/// Elements that a memory access transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elements {
    pub(super) memory: MemSpace,
    /// Size of each element in bytes: 1, 2, 4 or 8.
    pub(super) bytes: u32,
    pub(super) count: usize,
    /// Required alignment of the address in bytes.
    pub(super) align: u32,
}

impl Elements {
    /// Returns the number of bytes that are accessed at an address. Short elements are loaded as words.
    pub(super) fn reach(self, write: bool) -> i32 {
        let bytes = self.bytes.cast_signed() * self.count as i32;
        if write { bytes } else { bytes.max(4) }
    }
}

/// A group of accesses through one address vector that share a bounds check.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoalescedCheck {
    /// Index of the first instruction of the group, whose window is used.
    pub(super) index: usize,
    pub(super) place: usize,
    pub(super) memory: MemSpace,
    pub(super) write: bool,
    /// Lowest distance of an accessed byte from the address, in bytes.
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) align: u32,
}

/// Implementation of an instruction in machine code.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action<B> {
    /// Applies a function to each lane, or to scalars.
    Lanes(Template<B>),
    /// Adds four products of signed bytes.
    Dot4(Template<B>),
    /// Combines bit fields of several words.
    Fields,
    Load(Elements),
    /// Loads two words; the second goes to `c`.
    LoadTwo(Elements),
    LoadScalar(Elements),
    Store(Elements),
    /// Exchanges lanes whose indices differ in one bit, and combines the values if there is a function.
    Butterfly {
        by: u32,
        then: Option<Template<B>>,
    },
    /// Multiplies matrices of halves, or of bytes.
    Product {
        halves: bool,
    },
    /// Multiplies four pairs of matrices of halves, each in two quads.
    Quads,
    /// Loads matrices from shared memory. With `generic`, from generic addresses. With `trans`, by columns.
    Matrices {
        generic: bool,
        trans: bool,
        count: usize,
    },
    /// Transposes a matrix.
    Transpose,
    /// Reads the values of other lanes, whose indices are constants.
    Shuffle {
        mode: u8,
    },
    /// Computes the logic of two predicates. With `shared`, all lanes are written.
    Logic {
        shared: bool,
    },
    /// Selects one of two scalars.
    SelectScalar {
        wide: bool,
    },
    Return,
    /// Arrives at a barrier at which all threads of the block wait.
    Arrive,
    Goto {
        back: bool,
    },
    Branch {
        negated: bool,
        back: bool,
    },
}

/// Machine code of an opcode. The action for an instruction depends on its form, too.
#[derive(Clone, Copy)]
enum Entry<B> {
    Lanes(B),
    Dot4(B),
    /// A butterfly whose result is combined by the function, if there is one.
    Butterfly(Option<B>),
    /// An access of elements of `bytes` bytes, for the listed numbers of registers: vectors, and scalars.
    Access {
        memory: MemSpace,
        bytes: u32,
        vectors: &'static [u8],
        scalars: &'static [u8],
    },
    Other(Action<B>),
}

/// Table of the templates, by opcode.
pub(super) struct Templates<B> {
    entries: Vec<Option<Entry<B>>>,
}

/// Returns the template of a function of lanes for an instruction, as the opcode's row describes it.
fn template<B>(step: &Inst, body: B) -> Template<B> {
    let row = step.opcode.row();
    let flush = match (row.denormals, step.form.subnormals) {
        (DenormalMode::Any, _) => Flush::Whatever,
        (DenormalMode::Keep, _) | (DenormalMode::OfForm, Subnormals::Keep) => Flush::Never,
        (DenormalMode::OfForm, _) => Flush::Always,
    };
    let mut found = Template {
        sources: [SlotKind::None; 3],
        dst: SlotKind::None,
        body,
        flush,
        float: row.arithmetic,
        test: false,
    };
    for operand in row.operands {
        let kind = operand.kind(step.form);
        match operand.place {
            OperandPlace::A => found.sources[0] = kind,
            OperandPlace::B => found.sources[1] = kind,
            OperandPlace::C => found.sources[2] = kind,
            _ => (found.dst, found.test) = (kind, operand.class == OperandClass::Predicate),
        }
    }
    found
}

impl<B: Copy> Templates<B> {
    pub(super) fn new() -> Self {
        Self { entries: vec![None; Opcode::ALL.len()] }
    }

    /// Returns the template of an instruction, if it has one.
    pub(super) fn get(&self, step: &Inst) -> Option<Action<B>> {
        let form = step.form;
        Some(match self.entries[step.opcode as usize]? {
            Entry::Lanes(_) if form.shares(set::D) && step.opcode == Opcode::Selp32 => {
                Action::SelectScalar { wide: false }
            }
            Entry::Lanes(_) if form.shares(set::D) && step.opcode == Opcode::Selp64 => {
                Action::SelectScalar { wide: true }
            }
            Entry::Lanes(body) => Action::Lanes(template(step, body)),
            Entry::Dot4(body) => Action::Dot4(template(step, body)),
            Entry::Butterfly(body) => {
                let then = body.map(|body| template(step, body));
                Action::Butterfly { by: form.count.into(), then }
            }
            Entry::Access { memory, bytes, vectors, scalars } => {
                let counts = if form.shares(set::A) { scalars } else { vectors };
                if !counts.contains(&form.count) {
                    return None;
                }
                let count = usize::from(form.count);
                // Local memory is accessed word by word, in rows of the lanes.
                let align = if let MemSpace::Local { .. } = memory { 4 } else { bytes * count as u32 };
                let elements = Elements { memory, bytes, count, align };
                match step.opcode.row().operands[0].written {
                    true if form.shares(set::D) => Action::LoadScalar(elements),
                    true => Action::Load(elements),
                    false => Action::Store(elements),
                }
            }
            Entry::Other(Action::Logic { .. }) => Action::Logic { shared: form.shares(set::D) },
            Entry::Other(Action::Matrices { generic, trans, .. }) => {
                Action::Matrices { generic, trans, count: form.count.into() }
            }
            // Lanes are exchanged by constants, and without a predicate.
            Entry::Other(Action::Shuffle { .. }) if form.count != 1 || !form.shares(set::B) => return None,
            Entry::Other(Action::Branch { back, .. }) => {
                Action::Branch { negated: form.inverted & set::A != 0, back }
            }
            Entry::Other(action) => action,
        })
    }

    /// Returns whether there is machine code for a form of the opcode.
    pub(super) fn has(&self, opcode: Opcode) -> bool {
        self.entries[opcode as usize].is_some()
    }

    /// Adds the template of a function of lanes.
    pub(super) fn lanes(&mut self, opcode: Opcode, body: B) {
        self.entries[opcode as usize] = Some(Entry::Lanes(body));
    }

    /// Adds the template of four products of signed bytes.
    pub(super) fn dot4(&mut self, opcode: Opcode, body: B) {
        self.entries[opcode as usize] = Some(Entry::Dot4(body));
    }

    /// Adds an exchange of lanes, whose result is combined by a function if there is one.
    pub(super) fn butterfly(&mut self, opcode: Opcode, body: Option<B>) {
        self.entries[opcode as usize] = Some(Entry::Butterfly(body));
    }

    /// Adds an access of elements of `bytes` bytes, for the listed numbers of registers.
    pub(super) fn access(
        &mut self,
        opcode: Opcode,
        memory: MemSpace,
        bytes: u32,
        vectors: &'static [u8],
        scalars: &'static [u8],
    ) {
        self.entries[opcode as usize] = Some(Entry::Access { memory, bytes, vectors, scalars });
    }

    /// Adds another action. What the form tells is filled in for each instruction.
    pub(super) fn add(&mut self, opcode: Opcode, action: Action<B>) {
        self.entries[opcode as usize] = Some(Entry::Other(action));
    }
}
