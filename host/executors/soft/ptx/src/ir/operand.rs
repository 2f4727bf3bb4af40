//! Operands: types, registers, constants, addresses and memory.

/// A fundamental type, as instructions name it.
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
    /// Single precision with a mantissa of 10 bits: elements of matrices, in registers of 32 bits.
    Tf32,
}

impl Ty {
    /// Size of a value in bytes; 0 for a predicate.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Pred => 0,
            Self::B8 | Self::U8 | Self::S8 => 1,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 2,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 | Self::Tf32 => 4,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 8,
        }
    }

    /// Whether integers of this type have a sign.
    #[must_use]
    pub const fn signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// Whether this is a floating-point type, packed types included.
    #[must_use]
    pub const fn float(self) -> bool {
        matches!(
            self,
            Self::F16 | Self::F16x2 | Self::Bf16 | Self::Bf16x2 | Self::F32 | Self::F64 | Self::Tf32
        )
    }
}

/// A virtual register: an index into [`Kernel::registers`](super::Kernel::registers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// The width of a register. A value of 8 bits lives in a register of 16 bits or more, as in PTX.
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
    /// Whether the guard holds where the predicate is false: `!%p`.
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
    /// `%clock`: the low 32 bits of a counter that grows.
    Clock,
    /// `%clock64`
    Clock64,
    /// `%globaltimer`, in nanoseconds.
    GlobalTimer,
    /// `%dynamic_smem_size`
    DynamicSmemSize,
    /// `%total_smem_size`
    TotalSmemSize,
    /// Bytes of a thread's local memory, its stack included. No name of the ISA: calls compare with it.
    LocalBytes,
    /// `%envreg<N>`: registers 1 and 2 are the halves of the address of a cooperative grid's workspace. All
    /// others are 0.
    EnvReg(u8),
}

/// An operand that an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The value of a register.
    Reg(Reg),
    /// The bits of a constant, in the width of the operand's type. Bits above are zero.
    Imm(u64),
    /// A special register.
    Special(Special),
    /// The address of a variable: an offset in the window of its space for `.shared`, `.local` and `.param`,
    /// and a device address for `.global` and `.const`.
    Address(Base, i64),
}

/// The start of an address, to which an offset is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// A register of 32 or 64 bits. Only memory operands have one.
    Reg(Reg),
    /// The start of shared, local or parameter memory, or address 0.
    Zero,
    /// A global or constant of the module: an index into [`crate::Module::globals`].
    Global(u32),
    /// The start of dynamic shared memory: the aligned end of the kernel's static shared memory. Equal to
    /// `Zero` plus [`Kernel::dynamic_shared_offset`](super::Kernel::dynamic_shared_offset).
    DynamicShared,
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Any memory: the address says which, see [`window`].
    Generic,
    /// Device memory, where `.const` variables lie too.
    Global,
    /// Shared memory of a block.
    Shared,
    /// Local memory of a thread.
    Local,
    /// Parameters of the launch.
    Param,
}

/// Generic addresses of shared, local and parameter memory, as `cvta` makes them, and addresses of functions.
/// No device address lies there.
pub mod window {
    /// Generic address of shared memory's first byte.
    pub const SHARED: u64 = 0x0000_0100_0000_0000;
    /// Generic address of a thread's first byte of local memory, the same for each thread.
    pub const LOCAL: u64 = 0x0000_0200_0000_0000;
    /// Generic address of the first byte of parameters.
    pub const PARAM: u64 = 0x0000_0300_0000_0000;
    /// Address before those of the module's functions, at which nothing can be read.
    pub const CODE: u64 = 0x0000_0400_0000_0000;
    /// Size of each of the windows in bytes.
    pub const BYTES: u64 = 1 << 32;
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mem {
    /// The memory that is accessed.
    pub space: Space,
    /// The start of the address.
    pub base: Base,
    /// Bytes that are added to the start.
    pub offset: i64,
    /// Type of one element. Its sign says how a loaded element is extended to the destination's class.
    pub ty: Ty,
    /// Ordering and visibility of the access.
    pub order: Order,
}

/// How a load or store is ordered. Caching hints (such as `.nc` and `.cg`) are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// `.weak`, the default.
    Weak,
    /// `.volatile` or `.relaxed`.
    Relaxed,
    /// `.acquire` of a load.
    Acquire,
    /// `.release` of a store.
    Release,
    /// `.acq_rel` of a read-modify-write.
    AcqRel,
}
