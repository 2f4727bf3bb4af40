//! Templates: what machine code needs to know of each kind of step. A step is known by the type of its
//! operation.

use std::any::TypeId;
use std::collections::HashMap;

use super::value::Kind;
use crate::machine::{Inst, LaneType, Operation};
use crate::ops::{
    Op1, Op2, Op3, Scalar1, Scalar2, Scalar3, Test, Vector1, Vector2, Vector3,
    compare::{Compare, CompareScalar, Select, SelectScalar},
    float::Float,
};

/// What an operation has to do with subnormal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flush {
    /// Nothing.
    Whatever,
    /// It flushes them in operands and results, or is known to meet none.
    Always,
    /// It keeps them.
    Never,
}

/// A body of lanes of 32 bits.
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

/// A body of lanes of 64 bits: it is done with the lower ones and with the upper ones.
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

/// A function of lanes. `B` is what computes some lanes of its result in machine code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template<B> {
    pub(super) sources: [Kind; 3],
    pub(super) dst: Kind,
    pub(super) body: B,
    pub(super) flush: Flush,
    /// Whether it is arithmetic of floats: operands need not be flushed or canonical yet, and the result is
    /// neither.
    pub(super) float: bool,
    /// Whether `y` of the step inverts the result, a mask.
    pub(super) test: bool,
}

/// A state space that machine code accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Global,
    Shared,
    /// A word of each lane's own memory. `generic`: the address names the memory, and others are not
    /// accessed.
    Local {
        generic: bool,
    },
}

/// The elements of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elements {
    pub(super) memory: Memory,
    /// Bytes of each element: 1, 2, 4 or 8.
    pub(super) bytes: u32,
    pub(super) count: usize,
    /// Of which number its address is a multiple.
    pub(super) align: u32,
}

impl Elements {
    /// Bytes that are read or written at an address. Short elements are loaded as words.
    pub(super) fn reach(self, write: bool) -> i32 {
        let bytes = self.bytes.cast_signed() * self.count as i32;
        if write { bytes } else { bytes.max(4) }
    }
}

/// Accesses of lanes from one address, which are checked together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The first of its steps, whose window is used.
    pub(super) index: usize,
    pub(super) place: usize,
    pub(super) memory: Memory,
    pub(super) write: bool,
    /// The least and the greatest distance from the address, in bytes.
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) align: u32,
}

/// What machine code does for a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry<B> {
    /// A function of lanes, or the same of scalars.
    Lanes(Template<B>),
    /// Products of signed bytes.
    Dot4(Template<B>),
    /// Bit fields of several words, united.
    Fields,
    Load(Elements),
    /// Two words, the second of which goes to `c`.
    LoadTwo(Elements),
    LoadScalar(Elements),
    Store(Elements),
    /// Exchanges lanes whose numbers differ in one bit, and combines the values where a function is given.
    Butterfly {
        by: u32,
        then: Option<Template<B>>,
    },
    /// A product of matrices of halves, or of bytes.
    Product {
        halves: bool,
    },
    /// Four products of matrices of halves, each by two quads.
    Quads,
    /// A load of so many matrices, by columns where that is said. `generic`: from generic addresses, which
    /// name shared memory.
    Matrices {
        generic: bool,
        trans: bool,
        count: usize,
    },
    /// The columns of a matrix as rows.
    Transpose,
    /// Reads the values of other lanes, whose numbers are constants.
    Shuffle {
        mode: u8,
    },
    /// Arithmetic of predicates. `shared`: all lanes are written.
    Logic {
        shared: bool,
    },
    /// A selection of scalars.
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

impl<B> Entry<B> {
    /// Whether no step follows it in its run.
    pub(super) const fn ends(&self) -> bool {
        matches!(self, Self::Branch { .. } | Self::Goto { .. } | Self::Return | Self::Arrive)
    }

    /// A function of lanes that are no floats.
    pub(super) const fn of_bits(sources: [Kind; 3], dst: Kind, body: B) -> Self
    where
        B: Copy,
    {
        Self::Lanes(Template { sources, dst, body, flush: Flush::Whatever, float: false, test: false })
    }
}

/// The templates by the operation of their steps.
pub(super) struct Table<B> {
    entries: HashMap<TypeId, Entry<B>>,
}

const NONE: Kind = Kind::None;

