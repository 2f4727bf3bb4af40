//! Templates, which define the machine code of each kind of instruction. An instruction is identified by the
//! type of its operation.

use std::any::TypeId;
use std::collections::HashMap;

use super::value::SlotKind;
use crate::machine::{Inst, LaneType, Operation};
use crate::ops::{
    Op1, Op2, Op3, Scalar1, Scalar2, Scalar3, Test, Vector1, Vector2, Vector3,
    compare::{Compare, CompareScalar, Select, SelectScalar},
    float::Float,
};

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
    /// Whether the result is a mask, which the instruction's `y` inverts.
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

impl<B> Action<B> {
    /// Returns whether the instruction ends its superblock.
    pub(super) const fn ends(&self) -> bool {
        matches!(self, Self::Branch { .. } | Self::Goto { .. } | Self::Return | Self::Arrive)
    }

    /// Creates the action of a function of lanes that are not floats.
    pub(super) const fn bitwise(sources: [SlotKind; 3], dst: SlotKind, body: B) -> Self
    where
        B: Copy,
    {
        Self::Lanes(Template { sources, dst, body, flush: Flush::Whatever, float: false, test: false })
    }
}

/// Table of the actions, by the type of the operation.
pub(super) struct Templates<B> {
    entries: HashMap<TypeId, Action<B>>,
}

const NONE: SlotKind = SlotKind::None;

const fn vector<T>() -> SlotKind {
    SlotKind::Vector { wide: size_of::<T>() == 8 }
}

const fn scalar<T>() -> SlotKind {
    SlotKind::Scalar { wide: size_of::<T>() == 8 }
}

const fn source<T>(is_scalar: bool) -> SlotKind {
    if is_scalar { scalar::<T>() } else { vector::<T>() }
}

impl<B: Copy> Templates<B> {
    pub(super) fn new() -> Self {
        Self { entries: HashMap::new() }
    }

    /// Returns the template of an instruction, if it has one.
    pub(super) fn get(&self, step: &Inst) -> Option<Action<B>> {
        self.entries.get(&step.opcode).copied()
    }

    pub(super) fn add<R: Operation>(&mut self, entry: Action<B>) {
        self.entries.insert(TypeId::of::<R>(), entry);
    }

    fn lanes<R: Operation>(
        &mut self,
        sources: [SlotKind; 3],
        dst: SlotKind,
        body: B,
        flush: Flush,
        float: bool,
    ) {
        self.add::<R>(Action::Lanes(Template { sources, dst, body, flush, float, test: false }));
    }

    fn all1<O: Op1>(&mut self, body: B, flush: Flush, float: bool) {
        self.lanes::<Vector1<O>>([vector::<O::A>(), NONE, NONE], vector::<O::R>(), body, flush, float);
        self.lanes::<Scalar1<O>>([scalar::<O::A>(), NONE, NONE], scalar::<O::R>(), body, flush, float);
    }

    fn all2<O: Op2>(&mut self, body: B, flush: Flush, float: bool) {
        let form = |a: bool, b: bool| [source::<O::A>(a), source::<O::B>(b), NONE];
        let d = vector::<O::R>();
        self.lanes::<Vector2<O, false, false>>(form(false, false), d, body, flush, float);
        self.lanes::<Vector2<O, true, false>>(form(true, false), d, body, flush, float);
        self.lanes::<Vector2<O, false, true>>(form(false, true), d, body, flush, float);
        self.lanes::<Scalar2<O>>(form(true, true), scalar::<O::R>(), body, flush, float);
    }

    fn all3<O: Op3>(&mut self, body: B, flush: Flush, float: bool) {
        let form = |a: bool, b: bool, c: bool| [source::<O::A>(a), source::<O::B>(b), source::<O::C>(c)];
        let d = vector::<O::R>();
        self.lanes::<Vector3<O, false, false, false>>(form(false, false, false), d, body, flush, float);
        self.lanes::<Vector3<O, false, false, true>>(form(false, false, true), d, body, flush, float);
        self.lanes::<Vector3<O, false, true, false>>(form(false, true, false), d, body, flush, float);
        self.lanes::<Vector3<O, false, true, true>>(form(false, true, true), d, body, flush, float);
        self.lanes::<Vector3<O, true, false, false>>(form(true, false, false), d, body, flush, float);
        self.lanes::<Vector3<O, true, false, true>>(form(true, false, true), d, body, flush, float);
        self.lanes::<Vector3<O, true, true, false>>(form(true, true, false), d, body, flush, float);
        self.lanes::<Scalar3<O>>(form(true, true, true), scalar::<O::R>(), body, flush, float);
    }

