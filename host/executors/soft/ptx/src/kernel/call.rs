//! Calls: of functions that the device has, and of those of the module.
//!
//! nvcc declares parameters for each call (`.param .b64 param0; st.param.b64 [param0+0], %rd1;`). Those of 32
//! and 64 bits become registers here, and all others local memory. Where a function's body takes the place of
//! the call, its parameters are other names of the same registers and memory: a function does not write what
//! it is given. Calls that go through an address, and those of a function that is being read already, go to a
//! body of its own instead (see [`super::routine`]).

use std::collections::HashMap;

use crate::error::PtxError;
use crate::ir::{Base, Class, Guard, Op, Operand, Reg};
use crate::kernel::Parser;
use crate::kernel::flow::{End, Target};
use crate::kernel::routines;
use crate::kernel::spelling::{Spelling, class};
use crate::kernel::symbols::{SCOPES_MOST, Symbol};
use crate::lex::{Place, Token, Tokens};
use crate::symbol::ModuleSymbol;
use crate::variable::{self, Declaration};

/// The deepest nest of bodies within bodies.
const NEST_MOST: usize = 24;
/// How often a function's body takes the place of a call. More calls of it go to a body of its own, because
/// functions that call each other twice would make a text that grows with each of them.
const COPIES_MOST: u32 = 64;
/// The most parameters of a function, and the most results.
const FORMALS_MOST: u64 = 1 << 10;
/// Label behind a call that is guarded, and behind a function's body. No text can have one of these names.
const AFTER: &[u8] = b"<after>";
pub(super) const RETURN: &[u8] = b"<return>";

/// What stands for a parameter or a result where a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actual {
    /// A register.
    Reg(Reg),
    /// Local memory.
    Memory { base: Base, offset: i64, bytes: u64 },
}

/// What a parameter or result takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A register of 32 or 64 bits.
    Reg(Class),
    /// Bytes of memory.
    Memory(u64),
}

impl Shape {
    /// The shape of a declared parameter.
    pub fn of(declaration: &Declaration<'_>) -> Self {
        if declaration.array || declaration.ty.bytes() < 4 {
            Self::Memory(declaration.bytes)
        } else {
            Self::Reg(class(declaration.ty))
        }
    }
}

/// A parameter or result as the function declares it.
#[derive(Clone, Copy, Debug)]
pub struct Formal<'t> {
    pub name: &'t [u8],
    pub shape: Shape,
    /// Whether it is a `.reg`, which the function may write.
    pub register: bool,
    pub place: Place,
}

