//! Translates `mma.m8n8k4` of halves: four products, each computed by the eight lanes of two quads. The
//! results match the interpreter bit for bit.

use iced_x86::code_asm::{AsmRegisterZmm, dword_ptr};

use super::body::{Action, Templates};
use super::cache::Cache;
use super::convert::to_halves;
use super::lanes::all_active;
use super::product::{read_half, singles};
use crate::jit::value::Emit;
use crate::machine::{Inst, LANES, Opcode, QuadsOperands, Tables};
use crate::ops::matrix::{a_element, b_element, c_element, place};

/// Length of the products along `k`; the next constant is the number of elements of C and D in a lane.
const DEPTH: usize = 4;
const ELEMENTS: usize = 8;
/// Values of the control register MXCSR: that of the interpreter, which keeps subnormals, and that of code
/// that flushes them.
const KEEPS: u32 = 0x1f80;
const FLUSHES: u32 = 0x1fc0;

/// Source of a factor: the index of the element, which is the same for all lanes, and the source lane of each
/// lane.
type FactorSource = (usize, [usize; LANES]);

pub(super) fn register(table: &mut Templates) {
    table.add(Opcode::MmaQuads, Action::Quads);
}

/// Returns whether the translator supports the form of a product.
pub(super) fn fits(step: &Inst, tables: &Tables) -> bool {
    tables.quads.get(step.x as usize).is_some_and(|quads| {
        let registers = if quads.c_halves { ELEMENTS / 2 } else { ELEMENTS };
        let early = |(at, d)| quads.c.iter().skip(at + 1).any(|c| c == d);
        quads.c_halves == quads.d_halves
            && [quads.c.len(), quads.d.len()] == [registers; 2]
            // A result must not overwrite a C that is read later.
            && !quads.d.iter().enumerate().any(early)
            && (0..ELEMENTS).all(|element| (0..DEPTH).all(|k| sources(quads, element, k).is_some()))
    })
}

/// Finds the lane of a pair of quads that has an element of a fragment, and the index of the element in it.
fn find(pair: usize, has: impl Fn(usize, usize) -> bool) -> Option<(usize, usize)> {
    (0..LANES).filter(|&lane| place(lane).0 == pair).find_map(|lane| {
        let index = (0..DEPTH).find(|&index| has(place(lane).1, index))?;
        Some((lane, index))
    })
}

/// Finds the sources of both factors of an element of D.
fn sources(quads: &QuadsOperands, element: usize, k: usize) -> Option<[FactorSource; 2]> {
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

/// Assembles four products for which `fits` returned true.
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
    // A subnormal C must not be flushed even if the surrounding code flushes. Halves are never subnormal as
    // singles.
    let keeps = e.flushes() && !quads.c_halves;
    if keeps {
        // Floats of earlier instructions are flushed first: they cannot be flushed in this mode.
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
                let (c, sum) = (read_half(e, quads.c[number], half)?, e.temporary()?);
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

/// Adds all products of an element of D to its sum, for half of the lanes.
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
