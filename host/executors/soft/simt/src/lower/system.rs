//! Lowers instructions that affect more than the block: fences, sleeping, and calls of the device's own
//! functions.

use vgpu_ptx::ir::{Op, Reg};

use crate::machine::{Opcode, PrintOperands, Slot, ValueLoc};

use super::builder::Builder;
use super::error::Lowered;

impl Builder<'_> {
    /// Lowers fences, `nanosleep`, `vprintf`, `malloc`, `free` and assertions.
    pub(super) fn system(&mut self, op: &Op) -> Lowered {
        match op {
            Op::Fence => self.fence(),
            Op::Nanosleep { .. } => self.push(self.inst(Opcode::Yield)),
            Op::Printf { dst, format, arguments } => {
                let (format, arguments) = (self.source(format, 8)?, self.source(arguments, 8)?);
                let (format, arguments) = (self.vector(format, true), self.vector(arguments, true));
                let result = self.temporary_vector(false);
                self.tables.prints.push(PrintOperands { format, arguments, dst: Some(result) });
                let mut inst = self.inst(Opcode::Print);
                inst.x = self.tables.prints.len() as u32 - 1;
                self.push(inst);
                if let Some(dst) = dst {
                    self.result(*dst, result)?;
                }
            }
            Op::Malloc { dst, bytes } => {
                let bytes = self.source(bytes, 8)?;
                let mut inst = self.inst(Opcode::Malloc);
                inst.a = self.vector(bytes, true);
                inst.d = self.temporary_vector(true);
                let result = inst.d;
                self.push(inst);
                self.op(Opcode::Mov64, *dst, 8, [ValueLoc::Vector(result)])?;
            }
            Op::Free { address } => {
                let address = self.source(address, 8)?;
                let mut inst = self.inst(Opcode::Free);
                inst.a = self.vector(address, true);
                self.push(inst);
            }
            Op::Assert { message, file, line, function } => {
                let mut inst = self.inst(Opcode::Assert);
                let texts = [message, file, function].map(|text| self.source(text, 8));
                let [message, file, function] = texts;
                (inst.a, inst.b) = (self.vector(message?, true), self.vector(file?, true));
                inst.d = self.vector(function?, true);
                let line = self.source(line, 4)?;
                inst.c = self.vector(line, false);
                self.push(inst);
            }
            _ => return Err("not a call of the system".into()),
        }
        Ok(())
    }

    /// Copies the result of a call, a vector of 32-bit lanes, to a register.
    fn result(&mut self, dst: Reg, from: Slot) -> Lowered {
        let place = if self.place(dst)?.is_scalar() {
            ValueLoc::Scalar(self.scalar(ValueLoc::Vector(from)))
        } else {
            ValueLoc::Vector(from)
        };
        self.op(Opcode::Mov32, dst, 4, [place])
    }
}
