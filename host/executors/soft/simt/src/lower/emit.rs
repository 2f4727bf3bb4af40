//! Emits instructions of the common forms. Their results are registers that lanes share, or in which each
//! lane has its own value.

use vgpu_ptx::ir::{self, Reg};

use super::builder::Builder;
use super::error::Lowered;
use crate::machine::{Inst, RareOperand, RareOperands, Slot, ValueLoc};
use crate::ops::integer::{Mov32, Mov64};
use crate::ops::{Op1, Op2, Op3, Scalar1, Scalar2, Scalar3, Splat, Vector1, Vector2, Vector3, rare};

impl Builder<'_> {
    /// Returns the location of a destination register of `bytes` bytes, and whether inactive lanes must keep
    /// their values.
    pub(super) fn target(&self, reg: Reg, bytes: u32) -> Lowered<(ValueLoc, bool)> {
        Ok((self.register(reg, bytes)?, self.blends(reg)))
    }

    /// Emits an instruction whose result is a scalar. Returns the result's slot, which is valid until the PTX
    /// instruction has been lowered.
    pub(super) fn push_scalar(&mut self, mut inst: Inst) -> Slot {
        inst.d = self.temporary_scalar();
        let result = inst.d;
        self.push(inst);
        result
    }

    /// Emits a copy of a scalar to all lanes, or to the active ones if `blend`.
    pub(super) fn splat(&mut self, scalar: Slot, to: Slot, wide: bool, blend: bool) {
        let mut inst = if wide { self.inst::<Splat<u64>>() } else { self.inst::<Splat<u32>>() };
        (inst.a, inst.d, inst.blend) = (scalar, to, blend);
        self.push(inst);
    }

    /// Emits a move of a scalar result to a register, and a broadcast if each lane has its own value.
    pub(super) fn finish_scalar(&mut self, dst: Reg, bytes: u32, value: Slot) -> Lowered {
        let (place, blend) = self.target(dst, bytes)?;
        let wide = bytes == 8;
        match place {
            ValueLoc::Scalar(d) => {
                let mut inst = if wide {
                    self.baseline_inst::<Scalar1<Mov64>>()
                } else {
                    self.baseline_inst::<Scalar1<Mov32>>()
                };
                (inst.a, inst.d) = (value, d);
                self.push(inst);
            }
            ValueLoc::Vector(d) => {
                self.splat(value, d, wide, blend);
            }
        }
        Ok(())
    }

    /// Emits a function of one source to a temporary. Returns the location of the result, which later
    /// instructions of the same PTX instruction may read.
    pub(super) fn apply1<O: Op1>(&mut self, a: ValueLoc) -> Lowered<ValueLoc> {
        let wide = size_of::<O::R>() == 8;
        let target = match a {
            ValueLoc::Scalar(_) => ValueLoc::Scalar(self.temporary_scalar()),
            ValueLoc::Vector(_) => ValueLoc::Vector(self.temporary_vector(wide)),
        };
        self.emit1::<O>((target, false), a)?;
        Ok(target)
    }

    /// Emits a function of two sources to a temporary, as [`Builder::apply1`] does.
    pub(super) fn apply2<O: Op2>(&mut self, a: ValueLoc, b: ValueLoc) -> Lowered<ValueLoc> {
        let wide = size_of::<O::R>() == 8;
        let target = if a.is_scalar() && b.is_scalar() {
            ValueLoc::Scalar(self.temporary_scalar())
        } else {
            ValueLoc::Vector(self.temporary_vector(wide))
        };
        self.emit2::<O>((target, false), a, b)?;
        Ok(target)
    }

    /// Emits `dst = O(a)` for a register of `bytes` bytes.
    pub(super) fn op1<O: Op1>(&mut self, dst: Reg, bytes: u32, a: ValueLoc) -> Lowered {
        let target = self.target(dst, bytes)?;
        self.emit1::<O>(target, a)
    }

    /// Emits `dst = O(a, b)` for a register of `bytes` bytes.
    pub(super) fn op2<O: Op2>(&mut self, dst: Reg, bytes: u32, a: ValueLoc, b: ValueLoc) -> Lowered {
        let target = self.target(dst, bytes)?;
        self.emit2::<O>(target, a, b)
    }

    /// Emits `dst = O(a, b, c)` for a register of `bytes` bytes.
    pub(super) fn op3<O: Op3>(&mut self, dst: Reg, bytes: u32, sources: [ValueLoc; 3]) -> Lowered {
        let target = self.target(dst, bytes)?;
        self.emit3::<O>(target, sources)
    }

    /// Emits a function of three sources. With `blend`, inactive lanes keep their values.
    pub(super) fn emit3<O: Op3>(
        &mut self,
        (place, blend): (ValueLoc, bool),
        [a, b, c]: [ValueLoc; 3],
    ) -> Lowered {
        let scalar = a.is_scalar() && b.is_scalar() && c.is_scalar();
        let inst = match (a.is_scalar(), b.is_scalar(), c.is_scalar()) {
            (true, true, true) => Some(self.inst::<Scalar3<O>>()),
            (true, true, false) => self.vector_inst::<Vector3<O, true, true, false>>(),
            (true, false, true) => self.vector_inst::<Vector3<O, true, false, true>>(),
            (true, false, false) => self.vector_inst::<Vector3<O, true, false, false>>(),
            (false, true, true) => self.vector_inst::<Vector3<O, false, true, true>>(),
            (false, true, false) => self.vector_inst::<Vector3<O, false, true, false>>(),
            (false, false, true) => self.vector_inst::<Vector3<O, false, false, true>>(),
            (false, false, false) => Some(self.inst::<Vector3<O, false, false, false>>()),
        };
        let Some(mut inst) = inst else { return self.plain_emit3::<O>((place, blend), [a, b, c]) };
        (inst.a, inst.b, inst.c) = (a.slot(), b.slot(), c.slot());
        self.finish(inst, scalar, size_of::<O::R>() == 8, place, blend)
    }

    /// Emits `dst = O(a, b)` for a rare function, which has one opcode for all vectors. Scalars are copied to
    /// lanes first.
    pub(super) fn plain2<O: Op2>(&mut self, dst: Reg, bytes: u32, a: ValueLoc, b: ValueLoc) -> Lowered {
        let target = self.target(dst, bytes)?;
        self.plain_emit2::<O>(target, a, b)
    }

    /// Emits `dst = O(a, b, c)` for a rare function, as [`Builder::plain2`] does.
    pub(super) fn plain3<O: Op3>(&mut self, dst: Reg, bytes: u32, sources: [ValueLoc; 3]) -> Lowered {
        let target = self.target(dst, bytes)?;
        self.plain_emit3::<O>(target, sources)
    }

    fn plain_emit2<O: Op2>(&mut self, (place, blend): (ValueLoc, bool), a: ValueLoc, b: ValueLoc) -> Lowered {
        let scalar = a.is_scalar() && b.is_scalar();
        let (a, b) = if scalar {
            (a.slot(), b.slot())
        } else {
            (self.vector(a, size_of::<O::A>() == 8), self.vector(b, size_of::<O::B>() == 8))
        };
        let mut inst =
            if scalar { self.baseline_inst::<Scalar2<O>>() } else { self.inst::<Vector2<O, false, false>>() };
        (inst.a, inst.b) = (a, b);
        self.finish(inst, scalar, size_of::<O::R>() == 8, place, blend)
    }

    fn plain_emit3<O: Op3>(&mut self, (place, blend): (ValueLoc, bool), [a, b, c]: [ValueLoc; 3]) -> Lowered {
        let scalar = a.is_scalar() && b.is_scalar() && c.is_scalar();
        let (a, b, c) = if scalar {
            (a.slot(), b.slot(), c.slot())
        } else {
            (
                self.vector(a, size_of::<O::A>() == 8),
                self.vector(b, size_of::<O::B>() == 8),
                self.vector(c, size_of::<O::C>() == 8),
            )
        };
        let mut inst =
            if scalar { self.inst::<Scalar3<O>>() } else { self.inst::<Vector3<O, false, false, false>>() };
        (inst.a, inst.b, inst.c) = (a, b, c);
        self.finish(inst, scalar, size_of::<O::R>() == 8, place, blend)
    }

    /// Emits a function of one source. With `blend`, inactive lanes keep their values.
    pub(super) fn emit1<O: Op1>(&mut self, (place, blend): (ValueLoc, bool), a: ValueLoc) -> Lowered {
        let mut inst =
            if a.is_scalar() { self.baseline_inst::<Scalar1<O>>() } else { self.inst::<Vector1<O>>() };
        inst.a = a.slot();
        self.finish(inst, a.is_scalar(), size_of::<O::R>() == 8, place, blend)
    }

    /// Emits a function of two sources. With `blend`, inactive lanes keep their values.
    pub(super) fn emit2<O: Op2>(
        &mut self,
        (place, blend): (ValueLoc, bool),
        a: ValueLoc,
        b: ValueLoc,
    ) -> Lowered {
        let inst = match (a.is_scalar(), b.is_scalar()) {
            (true, true) => Some(self.baseline_inst::<Scalar2<O>>()),
            (true, false) => self.vector_inst::<Vector2<O, true, false>>(),
            (false, true) => self.vector_inst::<Vector2<O, false, true>>(),
            (false, false) => Some(self.inst::<Vector2<O, false, false>>()),
        };
        let Some(mut inst) = inst else { return self.plain_emit2::<O>((place, blend), a, b) };
        (inst.a, inst.b) = (a.slot(), b.slot());
        self.finish(inst, a.is_scalar() && b.is_scalar(), size_of::<O::R>() == 8, place, blend)
    }

    /// Emits an instruction whose result is a scalar or a vector. The result is converted if the location is
    /// of the other kind.
    pub(super) fn finish(
        &mut self,
        mut inst: Inst,
        scalar: bool,
        wide: bool,
        place: ValueLoc,
        blend: bool,
    ) -> Lowered {
        match (place, scalar) {
            (ValueLoc::Scalar(d), true) | (ValueLoc::Vector(d), false) => {
                inst.d = d;
                inst.blend = blend && !scalar;
                self.push(inst);
            }
            (ValueLoc::Vector(d), true) => {
                let value = self.push_scalar(inst);
                self.splat(value, d, wide, blend);
            }
            (ValueLoc::Scalar(_), false) => {
                return Err("a register that lanes share gets values that they do not share".into());
            }
        }
        Ok(())
    }

    /// Emits `dst = function(operands)`, lane by lane. Each operand is given with its size in bytes.
    pub(super) fn rare_of<const N: usize>(
        &mut self,
        dst: Reg,
        bytes: u32,
        operands: [(&ir::Operand, u32); N],
        function: impl Fn([u64; 4]) -> u64 + Send + Sync + 'static,
    ) -> Lowered {
        let places = self.sources(operands)?;
        let sources: [_; N] = std::array::from_fn(|index| (places[index], operands[index].1));
        self.rare(dst, bytes, &sources, function)
    }

    /// Emits `dst = function(sources)`, lane by lane. Each source is given with its size in bytes.
    pub(super) fn rare(
        &mut self,
        dst: Reg,
        bytes: u32,
        sources: &[(ValueLoc, u32)],
        function: impl Fn([u64; 4]) -> u64 + Send + Sync + 'static,
    ) -> Lowered {
        let (place, _) = self.target(dst, bytes)?;
        if place.is_scalar() && sources.iter().any(|(source, _)| !source.is_scalar()) {
            return Err("a register that lanes share gets values that they do not share".into());
        }
        let operand = |(place, bytes): (ValueLoc, u32)| RareOperand {
            at: place.slot(),
            scalar: place.is_scalar(),
            bytes,
        };
        self.tables.rare.push(RareOperands {
            function: Box::new(function),
            sources: sources.iter().map(|&source| operand(source)).collect(),
            dst: operand((place, bytes)),
        });
        let mut inst = self.baseline_inst::<rare::Rare>();
        inst.x = self.tables.rare.len() as u32 - 1;
        self.push(inst);
        Ok(())
    }
}
