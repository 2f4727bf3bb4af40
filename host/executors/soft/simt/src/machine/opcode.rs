//! Opcodes, the forms that instructions of an opcode have, and the description of their operands.

use super::slot::ValueLoc;
use crate::table::instructions;

/// Defines the opcodes of the table, in its order.
macro_rules! opcodes {
    ($($section:ident { $($name:ident $ptx:literal $operands:tt $flags:tt $how:tt;)* })*
     $(@ $given:tt $properties:tt { $($other:ident $text:literal $function:tt;)* })*) => {
        /// Opcode of an instruction: the index of its row in the instruction table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub(crate) enum Opcode {
            $($(#[doc = $ptx] $name,)*)*
            $($(#[doc = $text] $other,)*)*
        }

        impl Opcode {
            /// All opcodes, in the order of the table.
            pub(crate) const ALL: &[Self] = &[$($(Self::$name,)*)* $($(Self::$other,)*)*];
        }
    };
}
instructions!(opcodes);

/// Sets of operands, with one bit for each.
pub(crate) mod set {
    pub(crate) const A: u8 = 1;
    pub(crate) const B: u8 = 2;
    pub(crate) const C: u8 = 4;
    pub(crate) const D: u8 = 8;
}

/// Treatment of subnormal numbers by an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Subnormals {
    #[default]
    Keep,
    /// Operands and results are flushed, as `.ftz` demands.
    Flush,
    /// As [`Subnormals::Flush`], but the operands are known not to be subnormal.
    FlushResult,
}

/// Modifiers of an instruction, which select the function that interprets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    /// Operands that all lanes share, as a [`set`].
    pub(crate) shared: u8,
    /// Predicates that are inverted, as a [`set`].
    pub(crate) inverted: u8,
    pub(crate) subnormals: Subnormals,
    /// Number of registers of a vector or of matrices, number of results of a shuffle, or distance in lanes
    /// of a butterfly.
    pub(crate) count: u8,
}

impl Form {
    /// Returns the form of a function of these sources. All lanes share the result if they share all sources.
    pub(crate) fn of(sources: &[ValueLoc]) -> Self {
        let bits = sources.iter().enumerate();
        let shared = bits.fold(0, |bits, (index, source)| bits | u8::from(source.is_scalar()) << index);
        let all = sources.iter().all(|source| source.is_scalar());
        Self { shared: shared | if all { set::D } else { 0 }, ..Self::default() }
    }

    pub(crate) fn counted(count: usize) -> Self {
        Self { count: count as u8, ..Self::default() }
    }

    /// Returns this form with the operands `set` inverted if `inverted`.
    #[must_use]
    pub(crate) const fn invert(self, set: u8, inverted: bool) -> Self {
        Self { inverted: self.inverted | if inverted { set } else { 0 }, ..self }
    }

    #[must_use]
    pub(crate) const fn share(self, set: u8, shared: bool) -> Self {
        Self { shared: self.shared | if shared { set } else { 0 }, ..self }
    }

    /// Returns whether all lanes share the operand.
    #[inline(always)]
    pub(crate) const fn shares(self, operand: u8) -> bool {
        self.shared & operand != 0
    }

    /// Returns the mask with which the bits of a predicate are XORed: all ones if it is inverted.
    #[inline(always)]
    pub(crate) const fn inversion(self, operand: u8) -> u32 {
        if self.inverted & operand == 0 { 0 } else { u32::MAX }
    }
}

/// Class and width of an operand in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotKind {
    None,
    Scalar {
        wide: bool,
    },
    Vector {
        wide: bool,
    },
    /// A predicate, with one bit for each lane.
    Predicate,
}

/// Class of an operand, as far as the table states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandClass {
    /// A vector, or a scalar if the form says that all lanes share the operand.
    Lanes,
    Vector,
    Scalar,
    /// A predicate. If all lanes share a written one, it is a scalar of all ones or all zeros.
    Predicate,
}

/// Place of an operand in an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperandPlace {
    A,
    B,
    C,
    D,
    /// `d`, or the instruction's list if it has several registers; the next one likewise with `b`.
    Ds,
    Bs,
    /// The list of registers.
    List,
    /// The first register of the list.
    First,
    /// The second register of the list, if the form counts two.
    Second,
    /// The registers in the instruction's record.
    Record,
}

/// Description of an operand in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperandRow {
    pub(crate) place: OperandPlace,
    pub(crate) class: OperandClass,
    /// Whether a lane has 64 bits.
    pub(crate) wide: bool,
    /// Whether the instruction writes the operand. Otherwise it reads it.
    pub(crate) written: bool,
}

impl OperandRow {
    pub(crate) const fn new<T>(written: bool, place: OperandPlace, class: OperandClass) -> Self {
        Self { place, class, wide: size_of::<T>() == 8, written }
    }

    /// Returns class and width in an instruction of a form.
    pub(crate) const fn kind(self, form: Form) -> SlotKind {
        let wide = self.wide;
        let shared = match self.place {
            OperandPlace::A => form.shares(set::A),
            OperandPlace::B | OperandPlace::Bs => form.shares(set::B),
            OperandPlace::C => form.shares(set::C),
            OperandPlace::D | OperandPlace::Ds => form.shares(set::D),
            OperandPlace::List | OperandPlace::First | OperandPlace::Second | OperandPlace::Record => false,
        };
        match self.class {
            OperandClass::Vector => SlotKind::Vector { wide },
            OperandClass::Lanes if !shared => SlotKind::Vector { wide },
            OperandClass::Lanes | OperandClass::Scalar => SlotKind::Scalar { wide },
            OperandClass::Predicate if shared && self.written => SlotKind::Scalar { wide: false },
            OperandClass::Predicate => SlotKind::Predicate,
        }
    }
}
