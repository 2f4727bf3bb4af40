//! Instructions that concern more than the block: fences, sleeping, and `vprintf`.

use vgpu_ptx::ir::{Op, Reg};

use crate::machine::{Place, PrintStep, Slot};
use crate::ops::print::Print;
use crate::ops::{integer, special};

use super::builder::Builder;
use super::error::Lowered;

impl Builder<'_> {
    /// Lowers `membar`, `nanosleep` and `vprintf`.
    pub(super) fn system(&mut self, op: &Op) -> Lowered {
        match op {
            Op::Fence => self.fence(),
            Op::Nanosleep { .. } => {
                let step = self.common::<special::Yield>();
                self.push(step);
            }
            Op::Printf { dst, format, arguments } => {
                let (format, arguments) = (self.source(format, 8)?, self.source(arguments, 8)?);
                let (format, arguments) = (self.vector(format, true), self.vector(arguments, true));
                let result = self.temporary_vector(false);
                self.tables.prints.push(PrintStep { format, arguments, dst: Some(result) });
                let mut step = self.common::<Print>();
                step.x = self.tables.prints.len() as u32 - 1;
                self.push(step);
                if let Some(dst) = dst {
                    self.result(*dst, result)?;
                }
            }
            _ => return Err("not a call of the system".into()),
        }
        Ok(())
    }

    /// Copies the result of a call, a vector of 32 bits, to a register.
    fn result(&mut self, dst: Reg, from: Slot) -> Lowered {
        let place = if self.place(dst)?.is_scalar() {
            Place::Scalar(self.scalar(Place::Vector(from)))
        } else {
            Place::Vector(from)
        };
        self.op1::<integer::Mov32>(dst, 4, place)
    }
}