    /// Registers a function of one operand.
    pub(super) fn op1<O: Op1>(&mut self, body: B) {
        self.all1::<O>(body, Flush::Whatever, false);
    }

    /// Registers a function of two operands.
    pub(super) fn op2<O: Op2>(&mut self, body: B) {
        self.all2::<O>(body, Flush::Whatever, false);
    }

    /// Registers a function of three operands.
    pub(super) fn op3<O: Op3>(&mut self, body: B) {
        self.all3::<O>(body, Flush::Whatever, false);
    }

    /// Registers floating-point arithmetic with one operand.
    pub(super) fn float1<O: Op1<A = f32, R = f32>>(&mut self, body: B) {
        self.all1::<Float<O, true, true>>(body, Flush::Always, true);
        self.all1::<Float<O, false, true>>(body, Flush::Always, true);
        self.all1::<Float<O, false, false>>(body, Flush::Never, true);
    }

    /// Registers floating-point arithmetic with two operands.
    pub(super) fn float2<O: Op2<A = f32, B = f32, R = f32>>(&mut self, body: B) {
        self.all2::<Float<O, true, true>>(body, Flush::Always, true);
        self.all2::<Float<O, false, true>>(body, Flush::Always, true);
        self.all2::<Float<O, false, false>>(body, Flush::Never, true);
    }

    /// Registers floating-point arithmetic with three operands.
    pub(super) fn float3<O: Op3<A = f32, B = f32, C = f32, R = f32>>(&mut self, body: B) {
        self.all3::<Float<O, true, true>>(body, Flush::Always, true);
        self.all3::<Float<O, false, true>>(body, Flush::Always, true);
        self.all3::<Float<O, false, false>>(body, Flush::Never, true);
    }

    /// Registers the selections between values of a type.
    pub(super) fn select<T: LaneType>(&mut self, body: B) {
        let entry = |a: bool, b: bool| {
            Action::bitwise([source::<T>(a), source::<T>(b), SlotKind::Predicate], vector::<T>(), body)
        };
        self.add::<Select<T, false, false>>(entry(false, false));
        self.add::<Select<T, true, false>>(entry(true, false));
        self.add::<Select<T, false, true>>(entry(false, true));
        self.add::<Select<T, true, true>>(entry(true, true));
        self.add::<SelectScalar<T>>(Action::SelectScalar { wide: size_of::<T>() == 8 });
    }

    /// Registers a comparison of integers.
    pub(super) fn integer_test<O: Test>(&mut self, body: B) {
        self.test::<O>(body, Flush::Whatever, false);
    }

    /// Registers a comparison, whose body computes masks.
    pub(super) fn test<O: Test>(&mut self, body: B, flush: Flush, float: bool) {
        let mut add = |entry: fn(&mut Self, Template<B>), a: bool, b: bool, dst: SlotKind| {
            let sources = [source::<O::T>(a), source::<O::T>(b), NONE];
            entry(self, Template { sources, dst, body, flush, float, test: true });
        };
        let p = SlotKind::Predicate;
        add(|table, it| table.add::<Compare<O, false, false>>(Action::Lanes(it)), false, false, p);
        add(|table, it| table.add::<Compare<O, true, false>>(Action::Lanes(it)), true, false, p);
        add(|table, it| table.add::<Compare<O, false, true>>(Action::Lanes(it)), false, true, p);
        let narrow = SlotKind::Scalar { wide: false };
        add(|table, it| table.add::<CompareScalar<O>>(Action::Lanes(it)), true, true, narrow);
    }
}
