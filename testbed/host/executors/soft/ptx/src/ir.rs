//! The intermediate form of a kernel: what the parser makes and every engine reads.
//!
//! A kernel is a list of basic blocks in the order of the text. Only terminators branch: an instruction
//! that is guarded by a predicate (`@p add ...`) has become a block of its own, so that engines know one
//! kind of divergence. Names are gone: registers are numbers, variables are offsets or indices into
//! the module's list of globals. Types are those of the PTX ISA; sizes are in bytes.

use std::ops::Range;

/// A fundamental type, as instructions name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
}

impl Ty {
    /// Bytes of a value; a predicate counts as 0.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Pred => 0,
            Self::B8 | Self::U8 | Self::S8 => 1,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 2,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 8,
        }
    }

    /// Whether integers of this type have a sign.
    #[must_use]
    pub const fn signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// Whether it is a floating-point type, packed ones included.
    #[must_use]
    pub const fn float(self) -> bool {
        matches!(self, Self::F16 | Self::F16x2 | Self::Bf16 | Self::Bf16x2 | Self::F32 | Self::F64)
    }
}

/// A virtual register: an index into [`Kernel::registers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// How wide a register is. An 8-bit value lives in a register of 16 bits or more, as in PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// One bit a lane.
    Pred,
    /// 16 bits a lane.
    B16,
    /// 32 bits a lane.
    B32,
    /// 64 bits a lane.
    B64,
}

/// A predicate that may be negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// A register of [`Class::Pred`].
    pub reg: Reg,
    /// `!%p`.
    pub negated: bool,
}

/// A special register. `x`, `y`, `z` are axes 0, 1, 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// `%tid`
    Tid(u8),
    /// `%ntid`
    Ntid(u8),
    /// `%ctaid`
    Ctaid(u8),
    /// `%nctaid`
    Nctaid(u8),
    /// `%laneid`
    LaneId,
    /// `%warpid`
    WarpId,
    /// `%nwarpid`
    NWarpId,
    /// `%smid`
    SmId,
    /// `%nsmid`
    NSmId,
    /// `%gridid`
    GridId,
    /// `%lanemask_eq`
    LaneMaskEq,
    /// `%lanemask_le`
    LaneMaskLe,
    /// `%lanemask_lt`
    LaneMaskLt,
    /// `%lanemask_ge`
    LaneMaskGe,
    /// `%lanemask_gt`
    LaneMaskGt,
    /// `%clock`: low 32 bits of a counter that grows.
    Clock,
    /// `%clock64`
    Clock64,
    /// `%globaltimer`: nanoseconds.
    GlobalTimer,
    /// `%dynamic_smem_size`
    DynamicSmemSize,
    /// `%total_smem_size`
    TotalSmemSize,
    /// `%envreg<N>`: 1 and 2 are the halves of the address of a cooperative grid's workspace, 0 otherwise.
    EnvReg(u8),
}

/// What an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A constant's bits, in the width of the operand's type; bits above are zero.
    Imm(u64),
    /// A special register.
    Special(Special),
    /// The address of a variable; see [`Base`]. Of `.shared`, `.local`, `.param`: an offset in that space's
    /// window, of `.global`, `.const`: a device address.
    Address(Base, i64),
}

/// What addresses are relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// A register, of 32 or 64 bits. In memory operands only.
    Reg(Reg),
    /// The start of its space: shared, local or param memory; or address 0.
    Zero,
    /// A global or constant of the module: an index into [`crate::Module::globals`].
    Global(u32),
    /// The end of the kernel's static shared memory, aligned: where dynamic shared memory begins.
    /// Equal to `Zero` with [`Kernel::dynamic_shared_offset`].
    DynamicShared,
}

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// An address that says itself what it points to: see [`window`].
    Generic,
    /// Device memory. `.const` variables lie there too.
    Global,
    /// A block's.
    Shared,
    /// A thread's.
    Local,
    /// The launch's parameters.
    Param,
}

