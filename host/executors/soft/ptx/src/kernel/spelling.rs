//! Modifiers of an instruction, parsed from left to right.

use crate::ir::{Class, Float, Round, Ty};
use crate::variable;

/// Integer types of sums, products and quotients.
pub const INTEGERS: &[Ty] = &[Ty::U16, Ty::U32, Ty::U64, Ty::S16, Ty::S32, Ty::S64];
/// Floating-point types of sums and products.
pub const FLOATS: &[Ty] = &[Ty::F32, Ty::F64, Ty::F16, Ty::F16x2, Ty::Bf16, Ty::Bf16x2];
/// Modifiers of arithmetic that states none: rounding to nearest, subnormal numbers kept.
pub const PLAIN: Float = Float { round: Round::Nearest, ftz: false, sat: false };
/// Untyped bit types.
pub const BITS: &[Ty] = &[Ty::B16, Ty::B32, Ty::B64];
/// Types of values that have registers of their width, of 16 bits or more.
pub const ANY: &[Ty] = &[
    Ty::B16,
    Ty::B32,
    Ty::B64,
    Ty::U16,
    Ty::U32,
    Ty::U64,
    Ty::S16,
    Ty::S32,
    Ty::S64,
    Ty::F16,
    Ty::F16x2,
    Ty::Bf16,
    Ty::Bf16x2,
    Ty::F32,
    Ty::F64,
];

/// Word such as `add.rn.ftz.f32`, with the modifiers that have not been read yet.
#[derive(Clone, Copy, Debug)]
pub struct Spelling<'t> {
    /// Name of the instruction: the part before the first dot.
    pub base: &'t [u8],
    rest: Option<&'t [u8]>,
}

/// Modifiers that may precede a floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modifiers {
    /// The rounding, such as `.rn`, if it is stated.
    pub round: Option<Round>,
    /// Whether subnormal numbers are flushed to zero: `.ftz`.
    pub ftz: bool,
    /// Whether the result saturates: `.sat`.
    pub sat: bool,
}

impl From<Modifiers> for Float {
    fn from(modifiers: Modifiers) -> Self {
        let Modifiers { round, ftz, sat } = modifiers;
        Self { round: round.unwrap_or(Round::Nearest), ftz, sat }
    }
}

impl Modifiers {
    /// Returns whether arithmetic of this type allows these modifiers. Integer arithmetic allows none.
    pub fn fit(self, ty: Ty) -> bool {
        let Self { round, ftz, sat } = self;
        let nearest = matches!(round, None | Some(Round::Nearest));
        match ty {
            Ty::F32 => true,
            Ty::F64 => !ftz && !sat,
            Ty::F16 | Ty::F16x2 => nearest,
            Ty::Bf16 | Ty::Bf16x2 => nearest && !ftz && !sat,
            _ => round.is_none() && !ftz && !sat,
        }
    }
}

fn split(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == b'.') {
        Some(dot) => (&text[..dot], Some(&text[dot + 1..])),
        None => (text, None),
    }
}

impl<'t> Spelling<'t> {
    /// Splits a word into the instruction's name, before the first dot, and its modifiers.
    pub fn new(word: &'t [u8]) -> Self {
        let (base, rest) = split(word);
        Self { base, rest }
    }

    /// Returns the next modifier without taking it.
    pub fn peek(&self) -> Option<&'t [u8]> {
        self.rest.map(|rest| split(rest).0)
    }

    /// Takes the next modifier. Returns `None` if all were read.
    pub fn next(&mut self) -> Option<&'t [u8]> {
        let (part, rest) = split(self.rest?);
        self.rest = rest;
        Some(part)
    }

    /// Takes the next modifier if it is this one. Returns whether it was.
    pub fn accept(&mut self, part: &str) -> bool {
        let is = self.peek() == Some(part.as_bytes());
        if is {
            self.next();
        }
        is
    }

    /// Takes the next modifier if it is in the table, and returns its value. Otherwise takes nothing.
    pub fn pick<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        let part = self.peek()?;
        let (_, value) = table.iter().find(|(name, _)| name.as_bytes() == part)?;
        self.next();
        Some(*value)
    }

    /// Returns whether all modifiers were read.
    pub fn done(&self) -> bool {
        self.rest.is_none()
    }

    /// Takes the next modifier if it is a type.
    pub fn ty(&mut self) -> Option<Ty> {
        let ty = variable::ty(self.peek()?)?;
        self.next();
        Some(ty)
    }

    /// Takes a type that is in one of these lists and is the last modifier.
    pub fn last(&mut self, allowed: &[&[Ty]]) -> Option<Ty> {
        self.ty().filter(|ty| allowed.iter().any(|list| list.contains(ty)) && self.done())
    }

    /// Takes a rounding of floating-point results, `.rn`, `.rz`, `.rm` or `.rp`, if it is the next modifier.
    pub fn round(&mut self) -> Option<Round> {
        self.pick(&[("rn", Round::Nearest), ("rz", Round::Zero), ("rm", Round::Down), ("rp", Round::Up)])
    }

    /// Takes `.rn.ftz.sat`, each of which is optional.
    pub fn modifiers(&mut self) -> Modifiers {
        Modifiers { round: self.round(), ftz: self.accept("ftz"), sat: self.accept("sat") }
    }
}

/// Returns the class of registers that hold a type. Types of 8 bits use registers of 16.
pub fn class(ty: Ty) -> Class {
    match ty.bytes() {
        0 => Class::Pred,
        1 | 2 => Class::B16,
        4 => Class::B32,
        _ => Class::B64,
    }
}

/// Returns the width of a register in bits.
pub fn bits(class: Class) -> u32 {
    match class {
        Class::Pred => 1,
        Class::B16 => 16,
        Class::B32 => 32,
        Class::B64 => 64,
    }
}

/// Returns the type of the same kind that is twice as wide.
pub fn wider(ty: Ty) -> Ty {
    match ty {
        Ty::U16 => Ty::U32,
        Ty::S16 => Ty::S32,
        Ty::U32 => Ty::U64,
        _ => Ty::S64,
    }
}
