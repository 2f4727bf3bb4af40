//! Rows of the instruction table, with the function that interprets each form of an opcode.

use super::atomic::Atomic;
use super::forms::{
    base, butterfly, butterfly_then, float_test, floats1, floats2, floats3, flushed, isa, lanes1, lanes2,
    lanes3, load_either, load_generic, load_local, load_matrices, logic, select, shuffle, store, store_local,
    store_matrices, store_words, test, vote,
};
use super::heap::{Free, Malloc};
use super::matrix::{Brains, Bytes, Doubles, Halves, Multiply, MultiplyQuads, Singles, Transpose};
use super::memory::{CopyAsync, FromU8, FromU16, Generic, Global, LoadPair, LoadTwo, Same32, Same64, Shared};
use super::print::{Assert, Print};
use super::rare::Rare;
use super::{Splat, bits, compare, control, convert, double, float, half, integer, special, warps};
use crate::machine::{Features, Form, Inst, InstFn, Opcode, OperandClass, OperandPlace, OperandRow};
use crate::table::instructions;

/// Denormal modes in which machine code may compute an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenormalMode {
    /// The result does not depend on the mode.
    Any,
    /// Subnormal numbers are kept.
    Keep,
    /// The mode that the instruction's form tells.
    OfForm,
}

/// Properties of an opcode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The PTX instruction that the opcode executes, or the part of one.
    pub(crate) ptx: &'static str,
    pub(crate) operands: &'static [OperandRow],
    pub(crate) denormals: DenormalMode,
    /// Whether this is arithmetic of 32-bit floating-point numbers. Machine code may leave operands and
    /// results of such instructions neither flushed nor canonical.
    pub(crate) arithmetic: bool,
    /// Whether the instruction may end the launch with a fault.
    pub(crate) faults: bool,
    /// Whether it may leave the code and be executed again later.
    pub(crate) leaves: bool,
    /// Whether it ends its block.
    pub(crate) ends: bool,
    /// Whether it can be interpreted in any floating-point mode.
    pub(crate) plain: bool,
    /// Returns the function that interprets a form, or `None` if there is none for these features.
    function: fn(Form, Features) -> Option<InstFn>,
}

impl Opcode {
    /// Returns the opcode's row of the instruction table.
    pub(crate) fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
}

impl Inst {
    /// Creates an instruction without operands, or returns `None` if the CPU features do not permit the form.
    pub(crate) fn of(opcode: Opcode, form: Form, features: Features, line: u32) -> Option<Self> {
        let row = opcode.row();
        (row.function)(form, features).map(|run| Self::new(run, opcode, form, row.plain, line))
    }
}

/// Row of an opcode without properties.
const fn row(
    ptx: &'static str,
    operands: &'static [OperandRow],
    denormals: DenormalMode,
    function: fn(Form, Features) -> Option<InstFn>,
) -> Row {
    Row {
        ptx,
        operands,
        denormals,
        arithmetic: false,
        faults: false,
        leaves: false,
        ends: false,
        plain: false,
        function,
    }
}

/// Completes a row: arithmetic of 32-bit numbers flushes them as its form tells.
const fn with_mode(row: Row) -> Row {
    let denormals = if row.arithmetic { DenormalMode::OfForm } else { row.denormals };
    Row { denormals, ..row }
}

/// Describes an operand of a function of lanes.
const fn lanes<T>(written: bool, place: OperandPlace) -> OperandRow {
    OperandRow::new::<T>(written, place, OperandClass::Lanes)
}

/// Describes the operands of a comparison.
const fn compared<T>() -> [OperandRow; 3] {
    let d = OperandRow::new::<u32>(true, OperandPlace::D, OperandClass::Predicate);
    [d, lanes::<T>(false, OperandPlace::A), lanes::<T>(false, OperandPlace::B)]
}

/// Resolves a word of the table.
macro_rules! word {
    (read) => {
        false
    };
    (write) => {
        true
    };
    (a) => {
        OperandPlace::A
    };
    (b) => {
        OperandPlace::B
    };
    (c) => {
        OperandPlace::C
    };
    (d) => {
        OperandPlace::D
    };
    (ds) => {
        OperandPlace::Ds
    };
    (bs) => {
        OperandPlace::Bs
    };
    (list) => {
        OperandPlace::List
    };
    (first) => {
        OperandPlace::First
    };
    (second) => {
        OperandPlace::Second
    };
    (lanes) => {
        OperandClass::Lanes
    };
    (vector) => {
        OperandClass::Vector
    };
    (scalar) => {
        OperandClass::Scalar
    };
    (predicate) => {
        OperandClass::Predicate
    };
}

/// Describes an operand of a row.
macro_rules! operand {
    (record) => {
        OperandRow::new::<u32>(false, OperandPlace::Record, OperandClass::Vector)
    };
    ($access:ident $place:ident $class:ident $t:ty) => {
        OperandRow::new::<$t>(word!($access), word!($place), word!($class))
    };
}

/// Describes the operands of a function of lanes.
macro_rules! function_operands {
    ($a:ty => $r:ty) => {
        &[lanes::<$r>(true, OperandPlace::D), lanes::<$a>(false, OperandPlace::A)]
    };
    ($a:ty, $b:ty => $r:ty) => {
        &[
            lanes::<$r>(true, OperandPlace::D),
            lanes::<$a>(false, OperandPlace::A),
            lanes::<$b>(false, OperandPlace::B),
        ]
    };
    ($a:ty, $b:ty, $c:ty => $r:ty) => {
        &[
            lanes::<$r>(true, OperandPlace::D),
            lanes::<$a>(false, OperandPlace::A),
            lanes::<$b>(false, OperandPlace::B),
            lanes::<$c>(false, OperandPlace::C),
        ]
    };
}

