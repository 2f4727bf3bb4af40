//! `mma` of bytes and of halves. Lane `4 * g + t` of a fragment has elements of row `g` of A, C and D, and of
//! column `g` of B; see the interpreter's definition, which these follow to the last bit.
//!
//! A lane of D needs a row of A, which is that of its own group of four lanes: a shuffle within quarters of
//! registers. And it needs the column of B that has its number: words of four lanes elsewhere, the same for
//! all rows.

use iced_x86::code_asm::{AsmRegisterZmm, k5};

use super::body::{Entry, Table};
use super::cache::Cache;
use super::convert::{from_half, to_halves};
use super::lanes::all_active;
use super::registers::Pair;
use crate::jit::value::{Emit, Kind};
use crate::machine::{Inst, ProductOperands, Slot, Tables};
use crate::ops::matrix::{Bytes, Halves, Multiply};

const VECTOR: Kind = Kind::Vector { wide: false };
/// The excess of a byte that is taken for an unsigned one, once its sign is flipped.
const FLIPPED: u32 = 0x8080_8080;
/// The magnitude of a single, and its exponent.
const MANTISSA: u32 = 0x007f_ffff;
const EXPONENT: u32 = 0x7f80_0000;
/// Predicate of comparisons: equal.
const EQUAL: u32 = 0;

pub(super) fn register(table: &mut Table) {
    table.add::<Multiply<Bytes<true>, Bytes<true>>>(Entry::Product { halves: false });
    table.add::<Multiply<Halves, Halves>>(Entry::Product { halves: true });
}

/// Whether machine code is made for this product.
pub(super) fn fits(step: &Inst, halves: bool, tables: &Tables) -> bool {
    tables.products.get(step.x as usize).is_some_and(|product| {
        let registers = if product.halves { product.eights } else { 2 * product.eights };
        let whole = product.a.len() == product.eights * product.b.len()
            && [product.c.len(), product.d.len()] == [registers; 2];
        whole && !product.saturates && (halves || !product.halves)
    })
}

/// Assembles a product, for which `fits` holds.
pub(super) fn multiply(e: &mut Cache<'_>, halves: bool, product: &ProductOperands) -> Emit {
    all_active(e)?;
    if halves { of_halves(e, product) } else { of_bytes(e, product) }
}

/// Half of a register's lanes.
pub(super) fn half_of(e: &mut Cache<'_>, slot: Slot, half: usize) -> Emit<AsmRegisterZmm> {
    e.half = half;
    Ok(e.read(VECTOR, slot, false)?.low)
}

/// Which words of B's two halves the lanes of D need whose columns are even, or odd: the `word`th of each
/// column.
fn columns(e: &mut Cache<'_>, odd: usize, word: u32, to: AsmRegisterZmm, b: [AsmRegisterZmm; 2]) -> Emit {
    let order = e.pattern(|lane| 8 * (lane % 4) + 4 * odd as u32 + word);
    e.asm.vmovdqu64(to, order)?;
    e.asm.vpermi2d(to, b[0], b[1])
}

/// A control that repeats one word of four.
const fn repeated(word: u32) -> u32 {
    0b01_01_01_01 * word
}

/// Products of signed bytes. The sums are by eights of rows, halves of registers, and columns.
fn of_bytes(e: &mut Cache<'_>, product: &ProductOperands) -> Emit {
    let ProductOperands { eights, .. } = *product;
    let mut sums = Vec::new();
    for &slot in &product.c {
        for half in 0..2 {
            let (c, sum) = (half_of(e, slot, half)?, e.temporary()?);
            e.asm.vmovdqa64(sum, c)?;
            e.loosen(c);
            sums.push(sum);
        }
    }
    let [flipped, words, excess, more] = e.temporaries()?;
    let sign = e.word(FLIPPED);
    e.asm.vpbroadcastd(flipped, sign)?;
    for of in [excess, more] {
        e.asm.vpxord(of, of, of)?;
    }
    for (deep, &b) in product.b.iter().enumerate() {
        let mut rows = Vec::new();
        for &slot in &product.a[eights * deep..][..eights] {
            for half in 0..2 {
                let (a, row, one) = (half_of(e, slot, half)?, e.temporary()?, e.temporary()?);
                e.asm.vpxord(row, a, flipped)?;
                e.loosen(a);
                rows.push((row, one));
            }
        }
        let b = [half_of(e, b, 0)?, half_of(e, b, 1)?];
        for word in 0..4 {
            for &(row, one) in &rows {
                e.asm.vpshufd(one, row, repeated(word))?;
            }
            for (odd, of) in [excess, more].into_iter().enumerate() {
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
        e.asm.vpsubd(sum, sum, if at / 2 % 2 == 0 { excess } else { more })?;
    }
    for (at, &sum) in sums.iter().enumerate() {
        e.half = at % 2;
        e.write(false, product.d[at / 2], Pair::narrow(sum), false, false)?;
    }
    Ok(())
}

/// Products of halves, which are exact, added to each other in the order of `k`, and then to C.
fn of_halves(e: &mut Cache<'_>, product: &ProductOperands) -> Emit {
    let ProductOperands { eights, .. } = *product;
    // By eights of rows, columns, and halves of registers.
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
                    let c = half_of(e, product.c[2 * eight + parity], half)?;
                    add(e, true, sum, c)?;
                    e.loosen(c);
                }
            }
        }
    }
    // C may be in the registers of D.
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

/// The halves of a register as singles: the lower ones of half of its lanes, and the upper ones.
pub(super) fn singles(e: &mut Cache<'_>, slot: Slot, half: usize) -> Emit<[AsmRegisterZmm; 2]> {
    let from = half_of(e, slot, half)?;
    let both: [AsmRegisterZmm; 2] = e.temporaries()?;
    for (upper, to) in both.into_iter().enumerate() {
        from_half(e, upper != 0, to, from)?;
    }
    e.loosen(from);
    Ok(both)
}

/// Adds C to a sum. `single`: it may be subnormal, which counts although code around flushes; the sum never
/// is.
fn add(e: &mut Cache<'_>, single: bool, sum: AsmRegisterZmm, c: AsmRegisterZmm) -> Emit {
    if !(single && e.flushes()) {
        e.asm.vaddps(sum, c, sum)?;
        return e.make_canonical_nan(sum);
    }
    // Only beside a sum of zero is such a C seen.
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
