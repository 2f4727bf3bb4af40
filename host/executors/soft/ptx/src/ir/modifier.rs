//! Operations and modifiers that instructions of one form share.

use super::operand::Ty;

/// How a result that has no exact representation is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Round {
    /// `.rn`, `.rni`: to the nearest, ties to even.
    Nearest,
    /// `.rz`, `.rzi`: towards zero.
    Zero,
    /// `.rm`, `.rmi`: down.
    Down,
    /// `.rp`, `.rpi`: up.
    Up,
}

/// Modifiers of floating-point arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Float {
    /// The rounding; `.rn` where the text does not say.
    pub round: Round,
    /// `.ftz`: subnormal inputs and results are zero.
    pub ftz: bool,
    /// `.sat`: clamped to [0, 1], NaN becomes 0.
    pub sat: bool,
}

/// The part of a product that is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// `.lo`
    Lo,
    /// `.hi`
    Hi,
    /// `.wide`: the whole product, twice as wide as the type.
    Wide,
}

/// Operations with one source of a type and a result of the same type. The results of `Popc` and `Clz` have
/// 32 bits.
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
    /// `rcp.rn` and other exact roundings.
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
    /// The product of floating-point numbers. Integers have [`Op::Mul`](super::Op::Mul).
    Mul,
    Div,
    /// `div.approx`: within 2 ulp for divisors in 2^-126..2^126.
    DivApprox,
    /// `div.full`: within 2 ulp for all divisors.
    DivFull,
    Rem,
    Min,
    Max,
    /// `min.NaN`: NaN if either is.
    MinNan,
    /// `max.NaN`
    MaxNan,
    And,
    Or,
    Xor,
    /// The second source has 32 bits. Shifts by the width and more give 0.
    Shl,
    /// As `Shl`, but the sign fills signed types.
    Shr,
    CopySign,
}

/// Comparisons. From `Equ` to `Geu` they are also true when either operand is NaN.
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
    /// True when both operands are numbers.
    Num,
    /// True when either operand is NaN.
    Nan,
}

/// How `setp` combines its comparison with a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Combine {
    And,
    Or,
    Xor,
}

/// The modes of `shfl.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Shuffle {
    Up,
    Down,
    Bfly,
    Idx,
}

/// `vote.sync` modes with a predicate as result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Vote {
    All,
    Any,
    Uni,
}

/// The operations of `bar.red`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Reduce {
    And,
    Or,
    Popc,
}

/// The operations of `atom` and `red`.
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
}

/// The modes of `prmt`.
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

/// Formats of floating-point numbers of 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eighth {
    /// Four bits of exponent, three of fraction; no infinity, and one NaN of each sign.
    E4m3,
    /// Five bits of exponent, two of fraction.
    E5m2,
}

/// A matrix product of a warp, with shape and element types as the ISA names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mma {
    /// The sizes m, n and k.
    pub shape: [u8; 3],
    /// Whether A and B are given by columns.
    pub columns: [bool; 2],
    /// Types of D, A, B, C.
    pub types: [Ty; 4],
    /// Whether sums of integers stop at the ends of their range (`.satfinite`).
    pub saturates: bool,
}
