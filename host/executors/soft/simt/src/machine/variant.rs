//! The executable form of a kernel: its instructions, their records, and the initial contents of frames.

use vgpu_ptx::ir;

use super::env::{Env, coordinates};
use super::frame::Frame;
use super::inst::{Code, Inst};
use super::operand::Tables;
use super::reconvergence::Reconvergence;
use super::slot::{LANES, Slot, ValueLoc};

/// Returns the approximate size in bytes of instructions, of their records, and of blocks.
pub(crate) const fn inst_bytes(insts: usize, blocks: usize) -> u64 {
    (insts * (size_of::<Inst>() + 16) + blocks * 4) as u64
}

/// A kernel lowered under one assumption about the shape of blocks.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) code: Code,
    /// First instruction of the prologue, which runs once for each warp of a launch, before any block.
    pub(crate) prologue: u32,
    /// First instruction of each basic block.
    pub(crate) blocks: Vec<u32>,
    pub(crate) tables: Tables,
    /// Shared registers on which lanes must agree before they reconverge.
    pub(crate) reconvergence: Reconvergence,
    pub(crate) registers: LaneRegisters,
    /// Number of windows of device memory that the instructions use.
    pub(crate) windows: usize,
    /// Contents of frames before the first instruction.
    pub(crate) initial: Initial,
}

/// Slots of the registers in which each lane has its own value: vectors of four and of eight bytes, and
/// predicates.
#[derive(Debug, Default)]
pub(crate) struct LaneRegisters {
    pub(crate) narrow: Vec<Slot>,
    pub(crate) wide: Vec<Slot>,
    pub(crate) predicates: Vec<Slot>,
}

impl LaneRegisters {
    /// Copies the registers of `lanes` from one frame to another.
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

/// Source of a value that frames hold from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum InitialValue {
    Ptx(ir::Special),
    /// An element of the parameters, extended to the `to` bytes of a register.
    Parameter {
        offset: u32,
        bytes: u32,
        signed: bool,
        to: u32,
    },
}

impl InitialValue {
    /// Returns whether the value differs from warp to warp of a block.
    pub(crate) const fn of_warp(self) -> bool {
        matches!(self, Self::Ptx(ir::Special::Tid(_) | ir::Special::WarpId))
    }
}

/// Contents of frames before the first instruction.
#[derive(Debug, Default)]
pub(crate) struct Initial {
    pub(crate) scalars: Vec<(Slot, u64)>,
    pub(crate) narrow_vectors: Vec<(Slot, u32)>,
    pub(crate) wide_vectors: Vec<(Slot, u64)>,
    /// Values that are the same in all warps.
    pub(crate) specials: Vec<(InitialValue, ValueLoc)>,
    /// Values that differ from warp to warp.
    pub(crate) of_warp: Vec<(InitialValue, ValueLoc)>,
    /// Slots that hold `%ctaid`, each with its axis.
    pub(crate) block: Vec<(Slot, u8)>,
}

impl Variant {
    /// Returns the approximate size in bytes of the instructions, their records and the reconvergence sets.
    pub(crate) fn bytes(&self) -> u64 {
        inst_bytes(self.code.len(), self.blocks.len()) + self.code.native_bytes() + self.reconvergence.bytes()
    }

    /// Fills a frame with the values that are the same in all warps of a launch.
    pub(crate) fn fill_launch(&self, frame: &mut Frame, env: &Env<'_>) {
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
            put(frame, special, place, 0, env);
        }
    }

    /// Fills the frame of a warp with its own values, which are the same in all blocks.
    pub(crate) fn fill_warp(&self, frame: &mut Frame, warp: u32, env: &Env<'_>) {
        for &(special, place) in &self.initial.of_warp {
            if let (InitialValue::Ptx(ir::Special::Tid(axis @ 0..3)), ValueLoc::Vector(slot)) =
                (special, place)
            {
                *frame.vector_mut(slot) = threads_of(warp, env.shape.block, axis.into());
            } else {
                put(frame, special, place, warp, env);
            }
        }
    }

    /// Returns the slots whose values differ from block to block, with the values for `block`.
    pub(crate) fn of_block(&self, block: [u32; 3]) -> impl Iterator<Item = (Slot, u64)> {
        self.initial.block.iter().map(move |&(slot, axis)| (slot, u64::from(block[axis as usize % 3])))
    }
}

/// Writes an initial value into the frame of a warp.
fn put(frame: &mut Frame, special: InitialValue, place: ValueLoc, warp: u32, env: &Env<'_>) {
    let value = |lane: u32| value(special, warp, lane, env);
    match place {
        ValueLoc::Scalar(slot) => frame.set(slot, value(0)),
        ValueLoc::Vector(slot) => {
            *frame.vector_mut(slot) = std::array::from_fn(|lane| value(lane as u32) as u32);
        }
    }
}

/// Returns the index of each thread of a warp in its block, on one axis.
fn threads_of(warp: u32, block: [u32; 3], axis: usize) -> [u32; LANES] {
    let mut thread = coordinates(warp * LANES as u32, block);
    if thread[0] + LANES as u32 <= block[0] {
        let inst = u32::from(axis == 0);
        return std::array::from_fn(|lane| thread[axis] + inst * lane as u32);
    }
    let mut all = [0; LANES];
    for index in &mut all {
        *index = thread[axis];
        thread[0] += 1;
        for axis in 0..2 {
            if thread[axis] == block[axis] {
                thread[axis] = 0;
                thread[axis + 1] += 1;
            }
        }
    }
    all
}

/// Returns an initial value for one lane. Special registers have 32 bits.
fn value(special: InitialValue, warp: u32, lane: u32, env: &Env<'_>) -> u64 {
    let shape = env.shape;
    let axis = |values: [u32; 3], axis: u8| values.get(axis as usize).copied().unwrap_or(0);
    let special = match special {
        InitialValue::Ptx(special) => special,
        InitialValue::Parameter { offset, bytes, signed, to } => {
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
        ir::Special::LocalBytes => env.local.first().map_or(0, |local| local.bytes),
        ir::Special::EnvReg(1) => (env.workspace >> 32) as u32,
        ir::Special::EnvReg(2) => env.workspace as u32,
        // Clocks are read by instructions of their own. There is one multiprocessor, and grids have no
        // numbers.
        ir::Special::SmId
        | ir::Special::GridId
        | ir::Special::EnvReg(_)
        | ir::Special::Clock
        | ir::Special::Clock64
        | ir::Special::GlobalTimer => 0,
    })
}

/// Returns an element of the parameters, extended to 64 bits.
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
