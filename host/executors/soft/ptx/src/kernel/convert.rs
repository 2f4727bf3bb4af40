//! Parser of moves and conversions (PTX ISA, section "Data Movement and Conversion Instructions").

use crate::error::PtxError;
use crate::ir::{Class, Eighth, Op, Operand, Round, Space, Ty};
use crate::kernel::Parser;
use crate::kernel::memory::SPACES;
use crate::kernel::operands::Width;
use crate::kernel::spelling::{ANY, Spelling};
use crate::lex::Token;
use crate::literal::Literal;

/// Types between which `cvt` converts, besides those of 8-bit floating-point numbers.
const CONVERTED: &[Ty] = &[
    Ty::U8,
    Ty::U16,
    Ty::U32,
    Ty::U64,
    Ty::S8,
    Ty::S16,
    Ty::S32,
    Ty::S64,
    Ty::F16,
    Ty::Bf16,
    Ty::F32,
    Ty::F64,
];

impl<'t> Parser<'t> {
    /// Reads `mov` of registers, constants and addresses, and its forms that pack and unpack a register.
    pub fn mov(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let ty = self.last_of(&mut s, &[&[Ty::Pred], ANY])?;
        if ty == Ty::Pred {
            return self.mov_predicate();
        }
        if self.tokens.peek() == Token::Mark(b'{') {
            let part = self.part(ty)?;
            let dst = self.vector(|parser| parser.sink(part, Width::Same))?;
            let src = self.src(ty)?;
            return Ok(Op::Unpack { ty, dst, src });
        }
        let dst = self.dst(ty)?;
        self.comma()?;
        if self.tokens.peek() != Token::Mark(b'{') {
            let src = self.operand(ty, Width::Same)?;
            return Ok(Op::Mov { ty, dst, src });
        }
        let part = self.part(ty)?;
        let src = self.vector(|parser| parser.operand(part, Width::Same))?;
        Ok(Op::Pack { ty, dst, src })
    }

    /// Returns the type of each element that `ty` is packed from or unpacked to. It depends on the number of
    /// elements in the braces that follow.
    fn part(&self, ty: Ty) -> Result<Ty, PtxError> {
        let mut ahead = self.tokens.clone();
        let mut count = 1;
        loop {
            match ahead.next()? {
                Token::Mark(b',') => count += 1,
                Token::Mark(b'}' | b';') | Token::End => break,
                _ => {}
            }
        }
        match (ty.bytes(), count) {
            (8, 2) => Ok(Ty::B32),
            (8, 4) | (4, 2) => Ok(Ty::B16),
            (8, 8) | (4, 4) | (2, 2) => Ok(Ty::B8),
            (bytes, _) => Err(self.tokens.error(format!("{} bits have no {count} parts", 8 * bytes))),
        }
    }

    fn mov_predicate(&mut self) -> Result<Op, PtxError> {
        let dst = self.dst(Ty::Pred)?;
        self.comma()?;
        if let Token::Word(word) = self.tokens.peek()
            && let Some(Literal::Integer(value)) = Literal::parse(word)
        {
            self.tokens.next()?;
            return Ok(Op::PredImm { dst, value: value != 0 });
        }
        if self.tokens.accept(b'-')? {
            // The constant is `-1`, which is true.
            let word = self.tokens.word("a constant")?;
            let Some(Literal::Integer(value)) = Literal::parse(word) else {
                return Err(self.tokens.error_at(self.place, "expected a constant"));
            };
            return Ok(Op::PredImm { dst, value: value != 0 });
        }
        Ok(Op::PredMov { dst, src: self.guard()? })
    }

    /// Reads `cvt`, whose modifiers depend on the types.
    pub fn convert(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let float_round = s.round();
        let integer_round = s.pick(&[
            ("rni", Round::Nearest),
            ("rzi", Round::Zero),
            ("rmi", Round::Down),
            ("rpi", Round::Up),
        ]);
        if integer_round.is_none() {
            if let Some(op) = self.convert_tf32(s, float_round)? {
                return Ok(op);
            }
            if let Some(op) = self.convert_eighths(s, float_round)? {
                return Ok(op);
            }
        }
        let relu = s.accept("relu");
        let ftz = s.accept("ftz");
        let sat = s.accept("sat");
        let to = self.known(s.ty())?;
        let from = self.last(&mut s, CONVERTED)?;
        let round = float_round.or(integer_round);
        if let (Ty::F16x2 | Ty::Bf16x2, Ty::F32, Some(round @ (Round::Nearest | Round::Zero))) =
            (to, from, float_round)
            && integer_round.is_none()
            && !ftz
            && !sat
        {
            let dst = self.dst(to)?;
            let [a, b] = self.sources([from; 2])?;
            return Ok(Op::CvtPack { to, round, relu, dst, a, b });
        }
        if let (true, Ty::F16 | Ty::Bf16, Ty::F32, Some(round @ (Round::Nearest | Round::Zero))) =
            (relu && !ftz && !sat, to, from, round)
        {
            return self.convert_positive(to, round);
        }
        let integral = integer_round.is_some() && to.float();
        let fits = CONVERTED.contains(&to)
            && !relu
            && !(float_round.is_some() && integer_round.is_some())
            && rounding_fits(to, from, float_round.is_some(), integer_round.is_some())
            && (!ftz || to == Ty::F32 || from == Ty::F32);
        self.require(fits)?;
        let dst = self.reg(to, Width::AtLeast)?;
        self.comma()?;
        let src = self.operand(from, Width::AtLeast)?;
        Ok(Op::Cvt { to, from, round, integral, ftz, sat, dst, src })
    }