const fn vector<T>() -> Kind {
    Kind::Vector { wide: size_of::<T>() == 8 }
}

const fn scalar<T>() -> Kind {
    Kind::Scalar { wide: size_of::<T>() == 8 }
}

const fn source<T>(is_scalar: bool) -> Kind {
    if is_scalar { scalar::<T>() } else { vector::<T>() }
}

impl<B: Copy> Table<B> {
    pub(super) fn new() -> Self {
        Self { entries: HashMap::new() }
    }

    /// The template of a step.
    pub(super) fn get(&self, step: &Inst) -> Option<Entry<B>> {
        self.entries.get(&step.opcode).copied()
    }

    pub(super) fn add<R: Operation>(&mut self, entry: Entry<B>) {
        self.entries.insert(TypeId::of::<R>(), entry);
    }

    fn lanes<R: Operation>(&mut self, sources: [Kind; 3], dst: Kind, body: B, flush: Flush, float: bool) {
        self.add::<R>(Entry::Lanes(Template { sources, dst, body, flush, float, test: false }));
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

    /// Adds a function of one source.
    pub(super) fn op1<O: Op1>(&mut self, body: B) {
        self.all1::<O>(body, Flush::Whatever, false);
    }

    /// Adds a function of two sources.
    pub(super) fn op2<O: Op2>(&mut self, body: B) {
        self.all2::<O>(body, Flush::Whatever, false);
    }

    /// Adds a function of three sources.
    pub(super) fn op3<O: Op3>(&mut self, body: B) {
        self.all3::<O>(body, Flush::Whatever, false);
    }

    /// Adds arithmetic of one float.
    pub(super) fn float1<O: Op1<A = f32, R = f32>>(&mut self, body: B) {
        self.all1::<Float<O, true, true>>(body, Flush::Always, true);
        self.all1::<Float<O, false, true>>(body, Flush::Always, true);
        self.all1::<Float<O, false, false>>(body, Flush::Never, true);
    }

    /// Adds arithmetic of two floats.
    pub(super) fn float2<O: Op2<A = f32, B = f32, R = f32>>(&mut self, body: B) {
        self.all2::<Float<O, true, true>>(body, Flush::Always, true);
        self.all2::<Float<O, false, true>>(body, Flush::Always, true);
        self.all2::<Float<O, false, false>>(body, Flush::Never, true);
    }

    /// Adds arithmetic of three floats.
    pub(super) fn float3<O: Op3<A = f32, B = f32, C = f32, R = f32>>(&mut self, body: B) {
        self.all3::<Float<O, true, true>>(body, Flush::Always, true);
        self.all3::<Float<O, false, true>>(body, Flush::Always, true);
        self.all3::<Float<O, false, false>>(body, Flush::Never, true);
    }

    /// Adds the selections of values of a type.
    pub(super) fn select<T: LaneType>(&mut self, body: B) {
        let entry = |a: bool, b: bool| {
            Entry::of_bits([source::<T>(a), source::<T>(b), Kind::Predicate], vector::<T>(), body)
        };
        self.add::<Select<T, false, false>>(entry(false, false));
        self.add::<Select<T, true, false>>(entry(true, false));
        self.add::<Select<T, false, true>>(entry(false, true));
        self.add::<Select<T, true, true>>(entry(true, true));
        self.add::<SelectScalar<T>>(Entry::SelectScalar { wide: size_of::<T>() == 8 });
    }

    /// Adds a comparison, whose body makes masks.
    pub(super) fn test<O: Test>(&mut self, body: B, flush: Flush, float: bool) {
        let mut add = |entry: fn(&mut Self, Template<B>), a: bool, b: bool, dst: Kind| {
            let sources = [source::<O::T>(a), source::<O::T>(b), NONE];
            entry(self, Template { sources, dst, body, flush, float, test: true });
        };
        let p = Kind::Predicate;
        add(|table, it| table.add::<Compare<O, false, false>>(Entry::Lanes(it)), false, false, p);
        add(|table, it| table.add::<Compare<O, true, false>>(Entry::Lanes(it)), true, false, p);
        add(|table, it| table.add::<Compare<O, false, true>>(Entry::Lanes(it)), false, true, p);
        let narrow = Kind::Scalar { wide: false };
        add(|table, it| table.add::<CompareScalar<O>>(Entry::Lanes(it)), true, true, narrow);
    }
}
