//! Parser of `mbarrier` objects in shared memory (PTX ISA, "mbarrier"), and of their use by `cp.async`.
//!
//! Each object is changed by one kind of read-modify-write, whose result is the state before. Waits test the
//! number of the phase in the state. There are no bulk copies, so only programs count transactions.

use crate::error::PtxError;
use crate::ir::{
    Atomic, Binary, Class, Compare, Guard, Half, Mem, Op, Operand, Order, Reg, Space, Ty, mbarrier,
};
use crate::kernel::Parser;
use crate::kernel::flow::{BranchTarget, End};
use crate::kernel::memory::SPACES;
use crate::kernel::operands::Width;
use crate::kernel::spelling::{PLAIN, Spelling};
use crate::kernel::synthetic::{arithmetic, compare, resize};
use crate::lex::Token;

impl<'t> Parser<'t> {
    /// Reads any `mbarrier` instruction.
    pub fn mbarrier(&mut self, mut s: Spelling<'t>) -> Result<(), PtxError> {
        let name = self.known(s.next())?;
        match name {
            b"init" => {
                let space = self.object_space(&mut s)?;
                let mem = self.object(space)?;
                let given = self.src(Ty::U32)?;
                let (state, valid) = (self.register(Class::B64)?, self.register(Class::B32)?);
                // A count beyond its limit is undefined, and must not reach the other fields of the state.
                let limit = Operand::Imm(mbarrier::PENDING);
                self.push(arithmetic(Binary::And, Ty::B32, valid, given, limit));
                let count = Operand::Reg(valid);
                let (a, b) = (count, Operand::Imm(mbarrier::INITIAL));
                self.push(Op::Mul { half: Half::Wide, ty: Ty::U32, dst: state, a, b });
                self.push(Op::St { mem, src: vec![Operand::Reg(state)] });
            }
            b"inval" => {
                let space = self.object_space(&mut s)?;
                let mem = self.object(space)?;
                self.push(Op::St { mem, src: vec![Operand::Imm(0)] });
            }
            b"arrive" => self.arrive(s, 0)?,
            b"arrive_drop" => self.arrive(s, mbarrier::DROP)?,
            b"expect_tx" | b"complete_tx" => {
                let space = self.ordered_space(&mut s, &["relaxed"])?;
                let mem = self.object(space)?;
                let tx = self.src(Ty::U32)?;
                let mut tx = self.extended(tx)?;
                if name == b"complete_tx" {
                    let negative = self.register(Class::B64)?;
                    self.push(arithmetic(Binary::Sub, Ty::S64, negative, Operand::Imm(0), tx));
                    tx = Operand::Reg(negative);
                }
                self.change(mem, None, Operand::Imm(0), tx);
            }
            b"test_wait" => {
                self.wait(s)?;
            }
            b"try_wait" => {
                let done = self.wait(s)?;
                // A thread whose phase has not completed may be suspended for a while: others run first.
                let next = self.flow.open() + 1;
                let (then, otherwise) = (BranchTarget::Block(next), BranchTarget::Block(next + 1));
                let guard = Guard { reg: done, negated: true };
                self.flow.close(End::Branch { guard, uniform: false, then, otherwise }, self.place.1);
                self.push(Op::Nanosleep { ns: Operand::Imm(0) });
                self.flow.close(End::Goto(otherwise), self.place.1);
            }
            b"pending_count" => {
                self.last(&mut s, &[Ty::B64])?;
                let dst = self.dst(Ty::B32)?;
                let state = self.src(Ty::B64)?;
                let low = self.register(Class::B32)?;
                self.push(resize(Ty::U32, Ty::U64, low, state));
                let pending = Operand::Imm(mbarrier::PENDING);
                self.push(arithmetic(Binary::And, Ty::B32, dst, Operand::Reg(low), pending));
            }
            _ => return Err(self.unsupported()),
        }
        Ok(())
    }

    /// Reads `cp.async.mbarrier.arrive`. All copies are complete, so that the arrival happens at once.
    /// Without `.noinc` it was expected in addition to the others, and changes nothing.
    pub fn arrive_after_copies(&mut self, mut s: Spelling<'t>) -> Result<(), PtxError> {
        self.require(s.accept("arrive"))?;
        let arrivals = u64::from(s.accept("noinc"));
        let space = self.object_space(&mut s)?;
        let mem = self.object(space)?;
        self.change(mem, None, Operand::Imm(arrivals), Operand::Imm(0));
        Ok(())
    }

    /// Reads the last modifiers: the state space of an object, if it is named, and its type.
    fn object_space(&self, s: &mut Spelling<'t>) -> Result<Option<Space>, PtxError> {
        let space = s.pick(&SPACES[2..5]);
        self.last(s, &[Ty::B64]).map(|_| space)
    }

