//! Copies that the ISA lets go on while the thread does, and waits for what went before a grid.
//!
//! Here a copy is over at once, and a grid begins when the one before it has ended: to wait for either is to do
//! nothing.

use crate::error::PtxError;
use crate::ir::{Op, Order, Space, Ty};
use crate::kernel::Parser;
use crate::kernel::operands::Width;
use crate::kernel::spelling::Spelling;
use crate::variable;

/// How much of the second-level cache is filled, which changes no value.
const PREFETCH: &[(&str, ())] = &[("L2::64B", ()), ("L2::128B", ()), ("L2::256B", ())];

impl<'t> Parser<'t> {
    /// `cp.async` without bulk: a copy, or nothing for what waits for copies.
    pub fn copy_async(&mut self, mut s: Spelling<'t>) -> Result<Option<Op>, PtxError> {
        if !s.take("async") {
            return Err(self.unsupported());
        }
        if s.take("commit_group") || s.take("wait_all") {
            self.done(&s)?;
            return Ok(None);
        }
        if s.take("wait_group") {
            self.done(&s)?;
            variable::number(&mut self.tokens, "a number of groups")?;
            return Ok(None);
        }
        let all = self.known(s.pick(&[("cg", true), ("ca", false)]))?;
        let shared = s.take("shared") || s.take("shared::cta");
        if !shared || !s.take("global") {
            return Err(self.unsupported());
        }
        s.pick(PREFETCH);
        self.done(&s)?;
        let place = self.tokens.place();
        let to = self.memory(Some(Space::Shared), Order::Weak, Ty::B32)?;
        self.comma()?;
        let from = self.memory(Some(Space::Global), Order::Weak, Ty::B32)?;
        let (Ok(to), Ok(from)) = (to, from) else {
            return Err(self.tokens.error_at(place, "a call's parameter cannot be copied"));
        };
        self.comma()?;
        let sized = self.tokens.place();
        let bytes = variable::number(&mut self.tokens, "a number of bytes")?;
        if !matches!((bytes, all), (16, _) | (4 | 8, false)) {
            return Err(self.tokens.error_at(sized, format!("no copy of {bytes} bytes")));
        }
        let size = if self.tokens.take(b',')? { Some(self.operand(Ty::U32, Width::Same)?) } else { None };
        Ok(Some(Op::CpAsync { to, from, bytes: bytes as u8, size }))
    }

    /// `griddepcontrol`: lets the next grid begin, or waits for the one before.
    pub fn grid_dependency(&mut self, mut s: Spelling<'t>) -> Result<(), PtxError> {
        self.known(s.pick(&[("launch_dependents", ()), ("wait", ())]))?;
        self.done(&s)
    }
}
