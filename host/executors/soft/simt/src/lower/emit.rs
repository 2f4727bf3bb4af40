//! Emits instructions of the common forms. Their results are registers that lanes share, or in which each
//! lane has its own value.

use vgpu_ptx::ir::{self, Reg};

use super::builder::Builder;
use super::error::Lowered;
use crate::machine::{Form, Inst, Opcode, RareOperand, RareOperands, Slot, Subnormals, ValueLoc, set};

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
        let opcode = if wide { Opcode::Splat64 } else { Opcode::Splat32 };
        let mut inst = self.inst(opcode);
        (inst.a, inst.d, inst.blend) = (scalar, to, blend);
        self.push(inst);
    }

    /// Emits a move of a scalar result to a register, and a broadcast if each lane has its own value.
    pub(super) fn finish_scalar(&mut self, dst: Reg, bytes: u32, value: Slot) -> Lowered {
        let (place, blend) = self.target(dst, bytes)?;
        let wide = bytes == 8;
        match place {
            ValueLoc::Scalar(d) => {
                let opcode = if wide { Opcode::Mov64 } else { Opcode::Mov32 };
                let mut inst = self.inst_of(opcode, Form::of(&[ValueLoc::Scalar(value)]))?;
                (inst.a, inst.d) = (value, d);
                self.push(inst);
            }
            ValueLoc::Vector(d) => {
                self.splat(value, d, wide, blend);
            }
        }
        Ok(())
    }

    /// Emits a function of the sources to a temporary. Returns the location of the result, which later
    /// instructions of the same PTX instruction may read.
    pub(super) fn apply<const N: usize>(
        &mut self,
        opcode: Opcode,
        sources: [ValueLoc; N],
    ) -> Lowered<ValueLoc> {
        let target = if sources.iter().all(|source| source.is_scalar()) {
            ValueLoc::Scalar(self.temporary_scalar())
        } else {
            ValueLoc::Vector(self.temporary_vector(opcode.row().operands[0].wide))
        };
        self.emit((opcode, Subnormals::Keep), (target, false), sources)?;
        Ok(target)
    }

    /// Emits `dst = opcode(sources)` for a register of `bytes` bytes.
    pub(super) fn op<const N: usize>(
        &mut self,
        opcode: Opcode,
        dst: Reg,
        bytes: u32,
        sources: [ValueLoc; N],
    ) -> Lowered {
        let target = self.target(dst, bytes)?;
        self.emit((opcode, Subnormals::Keep), target, sources)
    }

    /// Emits a function of the sources. With `blend`, inactive lanes keep their values.
    pub(super) fn emit<const N: usize>(
        &mut self,
        (opcode, subnormals): (Opcode, Subnormals),
        (place, blend): (ValueLoc, bool),
        sources: [ValueLoc; N],
    ) -> Lowered {
        let form = Form { subnormals, ..Form::of(&sources) };
        let inst = self.inst_of_sources(opcode, form, sources)?;
        self.finish(inst, form.shares(set::D), opcode.row().operands[0].wide, place, blend)
    }

    /// Returns an instruction with these sources. If there is no such form of scalars and vectors, the
    /// scalars are copied to lanes first.
    pub(super) fn inst_of_sources<const N: usize>(
        &mut self,
        opcode: Opcode,
        form: Form,
        mut sources: [ValueLoc; N],
    ) -> Lowered<Inst> {
        let mut inst = if let Some(inst) = self.try_inst(opcode, form) {
            inst
        } else {
            for (source, row) in sources.iter_mut().zip(&opcode.row().operands[1..]) {
                *source = ValueLoc::Vector(self.vector(*source, row.wide));
            }
            self.inst_of(opcode, Form { shared: 0, ..form })?
        };
        for (to, source) in [&mut inst.a, &mut inst.b, &mut inst.c].into_iter().zip(sources) {
            *to = source.slot();
        }
        Ok(inst)
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
        let mut inst = self.inst(Opcode::Rare);
        inst.x = self.tables.rare.len() as u32 - 1;
        self.push(inst);
        Ok(())
    }
}
