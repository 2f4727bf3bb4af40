//! Parser of functions with a separate body in a kernel: those that are called through an address, and those
//! that call themselves.
//!
//! A kernel contains each such function once. Its frame is on a stack in local memory. [`super::stack`] adds
//! the stack to calls after all bodies have been parsed. Parameters and results of 32 and 64 bits are passed
//! in registers that all such calls share. For all others, their address is passed.

use crate::error::PtxError;
use crate::ir::{Base, Binary, Class, Op, Operand, Reg, Ty};
use crate::kernel::Parser;
use crate::kernel::call::{Actual, Formal, FunctionHeader, ParamShape, RETURN, targets};
use crate::kernel::flow::End;
use crate::kernel::routines::{
    Callee, LINK, LOCAL_MOST, ROUTINES_MOST, Reach, Role, Routine, SITES_MOST, Site,
};
use crate::kernel::symbols::Symbol;
use crate::kernel::synthetic::{arithmetic, resize};
use crate::lex::{TextPosition, Token};
use crate::symbol::ModuleSymbol;
use crate::variable;

/// Returns the bit type of registers of a class.
const fn bits_of(class: Class) -> Ty {
    match class {
        Class::Pred => Ty::Pred,
        Class::B16 => Ty::B16,
        Class::B32 => Ty::B32,
        Class::B64 => Ty::B64,
    }
}

impl<'t> Parser<'t> {
    /// Adds a move of a value to a register of the same class.
    pub(super) fn copy(&mut self, dst: Reg, src: Operand) {
        let ty = bits_of(self.scopes.class(dst));
        self.push(Op::Mov { ty, dst, src });
    }

    /// Returns the register with the offset in bytes of the current routine's frame in local memory. Creates
    /// it with the first call.
    fn frame(&mut self) -> Result<Reg, PtxError> {
        if let Some(reg) = self.routines.frame {
            return Ok(reg);
        }
        let reg = self.register(Class::B32)?;
        self.routines.frame = Some(reg);
        self.routines.link = Some(self.register(Class::B32)?);
        Ok(reg)
    }

    fn transfer(&mut self, role: Role, index: usize, class: Class) -> Result<Reg, PtxError> {
        let key = (role, index, class);
        if let Some(&reg) = self.routines.transfers.get(&key) {
            return Ok(reg);
        }
        let reg = self.register(class)?;
        self.routines.transfers.insert(key, reg);
        self.routines.passing.insert(reg);
        Ok(reg)
    }

    /// Allocates local memory of the kernel, or of the frame of the current routine. Returns its base and its
    /// offset in bytes.
    pub(super) fn place_local(&mut self, bytes: u64, align: u64) -> Result<(Base, i64), PtxError> {
        let frame = self.frame_base()?;
        let used = match self.routines.current.and_then(|at| self.routines.list.get_mut(at)) {
            Some(routine) => {
                routine.align = routine.align.max(align);
                &mut routine.bytes
            }
            None => &mut self.local_bytes,
        };
        let offset = used.next_multiple_of(align);
        *used = offset.saturating_add(bytes);
        if *used > LOCAL_MOST {
            return Err(self.tokens.limit("bytes of local memory", LOCAL_MOST));
        }
        Ok((frame, offset as i64))
    }

    fn frame_base(&mut self) -> Result<Base, PtxError> {
        if self.routines.current.is_some() { self.frame().map(Base::Reg) } else { Ok(Base::Zero) }
    }

    /// Returns an operand with the value of an address. Adds the instructions for an address in a frame,
    /// whose base is a register.
    pub(super) fn address_value(&mut self, base: Base, offset: i64, ty: Ty) -> Result<Operand, PtxError> {
        let Base::Reg(start) = base else { return Ok(Operand::Address(base, offset)) };
        let add = |ty, dst, start, offset| {
            arithmetic(Binary::Add, ty, dst, Operand::Reg(start), Operand::Imm(offset))
        };
        if ty.bytes() == 4 {
            let sum = self.register(Class::B32)?;
            self.push(add(Ty::U32, sum, start, offset as u64 & 0xffff_ffff));
            return Ok(Operand::Reg(sum));
        }
        let (wide, sum) = (self.register(Class::B64)?, self.register(Class::B64)?);
        self.push(resize(Ty::U64, Ty::U32, wide, Operand::Reg(start)));
        self.push(add(Ty::U64, sum, wide, offset as u64));
        Ok(Operand::Reg(sum))
    }

