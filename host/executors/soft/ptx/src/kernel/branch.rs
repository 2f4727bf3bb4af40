//! Branches: to a label, and through a list of labels.
//!
//! A branch through a list becomes a tree of comparisons, so that what follows knows two ways out of a block
//! at most.

use crate::error::PtxError;
use crate::ir::{Class, Compare, Guard, Operand, Reg, Ty};
use crate::kernel::Parser;
use crate::kernel::flow::{End, Target};
use crate::kernel::operands::Width;
use crate::kernel::spelling::Spelling;
use crate::kernel::stack::compare;
use crate::kernel::symbols::Symbol;
use crate::lex::Tokens;
use crate::variable;

impl<'t> Parser<'t> {
    /// Reads a branch of which the name has been taken.
    pub(super) fn branch(&mut self, mut s: Spelling<'t>, guard: Option<Guard>) -> Result<(), PtxError> {
        let through = s.base == b"brx";
        if through && !s.take("idx") {
            return Err(self.unsupported());
        }
        let uniform = s.take("uni");
        self.done(&s)?;
        if through {
            return self.branch_through(guard, uniform);
        }
        let label = variable::name(&mut self.tokens)?;
        let target = Target::Label(self.scopes.refer(label, self.place));
        let end = match guard {
            None => End::Goto(target),
            Some(guard) => {
                let otherwise = Target::Block(self.flow.open() + 1);
                End::Branch { guard, uniform, then: target, otherwise }
            }
        };
        self.flow.close(end, self.place.1);
        Ok(())
    }

    /// Reads `index, list`.
    fn branch_through(&mut self, guard: Option<Guard>, uniform: bool) -> Result<(), PtxError> {
        let index = self.reg(Ty::U32, Width::Same)?;
        self.comma()?;
        let place = self.tokens.place();
        let list = variable::name(&mut self.tokens)?;
        let Some(Symbol::Branches(list)) = self.scopes.find(list) else {
            return Err(self.tokens.error_at(place, "expected the label of a .branchtargets"));
        };
        let names = names(&mut self.tokens.elsewhere(list)?)?;
        let refer = |name| Target::Label(self.scopes.refer(name, self.place));
        let labels: Vec<_> = names.into_iter().map(refer).collect();
        // Of one label there is nothing to compare, and a block all the same.
        let blocks = (labels.len() as u32 - 1).max(1);
        let first = self.flow.open() + u32::from(guard.is_some());
        if let Some(guard) = guard {
            let (then, otherwise) = (Target::Block(first), Target::Block(first + blocks));
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

    /// Adds the blocks that choose one of at least two labels, of which the first has the number `first`: one
    /// block fewer than there are labels. `below` holds what each has compared. What CUDA leaves undefined, a
    /// number beyond the list, goes to the last label.
    fn choose(&mut self, (index, below): (Reg, Reg), first: u32, labels: &[Target], uniform: bool) {
        let (low, high) = labels.split_at(labels.len() / 2);
        let middle = first + low.len() as u32;
        self.push(compare(Compare::Lt, Ty::U32, below, index, Operand::Imm(u64::from(middle))));
        let next = self.flow.open() + 1;
        let way = |labels: &[Target], block| if let [only] = *labels { only } else { Target::Block(block) };
        let guard = Guard { reg: below, negated: false };
        let (then, otherwise) = (way(low, next), way(high, next + low.len() as u32 - 1));
        self.flow.close(End::Branch { guard, uniform, then, otherwise }, self.place.1);
        for (first, labels) in [(first, low), (middle, high)] {
            if labels.len() > 1 {
                self.choose((index, below), first, labels, uniform);
            }
        }
    }

    /// Reads the labels of a `.branchtargets`, whose own label and word have been taken.
    pub(super) fn branch_targets(&mut self, label: &'t [u8]) -> Result<(), PtxError> {
        let place = self.tokens.place();
        names(&mut self.tokens)?;
        self.declare(label, Symbol::Branches(place))
    }
}

/// Reads the names of a list of labels.
fn names<'t>(tokens: &mut Tokens<'t>) -> Result<Vec<&'t [u8]>, PtxError> {
    let mut names = vec![variable::name(tokens)?];
    while tokens.take(b',')? {
        names.push(variable::name(tokens)?);
    }
    Ok(names)
}
