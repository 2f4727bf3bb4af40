//! Calls: of `vprintf`, which the device has, and of functions of the module, whose bodies take the place of
//! the call.
//!
//! nvcc declares parameters for each call (`.param .b64 param0; st.param.b64 [param0+0], %rd1;`), which
//! become registers here. Those of the function are other names of the same registers: a function does not
//! write its parameters.

use crate::error::PtxError;
use crate::ir::{Class, Guard, Op, Operand, Reg};
use crate::kernel::Parser;
use crate::kernel::flow::{End, Target};
use crate::kernel::spelling::{Spelling, class};
use crate::kernel::symbols::{SCOPES_MOST, Symbol};
use crate::lex::{Place, Token};
use crate::symbol::ModuleSymbol;
use crate::variable::{self, Declaration};

/// The deepest nest of calls. A function that calls itself has no body that could take its place.
const CALLS_MOST: usize = 24;
/// Label behind a call that is guarded, and behind a function's body. No text can have one of these names.
const AFTER: &[u8] = b"<after>";
const RETURN: &[u8] = b"<return>";

impl<'t> Parser<'t> {
    /// Reads `(retval), function, (parameters)`.
    pub fn call(&mut self, mut s: Spelling<'t>, guard: Option<Guard>) -> Result<(), PtxError> {
        s.take("uni");
        self.done(&s)?;
        let (place, word) = (self.place, self.word);
        if let Some(guard) = guard {
            // A scope of its own for the label.
            self.scopes.open();
            let otherwise = Target::Label(self.scopes.refer(AFTER, place));
            let then = Target::Block(self.flow.open() + 1);
            self.flow.close(End::Branch { guard, uniform: false, then, otherwise }, place.1);
        }
        self.unguarded()?;
        (self.place, self.word) = (place, word);
        if guard.is_some() {
            let block = self.flow.label(place.1);
            self.scopes.label(AFTER, block);
            self.scopes.close();
        }
        Ok(())
    }

    fn unguarded(&mut self) -> Result<(), PtxError> {
        let results = if self.tokens.peek() == Token::Mark(b'(') {
            let results = self.call_params()?;
            self.comma()?;
            results
        } else {
            Vec::new()
        };
        let name = self.tokens.word("a function")?;
        let params = if self.tokens.take(b',')? { self.call_params()? } else { Vec::new() };
        match self.module.get(name) {
            Some(&ModuleSymbol::Function(place)) => self.take_in(name, place, &results, &params),
            _ if name == b"vprintf" => self.vprintf(&results, &params),
            _ => Err(self.no_call(name)),
        }
    }

    fn no_call(&self, name: &[u8]) -> PtxError {
        self.tokens.unsupported(self.place, format!("call {}", String::from_utf8_lossy(name)))
    }

    fn vprintf(&mut self, results: &[Reg], params: &[Reg]) -> Result<(), PtxError> {
        let (&[format, arguments], &([] | [_])) = (params, results) else {
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

    /// Reads a function's body in the place of a call.
    fn take_in(
        &mut self,
        name: &'t [u8],
        place: Place,
        results: &[Reg],
        params: &[Reg],
    ) -> Result<(), PtxError> {
        if self.calls.len() == CALLS_MOST || self.calls.contains(&name) {
            return Err(self.no_call(name));
        }
        if self.scopes.depth() as u64 >= SCOPES_MOST {
            return Err(self.tokens.limit("nested scopes", SCOPES_MOST));
        }
        let elsewhere = self.tokens.elsewhere(place)?;
        let tokens = std::mem::replace(&mut self.tokens, elsewhere);
        let base = std::mem::replace(&mut self.base, self.scopes.depth() + 1);
        self.calls.push(name);
        self.scopes.open_function();
        if self.tokens.peek() == Token::Mark(b'(') {
            self.formals(results)?;
        } else if !results.is_empty() {
            return Err(self.tokens.error("the function returns nothing"));
        }
        variable::name(&mut self.tokens)?;
        if self.tokens.peek() == Token::Mark(b'(') {
            self.formals(params)?;
        } else if !params.is_empty() {
            return Err(self.tokens.error("the function has no parameters"));
        }
        self.performance()?;
        self.tokens.expect(b'{')?;
        self.body()?;
        let block = self.flow.label(self.tokens.line());
        self.scopes.label(RETURN, block);
        self.scopes.close();
        self.calls.pop();
        (self.tokens, self.base) = (tokens, base);
        Ok(())
    }

    /// Reads the parameters that a function has, as names of the registers that the call has.
    fn formals(&mut self, actual: &[Reg]) -> Result<(), PtxError> {
        self.tokens.expect(b'(')?;
        let mut actual = actual.iter();
        if self.tokens.take(b')')? {
            return Ok(());
        }
        loop {
            let place = self.tokens.place();
            if !self.tokens.take_word(b".param")? {
                return Err(self.tokens.expected("`.param`"));
            }
            let prefix = variable::prefix(&mut self.tokens)?;
            let Declaration { name, ty, array, .. } = variable::declarator(&mut self.tokens, prefix)?;
            if array || ty.bytes() < 4 {
                return Err(self.tokens.error_at(place, "a call can only have parameters of 32 or 64 bits"));
            }
            let reg = actual.next().copied().filter(|&reg| self.scopes.class(reg) == class(ty));
            let reg =
                reg.ok_or_else(|| self.tokens.error_at(place, "the call has another parameter here"))?;
            self.declare(name, Symbol::CallParam(reg))?;
            if !self.tokens.take(b',')? {
                self.tokens.expect(b')')?;
                break;
            }
        }
        if actual.next().is_some() {
            return Err(self.tokens.error("the call has more parameters than the function"));
        }
        Ok(())
    }

    /// How `ret` ends a block: of a kernel the lane ends, of a function it goes on behind the body.
    pub fn end_of_body(&mut self) -> End {
        if self.calls.is_empty() {
            return End::Return;
        }
        End::Goto(Target::Label(self.scopes.refer(RETURN, self.place)))
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
