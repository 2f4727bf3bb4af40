//! Parser of branches to a label, and through a list of labels (`bra` and `brx.idx`; PTX ISA, section
//! "Control Flow Instructions").
//!
//! A branch through a list becomes a tree of comparisons, so that a block has at most two successors.

use crate::error::PtxError;
use crate::ir::{Class, Compare, Guard, Operand, Reg, Ty};
use crate::kernel::Parser;
use crate::kernel::flow::{BranchTarget, End};
use crate::kernel::operands::Width;
use crate::kernel::spelling::Spelling;
use crate::kernel::symbols::Symbol;
use crate::kernel::synthetic::compare;
use crate::lex::Tokens;
use crate::variable;

impl<'t> Parser<'t> {
    /// Reads `bra` or `brx` from its modifiers on, and ends the open block.
    pub(super) fn branch(&mut self, mut s: Spelling<'t>, guard: Option<Guard>) -> Result<(), PtxError> {
        let through = s.base == b"brx";
        self.require(!through || s.accept("idx"))?;
        let uniform = s.accept("uni");
        self.done(&s)?;
        if through {
            return self.branch_through(guard, uniform);
        }
        let label = variable::name(&mut self.tokens)?;
        let target = BranchTarget::Label(self.scopes.refer(label, self.place));
        let end = match guard {
            None => End::Goto(target),
            Some(guard) => {
                let otherwise = BranchTarget::Block(self.flow.open() + 1);
                End::Branch { guard, uniform, then: target, otherwise }
            }
        };
        self.flow.close(end, self.place.1);
        Ok(())
    }

    /// Reads the operands of a branch through a list, `index, list`.
    fn branch_through(&mut self, guard: Option<Guard>, uniform: bool) -> Result<(), PtxError> {
        let index = self.reg(Ty::U32, Width::Same)?;
        self.comma()?;
        let place = self.tokens.place();
        let list = variable::name(&mut self.tokens)?;
        let Some(Symbol::Branches(list)) = self.scopes.find(list) else {
            return Err(self.tokens.error_at(place, "expected the label of a .branchtargets"));
        };
        let names = names(&mut self.tokens.elsewhere(list)?)?;
        let refer = |name| BranchTarget::Label(self.scopes.refer(name, self.place));
        let labels: Vec<_> = names.into_iter().map(refer).collect();
        // A list of one label needs no comparison, but a block.
        let blocks = (labels.len() as u32 - 1).max(1);
        let first = self.flow.open() + u32::from(guard.is_some());
        if let Some(guard) = guard {
            let (then, otherwise) = (BranchTarget::Block(first), BranchTarget::Block(first + blocks));
            self.flow.close(End::Branch { guard, uniform, then, otherwise }, self.place.1);
        }
        if let [only] = labels[..] {
            self.flow.close(End::Goto(only), self.place.1);
            return Ok(());
        }
        let below = self.register(Class::Pred)?;
        self.choose((index, below), 0, &labels, uniform);
        Ok(())
    }

    /// Adds the blocks that choose one of at least two labels. The first block has the number `first`, and
    /// there is one block fewer than labels. `below` holds the result of each comparison. An index beyond the
    /// list is undefined in CUDA, and leads to the last label here.
    fn choose(&mut self, (index, below): (Reg, Reg), first: u32, labels: &[BranchTarget], uniform: bool) {
        let (low, high) = labels.split_at(labels.len() / 2);
        let middle = first + low.len() as u32;
        self.push(compare(Compare::Lt, Ty::U32, below, Operand::Reg(index), Operand::Imm(u64::from(middle))));
        let next = self.flow.open() + 1;
        let way = |labels: &[BranchTarget], block| {
            if let [only] = *labels { only } else { BranchTarget::Block(block) }
        };
        let guard = Guard { reg: below, negated: false };
        let (then, otherwise) = (way(low, next), way(high, next + low.len() as u32 - 1));
        self.flow.close(End::Branch { guard, uniform, then, otherwise }, self.place.1);
        for (first, labels) in [(first, low), (middle, high)] {
            if labels.len() > 1 {
                self.choose((index, below), first, labels, uniform);
            }
        }
    }

    /// Reads the labels of a `.branchtargets` directive, whose own label and word have been taken.
    pub(super) fn branch_targets(&mut self, label: &'t [u8]) -> Result<(), PtxError> {
        let place = self.tokens.place();
        names(&mut self.tokens)?;
        self.declare(label, Symbol::Branches(place))
    }
}

/// Reads the comma-separated names of a list of labels.
fn names<'t>(tokens: &mut Tokens<'t>) -> Result<Vec<&'t [u8]>, PtxError> {
    let mut names = vec![variable::name(tokens)?];
    while tokens.accept(b',')? {
        names.push(variable::name(tokens)?);
    }
    Ok(names)
}