    /// Returns the index of a function's routine. Adds the routine at its first call; its body is parsed
    /// later.
    fn routine(&mut self, name: &'t [u8], place: TextPosition) -> Result<usize, PtxError> {
        if let Some(&at) = self.routines.index.get(name) {
            return Ok(at);
        }
        if self.routines.list.len() as u64 == ROUTINES_MOST {
            return Err(self.tokens.too_large("functions", ROUTINES_MOST));
        }
        let at = self.routines.list.len();
        self.routines.list.push(Routine { name, place, start: 0, end: 0, bytes: LINK, align: LINK });
        self.routines.index.insert(name, at);
        Ok(at)
    }

    /// Adds a call of a function that has a separate body.
    pub(super) fn call_function(
        &mut self,
        name: &'t [u8],
        place: TextPosition,
        results: &[Actual],
        params: &[Actual],
    ) -> Result<(), PtxError> {
        let header = self.header_at(place)?;
        // A function without a result may be called for a result, as it may be if it is inlined.
        let results = if header.results.is_empty() { &[] } else { results };
        if !self.takes(&header, results, params) {
            return Err(self.tokens.error_at(self.place, "the function has other parameters or results"));
        }
        let routine = self.routine(name, place)?;
        self.go(Reach::Routine(routine), results, params)
    }

    /// Reads the call of a function at an address: `, (parameters), prototype`.
    pub(super) fn call_address(&mut self, address: Reg, results: &[Actual]) -> Result<(), PtxError> {
        if self.scopes.class(address) != Class::B64 {
            return Err(self.tokens.error_at(self.place, "the address of a function has 64 bits"));
        }
        self.comma()?;
        let params = if self.tokens.peek() == Token::Mark(b'(') {
            let params = self.actuals()?;
            self.comma()?;
            params
        } else {
            Vec::new()
        };
        let place = self.tokens.place();
        let name = variable::name(&mut self.tokens)?;
        let targets = match self.scopes.find(name) {
            Some(Symbol::Targets(list)) => targets(&mut self.tokens.elsewhere(list)?, self.module)?,
            Some(Symbol::Prototype) => self.address_taken()?,
            _ => return Err(self.tokens.undeclared(place, name)),
        };
        let mut reached = Vec::new();
        for (name, place, address) in targets {
            let header = self.header_at(place)?;
            if self.takes(&header, results, &params) {
                reached.push((address, self.routine(name, place)?));
            }
        }
        reached.sort_unstable();
        reached.dedup();
        self.go(Reach::Address(address, reached), results, &params)
    }