/// Selects the function that chooses the interpretation of a function of one, two or three sources.
macro_rules! function {
    ($of1:ident $of2:ident $of3:ident $mixed:tt ($a:ty => $r:ty) $f:ty) => {
        $of1::<$f, $a, $r>
    };
    ($of1:ident $of2:ident $of3:ident $mixed:tt ($a:ty, $b:ty => $r:ty) $f:ty) => {
        $of2::<$f, $a, $b, $r, $mixed>
    };
    ($of1:ident $of2:ident $of3:ident $mixed:tt ($a:ty, $b:ty, $c:ty => $r:ty) $f:ty) => {
        $of3::<$f, $a, $b, $c, $r, $mixed>
    };
}

/// Selects the function that chooses the interpretation of arithmetic of 32-bit floating-point numbers. A row
/// with other types is not compiled.
macro_rules! float_function {
    ((f32 => f32) [] $f:ty) => {
        floats1::<$f>
    };
    ((f32, f32 => f32) [] $f:ty) => {
        floats2::<$f, false>
    };
    ((f32, f32 => f32) [normal] $f:ty) => {
        floats2::<$f, true>
    };
    ((f32, f32, f32 => f32) [] $f:ty) => {
        floats3::<$f, false>
    };
    ((f32, f32, f32 => f32) [normal] $f:ty) => {
        floats3::<$f, true>
    };
}

/// Creates the row of an opcode in a section.
macro_rules! entry {
    (lanes $ptx:literal ($($types:tt)*) [] ($f:ty)) => {
        row($ptx, function_operands!($($types)*), DenormalMode::Any,
            function!(lanes1 lanes2 lanes3 false ($($types)*) $f))
    };
    (lanes $ptx:literal ($($types:tt)*) [mixed] ($f:ty)) => {
        row($ptx, function_operands!($($types)*), DenormalMode::Any,
            function!(lanes1 lanes2 lanes3 true ($($types)*) $f))
    };
    (doubles $ptx:literal ($($types:tt)*) [] ($f:ty)) => {
        row($ptx, function_operands!($($types)*), DenormalMode::Keep,
            function!(lanes1 lanes2 lanes3 false ($($types)*) $f))
    };
    (floats $ptx:literal ($($types:tt)*) $flag:tt ($f:ty)) => {
        Row { arithmetic: true, ..row($ptx, function_operands!($($types)*), DenormalMode::OfForm,
            float_function!(($($types)*) $flag $f)) }
    };
    (flushed $ptx:literal (f32 => $r:ty) [] ($f:ty)) => {
        row($ptx, function_operands!(f32 => $r), DenormalMode::OfForm, flushed::<$f, $r>)
    };
    (flushed $ptx:literal (f32 => $r:ty) [any] ($f:ty)) => {
        row($ptx, function_operands!(f32 => $r), DenormalMode::Any, flushed::<$f, $r>)
    };
    (tests $ptx:literal ($t:ty) [] ($f:ty)) => {
        row($ptx, &compared::<$t>(), DenormalMode::Any, test::<$f, $t>)
    };
    (tests $ptx:literal ($t:ty) [keep] ($f:ty)) => {
        row($ptx, &compared::<$t>(), DenormalMode::Keep, test::<$f, $t>)
    };
    (float_tests $ptx:literal (f32) [] ($f:ty)) => {
        Row { arithmetic: true, ..row($ptx, &compared::<f32>(), DenormalMode::OfForm, float_test::<$f>) }
    };
    (float_tests $ptx:literal (f32) [any] ($f:ty)) => {
        Row { arithmetic: true, ..row($ptx, &compared::<f32>(), DenormalMode::Any, float_test::<$f>) }
    };
    (@ $ptx:literal ($($operand:tt)*) [$($property:ident)*] ($function:expr)) => {
        entry!(@operands $ptx [$($property)*] ($function) [] $($operand)*)
    };
    (@operands $ptx:literal [$($property:ident)*] ($function:expr) [$($done:expr,)*]) => {
        with_mode(Row { $($property: true,)* ..row($ptx, &[$($done),*], DenormalMode::Any, $function) })
    };
    (@operands $ptx:literal $properties:tt $function:tt [$($done:expr,)*] record $(, $($rest:tt)*)?) => {
        entry!(@operands $ptx $properties $function [$($done,)* operand!(record),] $($($rest)*)?)
    };
    (@operands $ptx:literal $properties:tt $function:tt [$($done:expr,)*]
        $access:ident $place:ident $class:ident $t:ident $(, $($rest:tt)*)?) => {
        entry!(@operands $ptx $properties $function
            [$($done,)* operand!($access $place $class $t),] $($($rest)*)?)
    };
}

macro_rules! rows {
    ($($section:ident { $($name:ident $ptx:literal $operands:tt $flags:tt $how:tt;)* })*
     $(@ $given:tt $properties:tt { $($other:ident $text:literal $function:tt;)* })*) => {
        /// Rows of the instruction table, by opcode.
        static ROWS: [Row; Opcode::ALL.len()] = [
            $($(entry!($section $ptx $operands $flags $how),)*)*
            $($(entry!(@ $text $given $properties $function),)*)*
        ];
    };
}
instructions!(rows);
