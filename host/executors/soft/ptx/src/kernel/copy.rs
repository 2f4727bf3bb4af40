//! Parser of asynchronous copies (`cp.async`), and of waits for an earlier grid (`griddepcontrol`).
//!
//! In this implementation a copy is complete at once, and a grid starts after the previous one has ended. So
//! a wait for either does nothing.

use crate::error::PtxError;
use crate::ir::{Op, Order, Space, Ty};
use crate::kernel::Parser;
use crate::kernel::operands::Width;
use crate::kernel::spelling::Spelling;
use crate::lex::Token;
use crate::variable;

/// Sizes of prefetch into the L2 cache, a hint that changes no value.
const PREFETCH: &[(&str, ())] = &[("L2::64B", ()), ("L2::128B", ()), ("L2::256B", ())];

impl<'t> Parser<'t> {
    /// Reads `cp.async` except bulk copies. Returns the copy, or `None` for an instruction that waits for
    /// copies or arrives after them.
    pub fn copy_async(&mut self, mut s: Spelling<'t>) -> Result<Option<Op>, PtxError> {
        self.require(s.accept("async"))?;
        if s.accept("mbarrier") {
            return self.arrive_after_copies(s).map(|()| None);
        }
        if s.accept("commit_group") || s.accept("wait_all") {
            self.done(&s)?;
            return Ok(None);
        }
        if s.accept("wait_group") {
            self.done(&s)?;
            variable::number(&mut self.tokens, "a number of groups")?;
            return Ok(None);
        }
        let all = self.known(s.pick(&[("cg", true), ("ca", false)]))?;
        let shared = s.accept("shared") || s.accept("shared::cta");
        self.require(shared && s.accept("global"))?;
        let hinted = s.accept("L2::cache_hint");
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
        let before = self.tokens.clone();
        let mut size = None;
        if self.tokens.accept(b',')? {
            // The size is optional. A cache policy is the last operand.
            match self.operand(Ty::U32, Width::Same) {
                Ok(operand) if !hinted || self.tokens.peek() == Token::Mark(b',') => size = Some(operand),
                Err(error) if !hinted => return Err(error),
                _ => self.tokens = before,
            }
        }
        self.cache_policy(hinted)?;
        Ok(Some(Op::CpAsync { to, from, bytes: bytes as u8, size }))
    }

    /// Reads `griddepcontrol`, which lets the next grid start or waits for the previous one. It becomes no
    /// instruction.
    pub fn grid_dependency(&mut self, mut s: Spelling<'t>) -> Result<(), PtxError> {
        self.known(s.pick(&[("launch_dependents", ()), ("wait", ())]))?;
        self.done(&s)
    }
}