    /// Reads the declaration of the function at a position, without moving the parser's own.
    fn header_at(&mut self, place: TextPosition) -> Result<FunctionHeader<'t>, PtxError> {
        let elsewhere = self.tokens.elsewhere(place)?;
        let tokens = std::mem::replace(&mut self.tokens, elsewhere);
        let header = self.header()?;
        self.tokens = tokens;
        Ok(header)
    }

    /// Returns whether a function's results and parameters have the storage that the call's arguments have.
    fn takes(&self, header: &FunctionHeader<'_>, results: &[Actual], params: &[Actual]) -> bool {
        let same = |formals: &[Formal<'_>], actuals: &[Actual]| {
            formals.len() == actuals.len()
                && formals.iter().zip(actuals).all(|(formal, &actual)| formal.shape == self.shape(actual))
        };
        same(&header.results, results) && same(&header.params, params)
    }

    /// Adds the instructions that pass parameters, call a routine and receive its results.
    fn go(&mut self, reach: Reach, results: &[Actual], params: &[Actual]) -> Result<(), PtxError> {
        if self.routines.sites.len() as u64 == SITES_MOST {
            return Err(self.tokens.too_large("calls", SITES_MOST));
        }
        self.frame()?;
        for (index, &param) in params.iter().enumerate() {
            match param {
                Actual::Reg(reg) => {
                    let to = self.transfer(Role::Param, index, self.scopes.class(reg))?;
                    self.copy(to, Operand::Reg(reg));
                }
                Actual::Memory { base, offset, .. } => {
                    self.pass_address(Role::ParamAddress, index, base, offset)?;
                }
            }
        }
        for (index, &result) in results.iter().enumerate() {
            if let Actual::Memory { base, offset, .. } = result {
                self.pass_address(Role::ResultAddress, index, base, offset)?;
            }
        }
        let site = self.routines.sites.len();
        self.routines.sites.push(Site { caller: self.routines.current, reach });
        self.flow.close(End::Call(site as u32), self.place.1);
        for (index, &result) in results.iter().enumerate() {
            if let Actual::Reg(reg) = result {
                let from = self.transfer(Role::Result, index, self.scopes.class(reg))?;
                self.copy(reg, Operand::Reg(from));
            }
        }
        Ok(())
    }

    fn pass_address(&mut self, role: Role, index: usize, base: Base, offset: i64) -> Result<(), PtxError> {
        let to = self.transfer(role, index, Class::B32)?;
        let address = self.address_value(base, offset, Ty::U32)?;
        self.copy(to, address);
        Ok(())
    }

    /// Parses the bodies of all routines, and of those that they call.
    pub(super) fn read_routines(&mut self) -> Result<(), PtxError> {
        if self.routines.sites.is_empty() {
            return Ok(());
        }
        let main = self.tokens.clone();
        self.flow.close(End::Return, self.tokens.line());
        let mut at = 0;
        while at < self.routines.list.len() {
            self.read_routine(at)?;
            self.account()?;
            at += 1;
        }
        self.tokens = main;
        Ok(())
    }

    fn read_routine(&mut self, at: usize) -> Result<(), PtxError> {
        let Routine { name, place, .. } = self.routines.list[at];
        self.tokens = self.tokens.elsewhere(place)?;
        self.place = place;
        self.routines.list[at].start = self.flow.open();
        self.routines.current = Some(at);
        self.base = self.scopes.depth() + 1;
        self.calls = vec![name];
        self.scopes.open_function();
        let header = self.header()?;
        for (index, formal) in header.params.iter().enumerate() {
            self.own(Role::Param, Role::ParamAddress, index, formal)?;
        }
        let mut results = Vec::new();
        for (index, formal) in header.results.iter().enumerate() {
            let own = self.own(Role::Result, Role::ResultAddress, index, formal)?;
            results.extend(own.map(|own| (index, own)));
        }
        self.tokens.expect(b'{')?;
        self.body()?;
        self.place = self.tokens.place();
        let block = self.flow.label(self.tokens.line());
        self.scopes.label(RETURN, block);
        for (index, own) in results {
            let to = self.transfer(Role::Result, index, self.scopes.class(own))?;
            self.copy(to, Operand::Reg(own));
        }
        self.flow.close(End::Leave(at as u32), self.tokens.line());
        self.scopes.close();
        self.calls.clear();
        self.routines.list[at].end = self.flow.open();
        Ok(())
    }

    /// Declares a parameter or a result of the current routine. Returns its register if it has one. Only the
    /// register of a parameter holds a value yet.
    fn own(
        &mut self,
        role: Role,
        address: Role,
        index: usize,
        formal: &Formal<'t>,
    ) -> Result<Option<Reg>, PtxError> {
        let (role, class) = match formal.shape {
            ParamShape::Reg(class) => (role, class),
            ParamShape::Memory(_) => (address, Class::B32),
        };
        let own = self.register(class)?;
        if role != Role::Result {
            let from = self.transfer(role, index, class)?;
            self.copy(own, Operand::Reg(from));
        }
        let symbol = match formal.shape {
            ParamShape::Reg(_) if formal.register => Symbol::Reg(own),
            ParamShape::Reg(_) => Symbol::CallParam(own),
            ParamShape::Memory(bytes) => Symbol::CallMemory { base: Base::Reg(own), offset: 0, bytes },
        };
        self.declare(formal.name, symbol)?;
        Ok(matches!(formal.shape, ParamShape::Reg(_)).then_some(own))
    }

    /// Finds the functions of the module whose address is taken: those whose names occur elsewhere than in
    /// their declarations and in calls.
    fn address_taken(&mut self) -> Result<Vec<Callee<'t>>, PtxError> {
        if let Some(taken) = &self.routines.taken {
            return Ok(taken.clone());
        }
        let mut tokens = self.tokens.elsewhere((0, 1))?;
        let mut taken: Vec<Callee<'t>> = Vec::new();
        loop {
            match tokens.next()? {
                Token::End => break,
                Token::Word(b".func" | b"call" | b"call.uni") => {
                    if tokens.accept(b'(')? {
                        while !matches!(tokens.peek(), Token::Mark(b')' | b';') | Token::End) {
                            tokens.next()?;
                        }
                        tokens.accept(b')')?;
                        tokens.accept(b',')?;
                    }
                    if let Token::Word(_) = tokens.peek() {
                        tokens.next()?;
                    }
                }
                Token::Word(word) => {
                    if let Some(&ModuleSymbol::Function { place, address }) = self.module.get(word) {
                        taken.push((word, place, address));
                    }
                }
                _ => {}
            }
        }
        taken.sort_unstable_by_key(|&(_, _, address)| address);
        taken.dedup_by_key(|&mut (_, _, address)| address);
        self.routines.taken = Some(taken.clone());
        Ok(taken)
    }
}
