//! Operations and modifiers that instructions of the same form share.

use super::operand::Ty;

/// Rounding of a result that has no exact representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Round {
    /// Rounds to the nearest value, ties to even: `.rn`, `.rni`.
    Nearest,
    /// Rounds towards zero: `.rz`, `.rzi`.
    Zero,
    /// Rounds towards negative infinity: `.rm`, `.rmi`.
    Down,
    /// Rounds towards positive infinity: `.rp`, `.rpi`.
    Up,
}

/// Modifiers of floating-point arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Float {
    /// Rounding, which is `.rn` by default.
    pub round: Round,
    /// Whether subnormal inputs and results are replaced by zero: `.ftz`.
    pub ftz: bool,
    /// Whether the result is clamped to [0, 1], and NaN becomes 0: `.sat`.
    pub sat: bool,
}

/// The part of an integer product that is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// The lower half: `.lo`.
    Lo,
    /// The upper half: `.hi`.
    Hi,
    /// The whole product, twice as wide as the type: `.wide`.
    Wide,
}

/// Operations with one source, and a result of the same type. The results of `Popc` and `Clz` have 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Unary {
    Abs,
    Neg,
    Not,
    Cnot,
    Popc,
    Clz,
    Brev,
    /// Reciprocal with correct rounding, such as `rcp.rn`.
    Rcp,
    RcpApprox,
    Sqrt,
    SqrtApprox,
    RsqrtApprox,
    SinApprox,
    CosApprox,
    Lg2Approx,
    Ex2Approx,
    TanhApprox,
}

/// Operations with two sources and a result of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Binary {
    Add,
    Sub,
    /// Product of floating-point numbers. Integers have [`Op::Mul`](super::Op::Mul).
    Mul,
    Div,
    /// Quotient within 2 ulp for divisors in 2^-126..2^126: `div.approx`.
    DivApprox,
    /// Quotient within 2 ulp for all divisors: `div.full`.
    DivFull,
    Rem,
    Min,
    Max,
    /// Minimum that is NaN if either source is: `min.NaN`.
    MinNan,
    /// Maximum that is NaN if either source is: `max.NaN`.
    MaxNan,
    And,
    Or,
    Xor,
    /// Left shift by a second source of 32 bits. Amounts of the width and more give 0.
    Shl,
    /// Right shift like `Shl`, which fills signed types with the sign.
    Shr,
    CopySign,
}

/// Relation of two operands that `setp` and `set` test. If either operand is NaN, `Equ` to `Geu` and `Nan`
/// are true, and all others are false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "the names are those of the PTX ISA; unsigned forms (lo, ls, ...) follow from the type"
)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    /// The comparison is true when both operands are numbers.
    Num,
    /// The comparison is true when either operand is NaN.
    Nan,
}

/// Operation with which `setp` combines its comparison and a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Combine {
    And,
    Or,
    Xor,
}

/// Modes of `shfl.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Shuffle {
    Up,
    Down,
    Bfly,
    Idx,
}

/// Modes of `vote.sync` whose result is a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Vote {
    All,
    Any,
    Uni,
}

/// Operations of `bar.red`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Reduce {
    And,
    Or,
    Popc,
}

/// Operations of `atom` and `red`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Atomic {
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Add,
    Inc,
    Dec,
    Min,
    Max,
    /// Change of an `mbarrier` object by [`arrive`](super::mbarrier::arrive), whose operands are `b` and `c`.
    Arrive,
}

/// Modes of `prmt`, which select bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Permute {
    /// Each of the four selectors names a byte.
    Any,
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

/// Floating-point formats of 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eighth {
    /// Format with four bits of exponent and three of fraction. It has no infinity, and one NaN of each sign.
    E4m3,
    /// Format with five bits of exponent and two of fraction.
    E5m2,
}

/// Shape, layout and element types of `mma`, which multiplies matrices with a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mma {
    /// Sizes m, n and k of the product.
    pub shape: [u8; 3],
    /// Whether A and B are stored by columns.
    pub columns: [bool; 2],
    /// Element types of D, A, B and C.
    pub types: [Ty; 4],
    /// Whether sums of integers saturate (`.satfinite`).
    pub saturates: bool,
}
