//! `ldmatrix`, `stmatrix` and `movmatrix`: matrices of 8 by 8 elements of 16 bits.
//!
//! A row has 16 bytes. Lane `4 * row + t` has elements `2 t` and `2 t + 1` of a row, or of a column if the
//! matrix is loaded or stored by columns.

use crate::machine::{Env, Inst, Isa, LANES, LEAVE, Operation, Slot, SlotList, Warp};
use crate::ops::memory::{Near, NearAccess, WindowLanes};
use crate::ops::warps::missing;

/// Size of a matrix row in bytes. The next constant is its number of words.
const ROW: u32 = 16;
const WORDS: usize = 4;

/// A matrix in row order, as words of two elements.
type Tile = [[u32; WORDS]; 8];

/// Returns the transposed matrix.
fn transposed(matrix: &Tile) -> Tile {
    let element = |row: usize, column: usize| matrix[row][column / 2] >> (16 * (column % 2)) & 0xffff;
    std::array::from_fn(|row| {
        std::array::from_fn(|word| element(2 * word, row) | element(2 * word + 1, row) << 16)
    })
}

/// Reads the matrix that is distributed over the lanes of a register.
fn of_lanes(values: &[u32; LANES]) -> Tile {
    std::array::from_fn(|row| std::array::from_fn(|word| values[WORDS * row + word]))
}

/// Writes a matrix to the active lanes of a register.
fn to_lanes(warp: &mut Warp, slot: Slot, matrix: &Tile) {
    let mask = warp.mask;
    for (lane, to) in warp.frame.vector_mut::<u32>(slot).iter_mut().enumerate() {
        if mask >> lane & 1 != 0 {
            *to = matrix[lane / WORDS][lane % WORDS];
        }
    }
}

/// Waits for missing members, then returns the addresses of the rows of `count` matrices in shared memory.
/// The 16 bytes of each row are checked. With `GENERIC`, the instruction has generic addresses.
fn rows<const GENERIC: bool>(
    warp: &mut Warp,
    env: &mut Env<'_>,
    inst: &Inst,
    pc: u32,
    count: usize,
) -> Result<[u32; LANES], u32> {
    if missing(warp, inst.b, pc) {
        return Err(LEAVE);
    }
    // Lanes that have returned provide no row address, and the ISA leaves the values of those rows undefined.
    let named = u32::MAX >> (LANES - 8 * count) & warp.mask;
    let mut wrong = 0;
    let addresses = if GENERIC {
        let wide = warp.frame.vector::<u64>(inst.a).map(|base| base.wrapping_add(inst.imm));
        wrong = named & !WindowLanes::by_window(&wide, named).shared;
        wide.map(|address| address as u32)
    } else {
        warp.frame.vector::<u32>(inst.a).map(|base| base.wrapping_add(inst.imm as u32))
    };
    // A generic address outside of the shared window becomes one beyond the end of shared memory, and is
    // refused.
    let addresses: [u32; LANES] =
        std::array::from_fn(
            |lane| {
                if wrong >> lane & 1 != 0 { u32::MAX - (ROW - 1) } else { addresses[lane] }
            },
        );
    NearAccess { addresses: &addresses, size: ROW, line: inst.line }.check(Near::Shared, warp, env, named)?;
    Ok(addresses)
}

/// Returns the index of the first word of a row. An address that was not checked is wrapped into the memory.
const fn word(address: u32) -> usize {
    (address / 4) as u16 as usize / WORDS * WORDS
}

/// Executes `ldmatrix` of `COUNT` matrices into the slots of the list `x`. `b` holds the member mask.
pub(crate) struct LoadMatrices<const GENERIC: bool, const TRANS: bool, const COUNT: usize>;

impl<const GENERIC: bool, const TRANS: bool, const COUNT: usize> Operation
    for LoadMatrices<GENERIC, TRANS, COUNT>
{
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let addresses = match rows::<GENERIC>(warp, env, inst, pc, COUNT) {
            Ok(addresses) => addresses,
            Err(failed) => return failed,
        };
        let SlotList { slots } = &env.tables.memory[inst.x as usize];
        for (index, &slot) in slots.iter().take(COUNT).enumerate() {
            let words = env.shared.words();
            let matrix: Tile = std::array::from_fn(|row| {
                let first = word(addresses[8 * index + row]);
                std::array::from_fn(|word| words[first + word])
            });
            to_lanes(warp, slot, &if TRANS { transposed(&matrix) } else { matrix });
        }
        pc + 1
    }
}

/// Executes `stmatrix` of `COUNT` matrices from the slots of the list `x`. `b` holds the member mask.
pub(crate) struct StoreMatrices<const GENERIC: bool, const TRANS: bool, const COUNT: usize>;

impl<const GENERIC: bool, const TRANS: bool, const COUNT: usize> Operation
    for StoreMatrices<GENERIC, TRANS, COUNT>
{
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, env: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        let addresses = match rows::<GENERIC>(warp, env, inst, pc, COUNT) {
            Ok(addresses) => addresses,
            Err(failed) => return failed,
        };
        let mask = warp.mask;
        let SlotList { slots } = &env.tables.memory[inst.x as usize];
        for (index, &slot) in slots.iter().take(COUNT).enumerate() {
            let matrix = of_lanes(warp.frame.vector::<u32>(slot));
            let matrix = if TRANS { transposed(&matrix) } else { matrix };
            for (row, words) in
                matrix.iter().enumerate().filter(|(row, _)| mask >> (8 * index + row) & 1 != 0)
            {
                let first = word(addresses[8 * index + row]);
                env.shared.words_mut()[first..first + WORDS].copy_from_slice(words);
            }
        }
        pc + 1
    }
}

/// Executes `movmatrix` of the register `a` into `d`. `b` holds the member mask.
pub(crate) struct Transpose;

impl Operation for Transpose {
    #[inline(always)]
    fn execute<I: Isa>(warp: &mut Warp, _: &mut Env<'_>, inst: &Inst, pc: u32) -> u32 {
        if missing(warp, inst.b, pc) {
            return LEAVE;
        }
        let matrix = transposed(&of_lanes(warp.frame.vector::<u32>(inst.a)));
        to_lanes(warp, inst.d, &matrix);
        pc + 1
    }
}
