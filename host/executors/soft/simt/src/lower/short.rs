//! Lowers operations on 16-bit floating-point numbers, alone or in pairs.

use vgpu_ptx::ir::{Binary, Float, Operand, Reg, Round, Ty, Unary};

use crate::machine::Opcode;
use crate::ops::rounding::{self, FloatFormat};
use crate::ops::{Op1, Op2, convert, float};

use super::builder::Builder;
use super::error::Lowered;

/// Returns whether a register of this type holds two numbers.
const fn pair(ty: Ty) -> bool {
    matches!(ty, Ty::F16x2 | Ty::Bf16x2)
}

/// Applies a function to the one number of a register, or to each of two.
fn each(ty: Ty, operands: [u64; 3], function: impl Fn([u32; 3]) -> u32) -> u64 {
    let low = function(operands.map(|bits| bits as u32 & 0xffff));
    if !pair(ty) {
        return low.into();
    }
    let high = function(operands.map(|bits| (bits >> 16) as u32 & 0xffff));
    u64::from(high << 16 | low)
}

/// Modifiers of an operation on 16-bit numbers, and their format, `.f16` or `.bf16`.
#[derive(Clone, Copy)]
struct Rules {
    format: FloatFormat,
    modifiers: Float,
    relu: bool,
}

impl Rules {
    fn decode(self, bits: u32) -> f64 {
        self.format.decode(if self.modifiers.ftz { self.format.flush(bits) } else { bits })
    }

    fn encode(self, value: f64) -> u32 {
        let bits = self.format.encode(value, self.modifiers.round);
        let bits = if self.modifiers.ftz { self.format.flush(bits) } else { bits };
        let bits = if self.modifiers.sat { self.format.saturate(bits) } else { bits };
        let value = self.format.decode(bits);
        if self.relu && value <= 0.0 { 0 } else { bits }
    }
}