/// Generic addresses of shared and local memory, as `cvta` makes them. Device addresses are elsewhere.
pub mod window {
    /// Generic address of shared memory's first byte.
    pub const SHARED: u64 = 0x0000_0100_0000_0000;
    /// Generic address of a thread's first byte of local memory: the same for each thread.
    pub const LOCAL: u64 = 0x0000_0200_0000_0000;
    /// Generic address of the first byte of parameters.
    pub const PARAM: u64 = 0x0000_0300_0000_0000;
    /// How many bytes each of the three windows has.
    pub const BYTES: u64 = 1 << 32;
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mem {
    /// Where.
    pub space: Space,
    /// What the offset is added to.
    pub base: Base,
    /// Bytes.
    pub offset: i64,
    /// Type of one element; what is loaded is extended to the destination's class by its sign.
    pub ty: Ty,
    /// Order and visibility.
    pub order: Order,
}

/// How a load or store is ordered. Caching hints (`.nc`, `.cg`, ...) are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// `.weak`, the default.
    Weak,
    /// `.volatile`, `.relaxed`.
    Relaxed,
    /// `.acquire` of a load.
    Acquire,
    /// `.release` of a store.
    Release,
    /// `.acq_rel` of a read-modify-write.
    AcqRel,
}

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
    /// The rounding; `.rn` where nothing is said.
    pub round: Round,
    /// `.ftz`: subnormal inputs and results are zero.
    pub ftz: bool,
    /// `.sat`: clamped to [0, 1], NaN becomes 0.
    pub sat: bool,
}

/// Which half of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// `.lo`
    Lo,
    /// `.hi`
    Hi,
    /// `.wide`: all of it, twice as wide as the type.
    Wide,
}

/// Operations with one source of a type and a result of the same type (but `Popc`, `Clz`: a result of 32 bits).
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
    /// Of floating-point numbers; integers have [`Op::Mul`].
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
    /// The second source is 32 bits wide; shifts of the width and more give 0.
    Shl,
    /// As `Shl`; of signed types the sign fills.
    Shr,
    CopySign,
}

/// Comparisons. Of floating-point numbers the second half is true when either is NaN.
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
    /// Both are numbers.
    Num,
    /// Either is NaN.
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

/// `shfl.sync` modes.
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

/// `bar.red` operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Reduce {
    And,
    Or,
    Popc,
}

/// Read-modify-writes.
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

/// `prmt` modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the PTX ISA")]
pub enum Permute {
    /// The four selectors say which byte each.
    Any,
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

/// A matrix product of a warp: shape and element types as the ISA names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mma {
    /// m, n, k.
    pub shape: [u8; 3],
    /// Whether A and B are given by columns.
    pub columns: [bool; 2],
    /// Types of D, A, B, C.
    pub types: [Ty; 4],
}

