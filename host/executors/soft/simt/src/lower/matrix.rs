//! Lowers matrix operations that a whole warp executes.

use vgpu_ptx::ir::{Mem, Mma, Operand, Reg, Space, Ty};

use crate::machine::{Inst, ProductOperands, QuadsOperands, Slot, ValueLoc};
use crate::ops::matrix::{
    Brains, Bytes, Doubles, Halves, LoadMatrices, Multiply, MultiplyQuads, Singles, StoreMatrices, Transpose,
};

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
            let mut inst = self.inst::<MultiplyQuads>();
            inst.x = self.tables.quads.len() as u32 - 1;
            self.push(inst);
            return Ok(());
        }
        let product = self.product(ta, tb);
        let mut inst = product.ok_or_else(|| format!("there is no product of {ta:?} and {tb:?}"))?;
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

    /// Returns the instruction that multiplies elements of these types, or `None` if there is none.
    fn product(&self, a: Ty, b: Ty) -> Option<Inst> {
        Some(match (a, b) {
            (Ty::F16, Ty::F16) => self.inst::<Multiply<Halves, Halves>>(),
            (Ty::Bf16, Ty::Bf16) => self.inst::<Multiply<Brains, Brains>>(),
            (Ty::Tf32, Ty::Tf32) => self.inst::<Multiply<Singles, Singles>>(),
            (Ty::F64, Ty::F64) => self.baseline_inst::<Multiply<Doubles, Doubles>>(),
            (Ty::S8, Ty::S8) => self.inst::<Multiply<Bytes<true>, Bytes<true>>>(),
            (Ty::S8, Ty::U8) => self.baseline_inst::<Multiply<Bytes<true>, Bytes<false>>>(),
            (Ty::U8, Ty::S8) => self.baseline_inst::<Multiply<Bytes<false>, Bytes<true>>>(),
            (Ty::U8, Ty::U8) => self.baseline_inst::<Multiply<Bytes<false>, Bytes<false>>>(),
            _ => return None,
        })
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
        let inst = match (mem.space == Space::Generic, trans) {
            (false, false) => self.load_matrices_by::<false, false>(slots.len()),
            (false, true) => self.load_matrices_by::<false, true>(slots.len()),
            (true, false) => self.load_matrices_by::<true, false>(slots.len()),
            (true, true) => self.load_matrices_by::<true, true>(slots.len()),
        };
        self.matrices(inst, mem, &slots)
    }

    fn load_matrices_by<const GENERIC: bool, const TRANS: bool>(&self, count: usize) -> Inst {
        match count {
            1 => self.inst::<LoadMatrices<GENERIC, TRANS, 1>>(),
            2 => self.inst::<LoadMatrices<GENERIC, TRANS, 2>>(),
            _ => self.inst::<LoadMatrices<GENERIC, TRANS, 4>>(),
        }
    }

    /// Lowers `stmatrix` of as many matrices as there are sources.
    pub(super) fn store_matrices(&mut self, mem: &Mem, trans: bool, src: &[Operand]) -> Lowered {
        let slots = self.fragment(src, 4)?;
        let inst = match (mem.space == Space::Generic, trans) {
            (false, false) => self.store_matrices_by::<false, false>(slots.len()),
            (false, true) => self.store_matrices_by::<false, true>(slots.len()),
            (true, false) => self.store_matrices_by::<true, false>(slots.len()),
            (true, true) => self.store_matrices_by::<true, true>(slots.len()),
        };
        self.matrices(inst, mem, &slots)
    }

    fn store_matrices_by<const GENERIC: bool, const TRANS: bool>(&self, count: usize) -> Inst {
        match count {
            1 => self.baseline_inst::<StoreMatrices<GENERIC, TRANS, 1>>(),
            2 => self.baseline_inst::<StoreMatrices<GENERIC, TRANS, 2>>(),
            _ => self.baseline_inst::<StoreMatrices<GENERIC, TRANS, 4>>(),
        }
    }

    /// Emits an instruction on up to four matrices in shared memory.
    fn matrices(&mut self, mut inst: Inst, mem: &Mem, slots: &[Slot]) -> Lowered {
        if !matches!(slots.len(), 1 | 2 | 4) || !matches!(mem.space, Space::Shared | Space::Generic) {
            return Err(format!("{} matrices in {:?} memory", slots.len(), mem.space));
        }
        let address = self.access(mem)?;
        (inst.a, inst.imm) = (self.vector(address.base, mem.space == Space::Generic), address.offset);
        (inst.b, inst.x) = (self.constant(MEMBERS), self.slots(slots));
        self.push(inst);
        Ok(())
    }

    /// Lowers `movmatrix`, which transposes a matrix.
    pub(super) fn transpose(&mut self, dst: Reg, a: &Operand) -> Lowered {
        let a = self.source(a, 4)?;
        let mut inst = self.baseline_inst::<Transpose>();
        (inst.a, inst.b, inst.d) = (self.vector(a, false), self.constant(MEMBERS), self.lanes_of(dst, 4)?);
        self.push(inst);
        Ok(())
    }
}
