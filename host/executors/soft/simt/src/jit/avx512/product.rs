//! Translates `mma` of bytes and of halves. Lane `4 * g + t` of a fragment has elements of row `g` of A, C
//! and D, and of column `g` of B. The results match the interpreter bit for bit.
//!
//! A lane of D needs the row of A that its own group of four lanes holds, which is read by a shuffle within
//! quarters of registers. It also needs the columns of B with the numbers of its columns of D: words that
//! four other lanes hold, the same for all rows.

use iced_x86::code_asm::{AsmRegisterZmm, k5};

use super::body::{Action, Templates};
use super::cache::Cache;
use super::convert::{from_half, to_halves};
use super::lanes::all_active;
use super::registers::Pair;
use crate::jit::value::{Emit, SlotKind};
use crate::machine::{Inst, Opcode, ProductOperands, Slot, Tables};

const VECTOR: SlotKind = SlotKind::Vector { wide: false };
/// Mask of the sign bits of four bytes. Flipping the sign bit of a byte adds 128 to its unsigned value.
const FLIPPED: u32 = 0x8080_8080;
/// Mask of the fraction of a single; the next constant is that of its exponent.
const MANTISSA: u32 = 0x007f_ffff;
const EXPONENT: u32 = 0x7f80_0000;
/// Comparison predicate "equal".
const EQUAL: u32 = 0;

pub(super) fn register(table: &mut Templates) {
    table.add(Opcode::MmaS8, Action::Product { halves: false });
    table.add(Opcode::MmaF16, Action::Product { halves: true });
}

/// Returns whether the translator supports the shape of a product.
pub(super) fn fits(step: &Inst, halves: bool, tables: &Tables) -> bool {
    tables.products.get(step.x as usize).is_some_and(|product| {
        let registers = if product.halves { product.eights } else { 2 * product.eights };
        let whole = product.a.len() == product.eights * product.b.len()
            && [product.c.len(), product.d.len()] == [registers; 2];
        whole && !product.saturates && (halves || !product.halves)
    })
}

/// Assembles a product for which `fits` returned true.
pub(super) fn multiply(e: &mut Cache<'_>, halves: bool, product: &ProductOperands) -> Emit {
    all_active(e)?;
    if halves { multiply_halves(e, product) } else { multiply_bytes(e, product) }
}

/// Returns the register with half of the lanes of a vector.
pub(super) fn read_half(e: &mut Cache<'_>, slot: Slot, half: usize) -> Emit<AsmRegisterZmm> {
    e.half = half;
    Ok(e.read(VECTOR, slot, false)?.low)
}

/// Collects the words of B that the even or the odd columns of D need: word number `word` of each column.
fn columns(e: &mut Cache<'_>, odd: usize, word: u32, to: AsmRegisterZmm, b: [AsmRegisterZmm; 2]) -> Emit {
    let order = e.pattern(|lane| 8 * (lane % 4) + 4 * odd as u32 + word);
    e.asm.vmovdqu64(to, order)?;
    e.asm.vpermi2d(to, b[0], b[1])
}

/// Returns a shuffle control that repeats one word of four.
const fn repeated(word: u32) -> u32 {
    0b01_01_01_01 * word
}

/// Emits products of signed bytes. The sums are ordered by groups of eight rows, then by columns, then by
/// halves of registers.
fn multiply_bytes(e: &mut Cache<'_>, product: &ProductOperands) -> Emit {
    let ProductOperands { eights, .. } = *product;
    let mut sums = Vec::new();
    for &slot in &product.c {
        for half in 0..2 {
            let (c, sum) = (read_half(e, slot, half)?, e.temporary()?);
            e.asm.vmovdqa64(sum, c)?;
            e.loosen(c);
            sums.push(sum);
        }
    }
    let [flipped, words, bias, more] = e.temporaries()?;
    let sign = e.word(FLIPPED);
    e.asm.vpbroadcastd(flipped, sign)?;
    for of in [bias, more] {
        e.asm.vpxord(of, of, of)?;
    }
    for (deep, &b) in product.b.iter().enumerate() {
        let mut rows = Vec::new();
        for &slot in &product.a[eights * deep..][..eights] {
            for half in 0..2 {
                let (a, row, one) = (read_half(e, slot, half)?, e.temporary()?, e.temporary()?);
                e.asm.vpxord(row, a, flipped)?;
                e.loosen(a);
                rows.push((row, one));
            }
        }
        let b = [read_half(e, b, 0)?, read_half(e, b, 1)?];
        for word in 0..4 {
            for &(row, one) in &rows {
                e.asm.vpshufd(one, row, repeated(word))?;
            }
            for (odd, of) in [bias, more].into_iter().enumerate() {
                columns(e, odd, word, words, b)?;
                e.asm.vpdpbusd(of, flipped, words)?;
                for (at, &(_, one)) in rows.iter().enumerate() {
                    e.asm.vpdpbusd(sums[4 * (at / 2) + 2 * odd + at % 2], one, words)?;
                }
            }
        }
        for (row, one) in rows {
            e.release(row);
            e.release(one);
        }
        for register in b {
            e.loosen(register);
        }
    }
    for (at, &sum) in sums.iter().enumerate() {
        e.asm.vpsubd(sum, sum, if at / 2 % 2 == 0 { bias } else { more })?;
    }
    for (at, &sum) in sums.iter().enumerate() {
        e.half = at % 2;
        e.write(false, product.d[at / 2], Pair::narrow(sum), false, false)?;
    }
    Ok(())
}