/// What an instruction does. Operands have the names of the PTX ISA: `dst` is written, `a`, `b`, `c` are read.
#[allow(missing_docs, reason = "fields are the operands and modifiers of the PTX ISA")]
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `mov`; also `cvta` between spaces whose addresses are equal.
    Mov { ty: Ty, dst: Reg, src: Operand },
    /// `mov.b32 r, {a, b}`: the first element is the lowest.
    Pack { ty: Ty, dst: Reg, src: Vec<Operand> },
    /// `mov.b32 {a, b}, r`; `None` is the sink `_`.
    Unpack { ty: Ty, dst: Vec<Option<Reg>>, src: Operand },
    /// Integers and floating point alike; `float` counts for the latter, and `sat` for `.s32`.
    Unary { op: Unary, ty: Ty, float: Float, dst: Reg, a: Operand },
    /// As `Unary`.
    Binary { op: Binary, ty: Ty, float: Float, dst: Reg, a: Operand, b: Operand },
    /// Integer product.
    Mul { half: Half, ty: Ty, dst: Reg, a: Operand, b: Operand },
    /// Integer product and sum; `Wide`: `c` and the result are twice as wide. `sat`: of `.hi.s32`.
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
    /// Bytes of `b:a`.
    Prmt { mode: Permute, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// A truth table of three inputs.
    Lop3 { table: u8, dst: Reg, a: Operand, b: Operand, c: Operand },
    /// `dst = combine(compare(a, b), with)`, `complement = combine(!compare(a, b), with)`.
    /// Of packed halves `dst` is the lower element's and `complement` the upper's.
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
    /// As `Setp`, with all ones or 1.0 as result, in the type `to`.
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
    /// `mov.pred p, 1` and such.
    PredImm { dst: Reg, value: bool },
    /// Conversion. `round` is `None` where none is given: exact, or by C's rules for integers. `integral`: the result is
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
    /// `cvt.rn.f16x2.f32 d, a, b`: `a` is the upper half.
    CvtPack { to: Ty, round: Round, relu: bool, dst: Reg, a: Operand, b: Operand },
    /// Address of `space` to generic, or back (`to`). Of global memory both are the same.
    Cvta { space: Space, to: bool, dst: Reg, src: Operand },
    /// `isspacep`
    IsSpace { space: Space, dst: Reg, src: Operand },
    /// Load, of one element or a vector of them; `None` is the sink.
    Ld { mem: Mem, dst: Vec<Option<Reg>> },
    /// Store.
    St { mem: Mem, src: Vec<Operand> },
    /// `atom`; `red` where there is no destination. `c` is the new value of `cas`.
    Atom { op: Atomic, mem: Mem, float: Float, dst: Option<Reg>, b: Operand, c: Option<Operand> },
    /// `membar`, `fence`.
    Fence,
    /// `bar.sync`, `barrier.sync`; `threads`: how many take part, a multiple of 32; all, if none.
    Bar { barrier: Operand, threads: Option<Operand> },
    /// `bar.arrive`
    BarArrive { barrier: Operand, threads: Operand },
    /// `bar.red`; a predicate, or a count of 32 bits.
    BarRed { op: Reduce, barrier: Operand, threads: Option<Operand>, dst: Reg, p: Guard },
    /// `bar.warp.sync`
    BarWarp { mask: Operand },
    /// `dst` is the other lane's value; `valid`: whether the source lane was in range.
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
    /// `redux.sync`; `op` is one of `And`, `Or`, `Xor`, `Add`, `Min`, `Max`.
    Redux { op: Atomic, ty: Ty, dst: Reg, a: Operand, mask: Operand },
    /// `mma.sync`
    Mma { mma: Mma, d: Vec<Reg>, a: Vec<Operand>, b: Vec<Operand>, c: Vec<Operand> },
    /// `nanosleep`: nothing to do but let others run.
    Nanosleep { ns: Operand },
    /// `call vprintf`: generic addresses of the format and of its arguments, packed as C's variadic ones.
    Printf { dst: Option<Reg>, format: Operand, arguments: Operand },
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// What it does.
    pub op: Op,
    /// Line of the module's text, from 1.
    pub line: u32,
}

/// How a block ends.
#[allow(missing_docs, reason = "the variants say what the fields are")]
#[derive(Clone, Debug, PartialEq)]
pub enum Terminator {
    /// To another block.
    Goto(BlockId),
    /// To `then` where the guard holds, else to `otherwise`. `uniform`: the text says `.uni`.
    Branch { guard: Guard, uniform: bool, then: BlockId, otherwise: BlockId },
    /// `ret`, `exit`.
    Return,
    /// `trap`: the launch fails.
    Trap,
}

/// An index into [`Kernel::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// A basic block.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Its instructions, as a range of [`Kernel::code`].
    pub code: Range<u32>,
    /// How it ends.
    pub end: Terminator,
    /// Line of the terminator.
    pub line: u32,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Offset in the parameter buffer.
    pub offset: u32,
    /// Its size.
    pub bytes: u32,
}

/// A kernel. The first block is the entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Its name, mangled.
    pub name: String,
    /// Its parameters.
    pub params: Vec<Param>,
    /// Bytes of the parameter buffer.
    pub param_bytes: u32,
    /// The registers.
    pub registers: Vec<Class>,
    /// Instructions of all blocks.
    pub code: Vec<Inst>,
    /// The blocks, in the order of the text.
    pub blocks: Vec<Block>,
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Where dynamic shared memory begins: `shared_bytes`, aligned.
    pub dynamic_shared_offset: u32,
    /// Bytes of a thread's local memory.
    pub local_bytes: u32,
    /// `.maxntid`: the most threads of a block, as a product; 1024 if nothing is said.
    pub max_threads: u32,
    /// `.reqntid`.
    pub required_threads: Option<[u32; 3]>,
}
