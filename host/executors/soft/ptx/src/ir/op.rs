//! Instructions.

use super::modifier::{
    Atomic, Binary, Combine, Compare, Eighth, Float, Half, Mma, Permute, Reduce, Round, Shuffle, Unary, Vote,
};
use super::operand::{Guard, Mem, Operand, Reg, Space, Ty};

/// An operation with its operands, which have the names of the PTX ISA: `dst` is written, `a`, `b` and `c`
/// are read.
#[allow(missing_docs, reason = "fields are the operands and modifiers of the PTX ISA")]
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `mov`, and `cvta` between spaces whose addresses are equal.
    Mov { ty: Ty, dst: Reg, src: Operand },
    /// `mov.b32 r, {a, b}`: the first element is the lowest.
    Pack { ty: Ty, dst: Reg, src: Vec<Operand> },
    /// `mov.b32 {a, b}, r`; `None` is the sink `_`.
    Unpack { ty: Ty, dst: Vec<Option<Reg>>, src: Operand },
    /// One source. `float` applies to floating-point types, and its `sat` to `.s32`.
    Unary { op: Unary, ty: Ty, float: Float, dst: Reg, a: Operand },
    /// Two sources, otherwise as `Unary`.
    Binary { op: Binary, ty: Ty, float: Float, dst: Reg, a: Operand, b: Operand },
    /// `mul` of integers: the half of the product that `half` names.
    Mul { half: Half, ty: Ty, dst: Reg, a: Operand, b: Operand },
    /// Integer product and sum. With `Wide`, `c` and the result are twice as wide. `sat` applies to
    /// `.hi.s32`.
    Mad { half: Half, ty: Ty, sat: bool, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// Fused product and sum. `relu`: negative results and NaN become 0 (packed halves).
    Fma { ty: Ty, float: Float, relu: bool, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// `dp4a`: four products of bytes, signed or not, and a sum of 32 bits.
    Dp4a { signed: [bool; 2], dst: Reg, a: Operand, b: Operand, c: Operand },
    /// `dp2a`: two products of 16 by 8 bits; `high`: the upper two bytes of `b`.
    Dp2a { signed: [bool; 2], high: bool, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// Bit field extract: position and length are the low 8 bits of `b` and `c`.
    Bfe { ty: Ty, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// Bit field insert of `a` into `b` at `c`, `d` long.
    Bfi { ty: Ty, dst: Reg, a: Operand, b: Operand, c: Operand, d: Operand },
    /// `bfind`: the highest bit that is not the sign; `shift`: the shift that brings it to the top.
    Bfind { ty: Ty, shift: bool, dst: Reg, a: Operand },
    /// `bmsk`: `b` ones from bit `a` on; `wrap`: modulo 32.
    Bmsk { wrap: bool, dst: Reg, a: Operand, b: Operand },
    /// Funnel shift of the 64 bits `b:a` by `c`. `wrap`: modulo 32, else clamped to 32.
    Shf { left: bool, wrap: bool, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// `prmt`: a permutation of the bytes of `b:a`.
    Prmt { mode: Permute, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// `lop3`: a truth table of three inputs.
    Lop3 { table: u8, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// `dst = combine(compare(a, b), with)`, `complement = combine(!compare(a, b), with)`.
    /// For packed halves, `dst` is the result of the lower element and `complement` that of the upper one.
    Setp {
        compare: Compare,
        ty: Ty,
        ftz: bool,
        combine: Option<(Combine, Guard)>,
        dst: Option<Reg>,
        complement: Option<Reg>,
        a: Operand,
        b: Operand,
    },
    /// As `Setp`, but the result is all ones or 1.0 in the type `to`.
    Set {
        compare: Compare,
        ty: Ty,
        to: Ty,
        ftz: bool,
        combine: Option<(Combine, Guard)>,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    /// `p ? a : b`
    Selp { ty: Ty, dst: Reg, a: Operand, b: Operand, p: Guard },
    /// `and.pred`, `or.pred`, `xor.pred`.
    PredBinary { op: Combine, dst: Reg, a: Guard, b: Guard },
    /// `mov.pred`, `not.pred` (a negated source).
    PredMov { dst: Reg, src: Guard },
    /// `mov.pred` of a constant.
    PredImm { dst: Reg, value: bool },
    /// Conversion. Without `round` it is exact, or follows C's rules for integers. `integral`: the result is
    /// rounded to an integer and stays in its floating-point type (`cvt.rni.f32.f32`).
    Cvt {
        to: Ty,
        from: Ty,
        round: Option<Round>,
        integral: bool,
        ftz: bool,
        sat: bool,
        dst: Reg,
        src: Operand,
    },
    /// `cvt.rna.tf32.f32` and its like. Without `round`, ties go away from zero. `finite`: results beyond the
    /// range are the largest number.
    ToTf32 { round: Option<Round>, relu: bool, finite: bool, dst: Reg, src: Operand },
    /// `cvt.rn.f16x2.f32 d, a, b`: `a` is the upper half.
    CvtPack { to: Ty, round: Round, relu: bool, dst: Reg, a: Operand, b: Operand },
    /// `cvt.rn.f16x2.e4m3x2`: both numbers of 8 bits to halves.
    FromEighths { from: Eighth, relu: bool, dst: Reg, src: Operand },
    /// `cvt.rn.satfinite.e4m3x2`: of the two halves of `a`; or, with `b`, of two singles, `a` the upper one.
    ToEighths { to: Eighth, relu: bool, dst: Reg, a: Operand, b: Option<Operand> },
    /// Converts an address of `space` to a generic one, or back (`to`). Those of global memory are the same.
    Cvta { space: Space, to: bool, dst: Reg, src: Operand },
    /// `isspacep`
    IsSpace { space: Space, dst: Reg, src: Operand },
    /// Loads one element or a vector of them. `None` is the sink.
    Ld { mem: Mem, dst: Vec<Option<Reg>> },
    /// Stores one element or a vector of them.
    St { mem: Mem, src: Vec<Operand> },
    /// `atom`, or `red` if there is no destination. `c` is the new value of `cas`.
    Atom { op: Atomic, mem: Mem, float: Float, dst: Option<Reg>, b: Operand, c: Option<Operand> },
    /// `membar` or `fence`: orders this lane's memory accesses.
    Fence,
    /// `bar.sync`, `barrier.sync`. `threads` is how many take part, a multiple of 32; all if `None`.
    Bar { barrier: Operand, threads: Option<Operand> },
    /// `bar.arrive`
    BarArrive { barrier: Operand, threads: Operand },
    /// `bar.red`. The result is a predicate, or a count of 32 bits.
    BarRed { op: Reduce, barrier: Operand, threads: Option<Operand>, dst: Reg, p: Guard },
    /// `bar.warp.sync`
    BarWarp { mask: Operand },
    /// `shfl.sync`. `dst` gets the value of the source lane, `valid` whether that lane is in range.
    Shfl {
        mode: Shuffle,
        dst: Option<Reg>,
        valid: Option<Reg>,
        a: Operand,
        b: Operand,
        c: Operand,
        mask: Operand,
    },
    /// `vote.sync`
    Vote { op: Vote, dst: Reg, p: Guard, mask: Operand },
    /// `vote.sync.ballot`
    Ballot { dst: Reg, p: Guard, mask: Operand },
    /// `activemask`
    ActiveMask { dst: Reg },
    /// `match.any.sync`, `match.all.sync` (`all`, with a predicate).
    Match { all: bool, ty: Ty, dst: Reg, p: Option<Reg>, a: Operand, mask: Operand },
    /// `redux.sync`. `op` is one of `And`, `Or`, `Xor`, `Add`, `Min`, `Max`.
    Redux { op: Atomic, ty: Ty, dst: Reg, a: Operand, mask: Operand },
    /// `mma.sync`
    Mma { mma: Mma, d: Vec<Reg>, a: Vec<Operand>, b: Vec<Operand>, c: Vec<Operand> },
    /// `wmma.mma`: element `e` of a matrix, counted along the rows, is element `e / 32` of lane `e % 32`.
    Wmma { mma: Mma, d: Vec<Reg>, a: Vec<Operand>, b: Vec<Operand>, c: Vec<Operand> },
    /// `ldmatrix`: one register for each matrix of 8 by 8 elements of 16 bits. Lane `8 * i + row` has the
    /// address of a row of matrix `i`. `trans`: by columns.
    LdMatrix { mem: Mem, trans: bool, dst: Vec<Reg> },
    /// `stmatrix`, otherwise as `LdMatrix`.
    StMatrix { mem: Mem, trans: bool, src: Vec<Operand> },
    /// `movmatrix`: transposes a matrix of 8 by 8 elements of 16 bits.
    MovMatrix { dst: Reg, a: Operand },
    /// `cp.async`: copies `bytes` from global to shared memory, and is over at once. Behind the first `size`
    /// bytes are zeros.
    CpAsync { to: Mem, from: Mem, bytes: u8, size: Option<Operand> },
    /// `nanosleep`: lets others run.
    Nanosleep { ns: Operand },
    /// `call vprintf` with the generic addresses of the format and of its arguments, which are packed as in
    /// C.
    Printf { dst: Option<Reg>, format: Operand, arguments: Operand },
    /// `call malloc`: the generic address of as many bytes, or 0.
    Malloc { dst: Reg, bytes: Operand },
    /// `call free` of such an address, or of 0.
    Free { address: Operand },
    /// `call __assertfail` with the generic addresses of three texts and the line: the launch fails.
    Assert { message: Operand, file: Operand, line: Operand, function: Operand },
}

/// An instruction: an operation, its guard and where it is in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// What the instruction does.
    pub op: Op,
    /// Line of the module's text, from 1.
    pub line: u32,
}
