//! Parser of instructions that the lanes of a warp, or the warps of a block, execute together (PTX ISA,
//! section "Parallel Synchronization and Communication Instructions").

use crate::error::PtxError;
use crate::ir::{Atomic, Guard, Op, Operand, Reduce, Shuffle, Ty, Vote};
use crate::kernel::Parser;
use crate::kernel::operands::Width;
use crate::kernel::spelling::Spelling;

/// Mask of all lanes, for instructions that name none.
const ALL: Operand = Operand::Imm(0xFFFF_FFFF);

impl<'t> Parser<'t> {
    /// Reads `bar` or `barrier`, with `.sync`, `.arrive` or `.red`, and `bar.warp.sync`.
    pub fn barrier(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let old = s.base == b"bar";
        if old && s.accept("warp") {
            self.require(s.accept("sync"))?;
            self.done(&s)?;
            return Ok(Op::BarWarp { mask: self.operand(Ty::B32, Width::Same)? });
        }
        s.accept("cta");
        let what = self.known(s.pick(&[("sync", 0), ("arrive", 1), ("red", 2)]))?;
        let reduce = if what == 2 {
            Some(self.known(s.pick(&[("and", Reduce::And), ("or", Reduce::Or), ("popc", Reduce::Popc)]))?)
        } else {
            None
        };
        // The old name `bar` always means `.aligned`.
        if !old {
            s.accept("aligned");
        }
        if let Some(reduce) = reduce {
            return self.barrier_reduction(&mut s, reduce);
        }
        self.done(&s)?;
        let barrier = self.operand(Ty::U32, Width::Same)?;
        if what == 1 {
            return Ok(Op::BarArrive { barrier, threads: self.src(Ty::U32)? });
        }
        let threads =
            if self.tokens.accept(b',')? { Some(self.operand(Ty::U32, Width::Same)?) } else { None };
        Ok(Op::Bar { barrier, threads })
    }

    fn barrier_reduction(&mut self, s: &mut Spelling<'_>, op: Reduce) -> Result<Op, PtxError> {
        let ty = if op == Reduce::Popc { Ty::U32 } else { Ty::Pred };
        self.last(s, &[ty])?;
        let dst = self.dst(ty)?;
        let barrier = self.src(Ty::U32)?;
        self.comma()?;
        // The number of threads is optional. Without it, the predicate is here.
        if let Ok(p) = self.try_guard() {
            return Ok(Op::BarRed { op, barrier, threads: None, dst, p });
        }
        let threads = Some(self.operand(Ty::U32, Width::Same)?);
        self.comma()?;
        Ok(Op::BarRed { op, barrier, threads, dst, p: self.guard()? })
    }

    /// Reads a predicate. If it fails, no token has been taken.
    fn try_guard(&mut self) -> Result<Guard, PtxError> {
        let before = self.tokens.clone();
        let guard = self.guard();
        if guard.is_err() {
            self.tokens = before;
        }
        guard
    }

    /// Reads `shfl`, with `.sync` and a mask, or in the old form.
    pub fn shuffle(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let sync = s.accept("sync");
        let mode = self.known(s.pick(&[
            ("up", Shuffle::Up),
            ("down", Shuffle::Down),
            ("bfly", Shuffle::Bfly),
            ("idx", Shuffle::Idx),
        ]))?;
        self.last(&mut s, &[Ty::B32])?;
        let dst = self.sink(Ty::B32, Width::Same)?;
        let valid = if self.tokens.accept(b'|')? { self.sink(Ty::Pred, Width::Same)? } else { None };
        let [a, b, c] = self.sources([Ty::B32; 3])?;
        let mask = if sync { self.src(Ty::B32)? } else { ALL };
        Ok(Op::Shfl { mode, dst, valid, a, b, c, mask })
    }

    /// Reads `vote`, with `.sync` before or after the mode, or in the old form.
    pub fn vote(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let mut sync = s.accept("sync");
        let mode = self.known(s.pick(&[
            ("all", Some(Vote::All)),
            ("any", Some(Vote::Any)),
            ("uni", Some(Vote::Uni)),
            ("ballot", None),
        ]))?;
        sync |= s.accept("sync");
        let ty = if mode.is_some() { Ty::Pred } else { Ty::B32 };
        self.last(&mut s, &[ty])?;
        let dst = self.dst(ty)?;
        self.comma()?;
        let p = self.guard()?;
        let mask = if sync { self.src(Ty::B32)? } else { ALL };
        Ok(match mode {
            Some(op) => Op::Vote { op, dst, p, mask },
            None => Op::Ballot { dst, p, mask },
        })
    }

    /// Reads `activemask`, whose result has one bit for each active lane.
    pub fn active_mask(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        self.last(&mut s, &[Ty::B32])?;
        Ok(Op::ActiveMask { dst: self.dst(Ty::B32)? })
    }

    /// Reads `match`, `.any` or `.all`.
    pub fn matching(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let all = self.known(s.pick(&[("all", true), ("any", false)]))?;
        self.require(s.accept("sync"))?;
        let ty = self.last(&mut s, &[Ty::B32, Ty::B64])?;
        let dst = self.dst(Ty::B32)?;
        let p = if all && self.tokens.accept(b'|')? { self.sink(Ty::Pred, Width::Same)? } else { None };
        let [a, mask] = self.sources([ty, Ty::B32])?;
        Ok(Op::Match { all, ty, dst, p, a, mask })
    }

    /// Reads `redux.sync` of integers of 32 bits.
    pub fn reduce(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        self.require(s.accept("sync"))?;
        let (op, logic) = self.known(s.pick(&[
            ("and", (Atomic::And, true)),
            ("or", (Atomic::Or, true)),
            ("xor", (Atomic::Xor, true)),
            ("add", (Atomic::Add, false)),
            ("min", (Atomic::Min, false)),
            ("max", (Atomic::Max, false)),
        ]))?;
        let ty = self.last(&mut s, if logic { &[Ty::B32] } else { &[Ty::U32, Ty::S32] })?;
        let dst = self.dst(ty)?;
        let [a, mask] = self.sources([ty, Ty::B32])?;
        Ok(Op::Redux { op, ty, dst, a, mask })
    }

    /// Reads `nanosleep`, whose operand is a time in nanoseconds.
    pub fn nanosleep(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        self.last(&mut s, &[Ty::U32])?;
        Ok(Op::Nanosleep { ns: self.operand(Ty::U32, Width::Same)? })
    }
}
