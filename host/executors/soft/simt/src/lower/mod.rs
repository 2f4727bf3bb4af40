//! Lowering: from the intermediate representation of a kernel to the instructions of a program.
//!
//! Registers are allocated to slots of a frame (`slots`). Each PTX instruction becomes one instruction of the
//! engine or a few, with one module for each section of the ISA, and each basic block becomes a range of
//! instructions. Everything that does not depend on data is checked here: register classes against types,
//! sizes of vectors, and that the engine supports the instruction.

mod arithmetic;
mod atomic;
mod blocks;
mod builder;
mod coalesce;
mod compare;
mod convert;
mod copy;
mod emit;
mod error;
mod fields;
mod flow;
mod fp8;
mod globals;
mod integer;
mod invariant;
mod matrix;
mod memory;
mod observation;
mod places;
mod prepare;
mod reconvergence;
mod short;
mod slots;
mod subnormal;
mod system;
mod warp;

use vgpu_ptx::Effort;
use vgpu_ptx::ir::{Inst, Kernel, Op};

use crate::fault::{EngineError, ProgramError};
use crate::jit;
use crate::machine::{Code, Features, Variant, inst_bytes};

use builder::Builder;
use error::{BuildError, Lowered};
pub(crate) use globals::Globals;

/// Effort of translating one instruction to machine code, in the unit of the effort's limit.
const TRANSLATION_COST: u64 = 32;
/// Effort of lowering one PTX instruction, including the attempts to fuse it.
const INSTRUCTION_COST: u64 = 32;

/// Lowers a kernel twice: for blocks in which the lanes of a warp share `%tid.y` and `%tid.z`, and for any
/// block.
pub(crate) fn compile(
    kernel: &Kernel,
    globals: &Globals<'_>,
    features: Features,
    effort: &Effort,
) -> Result<[Variant; 2], ProgramError> {
    effort.spend(4 * kernel.code.len() as u64)?;
    let prepared = prepare::prepare(kernel);
    let aligned = lower(&prepared, globals, features, true, 0, effort)?;
    let any = lower(&prepared, globals, features, false, aligned.bytes(), effort)?;
    Ok([aligned, any])
}

/// Lowers a kernel once. `aligned` tells that the lanes of a warp share `%tid.y` and `%tid.z`, and `held` is
/// the size in bytes of the other variant, which counts towards the limit.
fn lower(
    kernel: &Kernel,
    globals: &Globals<'_>,
    features: Features,
    aligned: bool,
    held: u64,
    effort: &Effort,
) -> Result<Variant, ProgramError> {
    let mut builder =
        Builder::new(kernel, globals, features, aligned, effort).map_err(|error| match error {
            BuildError::Wrong(what) => {
                ProgramError::Engine(EngineError { line: 0, what, instruction: kernel.name.clone() })
            }
            BuildError::Spent(spent) => spent.into(),
        })?;
    // Two copies of the kernel exist while it is lowered, and are not counted elsewhere.
    let held = held + 2 * size_of_val(&kernel.code[..]) as u64;
    for (index, block) in kernel.blocks.iter().enumerate() {
        let (work, _) = builder.reconvergence.effort();
        builder.begin_block(index);
        let (worked, bytes) = builder.reconvergence.effort();
        effort.spend(1 + worked - work)?;
        effort.hold(held + bytes + inst_bytes(builder.insts.len(), builder.blocks.len()))?;
        let code = kernel.code.get(block.code.start as usize..block.code.end as usize).ok_or_else(|| {
            EngineError { line: block.line, what: "no such code".into(), instruction: String::new() }
        })?;
        let mut rest = code;
        while let [inst, after @ ..] = rest {
            builder.begin(inst.line);
            let position = block.code.end - rest.len() as u32;
            effort.spend(INSTRUCTION_COST)?;
            builder.poll_if_due();
            builder.begin_waits(position);
            let taken = if builder.runs_once(position) {
                builder.in_prologue(|builder| instruction(builder, inst)).map(|()| 0)
            } else {
                fused(&mut builder, rest, position).and_then(|taken| {
                    if taken == 0 { instruction(&mut builder, inst) } else { Ok(()) }.map(|()| taken)
                })
            };
            let taken = taken.map_err(|what| EngineError {
                line: inst.line,
                what,
                instruction: format!("{:?}", inst.op),
            })?;
            builder.end_waits();
            rest = after.get(taken.saturating_sub(1)..).unwrap_or_default();
        }
        builder.begin(block.line);
        builder.terminator(index).map_err(|what| EngineError {
            line: block.line,
            what,
            instruction: format!("{:?}", block.end),
        })?;
    }
    builder.link();
    let prologue = builder.append_prologue();
    let Builder { insts, layout, blocks, tables, registers, windows, initial, reconvergence, .. } = builder;
    let translates = features.translates();
    let native = if translates {
        effort.spend(TRANSLATION_COST * insts.len() as u64)?;
        jit::translate(features, &insts, &tables, &initial, &blocks, prologue)
    } else {
        None
    };
    Ok(Variant {
        prologue,
        reconvergence: reconvergence.finish(),
        code: Code::new(insts, layout).with_native(native),
        blocks,
        tables,
        registers,
        windows: windows as usize,
        initial,
    })
}

