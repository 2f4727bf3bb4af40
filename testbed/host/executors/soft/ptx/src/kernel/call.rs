//! Calls. The only function that a kernel can call is `vprintf`.
//!
//! nvcc declares parameters for each call (`.param .b64 param0; st.param.b64 [param0+0], %rd1;`), which
//! become registers here.

use crate::error::PtxError;
use crate::ir::{Class, Op, Operand, Reg};
use crate::kernel::Parser;
use crate::kernel::spelling::Spelling;
use crate::kernel::symbols::Symbol;
use crate::variable;

impl<'t> Parser<'t> {
    /// Reads `(retval), function, (parameters)`.
    pub fn call(&mut self, mut s: Spelling<'t>) -> Result<(), PtxError> {
        s.take("uni");
        self.done(&s)?;
        let results = if self.tokens.peek() == crate::lex::Token::Mark(b'(') {
            let results = self.call_params()?;
            self.comma()?;
            results
        } else {
            Vec::new()
        };
        let name = self.tokens.word("a function")?;
        if name != b"vprintf" {
            let spelling = format!("call {}", String::from_utf8_lossy(name));
            return Err(self.tokens.unsupported(self.place, spelling));
        }
        self.comma()?;
        let params = self.call_params()?;
        let (&[format, arguments], &([] | [_])) = (&params[..], &results[..]) else {
            return Err(self.tokens.error_at(self.place, "vprintf has two parameters and one result"));
        };
        let wide = [format, arguments].map(|reg| self.scopes.class(reg));
        if wide != [Class::B64; 2] || results.iter().any(|&reg| self.scopes.class(reg) != Class::B32) {
            return Err(self
                .tokens
                .error_at(self.place, "vprintf has parameters of 64 bits and a result of 32"));
        }
        let (format, arguments) = (Operand::Reg(format), Operand::Reg(arguments));
        self.flow.push(Op::Printf { dst: results.first().copied(), format, arguments }, self.place.1);
        Ok(())
    }

    /// Reads `(param0, param1)`.
    fn call_params(&mut self) -> Result<Vec<Reg>, PtxError> {
        self.tokens.expect(b'(')?;
        let mut params = Vec::new();
        if self.tokens.take(b')')? {
            return Ok(params);
        }
        loop {
            let place = self.tokens.place();
            let name = variable::name(&mut self.tokens)?;
            match self.scopes.find(name) {
                Some(Symbol::CallParam(reg)) => params.push(reg),
                Some(_) => return Err(self.tokens.error_at(place, "expected a parameter of a call")),
                None => return Err(self.tokens.undeclared(place, name)),
            }
            if !self.tokens.take(b',')? {
                self.tokens.expect(b')')?;
                return Ok(params);
            }
        }
    }
}
