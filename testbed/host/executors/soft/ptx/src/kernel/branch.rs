//! Branches: to a label, and through a list of labels.
//!
//! A branch through a list becomes a tree of comparisons, so that what follows knows two ways out of a block
//! at most. nvcc makes such a branch of a `switch` over neighbouring numbers.

use crate::error::PtxError;
use crate::ir::{Class, Compare, Guard, Op, Operand, Reg, Ty};
use crate::kernel::Parser;
use crate::kernel::flow::{End, Target};
use crate::kernel::operands::Width;
use crate::kernel::spelling::Spelling;
use crate::kernel::symbols::Symbol;
use crate::variable;

impl<'t> Parser<'t> {
    /// Reads a branch of which the name has been taken.
    pub(super) fn branch(&mut self, mut s: Spelling<'t>, guard: Option<Guard>) -> Result<(), PtxError> {
        let through = s.base == b"brx" && self.known(s.take("idx").then_some(true))?;
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
        let labels: Vec<_> = self.branches[list]
            .iter()
            .map(|label| Target::Label(self.scopes.refer(label, self.place)))
            .collect();
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
        self.choose(index, 0, &labels, uniform)
    }

    /// Adds the blocks that choose one of at least two labels, of which the first has the number `first`: one
    /// block fewer than there are labels. What CUDA leaves undefined, a number beyond the list, goes to the
    /// last label.
    fn choose(&mut self, index: Reg, first: u32, labels: &[Target], uniform: bool) -> Result<(), PtxError> {
        let (low, high) = labels.split_at(labels.len() / 2);
        let middle = first + low.len() as u32;
        let below = self.register(Class::Pred)?;
        self.push(Op::Setp {
            compare: Compare::Lt,
            ty: Ty::U32,
            ftz: false,
            combine: None,
            dst: Some(below),
            complement: None,
            a: Operand::Reg(index),
            b: Operand::Imm(u64::from(middle)),
        });
        let next = self.flow.open() + 1;
        let way = |labels: &[Target], block| if let [only] = *labels { only } else { Target::Block(block) };
        let guard = Guard { reg: below, negated: false };
        let (then, otherwise) = (way(low, next), way(high, next + low.len() as u32 - 1));
        self.flow.close(End::Branch { guard, uniform, then, otherwise }, self.place.1);
        for (first, labels) in [(first, low), (middle, high)] {
            if labels.len() > 1 {
                self.choose(index, first, labels, uniform)?;
            }
        }
        Ok(())
    }

    /// Reads the labels of a `.branchtargets`, whose own label and word have been taken.
    pub(super) fn branch_targets(&mut self, label: &'t [u8]) -> Result<(), PtxError> {
        let mut labels = vec![variable::name(&mut self.tokens)?];
        while self.tokens.take(b',')? {
            labels.push(variable::name(&mut self.tokens)?);
        }
        self.branches.push(labels);
        self.declare(label, Symbol::Branches(self.branches.len() - 1))
    }
}
