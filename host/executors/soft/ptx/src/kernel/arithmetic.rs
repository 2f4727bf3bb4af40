//! Parser of arithmetic, logic, shifts and bit fields (PTX ISA, sections "Integer Arithmetic", "Floating
//! Point", "Half Precision Floating Point" and "Logic and Shift Instructions").

use crate::error::PtxError;
use crate::ir::{Binary, Combine, Float, Half, Op, Operand, Permute, Ty, Unary};
use crate::kernel::Parser;
use crate::kernel::spelling::{BITS, FLOATS, INTEGERS, Modifiers, PLAIN, Spelling, class, wider};
use crate::kernel::synthetic::arithmetic;

const WORDS: &[Ty] = &[Ty::B32, Ty::B64];
const SIGNEDNESS: &[Ty] = &[Ty::U32, Ty::S32, Ty::U64, Ty::S64];
/// Types of the approximations that also exist for 16-bit formats: `tanh.approx` and `ex2.approx`.
const SHORT: &[Ty] = &[Ty::F32, Ty::F16, Ty::F16x2, Ty::Bf16, Ty::Bf16x2];

impl<'t> Parser<'t> {
    /// Reads an instruction of these families. Fails with [`PtxError::Unsupported`] if the ISA or this front
    /// end has no such instruction.
    pub fn arithmetic(&mut self, mut spelling: Spelling<'t>) -> Result<Op, PtxError> {
        let s = &mut spelling;
        match s.base {
            b"add" => self.sum(s, Binary::Add),
            b"sub" => self.sum(s, Binary::Sub),
            b"mul" => self.product(s),
            b"mad" => self.mad(s),
            b"fma" => self.fma(s),
            b"div" => self.quotient(s),
            b"rem" => {
                let ty = self.last(s, INTEGERS)?;
                self.binary(Binary::Rem, ty, PLAIN)
            }
            b"sad" => self.difference(s),
            b"min" => self.extreme(s, Binary::Min, Binary::MinNan),
            b"max" => self.extreme(s, Binary::Max, Binary::MaxNan),
            b"abs" => self.sign(s, Unary::Abs),
            b"neg" => self.sign(s, Unary::Neg),
            b"copysign" => {
                let ty = self.last(s, &[Ty::F32, Ty::F64])?;
                self.binary(Binary::CopySign, ty, PLAIN)
            }
            b"rcp" => self.root(s, Unary::Rcp, Unary::RcpApprox),
            b"sqrt" => self.root(s, Unary::Sqrt, Unary::SqrtApprox),
            b"rsqrt" => self.approximate(s, Unary::RsqrtApprox, &[Ty::F32, Ty::F64]),
            b"sin" => self.approximate(s, Unary::SinApprox, &[Ty::F32]),
            b"cos" => self.approximate(s, Unary::CosApprox, &[Ty::F32]),
            b"lg2" => self.approximate(s, Unary::Lg2Approx, &[Ty::F32]),
            b"ex2" => self.approximate(s, Unary::Ex2Approx, SHORT),
            b"tanh" => self.approximate(s, Unary::TanhApprox, SHORT),
            b"and" => self.logic(s, Binary::And, Combine::And),
            b"or" => self.logic(s, Binary::Or, Combine::Or),
            b"xor" => self.logic(s, Binary::Xor, Combine::Xor),
            b"not" if s.peek() == Some(b"pred") => self.not_predicate(s),
            b"not" => self.unary_of(s, Unary::Not, BITS),
            b"cnot" => self.unary_of(s, Unary::Cnot, BITS),
            b"brev" => self.unary_of(s, Unary::Brev, WORDS),
            b"popc" => self.count(s, Unary::Popc),
            b"clz" => self.count(s, Unary::Clz),
            b"shl" => self.shift(s, Binary::Shl, &[BITS]),
            b"shr" => self.shift(s, Binary::Shr, &[BITS, INTEGERS]),
            b"shf" => self.funnel(s),
            b"lop3" => self.lop3(s),
            b"prmt" => self.permute(s),
            b"bfe" => self.extract(s),
            b"bfi" => self.insert(s),
            b"bfind" => self.find_bit(s),
            b"bmsk" => self.bit_mask(s),
            b"dp4a" => self.dp4a(s),
            b"dp2a" => self.dp2a(s),
            _ => Err(self.unsupported()),
        }
    }

    fn unary(&mut self, op: Unary, ty: Ty, float: Float) -> Result<Op, PtxError> {
        let dst = self.dst(ty)?;
        let a = self.src(ty)?;
        Ok(Op::Unary { op, ty, float, dst, a })
    }