    /// Reads the last modifiers, of which the memory order and the scope are before or behind the state
    /// space: the ISA's syntax has one order, and some of its examples the other. All threads of the block
    /// see the same memory in the same order.
    fn ordered_space(&self, s: &mut Spelling<'t>, orders: &[&str]) -> Result<Option<Space>, PtxError> {
        let semantics = |s: &mut Spelling<'t>| {
            let ordered = orders.iter().any(|order| s.accept(order));
            s.pick(&[("cta", ()), ("cluster", ())]).is_some() || ordered
        };
        let before = semantics(s);
        let space = s.pick(&SPACES[2..5]);
        if !before {
            semantics(s);
        }
        self.last(s, &[Ty::B64]).map(|_| space)
    }

    /// Reads the address of an object.
    fn object(&mut self, space: Option<Space>) -> Result<Mem, PtxError> {
        let place = self.tokens.place();
        match self.memory(space, Order::Relaxed, Ty::B64)? {
            Ok(mem) if matches!(mem.space, Space::Shared | Space::Generic) => Ok(mem),
            _ => Err(self.tokens.error_at(place, "an mbarrier object is in shared memory alone")),
        }
    }

    /// Reads an arrival. `flags` are added to the number of arrivals.
    fn arrive(&mut self, mut s: Spelling<'t>, flags: u64) -> Result<(), PtxError> {
        let form = s.pick(&[("expect_tx", 1), ("noComplete", 2)]).unwrap_or(0);
        let space = self.ordered_space(&mut s, &["release", "relaxed"])?;
        let dst = self.sink(Ty::B64, Width::Same)?;
        self.comma()?;
        let mem = self.object(space)?;
        let (mut count, mut tx) = (Operand::Imm(1), Operand::Imm(0));
        if form != 0 || self.tokens.peek() == Token::Mark(b',') {
            let operand = self.src(Ty::U32)?;
            let place = if form == 1 { &mut tx } else { &mut count };
            *place = operand;
        }
        tx = self.extended(tx)?;
        count = match count {
            Operand::Imm(value) => Operand::Imm(value | flags),
            other => {
                let wide = self.extended(other)?;
                let flagged = self.register(Class::B64)?;
                self.push(arithmetic(Binary::Or, Ty::B64, flagged, wide, Operand::Imm(flags)));
                Operand::Reg(flagged)
            }
        };
        self.change(mem, dst, count, tx);
        Ok(())
    }

    /// Returns a value of 32 bits in 64 bits.
    fn extended(&mut self, value: Operand) -> Result<Operand, PtxError> {
        if let Operand::Imm(_) = value {
            return Ok(value);
        }
        let wide = self.register(Class::B64)?;
        self.push(resize(Ty::U64, Ty::U32, wide, value));
        Ok(Operand::Reg(wide))
    }

    fn change(&mut self, mem: Mem, dst: Option<Reg>, b: Operand, tx: Operand) {
        self.push(Op::Atom { op: Atomic::Arrive, mem, float: PLAIN, dst, b, c: Some(tx) });
    }

    /// Reads `test_wait` or `try_wait`, whose result is whether a phase has completed: the one in which a
    /// state was taken, or the latest of a parity. Returns the register of the result.
    fn wait(&mut self, mut s: Spelling<'t>) -> Result<Reg, PtxError> {
        let (parity, suspends) = (s.accept("parity"), self.word.starts_with(b"mbarrier.try_wait"));
        let space = self.ordered_space(&mut s, &["acquire", "relaxed"])?;
        let dst = self.dst(Ty::Pred)?;
        self.comma()?;
        let mem = self.object(space)?;
        let of = self.src(if parity { Ty::U32 } else { Ty::B64 })?;
        if suspends && self.tokens.accept(b',')? {
            self.operand(Ty::U32, Width::Same)?;
        }
        let state = self.register(Class::B64)?;
        self.push(Op::Ld { mem, dst: vec![Some(state)] });
        let shift = Operand::Imm(mbarrier::PHASE_SHIFT.into());
        let (mut now, then) = (self.register(Class::B64)?, self.register(Class::B64)?);
        self.push(arithmetic(Binary::Shr, Ty::U64, now, Operand::Reg(state), shift));
        if parity {
            let bit = self.register(Class::B64)?;
            self.push(arithmetic(Binary::And, Ty::B64, bit, Operand::Reg(now), Operand::Imm(1)));
            now = bit;
            let parity = self.extended(of)?;
            self.push(arithmetic(Binary::And, Ty::B64, then, parity, Operand::Imm(1)));
        } else {
            self.push(arithmetic(Binary::Shr, Ty::U64, then, of, shift));
        }
        self.push(compare(Compare::Ne, Ty::U64, dst, Operand::Reg(now), Operand::Reg(then)));
        Ok(dst)
    }
}
