//! Combines chains of shifts, masks and unions, which assemble a word from bit fields, into one instruction
//! (a peephole optimization).
//! Kernels unpack quantised values in this form. Values of five and six bits are assembled from two words, by
//! `(a << 4 & 16) | (a << 11 & 4096) | ...`. Such a chain has about ten PTX instructions for each word, and
//! all results but the last are read only once, within the chain.

use vgpu_ptx::ir::{Binary, Inst, Op, Operand, Reg, Ty};

use crate::machine::{Field, Opcode, ValueLoc};

use super::builder::Builder;
use super::error::Lowered;

/// Maximum number of PTX instructions in a chain.
const MOST_INSTRUCTIONS: usize = 32;
/// Maximum number of bit fields in a word.
const MOST_FIELDS: usize = 8;

/// A bit field taken from a register: the register is shifted to the left, or to the right if `shift` is
/// negative, and masked.
#[derive(Clone, Copy, Debug)]
struct FieldSource {
    reg: Reg,
    shift: i32,
    mask: u32,
}

/// A value that a chain has computed and that no PTX instruction has read yet.
struct FieldWord {
    reg: Reg,
    sources: Vec<FieldSource>,
}

/// Takes the value of an operand: one that the chain has computed, or otherwise the whole register. Returns
/// `None` if the operand is no register.
fn take_value(words: &mut Vec<FieldWord>, operand: &Operand) -> Option<Vec<FieldSource>> {
    let Operand::Reg(reg) = *operand else { return None };
    Some(match words.iter().position(|word| word.reg == reg) {
        Some(index) => words.swap_remove(index).sources,
        None => vec![FieldSource { reg, shift: 0, mask: u32::MAX }],
    })
}

impl Builder<'_> {
    /// Lowers the longest chain that starts at `position` to one instruction. Returns the number of PTX
    /// instructions in the chain. Returns 0 and emits nothing if they are fewer than two, or if all lanes
    /// share the value of a register that the chain reads or writes.
    pub(super) fn bit_fields(&mut self, code: &[Inst], position: u32) -> Lowered<usize> {
        let mut words = Vec::new();
        let mut chain = None;
        for (inst, index) in code.iter().zip(position..).take(MOST_INSTRUCTIONS) {
            let Some(word) = (!self.runs_once(index)).then(|| self.word(&inst.op, &mut words)).flatten()
            else {
                break;
            };
            if word.sources.len() > MOST_FIELDS || words.iter().any(|other| other.reg == word.reg) {
                break;
            }
            // The chain may end where all other results have been read.
            if words.is_empty() && index > position {
                chain = Some((index + 1 - position, word.reg, word.sources.clone()));
            }
            if !self.is_read_once(word.reg) {
                break;
            }
            words.push(word);
        }
        let Some((count, dst, sources)) = chain else { return Ok(0) };
        let (ValueLoc::Vector(to), blend) = self.target(dst, 4)? else { return Ok(0) };
        let first = self.tables.fields.len();
        for source in sources {
            let ValueLoc::Vector(at) = self.register(source.reg, 4)? else {
                self.tables.fields.truncate(first);
                return Ok(0);
            };
            let (left, right) = (source.shift.max(0).unsigned_abs(), source.shift.min(0).unsigned_abs());
            self.tables.fields.push(Field { at, left, right, mask: source.mask });
        }
        let mut inst = self.inst(Opcode::Fields);
        (inst.x, inst.y) = (first as u32, (self.tables.fields.len() - first) as u32);
        self.finish(inst, false, false, ValueLoc::Vector(to), blend)?;
        Ok(count as usize)
    }

    /// Returns the value that a PTX instruction computes, if it belongs to a chain. The values that it reads
    /// are removed from `words`.
    fn word(&self, op: &Op, words: &mut Vec<FieldWord>) -> Option<FieldWord> {
        let Op::Binary { op, ty: ty @ (Ty::B32 | Ty::U32 | Ty::S32), dst, a, b, .. } = op else {
            return None;
        };
        let constant = |operand: &Operand| match *operand {
            Operand::Imm(value) => Some(value as u32),
            Operand::Reg(reg) => self.constant_register(reg).map(|value| value as u32),
            _ => None,
        };
        let mut sources = take_value(words, a)?;
        match (op, constant(b)) {
            (Binary::And, Some(mask)) => sources.iter_mut().for_each(|source| source.mask &= mask),
            (Binary::Shl, Some(by @ 0..32)) => {
                for source in &mut sources {
                    (source.shift, source.mask) = (source.shift + by.cast_signed(), source.mask << by);
                }
            }
            (Binary::Shr, Some(by @ 0..32)) if !ty.signed() => {
                for source in &mut sources {
                    (source.shift, source.mask) = (source.shift - by.cast_signed(), source.mask >> by);
                }
            }
            (Binary::Or, None) => sources.append(&mut take_value(words, b)?),
            _ => return None,
        }
        // Shifts of 32 and more leave nothing.
        sources.iter().all(|source| source.shift.abs() < 32).then_some(FieldWord { reg: *dst, sources })
    }
}
