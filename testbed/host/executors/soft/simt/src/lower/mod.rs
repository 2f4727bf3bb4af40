//! Lowering: from the intermediate form to steps.
//!
//! Registers become places in a frame (`slots`), each instruction one step or a few (the other modules, by chapters of the
//! ISA), and blocks ranges of steps. Everything is checked here: classes of registers against types, sizes of
//! vectors, and that the engine has the instruction. What is left for the run is what depends on data.

mod arithmetic;
mod beside;
mod builder;
mod compare;
mod convert;
mod emit;
mod fields;
mod flow;
mod integer;
mod invariant;
mod meeting;
mod memory;
mod prepare;
mod short;
mod slots;
mod warp;

use vgpu_ptx::Effort;
use vgpu_ptx::ir::{Inst, Kernel, Op};

use crate::fault::{EngineError, ProgramError};
use crate::machine::{Code, Features, Step};
use crate::program::Variant;

use builder::{BuildError, Builder, Lowered};

pub(crate) use prepare::prepare;

/// Steps of effort that an instruction costs to be lowered, those that are tried with it included.
const INSTRUCTION_COST: u64 = 32;

/// Bytes of steps, of what they need in tables beside and of blocks, about.
pub(crate) const fn step_bytes(steps: usize, blocks: usize) -> u64 {
    (steps * (size_of::<Step>() + 16) + blocks * 4) as u64
}

/// Lowers a kernel. `aligned`: lanes of a warp share `%tid.y` and `%tid.z`. `held`: bytes that were made of it before.
pub(crate) fn lower(
    kernel: &Kernel,
    globals: &[u64],
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
    // What is there of the kernel itself, twice, and is not counted again.
    let held = held + 2 * size_of_val(&kernel.code[..]) as u64;
    for (index, block) in kernel.blocks.iter().enumerate() {
        let (work, _) = builder.meetings.effort();
        builder.begin_block(index);
        let (worked, bytes) = builder.meetings.effort();
        effort.spend(1 + worked - work)?;
        effort.hold(held + bytes + step_bytes(builder.steps.len(), builder.blocks.len()))?;
        let code = kernel.code.get(block.code.start as usize..block.code.end as usize).ok_or_else(|| {
            EngineError { line: block.line, what: "no such code".into(), instruction: String::new() }
        })?;
        let mut rest = code;
        while let [inst, after @ ..] = rest {
            builder.begin(inst.line);
            let position = block.code.end - rest.len() as u32;
            effort.spend(INSTRUCTION_COST)?;
            builder.look();
            builder.begin_meeting(position);
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
            builder.end_meeting();
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
    let Builder { steps, layout, blocks, tables, registers, windows, initial, meetings, .. } = builder;
    Ok(Variant {
        prologue,
        meetings: meetings.finish(),
        code: Code::new(steps, layout),
        blocks,
        tables,
        registers,
        windows: windows as usize,
        initial,
    })
}

/// Lowers instructions that are one step together. `position`: index of the first. How many there were: none, if the first is
/// lowered alone.
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
        Op::Cvt { .. } | Op::CvtPack { .. } | Op::Cvta { .. } | Op::IsSpace { .. } => {
            builder.converts(&inst.op)
        }
        Op::Ld { mem, dst } => builder.load(mem, dst),
        Op::St { mem, src } => builder.store(mem, src),
        Op::Atom { op, mem, float, dst, b, c } => builder.atomic(*op, mem, *float, *dst, b, c.as_ref()),
        Op::Fence | Op::Nanosleep { .. } | Op::Printf { .. } => builder.system(&inst.op),
        Op::Bar { .. } | Op::BarArrive { .. } | Op::BarRed { .. } => builder.barrier(&inst.op),
        Op::BarWarp { .. }
        | Op::Shfl { .. }
        | Op::Vote { .. }
        | Op::Ballot { .. }
        | Op::ActiveMask { .. }
        | Op::Match { .. }
        | Op::Redux { .. }
        | Op::Mma { .. } => builder.warps(&inst.op),
    }
}