    fn unary_of(&mut self, s: &mut Spelling<'_>, op: Unary, allowed: &[Ty]) -> Result<Op, PtxError> {
        let ty = self.last(s, allowed)?;
        self.unary(op, ty, PLAIN)
    }

    fn binary(&mut self, op: Binary, ty: Ty, float: Float) -> Result<Op, PtxError> {
        let dst = self.dst(ty)?;
        let [a, b] = self.sources([ty; 2])?;
        Ok(Op::Binary { op, ty, float, dst, a, b })
    }

    /// Reads the last modifier, a floating-point type of the list, for which the preceding modifiers must be
    /// allowed.
    fn float(&self, s: &mut Spelling<'_>, modifiers: Modifiers, allowed: &[Ty]) -> Result<Ty, PtxError> {
        let ty = self.last(s, allowed)?;
        self.require(modifiers.fit(ty))?;
        Ok(ty)
    }

    /// Reads `add` or `sub`. Of integers, only `.s32` may saturate.
    fn sum(&mut self, s: &mut Spelling<'_>, op: Binary) -> Result<Op, PtxError> {
        let modifiers = s.modifiers();
        let ty = self.last_of(s, &[INTEGERS, FLOATS])?;
        let saturated = Modifiers { round: None, ftz: false, sat: true };
        self.require(modifiers.fit(ty) || (ty == Ty::S32 && modifiers == saturated))?;
        self.binary(op, ty, modifiers.into())
    }

    fn half(s: &mut Spelling<'_>) -> Option<Half> {
        s.pick(&[("lo", Half::Lo), ("hi", Half::Hi), ("wide", Half::Wide)])
    }

    /// Reads the type of an integer product. Returns it with the type of the result, twice as wide for
    /// [`Half::Wide`].
    fn halves(&self, s: &mut Spelling<'_>, half: Half) -> Result<(Ty, Ty), PtxError> {
        let ty = self.last(s, INTEGERS)?;
        match half {
            Half::Wide if ty.bytes() == 8 => Err(self.unsupported()),
            Half::Wide => Ok((ty, wider(ty))),
            Half::Lo | Half::Hi => Ok((ty, ty)),
        }
    }

    fn product(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        if let Some(half) = Self::half(s) {
            let (ty, sum) = self.halves(s, half)?;
            let dst = self.dst(sum)?;
            let [a, b] = self.sources([ty; 2])?;
            return Ok(Op::Mul { half, ty, dst, a, b });
        }
        let modifiers = s.modifiers();
        let ty = self.float(s, modifiers, FLOATS)?;
        self.binary(Binary::Mul, ty, modifiers.into())
    }

    fn mad(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        let Some(half) = Self::half(s) else {
            return self.fma(s);
        };
        let sat = s.accept("sat");
        let (ty, sum) = self.halves(s, half)?;
        self.require(!sat || (half, ty) == (Half::Hi, Ty::S32))?;
        let dst = self.dst(sum)?;
        let [a, b, c] = self.sources([ty, ty, sum])?;
        Ok(Op::Mad { half, ty, sat, dst, a, b, c })
    }

    /// Reads `fma`, or `mad` of floating-point numbers. The text must state the rounding.
    fn fma(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        let modifiers = s.modifiers();
        let relu = s.accept("relu");
        let ty = self.float(s, modifiers, FLOATS)?;
        let packed = !matches!(ty, Ty::F32 | Ty::F64);
        self.require(modifiers.round.is_some() && (!relu || (packed && !modifiers.sat)))?;
        let dst = self.dst(ty)?;
        let [a, b, c] = self.sources([ty; 3])?;
        Ok(Op::Fma { ty, float: modifiers.into(), relu, dst, a, b, c })
    }

    /// Reads `sad`, the sum of `c` and the distance of `a` and `b`. It is composed of instructions that
    /// engines have.
    fn difference(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        let ty = self.last(s, INTEGERS)?;
        let dst = self.dst(ty)?;
        let [a, b, c] = self.sources([ty; 3])?;
        let mut step = |op: Binary, a: Operand, b: Operand| {
            let dst = self.register(class(ty))?;
            self.push(arithmetic(op, ty, dst, a, b));
            Ok::<_, PtxError>(Operand::Reg(dst))
        };
        let (low, high) = (step(Binary::Min, a, b)?, step(Binary::Max, a, b)?);
        let distance = step(Binary::Sub, high, low)?;
        Ok(arithmetic(Binary::Add, ty, dst, distance, c))
    }

