//! Parser of calls of the device's functions and of the module's (PTX ISA, `call` and the chapter
//! "Abstracting the ABI").
//!
//! nvcc declares parameters for each call (`.param .b64 param0; st.param.b64 [param0+0], %rd1;`). Parameters
//! of 32 and 64 bits become registers here, and all others become local memory. If a function is inlined, its
//! parameters are other names of the same registers and memory, because a function does not write its
//! parameters. A call through an address, and a call of a function that is already being parsed, goes to a
//! separate body of the function (see [`super::routine`]).

use std::collections::HashMap;

use crate::error::PtxError;
use crate::ir::{Base, Class, Guard, Op, Operand, Reg};
use crate::kernel::Parser;
use crate::kernel::flow::{BranchTarget, End};
use crate::kernel::routines;
use crate::kernel::spelling::{Spelling, class};
use crate::kernel::symbols::{SCOPES_MOST, Symbol};
use crate::lex::{TextPosition, Token, Tokens};
use crate::symbol::ModuleSymbol;
use crate::variable::{self, Declaration};

/// Largest depth of nested inlined bodies.
const NEST_MOST: usize = 24;
/// Largest number of times that a function is inlined. Further calls go to its separate body, because
/// functions that call each other twice would make a text that grows exponentially.
const COPIES_MOST: u32 = 64;
/// Largest number of parameters of a function, and of results.
const FORMALS_MOST: u64 = 1 << 10;
/// Label after a guarded call, and after an inlined body. No text can contain this name.
const AFTER: &[u8] = b"<after>";
pub(super) const RETURN: &[u8] = b"<return>";

/// Location of a parameter or a result at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actual {
    /// The value is in a register.
    Reg(Reg),
    /// The value is in local memory.
    Memory { base: Base, offset: i64, bytes: u64 },
}

/// Storage that a parameter or a result needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamShape {
    /// The value needs a register of 32 or 64 bits.
    Reg(Class),
    /// The value needs this number of bytes of memory.
    Memory(u64),
}

impl ParamShape {
    /// Returns the shape of a declared parameter.
    pub fn from_declaration(declaration: &Declaration<'_>) -> Self {
        if declaration.array || declaration.ty.bytes() < 4 {
            Self::Memory(declaration.bytes)
        } else {
            Self::Reg(class(declaration.ty))
        }
    }
}

/// Formal parameter or result in a function's declaration.
#[derive(Clone, Copy, Debug)]
pub struct Formal<'t> {
    pub name: &'t [u8],
    pub shape: ParamShape,
    /// Whether the parameter is a `.reg`, which the function may write.
    pub register: bool,
    pub place: TextPosition,
}

/// Results and parameters that a function declares before its body.
#[derive(Clone, Debug, Default)]
pub struct FunctionHeader<'t> {
    pub results: Vec<Formal<'t>>,
    pub params: Vec<Formal<'t>>,
}

