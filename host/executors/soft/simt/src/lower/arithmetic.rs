//! Lowers unary and binary operations and `fma` of all types.

use vgpu_ptx::ir::{Binary, Float, Operand, Reg, Round, Ty, Unary};

use crate::machine::{Opcode, Subnormals, ValueLoc};
use crate::ops::rounding::{self, F32};
use crate::ops::{double, float};

use super::builder::Builder;
use super::error::Lowered;
use super::subnormal::is_normal;

/// Returns whether the rounding is to nearest, the only one that vector instructions have.
fn nearest(float: Float) -> bool {
    float.round == Round::Nearest
}

/// Returns the single-precision number in the low 32 bits of `bits`. With `ftz`, a subnormal number becomes
/// the zero of its sign.
fn decode(bits: u64, ftz: bool) -> f64 {
    let value = f32::from_bits(bits as u32);
    f64::from(if ftz { float::flush(value) } else { value })
}

/// Encodes a 32-bit result with the rounding, flushing and saturation of the modifiers.
fn encode(value: f64, modifiers: Float) -> u64 {
    let bits = F32.encode(value, modifiers.round);
    let bits = if modifiers.ftz { F32.flush(bits) } else { bits };
    u64::from(if modifiers.sat { F32.saturate(bits) } else { bits })
}

