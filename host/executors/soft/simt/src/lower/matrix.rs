//! Lowers matrix operations that a whole warp executes.

use vgpu_ptx::ir::{Mem, Mma, Operand, Reg, Space, Ty};

use crate::machine::{Form, Opcode, ProductOperands, QuadsOperands, Slot, ValueLoc};

use super::builder::Builder;
use super::error::Lowered;

/// Member mask of aligned instructions, in which every lane takes part.
const MEMBERS: u64 = 0xffff_ffff;

impl Builder<'_> {
    /// Lowers `mma`. The sources are the fragments of A, B and C, in registers of 32 bits, or of 64 for
    /// doubles.
    pub(super) fn multiply(&mut self, mma: Mma, d: &[Reg], sources: [&[Operand]; 3]) -> Lowered {
        let [td, ta, tb, tc] = mma.types;
        let quads = mma.shape == [8, 8, 4] && ta != Ty::F64;
        let bytes = if ta == Ty::F64 { 8 } else { 4 };
        let [a, b, c] = [
            self.fragment(sources[0], bytes)?,
            self.fragment(sources[1], bytes)?,
            self.fragment(sources[2], bytes)?,
        ];
        let mut targets = Vec::with_capacity(d.len());
        for reg in d {
            targets.push(self.lanes_of(*reg, bytes)?);
        }
        let members = self.constant(MEMBERS);
        if quads {
            let (&[a0, a1], &[b0, b1]) = (&a[..], &b[..]) else {
                return Err("fragments of other sizes".into());
            };
            self.tables.quads.push(QuadsOperands {
                d: targets,
                a: [a0, a1],
                b: [b0, b1],
                c,
                columns: mma.columns,
                c_halves: tc != Ty::F32,
                d_halves: td != Ty::F32,
                members,
            });
            let mut inst = self.inst(Opcode::MmaQuads);
            inst.x = self.tables.quads.len() as u32 - 1;
            self.push(inst);
            return Ok(());
        }
        let opcode = match (ta, tb) {
            (Ty::F16, Ty::F16) => Opcode::MmaF16,
            (Ty::Bf16, Ty::Bf16) => Opcode::MmaBf16,
            (Ty::Tf32, Ty::Tf32) => Opcode::MmaTf32,
            (Ty::F64, Ty::F64) => Opcode::MmaF64,
            (Ty::S8, Ty::S8) => Opcode::MmaS8,
            (Ty::S8, Ty::U8) => Opcode::MmaS8U8,
            (Ty::U8, Ty::S8) => Opcode::MmaU8S8,
            (Ty::U8, Ty::U8) => Opcode::MmaU8,
            _ => return Err(format!("there is no product of {ta:?} and {tb:?}")),
        };
        let mut inst = self.inst(opcode);
        self.tables.products.push(ProductOperands {
            d: targets,
            a,
            b,
            c,
            eights: usize::from(mma.shape[0] / 8),
            halves: tc == Ty::F16,
            saturates: mma.saturates,
            members,
        });
        inst.x = self.tables.products.len() as u32 - 1;
        self.push(inst);
        Ok(())
    }

    /// Returns the slots of a fragment's registers. A scalar is first broadcast to all lanes.
    fn fragment(&mut self, operands: &[Operand], bytes: u32) -> Lowered<Vec<Slot>> {
        let slot = |operand| {
            let place = self.source(operand, bytes)?;
            Ok(self.vector(place, bytes == 8))
        };
        operands.iter().map(slot).collect()
    }

    /// Returns the slot of a register in which each lane has its own value. Fails if the lanes share the
    /// register.
    fn lanes_of(&self, reg: Reg, bytes: u32) -> Lowered<Slot> {
        match self.register(reg, bytes)? {
            ValueLoc::Vector(slot) => Ok(slot),
            ValueLoc::Scalar(_) => Err("a fragment that lanes share".into()),
        }
    }

    /// Lowers `ldmatrix` of as many matrices as there are destinations.
    pub(super) fn load_matrices(&mut self, mem: &Mem, trans: bool, dst: &[Reg]) -> Lowered {
        let slots: Vec<Slot> = dst.iter().map(|reg| self.lanes_of(*reg, 4)).collect::<Lowered<_>>()?;
        let opcode = match (mem.space == Space::Generic, trans) {
            (false, false) => Opcode::LdMatrix,
            (false, true) => Opcode::LdMatrixTrans,
            (true, false) => Opcode::LdMatrixGeneric,
            (true, true) => Opcode::LdMatrixGenericTrans,
        };
        self.matrices(opcode, mem, &slots)
    }

    /// Lowers `stmatrix` of as many matrices as there are sources.
    pub(super) fn store_matrices(&mut self, mem: &Mem, trans: bool, src: &[Operand]) -> Lowered {
        let slots = self.fragment(src, 4)?;
        let opcode = match (mem.space == Space::Generic, trans) {
            (false, false) => Opcode::StMatrix,
            (false, true) => Opcode::StMatrixTrans,
            (true, false) => Opcode::StMatrixGeneric,
            (true, true) => Opcode::StMatrixGenericTrans,
        };
        self.matrices(opcode, mem, &slots)
    }

    /// Emits an instruction on up to four matrices in shared memory.
    fn matrices(&mut self, opcode: Opcode, mem: &Mem, slots: &[Slot]) -> Lowered {
        if !matches!(slots.len(), 1 | 2 | 4) || !matches!(mem.space, Space::Shared | Space::Generic) {
            return Err(format!("{} matrices in {:?} memory", slots.len(), mem.space));
        }
        let address = self.access(mem)?;
        let mut inst = self.inst_of(opcode, Form::counted(slots.len()))?;
        (inst.a, inst.imm) = (self.vector(address.base, mem.space == Space::Generic), address.offset);
        (inst.b, inst.x) = (self.constant(MEMBERS), self.slots(slots));
        self.push(inst);
        Ok(())
    }

    /// Lowers `movmatrix`, which transposes a matrix.
    pub(super) fn transpose(&mut self, dst: Reg, a: &Operand) -> Lowered {
        let a = self.source(a, 4)?;
        let mut inst = self.inst(Opcode::MovMatrix);
        (inst.a, inst.b, inst.d) = (self.vector(a, false), self.constant(MEMBERS), self.lanes_of(dst, 4)?);
        self.push(inst);
        Ok(())
    }
}