impl<'t> Parser<'t> {
    /// Reads a call from its modifiers on, `(retval), function, (parameters)`. A call with a guard becomes a
    /// branch around it.
    pub fn call(&mut self, mut s: Spelling<'t>, guard: Option<Guard>) -> Result<(), PtxError> {
        s.accept("uni");
        self.done(&s)?;
        let (place, word) = (self.place, self.word);
        if let Some(guard) = guard {
            // The label has a separate scope.
            self.scopes.open();
            let otherwise = BranchTarget::Label(self.scopes.refer(AFTER, place));
            let then = BranchTarget::Block(self.flow.open() + 1);
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
        let params = if self.tokens.accept(b',')? { self.actuals()? } else { Vec::new() };
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

    /// Adds the instruction for a call of a function that the device provides: `vprintf`, `malloc`, `free` or
    /// `__assertfail`. Fails if there is no function of this name.
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

    /// Returns the registers of the parameters or results of a device function.
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

    /// Inlines a function: parses its body at the call, in a scope of its own.
    fn take_in(
        &mut self,
        name: &'t [u8],
        place: TextPosition,
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

    /// Binds the names that a function declares to the arguments of a call. Parameters in registers of the
    /// function are copied. Results in such registers are returned as pairs of the argument and the register,
    /// to be copied at the end.
    fn bind(
        &mut self,
        formals: &[Formal<'t>],
        actuals: &[Actual],
        given: bool,
    ) -> Result<Vec<(Reg, Reg)>, PtxError> {
        if !given && formals.is_empty() {
            // Linkers match functions by name only: a function without a result may be declared with a result
            // elsewhere. Then the result is undefined.
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

    /// Returns the storage that a call's argument has.
    pub(super) fn shape(&self, actual: Actual) -> ParamShape {
        match actual {
            Actual::Reg(reg) => ParamShape::Reg(self.scopes.class(reg)),
            Actual::Memory { bytes, .. } => ParamShape::Memory(bytes),
        }
    }

    /// Reads a function's declaration up to its body.
    pub(super) fn header(&mut self) -> Result<FunctionHeader<'t>, PtxError> {
        let mut header = FunctionHeader::default();
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

    /// Reads a list of formal parameters, such as `(.param .b32 a, .param .align 8 .b8 b[24])`.
    fn formals(&mut self) -> Result<Vec<Formal<'t>>, PtxError> {
        self.tokens.expect(b'(')?;
        let mut formals = Vec::new();
        if self.tokens.accept(b')')? {
            return Ok(formals);
        }
        loop {
            let place = self.tokens.place();
            let register = self.tokens.accept_word(b".reg")?;
            if !register && !self.tokens.accept_word(b".param")? {
                return Err(self.tokens.expected("`.param`"));
            }
            let prefix = variable::prefix(&mut self.tokens)?;
            let declaration = variable::declarator(&mut self.tokens, prefix)?;
            let shape = ParamShape::from_declaration(&declaration);
            if register && !matches!(shape, ParamShape::Reg(_)) {
                return Err(self.tokens.error_at(place, "a register of a call can only have 32 or 64 bits"));
            }
            if formals.len() as u64 == FORMALS_MOST {
                return Err(self.tokens.limit("parameters of a function", FORMALS_MOST));
            }
            formals.push(Formal { name: declaration.name, shape, register, place });
            if !self.tokens.accept(b',')? {
                self.tokens.expect(b')')?;
                return Ok(formals);
            }
        }
    }

    /// Returns the terminator that `ret` stands for. In a kernel the lane exits, and in an inlined function
    /// it continues after the body.
    pub fn end_of_body(&mut self) -> End {
        if self.calls.is_empty() {
            return End::Return;
        }
        End::Goto(BranchTarget::Label(self.scopes.refer(RETURN, self.place)))
    }

    /// Reads a list of arguments, `(param0, param1)`.
    pub(super) fn actuals(&mut self) -> Result<Vec<Actual>, PtxError> {
        self.tokens.expect(b'(')?;
        let mut actuals = Vec::new();
        if self.tokens.accept(b')')? {
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
            if !self.tokens.accept(b',')? {
                self.tokens.expect(b')')?;
                return Ok(actuals);
            }
        }
    }

    /// Reads the part of a directive after its label. `.callprototype` repeats the parameters of each call,
    /// `.calltargets` lists the functions that a call may reach, and `.branchtargets` lists labels. Returns
    /// false, without taking a token, if no such directive follows.
    pub(super) fn call_label(&mut self, label: &'t [u8]) -> Result<bool, PtxError> {
        if self.tokens.accept_word(b".calltargets")? {
            let place = self.tokens.place();
            targets(&mut self.tokens, self.module)?;
            self.declare(label, Symbol::Targets(place))?;
        } else if self.tokens.accept_word(b".branchtargets")? {
            self.branch_targets(label)?;
        } else if self.tokens.accept_word(b".callprototype")? {
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

/// Reads a list of names of functions.
pub(super) fn targets<'t>(
    tokens: &mut Tokens<'t>,
    module: &HashMap<Vec<u8>, ModuleSymbol>,
) -> Result<Vec<routines::Callee<'t>>, PtxError> {
    let mut targets = Vec::new();
    loop {
        let at = tokens.place();
        let name = variable::name(tokens)?;
        match module.get(name) {
            Some(&ModuleSymbol::Function { place, address }) => targets.push((name, place, address)),
            _ => return Err(tokens.undeclared(at, name)),
        }
        if !tokens.accept(b',')? {
            return Ok(targets);
        }
    }
}
