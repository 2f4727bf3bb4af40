//! Lowers moves, packing, conversions and address conversions.

use vgpu_ptx::ir::{Op, Operand, Reg, Round, Space, Ty, window};

use crate::machine::{Opcode, Subnormals, ValueLoc};
use crate::ops::convert::{self, Conversion};

use super::builder::Builder;
use super::error::Lowered;
use super::places::class_bytes;

impl Builder<'_> {
    /// Emits a move of `bytes` bytes from a location to a register of the same width.
    pub(super) fn copy(&mut self, dst: Reg, bytes: u32, src: ValueLoc) -> Lowered {
        if let ValueLoc::Scalar(value) = src {
            return self.finish_scalar(dst, bytes, value);
        }
        if bytes == 8 {
            self.op(Opcode::Mov64, dst, 8, [src])
        } else {
            self.op(Opcode::Mov32, dst, bytes, [src])
        }
    }

    pub(super) fn moves(&mut self, op: &Op) -> Lowered {
        match op {
            // The register's location is that of the constant, so no instruction is needed.
            Op::Mov { dst, .. } if self.constant_register(*dst).is_some() => Ok(()),
            Op::Mov { dst, src, .. } => {
                let bytes = class_bytes(self.class(*dst)?);
                let src = self.source(src, bytes)?;
                // A register that is a coalesced copy of the other shares its slot.
                if src == self.place(*dst)? { Ok(()) } else { self.copy(*dst, bytes, src) }
            }
            Op::Pack { dst, src, .. } => self.pack(*dst, src),
            Op::Unpack { dst, src, .. } => self.unpack(dst, src),
            _ => Err("not a move".into()),
        }
    }

    fn pack(&mut self, dst: Reg, src: &[Operand]) -> Lowered {
        let bytes = class_bytes(self.class(dst)?);
        let part = bytes / src.len().max(1) as u32;
        match (bytes, src) {
            (4, [low, high]) => {
                let (low, high) = (self.source(low, 2)?, self.source(high, 2)?);
                self.op(Opcode::Pack16, dst, 4, [low, high])
            }
            (8, [low, high]) => {
                let (low, high) = (self.source(low, 4)?, self.source(high, 4)?);
                self.op(Opcode::Pack32, dst, 8, [low, high])
            }
            (2 | 4 | 8, [_, _, _, _] | [_, _]) if part >= 1 => {
                // Bytes live in registers of 16 bits.
                let width = part.max(2);
                let mut sources = Vec::with_capacity(4);
                for src in src {
                    sources.push((self.source(src, width)?, width));
                }
                let count = src.len();
                self.rare(dst, bytes, &sources, move |values| {
                    let ones = (1 << (8 * part)) - 1;
                    (0..count).fold(0, |all, index| all | (values[index] & ones) << (8 * part * index as u32))
                })
            }
            _ => Err(format!("{} parts of a register of {bytes} bytes", src.len())),
        }
    }

    fn unpack(&mut self, dst: &[Option<Reg>], src: &Operand) -> Lowered {
        let width = if let Operand::Reg(reg) = src {
            class_bytes(self.class(*reg)?)
        } else {
            let first = dst.iter().flatten().next().ok_or("nothing to unpack to")?;
            class_bytes(self.class(*first)?) * dst.len() as u32
        };
        let src = self.source(src, width)?;
        let part = width / dst.len().max(1) as u32;
        if part == 0 || part * dst.len() as u32 != width || dst.len() > 4 {
            return Err(format!("{} parts of a register of {width} bytes", dst.len()));
        }
        // No destination has the source's slot: register allocation keeps them apart.
        for index in 0..dst.len() {
            let Some(reg) = dst[index].filter(|reg| !self.is_dead(*reg)) else { continue };
            let bytes = class_bytes(self.class(reg)?);
            let shift = 8 * part * index as u32;
            match (width, part, index) {
                (4, 2, 0) => self.op(Opcode::Low16, reg, 2, [src])?,
                (4, 2, _) => self.op(Opcode::UpperHalf, reg, 2, [src])?,
                (8, 4, 0) => self.op(Opcode::Narrow, reg, 4, [src])?,
                (8, 4, _) => self.op(Opcode::Upper32, reg, 4, [src])?,
                _ => self
                    .rare(reg, bytes, &[(src, width)], move |[a, ..]| a >> shift & ((1 << (8 * part)) - 1))?,
            }
        }
        Ok(())
    }

    /// Lowers `mov.b32 {low, high}, r; cvt.f32.f16 f, high`, which unpacks a word and converts a half to a
    /// float. Returns whether the two instructions have this form and were lowered.
    pub(super) fn unpack_and_convert(&mut self, unpack: &Op, convert: &Op) -> Lowered<bool> {
        let (
            Op::Unpack { dst: parts, src, .. },
            Op::Cvt { to: Ty::F32, from: Ty::F16, sat: false, dst, src: half, .. },
        ) = (unpack, convert)
        else {
            return Ok(false);
        };
        let [low, high] = parts.as_slice() else { return Ok(false) };
        let used =
            |part: &Option<Reg>| part.is_some_and(|reg| *half == Operand::Reg(reg) && self.is_read_once(reg));
        let unused = |part: &Option<Reg>| part.is_none_or(|reg| self.is_dead(reg));
        let is_high = used(high) && unused(low);
        let is_low = used(low) && unused(high);
        if !(is_high || is_low) {
            return Ok(false);
        }
        let word = self.source(src, 4)?;
        self.widen_half(*dst, word, is_high)?;
        Ok(true)
    }

    /// Lowers `cvt.f32.f16` of the lower or the upper half of a word.
    fn widen_half(&mut self, dst: Reg, word: ValueLoc, upper: bool) -> Lowered {
        let ValueLoc::Vector(slot) = word else {
            return if upper {
                self.op(Opcode::FromUpperHalf, dst, 4, [word])
            } else {
                self.op(Opcode::FromHalf, dst, 4, [word])
            };
        };
        let (place, blend) = self.target(dst, 4)?;
        let mut inst = self.inst(if upper { Opcode::FromUpperHalves } else { Opcode::FromLowerHalves });
        inst.a = slot;
        self.finish(inst, false, false, place, blend)
    }

    pub(super) fn converts(&mut self, op: &Op) -> Lowered {
        match op {
            Op::Cvt { to, from, round, integral, ftz, sat, dst, src } => {
                let conversion = Conversion {
                    to: *to,
                    from: *from,
                    round: *round,
                    integral: *integral,
                    ftz: *ftz,
                    sat: *sat,
                };
                self.convert(conversion, *dst, src)
            }
            Op::CvtPack { to, round, relu, dst, a, b } => self.convert_pack(*to, *round, *relu, *dst, a, b),
            Op::Cvta { space, to, dst, src } => {
                let bytes = class_bytes(self.class(*dst)?);
                if bytes == 4 && *space != Space::Global {
                    return Err("generic addresses have 64 bits".into());
                }
                let src = self.source(src, bytes)?;
                match (space, to) {
                    (Space::Shared, false) => self.op(Opcode::SharedToGeneric, *dst, 8, [src]),
                    (Space::Shared, true) => self.op(Opcode::GenericToShared, *dst, 8, [src]),
                    (Space::Local, false) => self.op(Opcode::LocalToGeneric, *dst, 8, [src]),
                    (Space::Local, true) => self.op(Opcode::GenericToLocal, *dst, 8, [src]),
                    (Space::Param, false) => self.op(Opcode::ParamToGeneric, *dst, 8, [src]),
                    (Space::Param, true) => self.op(Opcode::GenericToParam, *dst, 8, [src]),
                    (Space::Global | Space::Generic, _) => self.copy(*dst, bytes, src),
                }
            }
            Op::IsSpace { space, dst, src } => {
                let src = self.source(src, 8)?;
                let space = *space;
                self.rare(*dst, 1, &[(src, 8)], move |[address, ..]| {
                    let of = |start: u64| (start..start + window::BYTES).contains(&address);
                    u64::from(match space {
                        Space::Shared => of(window::SHARED),
                        Space::Local => of(window::LOCAL),
                        Space::Param => of(window::PARAM),
                        Space::Global | Space::Generic => {
                            !of(window::SHARED) && !of(window::LOCAL) && !of(window::PARAM)
                        }
                    })
                })
            }
            _ => Err("not a conversion".into()),
        }
    }

    /// Converts 32-bit floating-point numbers. With `ftz`, subnormal numbers are flushed first.
    fn convert_float(&mut self, opcode: Opcode, dst: Reg, bytes: u32, ftz: bool, src: ValueLoc) -> Lowered {
        let target = self.target(dst, bytes)?;
        self.emit((opcode, if ftz { Subnormals::Flush } else { Subnormals::Keep }), target, [src])
    }

    fn convert(&mut self, conversion: Conversion, dst: Reg, src: &Operand) -> Lowered {
        let Conversion { to, from, round, integral, ftz, sat } = conversion;
        let bytes = class_bytes(self.class(dst)?);
        if to.bytes() > bytes || to == Ty::Pred || from == Ty::Pred {
            return Err(format!("a register of {bytes} bytes for a {to:?}"));
        }
        let (place, width) = self.loose_source(src, from.bytes().max(2))?;
        if !to.float() && !from.float() && !sat {
            return self.convert_integer(to, from, dst, bytes, place, width);
        }
        if to.float() && bytes != to.bytes() {
            return Err(format!("a register of {bytes} bytes for a {to:?}"));
        }
        // Conversions that are not among the common ones below use the generic function.
        if sat || width > 4 {
            return self.rare(dst, bytes, &[(place, width)], move |[a, ..]| conversion.apply(a));
        }
        let nearest = round == Some(Round::Nearest);
        match (to, from, round) {
            (Ty::F32, Ty::F16, _) if !integral => self.widen_half(dst, place, false),
            (Ty::F32, Ty::Bf16, _) if !integral && !ftz => self.op(Opcode::FromBfloat, dst, 4, [place]),
            (Ty::F16, Ty::F32, _) if nearest && !integral && ftz => {
                self.op(Opcode::ToHalfFtz, dst, 2, [place])
            }
            (Ty::F16, Ty::F32, _) if nearest && !integral => self.op(Opcode::ToHalf, dst, 2, [place]),
            (Ty::Bf16, Ty::F32, _) if nearest && !integral && !ftz => {
                self.op(Opcode::ToBfloat, dst, 2, [place])
            }
            (Ty::F32, Ty::S32, _) if nearest => self.op(Opcode::FromS32, dst, 4, [place]),
            (Ty::F32, Ty::U32, _) if nearest && width == 4 => self.op(Opcode::FromU32, dst, 4, [place]),
            (Ty::F32, Ty::U16, _) if nearest && width == 2 => self.op(Opcode::FromS32, dst, 4, [place]),
            (Ty::F32, Ty::S16, _) if nearest => self.op(Opcode::FromS16, dst, 4, [place]),
            (Ty::F32, Ty::S8, _) if nearest => self.op(Opcode::FromS8, dst, 4, [place]),
            (Ty::F64, Ty::S32, _) => self.op(Opcode::DoubleFromS32, dst, 8, [place]),
            (Ty::F64, Ty::U32, _) => self.op(Opcode::DoubleFromU32, dst, 8, [place]),
            (Ty::F64, Ty::F32, _) if !integral => self.convert_float(Opcode::ToF64, dst, 8, ftz, place),
            (Ty::S32, Ty::F32, Some(round)) if bytes == 4 => match round {
                Round::Zero => self.op(Opcode::ToS32Zero, dst, 4, [place]),
                Round::Nearest => self.convert_float(Opcode::ToS32Nearest, dst, 4, ftz, place),
                Round::Down => self.convert_float(Opcode::ToS32Down, dst, 4, ftz, place),
                Round::Up => self.convert_float(Opcode::ToS32Up, dst, 4, ftz, place),
            },
            (Ty::U32, Ty::F32, Some(Round::Zero)) if bytes == 4 => {
                self.op(Opcode::ToU32Zero, dst, 4, [place])
            }
            (Ty::F32, Ty::F32, Some(round)) if integral => match round {
                Round::Nearest => self.convert_float(Opcode::NearestF32, dst, 4, ftz, place),
                Round::Zero => self.convert_float(Opcode::ZeroF32, dst, 4, ftz, place),
                Round::Down => self.convert_float(Opcode::DownF32, dst, 4, ftz, place),
                Round::Up => self.convert_float(Opcode::UpF32, dst, 4, ftz, place),
            },
            _ => self.rare(dst, bytes, &[(place, width)], move |[a, ..]| conversion.apply(a)),
        }
    }

    /// Converts integers to integers. The low bits are extended by the sign of the source type to the
    /// destination type, and by the sign of that type to the register.
    fn convert_integer(
        &mut self,
        to: Ty,
        from: Ty,
        dst: Reg,
        bytes: u32,
        src: ValueLoc,
        width: u32,
    ) -> Lowered {
        let (of, into) = (from.bytes(), to.bytes());
        // The upper bits of a 16-bit register are zero, and so are those of a wider one whose value is known
        // to have no more bits.
        let exact = of == width;
        match (of, into, bytes) {
            (8, 8, 8) => self.op(Opcode::Mov64, dst, 8, [src]),
            (8, 4, 4) => self.op(Opcode::Narrow, dst, 4, [src]),
            (4, 8, 8) if width == 4 => {
                if from.signed() {
                    self.op(Opcode::WidenSigned, dst, 8, [src])
                } else {
                    self.op(Opcode::Widen, dst, 8, [src])
                }
            }
            (2, 8, 8) if width == 2 && !from.signed() => self.op(Opcode::Widen, dst, 8, [src]),
            (4, 4, 4) if exact => self.op(Opcode::Mov32, dst, 4, [src]),
            (2, 4, 4) if exact && !from.signed() => self.op(Opcode::Mov32, dst, 4, [src]),
            (2, 4, 4) if width <= 4 && from.signed() => self.op(Opcode::Sign16, dst, 4, [src]),
            (2, 4, 4) if width == 4 => self.op(Opcode::Low16, dst, 4, [src]),
            (4, 2, 2) if width == 4 => self.op(Opcode::Low16, dst, 2, [src]),
            (2, 2, 2) if exact => self.op(Opcode::Mov32, dst, 2, [src]),
            (1, 4, 4) if width <= 4 && from.signed() => self.op(Opcode::Sign8, dst, 4, [src]),
            (1, 2, 2) if width <= 4 && from.signed() => self.op(Opcode::Sign8To16, dst, 2, [src]),
            (1, 2, 2) | (1, 4, 4) if width <= 4 && !from.signed() => self.op(Opcode::Low8, dst, bytes, [src]),
            (2 | 4, 1, 2) if width <= 4 && !to.signed() => self.op(Opcode::Low8, dst, 2, [src]),
            (2 | 4, 1, 2) if width <= 4 => self.op(Opcode::Sign8To16, dst, 2, [src]),
            (2 | 4, 1, 4) if width <= 4 && !to.signed() => self.op(Opcode::Low8, dst, 4, [src]),
            (2 | 4, 1, 4) if width <= 4 => self.op(Opcode::Sign8, dst, 4, [src]),
            _ => {
                let conversion =
                    Conversion { to, from, round: None, integral: false, ftz: false, sat: false };
                self.rare(dst, bytes, &[(src, width)], move |[a, ..]| conversion.apply(a))
            }
        }
    }

    fn convert_pack(
        &mut self,
        to: Ty,
        round: Round,
        relu: bool,
        dst: Reg,
        a: &Operand,
        b: &Operand,
    ) -> Lowered {
        let (mut a, mut b) = (self.source(a, 4)?, self.source(b, 4)?);
        if relu {
            (a, b) = (self.apply(Opcode::Relu, [a])?, self.apply(Opcode::Relu, [b])?);
        }
        match (to, round) {
            (Ty::F16x2, Round::Nearest) => self.op(Opcode::PackHalves, dst, 4, [a, b]),
            (Ty::Bf16x2, Round::Nearest) => self.op(Opcode::PackBfloats, dst, 4, [a, b]),
            (Ty::F16x2 | Ty::Bf16x2, _) => {
                let format = convert::format(to).ok_or("not a short format")?;
                self.rare(dst, 4, &[(a, 4), (b, 4)], move |[a, b, ..]| {
                    let encode = |bits: u64| format.encode(f32::from_bits(bits as u32).into(), round);
                    u64::from(encode(a) << 16 | encode(b))
                })
            }
            _ => Err(format!("there is no packing to {to:?}")),
        }
    }
}
