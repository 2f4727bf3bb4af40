//! Instructions of the intermediate representation. The PTX ISA describes each under its name in the chapter
//! "Instruction Set".

use super::modifier::{
    Atomic, Binary, Combine, Compare, Eighth, Float, Half, Mma, Permute, Reduce, Round, Shuffle, Unary, Vote,
};
use super::operand::{Guard, Mem, Operand, Reg, Space, Ty};

/// An operation with its operands, which have the names of the PTX ISA: `dst` is written, `a`, `b` and `c`
/// are read.
#[allow(missing_docs, reason = "fields are the operands and modifiers of the PTX ISA")]
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Move: `mov`, and `cvta` between spaces whose addresses are equal.
    Mov { ty: Ty, dst: Reg, src: Operand },
    /// Packs elements into a register, the first one in the lowest bits: `mov.b32 r, {a, b}`.
    Pack { ty: Ty, dst: Reg, src: Vec<Operand> },
    /// Unpacks a register into elements: `mov.b32 {a, b}, r`. `None` is the sink `_`.
    Unpack { ty: Ty, dst: Vec<Option<Reg>>, src: Operand },
    /// Operation with one source. `float` applies to floating-point types, and its `sat` to `.s32`.
    Unary { op: Unary, ty: Ty, float: Float, dst: Reg, a: Operand },
    /// Operation with two sources. `float` applies as in `Unary`.
    Binary { op: Binary, ty: Ty, float: Float, dst: Reg, a: Operand, b: Operand },
    /// Integer product `mul`. The result is the half that `half` names.
    Mul { half: Half, ty: Ty, dst: Reg, a: Operand, b: Operand },
    /// Integer product and sum, `mad`. With `Wide`, `c` and the result are twice as wide. `sat` applies to
    /// `.hi.s32`.
    Mad { half: Half, ty: Ty, sat: bool, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// Fused product and sum, `fma`. With `relu`, negative results and NaN of packed halves become 0.
    Fma { ty: Ty, float: Float, relu: bool, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// Sum of `c` and four products of bytes, signed or not, in 32 bits: `dp4a`.
    Dp4a { signed: [bool; 2], dst: Reg, a: Operand, b: Operand, c: Operand },
    /// Sum of `c` and two products of 16 by 8 bits: `dp2a`. `high` selects the upper two bytes of `b`.
    Dp2a { signed: [bool; 2], high: bool, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// Bit field extract, `bfe`. Position and length are the low 8 bits of `b` and `c`.
    Bfe { ty: Ty, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// Bit field insert, `bfi`, of `a` into `b` at position `c` with length `d`.
    Bfi { ty: Ty, dst: Reg, a: Operand, b: Operand, c: Operand, d: Operand },
    /// Position of the highest bit that differs from the sign: `bfind`. With `shift`, the shift that moves it
    /// to the top.
    Bfind { ty: Ty, shift: bool, dst: Reg, a: Operand },
    /// Mask of `b` ones from bit `a` on: `bmsk`. With `wrap`, both are taken modulo 32.
    Bmsk { wrap: bool, dst: Reg, a: Operand, b: Operand },
    /// Funnel shift of the 64 bits `b:a` by `c`. The amount is taken modulo 32 with `wrap`, and otherwise
    /// clamped to 32.
    Shf { left: bool, wrap: bool, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// Permutation of the bytes of `b:a`: `prmt`.
    Prmt { mode: Permute, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// Logic function of three inputs by its truth table: `lop3`.
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
    /// Comparison like `Setp`, whose result is all ones or 1.0 in the type `to`.
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
    /// Selection: `a` if `p` holds, otherwise `b`.
    Selp { ty: Ty, dst: Reg, a: Operand, b: Operand, p: Guard },
    /// Logic of two predicates: `and.pred`, `or.pred`, `xor.pred`.
    PredBinary { op: Combine, dst: Reg, a: Guard, b: Guard },
    /// Move of a predicate: `mov.pred`, or `not.pred`, whose source is negated.
    PredMov { dst: Reg, src: Guard },
    /// Move of a constant to a predicate: `mov.pred`.
    PredImm { dst: Reg, value: bool },
    /// Conversion, `cvt`. Without `round` it is exact, or follows C's rules for integers. With `integral`,
    /// the result is rounded to an integer and keeps its floating-point type (`cvt.rni.f32.f32`).
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
    /// Conversion such as `cvt.rna.tf32.f32`. Without `round`, ties round away from zero. With `finite`,
    /// results beyond the range become the largest number.
    ToTf32 { round: Option<Round>, relu: bool, finite: bool, dst: Reg, src: Operand },
    /// Conversion of two numbers to a packed pair with `a` in the upper half: `cvt.rn.f16x2.f32 d, a, b`.
    CvtPack { to: Ty, round: Round, relu: bool, dst: Reg, a: Operand, b: Operand },
    /// Conversion of two numbers of 8 bits to halves: `cvt.rn.f16x2.e4m3x2`.
    FromEighths { from: Eighth, relu: bool, dst: Reg, src: Operand },
    /// Conversion to two numbers of 8 bits: `cvt.rn.satfinite.e4m3x2`. The sources are the two halves of `a`,
    /// or the single `a` for the upper number and the single `b` for the lower one.
    ToEighths { to: Eighth, relu: bool, dst: Reg, a: Operand, b: Option<Operand> },
    /// Conversion of an address of `space` to a generic one, or back if `to` is set. Both are equal for
    /// global memory.
    Cvta { space: Space, to: bool, dst: Reg, src: Operand },
    /// Test of whether a generic address is in a state space: `isspacep`.
    IsSpace { space: Space, dst: Reg, src: Operand },
    /// Load of one element or a vector. `None` is the sink.
    Ld { mem: Mem, dst: Vec<Option<Reg>> },
    /// Store of one element or a vector.
    St { mem: Mem, src: Vec<Operand> },
    /// Atomic operation: `atom`, or `red` if there is no destination. `c` is the new value of `cas`.
    Atom { op: Atomic, mem: Mem, float: Float, dst: Option<Reg>, b: Operand, c: Option<Operand> },
    /// Order of this lane's memory accesses: `membar` or `fence`.
    Fence,
    /// Barrier of a block: `bar.sync`, `barrier.sync`. `threads` is the number of threads that take part, a
    /// multiple of 32, or `None` for all.
    Bar { barrier: Operand, threads: Option<Operand> },
    /// Arrival at a barrier without a wait: `bar.arrive`.
    BarArrive { barrier: Operand, threads: Operand },
    /// Barrier with a reduction, `bar.red`. The result is a predicate, or a count of 32 bits.
    BarRed { op: Reduce, barrier: Operand, threads: Option<Operand>, dst: Reg, p: Guard },
    /// Barrier of a warp: `bar.warp.sync`.
    BarWarp { mask: Operand },
    /// Exchange of values between lanes, `shfl.sync`. `dst` receives the value of the source lane, and
    /// `valid` whether that lane is in range.
    Shfl {
        mode: Shuffle,
        dst: Option<Reg>,
        valid: Option<Reg>,
        a: Operand,
        b: Operand,
        c: Operand,
        mask: Operand,
    },
    /// Vote of the lanes with a predicate as result: `vote.sync`.
    Vote { op: Vote, dst: Reg, p: Guard, mask: Operand },
    /// Ballot: the mask of the lanes whose predicate holds, `vote.sync.ballot`.
    Ballot { dst: Reg, p: Guard, mask: Operand },
    /// Mask of the lanes that run the instruction: `activemask`. It depends on how far lanes have
    /// reconverged.
    ActiveMask { dst: Reg },
    /// Mask of the lanes with the same value: `match.any.sync`. With `all`, the mask of all lanes if they
    /// have the same value, else 0, and a predicate that tells which: `match.all.sync`.
    Match { all: bool, ty: Ty, dst: Reg, p: Option<Reg>, a: Operand, mask: Operand },
    /// Reduction over lanes, `redux.sync`. `op` is one of `And`, `Or`, `Xor`, `Add`, `Min`, `Max`.
    Redux { op: Atomic, ty: Ty, dst: Reg, a: Operand, mask: Operand },
    /// Matrix product of a warp: `mma.sync`.
    Mma { mma: Mma, d: Vec<Reg>, a: Vec<Operand>, b: Vec<Operand>, c: Vec<Operand> },
    /// Load of matrices of 8 by 8 elements of 16 bits, one register for each: `ldmatrix`. Lane `8 * i + row`
    /// has the address of a row of matrix `i`. With `trans`, they are loaded by columns.
    LdMatrix { mem: Mem, trans: bool, dst: Vec<Reg> },
    /// Store of matrices, otherwise like `LdMatrix`: `stmatrix`.
    StMatrix { mem: Mem, trans: bool, src: Vec<Operand> },
    /// Transposition of a matrix of 8 by 8 elements of 16 bits: `movmatrix`.
    MovMatrix { dst: Reg, a: Operand },
    /// Copy of `bytes` bytes from global to shared memory, which is complete at once: `cp.async`. Zeros
    /// follow the first `size` bytes.
    CpAsync { to: Mem, from: Mem, bytes: u8, size: Option<Operand> },
    /// Pause in which other threads run: `nanosleep`.
    Nanosleep { ns: Operand },
    /// Call of `vprintf` with the generic addresses of the format and of its arguments, which are laid out as
    /// in C.
    Printf { dst: Option<Reg>, format: Operand, arguments: Operand },
    /// Call of `malloc`. The result is the generic address of `bytes` bytes, or 0.
    Malloc { dst: Reg, bytes: Operand },
    /// Call of `free` for an address that `Malloc` returned, or for 0.
    Free { address: Operand },
    /// Call of `__assertfail` with the generic addresses of three texts, and the line. The launch fails.
    Assert { message: Operand, file: Operand, line: Operand, function: Operand },
}

/// Instruction: an operation and its line in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// Operation with its operands.
    pub op: Op,
    /// Line of the module's text, from 1.
    pub line: u32,
}
