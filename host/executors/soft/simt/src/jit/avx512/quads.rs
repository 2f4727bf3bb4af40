//! `mma.m8n8k4` of halves: four products, each by the eight lanes of two quads. See the interpreter's
//! definition, which this follows to the last bit.

use iced_x86::code_asm::{AsmRegisterZmm, dword_ptr};

use super::body::{Entry, Table};
use super::cache::Cache;
use super::convert::to_halves;
use super::lanes::all_active;
use super::product::{half_of, singles};
use crate::jit::value::Emit;
use crate::machine::{Inst, LANES, QuadsOperands, Tables};
use crate::ops::matrix::{MultiplyQuads, a_element, b_element, c_element, place};

/// Elements of a product along `k`, and of a lane in C and D.
const DEPTH: usize = 4;
const ELEMENTS: usize = 8;
/// The processor's control register as the interpreter has it, and as code has it whose floats are flushed.
const KEEPS: u32 = 0x1f80;
const FLUSHES: u32 = 0x1fc0;

/// Where the lanes find their factor: the element of a fragment, which must be the same for all, and the
/// lanes.
type Source = (usize, [usize; LANES]);

pub(super) fn register(table: &mut Table) {
    table.add::<MultiplyQuads>(Entry::Quads);
}

/// Whether machine code is made for this product.
pub(super) fn fits(step: &Inst, tables: &Tables) -> bool {
    tables.quads.get(step.x as usize).is_some_and(|quads| {
        let registers = if quads.c_halves { ELEMENTS / 2 } else { ELEMENTS };
        let early = |(at, d)| quads.c.iter().skip(at + 1).any(|c| c == d);
        quads.c_halves == quads.d_halves
            && [quads.c.len(), quads.d.len()] == [registers; 2]
            // Results are written one after the other.
            && !quads.d.iter().enumerate().any(early)
            && (0..ELEMENTS).all(|element| (0..DEPTH).all(|k| sources(quads, element, k).is_some()))
    })
}

/// The lane of a pair of quads that has an element of a fragment, and the element's index there.
fn find(pair: usize, has: impl Fn(usize, usize) -> bool) -> Option<(usize, usize)> {
    (0..LANES).filter(|&lane| place(lane).0 == pair).find_map(|lane| {
        let index = (0..DEPTH).find(|&index| has(place(lane).1, index))?;
        Some((lane, index))
    })
}

/// Where the factors of an element of D are.
fn sources(quads: &QuadsOperands, element: usize, k: usize) -> Option<[Source; 2]> {
    let mut all = [(0, [0; LANES]); 2];
    for lane in 0..LANES {
        let (pair, at) = place(lane);
        let (row, column) = c_element(at, element, quads.d_halves);
        let [by_a, by_b] = quads.columns;
        let a = find(pair, |at, index| a_element(at, index, by_a) == (row, k))?;
        let b = find(pair, |at, index| b_element(at, index, by_b) == (k, column))?;
        for ((index, lanes), (from, found)) in all.iter_mut().zip([a, b]) {
            if lane > 0 && *index != found {
                return None;
            }
            (*index, lanes[lane]) = (found, from);
        }
    }
    Some(all)
}

/// Assembles four products, for which `fits` holds.
pub(super) fn multiply(e: &mut Cache<'_>, quads: &QuadsOperands) -> Emit {
    all_active(e)?;
    let mut fragments = Vec::new();
    for slots in [quads.a, quads.b] {
        let mut elements = Vec::new();
        for slot in slots {
            let [low, high] = [singles(e, slot, 0)?, singles(e, slot, 1)?];
            elements.extend([[low[0], high[0]], [low[1], high[1]]]);
        }
        fragments.push(elements);
    }
    // A subnormal C counts although code around flushes. Halves are no subnormal singles.
    let keeps = e.flushes() && !quads.c_halves;
    if keeps {
        // Floats of other steps are flushed before: in this mode they cannot be.
        e.finish_all()?;
        set_mode(e, KEEPS)?;
    }
    for (number, &slot) in quads.d.iter().enumerate() {
        for half in 0..2 {
            let result = if quads.d_halves {
                let c = singles(e, quads.c[number], half)?;
                for (element, sum) in c.into_iter().enumerate() {
                    add_products(e, quads, (2 * number + element, half), sum, &fragments)?;
                }
                let halves: [AsmRegisterZmm; 2] = e.temporaries()?;
                to_halves(e, halves[0], c, halves)?;
                for register in [halves[1], c[0], c[1]] {
                    e.release(register);
                }
                halves[0]
            } else {
                let (c, sum) = (half_of(e, quads.c[number], half)?, e.temporary()?);
                e.asm.vmovdqa64(sum, c)?;
                e.loosen(c);
                add_products(e, quads, (number, half), sum, &fragments)?;
                e.make_canonical_nan(sum)?;
                sum
            };
            e.write_through(slot, half, result)?;
        }
    }
    if keeps {
        set_mode(e, FLUSHES)?;
    }
    Ok(())
}

/// Adds the products of an element of D in half of the lanes to its sum.
fn add_products(
    e: &mut Cache<'_>,
    quads: &QuadsOperands,
    (element, half): (usize, usize),
    sum: AsmRegisterZmm,
    fragments: &[Vec<[AsmRegisterZmm; 2]>],
) -> Emit {
    let factors: [AsmRegisterZmm; 2] = e.temporaries()?;
    for k in 0..DEPTH {
        let Some(sources) = sources(quads, element, k) else { return Ok(()) };
        for ((to, (index, lanes)), fragment) in factors.into_iter().zip(sources).zip(fragments) {
            let order = e.pattern(|lane| lanes[16 * half + lane as usize] as u32);
            e.asm.vmovdqu64(to, order)?;
            e.asm.vpermi2d(to, fragment[index][0], fragment[index][1])?;
        }
        e.asm.vfmadd231ps(sum, factors[0], factors[1])?;
    }
    for register in factors {
        e.release(register);
    }
    Ok(())
}

fn set_mode(e: &mut Cache<'_>, mode: u32) -> Emit {
    let at = e.label_of(mode);
    e.asm.ldmxcsr(dword_ptr(at))
}