impl Builder<'_> {
    /// Emits an operation on halves, with the opcode for one of them or that for two, as the type tells.
    fn halves<const N: usize>(
        &mut self,
        [one, two]: [Opcode; 2],
        ty: Ty,
        dst: Reg,
        operands: [&Operand; N],
    ) -> Lowered {
        let bytes = ty.bytes();
        let sources = self.sources(operands.map(|operand| (operand, bytes)))?;
        self.op(if pair(ty) { two } else { one }, dst, bytes, sources)
    }

    pub(super) fn short_unary(
        &mut self,
        op: Unary,
        ty: Ty,
        modifiers: Float,
        dst: Reg,
        a: &Operand,
    ) -> Lowered {
        let bytes = ty.bytes();
        let halves = matches!(ty, Ty::F16 | Ty::F16x2);
        match op {
            Unary::Neg | Unary::Abs if modifiers.ftz => {
                let format = convert::format(ty).ok_or("not a short format")?;
                self.rare_of(dst, bytes, [(a, bytes)], move |[a, ..]| {
                    each(ty, [a, 0, 0], |[a, ..]| {
                        let a = format.flush(a);
                        if op == Unary::Neg { a ^ 0x8000 } else { a & 0x7fff }
                    })
                })
            }
            Unary::Neg => self.halves([Opcode::NegF16, Opcode::NegF16x2], ty, dst, [a]),
            Unary::Abs => self.halves([Opcode::AbsF16, Opcode::AbsF16x2], ty, dst, [a]),
            Unary::Ex2Approx if halves && !modifiers.ftz => {
                self.halves([Opcode::Ex2F16, Opcode::Ex2F16x2], ty, dst, [a])
            }
            Unary::TanhApprox if halves && !modifiers.ftz => {
                self.halves([Opcode::TanhF16, Opcode::TanhF16x2], ty, dst, [a])
            }
            Unary::Ex2Approx | Unary::TanhApprox => {
                let format = convert::format(ty).ok_or("not a short format")?;
                let rules = Rules { format, modifiers, relu: false };
                self.rare_of(dst, bytes, [(a, bytes)], move |[a, ..]| {
                    each(ty, [a, 0, 0], |[a, ..]| {
                        let a = rules.decode(a) as f32;
                        let value = if op == Unary::Ex2Approx {
                            <float::Ex2 as Op1>::f(a)
                        } else {
                            <float::Tanh as Op1>::f(a)
                        };
                        rules.encode(value.into())
                    })
                })
            }
            _ => Err(format!("there is no {op:?} of {ty:?}")),
        }
    }

    pub(super) fn short_binary(
        &mut self,
        op: Binary,
        ty: Ty,
        modifiers: Float,
        dst: Reg,
        a: &Operand,
        b: &Operand,
    ) -> Lowered {
        let bytes = ty.bytes();
        let plain = modifiers.round == Round::Nearest && !modifiers.ftz && !modifiers.sat;
        if matches!(ty, Ty::F16 | Ty::F16x2) && plain {
            match op {
                Binary::Add => return self.halves([Opcode::AddF16, Opcode::AddF16x2], ty, dst, [a, b]),
                Binary::Sub => return self.halves([Opcode::SubF16, Opcode::SubF16x2], ty, dst, [a, b]),
                Binary::Mul => return self.halves([Opcode::MulF16, Opcode::MulF16x2], ty, dst, [a, b]),
                Binary::Min => return self.halves([Opcode::MinF16, Opcode::MinF16x2], ty, dst, [a, b]),
                Binary::Max => return self.halves([Opcode::MaxF16, Opcode::MaxF16x2], ty, dst, [a, b]),
                Binary::MinNan => {
                    return self.halves([Opcode::MinNanF16, Opcode::MinNanF16x2], ty, dst, [a, b]);
                }
                Binary::MaxNan => {
                    return self.halves([Opcode::MaxNanF16, Opcode::MaxNanF16x2], ty, dst, [a, b]);
                }
                _ => {}
            }
        }
        let format = convert::format(ty).ok_or("not a short format")?;
        let rules = Rules { format, modifiers, relu: false };
        let sources = [(self.source(a, bytes)?, bytes), (self.source(b, bytes)?, bytes)];
        match op {
            Binary::Add | Binary::Sub | Binary::Mul => self.rare(dst, bytes, &sources, move |[a, b, ..]| {
                each(ty, [a, b, 0], |[a, b, _]| {
                    let (a, b) = (rules.decode(a), rules.decode(b));
                    let down = modifiers.round == Round::Down;
                    rules.encode(match op {
                        Binary::Add => rounding::add(a, b, down),
                        Binary::Sub => rounding::add(a, -b, down),
                        _ => a * b,
                    })
                })
            }),
            Binary::Min | Binary::Max | Binary::MinNan | Binary::MaxNan => {
                self.rare(dst, bytes, &sources, move |[a, b, ..]| {
                    each(ty, [a, b, 0], |[a, b, _]| {
                        let (a, b) = (rules.decode(a) as f32, rules.decode(b) as f32);
                        let value = match op {
                            Binary::Min => <float::Min as Op2>::f(a, b),
                            Binary::Max => <float::Max as Op2>::f(a, b),
                            Binary::MinNan => <float::MinNan as Op2>::f(a, b),
                            _ => <float::MaxNan as Op2>::f(a, b),
                        };
                        rules.encode(value.into())
                    })
                })
            }
            Binary::And => self.op(Opcode::And32, dst, bytes, [sources[0].0, sources[1].0]),
            Binary::Or => self.op(Opcode::Or32, dst, bytes, [sources[0].0, sources[1].0]),
            Binary::Xor => self.op(Opcode::Xor32, dst, bytes, [sources[0].0, sources[1].0]),
            _ => Err(format!("there is no {op:?} of {ty:?}")),
        }
    }

    pub(super) fn short_fma(
        &mut self,
        ty: Ty,
        modifiers: Float,
        relu: bool,
        dst: Reg,
        operands: [&Operand; 3],
    ) -> Lowered {
        let bytes = ty.bytes();
        let plain = modifiers.round == Round::Nearest && !modifiers.ftz && !modifiers.sat && !relu;
        if matches!(ty, Ty::F16 | Ty::F16x2) && plain {
            return self.halves([Opcode::FmaF16, Opcode::FmaF16x2], ty, dst, operands);
        }
        let format = convert::format(ty).ok_or("not a short format")?;
        let rules = Rules { format, modifiers, relu };
        let [a, b, c] = operands;
        self.rare_of(dst, bytes, [(a, bytes), (b, bytes), (c, bytes)], move |[a, b, c, _]| {
            each(ty, [a, b, c], |[a, b, c]| {
                let (a, b, c) = (rules.decode(a), rules.decode(b), rules.decode(c));
                let value = rounding::add(a * b, c, modifiers.round == Round::Down);
                // .relu: NaN becomes the canonical NaN, only numbers below zero become zero.
                rules.encode(value)
            })
        })
    }
}