    fn quotient(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        if let Some(op) = s.pick(&[("approx", Binary::DivApprox), ("full", Binary::DivFull)]) {
            let modifiers = Modifiers { round: None, ftz: s.accept("ftz"), sat: false };
            let ty = self.last(s, &[Ty::F32])?;
            return self.binary(op, ty, modifiers.into());
        }
        let Some(round) = s.round() else {
            let ty = self.last(s, INTEGERS)?;
            return self.binary(Binary::Div, ty, PLAIN);
        };
        let modifiers = Modifiers { round: Some(round), ftz: s.accept("ftz"), sat: false };
        let ty = self.float(s, modifiers, &[Ty::F32, Ty::F64])?;
        self.binary(Binary::Div, ty, modifiers.into())
    }

    fn extreme(&mut self, s: &mut Spelling<'_>, op: Binary, nan: Binary) -> Result<Op, PtxError> {
        let modifiers = Modifiers { round: None, ftz: s.accept("ftz"), sat: false };
        let or_nan = s.accept("NaN");
        let ty = self.last_of(s, &[INTEGERS, FLOATS])?;
        self.require(modifiers.fit(ty) && (!or_nan || (ty.float() && ty != Ty::F64)))?;
        self.binary(if or_nan { nan } else { op }, ty, modifiers.into())
    }

    fn sign(&mut self, s: &mut Spelling<'_>, op: Unary) -> Result<Op, PtxError> {
        let modifiers = Modifiers { round: None, ftz: s.accept("ftz"), sat: false };
        let ty = self.last_of(s, &[&[Ty::S16, Ty::S32, Ty::S64], FLOATS])?;
        self.require(modifiers.fit(ty))?;
        self.unary(op, ty, modifiers.into())
    }

    /// Reads `rcp` or `sqrt`: `exact` if the text states a rounding, `approximate` for `.approx`.
    fn root(&mut self, s: &mut Spelling<'_>, exact: Unary, approximate: Unary) -> Result<Op, PtxError> {
        if s.peek() == Some(b"approx") {
            return self.approximate(s, approximate, &[Ty::F32, Ty::F64]);
        }
        let round = self.known(s.round())?;
        let modifiers = Modifiers { round: Some(round), ftz: s.accept("ftz"), sat: false };
        let ty = self.float(s, modifiers, &[Ty::F32, Ty::F64])?;
        self.unary(exact, ty, modifiers.into())
    }

    fn approximate(&mut self, s: &mut Spelling<'_>, op: Unary, allowed: &[Ty]) -> Result<Op, PtxError> {
        self.require(s.accept("approx"))?;
        let modifiers = Modifiers { round: None, ftz: s.accept("ftz"), sat: false };
        let ty = self.last(s, allowed)?;
        let fits = match ty {
            // `ex2` of bfloat16 always flushes subnormal numbers, and `tanh` of short formats never does.
            Ty::Bf16 | Ty::Bf16x2 => modifiers.ftz == (op == Unary::Ex2Approx),
            Ty::F16 | Ty::F16x2 => !modifiers.ftz || op == Unary::Ex2Approx,
            Ty::F64 => match op {
                Unary::RcpApprox => modifiers.ftz,
                Unary::RsqrtApprox => true,
                _ => false,
            },
            _ => true,
        };
        self.require(fits)?;
        self.unary(op, ty, modifiers.into())
    }

    fn logic(&mut self, s: &mut Spelling<'_>, op: Binary, predicates: Combine) -> Result<Op, PtxError> {
        let ty = self.last_of(s, &[&[Ty::Pred], BITS])?;
        if ty != Ty::Pred {
            return self.binary(op, ty, PLAIN);
        }
        let dst = self.dst(Ty::Pred)?;
        self.comma()?;
        let a = self.guard()?;
        self.comma()?;
        let b = self.guard()?;
        Ok(Op::PredBinary { op: predicates, dst, a, b })
    }

    fn not_predicate(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        self.last(s, &[Ty::Pred])?;
        let dst = self.dst(Ty::Pred)?;
        self.comma()?;
        let mut src = self.guard()?;
        src.negated = !src.negated;
        Ok(Op::PredMov { dst, src })
    }

    /// Reads `popc` or `clz`, whose result has 32 bits.
    fn count(&mut self, s: &mut Spelling<'_>, op: Unary) -> Result<Op, PtxError> {
        let ty = self.last(s, WORDS)?;
        let dst = self.dst(Ty::U32)?;
        let a = self.src(ty)?;
        Ok(Op::Unary { op, ty, float: PLAIN, dst, a })
    }

