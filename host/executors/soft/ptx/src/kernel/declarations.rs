//! Parser of a kernel's declarations: parameters, limits, registers, variables.

use super::Parser;
use super::call::ParamShape;
use super::spelling::class;
use super::symbols::{DeclareError, REGISTERS_MOST, Symbol};
use crate::error::PtxError;
use crate::ir::{Base, Class, Param, Reg, Space};
use crate::lex::Token;
use crate::symbol::ModuleSymbol;
use crate::variable::{self, Declaration};

/// Largest size of a kernel's parameters in bytes, which is the limit of CUDA 12.1 and later.
const PARAM_MOST: u64 = 32_764;
/// Largest size of a kernel's static shared memory in bytes. It exceeds that of every device.
const SHARED_MOST: u64 = 1 << 20;

impl<'t> Parser<'t> {
    /// Reads an optional list of parameters, such as `( .param .u64 a, .param .align 8 .b8 b[24] )`.
    pub(super) fn parameters(&mut self) -> Result<(), PtxError> {
        if !self.tokens.accept(b'(')? || self.tokens.accept(b')')? {
            return Ok(());
        }
        loop {
            if !self.tokens.accept_word(b".param")? {
                return Err(self.tokens.expected("`.param`"));
            }
            let prefix = variable::prefix(&mut self.tokens)?;
            let declaration = variable::declarator(&mut self.tokens, prefix)?;
            let Declaration { name, bytes, element, align, .. } = declaration;
            let offset = self.param_bytes.next_multiple_of(align);
            self.param_bytes = offset + bytes;
            if self.param_bytes > PARAM_MOST {
                return Err(self.tokens.limit("bytes of parameters", PARAM_MOST));
            }
            self.params.push(Param { offset: offset as u32, bytes: bytes as u32 });
            self.declare(
                name,
                Symbol::Variable { space: Space::Param, base: Base::Zero, offset: offset as i64, element },
            )?;
            if !self.tokens.accept(b',')? {
                return self.tokens.expect(b')');
            }
        }
    }

