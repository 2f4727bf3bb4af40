//! Operands: types, registers, constants, addresses and memory.

/// Fundamental type of the PTX ISA.
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
    /// Single precision with a mantissa of 10 bits, for elements of matrices in registers of 32 bits.
    Tf32,
}

impl Ty {
    /// Returns the size of a value in bytes, or 0 for a predicate. Packed types have the size of both
    /// elements.
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

    /// Returns whether integers of this type have a sign.
    #[must_use]
    pub const fn signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// Returns whether this is a floating-point type, packed types included.
    #[must_use]
    pub const fn float(self) -> bool {
        matches!(
            self,
            Self::F16 | Self::F16x2 | Self::Bf16 | Self::Bf16x2 | Self::F32 | Self::F64 | Self::Tf32
        )
    }
}

/// Virtual register, as an index into [`Kernel::registers`](super::Kernel::registers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg(pub u32);

/// Width of a register. A value of 8 bits is in a register of 16 bits or more, as in PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A predicate, with one bit for each lane.
    Pred,
    /// A value of 16 bits for each lane.
    B16,
    /// A value of 32 bits for each lane.
    B32,
    /// A value of 64 bits for each lane.
    B64,
}

/// Predicate that guards an instruction, and that may be negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Register of [`Class::Pred`].
    pub reg: Reg,
    /// Whether the guard holds if the predicate is false: `!%p`.
    pub negated: bool,
}

/// Special register (PTX ISA, chapter "Special Registers"). The axes `x`, `y` and `z` are 0, 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// Index of the thread in its block: `%tid`.
    Tid(u8),
    /// Number of threads of a block: `%ntid`.
    Ntid(u8),
    /// Index of the block in the grid: `%ctaid`.
    Ctaid(u8),
    /// Number of blocks of the grid: `%nctaid`.
    Nctaid(u8),
    /// Number of the lane in its warp: `%laneid`.
    LaneId,
    /// Number of the warp in its block: `%warpid`.
    WarpId,
    /// Number of warp identifiers: `%nwarpid`. An engine may give the number of the block's warps.
    NWarpId,
    /// Number of the multiprocessor: `%smid`.
    SmId,
    /// Number of multiprocessors: `%nsmid`.
    NSmId,
    /// Number of the grid: `%gridid`.
    GridId,
    /// Mask of this lane: `%lanemask_eq`.
    LaneMaskEq,
    /// Mask of this lane and those before it: `%lanemask_le`.
    LaneMaskLe,
    /// Mask of the lanes before this one: `%lanemask_lt`.
    LaneMaskLt,
    /// Mask of this lane and those after it: `%lanemask_ge`.
    LaneMaskGe,
    /// Mask of the lanes after this one: `%lanemask_gt`.
    LaneMaskGt,
    /// Low 32 bits of [`Special::Clock64`]: `%clock`.
    Clock,
    /// Unsigned 64-bit counter that never decreases: `%clock64`. The ISA counts cycles, the soft executor
    /// nanoseconds.
    Clock64,
    /// Time in nanoseconds: `%globaltimer`.
    GlobalTimer,
    /// Size of dynamic shared memory in bytes: `%dynamic_smem_size`.
    DynamicSmemSize,
    /// Size of static and dynamic shared memory in bytes: `%total_smem_size`.
    TotalSmemSize,
    /// Size in bytes of a thread's local memory, including its stack. The ISA has no name for it. Calls
    /// compare with it.
    LocalBytes,
    /// Environment register `%envreg<N>`. Registers 1 and 2 are the halves of the address of a cooperative
    /// grid's workspace. All others are 0.
    EnvReg(u8),
}

/// Operand that an instruction reads, in the width of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The value of a register.
    Reg(Reg),
    /// The bits of a constant, in the width of the operand's type. Bits above are zero.
    Imm(u64),
    /// The value of a special register.
    Special(Special),
    /// The address of a variable. It is an offset in the window of its space for `.shared`, `.local` and
    /// `.param`, and a device address for `.global` and `.const`.
    Address(Base, i64),
}

/// Base of an address, to which an offset is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// A register of 32 or 64 bits. Only memory operands have one.
    Reg(Reg),
    /// The start of shared, local or parameter memory, or address 0.
    Zero,
    /// A global or constant variable of the module, as an index into [`crate::Module::globals`].
    Global(u32),
    /// The start of dynamic shared memory, which is the aligned end of the kernel's static shared memory. It
    /// equals `Zero` plus [`Kernel::dynamic_shared_offset`](super::Kernel::dynamic_shared_offset).
    DynamicShared,
}

/// State space of a memory access (PTX ISA, section "State Spaces").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Memory that the address determines, see [`window`].
    Generic,
    /// Device memory, which also contains `.const` variables.
    Global,
    /// Shared memory of a block: `.shared`.
    Shared,
    /// Local memory of a thread: `.local`.
    Local,
    /// Parameters of the launch: `.param`.
    Param,
}

/// Generic addresses of shared, local and parameter memory, which `cvta` returns, and addresses of functions.
/// They never overlap device addresses.
pub mod window {
    /// Generic address of the first byte of shared memory.
    pub const SHARED: u64 = 0x0000_0100_0000_0000;
    /// Generic address of the first byte of a thread's local memory, the same for each thread.
    pub const LOCAL: u64 = 0x0000_0200_0000_0000;
    /// Generic address of the first byte of the parameters.
    pub const PARAM: u64 = 0x0000_0300_0000_0000;
    /// Address below those of the module's functions. Nothing is mapped at these addresses.
    pub const CODE: u64 = 0x0000_0400_0000_0000;
    /// Size of each of the windows in bytes.
    pub const BYTES: u64 = 1 << 32;
}

/// Memory operand: a state space, an address, and the type and order of the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mem {
    /// State space of the access.
    pub space: Space,
    /// Base of the address.
    pub base: Base,
    /// Offset in bytes that is added to the base.
    pub offset: i64,
    /// Type of one element. Its signedness determines the extension of a loaded element to the destination's
    /// class.
    pub ty: Ty,
    /// Ordering and visibility of the access.
    pub order: Order,
}

/// Memory order of a load or store. Caching hints (such as `.nc` and `.cg`) are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// No order, which is the default: `.weak`.
    Weak,
    /// An access that other threads may race with: `.volatile` or `.relaxed`.
    Relaxed,
    /// Acquire order of a load: `.acquire`.
    Acquire,
    /// Release order of a store: `.release`.
    Release,
    /// Acquire and release order of a read-modify-write: `.acq_rel`.
    AcqRel,
}
