//! Programs: kernels lowered to steps, with everything that a frame needs before they run.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use vgpu_ptx::ir::{self, Kernel};
use vgpu_ptx::{Effort, Interrupt};

use crate::env::{Env, Tables, coordinates};
use crate::fault::ProgramError;
use crate::lower;
use crate::machine::{Code, Features, Frame, LANES, Slot};
use crate::meetings::Meetings;
use crate::ops::Place;

/// A kernel lowered for this engine. Immutable; clones share it.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) attributes: Attributes,
    /// For blocks where lanes of a warp share `%tid.y` and `%tid.z`, and for others.
    aligned: Variant,
    any: Variant,
    /// How long a block takes, in nanoseconds: a running mean, 0 before the first.
    pub(crate) block_time: AtomicU64,
}

/// What a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Where dynamic shared memory begins, in bytes from the start of the block's.
    pub dynamic_shared_offset: u32,
    /// Bytes of local memory of a thread.
    pub local_bytes: u32,
    /// Bytes of the parameters.
    pub param_bytes: u32,
    /// 32-bit registers of a thread, as the kernel's text declares them at most at once: an upper bound.
    pub registers: u32,
    /// The most threads of a block.
    pub max_threads: u32,
    /// The only shape of a block, if there is one.
    pub required_threads: Option<[u32; 3]>,
}

impl Program {
    /// Lowers a kernel for the best features of this CPU. `globals`: device address of each of the module's variables.
    /// An instruction that the engine does not have is an error here, never later.
    pub fn new(kernel: &Kernel, globals: &[u64]) -> Result<Self, ProgramError> {
        Self::with_features(kernel, globals, Features::best())
    }

    /// Lowers a kernel for one of [`Features::available`]; others become [`Features::Baseline`].
    pub fn with_features(kernel: &Kernel, globals: &[u64], features: Features) -> Result<Self, ProgramError> {
        Self::within(kernel, globals, features, &Effort::of_kernel(Interrupt::default()))
    }

    /// The same, as far as the effort allows. It takes no lock.
    pub fn within(
        kernel: &Kernel,
        globals: &[u64],
        features: Features,
        effort: &Effort,
    ) -> Result<Self, ProgramError> {
        effort.spend(4 * kernel.code.len() as u64)?;
        let prepared = lower::prepare(kernel);
        let aligned = lower::lower(&prepared, globals, features, true, 0, effort)?;
        let any = lower::lower(&prepared, globals, features, false, aligned.bytes(), effort)?;
        let words = |class: &ir::Class| if *class == ir::Class::B64 { 2 } else { 1 };
        let attributes = Attributes {
            shared_bytes: kernel.shared_bytes,
            dynamic_shared_offset: kernel.dynamic_shared_offset,
            local_bytes: kernel.local_bytes,
            param_bytes: kernel.param_bytes,
            registers: kernel.registers.iter().map(words).sum::<u32>().min(255),
            max_threads: kernel.max_threads,
            required_threads: kernel.required_threads,
        };
        Ok(Self { inner: Arc::new(Inner { attributes, aligned, any, block_time: AtomicU64::new(0) }) })
    }

    /// Bytes that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.aligned.bytes() + self.inner.any.bytes()
    }

    /// What the kernel needs.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.inner.attributes
    }
}

impl Inner {
    /// The code for blocks of this shape.
    pub(crate) fn variant(&self, [x, y, z]: [u32; 3]) -> &Variant {
        if x.is_multiple_of(LANES as u32) || (y == 1 && z == 1) { &self.aligned } else { &self.any }
    }
}

/// A kernel lowered under one assumption about the shape of blocks.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) code: Code,
    /// The first of the steps that run once a warp and launch, before any block; they end by leaving.
    pub(crate) prologue: u32,
    /// First step of each block of the code.
    pub(crate) blocks: Vec<u32>,
    pub(crate) tables: Tables,
    /// The shared registers that lanes must agree on to be one again where they wait for others.
    pub(crate) meetings: Meetings,
    pub(crate) registers: Registers,
    /// How many windows of device memory its instructions have.
    pub(crate) windows: usize,
    /// What frames hold before anything runs.
    pub(crate) initial: Initial,
}

/// The registers that lanes have of their own.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    pub(crate) narrow: Vec<Slot>,
    pub(crate) wide: Vec<Slot>,
    pub(crate) predicates: Vec<Slot>,
}

impl Registers {
    /// Copies the registers of some lanes.
    pub(crate) fn copy_lanes(&self, from: &Frame, to: &mut Frame, lanes: u32) {
        for lane in (0..LANES).filter(|lane| lanes >> lane & 1 != 0) {
            for &slot in &self.narrow {
                to.vector_mut::<u32>(slot)[lane] = from.vector::<u32>(slot)[lane];
            }
            for &slot in &self.wide {
                to.vector_mut::<u64>(slot)[lane] = from.vector::<u64>(slot)[lane];
            }
        }
        for &slot in &self.predicates {
            let bits = to.get::<u32>(slot) & !lanes | from.get::<u32>(slot) & lanes;
            to.set(slot, bits);
        }
    }
}