    /// Reads the performance directives between parameters and body.
    pub(super) fn performance(&mut self) -> Result<(), PtxError> {
        while let Token::Word(word) = self.tokens.peek() {
            self.tokens.next()?;
            match word {
                b".maxntid" => {
                    let threads = self.sizes()?;
                    self.max_threads = Some(threads.into_iter().fold(1, u32::saturating_mul));
                }
                b".reqntid" => self.required_threads = Some(self.sizes()?),
                b".reqnctapercluster" => {
                    let blocks = self.sizes()?.into_iter().fold(1, u32::saturating_mul);
                    if blocks != 1 {
                        let message = format!("clusters of {blocks} blocks are not supported");
                        return Err(self.tokens.error(message));
                    }
                }
                b".minnctapersm" | b".maxnctapersm" | b".maxnreg" | b".maxclusterrank" => {
                    variable::number(&mut self.tokens, "a number")?;
                }
                b".pragma" => self.pragma()?,
                b".noreturn" | b".explicitcluster" => {}
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(self.tokens.error(format!("{word} of a kernel is not supported")));
                }
            }
        }
        Ok(())
    }

    /// Reads one to three sizes of a block, of which missing ones are 1, as in `.maxntid 64, 1, 1`.
    fn sizes(&mut self) -> Result<[u32; 3], PtxError> {
        let mut sizes = [1; 3];
        let mut axis = 0;
        loop {
            let size = variable::number(&mut self.tokens, "a size")?;
            sizes[axis] = u32::try_from(size).map_err(|_| self.tokens.error(format!("{size} is no size")))?;
            axis += 1;
            if axis == sizes.len() || !self.tokens.accept(b',')? {
                return Ok(sizes);
            }
        }
    }

    /// Reads a declaration of registers, such as `.b32 a, b, %r<5>;`.
    pub(super) fn registers(&mut self) -> Result<(), PtxError> {
        let Token::Word([b'.', name @ ..]) = self.tokens.peek() else {
            return Err(self.tokens.expected("a type"));
        };
        let Some(ty) = variable::ty(name) else {
            return Err(self.tokens.expected("a type of registers"));
        };
        self.tokens.next()?;
        loop {
            let name = variable::name(&mut self.tokens)?;
            let done = if self.tokens.accept(b'<')? {
                let count = variable::number(&mut self.tokens, "a number of registers")?;
                self.tokens.expect(b'>')?;
                self.scopes.declare_range(name, count, class(ty))
            } else {
                self.scopes.declare_register(name, class(ty))
            };
            self.declared(name, done)?;
            if !self.tokens.accept(b',')? {
                return self.tokens.expect(b';');
            }
        }
    }

    /// Reads the variables of a `.shared`, `.local` or `.param` declaration in a body, and allocates them.
    pub(super) fn variables(&mut self, space: &[u8]) -> Result<(), PtxError> {
        let prefix = variable::prefix(&mut self.tokens)?;
        loop {
            let declaration = variable::declarator(&mut self.tokens, prefix)?;
            let Declaration { name, bytes, element, align, open, .. } = declaration;
            if open {
                return Err(self.tokens.error_at(self.place, "a variable of a kernel needs a size"));
            }
            let symbol = match space {
                b".shared" => {
                    let offset = self.place_shared(bytes, align)?;
                    Symbol::Variable { space: Space::Shared, base: Base::Zero, offset, element }
                }
                b".local" => {
                    let (base, offset) = self.place_local(bytes, align)?;
                    Symbol::Variable { space: Space::Local, base, offset, element }
                }
                _ => match ParamShape::from_declaration(&declaration) {
                    ParamShape::Reg(class) => Symbol::CallParam(self.register(class)?),
                    ParamShape::Memory(bytes) => {
                        let (base, offset) = self.place_local(bytes, align)?;
                        Symbol::CallMemory { base, offset, bytes }
                    }
                },
            };
            self.declare(name, symbol)?;
            if !self.tokens.accept(b',')? {
                return self.tokens.expect(b';');
            }
        }
    }

    /// Allocates static shared memory and returns its offset in bytes.
    fn place_shared(&mut self, bytes: u64, align: u64) -> Result<i64, PtxError> {
        let offset = self.shared_bytes.next_multiple_of(align);
        self.shared_bytes = offset.saturating_add(bytes);
        if self.shared_bytes > SHARED_MOST {
            return Err(self.tokens.limit("bytes of shared memory", SHARED_MOST));
        }
        Ok(offset as i64)
    }

    /// Finds the meaning of a module's name in this kernel. Allocates a shared variable at its first use.
    pub(super) fn module_symbol(&mut self, name: &[u8]) -> Result<Option<Symbol>, PtxError> {
        let (space, base, offset, element) = match self.module.get(name) {
            None => return Ok(None),
            Some(&ModuleSymbol::Function { address, .. }) => return Ok(Some(Symbol::Function(address))),
            Some(&ModuleSymbol::Global { index, element }) => {
                (Space::Global, Base::Global(index), 0, element)
            }
            Some(&ModuleSymbol::Dynamic { element, align }) => {
                self.dynamic_align = self.dynamic_align.max(align);
                (Space::Shared, Base::DynamicShared, 0, element)
            }
            Some(&ModuleSymbol::Shared { bytes, element, align }) => {
                let known = self.module_shared.get(name).copied();
                let offset = known.map_or_else(|| self.place_shared(bytes, align), Ok)?;
                self.module_shared.insert(name.to_vec(), offset);
                (Space::Shared, Base::Zero, offset, element)
            }
        };
        Ok(Some(Symbol::Variable { space, base, offset, element }))
    }

    pub(super) fn declare(&mut self, name: &'t [u8], symbol: Symbol) -> Result<(), PtxError> {
        let done = self.scopes.declare(name, symbol);
        self.declared(name, done)
    }

    pub(super) fn register(&mut self, class: Class) -> Result<Reg, PtxError> {
        let reg = self.scopes.register(class);
        reg.map_err(|_| self.tokens.too_large("registers", REGISTERS_MOST))
    }

    fn declared(&self, name: &[u8], done: Result<(), DeclareError>) -> Result<(), PtxError> {
        match done {
            Ok(()) => Ok(()),
            Err(DeclareError::TooMany) => Err(self.tokens.too_large("registers", REGISTERS_MOST)),
            Err(DeclareError::Twice) => {
                let name = String::from_utf8_lossy(name);
                Err(self.tokens.error_at(self.place, format!("{name} is declared twice")))
            }
        }
    }
}
