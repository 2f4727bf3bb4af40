//! Parser of comparisons and selections (PTX ISA, section "Comparison and Selection Instructions").

use crate::error::PtxError;
use crate::ir::{Combine, Compare, Guard, Op, Ty};
use crate::kernel::Parser;
use crate::kernel::operands::Width;
use crate::kernel::spelling::{ANY, Spelling};

/// Types that can be compared: all but predicates and types of 8 bits.
const COMPARED: &[Ty] = ANY;

/// Comparison operator of the text, with its modifiers.
#[derive(Clone, Copy, Debug)]
struct Comparison {
    compare: Compare,
    /// Whether the operator is `lo`, `ls`, `hi` or `hs`, which compare unsigned integers.
    unsigned: bool,
    combine: Option<Combine>,
    ftz: bool,
}

impl Comparison {
    fn parse(s: &mut Spelling<'_>) -> Option<Self> {
        let (compare, unsigned) = s.pick(&[
            ("eq", (Compare::Eq, false)),
            ("ne", (Compare::Ne, false)),
            ("lt", (Compare::Lt, false)),
            ("le", (Compare::Le, false)),
            ("gt", (Compare::Gt, false)),
            ("ge", (Compare::Ge, false)),
            ("lo", (Compare::Lt, true)),
            ("ls", (Compare::Le, true)),
            ("hi", (Compare::Gt, true)),
            ("hs", (Compare::Ge, true)),
            ("equ", (Compare::Equ, false)),
            ("neu", (Compare::Neu, false)),
            ("ltu", (Compare::Ltu, false)),
            ("leu", (Compare::Leu, false)),
            ("gtu", (Compare::Gtu, false)),
            ("geu", (Compare::Geu, false)),
            ("num", (Compare::Num, false)),
            ("nan", (Compare::Nan, false)),
        ])?;
        let combine = s.pick(&[("and", Combine::And), ("or", Combine::Or), ("xor", Combine::Xor)]);
        Some(Self { compare, unsigned, combine, ftz: s.accept("ftz") })
    }

    /// Returns whether the ISA has this comparison for the type: unsigned operators for unsigned integers,
    /// `num` and `nan` for floating-point types.
    fn fits(self, ty: Ty) -> bool {
        let equality = matches!(self.compare, Compare::Eq | Compare::Ne);
        let ordered =
            equality || matches!(self.compare, Compare::Lt | Compare::Le | Compare::Gt | Compare::Ge);
        match ty {
            Ty::F64 | Ty::Bf16 | Ty::Bf16x2 => !self.unsigned && !self.ftz,
            _ if ty.float() => !self.unsigned,
            _ if self.ftz => false,
            Ty::B16 | Ty::B32 | Ty::B64 => equality,
            Ty::U16 | Ty::U32 | Ty::U64 => ordered,
            _ => ordered && !self.unsigned,
        }
    }
}

impl<'t> Parser<'t> {
    /// Reads the predicate that is combined with the result, if the instruction has a `combine` modifier.
    fn combined(&mut self, combine: Option<Combine>) -> Result<Option<(Combine, Guard)>, PtxError> {
        let Some(combine) = combine else { return Ok(None) };
        self.comma()?;
        Ok(Some((combine, self.guard()?)))
    }

    /// Reads `setp`, with one result or two (`p|q`).
    pub fn setp(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let comparison = self.known(Comparison::parse(&mut s))?;
        let ty = self.last(&mut s, COMPARED)?;
        self.require(comparison.fits(ty))?;
        let dst = self.sink(Ty::Pred, Width::Same)?;
        let complement = if self.tokens.accept(b'|')? { self.sink(Ty::Pred, Width::Same)? } else { None };
        let [a, b] = self.sources([ty; 2])?;
        let combine = self.combined(comparison.combine)?;
        let Comparison { compare, ftz, .. } = comparison;
        Ok(Op::Setp { compare, ty, ftz, combine, dst, complement, a, b })
    }

    /// Reads `set`, whose result is a number.
    pub fn set(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let comparison = self.known(Comparison::parse(&mut s))?;
        let to = self.known(s.ty())?;
        let ty = self.last(&mut s, COMPARED)?;
        // `set` of packed halves would have one result of 32 bits, or one for each half. It is not supported.
        let packed = matches!(ty, Ty::F16x2 | Ty::Bf16x2);
        let results = [Ty::U32, Ty::S32, Ty::F32, Ty::U16, Ty::S16, Ty::F16, Ty::Bf16];
        self.require(comparison.fits(ty) && !packed && results.contains(&to))?;
        let dst = self.dst(to)?;
        let [a, b] = self.sources([ty; 2])?;
        let combine = self.combined(comparison.combine)?;
        let Comparison { compare, ftz, .. } = comparison;
        Ok(Op::Set { compare, ty, to, ftz, combine, dst, a, b })
    }

    /// Reads `selp`, which selects a source by a predicate.
    pub fn selp(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let ty = self.last(&mut s, ANY)?;
        let dst = self.dst(ty)?;
        let [a, b] = self.sources([ty; 2])?;
        self.comma()?;
        let p = self.guard()?;
        Ok(Op::Selp { ty, dst, a, b, p })
    }
}