/// Fuses several PTX instructions, beginning with the one at `position`, into one instruction. Returns the
/// number of PTX instructions that were lowered, or 0 if the first must be lowered alone.
fn fused(builder: &mut Builder<'_>, code: &[Inst], position: u32) -> Lowered<usize> {
    let loaded = builder.load_two(code)?;
    if loaded != 0 {
        return Ok(loaded);
    }
    if let [low, high, pack, ..] = code
        && builder.load_pair(&low.op, &high.op, &pack.op)?
    {
        return Ok(3);
    }
    if let [shuffle, mov, combine, ..] = code
        && builder.reduce_round(&shuffle.op, &mov.op, &combine.op)?
    {
        return Ok(3);
    }
    if let [unpack, convert, ..] = code
        && builder.unpack_and_convert(&unpack.op, &convert.op)?
    {
        return Ok(2);
    }
    builder.bit_fields(code, position)
}

/// Lowers one PTX instruction. The error says what the engine lacks.
fn instruction(builder: &mut Builder<'_>, inst: &Inst) -> Lowered {
    match &inst.op {
        Op::Mov { .. } | Op::Pack { .. } | Op::Unpack { .. } => builder.moves(&inst.op),
        Op::Unary { op, ty, float, dst, a } => builder.unary(*op, *ty, *float, *dst, a),
        Op::Binary { op, ty, float, dst, a, b } => builder.binary(*op, *ty, *float, *dst, a, b),
        Op::Fma { ty, float, relu, dst, a, b, c } => builder.fma(*ty, *float, *relu, *dst, [a, b, c]),
        Op::Mul { half, ty, dst, a, b } => builder.mul(*half, *ty, *dst, a, b),
        Op::Mad { half, ty, sat, dst, a, b, c } => builder.mad(*half, *ty, *sat, *dst, [a, b, c]),
        Op::Dp4a { .. }
        | Op::Dp2a { .. }
        | Op::Bfe { .. }
        | Op::Bfi { .. }
        | Op::Bfind { .. }
        | Op::Bmsk { .. }
        | Op::Shf { .. }
        | Op::Prmt { .. }
        | Op::Lop3 { .. } => builder.bits(&inst.op),
        Op::Setp { .. }
        | Op::Set { .. }
        | Op::Selp { .. }
        | Op::PredBinary { .. }
        | Op::PredMov { .. }
        | Op::PredImm { .. } => builder.compares(&inst.op),
        Op::ToTf32 { round, relu, finite, dst, src } => {
            builder.convert_to_tf32(*round, *relu, *finite, *dst, src)
        }
        Op::FromEighths { from, relu, dst, src } => builder.convert_from_fp8(*from, *relu, *dst, src),
        Op::ToEighths { to, relu, dst, a, b } => builder.convert_to_fp8(*to, *relu, *dst, a, b.as_ref()),
        Op::Cvt { .. } | Op::CvtPack { .. } | Op::Cvta { .. } | Op::IsSpace { .. } => {
            builder.converts(&inst.op)
        }
        Op::Ld { mem, dst } => builder.load(mem, dst),
        Op::St { mem, src } => builder.store(mem, src),
        Op::Atom { op, mem, float, dst, b, c } => builder.atomic(*op, mem, *float, *dst, b, c.as_ref()),
        Op::Fence
        | Op::Nanosleep { .. }
        | Op::Printf { .. }
        | Op::Malloc { .. }
        | Op::Free { .. }
        | Op::Assert { .. } => builder.system(&inst.op),
        Op::Bar { .. } | Op::BarArrive { .. } | Op::BarRed { .. } => builder.barrier(&inst.op),
        Op::BarWarp { .. }
        | Op::Shfl { .. }
        | Op::Vote { .. }
        | Op::Ballot { .. }
        | Op::ActiveMask { .. }
        | Op::Match { .. }
        | Op::Redux { .. } => builder.warps(&inst.op),
        Op::Mma { mma, d, a, b, c } => builder.multiply(*mma, d, [a, b, c]),
        Op::LdMatrix { mem, trans, dst } => builder.load_matrices(mem, *trans, dst),
        Op::StMatrix { mem, trans, src } => builder.store_matrices(mem, *trans, src),
        Op::MovMatrix { dst, a } => builder.transpose(*dst, a),
        Op::CpAsync { to, from, bytes, size } => builder.copy_async(to, from, *bytes, size.as_ref()),
    }
}
