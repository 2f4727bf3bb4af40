//! Lowers `cp.async`: a load of global memory and a store to shared memory.

use vgpu_ptx::ir::{Mem, Operand, Space};

use crate::machine::{Form, Opcode, Slot};

use super::builder::Builder;
use super::error::Lowered;

impl Builder<'_> {
    /// Lowers `cp.async` of 4, 8 or 16 `bytes`, of which the first `size` come from global memory.
    pub(super) fn copy_async(&mut self, to: &Mem, from: &Mem, bytes: u8, size: Option<&Operand>) -> Lowered {
        if (to.space, from.space) != (Space::Shared, Space::Global) || !matches!(bytes, 4 | 8 | 16) {
            return Err(format!("a copy of {bytes} bytes from {:?} to {:?} memory", from.space, to.space));
        }
        let (from, to) = (self.access(from)?, self.access(to)?);
        let (source, target) = (self.vector(from.base, true), self.vector(to.base, false));
        if let Some(size) = size {
            let size = self.source(size, 4)?;
            let mut inst = self.inst(Opcode::CpAsync);
            (inst.a, inst.imm, inst.b, inst.c) = (source, from.offset, target, self.vector(size, false));
            (inst.d, inst.x, inst.y) = (self.constant(to.offset), bytes.into(), self.window());
            self.push(inst);
            return Ok(());
        }
        let slots: Vec<Slot> = (0..bytes / 4).map(|_| self.temporary_vector(false)).collect();
        let form = Form::counted(slots.len());
        let mut load = self.inst_of(Opcode::LdGlobal32, form)?;
        let mut store = self.inst_of(Opcode::StShared32, form)?;
        let list = self.slots(&slots);
        (load.a, load.imm, load.d, load.x, load.y) = (source, from.offset, slots[0], list, self.window());
        (store.a, store.imm, store.b, store.x) = (target, to.offset, slots[0], list);
        self.push(load);
        self.push(store);
        Ok(())
    }
}