/// The registers of a vector that is loaded or stored, and other lists of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryStep {
    pub(crate) slots: [Slot; 4],
}

/// A special register, or what lowering makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Ptx(ir::Special),
    /// An element of the parameters, extended to the `to` bytes of a register.
    Parameter {
        offset: u32,
        bytes: u32,
        signed: bool,
        to: u32,
    },
}

/// What frames hold before anything runs.
#[derive(Debug, Default)]
pub(crate) struct Initial {
    pub(crate) scalars: Vec<(Slot, u64)>,
    pub(crate) narrow_vectors: Vec<(Slot, u32)>,
    pub(crate) wide_vectors: Vec<(Slot, u64)>,
    pub(crate) specials: Vec<(Special, Place)>,
    /// `%ctaid`, by axis.
    pub(crate) block: Vec<(Slot, u8)>,
}

impl Variant {
    /// Bytes that it takes, about: the steps, what they need beside, and what lanes must agree on.
    pub(crate) fn bytes(&self) -> u64 {
        lower::step_bytes(self.code.len(), self.blocks.len()) + self.meetings.bytes()
    }

    /// Fills a warp's frame with what is the same in all blocks of a launch.
    pub(crate) fn fill_launch(&self, frame: &mut Frame, warp: u32, env: &Env<'_>) {
        for &(slot, value) in &self.initial.scalars {
            frame.set(slot, value);
        }
        for &(slot, value) in &self.initial.narrow_vectors {
            *frame.vector_mut(slot) = [value; LANES];
        }
        for &(slot, value) in &self.initial.wide_vectors {
            *frame.vector_mut(slot) = [value; LANES];
        }
        for &(special, place) in &self.initial.specials {
            let value = |lane: u32| value(special, warp, lane, env);
            match place {
                Place::Scalar(slot) => frame.set(slot, value(0)),
                Place::Vector(slot) => {
                    *frame.vector_mut(slot) = std::array::from_fn(|lane| value(lane as u32) as u32);
                }
            }
        }
    }

    /// Fills what is another in each block.
    pub(crate) fn fill_block(&self, frame: &mut Frame, block: [u32; 3]) {
        for &(slot, axis) in &self.initial.block {
            frame.set(slot, u64::from(block[axis as usize % 3]));
        }
    }
}

/// The value of a special register of 32 bits, or of a parameter.
fn value(special: Special, warp: u32, lane: u32, env: &Env<'_>) -> u64 {
    let shape = env.shape;
    let axis = |values: [u32; 3], axis: u8| values.get(axis as usize).copied().unwrap_or(0);
    let special = match special {
        Special::Ptx(special) => special,
        Special::Parameter { offset, bytes, signed, to } => {
            let value = parameter(env.params, offset, bytes, signed);
            return if to < 8 { value & ((1 << (8 * to)) - 1) } else { value };
        }
    };
    u64::from(match special {
        ir::Special::Tid(at) => axis(coordinates(warp * LANES as u32 + lane, shape.block), at),
        ir::Special::Ntid(at) => axis(shape.block, at),
        ir::Special::Ctaid(at) => axis(env.block, at),
        ir::Special::Nctaid(at) => axis(shape.grid, at),
        ir::Special::LaneId => lane,
        ir::Special::WarpId => warp,
        ir::Special::NWarpId => {
            let [x, y, z] = shape.block;
            (x * y * z).div_ceil(LANES as u32)
        }
        ir::Special::NSmId => 1,
        ir::Special::LaneMaskEq => 1 << lane,
        ir::Special::LaneMaskLe => u32::MAX >> (31 - lane),
        ir::Special::LaneMaskLt => (1 << lane) - 1,
        ir::Special::LaneMaskGe => u32::MAX << lane,
        ir::Special::LaneMaskGt => (u32::MAX << lane) << 1,
        ir::Special::DynamicSmemSize => env.dynamic_shared,
        ir::Special::TotalSmemSize => env.shared.bytes,
        ir::Special::EnvReg(1) => (env.workspace >> 32) as u32,
        ir::Special::EnvReg(2) => env.workspace as u32,
        // The clocks are read when they are asked for; there is one multiprocessor, and grids have no numbers.
        ir::Special::SmId
        | ir::Special::GridId
        | ir::Special::EnvReg(_)
        | ir::Special::Clock
        | ir::Special::Clock64
        | ir::Special::GlobalTimer => 0,
    })
}

/// An element of the parameters, extended to 64 bits.
fn parameter(params: &[u8], offset: u32, bytes: u32, signed: bool) -> u64 {
    let mut value = [0; 8];
    let (offset, bytes) = (offset as usize, bytes as usize);
    if let (Some(from), Some(to)) = (params.get(offset..offset + bytes), value.get_mut(..bytes)) {
        to.copy_from_slice(from);
    }
    let value = u64::from_le_bytes(value);
    let unused = 64 - 8 * bytes as u32;
    if signed { ((value << unused).cast_signed() >> unused).cast_unsigned() } else { value }
}