/// Emits products of halves, which are exact. They are added in the order of `k`, and C is added last.
fn multiply_halves(e: &mut Cache<'_>, product: &ProductOperands) -> Emit {
    let ProductOperands { eights, .. } = *product;
    // The sums are ordered by groups of eight rows, columns, and halves of registers.
    let mut sums = Vec::new();
    for _ in 0..4 * eights {
        let sum = e.temporary()?;
        e.asm.vpxord(sum, sum, sum)?;
        sums.push(sum);
    }
    for (deep, &b) in product.b.iter().enumerate() {
        let mut rows = Vec::new();
        for &slot in &product.a[eights * deep..][..eights] {
            for half in 0..2 {
                rows.push(singles(e, slot, half)?);
            }
        }
        let [low, high] = [singles(e, b, 0)?, singles(e, b, 1)?];
        let [even, odd, row] = e.temporaries()?;
        for word in 0..4 {
            for element in 0..2 {
                let b = [low[element], high[element]];
                columns(e, 0, word, even, b)?;
                columns(e, 1, word, odd, b)?;
                for (at, a) in rows.iter().enumerate() {
                    e.asm.vpshufd(row, a[element], repeated(word))?;
                    for (parity, words) in [even, odd].into_iter().enumerate() {
                        e.asm.vfmadd231ps(sums[4 * (at / 2) + 2 * parity + at % 2], row, words)?;
                    }
                }
            }
        }
        for register in rows.into_iter().flatten().chain(low).chain(high).chain([even, odd, row]) {
            e.release(register);
        }
    }
    for (eight, sums) in sums.chunks(4).enumerate() {
        for half in 0..2 {
            let [even, odd] = [sums[half], sums[2 + half]];
            if product.halves {
                let c = singles(e, product.c[eight], half)?;
                add(e, false, even, c[0])?;
                add(e, false, odd, c[1])?;
                to_halves(e, even, [even, odd], c)?;
                for register in c {
                    e.release(register);
                }
            } else {
                for (parity, sum) in [even, odd].into_iter().enumerate() {
                    let c = read_half(e, product.c[2 * eight + parity], half)?;
                    add(e, true, sum, c)?;
                    e.loosen(c);
                }
            }
        }
    }
    // C and D may share registers.
    for (eight, sums) in sums.chunks(4).enumerate() {
        for half in 0..2 {
            e.half = half;
            if product.halves {
                e.write(false, product.d[eight], Pair::narrow(sums[half]), false, false)?;
            } else {
                for parity in 0..2 {
                    let sum = Pair::narrow(sums[2 * parity + half]);
                    e.write(false, product.d[2 * eight + parity], sum, false, false)?;
                }
            }
        }
    }
    Ok(())
}

/// Emits the conversion of the lower and the upper halves of half a vector to singles.
pub(super) fn singles(e: &mut Cache<'_>, slot: Slot, half: usize) -> Emit<[AsmRegisterZmm; 2]> {
    let from = read_half(e, slot, half)?;
    let both: [AsmRegisterZmm; 2] = e.temporaries()?;
    for (upper, to) in both.into_iter().enumerate() {
        from_half(e, upper != 0, to, from)?;
    }
    e.loosen(from);
    Ok(both)
}

/// Adds C to a sum. With `single`, C may be subnormal, which must not be flushed even if the surrounding code
/// flushes. The sum is never subnormal.
fn add(e: &mut Cache<'_>, single: bool, sum: AsmRegisterZmm, c: AsmRegisterZmm) -> Emit {
    if !(single && e.flushes()) {
        e.asm.vaddps(sum, c, sum)?;
        return e.make_canonical_nan(sum);
    }
    // A subnormal C changes the result only if the sum is zero.
    let (t, zero) = (e.temporary()?, e.temporary()?);
    let (exponent, mantissa) = (e.constant(EXPONENT), e.constant(MANTISSA));
    e.asm.vpxord(zero, zero, zero)?;
    e.asm.vaddps(t, c, sum)?;
    e.asm.vcmpps(k5, sum, zero, EQUAL)?;
    e.asm.vptestnmd(k5.k5(), c, exponent)?;
    e.asm.vptestmd(k5.k5(), c, mantissa)?;
    e.asm.vmovaps(sum, t)?;
    e.asm.vmovaps(sum.k5(), c)?;
    e.release(t);
    e.release(zero);
    e.make_canonical_nan(sum)
}