/// What a function declares before its body: results and parameters.
#[derive(Clone, Debug, Default)]
pub struct Header<'t> {
    pub results: Vec<Formal<'t>>,
    pub params: Vec<Formal<'t>>,
}

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
            let results = self.actuals()?;
            self.comma()?;
            results
        } else {
            Vec::new()
        };
        let name = self.tokens.word("a function")?;
        if let Some(Symbol::Reg(address)) = self.scopes.find(name) {
            return self.call_address(address, &results);
        }
        let params = if self.tokens.take(b',')? { self.actuals()? } else { Vec::new() };
        match self.module.get(name) {
            Some(&ModuleSymbol::Function { place, .. }) => {
                let nested = self.calls.len() >= NEST_MOST || self.calls.contains(&name);
                let deep = self.scopes.depth() as u64 + 2 > SCOPES_MOST;
                let copies = self.copies.entry(name).or_default();
                if nested || deep || *copies == COPIES_MOST {
                    return self.call_function(name, place, &results, &params);
                }
                *copies += 1;
                self.take_in(name, place, &results, &params)
            }
            _ => self.system(name, &results, &params),
        }
    }

    /// Calls a function that the device has.
    fn system(&mut self, name: &[u8], results: &[Actual], params: &[Actual]) -> Result<(), PtxError> {
        match name {
            b"vprintf" => self.vprintf(results, params),
            b"malloc" => {
                let [bytes] = self.registers_of(params, [Class::B64])?;
                let [dst] = self.registers_of(results, [Class::B64])?;
                self.push(Op::Malloc { dst, bytes: Operand::Reg(bytes) });
                Ok(())
            }
            b"free" => {
                let [address] = self.registers_of(params, [Class::B64])?;
                let [] = self.registers_of(results, [])?;
                self.push(Op::Free { address: Operand::Reg(address) });
                Ok(())
            }
            b"__assertfail" => {
                let wide = Class::B64;
                let given = self.registers_of(params, [wide, wide, Class::B32, wide, wide])?;
                let [] = self.registers_of(results, [])?;
                let [message, file, line, function, _] = given.map(Operand::Reg);
                self.push(Op::Assert { message, file, line, function });
                Ok(())
            }
            _ => Err(self.tokens.unsupported(self.place, format!("call {}", String::from_utf8_lossy(name)))),
        }
    }

    /// The registers of parameters or results of a function that the device has.
    fn registers_of<const N: usize>(
        &self,
        actuals: &[Actual],
        classes: [Class; N],
    ) -> Result<[Reg; N], PtxError> {
        let mut found = [Reg(0); N];
        let mut fits = actuals.len() == N;
        for ((reg, actual), class) in found.iter_mut().zip(actuals).zip(classes) {
            match *actual {
                Actual::Reg(actual) if self.scopes.class(actual) == class => *reg = actual,
                _ => fits = false,
            }
        }
        if fits {
            return Ok(found);
        }
        Err(self.tokens.error_at(self.place, "the function has other parameters or results"))
    }

    fn vprintf(&mut self, results: &[Actual], params: &[Actual]) -> Result<(), PtxError> {
        let (&[Actual::Reg(format), Actual::Reg(arguments)], &([] | [Actual::Reg(_)])) = (params, results)
        else {
            return Err(self.tokens.error_at(self.place, "vprintf has two parameters and one result"));
        };
        let dst = if let [Actual::Reg(dst)] = *results { Some(dst) } else { None };
        let wide = [format, arguments].map(|reg| self.scopes.class(reg));
        if wide != [Class::B64; 2] || dst.is_some_and(|reg| self.scopes.class(reg) != Class::B32) {
            return Err(self
                .tokens
                .error_at(self.place, "vprintf has parameters of 64 bits and a result of 32"));
        }
        let (format, arguments) = (Operand::Reg(format), Operand::Reg(arguments));
        self.push(Op::Printf { dst, format, arguments });
        Ok(())
    }

    /// Reads a function's body in the place of a call.
    fn take_in(
        &mut self,
        name: &'t [u8],
        place: Place,
        results: &[Actual],
        params: &[Actual],
    ) -> Result<(), PtxError> {
        let elsewhere = self.tokens.elsewhere(place)?;
        let tokens = std::mem::replace(&mut self.tokens, elsewhere);
        let base = std::mem::replace(&mut self.base, self.scopes.depth() + 1);
        let here = self.place;
        self.calls.push(name);
        self.scopes.open_function();
        let header = self.header()?;
        let returned = self.bind(&header.results, results, false)?;
        self.bind(&header.params, params, true)?;
        self.tokens.expect(b'{')?;
        self.body()?;
        let block = self.flow.label(self.tokens.line());
        self.scopes.label(RETURN, block);
        self.scopes.close();
        self.calls.pop();
        (self.tokens, self.base, self.place) = (tokens, base, here);
        for (to, from) in returned {
            self.copy(to, Operand::Reg(from));
        }
        Ok(())
    }

    /// Makes what a function declares other names of what a call has. Those that are registers of the
    /// function's own get copies of parameters; of results, the pairs are returned.
    fn bind(
        &mut self,
        formals: &[Formal<'t>],
        actuals: &[Actual],
        given: bool,
    ) -> Result<Vec<(Reg, Reg)>, PtxError> {
        if !given && formals.is_empty() {
            // Linkers join functions by their names alone: one that returns nothing may be declared with a
            // result elsewhere. Then the result is undefined.
            return Ok(Vec::new());
        }
        if formals.len() != actuals.len() {
            let message =
                format!("the call has {} parameters or results, not {}", actuals.len(), formals.len());
            return Err(self.tokens.error_at(self.place, message));
        }
        let mut copied = Vec::new();
        for (formal, &actual) in formals.iter().zip(actuals) {
            if self.shape(actual) != formal.shape {
                return Err(self.tokens.error_at(formal.place, "the call has another parameter here"));
            }
            let symbol = match actual {
                Actual::Reg(actual) if formal.register => {
                    let own = self.register(self.scopes.class(actual))?;
                    if given {
                        self.copy(own, Operand::Reg(actual));
                    } else {
                        copied.push((actual, own));
                    }
                    Symbol::Reg(own)
                }
                Actual::Reg(reg) => Symbol::CallParam(reg),
                Actual::Memory { base, offset, bytes } => Symbol::CallMemory { base, offset, bytes },
            };
            self.declare(formal.name, symbol)?;
        }
        Ok(copied)
    }

    /// What a parameter of a call takes.
    pub(super) fn shape(&self, actual: Actual) -> Shape {
        match actual {
            Actual::Reg(reg) => Shape::Reg(self.scopes.class(reg)),
            Actual::Memory { bytes, .. } => Shape::Memory(bytes),
        }
    }

    /// Reads what a function declares, up to its body.
    pub(super) fn header(&mut self) -> Result<Header<'t>, PtxError> {
        let mut header = Header::default();
        if self.tokens.peek() == Token::Mark(b'(') {
            header.results = self.formals()?;
        }
        variable::name(&mut self.tokens)?;
        if self.tokens.peek() == Token::Mark(b'(') {
            header.params = self.formals()?;
        }
        self.performance()?;
        Ok(header)
    }

    /// Reads `(.param .b32 a, .param .align 8 .b8 b[24])`.
    fn formals(&mut self) -> Result<Vec<Formal<'t>>, PtxError> {
        self.tokens.expect(b'(')?;
        let mut formals = Vec::new();
        if self.tokens.take(b')')? {
            return Ok(formals);
        }
        loop {
            let place = self.tokens.place();
            let register = self.tokens.take_word(b".reg")?;
            if !register && !self.tokens.take_word(b".param")? {
                return Err(self.tokens.expected("`.param`"));
            }
            let prefix = variable::prefix(&mut self.tokens)?;
            let declaration = variable::declarator(&mut self.tokens, prefix)?;
            let shape = Shape::of(&declaration);
            if register && !matches!(shape, Shape::Reg(_)) {
                return Err(self.tokens.error_at(place, "a register of a call can only have 32 or 64 bits"));
            }
            if formals.len() as u64 == FORMALS_MOST {
                return Err(self.tokens.limit("parameters of a function", FORMALS_MOST));
            }
            formals.push(Formal { name: declaration.name, shape, register, place });
            if !self.tokens.take(b',')? {
                self.tokens.expect(b')')?;
                return Ok(formals);
            }
        }
    }

    /// How `ret` ends a block: of a kernel the lane ends, of a function it goes on behind the body.
    pub fn end_of_body(&mut self) -> End {
        if self.calls.is_empty() {
            return End::Return;
        }
        End::Goto(Target::Label(self.scopes.refer(RETURN, self.place)))
    }

    /// Reads `(param0, param1)`.
    pub(super) fn actuals(&mut self) -> Result<Vec<Actual>, PtxError> {
        self.tokens.expect(b'(')?;
        let mut actuals = Vec::new();
        if self.tokens.take(b')')? {
            return Ok(actuals);
        }
        loop {
            let place = self.tokens.place();
            let name = variable::name(&mut self.tokens)?;
            actuals.push(match self.scopes.find(name) {
                Some(Symbol::CallParam(reg)) => Actual::Reg(reg),
                Some(Symbol::Reg(reg)) if matches!(self.scopes.class(reg), Class::B32 | Class::B64) => {
                    Actual::Reg(reg)
                }
                Some(Symbol::CallMemory { base, offset, bytes }) => Actual::Memory { base, offset, bytes },
                Some(_) => return Err(self.tokens.error_at(place, "expected a parameter of a call")),
                None => return Err(self.tokens.undeclared(place, name)),
            });
            if actuals.len() as u64 > FORMALS_MOST {
                return Err(self.tokens.limit("parameters of a call", FORMALS_MOST));
            }
            if !self.tokens.take(b',')? {
                self.tokens.expect(b')')?;
                return Ok(actuals);
            }
        }
    }

    /// Reads what follows the label of a `.callprototype`, which the parameters of each call repeat, of
    /// `.calltargets`, which names the functions that a call may reach, or of `.branchtargets`.
    pub(super) fn call_label(&mut self, label: &'t [u8]) -> Result<bool, PtxError> {
        if self.tokens.take_word(b".calltargets")? {
            let place = self.tokens.place();
            targets(&mut self.tokens, self.module)?;
            self.declare(label, Symbol::Targets(place))?;
        } else if self.tokens.take_word(b".branchtargets")? {
            self.branch_targets(label)?;
        } else if self.tokens.take_word(b".callprototype")? {
            while self.tokens.peek() != Token::Mark(b';') {
                if self.tokens.next()? == Token::End {
                    return Err(self.tokens.expected("`;`"));
                }
            }
            self.declare(label, Symbol::Prototype)?;
        } else {
            return Ok(false);
        }
        self.tokens.expect(b';').map(|()| true)
    }
}

/// Reads the functions of a list of names.
pub(super) fn targets<'t>(
    tokens: &mut Tokens<'t>,
    module: &HashMap<Vec<u8>, ModuleSymbol>,
) -> Result<Vec<routines::Target<'t>>, PtxError> {
    let mut targets = Vec::new();
    loop {
        let at = tokens.place();
        let name = variable::name(tokens)?;
        match module.get(name) {
            Some(&ModuleSymbol::Function { place, address }) => targets.push((name, place, address)),
            _ => return Err(tokens.undeclared(at, name)),
        }
        if !tokens.take(b',')? {
            return Ok(targets);
        }
    }
}