    /// Reads a shift. The amount has 32 bits for all types.
    fn shift(&mut self, s: &mut Spelling<'_>, op: Binary, allowed: &[&[Ty]]) -> Result<Op, PtxError> {
        let ty = self.last_of(s, allowed)?;
        let dst = self.dst(ty)?;
        let [a, b] = self.sources([ty, Ty::U32])?;
        Ok(arithmetic(op, ty, dst, a, b))
    }

    fn funnel(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        let left = self.known(s.pick(&[("l", true), ("r", false)]))?;
        let wrap = self.known(s.pick(&[("wrap", true), ("clamp", false)]))?;
        self.last(s, &[Ty::B32])?;
        let dst = self.dst(Ty::B32)?;
        let [a, b, c] = self.sources([Ty::B32; 3])?;
        Ok(Op::Shf { left, wrap, dst, a, b, c })
    }

    fn lop3(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        self.last(s, &[Ty::B32])?;
        let dst = self.dst(Ty::B32)?;
        let [a, b, c] = self.sources([Ty::B32; 3])?;
        match self.src(Ty::U32)? {
            Operand::Imm(table @ 0..=255) => Ok(Op::Lop3 { table: table as u8, dst, a, b, c }),
            _ => Err(self.tokens.error_at(self.place, "expected a truth table, a constant of 0 to 255")),
        }
    }

    fn permute(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        self.require(s.ty() == Some(Ty::B32))?;
        let mode = s.pick(&[
            ("f4e", Permute::F4e),
            ("b4e", Permute::B4e),
            ("rc8", Permute::Rc8),
            ("ecl", Permute::Ecl),
            ("ecr", Permute::Ecr),
            ("rc16", Permute::Rc16),
        ]);
        self.done(s)?;
        let dst = self.dst(Ty::B32)?;
        let [a, b, c] = self.sources([Ty::B32; 3])?;
        Ok(Op::Prmt { mode: mode.unwrap_or(Permute::Any), dst, a, b, c })
    }

    fn extract(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        let ty = self.last(s, SIGNEDNESS)?;
        let dst = self.dst(ty)?;
        let [a, b, c] = self.sources([ty, Ty::U32, Ty::U32])?;
        Ok(Op::Bfe { ty, dst, a, b, c })
    }

    #[allow(clippy::many_single_char_names, reason = "operands have the names of the PTX ISA")]
    fn insert(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        let ty = self.last(s, WORDS)?;
        let dst = self.dst(ty)?;
        let [a, b, c, d] = self.sources([ty, ty, Ty::U32, Ty::U32])?;
        Ok(Op::Bfi { ty, dst, a, b, c, d })
    }

    fn find_bit(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        let shift = s.accept("shiftamt");
        let ty = self.last(s, SIGNEDNESS)?;
        let dst = self.dst(Ty::U32)?;
        let a = self.src(ty)?;
        Ok(Op::Bfind { ty, shift, dst, a })
    }

    fn bit_mask(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        let wrap = self.known(s.pick(&[("wrap", true), ("clamp", false)]))?;
        self.last(s, &[Ty::B32])?;
        let dst = self.dst(Ty::B32)?;
        let [a, b] = self.sources([Ty::B32; 2])?;
        Ok(Op::Bmsk { wrap, dst, a, b })
    }

    fn signs(&self, s: &mut Spelling<'_>) -> Result<[bool; 2], PtxError> {
        let one = |s: &mut Spelling<'_>| s.pick(&[("u32", false), ("s32", true)]);
        let signs = [self.known(one(s))?, self.known(one(s))?];
        self.done(s)?;
        Ok(signs)
    }

    fn dp4a(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        let signed = self.signs(s)?;
        let dst = self.dst(Ty::B32)?;
        let [a, b, c] = self.sources([Ty::B32; 3])?;
        Ok(Op::Dp4a { signed, dst, a, b, c })
    }

    fn dp2a(&mut self, s: &mut Spelling<'_>) -> Result<Op, PtxError> {
        let high = self.known(s.pick(&[("lo", false), ("hi", true)]))?;
        let signed = self.signs(s)?;
        let dst = self.dst(Ty::B32)?;
        let [a, b, c] = self.sources([Ty::B32; 3])?;
        Ok(Op::Dp2a { signed, high, dst, a, b, c })
    }
}