    /// Reads `cvt.rn.relu.f16.f32` and similar. The conversion uses the lower half of the one that packs two
    /// numbers.
    fn convert_positive(&mut self, to: Ty, round: Round) -> Result<Op, PtxError> {
        let dst = self.dst(to)?;
        let b = self.src(Ty::F32)?;
        let pair = self.register(Class::B32)?;
        let to = if to == Ty::F16 { Ty::F16x2 } else { Ty::Bf16x2 };
        self.push(Op::CvtPack { to, round, relu: true, dst: pair, a: Operand::Imm(0), b });
        Ok(Op::Unpack { ty: Ty::B32, dst: vec![Some(dst), None], src: Operand::Reg(pair) })
    }

    /// Reads `cvt` to `.tf32` from the modifier after its rounding on. Returns `None` if it is another
    /// conversion.
    fn convert_tf32(&mut self, mut s: Spelling<'t>, round: Option<Round>) -> Result<Option<Op>, PtxError> {
        let away = round.is_none() && s.accept("rna");
        let finite = s.accept("satfinite");
        let relu = s.accept("relu");
        if !s.accept("tf32") {
            return Ok(None);
        }
        self.last(&mut s, &[Ty::F32])?;
        let fits = match round {
            None => away && !relu,
            Some(round) => matches!(round, Round::Nearest | Round::Zero),
        };
        self.require(fits)?;
        let dst = self.dst(Ty::B32)?;
        Ok(Some(Op::ToTf32 { round, relu, finite, dst, src: self.src(Ty::F32)? }))
    }

    /// Reads `cvt` from or to two numbers of 8 bits, from the modifier after its rounding on. Returns `None`
    /// if it is another conversion.
    fn convert_eighths(&mut self, mut s: Spelling<'t>, round: Option<Round>) -> Result<Option<Op>, PtxError> {
        const EIGHTHS: &[(&str, Eighth)] = &[("e4m3x2", Eighth::E4m3), ("e5m2x2", Eighth::E5m2)];
        let finite = s.accept("satfinite");
        let relu = s.accept("relu");
        if let Some(to) = s.pick(EIGHTHS) {
            let from = self.last(&mut s, &[Ty::F32, Ty::F16x2])?;
            self.require(finite && round == Some(Round::Nearest))?;
            let dst = self.dst(Ty::B16)?;
            let a = self.src(from)?;
            let b = if from == Ty::F32 { Some(self.src(from)?) } else { None };
            return Ok(Some(Op::ToEighths { to, relu, dst, a, b }));
        }
        let halves = s.accept("f16x2");
        let Some(from) = s.pick(EIGHTHS) else { return Ok(None) };
        self.done(&s)?;
        self.require(!finite && halves && round == Some(Round::Nearest))?;
        let dst = self.dst(Ty::F16x2)?;
        Ok(Some(Op::FromEighths { from, relu, dst, src: self.src(Ty::B16)? }))
    }

    /// Reads `cvta`, which converts between an address in a space and a generic one.
    pub fn convert_address(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let to = s.accept("to");
        let space = self.known(s.pick(&SPACES[..7]))?;
        let ty = self.last(&mut s, &[Ty::U64])?;
        let dst = self.dst(ty)?;
        let src = self.src(ty)?;
        // An address of global memory equals its generic address.
        if space == Space::Global {
            return Ok(Op::Mov { ty, dst, src });
        }
        Ok(Op::Cvta { space, to, dst, src })
    }

    /// Reads `isspacep`, which tests the state space of a generic address.
    pub fn is_space(&mut self, mut s: Spelling<'t>) -> Result<Op, PtxError> {
        let space = self.known(s.pick(&SPACES[1..7]))?;
        self.done(&s)?;
        let dst = self.dst(Ty::Pred)?;
        Ok(Op::IsSpace { space, dst, src: self.src(Ty::U64)? })
    }
}

/// Returns whether a conversion may have this kind of rounding, `.rn` (`float`) or `.rni` (`integer`), and
/// has one if it must.
fn rounding_fits(to: Ty, from: Ty, float: bool, integer: bool) -> bool {
    // Number of bits of the significand, including the hidden one.
    let precision = |ty: Ty| match ty {
        Ty::Bf16 => 8,
        Ty::F16 => 11,
        Ty::F32 => 24,
        _ => 53,
    };
    match (to.float(), from.float()) {
        (true, false) => float,
        (false, true) => integer,
        // A conversion to a narrower type must state the rounding. One to the same type may only round to an
        // integer.
        (true, true) if to == from => !float,
        (true, true) if (to, from) == (Ty::F16, Ty::Bf16) || (to, from) == (Ty::Bf16, Ty::F16) => float,
        (true, true) if precision(to) < precision(from) => float && !integer,
        (false, false) | (true, true) => !float && !integer,
    }
}
