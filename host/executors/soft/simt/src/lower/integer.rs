//! Lowers integer arithmetic, products and operations on bits.

use vgpu_ptx::ir::{Binary, Half, Op, Operand, Permute, Reg, Ty};

use crate::machine::{Opcode, ValueLoc};
use crate::ops::bits;

use super::builder::Builder;
use super::error::Lowered;

impl Builder<'_> {
    pub(super) fn integer_binary(
        &mut self,
        op: Binary,
        ty: Ty,
        sat: bool,
        dst: Reg,
        a: &Operand,
        b: &Operand,
    ) -> Lowered {
        let bytes = ty.bytes();
        let shift = matches!(op, Binary::Shl | Binary::Shr);
        let (a, b) = (self.source(a, bytes)?, self.source(b, if shift { 4 } else { bytes })?);
        match (op, bytes, ty.signed()) {
            (Binary::Add, 4, true) if sat => self.op(Opcode::AddSat32, dst, 4, [a, b]),
            (Binary::Sub, 4, true) if sat => self.op(Opcode::SubSat32, dst, 4, [a, b]),
            (Binary::Add, 2, _) => self.op(Opcode::Add16, dst, 2, [a, b]),
            (Binary::Add, 4, _) => self.op(Opcode::Add32, dst, 4, [a, b]),
            (Binary::Add, 8, _) => self.op(Opcode::Add64, dst, 8, [a, b]),
            (Binary::Sub, 2, _) => self.op(Opcode::Sub16, dst, 2, [a, b]),
            (Binary::Sub, 4, _) => self.op(Opcode::Sub32, dst, 4, [a, b]),
            (Binary::Sub, 8, _) => self.op(Opcode::Sub64, dst, 8, [a, b]),
            (Binary::Div, 2, false) => self.op(Opcode::DivU16, dst, 2, [a, b]),
            (Binary::Div, 2, true) => self.op(Opcode::DivS16, dst, 2, [a, b]),
            (Binary::Div, 4, false) => self.op(Opcode::DivU32, dst, 4, [a, b]),
            (Binary::Div, 4, true) => self.op(Opcode::DivS32, dst, 4, [a, b]),
            (Binary::Div, 8, false) => self.op(Opcode::DivU64, dst, 8, [a, b]),
            (Binary::Div, 8, true) => self.op(Opcode::DivS64, dst, 8, [a, b]),
            (Binary::Rem, 2, true) => self.op(Opcode::RemS16, dst, 2, [a, b]),
            (Binary::Rem, 2 | 4, false) => self.op(Opcode::RemU32, dst, bytes, [a, b]),
            (Binary::Rem, 4, true) => self.op(Opcode::RemS32, dst, 4, [a, b]),
            (Binary::Rem, 8, false) => self.op(Opcode::RemU64, dst, 8, [a, b]),
            (Binary::Rem, 8, true) => self.op(Opcode::RemS64, dst, 8, [a, b]),
            (Binary::Min, 2, true) => self.op(Opcode::MinS16, dst, 2, [a, b]),
            (Binary::Max, 2, true) => self.op(Opcode::MaxS16, dst, 2, [a, b]),
            (Binary::Min, 2 | 4, false) => self.op(Opcode::MinU32, dst, bytes, [a, b]),
            (Binary::Max, 2 | 4, false) => self.op(Opcode::MaxU32, dst, bytes, [a, b]),
            (Binary::Min, 4, true) => self.op(Opcode::MinS32, dst, 4, [a, b]),
            (Binary::Max, 4, true) => self.op(Opcode::MaxS32, dst, 4, [a, b]),
            (Binary::Min, 8, false) => self.op(Opcode::MinU64, dst, 8, [a, b]),
            (Binary::Max, 8, false) => self.op(Opcode::MaxU64, dst, 8, [a, b]),
            (Binary::Min, 8, true) => self.op(Opcode::MinS64, dst, 8, [a, b]),
            (Binary::Max, 8, true) => self.op(Opcode::MaxS64, dst, 8, [a, b]),
            (Binary::And, 2 | 4, _) => self.op(Opcode::And32, dst, bytes, [a, b]),
            (Binary::And, 8, _) => self.op(Opcode::And64, dst, 8, [a, b]),
            (Binary::Or, 2 | 4, _) => self.op(Opcode::Or32, dst, bytes, [a, b]),
            (Binary::Or, 8, _) => self.op(Opcode::Or64, dst, 8, [a, b]),
            (Binary::Xor, 2 | 4, _) => self.op(Opcode::Xor32, dst, bytes, [a, b]),
            (Binary::Xor, 8, _) => self.op(Opcode::Xor64, dst, 8, [a, b]),
            (Binary::Shl, 2, _) => self.op(Opcode::Shl16, dst, 2, [a, b]),
            (Binary::Shl, 4, _) => self.op(Opcode::Shl32, dst, 4, [a, b]),
            (Binary::Shl, 8, _) => self.op(Opcode::Shl64, dst, 8, [a, b]),
            (Binary::Shr, 2, true) => self.op(Opcode::ShrS16, dst, 2, [a, b]),
            (Binary::Shr, 2 | 4, false) => self.op(Opcode::ShrU32, dst, bytes, [a, b]),
            (Binary::Shr, 4, true) => self.op(Opcode::ShrS32, dst, 4, [a, b]),
            (Binary::Shr, 8, false) => self.op(Opcode::ShrU64, dst, 8, [a, b]),
            (Binary::Shr, 8, true) => self.op(Opcode::ShrS64, dst, 8, [a, b]),
            _ => Err(format!("there is no {op:?} of {ty:?}")),
        }
    }

    pub(super) fn mul(&mut self, half: Half, ty: Ty, dst: Reg, a: &Operand, b: &Operand) -> Lowered {
        let bytes = ty.bytes();
        let (a, b) = (self.source(a, bytes)?, self.source(b, bytes)?);
        match (half, bytes, ty.signed()) {
            (Half::Lo, 2, _) => self.op(Opcode::MulLo16, dst, 2, [a, b]),
            (Half::Lo, 4, _) => self.op(Opcode::MulLo32, dst, 4, [a, b]),
            (Half::Lo, 8, _) => self.op(Opcode::MulLo64, dst, 8, [a, b]),
            (Half::Hi, 2, false) => self.op(Opcode::MulHiU16, dst, 2, [a, b]),
            (Half::Hi, 2, true) => self.op(Opcode::MulHiS16, dst, 2, [a, b]),
            (Half::Hi, 4, false) => self.op(Opcode::MulHiU32, dst, 4, [a, b]),
            (Half::Hi, 4, true) => self.op(Opcode::MulHiS32, dst, 4, [a, b]),
            (Half::Hi, 8, false) => self.op(Opcode::MulHiU64, dst, 8, [a, b]),
            (Half::Hi, 8, true) => self.op(Opcode::MulHiS64, dst, 8, [a, b]),
            (Half::Wide, 2, false) => self.op(Opcode::MulWideU16, dst, 4, [a, b]),
            (Half::Wide, 2, true) => self.op(Opcode::MulWideS16, dst, 4, [a, b]),
            (Half::Wide, 4, false) => self.op(Opcode::MulWideU32, dst, 8, [a, b]),
            (Half::Wide, 4, true) => self.op(Opcode::MulWideS32, dst, 8, [a, b]),
            _ => Err(format!("there is no product of {ty:?}")),
        }
    }

    pub(super) fn mad(
        &mut self,
        half: Half,
        ty: Ty,
        sat: bool,
        dst: Reg,
        [a, b, c]: [&Operand; 3],
    ) -> Lowered {
        let bytes = ty.bytes();
        let sum = if half == Half::Wide { 2 * bytes } else { bytes };
        let sources = [self.source(a, bytes)?, self.source(b, bytes)?, self.source(c, sum)?];
        let [a, b, c] = sources;
        match (half, bytes, ty.signed()) {
            (Half::Hi, 4, true) if sat => {
                let product = self.apply(Opcode::MulHiS32, [a, b])?;
                self.op(Opcode::AddSat32, dst, 4, [product, c])
            }
            _ if sat => Err(format!("there is no saturating sum of products of {ty:?}")),
            (Half::Lo, 2, _) => self.op(Opcode::MadLo16, dst, 2, sources),
            (Half::Lo, 4, _) => self.op(Opcode::MadLo32, dst, 4, sources),
            (Half::Lo, 8, _) => self.op(Opcode::MadLo64, dst, 8, sources),
            (Half::Wide, 2, false) => self.op(Opcode::MadWideU16, dst, 4, sources),
            (Half::Wide, 2, true) => self.op(Opcode::MadWideS16, dst, 4, sources),
            (Half::Wide, 4, false) => self.op(Opcode::MadWideU32, dst, 8, sources),
            (Half::Wide, 4, true) => self.op(Opcode::MadWideS32, dst, 8, sources),
            (Half::Hi, 4, false) => self.op(Opcode::MadHiU32, dst, 4, sources),
            (Half::Hi, 4, true) => self.op(Opcode::MadHiS32, dst, 4, sources),
            (Half::Hi, 2, signed) => {
                let product = if signed {
                    self.apply(Opcode::MulHiS16, [a, b])?
                } else {
                    self.apply(Opcode::MulHiU16, [a, b])?
                };
                self.op(Opcode::Add16, dst, 2, [product, c])
            }
            (Half::Hi, 8, signed) => {
                let product = if signed {
                    self.apply(Opcode::MulHiS64, [a, b])?
                } else {
                    self.apply(Opcode::MulHiU64, [a, b])?
                };
                self.op(Opcode::Add64, dst, 8, [product, c])
            }
            _ => Err(format!("there is no product of {ty:?}")),
        }
    }

    /// Lowers operations on bit fields, permutations, and dot products of bytes.
    pub(super) fn bits(&mut self, op: &Op) -> Lowered {
        match op {
            Op::Dp4a { signed, dst, a, b, c } => {
                let places = self.sources([(a, 4), (b, 4), (c, 4)])?;
                match *signed {
                    [true, true] if !places.iter().all(|place| place.is_scalar()) => {
                        let (place, blend) = self.target(*dst, 4)?;
                        let [a, b, c] = places.map(|place| self.vector(place, false));
                        let mut inst = self.inst(Opcode::Dp4aLanes);
                        (inst.a, inst.b, inst.c) = (a, b, c);
                        self.finish(inst, false, false, place, blend)
                    }
                    [true, true] => self.op(Opcode::Dp4aS32, *dst, 4, places),
                    [true, false] => self.op(Opcode::Dp4aS32U32, *dst, 4, places),
                    [false, true] => self.op(Opcode::Dp4aU32S32, *dst, 4, places),
                    [false, false] => self.op(Opcode::Dp4aU32, *dst, 4, places),
                }
            }
            Op::Dp2a { signed, high, dst, a, b, c } => {
                let (signed, high) = (*signed, *high);
                self.rare_of(*dst, 4, [(a, 4), (b, 4), (c, 4)], move |[a, b, c, _]| {
                    bits::dot2(a as u32, b as u32, c as u32, signed, high).into()
                })
            }
            Op::Bfe { ty, dst, a, b, c } => {
                let bytes = ty.bytes();
                let places = self.sources([(a, bytes), (b, 4), (c, 4)])?;
                match (bytes, ty.signed()) {
                    (4, false) => self.op(Opcode::BfeU32, *dst, 4, places),
                    (4, true) => self.op(Opcode::BfeS32, *dst, 4, places),
                    (8, signed) => {
                        let sources = [(places[0], 8), (places[1], 4), (places[2], 4)];
                        self.rare(*dst, 8, &sources, move |[a, b, c, _]| {
                            bits::extract(a, b as u32, c as u32, signed)
                        })
                    }
                    _ => Err(format!("there are no bit fields of {ty:?}")),
                }
            }
            Op::Bfi { ty, dst, a, b, c, d } => {
                let bytes = ty.bytes();
                if bytes != 4 && bytes != 8 {
                    return Err(format!("there are no bit fields of {ty:?}"));
                }
                self.rare_of(*dst, bytes, [(a, bytes), (b, bytes), (c, 4), (d, 4)], move |[a, b, c, d]| {
                    bits::insert(a, b, c as u32, d as u32, 8 * bytes)
                })
            }
            Op::Bfind { ty, shift, dst, a } => {
                let (bytes, signed, shift) = (ty.bytes(), ty.signed(), *shift);
                self.rare_of(*dst, 4, [(a, bytes)], move |[a, ..]| {
                    bits::highest(a, 8 * bytes, signed, shift).into()
                })
            }
            Op::Bmsk { wrap, dst, a, b } => {
                let wrap = *wrap;
                self.rare_of(*dst, 4, [(a, 4), (b, 4)], move |[a, b, ..]| {
                    bits::mask(a as u32, b as u32, wrap).into()
                })
            }
            Op::Shf { left, wrap, dst, a, b, c } => {
                let places = self.sources([(a, 4), (b, 4), (c, 4)])?;
                match (left, wrap) {
                    (true, true) => self.op(Opcode::ShfLeftWrap, *dst, 4, places),
                    (true, false) => self.op(Opcode::ShfLeftClamp, *dst, 4, places),
                    (false, true) => self.op(Opcode::ShfRightWrap, *dst, 4, places),
                    (false, false) => self.op(Opcode::ShfRightClamp, *dst, 4, places),
                }
            }
            Op::Prmt { mode, dst, a, b, c } => {
                let [a, b, mut c] = self.sources([(a, 4), (b, 4), (c, 4)])?;
                if *mode != Permute::Any {
                    let Some(control) = self.constant_of(c) else {
                        let mode = *mode;
                        return self.rare(*dst, 4, &[(a, 4), (b, 4), (c, 4)], move |[a, b, c, _]| {
                            let selectors = bits::mode_selectors(mode, c as u32);
                            bits::permute(a as u32, b as u32, selectors).into()
                        });
                    };
                    c = ValueLoc::Scalar(self.constant(bits::mode_selectors(*mode, control as u32).into()));
                }
                self.op(Opcode::Prmt, *dst, 4, [a, b, c])
            }
            Op::Lop3 { table, dst, a, b, c } => {
                let table = u32::from(*table);
                self.rare_of(*dst, 4, [(a, 4), (b, 4), (c, 4)], move |[a, b, c, _]| {
                    bits::lookup(a as u32, b as u32, c as u32, table).into()
                })
            }
            _ => Err("not an operation on bits".into()),
        }
    }
}