impl Builder<'_> {
    /// Returns whether `.ftz` has to flush one of the operands, because it may be subnormal.
    /// `never_subnormal` has ruled this out for some registers.
    pub(super) fn dirty(&self, modifiers: Float, operands: &[&Operand]) -> bool {
        modifiers.ftz && !operands.iter().all(|operand| is_normal(operand, &self.normal))
    }

    /// Returns the location of a result and whether inactive lanes must keep their values: a temporary if the
    /// result must still be clamped, otherwise its register.
    fn unclamped(&mut self, dst: Reg, sat: bool, scalar: bool) -> Lowered<(ValueLoc, bool)> {
        if !sat {
            return self.target(dst, 4);
        }
        let place = if scalar {
            ValueLoc::Scalar(self.temporary_scalar())
        } else {
            ValueLoc::Vector(self.temporary_vector(false))
        };
        Ok((place, false))
    }

    fn clamp(&mut self, dst: Reg, sat: bool, place: ValueLoc) -> Lowered {
        if sat { self.op(Opcode::SaturateF32, dst, 4, [place]) } else { Ok(()) }
    }

    /// Returns how an operation with these modifiers treats subnormal numbers. `dirty` tells that its
    /// operands may be subnormal.
    pub(super) const fn subnormals(modifiers: Float, dirty: bool) -> Subnormals {
        match (modifiers.ftz, dirty) {
            (false, _) => Subnormals::Keep,
            (true, true) => Subnormals::Flush,
            (true, false) => Subnormals::FlushResult,
        }
    }

    /// Emits arithmetic of 32-bit numbers with its modifiers.
    fn float<const N: usize>(
        &mut self,
        opcode: Opcode,
        dst: Reg,
        modifiers: Float,
        operands: [&Operand; N],
    ) -> Lowered {
        let dirty = self.dirty(modifiers, &operands);
        let places = self.sources(operands.map(|operand| (operand, 4)))?;
        let target = self.unclamped(dst, modifiers.sat, places.iter().all(|place| place.is_scalar()))?;
        self.emit((opcode, Self::subnormals(modifiers, dirty)), target, places)?;
        self.clamp(dst, modifiers.sat, target.0)
    }

    /// Lowers an operation with one source of any type, or fails if the engine lacks it for the type.
    pub(super) fn unary(&mut self, op: Unary, ty: Ty, modifiers: Float, dst: Reg, a: &Operand) -> Lowered {
        let missing = || Err(format!("there is no {op:?} of {ty:?}"));
        if matches!(ty, Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2) {
            return self.short_unary(op, ty, modifiers, dst, a);
        }
        let bytes = ty.bytes();
        match (op, ty) {
            (Unary::RcpApprox, Ty::F32) => self.float(Opcode::RcpF32, dst, modifiers, [a]),
            (Unary::SqrtApprox, Ty::F32) => self.float(Opcode::SqrtF32, dst, modifiers, [a]),
            (Unary::RsqrtApprox, Ty::F32) => self.float(Opcode::RsqrtF32, dst, modifiers, [a]),
            (Unary::SinApprox, Ty::F32) => self.float(Opcode::SinF32, dst, modifiers, [a]),
            (Unary::CosApprox, Ty::F32) => self.float(Opcode::CosF32, dst, modifiers, [a]),
            (Unary::Lg2Approx, Ty::F32) => self.float(Opcode::Lg2F32, dst, modifiers, [a]),
            (Unary::Ex2Approx, Ty::F32) => self.float(Opcode::Ex2F32, dst, modifiers, [a]),
            (Unary::TanhApprox, Ty::F32) => self.float(Opcode::TanhF32, dst, modifiers, [a]),
            (Unary::Rcp, Ty::F32) if nearest(modifiers) => self.float(Opcode::RcpF32, dst, modifiers, [a]),
            (Unary::Sqrt, Ty::F32) if nearest(modifiers) => self.float(Opcode::SqrtF32, dst, modifiers, [a]),
            (Unary::Rcp | Unary::Sqrt, Ty::F32) => self.rare_of(dst, 4, [(a, 4)], move |[a, ..]| {
                let a = decode(a, modifiers.ftz);
                encode(if op == Unary::Rcp { rounding::divide(1.0, a) } else { rounding::root(a) }, modifiers)
            }),
            (Unary::Rcp, Ty::F64) if !nearest(modifiers) => self.rare_of(dst, 8, [(a, 8)], move |[a, ..]| {
                double::binary(Binary::Div, 1f64.to_bits(), a, modifiers.round)
            }),
            (Unary::Sqrt, Ty::F64) if !nearest(modifiers) => {
                self.rare_of(dst, 8, [(a, 8)], move |[a, ..]| {
                    double::root(f64::from_bits(a), modifiers.round).to_bits()
                })
            }
            (Unary::Popc | Unary::Clz, _) => {
                let place = self.source(a, bytes)?;
                match (op, bytes) {
                    (Unary::Popc, 4) => self.op(Opcode::Popc32, dst, 4, [place]),
                    (Unary::Popc, 8) => self.op(Opcode::Popc64, dst, 4, [place]),
                    (Unary::Clz, 4) => self.op(Opcode::Clz32, dst, 4, [place]),
                    (Unary::Clz, 8) => self.op(Opcode::Clz64, dst, 4, [place]),
                    _ => missing(),
                }
            }
            _ => {
                let place = self.source(a, bytes)?;
                match (op, ty, bytes) {
                    (Unary::Abs, Ty::F32, _) if modifiers.ftz => self.op(Opcode::AbsFtzF32, dst, 4, [place]),
                    (Unary::Abs, Ty::F32, _) => self.op(Opcode::AbsF32, dst, 4, [place]),
                    (Unary::Neg, Ty::F32, _) if modifiers.ftz => self.op(Opcode::NegFtzF32, dst, 4, [place]),
                    (Unary::Neg, Ty::F32, _) => self.op(Opcode::NegF32, dst, 4, [place]),
                    (Unary::Abs, Ty::F64, _) => self.op(Opcode::AbsF64, dst, 8, [place]),
                    (Unary::Neg, Ty::F64, _) => self.op(Opcode::NegF64, dst, 8, [place]),
                    (Unary::Rcp, Ty::F64, _) => self.op(Opcode::RcpF64, dst, 8, [place]),
                    (Unary::Sqrt, Ty::F64, _) => self.op(Opcode::SqrtF64, dst, 8, [place]),
                    (Unary::RcpApprox, Ty::F64, _) => self.op(Opcode::RcpApproxF64, dst, 8, [place]),
                    (Unary::RsqrtApprox, Ty::F64, _) if modifiers.ftz => {
                        self.op(Opcode::RsqrtFtzF64, dst, 8, [place])
                    }
                    (Unary::RsqrtApprox, Ty::F64, _) => self.op(Opcode::RsqrtF64, dst, 8, [place]),
                    (_, Ty::F32 | Ty::F64, _) => missing(),
                    (Unary::Abs, _, 2) => self.op(Opcode::Abs16, dst, 2, [place]),
                    (Unary::Abs, _, 4) => self.op(Opcode::Abs32, dst, 4, [place]),
                    (Unary::Abs, _, 8) => self.op(Opcode::Abs64, dst, 8, [place]),
                    (Unary::Neg, _, 2) => self.op(Opcode::Neg16, dst, 2, [place]),
                    (Unary::Neg, _, 4) => self.op(Opcode::Neg32, dst, 4, [place]),
                    (Unary::Neg, _, 8) => self.op(Opcode::Neg64, dst, 8, [place]),
                    (Unary::Not, _, 2) => self.op(Opcode::Not16, dst, 2, [place]),
                    (Unary::Not, _, 4) => self.op(Opcode::Not32, dst, 4, [place]),
                    (Unary::Not, _, 8) => self.op(Opcode::Not64, dst, 8, [place]),
                    (Unary::Cnot, _, 2) => self.op(Opcode::Cnot32, dst, 2, [place]),
                    (Unary::Cnot, _, 4) => self.op(Opcode::Cnot32, dst, 4, [place]),
                    (Unary::Cnot, _, 8) => self.op(Opcode::Cnot64, dst, 8, [place]),
                    (Unary::Brev, _, 4) => self.op(Opcode::Brev32, dst, 4, [place]),
                    (Unary::Brev, _, 8) => self.op(Opcode::Brev64, dst, 8, [place]),
                    _ => missing(),
                }
            }
        }
    }

    /// Lowers an operation with two sources of any type, or fails if the engine lacks it for the type.
    pub(super) fn binary(
        &mut self,
        op: Binary,
        ty: Ty,
        modifiers: Float,
        dst: Reg,
        a: &Operand,
        b: &Operand,
    ) -> Lowered {
        match ty {
            Ty::F32 => self.float_binary(op, modifiers, dst, a, b),
            Ty::F64 => self.double_binary(op, modifiers, dst, a, b),
            Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 => self.short_binary(op, ty, modifiers, dst, a, b),
            _ => self.integer_binary(op, ty, modifiers.sat, dst, a, b),
        }
    }

    fn float_binary(&mut self, op: Binary, modifiers: Float, dst: Reg, a: &Operand, b: &Operand) -> Lowered {
        let divides = matches!(op, Binary::Div | Binary::DivApprox | Binary::DivFull) && nearest(modifiers);
        if let Some(inverse) = self.inverse(b).filter(|_| divides) {
            let b = Operand::Imm(inverse);
            return self.float(Opcode::MulF32, dst, modifiers, [a, &b]);
        }
        match op {
            Binary::Add if modifiers.round == Round::Zero => {
                self.float(Opcode::AddZeroF32, dst, modifiers, [a, b])
            }
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div if !nearest(modifiers) => {
                self.rare_of(dst, 4, [(a, 4), (b, 4)], move |[a, b, ..]| {
                    let (a, b) = (decode(a, modifiers.ftz), decode(b, modifiers.ftz));
                    let down = modifiers.round == Round::Down;
                    let value = match op {
                        Binary::Add => rounding::add(a, b, down),
                        Binary::Sub => rounding::add(a, -b, down),
                        Binary::Mul => a * b,
                        _ => rounding::divide(a, b),
                    };
                    encode(value, modifiers)
                })
            }
            Binary::Add => self.float(Opcode::AddF32, dst, modifiers, [a, b]),
            Binary::Sub => self.float(Opcode::SubF32, dst, modifiers, [a, b]),
            Binary::Mul => self.float(Opcode::MulF32, dst, modifiers, [a, b]),
            Binary::Div | Binary::DivFull => self.float(Opcode::DivF32, dst, modifiers, [a, b]),
            Binary::DivApprox => self.float(Opcode::DivApproxF32, dst, modifiers, [a, b]),
            Binary::Min => self.float(Opcode::MinF32, dst, modifiers, [a, b]),
            Binary::Max => self.float(Opcode::MaxF32, dst, modifiers, [a, b]),
            Binary::MinNan => self.float(Opcode::MinNanF32, dst, modifiers, [a, b]),
            Binary::MaxNan => self.float(Opcode::MaxNanF32, dst, modifiers, [a, b]),
            Binary::CopySign => {
                let (a, b) = (self.source(a, 4)?, self.source(b, 4)?);
                self.op(Opcode::CopySignF32, dst, 4, [a, b])
            }
            Binary::Rem | Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => {
                Err(format!("there is no {op:?} of floating-point numbers"))
            }
        }
    }

    /// Returns the inverse of an operand that is a constant power of two. A product with it is exactly the
    /// quotient.
    fn inverse(&mut self, operand: &Operand) -> Option<u64> {
        let value = match operand {
            Operand::Imm(value) => *value as u32,
            Operand::Reg(reg) => self.constant_register(*reg)? as u32,
            _ => return None,
        };
        // The operand and its inverse must be normal numbers.
        let exponent = value >> 23 & 0xff;
        let power = value.trailing_zeros() >= 23 && (1..=253).contains(&exponent);
        power.then(|| u64::from(value & 0x8000_0000 | (254 - exponent) << 23))
    }

    fn double_binary(&mut self, op: Binary, modifiers: Float, dst: Reg, a: &Operand, b: &Operand) -> Lowered {
        let (a, b) = (self.source(a, 8)?, self.source(b, 8)?);
        match op {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div if !nearest(modifiers) => {
                self.rare(dst, 8, &[(a, 8), (b, 8)], move |[a, b, ..]| {
                    double::binary(op, a, b, modifiers.round)
                })
            }
            Binary::Add => self.op(Opcode::AddF64, dst, 8, [a, b]),
            Binary::Sub => self.op(Opcode::SubF64, dst, 8, [a, b]),
            Binary::Mul => self.op(Opcode::MulF64, dst, 8, [a, b]),
            Binary::Div => self.op(Opcode::DivF64, dst, 8, [a, b]),
            Binary::Min => self.op(Opcode::MinF64, dst, 8, [a, b]),
            Binary::Max => self.op(Opcode::MaxF64, dst, 8, [a, b]),
            Binary::CopySign => self.op(Opcode::CopySignF64, dst, 8, [a, b]),
            _ => Err(format!("there is no {op:?} of 64-bit floating-point numbers")),
        }
    }

    /// Lowers `fma`, and `mad` of floating-point numbers.
    pub(super) fn fma(
        &mut self,
        ty: Ty,
        modifiers: Float,
        relu: bool,
        dst: Reg,
        operands: [&Operand; 3],
    ) -> Lowered {
        let bytes = ty.bytes();
        let [a, b, c] = operands;
        match ty {
            Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 => self.short_fma(ty, modifiers, relu, dst, operands),
            _ if relu => Err(format!("there is no .relu of {ty:?}")),
            Ty::F32 if nearest(modifiers) => self.float(Opcode::FmaF32, dst, modifiers, operands),
            Ty::F32 => self.rare_of(dst, 4, [(a, 4), (b, 4), (c, 4)], move |[a, b, c, _]| {
                let [a, b, c] = [a, b, c].map(|bits| decode(bits, modifiers.ftz));
                encode(rounding::add(a * b, c, modifiers.round == Round::Down), modifiers)
            }),
            Ty::F64 => {
                let places = [self.source(a, bytes)?, self.source(b, bytes)?, self.source(c, bytes)?];
                if nearest(modifiers) {
                    return self.op(Opcode::FmaF64, dst, 8, places);
                }
                self.rare(dst, 8, &places.map(|place| (place, 8)), move |[a, b, c, _]| {
                    double::fused(a, b, c, modifiers.round)
                })
            }
            _ => Err(format!("there is no fma of {ty:?}")),
        }
    }
}
